"""First rows of groups on Spark: a batch join has the answer of a `Runtime`, and the oracle's for equal orders."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import eddy
from eddy.fuzz.top_oracle import OracleOrder, first_rows
from eddy.spark import explain, join, sql
from tests.spark.test_as_of import counted
from tests.spark.test_join import files_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = pa.schema(
    [
        ("k", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.dictionary(pa.int8(), pa.string())),
        ("t", pa.int64()),
        ("v", pa.int64()),
    ]
)
STREAMS = [eddy.Stream(name, ROWS, eddy.Range(20), "t") for name in "RS"]
ON = ["R.k = S.k"]
RATES = eddy.VersionedTable("V", ROWS, key="k", time="t")
ORDERS = eddy.Table("T", ROWS, key="v", version="t")


def tables(rows: int = 60) -> dict[str, pa.Table]:
    """Return rows with a number each, `v`, and other values that repeat."""
    chance, made = Random(2), {}
    for name in "RSVT":
        xs, texts = [0.0, -0.0, 1.5, float("nan"), None], ["a", "b", "ab", None]
        made[name] = pa.Table.from_pylist(
            [
                {"k": chance.randrange(5), "x": chance.choice(xs), "s": chance.choice(texts), "t": t, "v": v}
                for v, t in enumerate(chance.sample(range(rows), rows))
            ],
            schema=ROWS,
        )
    return made


@pytest.fixture(scope="module")
def frames(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, DataFrame]:
    return files_of(spark, tables(), tmp_path_factory.mktemp("top"))


LEFT = eddy.Branch([STREAMS[1]], [*ON, "S.t between R.t and R.t + 3"], "left")
SUMS: dict[str, Any] = {"aggregates": {"n": eddy.agg.count(), "most": eddy.agg.max("R.v")}}
QUERIES = {
    "by a key": eddy.Query(STREAMS, ON, top=eddy.Top(3, "R.k", ["S.v desc", "R.v"])),
    "by another column": eddy.Query(STREAMS, ON, top=eddy.Top(2, "R.s", ["R.v", "S.v"], rank="place")),
    "by floats": eddy.Query(STREAMS, ON, top=eddy.Top(2, "R.x", ["S.x desc nulls first", "R.v", "S.v"])),
    "by nothing": eddy.Query(STREAMS, ON, top=eddy.Top(7, order=["S.s", "R.v", "S.v"])),
    "columns that are not selected": eddy.Query(
        STREAMS, ON, select={"v": "R.v", "w": "S.v"}, top=eddy.Top(2, ["R.k", "S.s"], ["R.v + S.v", "R.v"])
    ),
    "a branch": eddy.Query(STREAMS[:1], branches=[LEFT], top=eddy.Top(2, "S.s", ["R.v", "S.v"])),
    "one stream": eddy.Query(STREAMS[:1], top=eddy.Top(1, "R.s", "R.v desc"), select=["R.v", "R.s"]),
    "versions": eddy.Query(STREAMS[:1], as_of=[eddy.AsOf(RATES, ["R.k = V.k"])], top=eddy.Top(2, "V.s", "R.v")),
    "groups": eddy.Query(STREAMS, ON, group_by=["R.s"], top=eddy.Top(2, order="n desc", rank="place"), **SUMS),
    "groups of one stream": eddy.Query(STREAMS[:1], group_by=["R.s", "R.k"], top=eddy.Top(1, "R.k", "most"), **SUMS),
    "windows": eddy.Query(
        STREAMS,
        ON,
        group_by=["R.s"],
        group_window=eddy.Tumbling(10),
        top=eddy.Top(1, "window_start", "n * 2 desc"),
        select={"s": "R.s", "start": "window_start", "most": "most"},
        **SUMS,
    ),
}


def values(table: pa.Table) -> Counter[tuple[str, ...]]:
    """Return the rows as text: NaN is equal to NaN then, and 0.0 to -0.0."""
    return Counter(
        tuple(repr(cell + 0.0 if isinstance(cell, float) else cell) for cell in row)
        for row in counted(table).elements()
    )


@pytest.mark.parametrize("name", QUERIES)
def test_the_answer_is_that_of_a_runtime(frames: dict[str, DataFrame], name: str) -> None:
    query, rows = QUERIES[name], tables()
    runtime = eddy.Runtime(query, bounded=True)
    pushed = runtime.push({stream.name: rows[stream.name] for stream in query.streams})
    expected = values(pa.concat_tables([pushed, runtime.finish()]))
    joined = join(query, {stream.name: frames[stream.name] for stream in query.streams}, partitions=3)
    assert joined.columns == query.output_schema.names
    assert values(joined.toArrow()) == expected
    assert expected


def test_the_last_rows_of_a_table(frames: dict[str, DataFrame]) -> None:
    stream = eddy.Stream("R", ROWS)
    query = eddy.Query([stream, ORDERS], ["R.k = T.k"], top=eddy.Top(2, "R.k", ["T.v desc", "R.v"]))
    runtime, rows = eddy.Runtime(query, output="changelog"), tables()
    expected = runtime.push({name: rows[name] for name in "RT"}, atomic=True).drop_columns(["op"])
    assert values(join(query, {name: frames[name] for name in "RT"}).toArrow()) == values(expected)


def test_rows_of_one_order_come_in_the_order_of_their_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Equal rows count each, whichever task has them."""
    schema, chance = pa.schema([("k", pa.int64()), ("s", pa.string()), ("v", pa.int64())]), Random(5)
    rows = [
        {"k": chance.randrange(4), "s": chance.choice(["a", "b", None]), "v": chance.randrange(3)} for _ in range(90)
    ]
    (frame,) = files_of(spark, {"R": pa.Table.from_pylist(rows, schema=schema)}, tmp_path).values()
    query = eddy.Query([eddy.Stream("R", schema)], top=eddy.Top(25, "R.k", "R.v desc"))
    order = [OracleOrder("v", descending=True), OracleOrder("s"), OracleOrder("k")]
    best = first_rows({(k,): row for k, row in enumerate(rows)}, ["k"], order, 25)
    expected = Counter(tuple(rows[k].values()) for ranked in best.values() for (k,) in ranked)
    for partitions in (1, 3):
        assert counted(join(query, {"R": frame.repartition(4)}, partitions=partitions).toArrow()) == expected


def test_a_statement_of_sql(frames: dict[str, DataFrame]) -> None:
    spark = frames["R"].sparkSession
    frames["R"].createOrReplaceTempView("R")
    text = "SELECT k, v FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM R) WHERE n <= 2"
    best = values(sql(spark, text).toArrow())
    assert best == values(spark.sql(text).toArrow())
    assert best.total() == 10


def test_explain(frames: dict[str, DataFrame]) -> None:
    both = {name: frames[name] for name in "RS"}
    assert "top: first rows of each task are dealt out by R.s" in explain(QUERIES["by another column"], both)
    told = explain(QUERIES["groups"], both)
    assert "top: one task has the first rows of all tasks" in told
    assert "aggregates: results are dealt out by R.s" in told


def test_what_is_refused(frames: dict[str, DataFrame]) -> None:
    both = {name: frames[name] for name in "RS"}
    listed = eddy.Stream("R", ROWS.append(pa.field("l", pa.list_(pa.int64()))))
    query = eddy.Query([listed], top=eddy.Top(1, "R.k"))
    with pytest.raises(
        eddy.QueryError, match=r"in the order of their output columns, and R.l is list.* select another"
    ):
        join(query, {"R": frames["R"].selectExpr("*", "array(1L) AS l")})
    window: dict[str, Any] = {"group_window": eddy.Tumbling(10), "top": eddy.Top(1, order="n")}
    with pytest.raises(eddy.InputError, match="name the window in by="):
        join(eddy.Query(STREAMS, ON, **window, **SUMS), both)
