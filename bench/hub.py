"""`eddy bench hub`: two queries on one hub, compared with two streaming joins over the same files, and many queries.

The two jobs run one after the other, each with the whole machine, which is the best case for two jobs. The hub and the
jobs take turns. Times are those that Spark reports for the trigger; the first micro-batches are not counted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from bench.harness.figure import NAMED, Figure, Point, ReportTable, Row, Say, spread
from bench.harness.turns import agree
from bench.spark import LIVE_ROWS, SCHEMA, STREAMS, FileFeed, bench_session, finish
from eddy import Query, Range, Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eddy.spark import Hub

ROWS = 500_000
"""Rows of a micro-batch in the headline."""
WARM, WARM_ROWS = 40, 4_000
"""Micro-batches before the measured ones, and their rows; see `bench/streaming.py`."""
HALF = 1 << 39
"""Half of the values are at least this."""


MANY = 100
"""Queries whose results are parts of those of one query."""
FEW: Point = {"rows": 2_000, "batches": 2, "turns": 1}
"""The amounts of a short run."""


def asked(
    streams: tuple[str, ...] = STREAMS,
    live_rows: int = LIVE_ROWS,
    least: int = 0,
    where: pc.Expression | None = None,
    part: tuple[int, int] | None = None,
) -> Query:
    """Return a query over some streams of W1, with a window, and a filter of all streams if `least` is above 0.

    part   k and n: a filter of the first stream, which accepts the k-th of n equal parts of its values
    """
    keep = pc.field("val") >= least if least else None
    window = Range(len(STREAMS) * live_rows)
    inputs = [Stream(name, SCHEMA, window=window, time="ts", filter=keep) for name in streams]
    if part is not None:
        low, high = (2 * HALF * (part[0] + k) // part[1] for k in range(2))
        kept = (pc.field("val") >= low) & (pc.field("val") < high)
        inputs[0] = Stream(streams[0], SCHEMA, window=window, time="ts", filter=kept)
    on = [f"{left}.key = {right}.key" for left, right in pairwise(streams)]
    select = {"key": f"{streams[0]}.key"} | {name: f"{name}.val" for name in streams}
    return Query(inputs, on, select=select, where=where)


PAIRS = {"one join": "hub2.vs_two_jobs", "filtered": "hub2.filtered_vs_two_jobs", "two joins": "hub2.apart_vs_two_jobs"}
"""Pairs of queries, and their ratios."""


def pair(kind: str) -> dict[str, Query]:
    """Return two queries: over the same join graph, without or with a filter of streams, or over different ones."""
    if kind == "one join":
        return {"all": asked(), "near": asked(live_rows=LIVE_ROWS * 3 // 4, where=pc.field("R.val") >= HALF)}
    if kind == "filtered":
        return {"all": asked(), "high": asked(live_rows=LIVE_ROWS // 2, least=HALF)}
    return {"all": asked(), "three": asked(STREAMS[:3])}


def points(full: bool) -> list[Point]:
    """Return a point for each size of micro-batch and pair of queries, and one of a change."""
    sizes = [(4_000, 12, 5), (50_000, 8, 5), (ROWS, 4, 5)] if full else [(2_000, 2, 1)]
    parts: list[Point] = [{"part": "results", "rows": 20_000 if full else 2_000}]
    for rows, batches, turns in sizes:
        for kind in PAIRS:
            parts.append({"part": "pair", "queries": kind, "rows": rows, "batches": batches, "turns": turns})
    many: Point = {"part": "many", "rows": 4_000, "batches": 12, "turns": 5} if full else {"part": "many", **FEW}
    return [
        *parts,
        {"number": MANY, **many},
        {"part": "change", "rows": 50_000 if full else 2_000, "batches": 8 if full else 3},
    ]


def measure(point: Point, say: Say) -> list[Row]:
    """Measure one part in a folder and a session of its own."""
    if not find_spec("pyspark"):
        return [{"skipped": "a hub on Spark: pyspark is not installed (pip install 'eddy-join[spark]')"}]
    parts = {"results": _results, "pair": _pair, "many": _many, "change": _change}
    with tempfile.TemporaryDirectory(prefix="eddy-bench-") as folder, bench_session("local[2]") as spark:
        return parts[point["part"]](spark, point, Path(folder), say)


def _fed(folder: Path, rows: int, files: int, warm: int = 0) -> FileFeed:
    feed = FileFeed(Path(tempfile.mkdtemp(dir=folder)))
    for size in [min(rows, WARM_ROWS)] * warm + [rows] * files:
        feed.add(size)
    return feed


def _hub(spark: SparkSession, feed: FileFeed, checkpoint: Path) -> Hub:
    from eddy.spark import Hub, Source

    frames = feed.frames(spark)
    sources = [Source(Stream(name, SCHEMA, time="ts"), frames[name], "key") for name in STREAMS]
    return Hub(spark, sources, checkpoint)


def _of_hub(
    spark: SparkSession, feed: FileFeed, queries: dict[str, Query], place: Path, out: Path | None
) -> list[float]:
    """Run queries on a hub; return the seconds of each micro-batch."""
    from eddy.spark.streaming.sinks import NullSink

    hub = _hub(spark, feed, place)
    for name, query in queries.items():
        hub.start(name, query, NullSink() if out is None else out / name)
    return finish(hub.run(availableNow=True))


def _of_job(spark: SparkSession, feed: FileFeed, query: Query, place: Path, out: Path | None) -> list[float]:
    """Run a query as a separate job; return the seconds of each micro-batch."""
    from eddy.spark import join

    frames = feed.frames(spark)
    joined = join(query, {stream.name: frames[stream.name] for stream in query.streams}, checkpoint=place)
    writer = joined.writeStream.trigger(availableNow=True)
    return finish((writer.format("noop") if out is None else writer.format("parquet").option("path", out)).start())


def _new(folder: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=folder)) / "checkpoint"


def _results(spark: SparkSession, point: Point, folder: Path, say: Say) -> list[Row]:
    """Compare the results of both ways."""
    from pyspark.sql import functions as f

    feed = _fed(folder, point["rows"], 4)
    compared = 0
    for kind in PAIRS:
        queries, place = pair(kind), Path(tempfile.mkdtemp(dir=folder))
        say(f"results: {kind}")
        _of_hub(spark, feed, queries, _new(folder), place / "hub")
        for name, query in queries.items():
            _of_job(spark, feed, query, _new(folder), place / "jobs" / name)
            columns = query.output_schema.names
            totals = {
                way: tuple(
                    spark.read.parquet(str(place / way / name))
                    .agg(f.count("*"), *(f.sum(column) for column in columns))
                    .collect()[0]
                )
                for way in ("hub", "jobs")
            }
            agree(f"{name} of {kind}: (results, sums of the columns)", totals)
            compared += totals["hub"][0]
    return [{"figure": "hub2.results_compared", "value": compared}]


def _pair(spark: SparkSession, point: Point, folder: Path, say: Say) -> list[Row]:
    """Measure two queries on a hub and as two jobs, in turns: each way resumes its checkpoint with new files."""
    rows, batches, warm, queries = point["rows"], point["batches"], point.get("warm", WARM), pair(point["queries"])
    ways: dict[str, Callable[[FileFeed, Path], list[float]]] = {
        name: lambda feed, place, query=query: _of_job(spark, feed, query, place, None)  # type: ignore[misc]
        for name, query in queries.items()
    }
    ways["hub"] = lambda feed, place: _of_hub(spark, feed, queries, place, None)
    places = {way: _new(folder) for way in ways}
    feeds = {way: _fed(folder, rows, 0, warm) for way in ways}
    for way, run in ways.items():
        say(f"{rows:,} rows: {way}, short micro-batches")
        run(feeds[way], places[way])
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(point["turns"]):
        for way, run in ways.items():
            say(f"{rows:,} rows: {way}, turn {turn + 1}")
            for _ in range(2 + batches):
                feeds[way].add(rows)
            taken[way].append(median(run(feeds[way], places[way])[-batches:]))
    jobs = [sum(seconds) for seconds in zip(*(taken[name] for name in queries), strict=True)]
    ratio = PAIRS[point["queries"]]
    return [
        {
            "hub_s": median(taken["hub"]),
            "jobs_s": median(jobs),
            **{f"job{k}_s": median(taken[name]) for k, name in enumerate(queries, 1)},
        },
        {
            "figure": ratio if rows == ROWS else f"{ratio}.{rows}",
            **spread([hub / other for hub, other in zip(taken["hub"], jobs, strict=True)], "value"),
        },
    ]


def _many(spark: SparkSession, point: Point, folder: Path, say: Say) -> list[Row]:
    """Measure many queries on a hub and one, with a directory for the results of each query and without, in turns."""
    rows, batches, warm, most = point["rows"], point["batches"], point.get("warm", WARM), point["number"]
    ways = {(queries, kept): _new(folder) for kept in (True, False) for queries in (1, most)}
    feeds = {way: _fed(folder, rows, 0, warm) for way in ways}
    taken: dict[tuple[int, bool], list[float]] = {way: [] for way in ways}
    for turn in range(1 + point["turns"]):
        for way, place in ways.items():
            queries, kept = way
            say(f"{queries} queries, {'a directory each' if kept else 'results dropped'}, turn {turn}")
            for _ in range((2 + batches) * (turn > 0)):
                feeds[way].add(rows)
            out = place.parent / "results" if kept else None
            asked_of_all = {f"q{k}": asked(part=(k, most)) for k in range(queries)}
            seconds = _of_hub(spark, feeds[way], asked_of_all, place, out)
            if turn:
                taken[way].append(median(seconds[-batches:]))
    return [
        {
            "figure": f"hub.many{'' if kept else '.dropped'}.vs_one",
            **spread([a / b for a, b in zip(taken[most, kept], taken[1, kept], strict=True)], "value"),
        }
        for kept in (True, False)
    ]


def _change(spark: SparkSession, point: Point, folder: Path, say: Say) -> list[Row]:
    """Measure the micro-batch with which a change takes effect, and the micro-batches before it."""
    from eddy.spark.streaming.sinks import NullSink

    rows, batches, warm = point["rows"], point["batches"], point.get("warm", WARM)
    figures: list[Row] = []
    changes = {
        "narrower": asked(live_rows=LIVE_ROWS // 2),
        "wider": asked(live_rows=2 * LIVE_ROWS),
    }
    for name, new in changes.items():
        say(f"change to {name} windows")
        feed = _fed(folder, rows, 2 * batches, warm)
        hub = _hub(spark, feed, _new(folder))
        handle = hub.start("all", asked(), NullSink())
        handle.change(new, how="handover", at=warm + batches)
        times = finish(hub.run(availableNow=True))
        (at,) = (entry["batch"] for entry in hub.history().to_pylist() if entry["event"] == "handover change")
        agree("the micro-batch of the change", {"asked": warm + batches, "history": at})
        usual = median(times[warm + 1 : warm + batches])
        figures.append({"figure": f"hub2.change_to_{name}", "value": times[warm + batches] / usual})
    return figures


FIGURES = (
    Figure(
        "hub",
        "Two queries over the streams of W1 (RANGE windows of about 10 000 live rows a stream) in Structured Streaming "
        "on `local[2]`: files in, results dropped, after forty short micro-batches. *One join*: W1, and W1 with three "
        "quarters of the windows and a filter of results; the hub shares the join. *Filtered*: W1, and W1 with half "
        "the windows and a filter that half of the rows of each stream pass; its job logs and joins those rows only. "
        "*Two joins*: W1, and its first three streams; the hub shares input and log. The two jobs run one after the "
        "other; their times "
        "are added. A change replaces W1 by W1 with other windows (handover); its micro-batch is compared with those "
        "before it. Many queries: W1 with a filter that accepts a hundredth of the rows of one stream, another one in "
        "each query; a micro-batch of all queries over one of the first of them.",
        points,
        measure,
        tables=(
            NAMED,
            ReportTable(
                "A micro-batch",
                {"queries": "queries", "rows": "rows"},
                {"hub_s": "hub, s", "jobs_s": "two jobs, s", "job1_s": "first job, s", "job2_s": "second job, s"},
            ),
        ),
        titles={
            **{
                ratio if rows == ROWS else f"{ratio}.{rows}": f"Two queries, {kind}, {rows:,} rows: hub / two jobs"
                for kind, ratio in PAIRS.items()
                for rows in (ROWS, 50_000, 4_000)
            },
            "hub2.change_to_narrower": "Micro-batch of a change to narrower windows / the ones before it",
            "hub2.change_to_wider": "Micro-batch of a change to wider windows (loads the log) / the ones before it",
            "hub2.results_compared": "Results compared",
            "hub.many.vs_one": f"{MANY} queries, a directory for the results of each / 1 query",
            "hub.many.dropped.vs_one": f"{MANY} queries, results dropped / 1 query",
        },
        bars={"hub2.vs_two_jobs": "≤ 0.6", "hub.many.vs_one": "≤ 2"},
    ),
)
