"""`eddy bench placement-stream`: streaming joins of chains on Spark, in one round, in hops, and as the join chooses.

A stream has two keys in common with its neighbours, and a value; windows hold the rows of several micro-batches. Four
Python workers share the machine's cores. Seconds are CPU seconds per micro-batch of the JVM and of all workers, over
the second half of the micro-batches: by then "auto" has chosen. Wall seconds depend on what else runs.
"""

from __future__ import annotations

import tempfile
import time
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness.figure import NAMED, Figure, Point, Row, Say, Table, spread
from bench.harness.turns import Mismatch
from bench.placement import auto_ratios
from bench.placement_spark import SHAPES, WAYS, WORKERS, cpu_s
from bench.spark import bench_session
from eddy import Query, Range, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WINDOW = 6
"""Micro-batches that a window holds."""


def query(streams: int) -> Query:
    """Return a chain: S0 has key k0, S1 has k0 and k1, and so on; a tick of event time is a micro-batch."""
    made, on = [], []
    for i in range(streams):
        keys = [f"k{c}" for c in (i - 1, i) if 0 <= c < streams - 1]
        schema = pa.schema([(name, pa.int64()) for name in (*keys, "t", "v")])
        made.append(Stream(f"S{i}", schema, window=Range(WINDOW), time="t"))
        if i:
            on.append(f"S{i - 1}.k{i - 1} = S{i}.k{i - 1}")
    return Query(made, on, select=[f"S{i}.v" for i in range(streams)])


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
        one.name: spark.readStream.schema(struct_type(one.schema))
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / one.name))
        for one in made.streams
    }


def _run(spark: SparkSession, made: Query, folder: Path, way: str, point: Point) -> dict[str, float]:
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
        running = writer.foreachBatch(lambda found, batch: seen.append((cpu_s(), time.perf_counter()))).start()
        running.awaitTermination()
        figures = running.batches().to_pylist()
    (cpu, wall), n = [b - a for a, b in zip(seen[half - 1], seen[-1], strict=True)], len(seen) - half
    placed = [one["placement"] for one in figures]
    return {
        "seconds": cpu / n,
        "wall_s": wall / n,
        "shipped_bytes": sum(one["shipped_bytes"] for one in figures[half:]) / n,
        "results": sum(one["results"] for one in figures),
        "changes": sum(one != other for one, other in pairwise(placed)),
        "in_hops": placed.count("hops") / len(placed),
    }


def chains(point: Point, say: Say) -> list[Row]:
    """Return the seconds of each way to join one chain, in turns, and the ratios of auto to the others."""
    if not find_spec("pyspark"):
        return [{"skipped": "joins on Spark: pyspark is not installed (pip install 'eddy-join[spark]')"}]
    made, name = query(point["streams"]), _name(point)
    taken: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(prefix="eddy-placement-") as folder:
        scratch = Path(folder, "scratch")
        with bench_session(f"local[{WORKERS}]", **{"spark.local.dir": scratch}) as spark:
            _write(made, Path(folder), point)
            # The first job warms the JVM and the workers.
            _run(spark, made, Path(folder), "grid", point)
            for turn in range(1, point["turns"] + 1):
                for way in WAYS:
                    say(f"{name}: {way}, turn {turn} of {point['turns']}")
                    taken[way].append(_run(spark, made, Path(folder), way, point))
    if len({one["results"] for own in taken.values() for one in own}) > 1:
        raise Mismatch(f"{dict(point)}: grid, hops and auto give different results")
    rows: list[Row] = [
        {
            "way": way,
            **spread([one["seconds"] for one in own], "seconds"),
            **spread([one["wall_s"] for one in own], "wall_s"),
            **{k: median(one[k] for one in own) for k in ("shipped_bytes", "results", "changes", "in_hops")},
        }
        for way, own in taken.items()
    ]
    return [*rows, *auto_ratios(name, rows)]


def points(full: bool) -> list[Point]:
    """Return a point for each length, kind of data and number of rows."""
    few, many = (4_000, 50_000) if full else (500, 2_000)
    kinds = ((4, "selective", few), (4, "selective", many), (4, "fan-out", many), (6, "selective", many))
    sizes = {"batches": 16, "turns": 2} if full else {"batches": 6, "turns": 1}
    return [{"streams": m, "shape": shape, "rows": rows, **sizes, "seed": 1} for m, shape, rows in kinds]


def _name(point: Point) -> str:
    return f"streamed.streams{point['streams']}.{point['shape']}.rows{point['rows']}"


_BARS = {
    f"{_name(point)}.{name}": bar
    for point in (*points(True), *points(False))
    for name, bar in (("auto_vs_better", "≤ 1.1"), ("auto_vs_worse", "≤ 0.5"))
}
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
            Table("CPU seconds per micro-batch", _ROWS, {"seconds": "s"}, across="way"),
            Table("Wall seconds per micro-batch", _ROWS, {"wall_s": "s"}, across="way"),
            Table("Bytes between tasks per micro-batch", _ROWS, {"shipped_bytes": "bytes"}, across="way"),
            Table("Part of all micro-batches in hops", _ROWS, {"in_hops": "part"}, across="way"),
            NAMED,
        ),
        titles={name: name.replace(".", ", ") for name in _BARS},
        bars=_BARS,
    ),
)
