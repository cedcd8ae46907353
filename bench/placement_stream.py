"""`eddy bench placement-stream`: streaming joins of chains on Spark, in one round, in hops, and as the join chooses.

A stream has two keys in common with its neighbours, and a value; windows hold the rows of several micro-batches. Four
Python workers share the machine's cores. Seconds are CPU seconds per micro-batch of the JVM and of all workers, over the
second half of the micro-batches: by then "auto" has chosen. Wall seconds depend on what else runs.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness.figure import NAMED, Figure, Point, Row, Say, Table, spread
from bench.harness.turns import Mismatch
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


def run(spark: SparkSession, made: Query, folder: Path, way: str, point: Point) -> dict[str, Any]:
    """Return CPU and wall seconds per micro-batch, the number of results, and how the last micro-batch ran."""
    from eddy.spark import join

    half, seen = point["batches"] // 2, []

    def count(results: DataFrame, batch: int) -> None:
        seen.append((cpu_s(), time.perf_counter()))

    with tempfile.TemporaryDirectory(prefix="eddy-placement-") as state:
        joined = join(
            made,
            _frames(spark, made, folder),
            checkpoint=state,
            partitions=WORKERS,
            key_groups=point["key_groups"],
            placement=way,  # type: ignore[call-overload]
            rebalance="off",
        )
        running = joined.writeStream.trigger(availableNow=True).foreachBatch(count).start()
        running.awaitTermination()
        figures = running.batches().to_pylist()
        groups = running.groups().to_pylist()
        said = running.explain()
    last = len(seen) - 1
    tasks = [one["ready_seconds"] + one["join_seconds"] for one in groups if one["batch"] >= half]
    return {
        "seconds": (seen[last][0] - seen[half - 1][0]) / (last - half + 1),
        "wall_s": (seen[last][1] - seen[half - 1][1]) / (last - half + 1),
        "task_s": sum(tasks) / (last - half + 1),
        "join_s": sum(one["join_seconds"] for one in figures[half:]) / (last - half + 1),
        "shipped": sum(one["shipped_bytes"] for one in figures[half:]) // (last - half + 1),
        "results": sum(one["results"] for one in figures),
        "placement": figures[-1]["placement"],
        "explain": said,
    }
