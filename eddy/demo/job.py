"""A demo job and the two ways it is run: as a Spark job, and in this process with the engine alone.

Both read the same rows through the same Spark DataFrames. The Spark run is timed from the first read to the last
Parquet file; the run in this process counts the time inside `push` only, in batches as a stream would bring them.
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
class Job:
    """A query, where its streams come from, and what to show of its results.

    `frames` reads the streams, one DataFrame per stream of the query; `findings` turns the results into things to
    print. `plan` is as for `eddy.Runtime`.
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
    """The results as Spark wrote them, and how long reading, joining and writing took together.

    `way` says in a few lines how the job was partitioned and what carried the tuples.
    """

    results: pa.Table
    folder: Path
    way: str
    seconds: float


@dataclass(frozen=True)
class EngineRun:
    """The results of the engine in this process; `seconds` is the time inside `push`, result tables included."""

    results: pa.Table
    tuples: int
    pushes: int
    seconds: float
    explain: str
    metrics: Mapping[str, Any]


def run_in_spark(job: Job, spark: SparkSession, out: Path) -> SparkRun:
    """Join the streams of `job` with `eddy.spark.join`; write the results as Parquet to the folder `out / job.name`."""
    from eddy.spark import explain, join

    folder = out / job.name
    start = time.perf_counter()
    frames = job.frames(spark)
    join(job.query, frames, plan=job.plan).write.mode("overwrite").parquet(folder.absolute().as_uri())
    seconds = time.perf_counter() - start
    way, _, _ = explain(job.query, frames, plan=job.plan).partition("\nengine")
    return SparkRun(pq.read_table(folder), folder, way, seconds)


def read_streams(job: Job, spark: SparkSession) -> dict[str, pa.Table]:
    """Bring the rows of all streams of `job` into this process, each sorted by event time."""
    tables = {name: frame.toArrow() for name, frame in job.frames(spark).items()}
    return {s.name: tables[s.name].cast(s.schema).sort_by(s.time) for s in job.query.streams}


ROUNDS = 2
"""The first warms up what a process loads once, and is not measured."""


def run_in_process(job: Job, streams: Mapping[str, pa.Table], step: Callable[[int], None]) -> EngineRun:
    """Push the streams of `job` through an `eddy.Runtime` in batches, ROUNDS times, each time through a new one.

    Only the last round is measured; the rounds before it warm the engine up. `step(tuples)` is called after each push
    of each round.
    """
    for _ in range(ROUNDS):
        run = _run_in_process(job, streams, step)
    return run


def _run_in_process(job: Job, streams: Mapping[str, pa.Table], step: Callable[[int], None]) -> EngineRun:
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
    """Cut streams sorted by event time at the same times, about BATCH_ROWS rows of all streams together in a batch.

    Rows with one event time stay together, so no tuple is older than what came in an earlier batch.
    """
    times = {s.name: streams[s.name].column(s.time).cast(pa.int64()).to_numpy() for s in query.streams}
    merged = np.sort(np.concatenate(list(times.values())))
    cuts = np.unique(merged[BATCH_ROWS::BATCH_ROWS])
    edges = {name: [0, *np.searchsorted(t, cuts).tolist(), len(t)] for name, t in times.items()}
    for k in range(len(cuts) + 1):
        yield {name: streams[name].slice(at[k], at[k + 1] - at[k]) for name, at in edges.items()}


def same_rows(left: pa.Table, right: pa.Table) -> bool:
    """Tell whether two tables hold the same rows, in whatever order."""
    by = [(name, "ascending") for name in left.column_names]
    return bool(left.sort_by(by).equals(right.cast(left.schema).sort_by(by)))
