"""`eddy bench adaptivity`: a Runtime that chooses its own plan, compared with all fixed plans while data drift.

All contenders take the same pushes in turn and count results; the numbers are compared push by push. Fixed plans have
no stored states; of the plans that do the same work only one runs (fixed_plans.py). All plans run on a short version of
each shape; plans that take several times the least time in every phase do not run again. If CACQ, or the runtime with
all states stored, is that slow, its ratio also comes from the short version.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from time import thread_time
from typing import Any, Protocol

import numpy as np

from bench.fixed_plans import Times, best_fixed, best_per_phase, fixed_plans, in_the_running, texts
from bench.harness.figure import Figure, Point, ReportTable, Row, Say, spread
from bench.harness.turns import agree, without_gc
from bench.workloads.families import SHAPES
from bench.workloads.shapes import FAST_OSCILLATION, STATIONARY, WorkloadShape
from eddy import Query, Runtime

DEFAULT, CACQ, ALL_STORED = "default", "cacq", "all stored"
GATHERING, NOT_GATHERING = "statistics gathered", "no statistics gathered"
FIXED, PER_PHASE, DEFAULT_ORDER = "vs_best_fixed", "vs_best_per_phase", "vs_default_order"
WORST = "worst_order_vs_best_order"
RATIOS = {
    FIXED: "best fixed plan",
    PER_PHASE: "best plan of each phase",
    DEFAULT_ORDER: "default order",
    "vs_cacq": "CACQ",
    "vs_all_stored": "all states stored",
}
WANTED = RATIOS | {WORST: "worst order / best order"}
"""Names of the ratios with a bar."""
SLACK = 2.0
"""Fixed plans that take more than this multiple of the least time in every phase run in the short version only."""
QUICK_SHAPES = (
    "star-5-zipf-stationary",
    "chain-4-skewed-rates-uniform-abrupt-drift",
    "cycle-4-uniform-slow-oscillation",
)
"""Shapes of a quick run: one where order has hardly any influence, one where storing pays, one that oscillates."""


class DrawnPushes(Protocol):
    """Arrivals, push by push; the phase of a push that only fills the windows is ""."""

    def pushes(self, size: int, /) -> list[tuple[str, tuple[Any, Any]]]:
        """Return the phase of each push of `size` arrivals, its rows and their order."""


class Course(Protocol):
    """The query of a race, and the arrivals that all contenders take, which follow from a seed."""

    @property
    def name(self) -> str:
        """Its name, for messages."""

    @property
    def push(self) -> int:
        """The arrivals of a push."""

    @property
    def query(self) -> Query:
        """The join."""

    def draw(self, seed: int, /) -> DrawnPushes:
        """Return the arrivals of a seed."""


def runtime(name: str, query: Query, default_order: str) -> Runtime:
    """Return the Runtime of a contender; an unknown name is a fixed plan. CACQ ranks by the default order."""
    output: Any = "changelog" if query.tables_changing else "append"
    options: dict[str, dict[str, Any]] = {
        CACQ: {"strategy": "cacq", "statistics": False},
        ALL_STORED: {"strategy": "jisc", "statistics": False},
        GATHERING: {"policy": "fixed", "statistics": True},
        NOT_GATHERING: {"policy": "fixed", "statistics": False},
    }
    if name == DEFAULT:
        return Runtime(query, output=output, count_only=True)
    if name in options:
        return Runtime(query, default_order, output=output, count_only=True, **options[name])
    return Runtime(query, name, strategy="mjoin", statistics=False, output=output, count_only=True)


@dataclass(frozen=True)
class Race:
    """Seconds of all contenders on the same arrivals, the results, and the number of plan changes of each."""

    times: Times
    results: int
    transitions: dict[str, int]


def race(shape: Course, names: list[str], default_order: str, seed: int) -> Race:
    """Push the arrivals of a seed to all contenders, push by push, and time each push.

    The order of the contenders is drawn again for each push: a contender that always followed a contender with the same
    plan would gain a few percent, since the branch predictors have then just learnt the same outcomes. The pushes that
    fill the windows are not timed. Raises Mismatch if two contenders find different numbers of results on a push.
    """
    pushes = shape.draw(seed).pushes(shape.push)
    runtimes = [runtime(name, shape.query, default_order) for name in names]
    warm = sum(not phase for phase, _ in pushes)
    seconds = np.zeros((len(names), len(pushes)))
    results, turns = 0, np.random.default_rng(seed)
    with without_gc():
        for k, (phase, (rows, order)) in enumerate(pushes):
            counts = {}
            for i in turns.permutation(len(names)):
                start = thread_time()
                table = runtimes[i].push(rows, order)
                seconds[i, k] = thread_time() - start
                counts[names[i]] = table["count"].to_pylist()
            agree(f"{shape.name}, push {k}", counts)
            results += counts[names[0]][0] if phase else 0
    times = Times(names, seconds[:, warm:], [phase for phase, _ in pushes[warm:]])
    return Race(times, results, {n: contender.history().num_rows for n, contender in zip(names, runtimes, strict=True)})


def wanted(shape: WorkloadShape) -> dict[str, float]:
    """Return the least value that the ratios of a shape should reach."""
    least = {} if shape.ordered else {DEFAULT_ORDER: 0.95}
    if "selective" in shape.family:
        least[WORST] = 0.85
    if shape.change == STATIONARY:
        return least | {FIXED: 0.95}
    if shape.change == FAST_OSCILLATION:
        return least | {FIXED: 0.9}
    # If all orders do the same work, no plan can be better than another.
    return least | {PER_PHASE: 0.9} | ({FIXED: 1.0} if shape.ordered else {})


def ratios(times: Times, fixed: list[str]) -> dict[str, float]:
    """Return the speed of the default relative to other contenders; `fixed` has the default order first."""
    default_seconds = times.total(DEFAULT)
    figures = {
        FIXED: best_fixed(times, fixed) / default_seconds,
        PER_PHASE: best_per_phase(times, fixed) / default_seconds,
        DEFAULT_ORDER: times.total(fixed[0]) / default_seconds,
    }
    for name, figure in ((CACQ, "vs_cacq"), (ALL_STORED, "vs_all_stored")):
        if name in times.names:
            figures[figure] = times.total(name) / default_seconds
    totals = [times.total(plan) for plan in fixed]
    figures[WORST] = min(totals) / max(totals)
    figures["best_fixed_vs_best_per_phase"] = best_per_phase(times, fixed) / best_fixed(times, fixed)
    if {GATHERING, NOT_GATHERING} <= set(times.names):
        figures["statistics_cost"] = times.total(GATHERING) / times.total(NOT_GATHERING) - 1
    return figures


def points(full: bool) -> list[Point]:
    """Return a point for each shape: rounds, the part of each phase that runs in them and in the short version."""
    sizes = {"rounds": 2, "part": 12.0, "short": 0.15, "plans": 50} if full else {}
    sizes = sizes or {"rounds": 1, "part": 0.15, "short": 0.006, "plans": 10}
    return [{"shape": name, **sizes} for name in (SHAPES if full else QUICK_SHAPES)]


def measure(point: Point, say: Say) -> list[Row]:
    """Return the row of a shape."""
    return [measure_shape(SHAPES[point["shape"]], point, say)]


def measure_shape(shape: WorkloadShape, point: Point, say: Say) -> Row:
    """Return the ratios of a shape and the times of the fixed plans. Raises Mismatch when contenders disagree."""
    fixed = texts(fixed_plans(shape.query.graph, point["plans"]), shape.query.graph)
    say(f"{shape.name}, short version")
    names = [DEFAULT, CACQ, ALL_STORED, *fixed]
    short = race(shape.scaled(point["short"]), names, fixed[0], 0).times
    least = min(short.total(plan) for plan in fixed)
    near = in_the_running(short, fixed, SLACK)
    kept = [fixed[0], *(plan for plan in near if plan != fixed[0])]
    others = [name for name in (CACQ, ALL_STORED) if short.total(name) <= SLACK * least]
    rounds, changes, results = [], [], []
    scaled = shape.scaled(point["part"])
    for turn in range(point["rounds"]):
        say(f"{shape.name}, round {turn + 1}")
        run = race(scaled, [DEFAULT, *others, GATHERING, NOT_GATHERING, *kept], fixed[0], turn + 1)
        rounds.append(ratios(run.times, kept))
        changes.append(run.transitions[DEFAULT])
        results.append(run.results / scaled.arrivals)
    # Ratios of the full rounds take precedence over those of the short version.
    at_first = ratios(short, fixed)
    figures = {name: at_first[name] for name in RATIOS}
    figures |= {name: median(round_ratios[name] for round_ratios in rounds) for name in rounds[0]}
    if len(kept) < len(fixed):
        figures[WORST] = at_first[WORST]
    bars = wanted(shape)
    return {
        **figures,
        **spread([round_ratios[FIXED] for round_ratios in rounds], FIXED),
        **spread([round_ratios[PER_PHASE] for round_ratios in rounds], PER_PHASE),
        "n_fixed": len(fixed),
        "n_screened_out": len(fixed) - len(kept),
        "transitions": median(changes),
        "results_per_arrival": median(results),
        "wanted": ", ".join(f"{WANTED[name]} ≥ {bar:g}" for name, bar in bars.items()),
        "reached": all(figures[name] >= bar for name, bar in bars.items()),
    }


FIGURES = (
    Figure(
        "adaptivity",
        "The default (strategy eddy, policy cost) against contenders on 28 shapes: chains, stars, snowflakes, cycles, "
        "cliques and streams on one key. Ratios are speeds: above 1, the default is faster. The best plan of each "
        "phase is known only afterwards, and it changes at no cost. CPU time.",
        points,
        measure,
        tables=(
            ReportTable(
                "Speed of the default in terms of others",
                {"shape": "shape"},
                {**RATIOS, "wanted": "wanted", "reached": "reached"},
            ),
            ReportTable(
                "Fixed plans, and changes of plan",
                {"shape": "shape"},
                {
                    "n_fixed": "fixed plans",
                    WORST: "speed, worst order / best order",
                    "best_fixed_vs_best_per_phase": "time, best of each phase / best",
                    "transitions": "changes of plan",
                    "results_per_arrival": "results an arrival",
                    "statistics_cost": "share of time for statistics",
                },
            ),
        ),
    ),
)
