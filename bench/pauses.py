"""How long output pauses at a transition, by strategy and size of the windows.

A runtime takes pushes of 1 000 arrivals and counts results. When its windows are full and its states complete it takes
a turnover of all windows as it is, which says what is usual; then it goes over to a plan that shares no state with the
old one, and takes another turnover, after which no row is left that is older than the transition.

latency   the call of `transition` and the first push after it: how long until there is output again
pause     the longest that output pauses in that turnover: the latency, or a later push if one takes longer

Arrivals are those of W21: every push has as many results as arrivals. Times are wall times. A push that makes a ring
larger or moves it takes long at any time, so the longest push of the turnover before is given as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

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


@dataclass(frozen=True)
class Windows:
    """A point to measure: streams, rows of each window, transitions measured there."""

    streams: int
    rows: int
    transitions: int


@dataclass(frozen=True)
class Pause:
    """One transition, in seconds.

    call        `Runtime.transition`
    latency     the call and the first push
    longest     the latency or a later push
    usual       the median push of the turnover before
    usual_most  the longest push of the turnover before
    """

    call: float
    latency: float
    longest: float
    usual: float
    usual_most: float


def timed_pushes(runtime: eddy.Runtime, pushes: Pushes, least: int = 0) -> tuple[list[float], int]:
    """Take the pushes, again and again until `least` were taken; return (seconds of each, results)."""
    taken: list[float] = []
    results = 0
    while True:
        for rows, order in pushes:
            start = perf_counter()
            table = runtime.push(rows, order)
            taken.append(perf_counter() - start)
            results += table.column("count")[0].as_py()
        if len(taken) >= least:
            return taken, results


def check_complete(runtime: eddy.Runtime) -> None:
    """Raise Mismatch if a state is incomplete: what is measured would not be what it is said to be."""
    waiting = [stair.what for stair in runtime.stairs if stair.pending]
    if waiting:
        raise Mismatch(f"{runtime.strategy}: {waiting[0]} is still incomplete after a turnover of all windows")


def pauses(turnover: Turnover, pushes: Pushes, strategy: str, transitions: int) -> tuple[list[Pause], list[int]]:
    """Return so many transitions there and back, and the results of each turnover."""
    runtime = eddy.Runtime(turnover.query, turnover.plan, strategy=strategy, count_only=True)
    plans = [turnover.reversed_plan, turnover.plan]
    counts = [timed_pushes(runtime, pushes)[1]]
    found = []
    with without_gc():
        for number in range(transitions):
            usual, results = timed_pushes(runtime, pushes, LEAST_PUSHES)
            counts.append(results)
            check_complete(runtime)
            start = perf_counter()
            runtime.transition(plans[number % 2])
            call = perf_counter() - start
            after, results = timed_pushes(runtime, pushes, LEAST_PUSHES)
            counts.append(results)
            latency = call + after[0]
            found.append(Pause(call, latency, max(latency, *after[1:]), median(usual), max(usual)))
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
        longest = {name: median(pause.longest for pause in own) for name, own in found.items()}
        latency = {name: median(pause.latency for pause in own) for name, own in found.items()}
        for name, own in found.items():
            figures[f"pause_ms.{name}.{point.rows}"] = 1e3 * longest[name]
            figures[f"latency_ms.{name}.{point.rows}"] = 1e3 * latency[name]
            figures[f"steady_max_ms.{name}.{point.rows}"] = 1e3 * median(pause.usual_most for pause in own)
        figures[f"pause.moving_state_vs_jisc.{point.rows}"] = longest["moving-state"] / longest["jisc"]
        figures[f"pause.moving_state_vs_jisc.{point.rows}.streams"] = point.streams
        figures[f"latency.moving_state_vs_jisc.{point.rows}"] = latency["moving-state"] / latency["jisc"]
        if point.rows == headline:
            own = found["jisc"]
            figures["pause.jisc_vs_steady_batch"] = median(pause.longest / pause.usual for pause in own)
            figures["pause.jisc_latency_vs_steady_batch"] = median(pause.latency / pause.usual for pause in own)
            figures["pause.steady_max_vs_steady_batch"] = median(pause.usual_most / pause.usual for pause in own)
    return figures
