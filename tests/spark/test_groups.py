"""Aggregates of batch joins on Spark are those of a Runtime over the same rows."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy import agg
from eddy.spark import SparkJoinError, explain, join, sql
from tests.cases import text_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ROWS = pa.schema(
    [
        ("k", pa.int64()),
        ("g", pa.float64()),
        ("name", pa.string()),
        ("price", pa.decimal128(12, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def drawn(seed: int, count: int = 150) -> pa.Table:
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for i in range(count):
        row = {
            "k": chance.choice([*range(6), None]),
            "g": chance.choice([0.0, -0.0, float("nan"), 0.1, 1e300, None]),
            "name": chance.choice(["a", "B", "", None]),
            "price": chance.choice([Decimal("1.10"), Decimal("-7.25"), None]),
            "at": START + dt.timedelta(seconds=i),
        }
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=ROWS)


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    return {"R": drawn(1), "S": drawn(2)}


@pytest.fixture(scope="module")
def frames(spark: SparkSession, tables: dict[str, pa.Table]) -> dict[str, DataFrame]:
    return {name: spark.createDataFrame(table) for name, table in tables.items()}


STREAMS = [eddy.Stream(name, ROWS, window=eddy.Range(dt.timedelta(seconds=20)), time="at") for name in "RS"]
ALL = {
    "n": agg.count(),
    "total": agg.sum("S.price"),
    "floats": agg.sum(pc.multiply(pc.field("S.k"), 0.1)),
    "mean": agg.avg("S.k"),
    "least": agg.min("R.name"),
    "kinds": agg.count_distinct("S.name"),
    "last": agg.last("S.price"),
}
QUERIES = {
    "floats as keys": eddy.Query(STREAMS, ["R.k = S.k"], group_by=["R.g"], aggregates=ALL),
    "expressions and having": eddy.Query(
        STREAMS,
        ["R.k = S.k"],
        group_by={"odd": pc.bit_wise_and(pc.field("R.k"), 1), "S.name": "S.name"},
        aggregates=ALL,
        having=pc.field("n") > 5,
        where=pc.field("S.k") > 0,
    ),
    "windows": eddy.Query(
        STREAMS,
        ["R.k = S.k"],
        group_by=["R.name"],
        aggregates=ALL,
        group_window=eddy.Hopping(dt.timedelta(seconds=30), dt.timedelta(seconds=10)),
        select=["R.name", "window_end", "n", "total"],
    ),
    "sessions of one stream": eddy.Query(
        [eddy.Stream("S", ROWS, time="at", filter=pc.field("k") > 1)],
        group_by=["S.k"],
        aggregates={"n": agg.count(), "total": agg.sum("S.price")},
        where=pc.field("S.name") != "a",
        group_window=eddy.Session(dt.timedelta(seconds=6)),
    ),
    "branches": eddy.Query(
        STREAMS[:1],
        branches=[eddy.Branch(STREAMS[1:], ["R.k = S.k"], how="left")],
        group_by=["R.name"],
        aggregates={"n": agg.count(), "found": agg.count("S.k"), "total": agg.sum("S.price")},
    ),
    "no keys": eddy.Query(STREAMS, ["R.k = S.k"], aggregates=ALL),
}


@pytest.mark.parametrize("name", QUERIES)
def test_groups_are_those_of_a_runtime(name: str, tables: dict[str, pa.Table], frames: dict[str, DataFrame]) -> None:
    query = QUERIES[name]
    names = [stream.name for stream in query.streams]
    runtime = eddy.Runtime(query, bounded=True)
    wanted = pa.concat_tables(
        [runtime.push({stream_name: tables[stream_name] for stream_name in names}), runtime.finish()]
    )
    joined = join(query, {stream_name: frames[stream_name] for stream_name in names}, partitions=3).toArrow()
    assert joined.num_rows > 0
    assert sorted(text_rows(joined)) == sorted(text_rows(wanted.cast(joined.schema)))


def test_no_results_make_one_row_without_keys_and_none_with_them(frames: dict[str, DataFrame]) -> None:
    none = {name: frame.where("k > 100") for name, frame in frames.items()}
    (row,) = join(QUERIES["no keys"], none).toArrow().to_pylist()
    assert row["n"] == row["kinds"] == 0
    assert row["total"] is None
    assert join(QUERIES["floats as keys"], none).count() == 0


@pytest.mark.versions
def test_sql_groups_views(spark: SparkSession, frames: dict[str, DataFrame]) -> None:
    for name, frame in frames.items():
        frame.createOrReplaceTempView(f"groups_{name}")
    text = """
        SELECT r.name, COUNT(*) AS n, SUM(s.price) AS total FROM groups_R AS r JOIN groups_S AS s
        ON r.k = s.k AND s.at BETWEEN r.at AND r.at + INTERVAL '20' SECOND GROUP BY r.name HAVING COUNT(*) > 3
    """
    joined = sql(spark, text, times={"groups_R": "at", "groups_S": "at"})
    assert sorted(map(tuple, joined.collect()), key=repr) == sorted(map(tuple, spark.sql(text).collect()), key=repr)


def test_explain_and_refusals(frames: dict[str, DataFrame]) -> None:
    assert "aggregates: results are dealt out by R.g" in explain(QUERIES["floats as keys"], frames)
    assert "one task aggregates all results" in explain(QUERIES["no keys"], frames)
    query = QUERIES["sessions of one stream"]
    with pytest.raises(SparkJoinError, match="orders the rows of several streams"):
        join(query, {"S": frames["S"]}, order_by={"S": "at"})
