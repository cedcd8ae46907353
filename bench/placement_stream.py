"""`eddy bench placement-stream`: streaming joins of chains on Spark, in one round, in hops, and by "auto".

A stream has two keys in common with its neighbours, and a value; windows hold the rows of several micro-batches. Four
Python workers share the machine's cores. Seconds are CPU seconds per micro-batch of the JVM and of all workers, over
the second half of the micro-batches: by then "auto" has chosen. In full size one micro-batch of the grid takes as long
as ten others when about two windows of keys have come, probably because the engines grow for the last time; this
micro-batch is in the first half. Wall seconds depend on other work on the machine.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.chains import SHAPES, auto_bars, auto_titles, chain, in_turns
from bench.harness.figure import NAMED, Figure, Point, ReportTable, Row, Say
from bench.placement_spark import WORKERS, cpu_s
from bench.spark import bench_session
from eddy import Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WINDOW = 6
"""Micro-batches that a window holds: a tick of event time is a micro-batch."""


def _write(made: Query, folder: Path, point: Point) -> None:
    """Write a file of each stream for each micro-batch."""
    rng, n, partners = np.random.default_rng(point["seed"]), point["rows"], SHAPES[point["shape"]]
    for stream in made.streams:
        (folder / stream.name).mkdir()
        for batch in range(point["batches"]):
            columns: dict[str, Any] = {}
            for name in stream.schema.names:
                keys = 1 << 40 if name == "v" else max(1, round(WINDOW * n / partners[int(name[1:] or 0) % 2]))
                columns[name] = np.full(n, batch) if name == "t" else rng.integers(0, keys, n)
            pq.write_table(pa.table(columns, schema=stream.schema), folder / stream.name / f"{batch:04d}.parquet")


def _frames(spark: SparkSession, made: Query, folder: Path) -> dict[str, DataFrame]:
    from eddy.spark.types import struct_type

    return {
        stream.name: spark.readStream.schema(struct_type(stream.schema))
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / stream.name))
        for stream in made.streams
    }


def _run(spark: SparkSession, made: Query, folder: Path, point: Point, way: str) -> dict[str, float]:
    """Return CPU and wall seconds per micro-batch, bytes between tasks, the results, and the number of changes."""
    from eddy.spark import join

    half = point["batches"] // 2
    seen: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="eddy-placement-") as state:
        joined = join(
            made,
            _frames(spark, made, folder),
            checkpoint=state,
            partitions=WORKERS,
            placement=way,  # type: ignore[call-overload]
        )
        writer = joined.writeStream.trigger(availableNow=True)
        running = writer.foreachBatch(lambda frame, batch: seen.append((cpu_s(), time.perf_counter()))).start()
        running.awaitTermination()
        figures = running.batches().to_pylist()
    (cpu, wall), n = [b - a for a, b in zip(seen[half - 1], seen[-1], strict=True)], len(seen) - half
    placed = [batch["placement"] for batch in figures]
    return {
        "seconds": cpu / n,
        "wall_s": wall / n,
        "shipped_bytes": sum(batch["shipped_bytes"] for batch in figures[half:]) / n,
        "results": sum(before["results"] for before in figures),
        "changes": sum(batch != other for batch, other in pairwise(placed)),
        "in_hops": placed.count("hops") / len(placed),
    }


def chains(point: Point, say: Say) -> list[Row]:
    """Return the seconds of each way to join one chain, in turns, and the ratios of auto to the other ways."""
    if not find_spec("pyspark"):
        return [{"skipped": "joins on Spark: pyspark is not installed (pip install 'eddy-join[spark]')"}]
    m = point["streams"]
    made = chain(m, {"t": pa.int64(), "v": pa.int64()}, [f"S{i}.v" for i in range(m)], WINDOW)
    with tempfile.TemporaryDirectory(prefix="eddy-placement-") as folder:
        scratch = Path(folder, "scratch")
        with bench_session(f"local[{WORKERS}]", **{"spark.local.dir": scratch}) as spark:
            _write(made, Path(folder), point)
            run = partial(_run, spark, made, Path(folder), point)
            return in_turns(_name(point), point["turns"], ["grid"], run, say)


def points(full: bool) -> list[Point]:
    """Return a point for each length, kind of data and number of rows."""
    few, many = (4_000, 50_000) if full else (500, 2_000)
    kinds = ((4, "selective", few), (4, "selective", many), (4, "fan-out", many), (6, "selective", many))
    sizes = {"batches": 32, "turns": 2} if full else {"batches": 6, "turns": 1}
    return [{"streams": m, "shape": shape, "rows": rows, **sizes, "seed": 1} for m, shape, rows in kinds]


def _name(point: Point) -> str:
    return f"streamed.streams{point['streams']}.{point['shape']}.rows{point['rows']}"


_BARS = auto_bars(map(_name, (*points(True), *points(False))))
_ROWS = {"streams": "streams", "shape": "data", "rows": "rows of a stream"}

FIGURES = (
    Figure(
        "placement-stream",
        "Streaming joins on Spark of chains without a common key, with four Python workers: one round over the grid of "
        f"key groups, hops, and the choice of the join while it runs. Windows hold {WINDOW} micro-batches. A row finds "
        "0.25 partners in each window (selective), or 4 and 0.5 in turn (fan-out). CPU seconds per micro-batch of the "
        "JVM and the workers, over the second half of the micro-batches; wall seconds depend on what else runs.",
        points,
        chains,
        tables=(
            ReportTable("CPU seconds per micro-batch", _ROWS, {"seconds": "s"}, across="way"),
            ReportTable("Wall seconds per micro-batch", _ROWS, {"wall_s": "s"}, across="way"),
            ReportTable("Bytes between tasks per micro-batch", _ROWS, {"shipped_bytes": "bytes"}, across="way"),
            ReportTable("Part of all micro-batches in hops", _ROWS, {"in_hops": "part"}, across="way"),
            NAMED,
        ),
        titles=auto_titles(_BARS),
        bars=_BARS,
    ),
)
