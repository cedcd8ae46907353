"""As-of joins of batch DataFrames give the rows of the oracle, and of a `Runtime`, in any grid of partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import eddy
from eddy.fuzz.as_of.case import AsOfArrival, AsOfQuery
from eddy.fuzz.as_of.draw import ROW_BYTES, AsOfArrivalWriter, as_of_query
from eddy.fuzz.as_of.play import batches, known, shown_rows
from eddy.spark import SparkJoinError, explain, join, sql
from eddy.spark.batch import blobs
from eddy.spark.partitioning import engine, merge, pieces
from eddy.spark.partitioning.job import make_job
from tests.spark.pipeline import run_here
from tests.spark.test_join import files_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("v", pa.int64())])


def drawn_query(chance: Random) -> AsOfQuery:
    """Return a query whose tables are versioned."""
    while True:
        asked = as_of_query(chance, False)
        if all(asked_join.at is not None for asked_join in asked.joins):
            return asked


def drawn(seed: int, rows: int = 60) -> tuple[AsOfQuery, list[AsOfArrival]]:
    """Return a query whose tables are versioned, and rows in the order in which Spark lets them arrive."""
    chance = Random(seed)
    asked = drawn_query(chance)
    return asked, in_order(asked, AsOfArrivalWriter(asked).arrivals(chance.randbytes(rows * ROW_BYTES)))


def in_order(asked: AsOfQuery, arrivals: Sequence[AsOfArrival]) -> list[AsOfArrival]:
    """Return rows in the order in which Spark lets them arrive: by event time, input and content."""

    def place(arrival: AsOfArrival) -> tuple[Any, ...]:
        return (
            arrival.row["t"],
            asked.inputs.index(arrival.name),
            *((v is None, v or 0) for v in arrival.values),
            arrival.op,
        )

    return sorted(arrivals, key=place)


def expected(asked: AsOfQuery, arrivals: list[AsOfArrival]) -> Counter[tuple[Any, ...]]:
    """Return the rows of the oracle, which takes the rows one after the other."""
    oracle, counts = asked.oracle(False), Counter[tuple[Any, ...]]()
    for arrival in arrivals:
        counts.update(shown_rows(asked, oracle, oracle.push(known(asked, [arrival]))[1], False))
    counts.update(shown_rows(asked, oracle, oracle.finish()[1], False))
    return counts


def counted(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def partitions_of(asked: AsOfQuery, chance: Random) -> int:
    return 1 if any(stream.window == "rows" for stream in asked.streams) else chance.choice((1, 2, 3, 4, 6))


@pytest.mark.campaign(22)
@pytest.mark.parametrize("seed", range(80))
def test_drawn_queries_have_the_rows_of_the_oracle(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Spark: rows in many small pieces, shuffled."""
    for module, name, size in (
        (pieces, "PIECE_ROWS", 3),
        (pieces, "RUN_ROWS", 7),
        (blobs, "BATCH_BYTES", 1000),
        (merge, "PUSH_ROWS", 5),
    ):
        monkeypatch.setattr(module, name, size)
    monkeypatch.setattr(engine, "spark_schema", lambda schema: schema)
    chance = Random(seed)
    asked, arrivals = drawn(seed)
    job = make_job(asked.query(), partitions=partitions_of(asked, chance))
    mixed = list(arrivals)
    chance.shuffle(mixed)
    tasks = [batches(asked, mixed[k::3]) for k in range(3)]
    results = run_here(job, {name: [[task[name]] for task in tasks] for name in asked.inputs}, seed)
    assert counted(results) == expected(asked, arrivals)


def frames_of(spark: SparkSession, asked: AsOfQuery, arrivals: list[AsOfArrival], folder: Path) -> Any:
    mixed = list(arrivals)
    Random(1).shuffle(mixed)
    return files_of(
        spark, {name: pa.Table.from_batches([batch]) for name, batch in batches(asked, mixed).items()}, folder
    )


@pytest.mark.parametrize("seed", [3, 21, 39])
def test_each_transport_has_the_rows_of_the_oracle(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    asked, arrivals = drawn(seed, 150)
    frames, rows = frames_of(spark, asked, arrivals, tmp_path), expected(asked, arrivals)
    assert rows
    for transport in ("packed", "rows"):
        joined = join(asked.query(), frames, transport=transport, partitions=partitions_of(asked, Random(seed)))
        assert counted(joined.toArrow()) == rows, transport


def of_bids(tied: bool = False) -> tuple[eddy.Stream, eddy.Stream, eddy.VersionedTable, dict[str, pa.Table]]:
    """Return two streams and a table, with the rows of each; if `tied`, versions have equal keys and times."""
    chance, rows = Random(8), dict[str, pa.Table]()
    for name, n in (("bid", 200), ("ask", 60), ("rate", 80)):
        new_rows = [
            {"k": chance.choice([*range(6), *([None] if name == "bid" else [])]), "at": chance.randrange(90), "v": v}
            for v in range(n)
        ]
        if name == "rate" and not tied:
            new_rows = list({(row["k"], row["at"]): row for row in new_rows}.values())
        rows[name] = pa.Table.from_pylist(new_rows, schema=AT)
    bid, ask = (eddy.Stream(name, AT, eddy.Range(7), "at") for name in ("bid", "ask"))
    return bid, ask, eddy.VersionedTable("rate", AT, key="k", time="at"), rows


def by_runtime(query: eddy.Query, rows: dict[str, pa.Table]) -> Counter[tuple[Any, ...]]:
    runtime = eddy.Runtime(query, bounded=True)
    first = runtime.push({stream.name: rows[stream.name] for stream in query.streams})
    return counted(pa.concat_tables([first, runtime.finish()]))


def test_queries_have_the_rows_of_a_runtime(spark: SparkSession, tmp_path: Path) -> None:
    """Joins, groups, windows of event time and branches above as-of joins."""
    bid, ask, rate, rows = of_bids()
    frames = files_of(spark, rows, tmp_path)
    as_of = [eddy.AsOf(rate, ["bid.k = rate.k"], "bid.at", "left")]
    on = ["bid.k = ask.k"]
    sums: dict[str, Any] = {"aggregates": {"n": eddy.agg.count(), "s": eddy.agg.sum("rate.v")}}
    for k, query in enumerate(
        (
            eddy.Query([bid], as_of=as_of),
            eddy.Query([bid], as_of=as_of, select={"left": "bid.v", "least": "bid.v - rate.v"}),
            eddy.Query([bid, ask], on, as_of=as_of, select=["bid.v", "ask.v", "rate.v"]),
            eddy.Query([bid, ask], ["bid.v = ask.v"], as_of=as_of),
            eddy.Query([bid], branches=[eddy.Branch([ask], on, "left")], as_of=as_of),
            eddy.Query([bid], branches=[eddy.Branch([ask], ["bid.v = ask.v"], "full")], as_of=as_of),
            eddy.Query([bid], as_of=as_of, group_by=["bid.k"], **sums),
            eddy.Query([bid, ask], on, as_of=as_of, group_by=["rate.k"], **sums),
            eddy.Query([bid], as_of=as_of, group_window=eddy.Tumbling(10, time="bid.at"), **sums),
            eddy.Query([bid], as_of=as_of, group_window=eddy.Tumbling(10), **sums),
        )
    ):
        joined = join(query, {stream.name: frames[stream.name] for stream in query.streams}, partitions=3)
        wanted = by_runtime(query, rows)
        assert wanted, k
        assert counted(joined.toArrow()) == wanted, k


def test_the_greater_content_of_equal_times_is_the_version(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever the query selects, and however the rows are distributed."""
    bid, _, rate, rows = of_bids(tied=True)
    versions = rows["rate"].sort_by([("k", "ascending"), ("at", "ascending"), ("v", "ascending")])
    last = pa.Table.from_pylist(list({(row["k"], row["at"]): row for row in versions.to_pylist()}.values()), schema=AT)
    assert last.num_rows < versions.num_rows
    query = eddy.Query([bid], as_of=[eddy.AsOf(rate, ["bid.k = rate.k"])], select=["bid.v", "rate.v"])
    joined = join(query, files_of(spark, {"bid": rows["bid"], "rate": rows["rate"]}, tmp_path))
    assert counted(joined.toArrow()) == by_runtime(query, {"bid": rows["bid"], "rate": last})


def test_statements_of_sql(spark: SparkSession, tmp_path: Path) -> None:
    _, _, rate, rows = of_bids()
    for name, frame in files_of(spark, {"bid": rows["bid"], "rate": rows["rate"]}, tmp_path).items():
        frame.createOrReplaceTempView(name)
    text = "SELECT bid.v, rate.v AS r FROM bid LEFT JOIN rate FOR SYSTEM_TIME AS OF bid.at ON bid.k = rate.k"
    joined = sql(spark, text, times={"bid": "at"}, tables={"rate": {"key": "k", "time": "at"}})
    alone = eddy.Stream("bid", AT, time="at")
    query = eddy.Query([alone], as_of=[eddy.AsOf(rate, ["bid.k = rate.k"], how="left")], select=["bid.v", "rate.v"])
    assert counted(joined.toArrow()) == by_runtime(query, rows)
    with pytest.raises(SparkJoinError, match="view 'rate' has the option 'version'; give key, time or ops"):
        sql(spark, text, times={"bid": "at"}, tables={"rate": {"key": "k", "time": "at", "version": "v"}})


def test_explain_tells_which_tables_are_copied(spark: SparkSession, tmp_path: Path) -> None:
    bid, ask, rate, rows = of_bids()
    frames = files_of(spark, rows, tmp_path)
    ours, theirs = (eddy.AsOf(rate, [f"bid.{column} = rate.k"], "bid.at") for column in ("k", "v"))
    query = eddy.Query([bid, ask], ["bid.k = ask.k"], as_of=[ours])
    told = explain(query, frames, partitions=4)
    assert "4 partitions by key: bid.k = ask.k = rate.k" in told
    assert "arrivals: by event time (bid.at, ask.at, rate.at), then stream order in the query" in told
    branches = [eddy.Branch([ask], ["bid.k = ask.k"], "left")]
    told = explain(eddy.Query([bid], branches=branches, as_of=[theirs]), frames, partitions=4)
    assert "rate: 4 copies of each tuple" in told


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (
            eddy.Table("rate", AT, key="k", version="v"),
            {},
            "table rate: rows look it up when they arrive, and on Spark .* arrive in no order; make it a",
        ),
        (
            eddy.VersionedTable("rate", AT.append(pa.field("l", pa.list_(pa.int64()))), key="k", time="at"),
            {},
            "stream 'rate', column 'l': values of type list.* have no order, but the versions of a table have",
        ),
        (
            eddy.VersionedTable("rate", AT, key="k", time="at"),
            {"order_by": {"bid": "v", "rate": "v"}},
            "order_by: rows get the versions of table 'rate' at their event times",
        ),
        (
            eddy.VersionedTable("rate", AT, key="k", time="at"),
            {"placement": "hops"},
            "placement='hops': it has as-of joins; such a join runs in one round",
        ),
    ],
)
def test_what_is_refused(spark: SparkSession, table: Any, options: dict[str, Any], message: str) -> None:
    query = eddy.Query([eddy.Stream("bid", AT, time="at")], as_of=[eddy.AsOf(table, ["bid.k = rate.k"])])
    frame = spark.createDataFrame([], "k long, at long, v long, l array<long>")
    with pytest.raises((SparkJoinError, eddy.QueryError), match=message):
        join(query, {"bid": frame, "rate": frame}, **options)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((None, 1, 2), "table rate: row 0 of the push has no key: k=None"),
        ((1, None, 2), "column 'at': 1 rows are null"),
    ],
)
def test_bad_versions_end_the_join(spark: SparkSession, row: tuple[Any, ...], message: str) -> None:
    bid, _, rate, _ = of_bids()
    query = eddy.Query([bid], as_of=[eddy.AsOf(rate, ["bid.k = rate.k"])])
    frames = {name: spark.createDataFrame([row], "k long, at long, v long") for name in ("bid", "rate")}
    frames["bid"] = frames["bid"].limit(0)
    with pytest.raises(Exception, match=message):
        join(query, frames).toArrow()
