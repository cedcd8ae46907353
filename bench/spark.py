"""The ways through Spark: what a join costs beside moving the same rows through Python, and the transports side by
side.

Work: four streams R, S, T, U of (key, ts, val), all int64, arrivals interleaved uniformly at random, key uniform in
[0, 10 000), ts the arrival number, RANGE windows of 40 000, so about 10 000 live tuples a stream and one result an
arrival. Source: a Parquet file per stream, in time order. Sink: `noop`, which takes every row and drops it. Spark is
`local[2]`.

  identity  the rows of all streams (stream, key, ts, val) through a `mapInArrow` that does nothing
  rows      the join, each row leaving the JVM
  packed    the join, the workers reading the files

The join gives the key and the four values. Before anything is timed, both transports' results are counted and summed
up, and must agree. The three are run in turns and compared within a turn, so that a machine that slows down slows all
of them.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eddy.query.query import Query
from eddy.query.stream import Stream
from eddy.query.windows import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAMS = ("R", "S", "T", "U")
KEYS = 10_000
LIVE_ROWS = 10_000
SCHEMA = pa.schema([("key", pa.int64()), ("ts", pa.int64()), ("val", pa.int64())])
_SLAB_ROWS = 1 << 20


def write_streams(folder: Path, arrivals: int, seed: int = 1) -> None:
    """Write a Parquet file per stream, in time order. Holds about a million rows at a time."""
    chance = np.random.default_rng(seed)
    writers = [pq.ParquetWriter(folder / f"{name}.parquet", SCHEMA) for name in STREAMS]
    for low in range(0, arrivals, _SLAB_ROWS):
        n = min(_SLAB_ROWS, arrivals - low)
        stream = chance.integers(0, len(STREAMS), n)
        columns = [chance.integers(0, KEYS, n), np.arange(low, low + n), chance.integers(0, 1 << 40, n)]
        for i, writer in enumerate(writers):
            own = stream == i
            writer.write_batch(pa.record_batch([pa.array(column[own]) for column in columns], schema=SCHEMA))
    for writer in writers:
        writer.close()


def join_query() -> Query:
    """The query: one key over the four streams, the key and the four values out."""
    streams = [Stream(name, SCHEMA, window=Range(len(STREAMS) * LIVE_ROWS), time="ts") for name in STREAMS]
    predicates = [f"{left}.key = {right}.key" for left, right in pairwise(STREAMS)]
    return Query(streams, predicates, select={"key": "R.key"} | {name: f"{name}.val" for name in STREAMS})


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _all_rows(frames: dict[str, DataFrame]) -> DataFrame:
    from pyspark.sql import functions as f

    tagged = [
        frame.select(f.lit(i).cast("tinyint").alias("stream"), *SCHEMA.names) for i, frame in enumerate(frames.values())
    ]
    union = tagged[0]
    for frame in tagged[1:]:
        union = union.unionAll(frame)
    return union


def _seconds(frame: DataFrame) -> float:
    start = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start


def _check_equal(rows: DataFrame, packed: DataFrame) -> int:
    """Return the number of results, the same in both, as are the sums of all columns."""
    from pyspark.sql import functions as f

    def summed(frame: DataFrame) -> tuple[int, ...]:
        return tuple(frame.agg(f.count("*"), *(f.sum(name) for name in frame.columns)).collect()[0])

    first, second = summed(rows), summed(packed)
    if first != second:
        raise AssertionError(f"the transports disagree: rows give (count, sums) {first}, packed {second}")
    return first[0]


def _measure(spark: SparkSession, folder: Path, arrivals: int, turns: int, report: TextIO) -> dict[str, float]:
    from eddy.spark import join

    query = join_query()
    frames = {name: spark.read.parquet(str(folder / f"{name}.parquet")) for name in STREAMS}
    everything = _all_rows(frames)
    ways: dict[str, Callable[[], DataFrame]] = {
        "identity": lambda: everything.mapInArrow(_unchanged, everything.schema),
        "rows": lambda: join(query, frames, transport="rows"),
        "packed": lambda: join(query, frames, transport="packed"),
    }
    results = _check_equal(ways["rows"](), ways["packed"]())
    print(f"spark: {arrivals:,} arrivals, {results:,} results, equal through both transports", file=report, flush=True)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(-1, turns):  # turn -1 lets the JVM compile
        for name, way in ways.items():
            seconds = _seconds(way())
            if turn >= 0:
                taken[name].append(seconds)
            label = "warm-up" if turn < 0 else f"turn {turn + 1} of {turns}"
            print(f"  {label}: {name:8} {arrivals / seconds / 1e6:6.2f} M arrivals/s", file=report, flush=True)

    def ratio(slow: str, fast: str) -> float:
        return statistics.median(s / f for s, f in zip(taken[slow], taken[fast], strict=True))

    return {"spark.rows_vs_identity": ratio("identity", "rows"), "spark.packed_vs_rows": ratio("rows", "packed")}


def spark_ratios(arrivals: int = 10_000_000, *, turns: int = 3, report: TextIO | None = None) -> dict[str, float]:
    """Measure both transports; return "spark.rows_vs_identity" and "spark.packed_vs_rows", higher is better.

    Each is the median over `turns` turns of the ratio of throughputs in that turn. Progress goes to `report` (None:
    the standard error). Starts a Spark session if none runs, and stops it then. About 25 s per turn at 10 M arrivals
    on two idle cores, and 1 GB of memory; 140 MB of temporary files.
    """
    from pyspark.sql import SparkSession

    from eddy.spark import session

    running = SparkSession.getActiveSession()
    spark = running or session("local[2]", app_name="eddy bench")
    try:
        with tempfile.TemporaryDirectory(prefix="eddy-bench-") as folder:
            write_streams(Path(folder), arrivals)
            return _measure(spark, Path(folder), arrivals, turns, report or sys.stderr)
    finally:
        if running is None:
            spark.stop()
