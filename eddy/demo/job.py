"""A batch job of the demo, and its two runs: in Spark, and in this process with the engine alone.

Both runs read the same rows from the same Spark DataFrames. The time of the Spark run is the time from the first read
to the last Parquet file. The time of the run in this process is the time inside `push`, with batches like the batches
of a stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eddy import Query, Runtime

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from rich.console import RenderableType

FILES = Path(__file__).parent / "data"
BATCH_ROWS = 4096


@dataclass(frozen=True)
class DemoJob:
    """A query, its sources, and a report of its results.

    frames    returns a DataFrame for each stream of the query
    findings  returns a summary of the results for printing
    plan      as for `eddy.Runtime`
    """

    name: str
    title: str
    story: str
    query: Query
    plan: str | None
    frames: Callable[[SparkSession], dict[str, DataFrame]]
    findings: Callable[[pa.Table], list[RenderableType]]


@dataclass(frozen=True)
class SparkRun:
    """A run in Spark: the results that it wrote, and the seconds of reading, joining and writing together.

    way   the partitioning and the transport of the tuples, in a few lines
    """

    results: pa.Table
    folder: Path
    way: str
    seconds: float


@dataclass(frozen=True)
class EngineRun:
    """A run of the engine in this process; `seconds` is the time inside `push`, including the tables of results."""

    results: pa.Table
    tuples: int
    pushes: int
    seconds: float
    explain: str
    metrics: Mapping[str, Any]


def run_in_spark(job: DemoJob, spark: SparkSession, out: Path) -> SparkRun:
    """Join the streams of `job` with `eddy.spark.join`; write the results as Parquet to the folder `out / job.name`."""
    from eddy.spark import explain, join

    folder = out / job.name
    start = time.perf_counter()
    frames = job.frames(spark)
    join(job.query, frames, plan=job.plan).write.mode("overwrite").parquet(folder.absolute().as_uri())
    seconds = time.perf_counter() - start
    way, _, _ = explain(job.query, frames, plan=job.plan).partition("\nengine")
    return SparkRun(pq.read_table(folder), folder, way, seconds)


def read_streams(job: DemoJob, spark: SparkSession) -> dict[str, pa.Table]:
    """Return the rows of all streams of `job`, each sorted by event time, in this process."""
    tables = {name: frame.toArrow() for name, frame in job.frames(spark).items()}
    return {s.name: tables[s.name].cast(s.schema).sort_by(s.time) for s in job.query.streams}


ROUNDS = 2
"""The first round warms up the process and is not measured."""


def run_in_process(job: DemoJob, streams: Mapping[str, pa.Table], step: Callable[[int], None]) -> EngineRun:
    """Push the streams of `job` through an `eddy.Runtime` in batches, ROUNDS times, each time through a new one.

    Only the last round is measured. `step(tuples)` is called after each push of each round.
    """
    for _ in range(ROUNDS):
        run = _run_in_process(job, streams, step)
    return run


def _run_in_process(job: DemoJob, streams: Mapping[str, pa.Table], step: Callable[[int], None]) -> EngineRun:
    runtime = Runtime(job.query, job.plan)
    tables: list[pa.Table] = []
    seconds = 0.0
    for batches in batches_by_time(job.query, streams):
        start = time.perf_counter()
        tables.append(runtime.push(batches))
        seconds += time.perf_counter() - start
        step(sum(batch.num_rows for batch in batches.values()))
    tuples = sum(table.num_rows for table in streams.values())
    return EngineRun(pa.concat_tables(tables), tuples, len(tables), seconds, runtime.explain(), runtime.metrics())


def batches_by_time(query: Query, streams: Mapping[str, pa.Table]) -> Iterator[dict[str, pa.Table]]:
    """Yield batches of streams sorted by event time, cut at the same times, with about BATCH_ROWS rows in all.

    Rows of equal event time are in the same batch, so no tuple is older than those of earlier batches.
    """
    times = {s.name: streams[s.name].column(s.time).cast(pa.int64()).to_numpy() for s in query.streams}
    merged = np.sort(np.concatenate(list(times.values())))
    cuts = np.unique(merged[BATCH_ROWS::BATCH_ROWS])
    edges = {name: [0, *np.searchsorted(t, cuts).tolist(), len(t)] for name, t in times.items()}
    for k in range(len(cuts) + 1):
        yield {name: streams[name].slice(at[k], at[k + 1] - at[k]) for name, at in edges.items()}


def same_rows(left: pa.Table, right: pa.Table) -> bool:
    """Return whether two tables have the same rows, in any order."""
    by = [(name, "ascending") for name in left.column_names]
    return bool(left.sort_by(by).equals(right.cast(left.schema).sort_by(by)))
