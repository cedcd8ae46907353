"""W1 with RANGE windows on Spark: the query, arrivals in files, Spark's own joins, and the transports of a batch job.

Four streams R, S, T, U of (key, ts, val), all int64; arrivals are interleaved uniformly at random, keys are uniform in
[0, 10 000), ts is the number of the arrival. With windows of 40 000 ticks a stream has about 10 000 live rows, and an
arrival gives about one result: the key and the four values.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness.figure import Row, Say
from bench.harness.turns import agree, speed, take_turns
from eddy import Query, Range, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAMS = ("R", "S", "T", "U")
KEYS = 10_000
LIVE_ROWS = 10_000
SCHEMA = pa.schema([("key", pa.int64()), ("ts", pa.int64()), ("val", pa.int64())])
COLUMNS = "key bigint, ts bigint, val bigint"
_SLAB_ROWS = 1 << 20

DEFAULT, BEST = "Spark, default", "Spark, best settings"
SETTINGS: Mapping[str, Mapping[str, str]] = {
    DEFAULT: {
        # `eddy.spark.session` sets another one.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
        ),
    },
    BEST: {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        "spark.sql.streaming.join.stateFormatVersion": "4",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    },
}
"""Settings of Spark's stream-stream joins; the second are the fastest that were found."""


def query(live_rows: int = LIVE_ROWS) -> Query:
    """Return W1 with RANGE windows of `live_rows` rows a stream: the key and the four values out."""
    streams = [Stream(name, SCHEMA, window=Range(len(STREAMS) * live_rows), time="ts") for name in STREAMS]
    predicates = [f"{left}.key = {right}.key" for left, right in pairwise(STREAMS)]
    return Query(streams, predicates, select={"key": "R.key"} | {name: f"{name}.val" for name in STREAMS})


class FileFeed:
    """Files of arrivals, one for each stream with each call of `add`; a streaming job takes one call a micro-batch."""

    def __init__(self, folder: Path, keys: int = KEYS, seed: int = 1) -> None:
        self.folder = folder
        self._chance = np.random.default_rng(seed)
        self._keys = keys
        self._rows = 0
        self._files = 0
        for name in STREAMS:
            (folder / name).mkdir(parents=True)

    def add(self, rows: int) -> None:
        """Draw rows and write them."""
        stream = self._chance.integers(0, len(STREAMS), rows)
        keys, values = self._chance.integers(0, self._keys, rows), self._chance.integers(0, 1 << 40, rows)
        times = np.arange(self._rows, self._rows + rows)
        self.write([[column[stream == i] for column in (keys, times, values)] for i in range(len(STREAMS))])

    def write(self, columns: Sequence[Sequence[npt.NDArray[np.int64]]]) -> None:
        """Write a file for each stream, visible as a whole: its keys, times and values."""
        for name, values in zip(STREAMS, columns, strict=True):
            hidden = self.folder / f".{name}"
            pq.write_table(pa.table([pa.array(column) for column in values], schema=SCHEMA), hidden)
            hidden.rename(self.folder / name / f"{self._files:06d}.parquet")
            self._rows += len(values[0])
        self._files += 1

    def frames(self, spark: SparkSession, streaming: bool = True) -> dict[str, DataFrame]:
        """Return a DataFrame for each stream; a streaming one takes one file in each micro-batch."""
        reader = spark.readStream.option("maxFilesPerTrigger", 1) if streaming else spark.read
        return {name: reader.schema(COLUMNS).parquet(str(self.folder / name)) for name in STREAMS}


@contextmanager
def bench_session(master: str, **settings: object) -> Iterator[SparkSession]:
    """Yield a session that keeps the progress of all its micro-batches, and stop the session."""
    from eddy.spark import session

    settings["spark.sql.streaming.numRecentProgressUpdates"] = 1000
    spark = session(master, app_name="eddy bench", **settings)
    try:
        yield spark
    finally:
        spark.stop()


def finish(running: Any, data_only: bool = False) -> list[float]:
    """Wait for a streaming query; return the seconds of each micro-batch (`triggerExecution`), in order.

    data_only   whether micro-batches without new input are left out: Spark's joins run such a batch to clean up state
    """
    running.awaitTermination()
    reports = [report if isinstance(report, dict) else report.jsonValue for report in running.recentProgress]
    run = [
        report
        for report in reports
        if "addBatch" in report["durationMs"] and (report["numInputRows"] > 0 or not data_only)
    ]
    return [report["durationMs"]["triggerExecution"] / 1000 for report in run]


def spark_join(frames: dict[str, DataFrame], live_rows: int = LIVE_ROWS) -> DataFrame:
    """Return W1 in Spark's own stream-stream joins, R with S, then T, then U.

    A join takes one event time column, so the times of the later streams are compared as numbers.
    """
    from pyspark.sql import functions as f

    span = len(STREAMS) * live_rows
    window = f.expr(f"INTERVAL {span} SECONDS")
    first, *others = STREAMS

    def named(name: str) -> DataFrame:
        frame = frames[name]
        columns = [frame.key.alias(f"k{name}"), f.timestamp_seconds(frame.ts).alias(f"e{name}")]
        columns += [frame.ts.alias(f"t{name}"), frame.val.alias(name)]
        return frame.select(*columns).withWatermark(f"e{name}", "0 seconds")

    joined = named(first)
    for name in others:
        other, near = named(name), joined[f"e{first}"]
        times = [column for column in joined.columns if column.startswith("t")]
        condition = (joined[f"k{first}"] == other[f"k{name}"]) & other[f"e{name}"].between(near - window, near + window)
        for column in times[1:]:
            condition &= f.abs(other[f"t{name}"] - joined[column]) <= span
        joined = joined.join(other, condition).drop(f"e{name}", f"k{name}")
    return joined.select(joined[f"k{first}"].alias("key"), *STREAMS)


def spark_triggers(
    spark: SparkSession, feed: FileFeed, checkpoint: Path, settings: str = DEFAULT, out: Path | None = None
) -> list[float]:
    """Run Spark's own joins over a feed; return the seconds of each micro-batch with input. Without `out`, results are
    dropped."""
    return spark_run(spark, lambda: spark_join(feed.frames(spark)), checkpoint, settings, out)


def spark_run(
    spark: SparkSession, made: Callable[[], DataFrame], checkpoint: Path, settings: str, out: Path | None
) -> list[float]:
    """Run a streaming DataFrame of Spark's own under some settings; see `spark_triggers`."""
    before: dict[str, Any] = {name: spark.conf.get(name, None) for name in SETTINGS[settings]}
    for name, value in SETTINGS[settings].items():
        spark.conf.set(name, value)
    try:
        writer = made().writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(checkpoint)).outputMode("append")
        writer = writer.format("noop") if out is None else writer.format("parquet").option("path", str(out))
        return finish(writer.start(), data_only=True)
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def summed(frame: DataFrame) -> tuple[int, ...]:
    """Return the number of results and the sums of their columns; a streaming join has a further column."""
    from pyspark.sql import functions as f

    return tuple(frame.agg(f.count("*"), *(f.sum(name) for name in ("key", *STREAMS))).collect()[0])


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _all_rows(frames: dict[str, DataFrame]) -> DataFrame:
    from pyspark.sql import functions as f

    tags = enumerate(frames.values())
    tagged = (frame.select(f.lit(i).cast("tinyint").alias("stream"), *SCHEMA.names) for i, frame in tags)
    return reduce(lambda a, b: a.unionAll(b), tagged)


def spark_ratios(arrivals: int, turns: int, seed: int, say: Say) -> list[Row]:
    """Measure a batch join through both transports; return "spark.rows_vs_identity" and "spark.packed_vs_rows".

    The rows transport moves each row out of the JVM, as does the identity; with the packed transport the workers read
    the files. The sink drops all rows. Needs 1 GB of memory and 140 MB of temporary files for 10 M arrivals.
    """
    from eddy.spark import join

    with tempfile.TemporaryDirectory(prefix="eddy-bench-") as folder, bench_session("local[2]") as spark:
        feed = FileFeed(Path(folder), seed=seed)
        for low in range(0, arrivals, _SLAB_ROWS):
            feed.add(min(_SLAB_ROWS, arrivals - low))
        frames = feed.frames(spark, streaming=False)
        everything = _all_rows(frames)
        ways: dict[str, Callable[[], DataFrame]] = {
            "identity": lambda: everything.mapInArrow(_unchanged, everything.schema),
            "rows": lambda: join(query(), frames, transport="rows"),
            "packed": lambda: join(query(), frames, transport="packed"),
        }
        agree("W1 on Spark: (results, sums)", {name: summed(ways[name]()) for name in ("rows", "packed")})

        def work(way: Callable[[], DataFrame]) -> tuple[float, None]:
            start = time.perf_counter()
            way().write.format("noop").mode("overwrite").save()
            return time.perf_counter() - start, None

        taken = take_turns("Spark", {name: partial(work, way) for name, way in ways.items()}, turns, say)
    pairs = (("rows", "identity"), ("packed", "rows"))
    return [{"figure": f"spark.{transport}_vs_{other}", **speed(taken, transport, other)} for transport, other in pairs]
