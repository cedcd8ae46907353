"""Equations 5 to 7: the work of a parallel-track stage, operator by operator, and the counts of the engine.

The paper charges T_j for each pair of tuples that a nested loop examines, and T_s for each tuple inserted or purged.
Joins here are by hash and examine only pairs that match, so a count of pairs is multiplied by the reduction factor, and
is then the number of *matches*, which each hop counts.

Two printed equations contain errors; for these the figure has the printed form and the intended form:

    eq. 6   The first W: W T_j (rate of one stream times the integral of the other's state) multiplies by W although the
            integral has summed over time already, and names streams A and B in operator B ⋈ C
    eq. 7   The output rate while t <= W: the integral of 2 b c sigma t is the number of results until t, and not a rate

Three rules of this engine differ from those of the paper (`bench.papers.migration.cost_model`). First, the engine drops
the old plan after W and not after 2 W, which saves half of eq. 5. Second, both plans share the SteMs, so a tuple is
inserted and purged once and not once for each plan. Third, a composite leaves with its oldest component and not a
window after it was made, so a state of composites has half the entries of eq. 2, and a join above it has 3/4 of the
matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean
from typing import Any

import numpy as np

from bench.harness.figure import Figure, Plot, Point, ReportTable, Row, Say
from bench.harness.turns import agree
from bench.papers.migration.arrivals import NEW, OLD, MigrationSetting, counted, draw, steps
from bench.papers.migration.length import CHANGE_MS, SET_1, SET_3
from eddy import Runtime
from eddy.routing.strategies import strategy_name

SLICES = 20
"""Slices of a window in which matches are counted."""
FINE = 20
"""Pushes of a slice around the end of the stage. The counters of the last push are lost with the old plan."""


def eq5(left: float, right: float, w: float) -> float:
    """Return the pairs that a join of the old plan examines in 2 W, given the rates of its inputs."""
    return 2 * w * 2 * left * right * w


def eq5_moves(left: float, right: float, w: float) -> float:
    """Return the tuples that a join of the old plan inserts and purges in 2 W."""
    return 2 * w * 2 * (left + right)


def eq6(left: float, right: float, w: float) -> tuple[float, float]:
    """Return the pairs that a join of the new plan examines in the first and in the second W, by the intended form."""
    return left * right * w**2 / 2 + right * left * w**2 / 2, w * 2 * left * right * w


def eq6_printed(a: float, b: float, w: float) -> float:
    """Return the pairs of the first W by the printed form."""
    return w * (a * b * w**2 / 2 + b * a * w**2 / 2)


def eq6_moves(left: float, right: float, w: float) -> tuple[float, float]:
    """Return the tuples that a join of the new plan inserts and purges in the first and in the second W."""
    return w * (left + right), w * 2 * (left + right)


def eq7(b: float, c: float, sigma: float, w: float, t: float) -> tuple[float, float]:
    """Return the output rate of B ⋈ C at t after the transition, by the printed and by the intended form."""
    steady = 2 * b * c * sigma * w
    return (b * c * sigma * t**2, 2 * b * c * sigma * t) if t <= w else (steady, steady)


@dataclass(frozen=True)
class Slice:
    """Counts of the tuples that came in a part of the stream.

    end      ms since the transition
    old      hops of the first plan; new: hops of the newest plan; (from, to) -> matches
    moved    tuples inserted and purged, by stream
    """

    end: float
    old: dict[tuple[str, str], int]
    new: dict[tuple[str, str], int]
    moved: dict[str, int]
    results: int


Hops = list[dict[str, Any]]


def _grown(now: Hops, before: Hops) -> dict[tuple[str, str], int]:
    """Return the growth of the matches of a plan's hops; `before` is empty for a new plan."""
    earlier = {(hop["from"], hop["to"]): hop["matches"] for hop in before}
    return {(hop["from"], hop["to"]): hop["matches"] - earlier.get((hop["from"], hop["to"]), 0) for hop in now}


def count(setting: MigrationSetting, seed: int, strategy: str, change: bool) -> list[Slice]:
    """Run the old plan, change to the new one if `change` is true, and count for 2 W after that moment.

    A push in which a plan is dropped counts no matches.
    """
    w = setting.w_ms
    fine = w / SLICES / FINE
    start = CHANGE_MS
    edges = [*steps(start, start + 0.95 * w, w / SLICES), *steps(start + 0.95 * w, start + 1.15 * w, fine)]
    edges += steps(start + 1.15 * w, start + 2 * w, w / SLICES)
    first, *pushes = draw(setting, int(start + 2 * w) + 1, seed).pushes([start, *edges])
    runtime = Runtime(setting.query(), OLD, strategy=strategy_name(strategy), count_only=True)
    runtime.push(*first)
    per_plan = len(runtime.metrics()["hops"])
    if change:
        runtime.transition(NEW)
    slices = []
    before = runtime.metrics()
    for end, push in zip(edges, pushes, strict=True):
        results = counted(runtime.push(*push))
        now = runtime.metrics()
        same = len(now["hops"]) == len(before["hops"])
        olds, news = (now["hops"][:per_plan], now["hops"][-per_plan:]) if same else ([], [])
        moved = {
            name: sum(counts[kind] - before["states"][name][kind] for kind in ("inserts", "expired"))
            for name, counts in now["states"].items()
        }
        old = _grown(olds, before["hops"][:per_plan]) if len(now["hops"]) > per_plan or not change else {}
        slices.append(Slice(end - start, old, _grown(news, before["hops"][-per_plan:]), moved, results))
        before = now
    return slices


def joined(hops: dict[tuple[str, str], int], left: str, right: str) -> int:
    """Return the matches of an operator: of the hops from one side, written "A B", to the other."""
    sides = ((left, right), (right, left))
    return sum(n for (source, to), n in hops.items() for side, other in sides if source in side.split() and to == other)


def _total(slices: Sequence[Slice], plan: str, left: str, right: str, first: float, last: float) -> int:
    """Return the matches of an operator in slices that end in (first, last], in ms since the transition."""
    return sum(joined(getattr(piece, plan), left, right) for piece in slices if first < piece.end <= last + 1e-6)


def _moved(slices: Sequence[Slice], names: str, first: float, last: float) -> int:
    return sum(piece.moved[name] for piece in slices for name in names if first < piece.end <= last + 1e-6)


@dataclass(frozen=True)
class CountComparison:
    """A count by the printed equation, by the intended equation, with the rules of this engine, and as measured."""

    printed: float
    meant: float
    here: float
    measured: float


def compared(setting: MigrationSetting, alone: Sequence[Slice], stage: Sequence[Slice]) -> dict[str, CountComparison]:
    """Return the counts by quantity, of the old plan alone and of a stage of parallel-track."""
    w_ms, w = setting.w_ms, setting.w_ms / 1e3
    a, b, c, d = setting.rates
    ab, bc, cd = (sigma / setting.scale for sigma in setting.sigmas)
    # Eq. 2, the rate of composites.
    rate_ab, rate_bc = 2 * a * b * w * ab, 2 * b * c * w * bc
    lower, upper = eq5(a, b, w) * ab, eq5(rate_ab, c, w) * bc
    first, second = (pairs * bc for pairs in eq6(b, c, w))
    # The rate of B ⋈ C in the first W is that of eq. 7, so the pairs of the join above it are an integral over t.
    above_first, above_second = rate_bc * d * w**2 * (1 / 3 + 1 / 6) * cd, eq6(rate_bc, d, w)[1] * cd
    moved, once = eq5_moves(a, b, w), 2 * w * (b + c)
    moves = [eq5_moves(b, c, w) / 2 + in_new for in_new in eq6_moves(b, c, w)]
    twice = 2 * w_ms

    return {
        "eq. 5: A ⋈ B of the old plan, matches in 2 W": CountComparison(
            lower, lower, lower, _total(alone, "new", "A", "B", 0, twice)
        ),
        "eq. 5: the same within the stage of parallel-track": CountComparison(
            lower, lower, lower / 2, _total(stage, "old", "A", "B", 0, twice)
        ),
        "eq. 5: A and B, tuples inserted and purged in 2 W": CountComparison(
            moved, moved, moved, _moved(alone, "AB", 0, twice)
        ),
        "eqs. 2, 5: (A B) ⋈ C of the old plan, matches in 2 W": CountComparison(
            upper, upper, 0.75 * upper, _total(alone, "new", "A B", "C", 0, twice)
        ),
        "eq. 6: B ⋈ C of the new plan, matches in the first W": CountComparison(
            eq6_printed(a, b, w) * bc, first, first, _total(stage, "new", "B", "C", 0, w_ms)
        ),
        "eq. 6: B ⋈ C of the new plan, matches in the second W": CountComparison(
            eq6(a, b, w)[1] * bc, second, second, _total(stage, "new", "B", "C", w_ms, twice)
        ),
        "eqs. 5, 6: B and C in both plans, tuples inserted and purged in the first W": CountComparison(
            moves[0], moves[0], once, _moved(stage, "BC", 0, w_ms)
        ),
        "eqs. 5, 6: B and C in both plans, tuples inserted and purged in the second W": CountComparison(
            moves[1], moves[1], once, _moved(stage, "BC", w_ms, twice)
        ),
        "eqs. 6, 7: (B C) ⋈ D of the new plan, matches in the first W": CountComparison(
            above_first, above_first, above_first, _total(stage, "new", "B C", "D", 0, w_ms)
        ),
        "eqs. 6, 7: (B C) ⋈ D of the new plan, matches in the second W": CountComparison(
            above_second, above_second, 0.75 * above_second, _total(stage, "new", "B C", "D", w_ms, twice)
        ),
    }


def points(full: bool) -> list[Point]:
    """Return the points: windows at equal rates, and one at which A comes less often."""
    settings = [replace(SET_1, w_ms=w, scale=50) for w in ((500, 1_000, 2_000, 4_000) if full else (1_000,))]
    settings.append(replace(SET_3, w_ms=1_000, scale=10 if full else 4))
    return [{**setting.columns(), "seeds": 20 if full else 3, "seed": 31} for setting in settings]


def measure(point: Point, say: Say) -> list[Row]:
    """Return a row for each quantity, and the rate of B ⋈ C over time. Raises Mismatch if plans differ in results."""
    setting = MigrationSetting.of(point)
    w_ms = setting.w_ms
    _, b, c, _ = setting.rates
    name = f"windows of {w_ms} ms, scale {setting.scale}"
    comparisons: dict[str, list[CountComparison]] = {}
    stages = []
    for turn in range(point["seeds"]):
        say(f"{name}, arrivals {turn + 1} of {point['seeds']}")
        alone = count(setting, point["seed"] + turn, "symmetric-hash", False)
        stage = count(setting, point["seed"] + turn, "parallel-track", True)
        agree(name, {"alone": [piece.results for piece in alone], "stage": [piece.results for piece in stage]})
        stages.append(stage)
        for quantity, values in compared(setting, alone, stage).items():
            comparisons.setdefault(quantity, []).append(values)
    rows: list[Row] = []
    for quantity, of_quantity in comparisons.items():
        measured = mean(comparison.measured for comparison in of_quantity)
        rows.append(
            {
                "shows": "count",
                "quantity": quantity,
                "printed": of_quantity[0].printed,
                "meant": of_quantity[0].meant,
                "here": of_quantity[0].here,
                "measured": measured,
                "deviation": measured / of_quantity[0].meant - 1,
                "deviation_here": measured / of_quantity[0].here - 1,
            }
        )
    sigma = setting.sigmas[1] / setting.scale
    edges = np.linspace(0, 2 * w_ms, 2 * SLICES + 1).tolist()
    for low, high in pairwise(edges):
        middle = (low + high) / 2e3
        taken = [_total(stage, "new", "B", "C", low, high) / (high - low) * 1e3 for stage in stages]
        printed, meant = eq7(b, c, sigma, w_ms / 1e3, middle)
        curves = {"measured": mean(taken), "eq. 7 as a rate": meant, "eq. 7 as printed": printed}
        rows += [
            {"shows": "rate", "curve": curve, "windows": 1e3 * middle / w_ms, "rate": rate}
            for curve, rate in curves.items()
        ]
    return rows


FIGURES = (
    Figure(
        "migration-costs",
        "Four streams joined in a chain, RANGE windows, Poisson arrivals; the plan changes from ((A B) C) D to "
        "A ((B C) D) under parallel-track, and the old plan also runs alone. Rates and reduction factors are those of "
        "sets 1 and 3 of the paper's table 2, with more tuples and keys (scale). Counts are those of the engine, means "
        "over several draws of the arrivals; pairs of the equations are multiplied by the reduction factor. With "
        "the rules here, the old plan is dropped after W, both plans share the SteMs, and a composite leaves with its "
        "oldest component.",
        points,
        measure,
        source="Zhu, Rundensteiner, Heineman, SIGMOD 2004, eqs. 5 to 7",
        plots=[
            Plot(
                "Output rate of B ⋈ C in the new plan, W = 1 s",
                "windows",
                "rate",
                "curve",
                x_label="windows since the transition",
                y_label="matches a second",
                where={"shows": "rate", "w_ms": 1_000, "i_a_ms": 100.0, "i_b_ms": 100.0},
            )
        ],
        tables=[
            ReportTable(
                "Work by the equations, and counts",
                {"quantity": "quantity", "w_ms": "W in ms", "i_a_ms": "delay of A", "i_b_ms": "delay of B, C and D"},
                {
                    "printed": "as printed",
                    "meant": "as meant",
                    "here": "with the rules here",
                    "measured": "measured",
                    "deviation": "deviation from what is meant",
                    "deviation_here": "from the rules here",
                },
                where={"shows": "count"},
            )
        ],
        series={"shows": ("rate",)},
    ),
)
