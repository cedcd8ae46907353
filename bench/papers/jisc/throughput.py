"""Figures 7 and 8 (the migration stage), 9 (no transition), 11 and 12 (repeated transitions).

Streams are joined on one key. Each stream repeats its own permutation of as many keys as its window has rows, so with
full windows every tuple has one result. A second series of figures has keys drawn uniformly from the same number of
values, as in the paper: then a tuple has one partner in each other stream on average, and few tuples have a result. In
the best case a transition makes only the state just below the root incomplete; in the worst case it makes all states
incomplete.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import cycle
from typing import Any, Literal

from bench.harness.figure import Figure, Plot, Point, ReportTable, Row, Say, number, spread
from bench.harness.turns import Taken, time
from bench.ways.published import WORDS
from bench.ways.strategies import PUSH, raced, started
from bench.workloads.sources import Turnover, permutations, uniform

COMPARED = ("jisc", "cacq", "parallel-track", "mjoin", "eddy", WORDS)
"""Strategies of the paper's figures, then mjoin, which stores nothing, the default, and "jisc" of the library."""
STAGE = (*COMPARED[:3], "moving-state", *COMPARED[3:])
NORMAL = ("jisc", "symmetric-hash", "cacq", "mjoin", "eddy", WORDS)
STEPS, TOTAL = 10, 20
"""Steps of figure 9; tuples of figures 11 and 12, in millions at the paper's size."""
PAPER: Mapping[str, Mapping[int, Mapping[str, float]]] = {
    "best": {
        50: {"jisc": 3.433, "cacq": 22.655, "parallel-track": 37.752},
        100: {"jisc": 14.48, "cacq": 79.35, "parallel-track": 141.909},
    },
    "worst": {
        50: {"jisc": 5.392, "cacq": 22.655, "parallel-track": 37.752},
        100: {"jisc": 24.558, "cacq": 79.35, "parallel-track": 141.909},
    },
}
"""Seconds that the paper prints, by case and joins. Its text does not name the joins of the smaller labels; 50 fits a
time that grows with the square of the joins."""
PAPER_NORMAL = {"jisc": 11.9, "cacq": 23.736}
"""Seconds that the paper prints at 10 million tuples."""


def _changed(turnover: Turnover, case: str) -> str:
    return turnover.swapped_plan if case == "best" else turnover.reversed_plan


Keys = Literal["permuted", "uniform"]


def _turnover(point: Point, streams: int, keys: Keys) -> Turnover:
    if keys == "uniform":
        return uniform(point["window"], point["window"], point["seed"], streams)
    return permutations(streams, point["window"], point["seed"])


def _against_jisc(strategy: str, taken: Taken, name: str) -> Row:
    """Return the seconds of a strategy, and in column `name` its time over that of jisc, round by round."""
    return {**spread(taken[strategy], "seconds"), **time(taken, strategy, "jisc", name)}


def stage_points(full: bool) -> list[Point]:
    """Return a point for each number of joins: few rounds where one takes minutes, many where it takes milliseconds."""
    if full:
        sizes = [(joins, 10_000, 3 if joins <= 50 else 2) for joins in (5, *range(10, 101, 10))]
    else:
        sizes = [(joins, 500, 9 if joins <= 10 else 5 if joins <= 20 else 2) for joins in (5, 10, 20, 50, 100)]
    return [{"joins": joins, "window": window, "rounds": rounds, "seed": 5} for joins, window, rounds in sizes]


def stage(case: str, keys: Keys, point: Point, say: Say) -> list[Row]:
    """Return a row for each strategy: stages of a transition and of its reverse, all strategies in turn.

    With permuted keys a stage is over when the windows have turned over. With uniform keys some keys of a state may
    never be probed, because no tuple of the next stream has them, and jisc leaves these keys incomplete.

    stored, promoted, duplicates   counts of the last stage
    steady_seconds                 the turnover before the stage, without a transition
    """
    turnover = _turnover(point, point["joins"] + 1, keys)
    pushes = turnover.cut(PUSH).arrow
    runs, once = started(turnover, pushes, STAGE), (len(pushes), None)
    plans = [turnover.plan if turn % 2 else _changed(turnover, case) for turn in range(point["rounds"])]
    parts = [once, once, *((len(pushes), plan) for plan in plans)]
    seconds = raced(f"{case} case, {point['joins']} joins", runs, parts, say, check=keys == "permuted")
    taken = {strategy: times[2:] for strategy, times in seconds.items()}
    rows: list[Row] = []
    for strategy, run in runs.items():
        change, columns = run.changed, _against_jisc(strategy, taken, "speedup")
        assert change is not None
        rows.append(
            {
                "strategy": strategy,
                "tuples": len(turnover.order),
                **columns,
                "us_per_tuple": 1e6 * number(columns, "seconds") / len(turnover.order),
                "steady_seconds": seconds[strategy][1],
                "stored": change.intermediate,
                "promoted": change.promoted,
                "duplicates": change.duplicates,
            }
        )
    return rows


def normal_points(full: bool) -> list[Point]:
    """Return one point, which includes all steps of all strategies; windows turn over as often in both sizes."""
    window, step = (10_000, 1_000_000) if full else (1_000, 100_000)
    return [{"streams": 21, "window": window, "step": step, "rounds": 3 if full else 2, "seed": 5}]


def normal(keys: Keys, point: Point, say: Say) -> list[Row]:
    """Return a row for each strategy and step, with accumulated times; the strategies take each step in turn."""
    turnover = _turnover(point, point["streams"], keys)
    pushes, step = turnover.cut(PUSH).arrow, point["step"]
    parts = [(step // PUSH, None)] * STEPS
    rounds = [
        raced(f"normal operation, round {turn + 1}", started(turnover, pushes, NORMAL), parts, say)
        for turn in range(point["rounds"])
    ]
    taken = [
        {name: [sum(step_seconds[name][:n]) for step_seconds in rounds] for name in NORMAL} for n in range(1, STEPS + 1)
    ]
    return [
        {"strategy": name, "tuples_m": n * step / 1e6, **_against_jisc(name, sums, "vs_jisc")}
        for n, sums in enumerate(taken, 1)
        for name in NORMAL
    ]


def frequency_points(full: bool) -> list[Point]:
    """Return a point for each period; period, tuples and windows have one scale, so the turnovers stay the same."""
    window, periods = (10_000, (1, 2, 3, 5, 10)) if full else (250, (1, 2, 5, 10))
    million = 100 * window
    sizes = {"tuples": TOTAL * million, "rounds": 1, "seed": 5}
    return [{"streams": 21, "window": window, "period": period * million, **sizes} for period in periods]


def frequency(case: str, keys: Keys, point: Point, say: Say) -> list[Row]:
    """Return a row for each strategy: a transition at once and after each period; strategies take periods in turn."""
    turnover = _turnover(point, point["streams"], keys)
    pushes, period, tuples = turnover.cut(PUSH).arrow, point["period"], point["tuples"]
    plans, runs = cycle([_changed(turnover, case), turnover.plan]), started(turnover, pushes, COMPARED)
    counts = [min(period, tuples - done) // PUSH for done in range(0, tuples, period)]
    parts = [(len(pushes), None), *((count, next(plans)) for count in counts * point["rounds"])]
    seconds = raced(f"{case} case, a transition every {period:,} tuples", runs, parts, say)
    firsts = range(1, len(parts), len(counts))
    taken = {name: [sum(times[first : first + len(counts)]) for first in firsts] for name, times in seconds.items()}
    return [
        {
            "strategy": strategy,
            "period_m": period / 1e6,
            "turnovers": period / len(turnover.order),
            "transitions": -(-tuples // period),
            **_against_jisc(strategy, taken, "vs_jisc"),
        }
        for strategy in runs
    ]


def _look(x: str, label: str, ratio: str, log: str = "") -> dict[str, Any]:
    """Return the plots of a figure and its table, of the times of strategies and of their ratios to that of jisc."""
    heading = "CPU time" if ratio == "speedup" else "CPU"
    return {
        "plots": (
            Plot("Execution time", x, "seconds", "strategy", "time", label, "CPU seconds", log),
            Plot("In terms of jisc", x, ratio, "strategy", "ratio", label, "time / time of jisc"),
        ),
        "tables": (
            ReportTable(
                "Time over that of jisc", {x: label.partition(" between")[0]}, {ratio: heading}, across="strategy"
            ),
        ),
    }


SOURCE = "Aly, Aref, Ouzzani, Mahmoud, EDBT 2014, figure {}"
INCOMPLETE = {"best": "one state", "worst": "all states"}
UNIFORM = (
    " Keys are uniform over as many values as a window has rows, as the paper draws them: a tuple has one partner in"
    " each other stream on average. Over 20 joins or more, hardly any tuple joins all the way."
)


def figures(keys: Keys = "permuted") -> tuple[Figure, ...]:
    """Return figures 7 to 9, 11 and 12. Numbers that the paper prints are with the permuted keys, its ratios too."""
    name, about, drawn = ("fig{}-uniform", UNIFORM, False) if keys == "uniform" else ("fig{}", "", True)
    return (
        *(
            Figure(
                name.format(number),
                f"The migration stage with {INCOMPLETE[case]} incomplete: the transition and a turnover of all windows "
                "(10 000 rows; quick: 500). CPU time, pushes of 1 000, counting. The paper has no moving-state, mjoin "
                f"and eddy, nor jisc with presence words; the paper used Java on a Core2 Duo of 2.1 GHz.{about}",
                stage_points,
                partial(stage, case, keys),
                source=SOURCE.format(number),
                **_look("joins", "joins", "speedup", log="y"),
                printed=[
                    {"joins": joins, "strategy": strategy, "seconds": seconds, "speedup": seconds / by_strategy["jisc"]}
                    for joins, by_strategy in PAPER[case].items()
                    for strategy, seconds in by_strategy.items()
                    if drawn
                ],
            )
            for number, case in ((7, "best"), (8, "worst"))
        ),
        Figure(
            name.format(9),
            "20 joins, no transition, windows of 10 000 rows (quick: 1 000) that are empty at the start; the time of "
            f"each tenth of the tuples accumulates. CPU time. mjoin and eddy are not in the paper.{about}",
            normal_points,
            partial(normal, keys),
            source=SOURCE.format(9),
            **_look("tuples_m", "million tuples", "vs_jisc"),
            printed=[
                {"strategy": strategy, "tuples_m": 10.0, "seconds": seconds, "vs_jisc": seconds / PAPER_NORMAL["jisc"]}
                for strategy, seconds in PAPER_NORMAL.items()
                if drawn
            ],
        ),
        *(
            Figure(
                name.format(number),
                "20 joins, 20 million tuples, and at regular intervals a transition that makes "
                f"{INCOMPLETE[case]} incomplete. Windows of 10 000 rows, full at the start (quick: all sizes divided "
                f"by 40). CPU time. mjoin and eddy are not in the paper.{about}",
                frequency_points,
                partial(frequency, case, keys),
                source=SOURCE.format(number),
                **_look("period_m", "million tuples between transitions", "vs_jisc"),
            )
            for number, case in ((11, "worst"), (12, "best"))
        ),
    )


FIGURES = figures()
UNIFORM_FIGURES = figures("uniform")
