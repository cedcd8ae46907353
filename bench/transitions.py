"""`eddy bench transitions`: all strategies in normal operation and at plan changes.

All strategies run in one process, with the same kernels over the same layout, on the same arrivals; after each turnover
of the windows the numbers of results are compared. Figures 7 and 8 show the cost of a whole migration stage.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter

import numpy as np

import eddy
from bench.harness.figure import NAMED, Figure, Point, ReportTable, Row, Say, number, spread
from bench.harness.turns import Taken, agree, speed, take_turns, time, without_gc
from bench.ways.published import KINDS, published
from bench.ways.strategies import PUSH, Pause, StrategyEngine, pauses, timed_pushes
from bench.workloads.sources import Turnover, permutations, uniform

CHANGING = tuple(name for name, kind in KINDS.items() if kind.changes)
"""Strategies whose plan can change."""
MOVED = "jisc after transitions"
HEADLINE = 10_000
"""Rows of the windows at which pauses under jisc are compared with its earlier pushes."""


def points(full: bool) -> list[Point]:
    """Return a point of normal operation, one for each size of windows at a transition, and one of calls."""
    # With windows of 10⁶ there are four streams: with 21, each turnover would take minutes for each strategy.
    windows = [(21, 1_000, 8), (21, HEADLINE, 8), (21, 100_000, 1), (4, 1_000_000, 3)]
    rows = 10_000 if full else 2_000
    chosen: list[Point] = [{"part": "normal", "window": rows, "rounds": 9 if full else 2}]
    for streams, window, times in windows if full else [(21, 1_000, 2), (21, HEADLINE, 1)]:
        chosen.append({"part": "pause", "window": window, "streams": streams, "transitions": times})
    return [*chosen, {"part": "call", "window": rows, "calls": 40 if full else 10}]


def measure(point: Point, say: Say) -> list[Row]:
    """Measure one part."""
    return {"normal": _normal, "pause": _pause, "call": _call}[point["part"]](point, say)


def _normal(point: Point, say: Say) -> list[Row]:
    """Return the times of jisc over those of symmetric-hash, and the speeds of all strategies, without a transition."""
    window = point["window"]
    rows: list[Row] = []
    against: list[Row] = []
    for turnover in (uniform(window, 10 * window), permutations(21, window)):
        taken = _steady(turnover, point["rounds"], say)
        head = f"normal.{turnover.name}"
        against.append({"figure": f"{head}.jisc_vs_symmetric_hash", **time(taken, "jisc", "symmetric-hash")})
        moved = time(taken, MOVED, "symmetric-hash")
        rows.append({"figure": f"{head}.jisc_after_transitions_vs_symmetric_hash", **moved})
        for name in KINDS:
            rows.append({"workload": turnover.name, "strategy": name, **speed(taken, name, "mjoin", "vs_mjoin")})
    return [worst_of(against), *against, *rows]


def worst_of(rows: list[Row]) -> Row:
    """Return the row of the workload on which jisc takes longest relative to symmetric-hash."""
    worst = rows[int(np.argmax([number(row, "value") for row in rows]))]
    return {**worst, "figure": "normal.jisc_vs_symmetric_hash"}


def _steady(turnover: Turnover, count: int, say: Say) -> Taken:
    pushes = turnover.cut(PUSH).columns
    engines = {name: StrategyEngine(turnover, name) for name in KINDS}
    engines[MOVED] = StrategyEngine(turnover, "jisc")
    for engine in engines.values():
        engine.turn(pushes)
    for plan in (turnover.reversed_plan, turnover.plan):
        engines[MOVED].transition(plan)
        # Two turnovers: keys that leave the windows before a probe are completed in the background.
        for _ in range(2):
            engines[MOVED].turn(pushes)
    works = {name: partial(engine.turn, pushes) for name, engine in engines.items()}
    return take_turns(f"normal operation, {turnover.name}", works, count, say)


def _pause(point: Point, say: Say) -> list[Row]:
    """Return the duration of the pause of output under each strategy."""
    window, times = point["window"], point["transitions"]
    turnover = permutations(point["streams"], window)
    # A turnover of `warm` takes several pushes, so a state is incomplete after the first one, and completion runs.
    pushes, warm = turnover.cut(PUSH).arrow, permutations(3, PUSH)
    by_strategy: dict[str, list[Pause]] = {}
    counts: dict[str, list[int]] = {}
    for strategy in CHANGING:
        say(f"pause, windows of {window:,}: {strategy}")
        pauses(warm, warm.cut(PUSH).arrow, strategy, 2)  # compiles or loads the kernels that only a transition calls
        by_strategy[strategy], counts[strategy] = pauses(turnover, pushes, strategy, times)
    agree(f"pause.{window}", counts)
    rows: list[Row] = []
    columns = {"latency_ms": "latency", "pause_ms": "longest", "steady_max_ms": "usual_most"}
    for name, measured in by_strategy.items():
        taken = {
            column: [1e3 * float(getattr(pause, part)[0]) for pause in measured] for column, part in columns.items()
        }
        spreads = [spread(values, column) for column, values in taken.items()]
        rows.append({"strategy": name, **{column: value for figures in spreads for column, value in figures.items()}})
    by_name = {row["strategy"]: row for row in rows}
    for figure in ("pause", "latency"):
        jisc, moving = (number(by_name[name], f"{figure}_ms") for name in ("jisc", "moving-state"))
        rows.append({"figure": f"{figure}.moving_state_vs_jisc.{window}", "value": moving / jisc})
    if window != HEADLINE:
        return rows + _against_usual(by_strategy["jisc"], {"longest_vs_median{}." + str(window): "longest"})
    parts = {"jisc": "longest", "jisc_latency": "latency", "steady_max": "usual_most"}
    return rows + _against_usual(
        by_strategy["jisc"], {f"{name}_vs_steady_batch{{}}": part for name, part in parts.items()}
    )


def _against_usual(measured: list[Pause], parts: dict[str, str]) -> list[Row]:
    """Return times over the median push before, by wall time and by CPU time; `parts` by figure, {} = the clock."""
    return [
        {
            "figure": f"pause.{figure.format(clock)}",
            **spread([float(getattr(pause, part)[k] / pause.usual[k]) for pause in measured], "value"),
        }
        for k, clock in enumerate(("", "_cpu"))
        for figure, part in parts.items()
    ]


def _call(point: Point, say: Say) -> list[Row]:
    """Return the time of `Runtime.transition` under jisc, between two plans and to plans that were not used before."""
    turnover, count = permutations(21, point["window"]), point["calls"]
    with published("jisc") as strategy:
        runtime = eddy.Runtime(turnover.query, turnover.plan, strategy=strategy, count_only=True)
    pushes = turnover.cut(PUSH).arrow
    say("calls of transition")
    timed_pushes(runtime, pushes)
    rng = np.random.default_rng(6)
    known = [turnover.reversed_plan, turnover.plan]
    unseen = [" ".join(turnover.names[i] for i in rng.permutation(len(turnover.names))) for _ in range(count)]
    rows: list[Row] = []
    with without_gc():
        for name, plans in (("", [known[number % 2] for number in range(count + 4)]), ("_first", unseen)):
            taken = []
            for number, plan in enumerate(plans):
                start = perf_counter()
                runtime.transition(plan)
                taken.append(1e3 * (perf_counter() - start))
                timed_pushes(runtime, [pushes[number % len(pushes)]])
            rows.append({"figure": f"transition_call{name}_ms", **spread(taken[-count:], "value")})
    return rows


def _by_window(title: str, column: str) -> ReportTable:
    return ReportTable(title, {"strategy": "strategy"}, {column: "ms, by rows of a window"}, across="window")


POWERS = {1_000: "10³", 10_000: "10⁴", 100_000: "10⁵", 1_000_000: "10⁶, four streams"}

FIGURES = (
    Figure(
        "transitions",
        "W1 is four streams on one key, W21 21 streams in which every arrival joins all the way. In normal operation, "
        "CPU time in the engine; jisc and symmetric-hash store the same states, and mjoin stores none. At a "
        "transition, all states change; wall time of `Runtime.push`, pushes of 1 000, counting only. The pause is the "
        "longest push within a turnover of the windows after the transition, the transition included.",
        points,
        measure,
        tables=(
            NAMED,
            ReportTable(
                "No transition: speed in terms of mjoin",
                {"strategy": "strategy"},
                {"vs_mjoin": "CPU time"},
                across="workload",
            ),
            _by_window("Until there is output again after a transition", "latency_ms"),
            _by_window("Pause after a transition", "pause_ms"),
            _by_window("Longest push within the turnover before", "steady_max_ms"),
        ),
        titles={
            "normal.jisc_vs_symmetric_hash": "No transition, the worse of W1 and W21: time, jisc / symmetric-hash",
            **{
                f"normal.{name}.{way}_vs_symmetric_hash": f"{name}: time, {way.replace('_', ' ')} / symmetric-hash"
                for name in ("W1", "W21")
                for way in ("jisc", "jisc_after_transitions")
            },
            **{
                f"pause.{name}_vs_steady_batch{end}": f"20 joins, {what} / median push before{clock}"
                for end, clock in (("", ""), ("_cpu", ", CPU time"))
                for name, what in {
                    "jisc": "all states change: pause under jisc",
                    "jisc_latency": "the call and the first push",
                    "steady_max": "longest push before",
                }.items()
            },
            **{
                f"{figure}.moving_state_vs_jisc.{rows}": f"{what}, moving-state / jisc, windows of {power}"
                for figure, what in (("pause", "Pause"), ("latency", "Until there is output again"))
                for rows, power in POWERS.items()
            },
            **{
                f"pause.longest_vs_median{end}.{rows}": f"Pause, jisc / median push before, windows of {power}{clock}"
                for end, clock in (("", ""), ("_cpu", ", CPU time"))
                for rows, power in POWERS.items()
                if rows != HEADLINE
            },
            "transition_call_ms": "`transition` under jisc, 20 joins, all states change, ms",
            "transition_call_first_ms": "The same, to a plan not seen before, ms",
        },
        bars={
            "normal.jisc_vs_symmetric_hash": "≤ 1.05",
            "pause.jisc_vs_steady_batch": "≤ 1.5",
            "pause.longest_vs_median.1000000": "≤ 3",
            "transition_call_ms": "≤ 1",
            "transition_call_first_ms": "≤ 0.5",
        },
    ),
)
