"""`eddy bench adaptivity`: a runtime that finds its plan by itself, against all fixed plans, on shapes that drift.

All contenders take the same pushes in turn and count results; the numbers are compared push by push. A ratio says how
fast the default is in terms of another contender: above 1 the default is faster. Fixed plans store nothing; of plans
that do the same work one runs (bench/left_deep.py). On a short version of each shape all of them run; those that take
several times the least in every phase do not run again. Ratios to CACQ and to all states stored come from there, too,
where these are that slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import IO, Any

from rich.console import Console
from rich.table import Column, Table

import eddy
from bench.contenders import ALL_STORED, CACQ, DEFAULT, GATHERING, NOT_GATHERING, STATISTICS, race
from bench.families import SHAPES
from bench.hindsight import Times, best_fixed, best_per_phase, in_the_running
from bench.left_deep import fixed_plans
from bench.measure import machine, progress
from bench.shapes import FAST_OSCILLATION, STATIONARY, Shape

FIXED, PER_PHASE, DEFAULT_ORDER = "vs_best_fixed", "vs_best_per_phase", "vs_default_order"
RATIOS = (FIXED, PER_PHASE, DEFAULT_ORDER, "vs_cacq", "vs_all_stored")
WIDTH = 140
"""Columns of the table where no terminal says how many there are."""
SLACK = 2.0
"""Fixed plans that take more than so many times the least in every phase are out after the short version."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    rounds   rounds of each shape, each with arrivals of its own
    part     of each phase runs
    short    of each phase runs in the version that all plans take part in
    plans    fixed plans at most
    """

    rounds: int = 2
    part: float = 3.0
    short: float = 0.05
    plans: int = 50


QUICK = Sizes(rounds=1, part=0.15, short=0.04, plans=10)


def wanted(shape: Shape) -> dict[str, float]:
    """Return what ratios of a shape should reach."""
    least = {}
    if not shape.ordered:
        least[DEFAULT_ORDER] = 0.95
    if shape.change == STATIONARY:
        least[FIXED] = 0.95
    elif shape.change == FAST_OSCILLATION:
        least[FIXED] = 0.9
    else:
        least[PER_PHASE] = 0.9
        if shape.ordered:
            # Where all orders are the same work there is nothing to win.
            least[FIXED] = 1.0
    return least


def ratios(times: Times, fixed: list[str]) -> dict[str, float]:
    """Return the speed of the default in terms of that of others; `fixed` has the default order first."""
    own = times.total(DEFAULT)
    found = {
        FIXED: best_fixed(times, fixed) / own,
        PER_PHASE: best_per_phase(times, fixed) / own,
        DEFAULT_ORDER: times.total(fixed[0]) / own,
    }
    for name, figure in ((CACQ, "vs_cacq"), (ALL_STORED, "vs_all_stored")):
        if name in times.names:
            found[figure] = times.total(name) / own
    found["best_fixed_vs_best_per_phase"] = best_per_phase(times, fixed) / best_fixed(times, fixed)
    return found | statistics_cost(times)


def statistics_cost(times: Times) -> dict[str, float]:
    """Return what gathering statistics adds to the time of one fixed plan, as a share; {} when there is no switch."""
    if not {GATHERING, NOT_GATHERING} <= set(times.names):
        return {}
    return {"statistics_cost": times.total(GATHERING) / times.total(NOT_GATHERING) - 1}


def measure(shape: Shape, sizes: Sizes) -> dict[str, float | str]:
    """Return the figures of one shape. Raises Mismatch when contenders disagree."""
    plans = fixed_plans(shape.query.graph, sizes.plans)
    fixed = plans.texts(shape.query.graph)
    short = race(shape.scaled(sizes.short * sizes.part), [DEFAULT, CACQ, ALL_STORED, *fixed], fixed[0], 0).times
    totals = {plan: short.total(plan) for plan in fixed}
    least = min(totals.values())
    kept = in_the_running(short, fixed, SLACK)
    kept = [fixed[0], *(plan for plan in kept if plan != fixed[0])]
    others = [name for name in (CACQ, ALL_STORED) if short.total(name) <= SLACK * least]
    names = [DEFAULT, *others, *([] if STATISTICS is None else STATISTICS), *kept]
    rounds, changes, results = [], [], []
    for turn in range(sizes.rounds):
        run = race(shape.scaled(sizes.part), names, fixed[0], turn + 1)
        rounds.append(ratios(run.times, kept))
        changes.append(run.transitions[DEFAULT])
        results.append(run.results / shape.scaled(sizes.part).arrivals)
    # What the full rounds have of a figure goes before what the short version has.
    figures: dict[str, float | str] = {name: ratios(short, fixed)[name] for name in RATIOS}
    figures |= {name: median(one[name] for one in rounds) for name in rounds[0]}
    for name in (FIXED, PER_PHASE):
        figures[f"{name}_least"] = min(one[name] for one in rounds)
        figures[f"{name}_most"] = max(one[name] for one in rounds)
    figures |= {
        "n_fixed": len(fixed),
        "n_screened_out": len(fixed) - len(kept),
        "worst_fixed_vs_best": max(totals.values()) / least,
        "best_fixed_plan": min(totals, key=lambda plan: totals[plan]),
        "worst_fixed_plan": max(totals, key=lambda plan: totals[plan]),
        "transitions": median(changes),
        "results_per_arrival": median(results),
        "reached": float(all(float(figures[name]) >= least for name, least in wanted(shape).items())),
    }
    return figures


def run(
    *,
    quick: bool = False,
    shapes: Sequence[str] = (),
    report: IO[str] | None = None,
    sizes: Sizes | None = None,
) -> dict[str, Any]:
    """Measure all shapes, or those named, and return figures as "shape.figure"; a table of them goes to `report`.

    quick: less of everything, to see that all runs; the figures mean little then.
    """
    console = Console(file=report) if report is not None else Console(stderr=True)
    if not console.is_terminal:
        console.width = WIDTH
    sizes = sizes or (QUICK if quick else Sizes())
    chosen = [SHAPES[name] for name in shapes or SHAPES]
    eddy.warmup()
    figures: dict[str, Any] = {"machine": machine()}
    table = Table(
        Column("shape", no_wrap=True),
        *(name.removeprefix("vs_").replace("_", " ") for name in RATIOS),
        "plans",
        "changes",
    )
    with progress(console) as bar:
        task = bar.add_task("shapes", total=len(chosen))
        for shape in chosen:
            bar.update(task, description=shape.name)
            found = measure(shape, sizes)
            figures |= {f"{shape.name}.{name}": value for name, value in found.items()}
            least = wanted(shape)
            cells = [f"{found[name]:.3g}" + (f" (≥ {least[name]:g})" if name in least else "") for name in RATIOS]
            table.add_row(shape.name, *cells, f"{found['n_fixed']}", f"{found['transitions']:g}")
            bar.advance(task)
    reached = [name for name in figures if name.endswith(".reached")]
    figures["adaptivity.shapes"] = len(chosen)
    figures["adaptivity.reached"] = sum(figures[name] for name in reached)
    console.print(table)
    console.print(figures["machine"])
    return figures
