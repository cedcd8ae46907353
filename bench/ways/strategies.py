"""Strategies over arrivals that repeat: in the engine alone, and in a Runtime; both count results.

`pauses` measures the pause of output at a transition. When the windows of a Runtime are full and its states complete,
the Runtime takes one turnover of all windows, which shows the usual time of a push. Then the Runtime changes to a plan
that shares no state with the old plan, and takes another turnover, after which no row is older than the transition. A
push that enlarges or moves a ring always takes long, so the longest push of the turnover before is kept as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter, thread_time

import numpy as np
import numpy.typing as npt

import eddy
from bench.harness.figure import Say
from bench.harness.turns import Mismatch, Taken, agree, without_gc
from bench.ways.published import KINDS, published
from bench.ways.runners import open_push
from bench.workloads.sources import Columns, Order, Pushes, Turnover, permutations
from jisc.plan.tree import parse
from jisc.strategies import Transition
from stairs.modules import Modules

PUSH = 1_000
"""Arrivals of a push."""
LEAST_PUSHES = 100
"""Pushes timed before and after a transition, if a turnover has fewer."""
Times = npt.NDArray[np.float64]
"""Seconds; the last axis is (wall time, CPU time)."""


class StrategyEngine:
    """A strategy in its published form that runs the plan of a turnover over SteMs of its own, without Arrow."""

    def __init__(self, turnover: Turnover, strategy: str) -> None:
        self.graph = turnover.query.graph
        self.modules = Modules(self.graph)
        self.strategy = KINDS[strategy](self.modules, parse(turnover.plan, self.graph.names))

    def transition(self, plan: str) -> None:
        """Change to another plan."""
        self.strategy.change(parse(plan, self.graph.names))

    def turn(self, pushes: list[tuple[Order, Columns]]) -> tuple[float, int]:
        """Return (CPU seconds, results) of these pushes, including the bookkeeping of the strategy after each."""
        modules, strategy, results = self.modules, self.strategy, 0
        start = thread_time()
        for order, columns in pushes:
            open_push(modules, columns)
            results += modules.run(strategy.routes, order, True, strategy.entries)
            modules.commit()
            strategy.after_push(len(order))
        return thread_time() - start, results


def check_complete(runtime: eddy.Runtime) -> None:
    """Raise Mismatch if a state is incomplete: the measurement assumes complete states."""
    waiting = [stair.what for stair in runtime.stairs if stair.pending]
    if waiting:
        raise Mismatch(f"{runtime.strategy}: {waiting[0]} is still incomplete after a turnover of all windows")


class TurnoverRun:
    """A Runtime under one strategy, in its published form, that takes the pushes of a turnover again and again.

    changed   the last transition, None = none yet
    """

    def __init__(self, turnover: Turnover, pushes: Pushes, strategy: str) -> None:
        with published(strategy) as name:
            self.runtime = eddy.Runtime(turnover.query, turnover.plan, strategy=name, count_only=True)
        self.changed: Transition | None = None
        self._pushes = pushes
        self._next = 0

    def take(self, count: int, plan: str | None = None) -> tuple[float, int]:
        """Change to `plan`, if one is given, then take `count` pushes; return (CPU seconds of both, results)."""
        results = 0
        start = thread_time()
        if plan is not None:
            # The box is the whole plan, because parallel-track runs two whole plans in the papers.
            box = plan if self.runtime.strategy == "parallel-track" else None
            self.changed = self.runtime.transition(plan, box=box)
        for _ in range(count):
            rows, order = self._pushes[self._next]
            self._next = (self._next + 1) % len(self._pushes)
            results += self.runtime.push(rows, order).column("count")[0].as_py()
        return thread_time() - start, results

    def check_over(self) -> None:
        """Raise Mismatch unless the stage of the last transition is over and every state is complete.

        A policy other than "fixed" may have begun another stage, so it is not checked.
        """
        if self.runtime.policy != "fixed":
            return
        check_complete(self.runtime)
        if self.changed is not None and self.changed.ended is None:
            raise Mismatch(f"{self.runtime.strategy}: the stage is not over after a turnover of all windows")


def raced(
    name: str, runs: Mapping[str, TurnoverRun], parts: Sequence[tuple[int, str | None]], say: Say, check: bool = False
) -> Taken:
    """Let runs take each part in turn, (pushes, plan before them); return the CPU seconds of the parts.

    Raises Mismatch if runs differ in the number of results of a part; and with `check`, unless the stage of a
    transition is over at the end of its part.
    """
    taken: Taken = {strategy: [] for strategy in runs}
    with without_gc():
        for number, (count, plan) in enumerate(parts, 1):
            results = {}
            for strategy, run in runs.items():
                say(f"{name}, part {number} of {len(parts)}: {strategy}")
                seconds, results[strategy] = run.take(count, plan)
                taken[strategy].append(seconds)
                if check and plan is not None:
                    run.check_over()
            agree(name, results)
    return taken


def started(turnover: Turnover, pushes: Pushes, strategies: Iterable[str]) -> dict[str, TurnoverRun]:
    """Return a run for each strategy; kernels that only a transition calls are compiled before."""
    names = list(strategies)
    small = permutations(3, PUSH)
    for name in names:
        run = TurnoverRun(small, small.cut(PUSH).arrow, name)
        run.take(2)
        if KINDS[name].changes:
            run.take(2, small.reversed_plan)
    return {name: TurnoverRun(turnover, pushes, name) for name in names}


@dataclass(frozen=True)
class Pause:
    """One transition, each time as [wall, CPU] seconds.

    call        time of `Runtime.transition`
    latency     time of the call and of the first push: the time until the next output
    longest     the latency, or the time of a later push of the turnover that takes longer
    usual       the median push of the turnover before the transition
    usual_most  the longest push of the turnover before the transition
    """

    call: Times
    latency: Times
    longest: Times
    usual: Times
    usual_most: Times


def _now() -> Times:
    return np.array([perf_counter(), thread_time()])


def timed_pushes(runtime: eddy.Runtime, pushes: Pushes, least: int = 0) -> tuple[Times, int]:
    """Take the pushes, repeatedly until `least` were taken; return (Times[pushes, 2], results)."""
    taken: list[Times] = []
    results = 0
    while True:
        for rows, order in pushes:
            start = _now()
            table = runtime.push(rows, order)
            taken.append(_now() - start)
            results += table.column("count")[0].as_py()
        if len(taken) >= least:
            return np.array(taken), results


def pauses(
    turnover: Turnover,
    pushes: Pushes,
    strategy: str,
    transitions: int,
    least: int = LEAST_PUSHES,
    complete: bool = True,
) -> tuple[list[Pause], list[int]]:
    """Return some transitions back and forth, and the results of each turnover; `least` as in `timed_pushes`.

    complete   raise Mismatch if a state is incomplete before a transition
    """
    with published(strategy) as name:
        runtime = eddy.Runtime(turnover.query, turnover.plan, strategy=name, count_only=True)
    plans = [turnover.reversed_plan, turnover.plan]
    counts = [timed_pushes(runtime, pushes)[1]]
    measured = []
    with without_gc():
        for number in range(transitions):
            usual, results = timed_pushes(runtime, pushes, least)
            counts.append(results)
            if complete:
                check_complete(runtime)
            start = _now()
            runtime.transition(plans[number % 2])
            call = _now() - start
            after, results = timed_pushes(runtime, pushes, least)
            counts.append(results)
            latency = call + after[0]
            longest = np.maximum(latency, after[1:].max(axis=0))
            measured.append(Pause(call, latency, longest, np.median(usual, axis=0), usual.max(axis=0)))
    return measured, counts
