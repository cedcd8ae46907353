"""Ways to run a query, and the outcome of each way on recorded rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from time import perf_counter, process_time

from eddy.query.query import Query
from eddy.replay.recorded import ReplayFeed
from eddy.routing.estimates import plans
from eddy.routing.policies import PolicyName
from eddy.routing.router import policy_name
from eddy.routing.strategies import strategy_name
from eddy.runtime import Runtime
from jisc.strategies import STRATEGIES, StrategyName
from stairs.errors import InputError

ANY = 1_000_000
"""Number of plans requested to find the most expensive plan."""


@dataclass(frozen=True)
class Way:
    """A way to run a query; `about` is the reason to try this way. None = the default."""

    about: str
    strategy: StrategyName = "eddy"
    policy: PolicyName | None = None
    plan: str | None = None


@dataclass(frozen=True)
class WayOutcome:
    """The outcome of a way.

    results, late, changes   in all
    seconds, cpu_seconds     of all pushes: of the wall clock, and of this process
    longest                  seconds of the longest push
    state_bytes              the greatest number of bytes after a push
    plan, reason             the plan at the end, and the reason of its choice
    """

    way: Way
    policy: str
    results: int
    late: int
    changes: int
    seconds: float
    cpu_seconds: float
    longest: float
    state_bytes: int
    plan: str
    reason: str | None


def asked_ways(strategies: Sequence[str], policies: Sequence[str], plans: Sequence[str]) -> list[Way]:
    """Return all combinations; a strategy that cannot change its plan has the policy "fixed" only.

    Raises InputError for an unknown strategy or policy.
    """
    ways, default = [], (None,)
    names = list(map(strategy_name, strategies or ("eddy",)))
    for strategy, policy, plan in product(names, [*map(policy_name, policies)] or default, plans or default):
        if policy in (None, "fixed") or STRATEGIES[strategy].changes:
            ways.append(Way("asked for", strategy, policy, plan))
    return ways


class Replay:
    """Runs a query over recorded rows in several ways.

    size         rows of a push
    count_only   whether results are counted and not built
    """

    def __init__(self, query: Query, feed: ReplayFeed, size: int, count_only: bool = False) -> None:
        self.query, self.feed, self.size, self.count_only = query, feed, size, count_only

    def usual_ways(self) -> Iterator[Way]:
        """Yield the ways that show what adaptivity brings.

        These are the default, and fixed plans over SteMs: the plan of the query as written, and the plans with the
        least and the greatest cost predicted from the statistics at the end of a run.
        """
        yield Way("adaptive, the default")
        yield Way("the plan as written", "mjoin", "fixed")
        if self.query.branches:
            return
        runtime = self._runtime(Way(""))
        for batches, order in self.feed.pushes(self.size):
            runtime.push(batches, order)
        try:
            ranked_plans = plans(self.query, runtime.stats(), ANY)["plan"].to_pylist()
        except InputError:
            return  # the windows are empty at the end
        yield Way("the best fixed plan, predicted with hindsight", "mjoin", "fixed", ranked_plans[0])
        if len(ranked_plans) > 1:
            yield Way("the worst fixed plan, predicted with hindsight", "mjoin", "fixed", ranked_plans[-1])

    def _runtime(self, way: Way) -> Runtime:
        return Runtime(
            self.query,
            way.plan,
            strategy=way.strategy,
            policy=way.policy,
            count_only=self.count_only,
            bounded=True,
        )

    def warm(self, way: Way) -> None:
        """Run the first pushes, so that the kernels of the way are compiled."""
        runtime = self._runtime(way)
        for n, (batches, order) in enumerate(self.feed.pushes(self.size)):
            runtime.push(batches, order)
            if n == 1:
                return

    def run(self, way: Way) -> WayOutcome:
        """Run all rows in one way. Only pushes are timed."""
        runtime, results = self._runtime(way), 0
        seconds = cpu = longest = 0.0
        most = runtime.nbytes
        for batches, order in self.feed.pushes(self.size):
            began, began_cpu = perf_counter(), process_time()
            runtime.push(batches, order)
            took = perf_counter() - began
            cpu += process_time() - began_cpu
            seconds += took
            longest, most = max(longest, took), max(most, runtime.nbytes)
        runtime.finish()
        results = int(runtime.metrics()["results"])
        late, policy = sum(runtime.late_counts.values()), runtime.policy
        return WayOutcome(
            way, policy, results, late, runtime.changes, seconds, cpu, longest, most, runtime.plan, runtime.reason
        )

    def compare(self, ways: Sequence[Way], repeat: int = 1) -> list[WayOutcome]:
        """Return the outcome of each way; of several rounds, the one with the least CPU time.

        The rounds alternate between the ways, so that a machine that slows down slows all of them down.
        """
        for way in ways:
            self.warm(way)
        rounds = [[self.run(way) for way in ways] for _ in range(repeat)]
        return [min(outcomes, key=lambda outcome: outcome.cpu_seconds) for outcomes in zip(*rounds, strict=True)]
