"""The pause of output at a transition.

A Runtime takes pushes of 1 000 arrivals and counts results. When its windows are full and its states complete, it takes
one turnover of all windows, which shows the usual time of a push; then it changes to a plan that shares no state with
the old one, and takes another turnover, after which no row is older than the transition. A push that enlarges or moves
a ring takes long at any time, so the longest push of the turnover before is kept as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter, thread_time

import numpy as np
import numpy.typing as npt

import eddy
from bench.harness.turns import without_gc
from bench.ways.strategies import check_complete
from bench.workloads.turnover import Pushes, Turnover

LEAST_PUSHES = 100
"""Pushes timed before and after a transition, if a turnover has fewer."""
Times = npt.NDArray[np.float64]
"""Seconds; the last axis is (wall time, CPU time)."""


@dataclass(frozen=True)
class Pause:
    """One transition, each time as [wall, CPU] seconds.

    call        `Runtime.transition`
    latency     the call and the first push: the time until the next output
    longest     the latency, or a later push of the turnover that takes longer
    usual       the median push of the turnover before
    usual_most  the longest push of the turnover before
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
    turnover: Turnover, pushes: Pushes, strategy: str, transitions: int, least: int = LEAST_PUSHES
) -> tuple[list[Pause], list[int]]:
    """Return some transitions back and forth, and the results of each turnover; `least` as in `timed_pushes`."""
    runtime = eddy.Runtime(turnover.query, turnover.plan, strategy=strategy, count_only=True)
    plans = [turnover.reversed_plan, turnover.plan]
    counts = [timed_pushes(runtime, pushes)[1]]
    found = []
    with without_gc():
        for number in range(transitions):
            usual, results = timed_pushes(runtime, pushes, least)
            counts.append(results)
            check_complete(runtime)
            start = _now()
            runtime.transition(plans[number % 2])
            call = _now() - start
            after, results = timed_pushes(runtime, pushes, least)
            counts.append(results)
            latency = call + after[0]
            longest = np.maximum(latency, after[1:].max(axis=0))
            found.append(Pause(call, latency, longest, np.median(usual, axis=0), usual.max(axis=0)))
    return found, counts
