"""`eddy bench placement-spark`: batch joins of chains on Spark, in one round, in hops, and as the join chooses itself.

A stream has two keys in common with its neighbours, and a value; windows keep all rows. Four Python workers share the
machine's cores. Seconds are CPU seconds of the JVM and of all workers, because a join in hops waits less often for
itself than for other work on a small machine; wall seconds are beside them. The measuring job of "auto" counts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness.figure import NAMED, Figure, Point, Row, Say, Table, spread
from bench.harness.turns import Mismatch
from bench.placement import auto_ratios
from bench.spark import bench_session
from eddy import Query, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WORKERS = 4
WAYS = ("grid", "hops", "auto")
SHAPES: Mapping[str, tuple[float, float]] = {"selective": (0.25, 0.25), "fan-out": (4.0, 0.5)}
"""Partners that a row finds in the next stream: over odd and over even predicates."""


def query(streams: int) -> Query:
    """Return a chain: S0 has key k0, S1 has k0 and k1, and so on; the values come out."""
    made, on = [], []
    for i in range(streams):
        keys = [f"k{c}" for c in (i - 1, i) if 0 <= c < streams - 1]
        made.append(Stream(f"S{i}", pa.schema([(name, pa.int64()) for name in (*keys, "v")])))
        if i:
            on.append(f"S{i - 1}.k{i - 1} = S{i}.k{i - 1}")
    return Query(made, on, select=[f"S{i}.v" for i in range(streams)])


def _frames(spark: SparkSession, made: Query, folder: Path, point: Point) -> dict[str, DataFrame]:
    rng, n, partners = np.random.default_rng(point["seed"]), point["rows"], SHAPES[point["shape"]]
    found = {}
    for stream in made.streams:
        columns: dict[str, Any] = {}
        for name in stream.schema.names:
            keys = 1 << 40 if name == "v" else max(1, round(n / partners[int(name[1:]) % 2]))
            columns[name] = rng.integers(0, keys, n)
        place = folder / stream.name
        place.mkdir()
        pq.write_table(pa.table(columns, schema=stream.schema), place / "0.parquet", row_group_size=max(1, n // 8))
        found[stream.name] = spark.read.parquet(str(place))
    return found


def cpu_s() -> float:
    """Return the CPU seconds so far of this process and all below it, those that have ended included."""
    found = 0.0
    for one in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            found += sum(one.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return found


def _run(made: Query, frames: Mapping[str, DataFrame], way: str, partitions: int) -> tuple[float, float, int]:
    """Return CPU seconds, wall seconds and the number of results of a join."""
    from eddy.spark import join

    cpu, begin = cpu_s(), time.perf_counter()
    # The workers make the results; the JVM counts them.
    found = join(made, frames, partitions=partitions, placement=way).count()  # type: ignore[call-overload]
    return cpu_s() - cpu, time.perf_counter() - begin, int(found)


def chains(point: Point, say: Say) -> list[Row]:
    """Return the seconds of each way to join one chain, in turns, and the ratios of auto to the others."""
    if not find_spec("pyspark"):
        return [{"skipped": "joins on Spark: pyspark is not installed (pip install 'eddy-join[spark]')"}]
    made = query(point["streams"])
    name = _name(point)
    taken: dict[str, list[tuple[float, float, int]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(prefix="eddy-placement-") as folder:
        scratch = Path(folder, "scratch")
        with bench_session(f"local[{WORKERS}]", **{"spark.local.dir": scratch}) as spark:
            frames = _frames(spark, made, Path(folder), point)
            for turn in range(point["turns"] + 1):
                for way in WAYS:
                    say(f"{name}: {way}, turn {turn} of {point['turns']}")
                    taken[way].append(_run(made, frames, way, point["partitions"]))
    if len({found for own in taken.values() for *_, found in own}) > 1:
        raise Mismatch(f"{dict(point)}: grid, hops and auto give different results")
    # The first turn warms the JVM and the workers.
    rows: list[Row] = [
        {
            "way": way,
            **spread([cpu for cpu, *_ in own[1:]], "seconds"),
            **spread([wall for _, wall, _ in own[1:]], "wall_s"),
            "results": own[0][2],
        }
        for way, own in taken.items()
    ]
    return [*rows, *auto_ratios(name, rows)]


def points(full: bool) -> list[Point]:
    """Return a point for each length, number of partitions, kind of data and number of rows."""
    few, many = (400_000, 1_600_000) if full else (100_000, 400_000)
    kinds = ((4, "selective", few), (4, "fan-out", few), (16, "selective", few), (16, "selective", many))
    return [
        {"streams": m, "partitions": n, "shape": shape, "rows": rows, "turns": 5 if full else 2, "seed": 1}
        for m in (4, 6, 8)
        for n, shape, rows in kinds
    ]


def _name(point: Point) -> str:
    return f"streams{point['streams']}.partitions{point['partitions']}.{point['shape']}.rows{point['rows']}"


_BARS = {
    f"{_name(point)}.{name}": bar
    for point in (*points(True), *points(False))
    for name, bar in (("auto_vs_better", "≤ 1.1"), ("auto_vs_worse", "≤ 0.5"))
}
_ROWS = {"streams": "streams", "partitions": "partitions", "shape": "data", "rows": "rows of a stream"}

FIGURES = (
    Figure(
        "placement-spark",
        "Batch joins on Spark of chains without a common key, with four Python workers: one round over a hypercube "
        "grid, several hops, and the choice of the join from samples, whose job counts. A row finds 0.25 partners in "
        "each stream (selective), or 4 and 0.5 in turn (fan-out). CPU seconds of the JVM and the workers; wall seconds "
        "depend on what else runs.",
        points,
        chains,
        tables=(
            Table("CPU seconds", _ROWS, {"seconds": "s"}, across="way"),
            Table("Wall seconds", _ROWS, {"wall_s": "s"}, across="way"),
            NAMED,
        ),
        titles={name: name.replace(".", ", ") for name in _BARS},
        bars=_BARS,
    ),
)
