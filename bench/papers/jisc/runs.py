"""Strategies that run side by side, each over the same arrivals, which come again and again; timed in turns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import thread_time

import eddy
from bench.harness.figure import Say
from bench.measure import Mismatch, agree
from bench.pauses import Pushes, check_complete
from bench.workloads import Turnover, permutations
from jisc.strategies import Transition

PUSH = 1_000
"""Arrivals of a push."""
COMPARED = ("jisc", "cacq", "parallel-track", "mjoin", "eddy")
"""The strategies of the paper's throughput figures, and two of ours that store nothing or what they choose."""


class Run:
    """A query over a turnover under one strategy. It counts results; an arrival is pushed when the one before is done.

    changed   the last transition, None = there was none
    """

    def __init__(self, turnover: Turnover, pushes: Pushes, strategy: str) -> None:
        self.runtime = eddy.Runtime(turnover.query, turnover.plan, strategy=strategy, count_only=True)
        self.changed: Transition | None = None
        self._pushes = pushes
        self._next = 0

    def take(self, count: int, plan: str | None = None) -> tuple[float, int]:
        """Go over to `plan`, if one is given, then take so many pushes. Return (CPU seconds of both, results)."""
        results = 0
        start = thread_time()
        if plan is not None:
            self.changed = self.runtime.transition(plan)
        for _ in range(count):
            rows, order = self._pushes[self._next]
            self._next = (self._next + 1) % len(self._pushes)
            results += self.runtime.push(rows, order).column("count")[0].as_py()
        return thread_time() - start, results

    def check_over(self) -> None:
        """Raise Mismatch unless the stage of the last transition is over and no state is incomplete.

        A policy that changes plans by itself may have begun a stage of its own, so of those nothing is asked.
        """
        if self.runtime.policy != "fixed":
            return
        check_complete(self.runtime)
        if self.changed is not None and self.changed.ended is None:
            raise Mismatch(f"{self.runtime.strategy}: the stage is not over after a turnover of all windows")


def take_in_turns(
    name: str, runs: Mapping[str, Run], count: int, plan: str | None = None, say: Say | None = None
) -> dict[str, float]:
    """Have each run take so many pushes, one run after the other, and return the CPU seconds of each.

    `say` is told of each before its turn. Raises Mismatch if they differ in the number of results.
    """
    seconds: dict[str, float] = {}
    results: dict[str, int] = {}
    for strategy, run in runs.items():
        if say is not None:
            say(f"{name}: {strategy}")
        seconds[strategy], results[strategy] = run.take(count, plan)
    agree(name, results)
    return seconds


def started(turnover: Turnover, pushes: Pushes, strategies: Iterable[str]) -> dict[str, Run]:
    """Return a run for each strategy; what only a transition calls is compiled or loaded before."""
    names = list(strategies)
    small = permutations(3, 10)
    for name in names:
        run = Run(small, small.pushes(PUSH), name)
        run.take(2)
        if run.runtime.strategy != "symmetric-hash":
            run.take(2, small.reversed_plan)
    return {name: Run(turnover, pushes, name) for name in names}
