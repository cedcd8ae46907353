"""Figure 9: what strategies cost while no plan changes."""

from __future__ import annotations

from collections.abc import Sequence

from bench.harness.figure import Figure, Plot, Point, Row, Say
from bench.harness.spread import spread
from bench.measure import without_gc
from bench.papers.jisc.comparison import LEVEL, growth, most, order, ratios, values
from bench.papers.jisc.runs import PUSH, started, take_in_turns
from bench.workloads import permutations

STRATEGIES = ("jisc", "symmetric-hash", "cacq", "mjoin", "eddy")
STEPS = 10
STREAMS = 21
PAPER = {"jisc": 11.9, "cacq": 23.736}
"""Seconds that the paper prints at 10 million tuples."""


def points(full: bool) -> list[Point]:
    """Return one point, which has all steps of all strategies in it; windows turn over as often in both sizes."""
    window, step = (10_000, 1_000_000) if full else (1_000, 100_000)
    return [{"streams": STREAMS, "window": window, "step": step, "rounds": 3 if full else 2, "seed": 5}]


def measure(point: Point, say: Say) -> list[Row]:
    """Return a row for each strategy and step; the strategies take each step in turn."""
    turnover = permutations(int(point["streams"]), int(point["window"]), int(point["seed"]))
    pushes = turnover.pushes(PUSH)
    step = int(point["step"])
    taken: dict[tuple[str, int], list[float]] = {(name, n): [] for n in range(1, STEPS + 1) for name in STRATEGIES}
    for number in range(int(point["rounds"])):
        runs = started(turnover, pushes, STRATEGIES)
        total = dict.fromkeys(runs, 0.0)
        with without_gc():
            for n in range(1, STEPS + 1):
                say(f"normal operation, round {number + 1}: {n * step:,} tuples")
                for strategy, seconds in take_in_turns("normal operation", runs, step // PUSH).items():
                    total[strategy] += seconds
                    taken[strategy, n].append(total[strategy])
    return [
        {
            "strategy": strategy,
            "tuples_m": n * step / 1e6,
            **spread(found, "seconds"),
            **spread([one / own for one, own in zip(found, taken["jisc", n], strict=True)], "vs_jisc"),
        }
        for (strategy, n), found in taken.items()
    ]


def remarks(rows: Sequence[Row]) -> list[str]:
    """Say what jisc adds to symmetric hash joins, and how it compares with the rest."""
    tuples = most(rows, "tuples_m")
    own = [row for row in rows if row.get("tuples_m") == tuples]
    seconds, against = values(own, "seconds"), values(own, "vs_jisc")
    if tuples is None or "jisc" not in seconds:
        return []
    said = [
        f"After {tuples:g} million tuples jisc has taken {seconds['jisc']:.3g} s, "
        f"{seconds['jisc'] / tuples:.3g} µs a tuple; in terms of that the others: {ratios(seconds, PAPER)}."
    ]
    if "symmetric-hash" in against:
        more = 1 / against["symmetric-hash"] - 1
        verdict = (
            "the overhead is minimal, as the paper has it"
            if more <= LEVEL
            else "more than the minimal overhead that the paper has"
        )
        said.append(f"jisc takes {more:+.1%} of the time of symmetric hash joins, whose plan cannot change: {verdict}.")
    if "cacq" in seconds:
        said.append(f"At {tuples:g} million tuples, {order(seconds, PAPER)}")
    if "cacq" in seconds and seconds["cacq"] < seconds["jisc"]:
        eddy = (
            f" Here the eddy makes a tuple {seconds['cacq'] / seconds['mjoin']:.2f} times as dear as the same probes "
            "along a route that is fixed (mjoin); jisc stores intermediate results, which neither of them does."
            if "mjoin" in seconds
            else ""
        )
        said.append(
            f"The paper's JISC is {PAPER['cacq'] / PAPER['jisc']:.2f} times as fast as CACQ, and gives as the reason "
            f"that an eddy sees a tuple as often as there are joins.{eddy}"
        )
    return said + growth(rows, "tuples_m", "seconds", "Time as it accumulates", "tuples")


FIGURES = (
    Figure(
        name="fig9",
        title="Normal operation, 20 joins",
        source="Aly, Aref, Ouzzani, Mahmoud, EDBT 2014, figure 9",
        about=(
            "21 streams joined on one key by a left-deep plan, each repeating its own permutation of as many keys as "
            "its window has rows: with full windows every tuple gives one result. No plan changes. Windows are empty "
            "at the beginning; the time of each tenth of the tuples is noted as it accumulates (CPU time of the "
            f"thread), the strategies in turns step by step, in pushes of {PUSH:,} arrivals that come as Arrow batches "
            "and whose results are counted. Full: windows of 10,000 rows and 10 million tuples, as in the paper, three "
            "rounds. Quick: windows of 1,000 and 1 million tuples, so that they turn over as often, two rounds. The "
            "paper has two plots, JISC beside symmetric hash joins and beside CACQ, and prints 11.9 s for JISC and "
            "23.736 s for CACQ at 10 million tuples; for symmetric hash it prints no number. mjoin and the default, "
            "eddy, are not in it."
        ),
        points=points,
        measure=measure,
        plots=(
            Plot(
                "Execution time as it accumulates",
                "tuples_m",
                "seconds",
                "strategy",
                name="time",
                x_label="million tuples",
                y_label="CPU seconds",
                spread=("seconds_low", "seconds_high"),
            ),
            Plot(
                "In terms of jisc",
                "tuples_m",
                "vs_jisc",
                "strategy",
                name="ratio",
                x_label="million tuples",
                y_label="time / time of jisc",
                spread=("vs_jisc_low", "vs_jisc_high"),
            ),
        ),
        remarks=remarks,
        printed=[
            {
                "strategy": name,
                "tuples_m": 10.0,
                "window": 10_000,
                "seconds": seconds,
                "vs_jisc": seconds / PAPER["jisc"],
            }
            for name, seconds in PAPER.items()
        ],
    ),
)
