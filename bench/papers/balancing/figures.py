"""The figures, each a comparison of ways to adapt on the same arrivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from bench.harness.figure import NAMED, Figure, Plot, Point, ReportTable, Row, Say
from bench.harness.turns import agree
from bench.papers.balancing.runs import COST_TITLES, WAYS, BalancingOutcome, BalancingSetting, fitted_rows, run, speed

PAPER = "Zhu, Rundensteiner, Adapting partitioned continuous query processing in distributed systems"
SETTINGS = ("No-Adapt", "LM only", "PTLB only", "MSLB only", "JIT only", "LM-PTLB", "LM-MSLB", "LM-JIT")
"""The four settings of the paper with each protocol."""
QUICK = {
    "groups": 40,
    "nodes": 5,
    "rate": 40.0,
    "late_rate": 4.0,
    "window": 10,
    "change": 15,
    "seconds": 45,
    "load": 1.5,
}
"""Sizes of a quick run."""


def runs(
    setting: BalancingSetting, ways: Sequence[str], say: Say, fixed: float | None = None
) -> dict[str, BalancingOutcome]:
    """Return the runs of some ways. Raises Mismatch if they differ in the number of results."""
    say("the speed of nodes")
    at_speed = speed(setting) if fixed is None else fixed
    outcomes = {}
    for name in ways:
        say(name)
        outcomes[name] = run(setting, WAYS[name], at_speed)
    agree("a simulated cluster", {name: outcome.total for name, outcome in outcomes.items()})
    return outcomes


def moves(outcome: BalancingOutcome) -> dict[str, Any]:
    """Return the figures of all moves of a run."""
    if not outcome.moves:
        return {}
    last = max(move["ended"] for move in outcome.moves)
    return {
        "moved": sum(len(move["groups"]) for move in outcome.moves),
        "length_s": last - min(move["began"] for move in outcome.moves),
        "pause_s": max(move["pause"] for move in outcome.moves),
        "sender_work_s": sum(move["sender_work"] for move in outcome.moves),
        "receiver_work_s": sum(move["receiver_work"] for move in outcome.moves),
        "mbytes": sum(move["bytes"] for move in outcome.moves) / 1e6,
    }


def accumulated(outcome: BalancingOutcome) -> float:
    """Return the mean of the accumulated results over the seconds of the input."""
    return mean(second["results"] for second in outcome.seconds)


def summary(name: str, outcomes: Mapping[str, BalancingOutcome]) -> Row:
    """Return the row of a way, compared with the row of no adaptation."""
    outcome, base = outcomes[name], outcomes["No-Adapt"]
    pairs = [(a["results"], b["results"]) for a, b in zip(outcome.seconds, base.seconds, strict=True) if b["results"]]
    tuples = [second["tuples"] for second in outcome.seconds]
    return {
        "shows": "way",
        "way": name,
        "vs_no_adapt": accumulated(outcome) / accumulated(base),
        "most_vs_no_adapt": max(a / b for a, b in pairs[len(pairs) // 10 :]),
        "tuples_mean": mean(tuples),
        "tuples_most": max(tuples),
        "work_s": outcome.seconds[-1]["work_s"],
        "plans": len(outcome.lm),
        **moves(outcome),
    }


def over_time(ways: Sequence[str], point: Point, say: Say) -> list[Row]:
    """Return a row for each way, and the accumulated results and the tuples of each second."""
    setting = BalancingSetting.of(point)
    outcomes = runs(setting, ways, say)
    rows: list[Row] = [summary(name, outcomes) for name in ways]
    rows += [
        {
            "shows": "second",
            "way": name,
            "second": second["second"],
            "results": second["results"],
            "tuples": second["tuples"],
        }
        for name in ways
        for second in outcomes[name].seconds
    ]
    return [*rows, *fitted_rows()]


def all_ways(point: Point, say: Say) -> list[Row]:
    """Measure figures 7 and 8."""
    return over_time(SETTINGS, point, say)


def after_the_change(point: Point, say: Say) -> list[Row]:
    """Measure figure 13."""
    return over_time(("No-Adapt", "LM-PTLB", "LM-MSLB", "LM-JIT"), point, say)


def ratios(point: Point, say: Say) -> list[Row]:
    """Measure figures 9 to 12: one window and one rate."""
    setting = BalancingSetting.of(point)
    # All settings run on the same machines: node 0 is overloaded at the middle rate and window.
    rate, window = point["middle_rate"], point["middle_window"]
    middle = BalancingSetting.of({**point, "rate": rate, "window": window, "seconds": 4 * window, "change": 4 * window})
    ways = ("No-Adapt", "PTLB only", "MSLB only", "JIT only")
    outcomes = runs(setting, ways, say, speed(middle))
    return [*(summary(name, outcomes) for name in ways), *fitted_rows()]


def points_over_time(full: bool) -> list[Point]:
    """Return the setting of figures 7 and 8."""
    return [{**({"groups": 100, "nodes": 10, "window": 30, "seconds": 90, "load": 3.0} if full else QUICK), "seed": 1}]


def points_after(full: bool) -> list[Point]:
    """Return the setting of figure 13: the decision comes after the change of rates and plans."""
    (point,) = points_over_time(full)
    change = point.get("change", 30)
    return [{**point, "load": 1.2, "balance": change + 6}]


def points_of_ratios(full: bool) -> list[Point]:
    """Return a setting for each rate and window."""
    rates, windows = ((30, 40, 50), (15, 30, 45, 60)) if full else ((40,), (5, 10))
    size: Point = {"groups": 100, "nodes": 10, "balance": 20} if full else {**QUICK, "balance": 6}
    # PTLB takes two windows, as in the paper.
    return [
        {
            **size,
            "rate": float(rate),
            "late_rate": float(rate),
            "seconds": size["balance"] + 2 * window + 20,
            "change": size["balance"] + 2 * window + 20,
            "window": window,
            "middle_rate": 40.0,
            "middle_window": 30 if full else 10,
            "load": 1.5,
            "seed": 1,
        }
        for rate in rates
        for window in windows
    ]


WAYS_TABLE = ReportTable(
    "Ways to adapt",
    {"way": "way"},
    {
        "vs_no_adapt": "mean accumulated results / No-Adapt",
        "most_vs_no_adapt": "at most",
        "tuples_mean": "tuples, mean",
        "tuples_most": "tuples, most",
        "work_s": "work of all nodes, s",
        "plans": "plans changed",
        "moved": "groups moved",
        "length_s": "moves take, s",
        "pause_s": "longest pause, s",
        "sender_work_s": "work at the sender, s",
        "mbytes": "MB sent",
    },
    where={"shows": "way"},
)
_CLUSTER = (
    "Ten simulated nodes, 100 partition groups, node 0 has half of them; nodes are slowed down until node 0 asks for "
    "{load} times its time. Arrivals are Poisson, keys uniform over 500. Seconds are simulated from the work of the "
    "real engines and costs fitted to them; the numbers of results of all ways are compared. PTLB and MSLB run with "
    "the strategy moving-state, as in the paper, and JIT (ours) with jisc."
)


def _over_time(title: str, name: str, y: str, label: str) -> Plot:
    marks = {30.0: "rates change"}
    return Plot(title, "second", y, "way", name, "s", label, where={"shows": "second"}, marked=marks)


FIGURES = (
    Figure(
        "balancing-fig7",
        _CLUSTER.format(load=3) + " B and C fall from 100 to 5 tuples a second at second 30; windows of 30 s. Groups "
        "move by a decision at second 10.",
        points_over_time,
        all_ways,
        source=f"{PAPER}, figures 7 and 8",
        plots=[
            _over_time("Accumulated results", "results", "results", "results"),
            _over_time("Tuples in all nodes", "tuples", "tuples", "rows, entries, waiting rows"),
        ],
        tables=(WAYS_TABLE, NAMED),
        titles=COST_TITLES,
        series={"shows": ("second",)},
    ),
    Figure(
        "balancing-fig9",
        _CLUSTER.format(load="1.5 (at 40 tuples a second and windows of 30 s)") + " Rates are constant; groups move by "
        "a decision at second 20; the input lasts 40 s and two windows.",
        points_of_ratios,
        ratios,
        source=f"{PAPER}, figures 9 to 12",
        plots=[
            Plot(
                f"Results over those without adaptation, {rate} tuples/s",
                "window",
                "vs_no_adapt",
                "way",
                f"{rate}",
                "window, s",
                "ratio",
                where={"rate": float(rate), "shows": "way"},
            )
            for rate in (30, 40, 50)
        ]
        + [
            Plot(
                "Length of a move, 40 tuples/s",
                "window",
                "length_s",
                "way",
                "length",
                "window, s",
                "s",
                "y",
                where={"rate": 40.0, "shows": "way"},
            )
        ],
        tables=(
            ReportTable(
                "Mean accumulated results / No-Adapt",
                {"rate": "tuples/s", "window": "window, s"},
                {"vs_no_adapt": "ratio"},
                across="way",
                where={"shows": "way"},
            ),
            ReportTable(
                "Seconds from the decision to the end of the last move",
                {"rate": "tuples/s", "window": "window, s"},
                {"length_s": "s"},
                across="way",
                where={"shows": "way"},
            ),
        ),
        titles=COST_TITLES,
    ),
    Figure(
        "balancing-fig13",
        _CLUSTER.format(load=1.2) + " B and C fall from 100 to 5 tuples a second at second 30, nodes change their "
        "plans, and groups move by a decision at second 36, when windows are full and few rows arrive.",
        points_after,
        after_the_change,
        source=f"{PAPER}, figure 13",
        plots=[_over_time("Accumulated results", "results", "results", "results")],
        tables=(WAYS_TABLE,),
        titles=COST_TITLES,
        series={"shows": ("second",)},
    ),
)
