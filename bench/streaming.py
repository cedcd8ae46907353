"""`eddy bench streaming`: the streaming join beside Spark's own stream-stream joins, and what a micro-batch costs.

Work: that of `bench/spark.py` (W1 with RANGE windows: four streams on one key, 10 000 live rows each, one result an
arrival), in files of one micro-batch each. Both jobs read files of the same kind with the same trigger, in Structured
Streaming, and drop their results ("noop"); before any time is reported both wrote them once, and the results were
counted and compared.

rows, packed    rows a second of the two transports over that of Spark's chain of three stream-stream joins, for
                micro-batches of 50 000 and of 500 000 rows; the headline is that of 500 000
fixed_cost_s    a micro-batch of few rows that meets a large state, 64 key groups, less one of an empty foreachBatch
recovery_s      the first micro-batch after every live engine was lost, less a usual one: what loading the state costs
scaling_1_to_2  rows a second of local[2] over local[1], packed, micro-batches of 4 000 000 rows. In micro-batches of
                500 000, which is given too, what Spark's driver does between them is a third of the time and does not
                go faster with cores

Times are those Spark reports for the trigger (`triggerExecution`); the first micro-batches of a run are not counted.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from bench.measure import agree, machine, progress
from bench.spark import KEYS, LIVE_ROWS, SCHEMA, STREAMS
from eddy.query.query import Query
from eddy.query.stream import Stream
from eddy.query.windows import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LEAST = {"vs_spark_stream_joins.rows": 50.0, "vs_spark_stream_joins.packed": 200.0, "scaling_1_to_2": 1.6}
MOST = {"fixed_cost_s": 1.0, "recovery_s": 5.0}
"""What is wanted of the headline figures."""
COLUMNS = "key bigint, ts bigint, val bigint"


@dataclass(frozen=True)
class Sizes:
    """How much is run.

    steps        by name, rows of a micro-batch, and how many are measured of our job and of Spark's
    scaled       rows of the largest micro-batch by which cores are compared, and how many are measured
    warm_up      micro-batches before those measured
    live_rows    of the state whose fixed cost and recovery are measured
    small_rows   of the micro-batches that meet it
    repeats      such micro-batches
    checked      rows of each of the three micro-batches whose results are compared
    """

    steps: dict[str, tuple[int, int, int]]
    scaled: tuple[int, int]
    warm_up: int = 2
    live_rows: int = 1_000_000
    small_rows: int = 4_000
    repeats: int = 9
    checked: int = 20_000


FULL = Sizes({"small": (50_000, 12, 3), "large": (500_000, 6, 1)}, (4_000_000, 3))
QUICK = Sizes(
    {"small": (2_000, 2, 1), "large": (5_000, 2, 1)},
    (10_000, 2),
    warm_up=1,
    live_rows=20_000,
    small_rows=1_000,
    repeats=2,
)


def query(live_rows: int = LIVE_ROWS) -> Query:
    """W1 with RANGE windows of `live_rows` rows a stream: the key and the four values out."""
    streams = [Stream(name, SCHEMA, window=Range(len(STREAMS) * live_rows), time="ts") for name in STREAMS]
    predicates = [f"{left}.key = {right}.key" for left, right in pairwise(STREAMS)]
    return Query(streams, predicates, select={"key": "R.key"} | {name: f"{name}.val" for name in STREAMS})


class Feed:
    """Files of one micro-batch each: `step` more rows over all streams with each call of `add`."""

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
        """Write a file for each stream, seen as a whole: its keys, times and values."""
        for name, own in zip(STREAMS, columns, strict=True):
            hidden = self.folder / f".{name}"
            pq.write_table(pa.table([pa.array(column) for column in own], schema=SCHEMA), hidden)
            hidden.rename(self.folder / name / f"{self._files:06d}.parquet")
            self._rows += len(own[0])
        self._files += 1

    def frames(self, spark: SparkSession) -> dict[str, DataFrame]:
        """Return a streaming DataFrame for each stream, a file of each in every micro-batch."""
        reader = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        return {name: reader.parquet(str(self.folder / name)) for name in STREAMS}


def spark_join(frames: dict[str, DataFrame], live_rows: int = LIVE_ROWS) -> DataFrame:
    """Return the same join in Spark's own stream-stream joins, R with S, then T, then U.

    A join takes one event time column, so that of the stream that came later goes on as a number, with the condition
    of the window on it.
    """
    from pyspark.sql import functions as f

    span = len(STREAMS) * live_rows
    window = f.expr(f"INTERVAL {span} SECONDS")
    joined: DataFrame | None = None
    for name in STREAMS:
        frame = frames[name]
        one = frame.select(
            frame.key.alias(f"k{name}"),
            f.timestamp_seconds(frame.ts).alias(f"e{name}"),
            frame.ts.alias(f"t{name}"),
            frame.val.alias(name),
        ).withWatermark(f"e{name}", "0 seconds")
        if joined is None:
            joined = one
            continue
        first = STREAMS[0]
        times = [column for column in joined.columns if column.startswith("t")]
        condition = (joined[f"k{first}"] == one[f"k{name}"]) & one[f"e{name}"].between(
            joined[f"e{first}"] - window, joined[f"e{first}"] + window
        )
        for column in times[1:]:
            condition &= f.abs(one[f"t{name}"] - joined[column]) <= span
        joined = joined.join(one, condition).drop(f"e{name}", f"k{name}")
    assert joined is not None
    return joined.select(joined[f"k{STREAMS[0]}"].alias("key"), *STREAMS)


def _trigger_seconds(running: Any) -> list[float]:
    """Return the seconds of each micro-batch that there was, in order."""
    found = [one if isinstance(one, dict) else one.jsonValue for one in running.recentProgress]
    return [one["durationMs"]["triggerExecution"] / 1000 for one in found if "addBatch" in one["durationMs"]]


def _finish(running: Any) -> list[float]:
    running.awaitTermination()
    return _trigger_seconds(running)


def _ours(spark: SparkSession, feed: Feed, checkpoint: Path, transport: str, out: Path | None = None) -> list[float]:
    from eddy.spark import join

    joined = join(query(), feed.frames(spark), checkpoint=checkpoint, transport=transport)
    writer = joined.writeStream.trigger(availableNow=True)
    writer = writer.format("noop") if out is None else writer.format("parquet").option("path", out)
    return _finish(writer.start())


def spark_triggers(spark: SparkSession, feed: Feed, checkpoint: Path, out: Path | None = None) -> list[float]:
    """Run Spark's own joins over what is in the feed; return the seconds of each micro-batch. None: results dropped."""
    writer = spark_join(feed.frames(spark)).writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(checkpoint))
    writer = writer.format("noop") if out is None else writer.format("parquet").option("path", str(out))
    return _finish(writer.start())


def _empty(spark: SparkSession, feed: Feed, checkpoint: Path) -> list[float]:
    frames = list(feed.frames(spark).values())
    union = frames[0]
    for frame in frames[1:]:
        union = union.unionAll(frame)
    writer = union.writeStream.foreachBatch(lambda _, batch: None).trigger(availableNow=True)
    return _finish(writer.option("checkpointLocation", str(checkpoint)).start())


@contextmanager
def bench_session(master: str) -> Iterator[SparkSession]:
    """Give a session that remembers the figures of all its micro-batches, and stop it."""
    from eddy.spark import session

    spark = session(master, app_name="eddy bench", **{"spark.sql.streaming.numRecentProgressUpdates": 1000})
    try:
        yield spark
    finally:
        spark.stop()


class Bench:
    """Runs the parts one after the other; each in directories of its own under one that is removed."""

    def __init__(self, sizes: Sizes, folder: Path, report: Console) -> None:
        self._sizes = sizes
        self._folder = folder
        self._report = report
        self.figures: dict[str, Any] = {}
        self._parts = 0

    def _place(self) -> Path:
        self._parts += 1
        place = self._folder / str(self._parts)
        place.mkdir()
        return place

    def _fed(self, step: int, files: int) -> Feed:
        feed = Feed(self._place())
        for _ in range(files):
            feed.add(step)
        return feed

    def check(self, spark: SparkSession) -> None:
        """Compare the results of all ways with each other."""
        from pyspark.sql import functions as f

        feed = self._fed(self._sizes.checked, 3)
        found = {}
        ways: dict[str, Callable[[Path, Path], object]] = {
            "rows": lambda checkpoint, out: _ours(spark, feed, checkpoint, "rows", out),
            "packed": lambda checkpoint, out: _ours(spark, feed, checkpoint, "packed", out),
            "Spark": lambda checkpoint, out: spark_triggers(spark, feed, checkpoint, out),
        }
        for name, way in ways.items():
            place = self._place()
            way(place / "checkpoint", place / "out")
            rows = spark.read.parquet(str(place / "out"))
            sums = rows.agg(f.count("*"), *(f.sum(column) for column in ("key", *STREAMS))).collect()[0]
            found[name] = tuple(sums)
        agree("W1 streamed: (results, sums of the columns)", found)
        self.figures["streaming.results_compared"] = found["Spark"][0]

    def throughput(self, spark: SparkSession) -> None:
        """Rows a second of both transports and of Spark."""
        for name, (step, files, theirs) in self._sizes.steps.items():
            warm = self._sizes.warm_up
            rate: dict[str, float] = {}
            for transport in ("rows", "packed"):
                feed = self._fed(step, warm + files)
                taken = _ours(spark, feed, self._place() / "checkpoint", transport)[warm:]
                rate[transport] = step / median(taken)
            # Its first micro-batch fills windows that are empty, which is the cheaper one.
            taken = spark_triggers(spark, self._fed(step, 1 + theirs), self._place() / "checkpoint")[1:]
            rate["spark"] = step / median(taken)
            for way, value in rate.items():
                self.figures[f"streaming.{name}.{way}_rows_per_s"] = value
            for way in ("rows", "packed"):
                self.figures[f"streaming.{name}.vs_spark_stream_joins.{way}"] = rate[way] / rate["spark"]
        for way in ("rows", "packed"):
            self.figures[f"vs_spark_stream_joins.{way}"] = self.figures[f"streaming.large.vs_spark_stream_joins.{way}"]

    def fixed_cost(self, spark: SparkSession) -> None:
        """A micro-batch of few rows over a large state, and the first one after all live engines were lost."""
        from eddy.spark import join

        sizes = self._sizes
        feed = Feed(self._place(), keys=sizes.live_rows)
        live = query(sizes.live_rows // len(STREAMS) * 2)
        checkpoint = self._place() / "checkpoint"

        def run() -> Any:
            joined = join(live, feed.frames(spark), checkpoint=checkpoint, transport="packed", key_groups=64)
            running = joined.writeStream.format("noop").trigger(availableNow=True).start()
            running.awaitTermination()
            return running

        feed.add(sizes.live_rows)
        for _ in range(1 + sizes.repeats):
            feed.add(sizes.small_rows)
        running = run()
        usual = _trigger_seconds(running)[2:]
        batches = running.batches().to_pylist()
        # All live engines are lost: their files are.
        feed.add(sizes.small_rows)
        running.forget_live_engines()
        running = run()
        loaded = _trigger_seconds(running)
        last = running.batches().to_pylist()[-1]
        agree("key groups loaded from the log", {"loaded": last["loaded"], "groups": last["groups"]})
        nothing = Feed(self._place(), keys=sizes.live_rows)
        for _ in range(1 + sizes.repeats):
            nothing.add(sizes.small_rows)
        empty = _empty(spark, nothing, self._place() / "checkpoint")[1:]
        self.figures["streaming.small_batch_s"] = median(usual)
        self.figures["streaming.empty_batch_s"] = median(empty)
        self.figures["fixed_cost_s"] = median(usual) - median(empty)
        self.figures["recovery_s"] = loaded[0] - median(usual)
        self.figures["streaming.state_bytes"] = batches[-1]["state_bytes"]
        # As many as came: windows are twice as long as the first file, and none has left one.
        self.figures["streaming.state_rows"] = sum(row["rows"] for row in batches)

    def scaling(self, spark: SparkSession) -> dict[str, float]:
        """Return the rows a second of the packed transport in large micro-batches and the largest, by figure."""
        large, files, _ = self._sizes.steps["large"]
        found = {}
        sizes = {"streaming.large.scaling_1_to_2": (large, files), "scaling_1_to_2": self._sizes.scaled}
        for name, (step, count) in sizes.items():
            feed = self._fed(step, self._sizes.warm_up + count)
            taken = _ours(spark, feed, self._place() / "checkpoint", "packed")[self._sizes.warm_up :]
            found[name] = step / median(taken)
            shutil.rmtree(feed.folder)
        return found


def run(*, quick: bool = False, sizes: Sizes | None = None, report: IO[str] | None = None) -> dict[str, Any]:
    """Measure; return the figures of LEAST and MOST, and what they were made of.

    Starts and stops Spark sessions of its own, and stops one that runs. Some minutes, most of them Spark's joins.
    """
    console = Console(file=report)
    sizes = sizes or (QUICK if quick else FULL)
    folder = Path(tempfile.mkdtemp(prefix="eddy-bench-"))
    bench = Bench(sizes, folder, console)
    try:
        with progress(console) as bar:
            task = bar.add_task("streaming", total=5)
            with bench_session("local[2]") as spark:
                for part in (bench.check, bench.throughput, bench.fixed_cost):
                    part(spark)
                    bar.advance(task)
                two = bench.scaling(spark)
                bar.advance(task)
            with bench_session("local[1]") as spark:
                one = bench.scaling(spark)
                bar.advance(task)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    figures = {"machine": machine(), **bench.figures, **{name: two[name] / one[name] for name in two}}
    table = Table("figure", "value")
    for name, value in figures.items():
        if isinstance(value, float | int):
            table.add_row(name, f"{value:,.3g}" if value < 1000 else f"{value:,.0f}")
    console.print(table)
    console.print(figures["machine"])
    return figures
