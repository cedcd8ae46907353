"""Figures 11 and 12: what it costs to change the plan again and again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle

from bench.harness.figure import Figure, Plot, Point, Row, Say
from bench.harness.spread import spread
from bench.harness.words import listed
from bench.measure import without_gc
from bench.papers.jisc.comparison import LEVEL, most, order, ratios, values
from bench.papers.jisc.runs import COMPARED, PUSH, started, take_in_turns
from bench.workloads import permutations

STREAMS = 21
PERIODS, QUICK_PERIODS = (1, 2, 3, 5, 10), (1, 2, 5, 10)
"""Tuples from one transition to the next, in millions of the paper's size."""
TOTAL = 20
"""Tuples in all, in the same."""
WINDOW, QUICK_WINDOW = 10_000, 250
UNMOVED = ("cacq", "mjoin")
"""Strategies that store nothing."""
PAPER: Mapping[str, Mapping[str, float]] = {
    "worst": {"jisc": 35.118, "cacq": 55.495, "parallel-track": 70.85},
    "best": {"jisc": 31.035, "cacq": 55.495, "parallel-track": 70.85},
}
"""Seconds that label the paper's curves, at a period that the text at hand does not tell."""
NEW = {"best": "one state, just below the root, incomplete", "worst": "all states incomplete"}


def points(full: bool) -> list[Point]:
    """Return a point for each period; period, total and windows are scaled alike, so windows turn over as often."""
    window, periods, rounds = (WINDOW, PERIODS, 1) if full else (QUICK_WINDOW, QUICK_PERIODS, 1)
    million = 1_000_000 * window // WINDOW
    return [
        {
            "streams": STREAMS,
            "window": window,
            "period": period * million,
            "tuples": TOTAL * million,
            "rounds": rounds,
            "seed": 5,
        }
        for period in periods
    ]


def measure(case: str, point: Point, say: Say) -> list[Row]:
    """Return a row for each strategy; the strategies take each period in turn."""
    turnover = permutations(int(point["streams"]), int(point["window"]), int(point["seed"]))
    pushes = turnover.pushes(PUSH)
    period, tuples = int(point["period"]), int(point["tuples"])
    plans = cycle([turnover.swapped_plan if case == "best" else turnover.reversed_plan, turnover.plan])
    runs = started(turnover, pushes, COMPARED)
    name = f"{case} case, a transition every {period:,} tuples"
    taken: dict[str, list[float]] = {strategy: [] for strategy in runs}
    transitions = 0
    with without_gc():
        take_in_turns(f"{name}, windows fill", runs, len(pushes), say=say)
        for _ in range(int(point["rounds"])):
            total = dict.fromkeys(runs, 0.0)
            transitions = 0
            for done in range(0, tuples, period):
                say(f"{name}: {done:,} of {tuples:,}")
                count = min(period, tuples - done) // PUSH
                for strategy, seconds in take_in_turns(name, runs, count, next(plans)).items():
                    total[strategy] += seconds
                transitions += 1
            for strategy, seconds in total.items():
                taken[strategy].append(seconds)
    return [
        {
            "strategy": strategy,
            "period_m": period / 1e6,
            "turnovers": period / len(turnover.order),
            "transitions": transitions,
            **spread(found, "seconds"),
            **spread([one / own for one, own in zip(found, taken["jisc"], strict=True)], "vs_jisc"),
            "us_per_tuple": 1e6 * float(spread(found, "s")["s"] or 0) / tuples,
        }
        for strategy, found in taken.items()
    ]


def remarks(case: str, rows: Sequence[Row]) -> list[str]:
    """Say how strategies compare when plans change most often and least, and whether that depends on how often."""
    longest = most(rows, "period_m")
    shortest = min((float(str(row["period_m"])) for row in rows if row.get("period_m") is not None), default=None)
    if longest is None or shortest is None:
        return []
    said, paper = [], PAPER[case]
    often, seldom = (values(rows, "seconds", period_m=period) for period in (shortest, longest))
    for seconds, period in ((often, shortest), (seldom, longest)):
        turnovers = values(rows, "turnovers", period_m=period)
        if "jisc" in seconds and "jisc" in turnovers:
            said.append(
                f"With a transition every {period:g} million tuples ({turnovers['jisc']:.1f} turnovers of the windows) "
                f"jisc takes {seconds['jisc']:.3g} s; in terms of that the others: "
                f"{ratios(seconds, paper if period == shortest else {})}."
            )
        if shortest == longest:
            break
    if "jisc" in often:
        said.append(f"Where transitions are most frequent, {order(often, paper)}")
    if shortest < longest:
        said += _slower(often, seldom)
    return said


def _slower(often: Mapping[str, float], seldom: Mapping[str, float]) -> list[str]:
    """Say how much more a run takes with the most transitions than with the fewest.

    The points are measured one after another, so the machine may have changed in between. Those to whom a transition
    is next to nothing tell by how much.
    """
    slower = {name: often[name] / seldom[name] for name in often if name in seldom}
    still = [slower[name] for name in UNMOVED if name in slower]
    moved = [name for name in slower if name not in UNMOVED]
    if not still or not moved:
        return []
    said = [
        "The run with the most transitions in terms of that with the fewest: "
        f"{listed([f'{name} {slower[name]:.2f}' for name in moved])}. For those whose transition makes tables and "
        f"nothing else it is {listed([f'{name} {slower[name]:.2f}' for name in UNMOVED if name in slower])}, which "
        "tells how much of that is the machine's."
    ]
    for name in ("jisc", "parallel-track"):
        if name in slower:
            slows = slower[name] > (1 + LEVEL) * max(still)
            verdict = "does so beyond that" if slows else "does not do so beyond that"
            said.append(f"In the paper {name} slows down when transitions come often; here it {verdict}.")
    return said


def _figure(number: int, case: str) -> Figure:
    return Figure(
        name=f"fig{number}",
        title=f"Transitions again and again, 20 joins, {case} case",
        source=f"Aly, Aref, Ouzzani, Mahmoud, EDBT 2014, figure {number}",
        about=(
            "21 streams joined on one key, each repeating its own permutation of as many keys as its window has rows: "
            "every tuple gives one result. Windows are full when the clock starts. Every so many tuples, the first "
            f"time at once, the plan changes to one that makes {NEW[case]}, and back. The time is that of all tuples "
            f"and all changes (CPU time of the thread), the strategies in turns period by period, in pushes of {PUSH:,}"
            " arrivals that come as Arrow batches and whose results are counted. Full: windows of 10,000 rows, 20 "
            "million tuples and periods of 1, 2, 3, 5 and 10 million (the paper: each number from 1 to 10), one round: "
            f"each point is minutes of work. Quick: all three divided by {WINDOW // QUICK_WINDOW}, so that the windows "
            "turn over as often in a period, 4.8 times in the shortest. mjoin and the default, eddy, which may change "
            "its plan by itself as well, are not in the paper. Its labels are "
            f"{PAPER[case]['jisc']} s for JISC, {PAPER[case]['cacq']} for CACQ and {PAPER[case]['parallel-track']} for "
            "Parallel Track; the text at hand does not say at which period, so they are not drawn, and only their "
            "ratios are held against ours, at the shortest period: with figure 9 (11.9 s for 10 million tuples without "
            "a transition) they fit that better than the longest."
        ),
        points=points,
        measure=partial(measure, case),
        plots=(
            Plot(
                "Execution time",
                "period_m",
                "seconds",
                "strategy",
                name="time",
                x_label="million tuples between transitions",
                y_label="CPU seconds",
                spread=("seconds_low", "seconds_high"),
            ),
            Plot(
                "In terms of jisc",
                "period_m",
                "vs_jisc",
                "strategy",
                name="ratio",
                x_label="million tuples between transitions",
                y_label="time / time of jisc",
                spread=("vs_jisc_low", "vs_jisc_high"),
            ),
        ),
        remarks=partial(remarks, case),
    )


FIGURES = (_figure(11, "worst"), _figure(12, "best"))
