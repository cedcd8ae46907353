"""`eddy bench strategies`: all strategies over the same arrivals: throughput, longest pushes, memory.

Each strategy takes the pushes of a workload, begins with the left-deep plan in the order of the query, and changes to
another plan half-way; `eddy` chooses its own plans, `cacq` ranks modules, and the plan of `symmetric-hash` cannot
change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter, thread_time

import numpy as np

from bench.fixed_plans import from_the_end
from bench.harness.figure import Figure, Plot, Point, ReportTable, Row, Say, spread
from bench.harness.turns import agree, without_gc
from bench.ways.published import KINDS, published
from bench.workloads.families import SHAPES
from bench.workloads.shapes import Push
from bench.workloads.sources import permutations
from eddy import Query, Runtime
from jisc.plan.tree import default_plan, left_deep

PERMUTED = "permuted keys, 10 joins"
WORKLOADS = {
    "uniform": "same-key-4-uniform-stationary",
    "Zipf": "star-5-zipf-stationary",
    "skewed rates": "chain-4-skewed-rates-uniform-stationary",
    "correlated": "snowflake-7-correlated-stationary",
    "drift": "snowflake-7-uniform-abrupt-drift",
}
"""Shapes of `eddy bench adaptivity` by their characteristic."""


@dataclass(frozen=True)
class StrategyWork:
    """Pushes of a query, first those that fill the windows, and the plans before and after the change."""

    query: Query
    warm: list[Push]
    pushes: list[Push]
    plans: tuple[str, str]


def work_of(point: Point) -> StrategyWork:
    """Draw the arrivals of a point."""
    push, part, seed = point["push"], point["part"], point["seed"]
    if point["workload"] == PERMUTED:
        turnover = permutations(11, 2_000, seed)
        pushes = turnover.cut(push).arrow
        again = [piece for _ in range(max(2, round(40 * part))) for piece in pushes]
        return StrategyWork(turnover.query, pushes, again, (turnover.plan, turnover.reversed_plan))
    shape = SHAPES[WORKLOADS[point["workload"]]].scaled(part)
    drawn = shape.draw(seed).pushes(push)
    warm, timed = [piece for phase, piece in drawn if not phase], [piece for phase, piece in drawn if phase]
    graph = shape.query.graph
    plans = (default_plan(graph).text(graph.names), left_deep(from_the_end(graph)).text(graph.names))
    return StrategyWork(shape.query, warm, timed, plans)


@dataclass
class WorkloadRun:
    """One strategy on one workload, push by push."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    nbytes: int = 0
    promoted: int = 0
    changes: int = 0
    matches: int = 0


def run_of(work: StrategyWork, strategy: str) -> WorkloadRun:
    """Run a strategy over the work, from empty windows."""
    if strategy == "eddy":
        runtime = Runtime(work.query, count_only=True)
    else:
        with published(strategy) as name:
            runtime = Runtime(work.query, work.plans[0], strategy=name, statistics=False, count_only=True)
    for rows, order in work.warm:
        runtime.push(rows, order)
    before = runtime.metrics()
    run = WorkloadRun()
    half = len(work.pushes) // 2
    with without_gc():
        for k, (rows, order) in enumerate(work.pushes):
            wall, cpu = perf_counter(), thread_time()
            if k == half and KINDS[strategy].changes and strategy not in ("eddy", "cacq"):
                runtime.transition(work.plans[1])
            table = runtime.push(rows, order)
            run.cpu.append(thread_time() - cpu)
            run.wall.append(perf_counter() - wall)
            run.results.append(table["count"][0].as_py())
            run.nbytes = max(run.nbytes, runtime.nbytes)
    history = runtime.history()
    run.promoted = sum(history["promoted"].to_pylist())
    run.changes = history.num_rows
    run.matches = runtime.metrics()["matches"] - before["matches"]
    return run


def _measure(point: Point, say: Say) -> list[Row]:
    work = work_of(point)
    runs: dict[str, list[WorkloadRun]] = {name: [] for name in KINDS}
    for turn in range(point["rounds"] + 1):
        for name in KINDS:
            say(f"{point['workload']}: {name}")
            run = run_of(work, name)
            if turn:  # the first round compiles, and maps memory
                runs[name].append(run)
    agree(f"strategies, {point['workload']}", {name: rounds[0].results for name, rounds in runs.items()})
    arrivals = sum(len(order) for _, order in work.pushes)
    return [{"strategy": name, **_row(rounds, arrivals)} for name, rounds in runs.items()]


def _row(runs: list[WorkloadRun], arrivals: int) -> Row:
    wall, last = np.median([run.wall for run in runs], axis=0), runs[-1]
    return {
        **spread([arrivals / sum(run.cpu) for run in runs], "tuples_per_s"),
        **{f"push_ms_p{share}": 1e3 * float(np.percentile(wall, share)) for share in (50, 99)},
        # The longest push from the change on, including the change.
        **spread([1e3 * max(run.wall[len(wall) // 2 :]) for run in runs], "stall_ms"),
        "matches_per_arrival": last.matches / arrivals,
        "results_per_arrival": sum(last.results) / arrivals,
        "mbytes": last.nbytes / 1e6,
        "promoted": last.promoted,
        "changes": last.changes,
    }


def _points(full: bool) -> list[Point]:
    sizes = {"push": 1_000, "part": 1.0 if full else 0.1, "rounds": 5 if full else 2, "seed": 1}
    names = (*WORKLOADS, PERMUTED) if full else ("uniform", "skewed rates", "drift", PERMUTED)
    return [{"workload": name, **sizes} for name in names]


def _table(title: str, column: str, unit: str) -> ReportTable:
    return ReportTable(title, {"workload": "workload"}, {column: unit}, across="strategy")


FIGURES = (
    Figure(
        "strategies",
        "Seeded workloads; half-way, all strategies whose plan can be set change to another left-deep plan, the "
        "default (`eddy`) follows its policy and `cacq` ranks. Throughput by CPU time, latencies by wall time. The "
        "latency of a result lasts from the arrival of the last tuple of its push until the push is done, with "
        "arrivals by a Poisson process at half the rate that the slowest strategy can take, so it includes waiting.",
        _points,
        _measure,
        plots=[
            Plot(
                f"{name}: tuples a second",
                "strategy",
                "tuples_per_s",
                name=name.split(",")[0].replace(" ", "-").lower(),
                y_label="tuples/s",
                where={"workload": name},
                kind="bars",
            )
            for name in ("drift", PERMUTED)
        ],
        tables=[
            _table("Tuples a second", "tuples_per_s", "CPU time"),
            _table("99 % of the pushes take at most", "push_ms_p99", "ms"),
            _table("Longest push from the change on", "stall_ms", "ms"),
            _table("Most state", "mbytes", "MB"),
            _table("Combinations examined for an arrival", "matches_per_arrival", "results included"),
        ],
    ),
)
