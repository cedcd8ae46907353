"""`eddy bench placement-spark`: batch joins of chains on Spark, in one round, in hops, and by "auto".

A stream has two keys in common with its neighbours, and a value; windows keep all rows. Four Python workers share the
machine's cores. Seconds are CPU seconds of the JVM and of all workers, because on a small machine a join in hops waits
less often for itself than for other work; the figure also has wall seconds. The measuring job of "auto" counts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from bench.chains import SHAPES, WAYS, auto_bars, auto_titles, chain, in_turns
from bench.harness.figure import NAMED, Figure, Point, ReportTable, Row, Say
from bench.spark import bench_session
from eddy import Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WORKERS = 4
TURNS, TURNS_QUICK = 15, 9
"""The number of turns. A join of few rows takes a second, and two runs of the same join differ by up to a fifth."""


def frames_of(spark: SparkSession, made: Query, folder: Path, point: Point) -> dict[str, DataFrame]:
    """Write the rows of a chain into files, one for each stream, and return their DataFrames."""
    rng, n, partners = np.random.default_rng(point["seed"]), point["rows"], SHAPES[point["shape"]]
    frames = {}
    for stream in made.streams:
        columns: dict[str, Any] = {}
        for name in stream.schema.names:
            keys = 1 << 40 if name[0] == "v" else max(1, round(n / partners[int(name[1:]) % 2]))
            columns[name] = rng.integers(0, keys, n)
        place = folder / stream.name
        place.mkdir()
        pq.write_table(pa.table(columns, schema=stream.schema), place / "0.parquet", row_group_size=max(1, n // 8))
        frames[stream.name] = spark.read.parquet(str(place))
    return frames


def cpu_s() -> float:
    """Return the CPU seconds so far of this process and all of its descendants, including ended processes."""
    seconds = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            seconds += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return seconds


def _run(made: Query, frames: Mapping[str, DataFrame], way: str, partitions: int) -> dict[str, float]:
    """Return CPU seconds, wall seconds and the number of results of a join."""
    from eddy.spark import join

    cpu, begin = cpu_s(), time.perf_counter()
    # The workers make the results; the JVM counts them.
    results = join(made, frames, partitions=partitions, placement=way).count()  # type: ignore[call-overload]
    return {"seconds": cpu_s() - cpu, "wall_s": time.perf_counter() - begin, "results": int(results)}


def chains(point: Point, say: Say) -> list[Row]:
    """Return the seconds of each way to join one chain, in turns, and the ratios of auto to the other ways."""
    if not find_spec("pyspark"):
        return [{"skipped": "joins on Spark: pyspark is not installed (pip install 'eddy-join[spark]')"}]
    m = point["streams"]
    made = chain(m, {"v": pa.int64()}, [f"S{i}.v" for i in range(m)])
    with tempfile.TemporaryDirectory(prefix="eddy-placement-") as folder:
        scratch = Path(folder, "scratch")
        with bench_session(f"local[{WORKERS}]", **{"spark.local.dir": scratch}) as spark:
            frames = frames_of(spark, made, Path(folder), point)
            run = partial(_run, made, frames, partitions=point["partitions"])
            return in_turns(_name(point), point["turns"], WAYS, run, say)


def points(full: bool) -> list[Point]:
    """Return a point for each length, number of partitions, kind of data and number of rows."""
    few, many = (400_000, 1_600_000) if full else (100_000, 400_000)
    kinds = ((4, "selective", few), (4, "fan-out", few), (16, "selective", few), (16, "selective", many))
    turns = TURNS if full else TURNS_QUICK
    return [
        {"streams": m, "partitions": n, "shape": shape, "rows": rows, "turns": turns, "seed": 1}
        for m in (4, 6, 8)
        for n, shape, rows in kinds
    ]


def _name(point: Point) -> str:
    return f"streams{point['streams']}.partitions{point['partitions']}.{point['shape']}.rows{point['rows']}"


_BARS = auto_bars(map(_name, (*points(True), *points(False))))
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
            ReportTable("CPU seconds", _ROWS, {"seconds": "s"}, across="way"),
            ReportTable("Wall seconds", _ROWS, {"wall_s": "s"}, across="way"),
            NAMED,
        ),
        titles=auto_titles(_BARS),
        bars=_BARS,
    ),
)
