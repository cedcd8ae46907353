"""`eddy bench nexmark`: queries of NEXMark in eddy, DuckDB, Spark and Flink SQL over the same events.

eddy takes pushes of 10 000 events in order of time and emits results immediately. DuckDB runs the statement once over
all rows, so its time is that of one batch. Spark and Flink run the statement as a streaming job over files, by wall
time. The figure of Spark is that of its micro-batches after the first two. The figure of Flink is the difference
between a job over all events and one over a quarter of them. Numbers of results are compared, and the rows of Flink.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time, thread_time

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as pq

import eddy
from bench.harness.figure import Figure, Plot, Point, ReportTable, Row, Say, spread
from bench.harness.turns import agree, without_gc
from bench.peers.environment import Unavailable
from bench.peers.nexmark_flink import measure_flink
from bench.spark import bench_session, finish
from bench.workloads.nexmark import CHANGING, QUERIES, events, references, side_input, streams
from eddy import EddyError, Runtime, sql

PUSH = 10_000
FILES = 8
"""Micro-batches of Spark."""
MANY = {"q23": 200_000}
"""Events of a full run, for the query with many results."""
Events = dict[str, pa.Table]
REFUSED = {
    **dict.fromkeys(("q4-inner", *CHANGING), "later rows take its rows back, which a sink that appends cannot take"),
    "q13": "its table is in memory, and a job over files has no look-up",
}
"""Queries that Spark refuses in append mode, and why."""
SPARK_Q7 = """
SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra
FROM bid B
JOIN (SELECT maxprice, window_time(window) + INTERVAL '1' MICROSECOND AS dateTime
      FROM (SELECT MAX(price) AS maxprice, window FROM bid GROUP BY window(dateTime, '10 seconds'))) B1
ON B.price = B1.maxprice AND B.dateTime BETWEEN B1.dateTime - INTERVAL '10' SECOND AND B1.dateTime
"""
SPARK_Q8 = """
SELECT P.id, P.name, P.window.start FROM
(SELECT id, name, window(dateTime, '10 seconds') AS window FROM person
 GROUP BY id, name, window(dateTime, '10 seconds')) P
JOIN (SELECT seller, window(dateTime, '10 seconds') AS window FROM auction
      GROUP BY seller, window(dateTime, '10 seconds')) A
ON P.id = A.seller AND P.window = A.window
"""


def parts(tables: Events, count: int, size: int) -> list[Events]:
    """Return events in pieces of `size` events in order of time."""
    pieces = []
    times = {name: table["dateTime"].cast(pa.int64()).to_numpy() // 20 for name, table in tables.items()}
    for begin in range(0, count, size):
        cuts = {name: np.searchsorted(stamps, (begin, begin + size)) for name, stamps in times.items()}
        pieces.append(
            {name: table.slice(cuts[name][0], cuts[name][1] - cuts[name][0]) for name, table in tables.items()}
        )
    return pieces


def in_eddy(name: str, pieces: Sequence[Events]) -> tuple[float, int]:
    """Return the CPU seconds of the thread, and the number of results."""
    query = sql(QUERIES[name], streams(name))
    runtime = Runtime(query, output="changelog") if name in CHANGING else Runtime(query, bounded=True)
    if name == "q13":
        runtime.push({"side_input": side_input()})
    pushes = [query.inputs(piece) for piece in pieces]
    with without_gc():
        began = thread_time()
        tables = [*map(runtime.push, pushes), runtime.finish()]
        seconds = thread_time() - began
    return seconds, sum(map(_standing, tables))


def _standing(table: pa.Table) -> int:
    """Return how many more rows a push has given than it has taken back."""
    if "op" not in table.schema.names:
        return table.num_rows
    gone = compute.is_in(table["op"], pa.array(["-D", "-U"]))
    return table.num_rows - 2 * int(compute.sum(gone).as_py() or 0)


def in_duckdb(name: str, tables: Events) -> tuple[float, int]:
    """Return the CPU seconds of the process with one thread, and the number of results."""
    import duckdb

    with closing(duckdb.connect(config={"threads": 1})) as connection:
        for table_name, table in {**tables, "side_input": side_input()}.items():
            connection.register(f"given_{table_name}", table)
            connection.execute(f"CREATE TABLE {table_name} AS FROM given_{table_name}")
        began = process_time()
        results = connection.sql(references(QUERIES[name])).to_arrow_table()
        return process_time() - began, results.num_rows


def _here(point: Point, say: Say) -> list[Row]:
    """Measure eddy and DuckDB in turns."""
    name, count = point["query"], point["events"]
    tables = events(count, point["seed"])
    pieces = parts(tables, count, PUSH)
    ways: dict[str, Callable[[], tuple[float, int]]] = {"eddy": partial(in_eddy, name, pieces)}
    rows: list[Row] = []
    if find_spec("duckdb"):
        ways["DuckDB, one batch"] = partial(in_duckdb, name, tables)
    else:
        rows.append({"peer": "DuckDB, one batch", "skipped": "duckdb: not installed (pip install 'eddy-join[bench]')"})
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(point["rounds"] + 1):
        results = {}
        for way, run in ways.items():
            say(f"{name}, round {turn}: {way}")
            seconds, results[way] = run()
            if turn:
                taken[way].append(seconds)
        agree(f"{name}: results", results)
    versions = {"eddy": eddy.__version__, "DuckDB, one batch": version("duckdb") if len(ways) > 1 else ""}
    for way, all_seconds in taken.items():
        rates = [count / cpu_seconds for cpu_seconds in all_seconds]
        rows.append(_row(way, rates, results[way], versions[way], "CPU, 1 thread"))
    return rows


def _row(peer: str, rates: Sequence[float], results: int, release: str, clock: str) -> Row:
    return {"peer": peer, **spread(rates, "events_per_s"), "results": results, "version": release, "clock": clock}


def _sliced(tables: Events, count: int, full: int, folder: Path) -> None:
    """Write the first events as Parquet files, one for each stream and micro-batch."""
    for i, piece in enumerate(parts(tables, count, full // FILES)):
        for name, table in piece.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            hidden = folder / f".{name}"
            pq.write_table(table, hidden)
            hidden.rename(folder / name / f"{i:04d}.parquet")


def _in_spark(point: Point, say: Say) -> list[Row]:
    """Run the statement as a streaming job, timed by each micro-batch after the first two."""
    name, count = point["query"], point["events"]
    if name in REFUSED:
        raise Unavailable(REFUSED[name])
    if not find_spec("pyspark"):
        raise Unavailable("spark: not installed (pip install 'eddy-join[spark]')")
    tables = events(count, point["seed"])
    with TemporaryDirectory(prefix="eddy-nexmark-") as place:
        folder = Path(place)
        _sliced(tables, count, count, folder / "in")
        try:
            with bench_session("local[2]") as spark:
                say(f"{name}: Spark")
                for table_name, table in tables.items():
                    empty = spark.createDataFrame(table.slice(0, 1)).schema
                    reader = spark.readStream.schema(empty).option("maxFilesPerTrigger", 1)
                    frame = reader.parquet(str(folder / "in" / table_name)).withWatermark("dateTime", "0 seconds")
                    frame.createOrReplaceTempView(table_name)
                joined = spark.sql({"q7": SPARK_Q7, "q8": SPARK_Q8}.get(name, QUERIES[name]))
                joined = joined.toDF(*(f"c{i}" for i in range(len(joined.columns))))
                writer = joined.writeStream.trigger(availableNow=True).format("parquet")
                writer = writer.option("checkpointLocation", str(folder / "state")).option("path", str(folder / "out"))
                seconds = finish(writer.start(), data_only=True)
                results = spark.read.parquet(str(folder / "out")).count()
        except EddyError as missing:
            raise Unavailable(f"spark: {missing}") from missing
    rates = [count / FILES / batch_seconds for batch_seconds in seconds[2:]]
    return [_row("Spark", rates, results, version("pyspark"), "wall, 2 threads")]


def _in_flink(point: Point, say: Say) -> list[Row]:
    """Run the statement as streaming jobs with each parallelism."""
    name, count = point["query"], point["events"]
    tables = events(count, point["seed"])
    (first,) = parts(tables, count // 4, count // 4)
    timed = count - count // 4
    return [
        _row(
            f"Flink SQL, parallelism {outcome.parallelism}",
            [timed / seconds for seconds in outcome.seconds],
            outcome.results,
            outcome.version,
            "wall",
        )
        for outcome in measure_flink(name, first, tables, point["rounds"], say)
    ]


APART = {"Spark": _in_spark, "Flink SQL": _in_flink}
"""Peers in processes of their own. They raise Unavailable."""


def measure(point: Point, say: Say) -> list[Row]:
    """Measure the peers of a point. Raises Mismatch if results differ."""
    if point["peers"] not in APART:
        return _here(point, say)
    peer, name = point["peers"], point["query"]
    try:
        rows = APART[peer](point, say)
    except Unavailable as reason:
        return [{"peer": peer, "skipped": str(reason)}]
    began = perf_counter()
    results = in_eddy(name, parts(events(point["events"], point["seed"]), point["events"], PUSH))[1]
    say(f"{name}: results of eddy in {perf_counter() - began:.1f} s")
    if peer != "Spark" or name not in ("q7", "q8"):  # Spark does not emit windows that no later event ends
        agree(f"{name}: results", {"eddy": results, **{str(row["peer"]): row["results"] for row in rows}})
    return rows


def points(full: bool) -> list[Point]:
    """Return a point for each query in this process, and one for each peer that runs apart.

    A full run is long enough for the JVM to have compiled Flink's code before the events that count. An event of q23
    has nine results, so fewer events are as long. A job of another system takes up to a minute, and runs once.
    """
    sizes = {name: MANY.get(name, 1_000_000) if full else 20_000 for name in QUERIES}
    return [
        {"query": name, "peers": peers, "events": count, "rounds": 3 if full and peers == "eddy" else 1, "seed": 1}
        for name, count in sizes.items()
        for peers in ("eddy", *APART)
    ]


FIGURES = (
    Figure(
        "nexmark",
        "Queries of NEXMark that are joins, or aggregates on joins, over a million events, q23 over 200 000. eddy: "
        "pushes of 10 000 events, results as they come, Arrow in and out. DuckDB: the statement once over tables of "
        "all rows. Spark and Flink SQL: a streaming job over files, all rows kept as in the benchmark; start-up does "
        "not count. Spark writes its results to files. Flink discards them, as in the benchmark, after jobs whose "
        "results were compared with those of DuckDB. In Flink, q13 takes the version at the time of a bid, because no "
        "connector of its distribution looks up rows. q4-inner is the join of query 4 with its MAX. q6 gives the "
        "average of the last ten auctions of each seller as they are now, by their row numbers. q4, q5, q6, q9, q18 "
        "and q19 give a changelog.",
        points,
        measure,
        plots=[Plot("Events a second", "query", "events_per_s", "peer", y_label="events/s", log="y", kind="bars")],
        tables=[
            ReportTable(
                "Events a second of each query",
                {"query": "query", "peer": "system"},
                {
                    "events_per_s": "events/s",
                    "results": "results",
                    "clock": "clock",
                    "version": "version",
                    "skipped": "not measured",
                },
            )
        ],
    ),
)
