"""`eddy bench streaming`: the streaming join compared with Spark's own stream-stream joins, and the cost of a
micro-batch.

All jobs read the same files with the same trigger in Structured Streaming. Times are those that Spark reports for the
trigger; the first micro-batches are not counted.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.harness.figure import NAMED, Figure, Point, ReportTable, Row, Say, spread
from bench.harness.turns import agree
from bench.spark import BEST, DEFAULT, STREAMS, FileFeed, bench_session, finish, query, spark_triggers, summed
from eddy.demo.workers import driver_jvm, kill, workers
from eddy.spark.environment.pools import VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRANSPORTS = ("rows", "packed")
RIVALS = {"vs_spark_default": DEFAULT, "vs_spark_best": BEST}
LARGE, LARGEST = 500_000, 4_000_000
"""Rows of the micro-batches in which throughput and scaling are headlines."""
WARM, WARM_ROWS = 60, 4_000
"""Micro-batches before the measured ones, and their rows: the JVM compiles code only after dozens of micro-batches."""


STORE_TITLES = {
    "trigger_4000_rows_s": "micro-batch of 4 000 rows over 1 M live rows, the whole trigger, s",
    "recovery_s": "the same after all workers with engines were killed, s",
    "requests": "requests for each micro-batch of two tasks",
}


def points(full: bool) -> list[Point]:
    """Return a point for each size of micro-batch, of throughput and of scaling, and one of small micro-batches."""
    throughput = [(50_000, 12, 3), (LARGE, 6, 3)] if full else [(2_000, 2, 1), (5_000, 2, 1)]
    scaling = [(LARGE, 6), (LARGEST, 3)] if full else [(5_000, 2), (10_000, 2)]
    small = (1_000_000, 4_000, 40) if full else (20_000, 1_000, 2)
    chosen: list[Point] = [{"part": "results", "rows": 20_000 if full else 2_000}]
    for rows, n, m in throughput:
        chosen.append({"part": "throughput", "rows": rows, "batches": n, "spark_batches": m})
    chosen.append({"part": "fixed cost", **dict(zip(("live_rows", "rows", "batches"), small, strict=True))})
    delays = (0, 2, 30) if full else (0,)
    chosen += [
        {"part": "object store", **dict(zip(("live_rows", "rows", "batches"), small, strict=True)), "delay_ms": delay}
        | ({} if full else {"warm": 2})
        for delay in delays
    ]
    return chosen + [{"part": "scaling", "rows": rows, "batches": n} for rows, n in scaling]


def measure(point: Point, say: Say) -> list[Row]:
    """Measure one part in folders and sessions of its own."""
    if not find_spec("pyspark"):
        return [{"skipped": "streaming on Spark: pyspark is not installed (pip install 'eddy-join[spark]')"}]
    with tempfile.TemporaryDirectory(prefix="eddy-bench-") as folder:
        if point["part"] == "scaling":
            return _scaling(point, Path(folder), say)
        parts = {
            "results": _results,
            "throughput": _throughput,
            "fixed cost": _fixed_cost,
            "object store": _object_store,
        }
        with bench_session("local[2]") as spark:
            return parts[point["part"]](spark, point, Path(folder), say)


def _place(folder: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=folder))


def _fed(folder: Path, rows: int, files: int, warm: int = 0) -> FileFeed:
    """Return a feed of a number of micro-batches, after `warm` short ones."""
    feed = FileFeed(_place(folder))
    for size in [min(rows, WARM_ROWS)] * warm + [rows] * files:
        feed.add(size)
    return feed


def _eddy(
    spark: SparkSession, feed: FileFeed, checkpoint: Path, transport: str, out: Path | None = None
) -> list[float]:
    from eddy.spark import join

    joined = join(query(), feed.frames(spark), checkpoint=checkpoint, transport=transport)
    writer = joined.writeStream.trigger(availableNow=True)
    return finish((writer.format("noop") if out is None else writer.format("parquet").option("path", out)).start())


def _ratio(transport: str, rival: str, rows: int) -> str:
    """Return the name of a ratio; the name of the headline has no number of rows."""
    return f"{transport}_{rival}" if rows == LARGE else f"{transport}_{rival}.{rows}"


def _results(spark: SparkSession, point: Point, folder: Path, say: Say) -> list[Row]:
    """Compare the results of all ways."""
    feed = _fed(folder, point["rows"], 3)
    ways: dict[str, Callable[..., object]] = {
        **{name: partial(_eddy, spark, feed, transport=name) for name in TRANSPORTS},
        **{name: partial(spark_triggers, spark, feed, settings=name) for name in (DEFAULT, BEST)},
    }
    sums = {}
    for name, way in ways.items():
        say(f"results of {name}")
        place = _place(folder)
        way(checkpoint=place / "checkpoint", out=place / "out")
        sums[name] = summed(spark.read.parquet(str(place / "out")))
    agree("W1 streamed: (results, sums of the columns)", sums)
    return [{"figure": "streaming.results_compared", "value": sums[DEFAULT][0]}]


def _throughput(spark: SparkSession, point: Point, folder: Path, say: Say) -> list[Row]:
    """Measure rows a second of both transports, and of Spark with both settings."""
    rows, batches, theirs = (point[name] for name in ("rows", "batches", "spark_batches"))
    taken = {}
    for name in TRANSPORTS:
        say(f"{rows:,} rows: {name} transport")
        feed = _fed(folder, rows, 2 + batches, point.get("warm", WARM))
        taken[f"eddy, {name} transport"] = _eddy(spark, feed, _place(folder) / "checkpoint", name)[-batches:]
    for name in (DEFAULT, BEST):
        say(f"{rows:,} rows: {name}")
        # The first micro-batch fills empty windows, which costs less.
        feed = _fed(folder, rows, 1 + theirs)
        taken[name] = spark_triggers(spark, feed, _place(folder) / "checkpoint", name)[1:]
    rate = {way: spread([rows / seconds for seconds in times], "rows_per_s") for way, times in taken.items()}
    rows_of: list[Row] = [
        {
            "way": way,
            **figures,
            "vs_default": median(taken[DEFAULT]) / median(taken[way]),
            "vs_best": median(taken[BEST]) / median(taken[way]),
            "measured": len(taken[way]),
        }
        for way, figures in rate.items()
    ]
    return rows_of + [
        {"figure": _ratio(name, figure, rows), "value": median(taken[way]) / median(taken[f"eddy, {name} transport"])}
        for figure, way in RIVALS.items()
        for name in TRANSPORTS
    ]


def _fixed_cost(spark: SparkSession, point: Point, folder: Path, say: Say) -> list[Row]:
    """Measure micro-batches of few rows over a large state, and the first one after all workers were killed."""
    usual, recovery, killed, last = _small(spark, point, folder, say, {"checkpoint": _place(folder) / "checkpoint"})
    amounts = {
        "trigger_4000_rows_s": median(usual),
        "recovery_s": recovery,
        "streaming.workers_killed": killed,
        "streaming.state_rows": last["state_rows"],
        "streaming.state_bytes": last["state_bytes"],
    }
    return [{"figure": name, "value": value} for name, value in amounts.items()]


def _object_store(spark: SparkSession, point: Point, folder: Path, say: Say) -> list[Row]:
    """Measure the same with the checkpoint in an S3 on loopback, each request of which takes some time more."""
    if not find_spec("moto") or not find_spec("obstore"):
        return [{"skipped": "a checkpoint in an object store: pip install 'eddy-join[demo]'"}]
    from eddy.demo.object_server import BUCKET, object_server

    delay = point["delay_ms"]
    with object_server() as server:

        def slow(method: str, path: str) -> None:
            time.sleep(delay / 1000)

        server.fault = slow
        # The servers of one process share their objects.
        place = {"checkpoint": f"s3://{BUCKET}/job-{delay}", "checkpoint_options": server.options}
        usual, recovery, _, last = _small(spark, point, folder, say, place)
        requests = len(server.requests) / (last["batch"] + 1)
    name = f"object_store.{delay}_ms"
    amounts = {f"{name}.trigger_4000_rows_s": median(usual), f"{name}.recovery_s": recovery}
    return [{"figure": figure, "value": value} for figure, value in (amounts | {f"{name}.requests": requests}).items()]


def _small(
    spark: SparkSession, point: Point, folder: Path, say: Say, place: Mapping[str, Any]
) -> tuple[list[float], float, int, dict[str, Any]]:
    """Return the times of small micro-batches, and that after all workers were killed, how many were, and its figures.

    place   the options of the join that say where its checkpoint is
    """
    from eddy.spark import join

    live_rows, rows, repeats = (point[name] for name in ("live_rows", "rows", "batches"))
    warm = point.get("warm", WARM)
    feed = FileFeed(_place(folder), keys=live_rows)
    # Windows are twice as long as the first file, so no row leaves them.
    live = query(live_rows // len(STREAMS) * 2)
    say("small micro-batches")
    feed.add(live_rows)
    for _ in range(warm + repeats):
        feed.add(rows)
    joined = join(live, feed.frames(spark), transport="packed", **place)
    running = joined.writeStream.format("noop").start()

    def triggers(total: int) -> list[float]:
        """Return the times of all micro-batches when a number of rows was joined."""
        while running.isActive and sum(running.batches()["rows"].to_pylist()) < total:
            running.processAllAvailable()
        reports = [report for report in running.recentProgress if report["numInputRows"]]
        return [report["durationMs"]["triggerExecution"] / 1000 for report in reports]

    total = live_rows + (warm + repeats) * rows
    usual = triggers(total)
    say("micro-batch after the workers were killed")
    before, killed = len(usual), kill_workers(spark)
    feed.add(rows)
    recovery = triggers(total + rows)[before:]
    after = running.batches().to_pylist()[before:]
    running.stop()
    loaded = {"loaded": sum(batch["loaded"] for batch in after), "groups": joined.job.shares.partitions}
    agree("key groups loaded from the log", loaded)
    return usual[-repeats:], sum(recovery), killed, after[-1]


def kill_workers(spark: SparkSession) -> int:
    """Kill the Python workers that have the engines of joins; return their number."""
    mark = f"{VARIABLE}=".encode()
    return sum(kill(pid) for pid in workers(driver_jvm(spark)) if mark in Path(f"/proc/{pid}/environ").read_bytes())


def _scaling(point: Point, folder: Path, say: Say) -> list[Row]:
    """Measure the packed transport with two cores and with one."""
    rows, batches, taken = point["rows"], point["batches"], {}
    for cores in (2, 1):
        say(f"{rows:,} rows, {cores} cores")
        with bench_session(f"local[{cores}]") as spark:
            feed = _fed(folder, rows, 2 + batches, point.get("warm", WARM))
            taken[cores] = median(_eddy(spark, feed, _place(folder) / "checkpoint", "packed")[-batches:])
    return [{"figure": f"scaling_1_to_2.{rows}", "value": taken[1] / taken[2]}]


PARTS = {"results": _results, "throughput": _throughput, "fixed cost": _fixed_cost, "object store": _object_store}

FIGURES = (
    Figure(
        "streaming",
        "W1 under RANGE windows of about 10 000 live rows a stream, in Structured Streaming on `local[2]`; files in, "
        "results dropped; the results of all ways are compared before. A job of eddy first runs sixty short "
        "micro-batches, after which its JVM is warm; one of Spark, whose micro-batches take seconds, runs one. Spark "
        "runs a chain of three stream-stream joins, with its default settings and with the fastest that were found "
        "(RocksDB with changelog checkpointing and without row counting, "
        "`spark.sql.streaming.join.stateFormatVersion=4`, `FileSystemBasedCheckpointFileManager`); its clean-up "
        "batches, which have no input, are not counted.",
        points,
        measure,
        tables=(
            NAMED,
            ReportTable(
                "Rows a second",
                {"rows": "rows of a micro-batch", "way": "way"},
                {
                    "rows_per_s": "rows/s",
                    "rows_per_s_low": "least",
                    "rows_per_s_high": "most",
                    "vs_default": "/ Spark, default",
                    "vs_best": "/ Spark, best settings",
                    "measured": "micro-batches",
                },
            ),
        ),
        titles={
            **{
                _ratio(name, figure, LARGE): f"Micro-batches of 500 000 rows: {name} transport / {rival}"
                for figure, rival in RIVALS.items()
                for name in TRANSPORTS
            },
            "trigger_4000_rows_s": "Micro-batch of 4 000 rows over 1 M live rows, the whole trigger, s",
            "recovery_s": "The same after all workers with engines were killed, s",
            **{
                f"object_store.{delay}_ms.{figure}": f"Checkpoint in an S3, {delay} ms a request: {title}"
                for delay in (0, 2, 30)
                for figure, title in STORE_TITLES.items()
            },
            f"scaling_1_to_2.{LARGEST}": "Packed transport, micro-batches of 4 M rows: two cores / one",
            f"scaling_1_to_2.{LARGE}": "Packed transport, micro-batches of 500 000 rows: two cores / one",
            "streaming.workers_killed": "Workers killed",
            "streaming.state_rows": "Live rows of that state",
            "streaming.state_bytes": "Bytes of its live engines",
            "streaming.results_compared": "Results compared",
        },
        bars={
            _ratio("packed", "vs_spark_default", LARGE): "≥ 100",
            _ratio("packed", "vs_spark_best", LARGE): "≥ 60",
            _ratio("rows", "vs_spark_default", LARGE): "≥ 35",
            "trigger_4000_rows_s": "≤ 0.1",
            "recovery_s": "≤ 1",
            "object_store.2_ms.trigger_4000_rows_s": "≤ 0.2",
            "object_store.2_ms.requests": "≤ 6",
            f"scaling_1_to_2.{LARGEST}": "≥ 1.6",
        },
    ),
)
