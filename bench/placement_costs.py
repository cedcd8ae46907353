"""`eddy bench placement-spark-costs`: the costs of the parts of a batch join on Spark, in one round and in hops.

The choice between the two uses the costs in `eddy/spark/batch/choice.py`. This benchmark joins chains of drawn sizes in
both ways; no chain is a point of `placement-spark`. The work of a join is counted from samples, as the choice counts
it, and the costs are fitted to the CPU seconds of the JVM and the workers by least squares of relative errors. The
costs in the code are not an input of the fit; they only choose the plan of the hops. So the errors of the code are
measured on joins that were not used for its costs; the error of the fit on a join uses the costs fitted to the other
joins.

In quick size rounds and tasks take most of the time, so the fit cannot separate copies, bytes and matches well, and
some of them get a cost of 0; replace costs in the code only after a full run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bench.chains import SHAPES, chain
from bench.harness.figure import NAMED, Figure, Point, ReportTable, Row, Say, Scalar, spread
from bench.harness.turns import agree
from bench.placement_spark import WORKERS, cpu_s, frames_of
from bench.spark import bench_session
from eddy.spark.batch.choice import GRID, HOPS, predicted
from eddy.spark.batch.join import in_hops, in_one_round
from eddy.spark.batch.measure import measure
from eddy.spark.hops.costs import TaskCosts, TaskWork
from eddy.spark.partitioning.job import make_job
from eddy.spark.transports.parquet_source import BatchInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARED = {
    "rounds": True,
    "tasks": True,
    "rows": True,
    "copies": False,
    "n_bytes": True,
    "probes": False,
    "matches": False,
}
"""Part of `TaskWork` -> whether its cost is the same in both ways, because Spark does this part."""
CODE = {"grid": GRID, "hops": HOPS}
LEAST_ROWS = 20_000
WARM: Point = {"streams": 4, "partitions": 4, "shape": "selective", "rows": LEAST_ROWS, "columns": 1, "seed": 0}
WARM_TURNS = 5
"""A join that does not count, and its turns: they warm the JVM and the workers."""


@dataclass(frozen=True)
class MeasuredJoin:
    """A join in one way.

    way       "grid" or "hops"
    work      work counted from samples
    seconds   CPU seconds: the median of the turns
    """

    way: str
    work: TaskWork
    seconds: float


def drawn(point: Point) -> list[Point]:
    """Return the joins of a point: streams, partitions, data, rows of a stream, and columns besides the keys."""
    rng, joins = np.random.default_rng(point["seed"]), list[Point]()
    for _ in range(point["joins"]):
        m, shape = int(rng.integers(3, 9)), str(rng.choice(list(SHAPES)))
        # Results of a fan-out multiply from stream to stream.
        most = point["most_rows"] / (m if shape == "fan-out" else 1)
        joins.append(
            {
                "streams": m,
                "partitions": int(rng.choice([4, 6, 8, 12, 16])),
                "shape": shape,
                "rows": int(np.exp(rng.uniform(np.log(LEAST_ROWS), np.log(most)))),
                "columns": int(rng.integers(1, 5)),
                "seed": int(rng.integers(1 << 30)),
            }
        )
    return joins


def terms(join: MeasuredJoin) -> np.ndarray:
    """Return the work by cost: the costs of both ways, of the grid, and of hops."""
    shared = [work for work, both in zip(join.work, SHARED.values(), strict=True) if both]
    separate = [work for work, both in zip(join.work, SHARED.values(), strict=True) if not both]
    none = [0.0] * len(separate)
    return np.array([*shared, *(separate if join.way == "grid" else none), *(separate if join.way == "hops" else none)])


def fitted(joins: Sequence[MeasuredJoin]) -> dict[str, TaskCosts]:
    """Return the costs of each way with the least sum of squared relative errors.

    A part with a negative cost gets the cost 0, and the other parts are fitted without it.
    """
    made = np.array([terms(join) / join.seconds for join in joins])
    scale = np.maximum(made.max(axis=0), 1e-300)  # counts of bytes and of rounds differ by many orders
    used = made.max(axis=0) > 0
    costs = np.zeros(made.shape[1])
    while used.any():
        costs[:] = 0.0
        costs[used] = np.linalg.lstsq(made[:, used] / scale[used], np.ones(len(made)), rcond=None)[0]
        if (costs >= 0).all():
            break
        used[costs.argmin()] = False
    costs /= scale
    count = sum(SHARED.values())
    alone = len(SHARED) - count
    task_costs = {}
    for k, way in enumerate(CODE):
        shared, separate = iter(costs[:count]), iter(costs[count + k * alone :][:alone])
        task_costs[way] = TaskCosts(*(float(next(shared if both else separate)) for both in SHARED.values()))
    return task_costs


def _both(spark: SparkSession, join: Point, turns: int) -> dict[str, MeasuredJoin]:
    """Run a join in both ways, in turns."""
    m, values = join["streams"], {f"v{k}": pa.int64() for k in range(join["columns"])}
    query = chain(m, values, [f"S{i}.{name}" for i in range(m) for name in values])
    with tempfile.TemporaryDirectory(prefix="eddy-placement-") as folder:
        inputs = [BatchInput(frame) for frame in frames_of(spark, query, Path(folder), join).values()]
        figures = measure(make_job(query, partitions=join["partitions"]), "auto", inputs)
        sizes = {
            stream.name: figure.rows * figure.row_bytes for stream, figure in zip(query.streams, figures, strict=True)
        }
        job = make_job(query, partitions=join["partitions"], weights=sizes)
        prediction = predicted(job, figures)

        def count(way: str) -> int:
            if way == "grid":
                return int(in_one_round(job, "auto", inputs, "").frame().count())
            return int(in_hops(job, prediction.hops, "auto", inputs, "").frame().count())

        taken: dict[str, list[float]] = {way: [] for way in CODE}
        for _ in range(turns):
            results = {}
            for way, seconds in taken.items():
                begin = cpu_s()
                results[way] = count(way)
                seconds.append(cpu_s() - begin)
            agree(str(dict(join)), results)
    works = {"grid": prediction.in_grid, "hops": prediction.in_hops}
    return {way: MeasuredJoin(way, works[way], median(seconds)) for way, seconds in taken.items()}


def rows_of(joins: Sequence[Point], seen: Sequence[Mapping[str, MeasuredJoin]]) -> list[Row]:
    """Return the fitted costs and those in the code, the errors of predictions, and the seconds of each join."""
    whole = fitted([measured for by_way in seen for measured in by_way.values()])
    others = [
        fitted([measured for by_way in (*seen[:k], *seen[k + 1 :]) for measured in by_way.values()])
        for k in range(len(seen))
    ]
    rows: list[Row] = [
        {"way": way, "part": part, "fitted_ns": 1e9 * mine, "code_ns": 1e9 * code}
        for way, task_costs in whole.items()
        for part, mine, code in zip(SHARED, astuple(task_costs), astuple(CODE[way]), strict=True)
    ]
    errors: dict[str, list[float]] = {"code_error": [], "fit_error": []}
    for join, by_way, other in zip(joins, seen, others, strict=True):
        row: dict[str, Scalar] = {k: v for k, v in join.items() if k != "seed"}
        for way, measured in by_way.items():
            by_code, by_fit = CODE[way].seconds(measured.work), other[way].seconds(measured.work)
            errors["code_error"].append(abs(by_code / measured.seconds - 1))
            errors["fit_error"].append(abs(by_fit / measured.seconds - 1))
            row |= {f"{way}_s": measured.seconds, f"{way}_code_s": by_code, f"{way}_fit_s": by_fit}
        rows.append(row)
    chosen = [_vs_better(by_way, CODE) for by_way in seen]
    named = {**errors, "code_vs_better": chosen}
    return [
        *rows,
        *({"figure": f"placement_costs.{name}", **spread(samples, "value")} for name, samples in named.items()),
    ]


def _vs_better(by_way: Mapping[str, MeasuredJoin], costs: Mapping[str, TaskCosts]) -> float:
    """Return the ratio of the seconds of the way that the costs choose to those of the better way."""
    chosen = min(by_way.values(), key=lambda measured: costs[measured.way].seconds(measured.work))
    return chosen.seconds / min(measured.seconds for measured in by_way.values())


def costs(point: Point, say: Say) -> list[Row]:
    """Return the rows of `rows_of` for drawn joins, measured in one session."""
    if not find_spec("pyspark"):
        return [{"skipped": "joins on Spark: pyspark is not installed (pip install 'eddy-join[spark]')"}]
    joins, seen = drawn(point), list[dict[str, MeasuredJoin]]()
    with (
        tempfile.TemporaryDirectory(prefix="eddy-placement-") as scratch,
        bench_session(f"local[{WORKERS}]", **{"spark.local.dir": scratch}) as spark,
    ):
        _both(spark, WARM, WARM_TURNS)
        for k, join in enumerate(joins):
            say(f"join {k + 1} of {len(joins)}: {join['streams']} streams, {join['rows']} rows")
            seen.append(_both(spark, join, point["turns"]))
    return rows_of(joins, seen)


def points(full: bool) -> list[Point]:
    """Return one point: a fit needs all joins."""
    return [{"joins": 40 if full else 16, "most_rows": 1_000_000 if full else 300_000, "turns": 3, "seed": 7}]


_TITLES = {
    "placement_costs.code_error": "relative error of a prediction, costs in the code",
    "placement_costs.fit_error": "relative error of a prediction, costs fitted to the other joins",
    "placement_costs.code_vs_better": "seconds of the way that the code chooses, over those of the better one",
}
_OF_JOIN = {
    "streams": "streams",
    "partitions": "partitions",
    "shape": "data",
    "rows": "rows of a stream",
    "columns": "values",
}

FIGURES = (
    Figure(
        "placement-spark-costs",
        "Chains of drawn sizes, none of them a point of placement-spark, join on Spark in one round and in hops, with "
        "four Python workers. The costs of the parts of their work are fitted to the CPU seconds of the JVM and the "
        "workers, and stand beside those by which the join chooses (`eddy/spark/batch/choice.py`). Rounds, tasks, rows "
        "and bytes are Spark's work, so they cost the same in both ways.",
        points,
        costs,
        tables=(
            ReportTable(
                "Costs of the parts",
                {"way": "way", "part": "part"},
                {"fitted_ns": "fitted, ns", "code_ns": "in the code, ns"},
            ),
            ReportTable(
                "CPU seconds of the joins",
                _OF_JOIN,
                {
                    "grid_s": "grid",
                    "grid_code_s": "predicted",
                    "grid_fit_s": "by the other joins",
                    "hops_s": "hops",
                    "hops_code_s": "predicted",
                    "hops_fit_s": "by the other joins",
                },
            ),
            NAMED,
        ),
        titles=_TITLES,
    ),
)
