"""Figures 7 and 8: what the migration stage costs, against the number of joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from bench.harness.figure import Figure, Plot, Point, Row, Say
from bench.harness.spread import spread
from bench.harness.words import listed
from bench.measure import without_gc
from bench.papers.jisc.comparison import growth, most, order, ratios, values
from bench.papers.jisc.runs import COMPARED, PUSH, started, take_in_turns
from bench.workloads import permutations

STRATEGIES = (*COMPARED[:3], "moving-state", *COMPARED[3:])
JOINS = (5, *range(10, 101, 10))
QUICK_JOINS = (5, 10, 20, 50, 100)
WINDOW, QUICK_WINDOW = 10_000, 500
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
"""Seconds that the paper prints, by joins."""
NEW = {
    "best": "one state that the old one has not, just below the root",
    "worst": "no state in common with the old one, so all are incomplete",
}


def points(full: bool) -> list[Point]:
    """Return a point for each number of joins; few rounds where one takes minutes, many where it takes milliseconds."""
    if full:
        return [_point(joins, WINDOW, 3 if joins <= 50 else 2) for joins in JOINS]
    return [_point(joins, QUICK_WINDOW, 9 if joins <= 10 else 5 if joins <= 20 else 2) for joins in QUICK_JOINS]


def _point(joins: int, window: int, rounds: int) -> Point:
    return {"joins": joins, "window": window, "rounds": rounds, "seed": 5}


def measure(case: str, point: Point, say: Say) -> list[Row]:
    """Return a row for each strategy: a stage there, one back, and so on, each round by all strategies in turn.

    stored, promoted, duplicates   in the last stage, which is over at once under strategies that do all in the change
    steady_seconds                 a turnover before, without a transition
    """
    turnover = permutations(int(point["joins"]) + 1, int(point["window"]), int(point["seed"]))
    pushes = turnover.pushes(PUSH)
    there = turnover.swapped_plan if case == "best" else turnover.reversed_plan
    runs = started(turnover, pushes, STRATEGIES)
    name = f"{case} case, {point['joins']} joins"
    taken: dict[str, list[float]] = {strategy: [] for strategy in runs}
    with without_gc():
        take_in_turns(f"{name}, windows fill", runs, len(pushes), say=say)
        steady = take_in_turns(f"{name}, before the transition", runs, len(pushes), say=say)
        for number in range(int(point["rounds"])):
            plan = turnover.plan if number % 2 else there
            stage = take_in_turns(f"{name}, round {number + 1}", runs, len(pushes), plan, say)
            for strategy, seconds in stage.items():
                runs[strategy].check_over()
                taken[strategy].append(seconds)
    rows: list[Row] = []
    for strategy, run in runs.items():
        change = run.changed
        assert change is not None
        rows.append(
            {
                "strategy": strategy,
                "tuples": len(turnover.order),
                **spread(taken[strategy], "seconds"),
                **spread([one / own for one, own in zip(taken[strategy], taken["jisc"], strict=True)], "speedup"),
                "us_per_tuple": 1e6 * float(spread(taken[strategy], "s")["s"] or 0) / len(turnover.order),
                "steady_seconds": steady[strategy],
                "stored": change.intermediate,
                "promoted": change.promoted,
                "duplicates": change.duplicates,
            }
        )
    return rows


def remarks(case: str, rows: Sequence[Row]) -> list[str]:
    """Say how the strategies compare at the most joins, whether the paper's order holds, why, and how they grow."""
    joins = most(rows, "joins")
    own = [row for row in rows if row.get("joins") == joins]
    seconds, steady = values(own, "seconds"), values(own, "steady_seconds")
    if joins is None or "jisc" not in seconds:
        return []
    paper = PAPER[case].get(int(joins), {})
    jisc = next(row for row in own if row["strategy"] == "jisc")
    said = [
        f"At {joins:.0f} joins and windows of {jisc['window']:,} rows the stage takes {seconds['jisc']:.3g} s "
        f"under jisc, {jisc['us_per_tuple']:.3g} µs a tuple; in terms of that the others: {ratios(seconds, paper)}."
    ]
    if paper:
        said.append(f"At {joins:.0f} joins, {order(seconds, paper)}")
    if "cacq" in seconds and "cacq" in steady:
        said.append(_cacq(seconds, steady, float(jisc["stored"] or 0) / float(jisc["tuples"] or 1)))
    added = [f"{name} {seconds[name] / steady[name]:.2f}" for name in seconds if name in steady]
    said.append(f"The stage in terms of the turnover before, which has no transition: {listed(added)}.")
    said += growth(rows, "joins", "seconds", "The time of a stage, whose tuples grow with the joins too,", "joins")
    return said


def _cacq(seconds: Mapping[str, float], steady: Mapping[str, float], stored: float) -> str:
    during, without = seconds["cacq"] / seconds["jisc"], steady["cacq"] / steady["jisc"]
    if during >= 1:
        return f"jisc is {during:.2f} times as fast as cacq in the stage, and {without:.2f} times without a transition."
    head = f"jisc does not beat cacq, which takes {during:.2f} of its time in the stage and {without:.2f} before it: "
    if without >= 1:
        return f"{head}the transition is the reason."
    return (
        f"{head}the transition is not the whole reason. cacq stores nothing beside the windows, jisc in this stage "
        f"{stored:.1f} intermediate entries a tuple."
    )


def _printed(case: str) -> list[Row]:
    return [
        {
            "joins": joins,
            "strategy": strategy,
            "window": WINDOW,
            "seconds": seconds,
            "speedup": seconds / found["jisc"],
        }
        for joins, found in PAPER[case].items()
        for strategy, seconds in found.items()
    ]


def _figure(number: int, case: str) -> Figure:
    return Figure(
        name=f"fig{number}",
        title=f"The migration stage, {case} case",
        source=f"Aly, Aref, Ouzzani, Mahmoud, EDBT 2014, figure {number}",
        about=(
            "Streams joined on one key by a left-deep plan. Each repeats its own permutation of as many keys as its "
            "window has rows, so with full windows every tuple joins with one of each other stream and gives one "
            "result; the paper has uniform keys from a domain that it does not name. The windows are full and every "
            f"state is complete when the plan changes to one that has {NEW[case]}. The stage is the change and a "
            "turnover of all windows, after which Parallel Track has dropped its old plan; all strategies take the "
            f"same tuples. Full: windows of {WINDOW:,} rows as in the paper, {len(JOINS)} numbers of joins, three "
            "rounds up to 50 joins and two above, where a round of all strategies takes up to two minutes and their "
            f"states nearly 3 GB in all. Quick: windows of {QUICK_WINDOW}. CPU time of the thread, in pushes of "
            f"{PUSH:,} arrivals that come as Arrow batches and whose results are counted; rounds of all strategies in "
            "turns, there and back between the two plans. moving-state, mjoin and the default, eddy, which may change "
            "its plan again, are not in the paper's figure. Speed-up: the time of a strategy in terms of jisc's, round "
            "by round. The paper (Java, a Core2 Duo of 2.1 GHz) prints 14.48 s for JISC, 79.35 for CACQ and 141.909 "
            "for Parallel Track at 100 joins of the best case, and 24.558 for JISC in the worst. A second set of "
            "labels, 3.433 (5.392 in the worst case), 22.655 and 37.752, has no number of joins in the text at hand; "
            "it is taken for that of 50, where all three would lie if the times grow about as the square of the joins."
        ),
        points=points,
        measure=partial(measure, case),
        plots=(
            Plot(
                "Execution time of the stage",
                "joins",
                "seconds",
                "strategy",
                name="time",
                x_label="joins",
                y_label="CPU seconds",
                log_y=True,
                spread=("seconds_low", "seconds_high"),
            ),
            Plot(
                "Speed-up of jisc over each",
                "joins",
                "speedup",
                "strategy",
                name="speedup",
                x_label="joins",
                y_label="time / time of jisc",
                spread=("speedup_low", "speedup_high"),
            ),
        ),
        remarks=partial(remarks, case),
        printed=_printed(case),
    )


FIGURES = (_figure(7, "best"), _figure(8, "worst"))
