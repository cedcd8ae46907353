"""`eddy bench spark-aggregates`: groups of a streaming join on Spark, with one core and with two, and beside Spark's.

Two streams of W1 with windows in which a row has five partners. `keys` has one group for each of 10 000 keys, `rows`
one for each row of R. Groups are in windows of event time, or a changelog of all results so far.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.harness.figure import NAMED, Figure, Point, ReportTable, Row, Say
from bench.harness.turns import agree
from bench.spark import BEST, KEYS, SCHEMA, FileFeed, bench_session, finish, spark_run
from eddy import Query, Range, Stream, Tumbling, agg

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BOTH = ("R", "S")
SPAN = 4 * KEYS * 5
"""Ticks of a window: each key has five rows of each stream in it."""
BY: Mapping[str, str] = {"keys": "R.key", "rows": "R.val"}
"""The group column of each kind."""
KINDS = ("windows", "changelog")
ROWS = 2_000_000
WARM, WARM_ROWS = 30, 4_000
"""Micro-batches before the measured ones, and their rows; see `bench/streaming.py`."""


def grouped(kind: str, by: str, span: int = SPAN) -> Query:
    """Return the query: groups in windows of event time as long as those of the streams, or of all results so far."""
    streams = [Stream(name, SCHEMA, window=Range(span), time="ts") for name in BOTH]
    how: dict[str, Any] = {"group_window": Tumbling(span, time="S.ts")} if kind == "windows" else {"expiry": "final"}
    sums = {"n": agg.count(), "total": agg.sum("S.val")}
    return Query(streams, ["R.key = S.key"], group_by={"of": BY[by]}, aggregates=sums, **how)


def points(full: bool) -> list[Point]:
    """Return the points: results, one and two cores, and many groups."""
    rows, batches = (ROWS, 4) if full else (2_000, 2)
    warm: Point = {} if full else {"warm": 2}
    chosen: list[Point] = [{"part": "results", "rows": 20_000 if full else 2_000}]
    chosen += [
        {"part": "scaling", "kind": kind, "by": by, "rows": rows, "batches": batches, **warm}
        for kind in KINDS
        for by in BY
    ]
    chosen.append({"part": "spark", "rows": rows, "batches": 3 if full else 1, **warm})
    return [*chosen, {"part": "many", "rows": 4_000_000 if full else 2_000, "batches": 11 if full else 2}]


def measure(point: Point, say: Say) -> list[Row]:
    """Measure one part in folders and sessions of its own."""
    if not find_spec("pyspark"):
        return [{"skipped": "aggregates on Spark: pyspark is not installed (pip install 'eddy-join[spark]')"}]
    parts = {"results": _results, "scaling": _scaling, "spark": _beside_spark, "many": _many}
    with tempfile.TemporaryDirectory(prefix="eddy-bench-") as folder:
        return parts[point["part"]](point, Path(folder), say)


def _fed(folder: Path, rows: int, files: int, warm: int = 0) -> FileFeed:
    feed = FileFeed(Path(tempfile.mkdtemp(dir=folder)))
    for size in [min(rows, WARM_ROWS)] * warm + [rows] * files:
        feed.add(size)
    return feed


def _joined(spark: SparkSession, feed: FileFeed, query: Query, folder: Path, out: Path | None = None) -> Any:
    """Run the job to the end of its input; return it."""
    from eddy.spark import join

    frames = feed.frames(spark)
    place = Path(tempfile.mkdtemp(dir=folder)) / "checkpoint"
    joined = join(query, {name: frames[name] for name in BOTH}, checkpoint=place)
    writer = joined.writeStream.trigger(availableNow=True)
    running = (writer.format("noop") if out is None else writer.format("parquet").option("path", out)).start()
    running.awaitTermination()
    return running


def _net(frame: DataFrame) -> tuple[int, ...]:
    """Return the number of groups and the sums of their columns, after the changes of a changelog."""
    from pyspark.sql import functions as f

    sign: Any = f.lit(1)
    if "op" in frame.columns:
        sign = f.when(f.col("op").isin("-D", "-U"), -1).otherwise(1)
    sums = (f.sum(sign * f.col(name)) for name in ("of", "n", "total"))
    return tuple(int(value or 0) for value in frame.agg(f.sum(sign), *sums).collect()[0])


def _results(point: Point, folder: Path, say: Say) -> list[Row]:
    """Compare the changelog of all results with a batch join, and windows with Spark's."""
    from eddy.spark import join

    compared = 0
    with bench_session("local[2]") as spark:
        feed = _fed(folder, point["rows"], 4)
        for by in BY:
            say(f"results: groups by {by}")
            _joined(spark, feed, grouped("changelog", by), folder, folder / by)
            frames = feed.frames(spark, streaming=False)
            batch = join(grouped("changelog", by), {name: frames[name] for name in BOTH})
            sums = {"streaming": _net(spark.read.parquet(str(folder / by))), "batch": _net(batch)}
            agree(f"groups by {by}: (groups, sums of the columns)", sums)
            compared += sums["batch"][0]
        span = point["rows"] // 2
        _joined(spark, feed, grouped("windows", "keys", span), folder, folder / "windows")
        _spark_windows(spark, feed, folder, span, folder / "of Spark")
        windows = {name: spark.read.parquet(str(folder / name)) for name in ("windows", "of Spark")}
        passed = min(_least_passed(frame) for frame in windows.values())
        sums = {name: _net(frame.where(frame.window_end <= passed)) for name, frame in windows.items()}
        agree("groups in windows: (groups, sums of the columns)", sums)
    return [{"figure": "spark_aggregates.groups_compared", "value": compared + sums["windows"][0]}]


def _least_passed(windows: DataFrame) -> int:
    """Return the end of the last window that a job has given: Spark's watermark is one micro-batch behind."""
    from pyspark.sql import functions as f

    return int(windows.agg(f.max("window_end")).collect()[0][0] or 0)


def _scaling(point: Point, folder: Path, say: Say) -> list[Row]:
    """Measure micro-batches with two cores and with one."""
    kind, by, rows, batches = (point[name] for name in ("kind", "by", "rows", "batches"))
    taken, results = {}, 0
    for cores in (2, 1):
        say(f"{kind} by {by}, {rows:,} rows, {cores} cores")
        with bench_session(f"local[{cores}]") as spark:
            feed = _fed(folder, rows, 2 + batches, point.get("warm", WARM))
            running = _joined(spark, feed, grouped(kind, by), folder)
            taken[cores] = median(finish(running)[-batches:])
            results = int(median(running.batches()["results"].to_pylist()[-batches:]))
    return [
        {"way": f"{kind} by {by}", "rows_per_s": rows / taken[2], "results_per_s": results / taken[2]},
        {"figure": f"spark_aggregates.1_to_2.{kind}.{by}", "value": taken[1] / taken[2]},
    ]


def _spark_windows(
    spark: SparkSession, feed: FileFeed, folder: Path, span: int = SPAN, out: Path | None = None
) -> list[float]:
    """Run Spark's own join and windows; return the seconds of each micro-batch with input."""
    from pyspark.sql import functions as f

    def windows() -> DataFrame:
        left, right = (
            frame.select(
                frame.key.alias(f"k{name}"), f.timestamp_seconds(frame.ts).alias(f"e{name}"), frame.val.alias(name)
            ).withWatermark(f"e{name}", "0 seconds")
            for name, frame in feed.frames(spark).items()
            if name in BOTH
        )
        near = f.expr(f"INTERVAL {span} SECONDS")
        joined = left.join(right, (left.kR == right.kS) & right.eS.between(left.eR - near, left.eR + near))
        groups = joined.groupBy(f.window("eS", f"{span} seconds"), joined.kR.alias("of")).agg(
            f.count("*").alias("n"), f.sum("S").alias("total")
        )
        return groups.select("of", "n", "total", groups.window.end.cast("long").alias("window_end"))

    return spark_run(spark, windows, Path(tempfile.mkdtemp(dir=folder)) / "checkpoint", BEST, out)


def _beside_spark(point: Point, folder: Path, say: Say) -> list[Row]:
    """Measure groups in windows beside Spark's own join and aggregates."""
    rows, batches, warm = point["rows"], point["batches"], point.get("warm", WARM)
    with bench_session("local[2]") as spark:
        say(f"{rows:,} rows: eddy")
        feed = _fed(folder, rows, 2 + batches, warm)
        eddy = median(finish(_joined(spark, feed, grouped("windows", "keys"), folder))[-batches:])
        say(f"{rows:,} rows: {BEST}")
        # The first micro-batch fills empty windows, which costs less.
        theirs = median(_spark_windows(spark, _fed(folder, rows, 1 + batches), folder)[1:])
    return [{"figure": "spark_aggregates.vs_spark", "value": theirs / eddy}]


def _many(point: Point, folder: Path, say: Say) -> list[Row]:
    """Measure micro-batches over many groups, each of them in the memory of a worker."""
    with bench_session("local[2]") as spark:
        feed = _fed(folder, point["rows"], point["batches"])
        say(f"{point['batches']} micro-batches of {point['rows']:,} rows, a group for each row of R")
        running = _joined(spark, feed, grouped("changelog", "rows"), folder)
        triggers = finish(running)
    return [{"figure": "spark_aggregates.many_s", "value": median(triggers[-3:])}]


FIGURES = (
    Figure(
        "spark-aggregates",
        "Two streams of W1 whose windows give a row five partners, in Structured Streaming; files in, rows of groups "
        "dropped; groups are compared with a batch join and with Spark's before. `keys` has 10 000 groups, `rows` one "
        "for each row of R; groups are in windows of event time, or a changelog of all results. A job first runs "
        "thirty short micro-batches, after which its JVM is warm; one of Spark, whose micro-batches take seconds, runs "
        "one.",
        points,
        measure,
        tables=(
            NAMED,
            ReportTable(
                "Rows a second with two cores",
                {"way": "groups"},
                {"rows_per_s": "rows/s", "results_per_s": "results/s"},
            ),
        ),
        titles={
            **{
                f"spark_aggregates.1_to_2.{kind}.{by}": f"{kind} by {by}: two cores / one"
                for kind in KINDS
                for by in BY
            },
            "spark_aggregates.vs_spark": "windows by keys: eddy / Spark's join and aggregates, best settings",
            "spark_aggregates.many_s": "micro-batch of 4 M rows over 10 M groups, s",
            "spark_aggregates.groups_compared": "groups compared",
        },
        bars={f"spark_aggregates.1_to_2.{kind}.{by}": "≥ 1.6" for kind in KINDS for by in BY},
    ),
)
