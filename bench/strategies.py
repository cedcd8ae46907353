"""All strategies over the same arrivals, with everything that is measured of a run.

Each strategy takes the pushes of a workload, begins with the left-deep plan in the order of the query, and half-way
goes over to another one; `eddy` is told no plan and decides by itself, `cacq` ranks, `symmetric-hash` cannot change.
Rounds take turns. The latency of a result is that of an open system: pushes become complete by a Poisson process of
arrivals at half the rate that the slowest strategy can take, wait for the one before, and take as long as was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter, thread_time

import numpy as np
import numpy.typing as npt

from bench.families import SHAPES
from bench.harness.figure import Figure, Grid, Plot, Point, Row, Say
from bench.harness.spread import spread
from bench.left_deep import from_the_end
from bench.measure import agree, without_gc
from bench.shapes import Push
from bench.workloads import permutations
from eddy import Query, Runtime
from jisc.plan.tree import default_plan, left_deep
from jisc.strategies import STRATEGIES

Floats = npt.NDArray[np.float64]
PERMUTED = "permuted keys, 10 joins"
WORKLOADS = {
    "uniform": "same-key-4-uniform-stationary",
    "Zipf": "star-5-zipf-stationary",
    "skewed rates": "chain-4-skewed-rates-uniform-stationary",
    "correlated": "snowflake-7-correlated-stationary",
    "drift": "snowflake-7-uniform-abrupt-drift",
}
"""Shapes of `eddy bench adaptivity` by what is peculiar to them."""
LOAD = 0.5


@dataclass(frozen=True)
class Work:
    """Pushes of a query, those that fill the windows first, and the plans before and after the change."""

    query: Query
    warm: list[Push]
    pushes: list[Push]
    plans: tuple[str, str]

    @property
    def arrivals(self) -> list[int]:
        """Arrivals of each push."""
        return [len(order) for _, order in self.pushes]


def work_of(point: Point) -> Work:
    """Draw the arrivals of a point."""
    push, part, seed = int(point["push"]), float(point["part"]), int(point["seed"])
    if point["workload"] == PERMUTED:
        turnover = permutations(11, 2_000, seed)
        pushes = turnover.pushes(push)
        again = [one for _ in range(max(2, round(40 * part))) for one in pushes]
        return Work(turnover.query, pushes, again, (turnover.plan, turnover.reversed_plan))
    shape = SHAPES[WORKLOADS[str(point["workload"])]].scaled(part)
    drawn = shape.draw(seed).pushes(push)
    graph = shape.query.graph
    return Work(
        shape.query,
        [one for phase, one in drawn if not phase],
        [one for phase, one in drawn if phase],
        (default_plan(graph).text(graph.names), left_deep(from_the_end(graph)).text(graph.names)),
    )


@dataclass
class Run:
    """One strategy on one workload, push by push; `stall` is the call of `transition` and the longest push after it."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    stall: float = 0.0
    nbytes: int = 0
    promoted: int = 0
    changes: int = 0
    matches: int = 0


def run_of(work: Work, strategy: str) -> Run:
    """Run a strategy over the work, from empty windows."""
    changes = STRATEGIES[strategy].changes
    if strategy == "eddy":
        runtime = Runtime(work.query, count_only=True)
    else:
        runtime = Runtime(work.query, work.plans[0], strategy=strategy, statistics=False, count_only=True)
    for rows, order in work.warm:
        runtime.push(rows, order)
    before = runtime.metrics()
    found = Run()
    half = len(work.pushes) // 2
    with without_gc():
        for k, (rows, order) in enumerate(work.pushes):
            wall, cpu = perf_counter(), thread_time()
            if k == half and changes and strategy not in ("eddy", "cacq"):
                runtime.transition(work.plans[1])
            table = runtime.push(rows, order)
            found.cpu.append(thread_time() - cpu)
            found.wall.append(perf_counter() - wall)
            found.results.append(table["count"][0].as_py())
            found.nbytes = max(found.nbytes, runtime.nbytes)
    after = runtime.metrics()
    history = runtime.history()
    found.stall = max(found.wall[half:])
    found.promoted = sum(history["promoted"].to_pylist())
    found.changes = history.num_rows
    found.matches = after["matches"] - before["matches"]
    return found


def latencies(service: Floats, sizes: Sequence[int], rate: float, seed: int) -> Floats:
    """Return how long after its last arrival each push is done, in s, when arrivals come by a Poisson process.

    service  s[pushes] that each takes; sizes its arrivals; rate arrivals a second
    """
    gaps = np.random.default_rng(seed).gamma(np.asarray(sizes, np.float64)) / rate
    ready = np.cumsum(gaps)
    done = 0.0
    waited = np.empty(len(service))
    for k, (at, takes) in enumerate(zip(ready, service, strict=True)):
        done = max(done, at) + takes
        waited[k] = done - at
    return waited


def percentiles(name: str, values: Floats, weights: npt.NDArray[np.int64]) -> Row:
    """Return 50, 95 and 99 % of the weight: columns `name`_p50 …, in ms of seconds given. None without any weight."""
    shares = (50, 95, 99)
    if not weights.any():
        return {f"{name}_p{share}": None for share in shares}
    found = np.percentile(values, shares, weights=weights, method="inverted_cdf")
    return {f"{name}_p{share}": 1e3 * float(one) for share, one in zip(shares, found, strict=True)}


def _measure(point: Point, say: Say) -> list[Row]:
    work = work_of(point)
    runs: dict[str, list[Run]] = {name: [] for name in STRATEGIES}
    for turn in range(int(point["rounds"]) + 1):
        for name in STRATEGIES:
            say(f"{point['workload']}: {name}")
            run = run_of(work, name)
            if turn:  # the first round compiles, and maps memory
                runs[name].append(run)
    agree(f"strategies, {point['workload']}", {name: own[0].results for name, own in runs.items()})
    arrivals = sum(work.arrivals)
    rate = LOAD * arrivals / max(sum(run.wall) for own in runs.values() for run in own)
    return [{"strategy": name, **_row(own, work, arrivals, rate, int(point["seed"]))} for name, own in runs.items()]


def _row(runs: list[Run], work: Work, arrivals: int, rate: float, seed: int) -> Row:
    wall = np.median([run.wall for run in runs], axis=0)
    waited = latencies(wall, work.arrivals, rate, seed)
    results = np.array(runs[0].results)
    last = runs[-1]
    stall = dict(spread([1e3 * run.stall for run in runs], "stall_ms"))
    stall.pop("repeats")  # as many as of the throughput
    return {
        **spread([arrivals / sum(run.cpu) for run in runs], "tuples_per_s"),
        **percentiles("push_ms", wall, np.ones(len(wall), np.int64)),
        **percentiles("result_ms", waited, results),
        **stall,
        "matches_per_arrival": last.matches / arrivals,
        "results_per_arrival": float(results.sum()) / arrivals,
        "mbytes": last.nbytes / 1e6,
        "promoted": last.promoted,
        "changes": last.changes,
        "offered_per_s": rate,
    }


def _points(full: bool) -> list[Point]:
    sizes = {"push": 1_000, "part": 1.0 if full else 0.1, "rounds": 5 if full else 2, "seed": 1}
    names = (*WORKLOADS, PERMUTED) if full else ("uniform", "skewed rates", "drift", PERMUTED)
    return [{"workload": name, **sizes} for name in names]


def _remarks(rows: Sequence[Row]) -> list[str]:
    said = []
    for workload in dict.fromkeys(str(row["workload"]) for row in rows):
        own = {str(row["strategy"]): row for row in rows if row["workload"] == workload}

        def best(of: str, which: Callable[..., str], own: dict[str, Row] = own) -> str:
            return which(own, key=lambda name: float(own[name][of] or 0))

        fast, calm = best("tuples_per_s", max), best("result_ms_p99", min)
        eddy = float(own["eddy"]["tuples_per_s"] or 0) / float(own[fast]["tuples_per_s"] or 1)
        said.append(
            f"{workload}: {fast} is fastest; the default, told no plan, has {eddy:.2f} of its speed. "
            f"99 of 100 results are out soonest under {calm}."
        )
    return said


FIGURES = (
    Figure(
        "strategies",
        "All strategies over the same arrivals: throughput, latency, stall, memory",
        "Seeded workloads; half-way all strategies that can be told go over to another left-deep plan, the default "
        "(`eddy`) decides by itself and `cacq` ranks. Tuples a second by CPU time, latencies by wall time. The latency "
        "of a result is from the arrival of the last tuple of its push until the push is done, arrivals coming by a "
        "Poisson process at half the rate the slowest strategy can take: it holds waiting as well. The stall is the "
        "longest push from the change on, the change included. Memory is the most that all state took.",
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
            for name in ("uniform", "skewed rates", "drift", PERMUTED)
        ],
        grids=[
            Grid("Tuples a second", {"workload": "workload"}, {"tuples_per_s": "CPU time"}, across="strategy"),
            Grid("99 of 100 results are out in", {"workload": "workload"}, {"result_ms_p99": "ms"}, across="strategy"),
            Grid("Longest push from the change on", {"workload": "workload"}, {"stall_ms": "ms"}, across="strategy"),
            Grid("Most state", {"workload": "workload"}, {"mbytes": "MB"}, across="strategy"),
            Grid(
                "Combinations looked at for an arrival",
                {"workload": "workload"},
                {"matches_per_arrival": "results included"},
                across="strategy",
            ),
        ],
        remarks=_remarks,
    ),
)
