"""How long output pauses at a transition, by strategy and size of the windows.

A runtime takes pushes of 1 000 arrivals and counts results. When its windows are full and its states complete it takes
a turnover of all windows as it is, which says what is usual; then it goes over to a plan that shares no state with the
old one, and takes another turnover, after which no row is left that is older than the transition.

latency   the call of `transition` and the first push after it: how long until there is output again
pause     the longest that output pauses in that turnover: the latency, or a later push if one takes longer

Arrivals are those of W21: every push has as many results as arrivals. A push that makes a ring larger or moves it takes
long at any time, so the longest push of the turnover before is given as well. Times are wall times, since a pause is
one; where a ratio is what counts it is given in CPU time too, which other processes disturb less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter, thread_time
from typing import Any

import numpy as np
import numpy.typing as npt

import eddy
from bench.measure import Mismatch, agree, without_gc
from bench.workloads import Order, Turnover, permutations
from jisc.strategies import STRATEGIES

BATCH = 1_000
CHANGING = tuple(name for name, kind in STRATEGIES.items() if kind.changes)
"""Strategies whose plan can change."""
LEAST_PUSHES = 100
"""Pushes timed before and after a transition, if a turnover has fewer."""

Pushes = list[tuple[dict[str, Any], Order]]
Times = npt.NDArray[np.float64]
"""Seconds, in the last axis two of them: wall time and CPU time."""


@dataclass(frozen=True)
class Windows:
    """A point to measure: streams, rows of each window, transitions measured there."""

    streams: int
    rows: int
    transitions: int


@dataclass(frozen=True)
class Pause:
    """One transition, each time as [wall, CPU] seconds.

    call        `Runtime.transition`
    latency     the call and the first push
    longest     the latency or a later push
    usual       the median push of the turnover before
    usual_most  the longest push of the turnover before
    """

    call: Times
    latency: Times
    longest: Times
    usual: Times
    usual_most: Times


def now() -> Times:
    """Return the time by both clocks."""
    return np.array([perf_counter(), thread_time()])


def timed_pushes(runtime: eddy.Runtime, pushes: Pushes, least: int = 0) -> tuple[Times, int]:
    """Take the pushes, again and again until `least` were taken; return (Times[pushes, 2], results)."""
    taken: list[Times] = []
    results = 0
    while True:
        for rows, order in pushes:
            start = now()
            table = runtime.push(rows, order)
            taken.append(now() - start)
            results += table.column("count")[0].as_py()
        if len(taken) >= least:
            return np.array(taken), results


def check_complete(runtime: eddy.Runtime) -> None:
    """Raise Mismatch if a state is incomplete: what is measured would not be what it is said to be."""
    waiting = [stair.what for stair in runtime.stairs if stair.pending]
    if waiting:
        raise Mismatch(f"{runtime.strategy}: {waiting[0]} is still incomplete after a turnover of all windows")


def pauses(
    turnover: Turnover, pushes: Pushes, strategy: str, transitions: int, least: int = LEAST_PUSHES
) -> tuple[list[Pause], list[int]]:
    """Return so many transitions there and back, and the results of each turnover; `least` as in `timed_pushes`."""
    runtime = eddy.Runtime(turnover.query, turnover.plan, strategy=strategy, count_only=True)
    plans = [turnover.reversed_plan, turnover.plan]
    counts = [timed_pushes(runtime, pushes)[1]]
    found = []
    with without_gc():
        for number in range(transitions):
            usual, results = timed_pushes(runtime, pushes, least)
            counts.append(results)
            check_complete(runtime)
            start = now()
            runtime.transition(plans[number % 2])
            call = now() - start
            after, results = timed_pushes(runtime, pushes, least)
            counts.append(results)
            latency = call + after[0]
            longest = np.maximum(latency, after[1:].max(axis=0))
            found.append(Pause(call, latency, longest, np.median(usual, axis=0), usual.max(axis=0)))
    return found, counts


def pause_figures(points: list[Windows], headline: int, advance: Callable[[str], None]) -> dict[str, Any]:
    """Return the figures of all points; `advance` is told of each strategy that is done.

    headline   rows of the windows at which strategy jisc is held against its own pushes before
    """
    figures: dict[str, Any] = {}
    warm = permutations(3, 10)
    for strategy in CHANGING:  # compiles or loads what only a transition calls
        pauses(warm, warm.pushes(BATCH), strategy, 2)
    for point in points:
        turnover = permutations(point.streams, point.rows)
        pushes = turnover.pushes(BATCH)
        found: dict[str, list[Pause]] = {}
        counts: dict[str, list[int]] = {}
        for strategy in CHANGING:
            found[strategy], counts[strategy] = pauses(turnover, pushes, strategy, point.transitions)
            advance(f"pause, windows of {point.rows:,}: {strategy}")
        agree(f"pause.{point.rows}", counts)
        longest = {name: median(pause.longest[0] for pause in own) for name, own in found.items()}
        latency = {name: median(pause.latency[0] for pause in own) for name, own in found.items()}
        for name, own in found.items():
            figures[f"pause_ms.{name}.{point.rows}"] = 1e3 * longest[name]
            figures[f"latency_ms.{name}.{point.rows}"] = 1e3 * latency[name]
            figures[f"steady_max_ms.{name}.{point.rows}"] = 1e3 * median(pause.usual_most[0] for pause in own)
        figures[f"pause.moving_state_vs_jisc.{point.rows}"] = longest["moving-state"] / longest["jisc"]
        figures[f"pause.moving_state_vs_jisc.{point.rows}.streams"] = point.streams
        figures[f"latency.moving_state_vs_jisc.{point.rows}"] = latency["moving-state"] / latency["jisc"]
        if point.rows == headline:
            figures |= _ratios(found["jisc"])
    return {name: float(value) if isinstance(value, np.floating) else value for name, value in figures.items()}


def _ratios(found: list[Pause]) -> dict[str, Any]:
    """Return what is held against the median push before, in wall time and in CPU time."""
    figures: dict[str, Any] = {}
    for clock, after in enumerate(("", "_cpu")):
        for name, times in (
            ("jisc", [pause.longest for pause in found]),
            ("jisc_latency", [pause.latency for pause in found]),
            ("steady_max", [pause.usual_most for pause in found]),
        ):
            pairs = zip(times, found, strict=True)
            figures[f"pause.{name}_vs_steady_batch{after}"] = median(one[clock] / of.usual[clock] for one, of in pairs)
    return figures
