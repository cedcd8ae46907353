"""`eddy.spark.join` on Spark: both transports give the oracle's results, types are right, refusals give the reason."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import eddy
from eddy.fuzz.oracle import Row
from eddy.spark import SparkJoinError, explain, join
from eddy.spark.types import spark_schema
from tests.cases import Condition, JoinCase, StreamCase, arrow_rows, assert_same, feed, results, text_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UTC = dt.UTC
START = dt.datetime(2024, 3, 1, tzinfo=UTC)


def files_of(spark: SparkSession, tables: Mapping[str, pa.Table], folder: Path) -> dict[str, DataFrame]:
    """Write each stream to a folder of two Parquet files with small row groups."""
    frames = {}
    for name, table in tables.items():
        (folder / name).mkdir(parents=True)
        half = table.num_rows // 2
        for k, part in enumerate((table.slice(0, half), table.slice(half))):
            pq.write_table(part, folder / name / f"part {k}.parquet", row_group_size=17)
        frames[name] = spark.read.parquet(str(folder / name))
    return frames


def check(
    spark: SparkSession, folder: Path, case: JoinCase, rows: Mapping[str, list[Row]], order: str, **how: Any
) -> None:
    """Join through both transports and compare with the oracle, fed by (the column `order`, stream)."""
    tables = {
        stream.name: pa.Table.from_batches([arrow_rows(stream.schema, rows[stream.name])]) for stream in case.streams
    }
    frames = files_of(spark, tables, folder)
    oracle = case.oracle()
    arrivals = [(i, row) for i, stream in enumerate(case.streams) for row in rows[stream.name]]
    arrivals.sort(key=lambda arrival: (arrival[1][order], arrival[0]))
    expected = [case.project(oracle, result) for result in results(feed(case, oracle, arrivals))]
    assert len(expected) > 20, "the test should not be about nothing"
    for transport in ("packed", "rows"):
        got = join(case.query(), frames, transport=transport, **how)
        assert_same(text_rows(got.toArrow()), expected, transport)


def nanoseconds(k: int) -> int:
    return int(START.timestamp()) * 10**9 + k * 10**9


@pytest.mark.versions
def test_a_key_of_strings_and_instants_with_filters(spark: SparkSession, tmp_path: Path) -> None:
    """One class, windows from intervals, a comparison, nulls in the key, filters, a projection."""
    chance = random.Random(1)
    schema = pa.schema(
        [("key", pa.string()), ("at", pa.timestamp("us", "UTC")), ("v", pa.int32()), ("x", pa.float64())]
    )
    keep = Condition(pc.field("v") > 1, lambda row: row["v"] is not None and row["v"] > 1)
    where = Condition(pc.field("R.v") != 3, lambda values: values["R.v"] != 3)
    streams = tuple(StreamCase(name, schema, "derived", 0, "at", keep if name == "S" else None) for name in "RST")
    at = {name: (name, "at") for name in "RST"}
    case = JoinCase(
        streams,
        (((("R", "key"), ("S", "key")),), ((("S", "key"), ("T", "key")),)),
        select=(("k", ("R", "key")), ("r", ("R", "v")), ("t", ("T", "at")), ("x", ("S", "x"))),
        where=where,
        comparisons=(
            *((at["S"], ">=", at["R"], -3 * 10**9), (at["S"], "<=", at["R"], 4 * 10**9)),
            *((at["T"], ">", at["S"], -5 * 10**9), (at["T"], "<", at["S"], 4 * 10**9)),
            (("R", "x"), "<", ("T", "x"), 0),
        ),
    )
    rows = {
        name: [
            {
                "key": chance.choice(["a", "b", "", "äöü", None]),
                "at": nanoseconds(chance.randrange(40)),
                "v": chance.choice([1, 2, 3, None]) if name == "S" else chance.choice([1, 2, 3]),
                "x": chance.random(),
            }
            for _ in range(60)
        ]
        for name in "RST"
    }
    check(spark, tmp_path, case, rows, "at", partitions=3)


def test_a_chain_with_decimals_through_a_hypercube(spark: SparkSession, tmp_path: Path) -> None:
    """Three classes of different types, unbounded windows, different widths and scales between the streams."""
    chance = random.Random(2)
    schemas = {
        "R": pa.schema([("a", pa.int32()), ("n", pa.int64())]),
        "S": pa.schema([("a", pa.int64()), ("b", pa.decimal128(6, 2)), ("n", pa.int64())]),
        "T": pa.schema([("b", pa.decimal128(9, 4)), ("c", pa.date32()), ("n", pa.int64())]),
        "U": pa.schema([("c", pa.date32()), ("n", pa.int64())]),
    }
    values = {
        "a": [0, 1, 2, None],
        "b": [Decimal("0.5"), Decimal("1.25"), None],
        "c": [19_723, -719_162],
    }
    case = JoinCase(
        tuple(StreamCase(name, schema) for name, schema in schemas.items()),
        (((("R", "a"), ("S", "a")),), ((("S", "b"), ("T", "b")),), ((("T", "c"), ("U", "c")),)),
    )
    rows = {
        name: [{c: i if c == "n" else chance.choice(values[c]) for c in schema.names} for i in range(12)]
        for name, schema in schemas.items()
    }
    check(spark, tmp_path, case, rows, "n", partitions=4)


def test_a_window_of_rows_in_one_partition(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(3)
    schema = pa.schema([("k", pa.int64()), ("flag", pa.bool_()), ("seq", pa.int64())])
    case = JoinCase(
        tuple(StreamCase(name, schema, "rows", 7) for name in "RS"),
        (((("R", "k"), ("S", "k")), (("R", "flag"), ("S", "flag"))),),
    )
    numbers = chance.sample(range(1000), 200)
    rows = {
        name: [
            {"k": chance.choice([1, 2, None]), "flag": chance.random() < 0.5, "seq": numbers.pop()} for _ in range(100)
        ]
        for name in "RS"
    }
    check(spark, tmp_path, case, rows, "seq", order_by={"R": "seq", "S": "seq"})


def two(schema: pa.Schema, other: pa.Schema | None = None, **more: Any) -> eddy.Query:
    return eddy.Query([eddy.Stream("R", schema), eddy.Stream("S", other or schema)], ["R.k = S.k"], **more)


@pytest.mark.versions
def test_types_come_out_as_spark_has_them(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("k", pa.uint32()),
            ("ms", pa.timestamp("ms")),
            ("utc", pa.timestamp("us", "Europe/Berlin")),
            ("d", pa.decimal128(10, 3)),
            ("bytes", pa.large_binary()),
            ("colour", pa.dictionary(pa.int8(), pa.string())),
            ("many", pa.list_(pa.uint8())),
            ("pair", pa.struct([("x", pa.float32()), ("y", pa.string())])),
            ("small", pa.uint8()),
        ]
    )
    row = {
        "k": 2**32 - 1,
        "ms": dt.datetime(2024, 1, 2, 3, 4, 5, 6000),
        "utc": START,
        "d": Decimal("12.345"),
        "bytes": b"\0\1",
        "colour": "red",
        "many": [1, 255],
        "pair": {"x": 0.5, "y": None},
        "small": 255,
    }
    table = pa.Table.from_pylist([row], schema=schema)
    frames = files_of(spark, {"R": table, "S": table}, tmp_path)
    query = two(schema, select={name: f"R.{name}" for name in schema.names})
    want = (
        "struct<k:bigint,ms:timestamp_ntz,utc:timestamp,d:decimal(10,3),bytes:binary,colour:string,"
        "many:array<smallint>,pair:struct<x:float,y:string>,small:smallint>"
    )
    for transport in ("packed", "rows"):
        out = join(query, frames, transport=transport)
        assert out.schema.simpleString() == want
        (got,) = out.toArrow().to_pylist()
        assert {**got, "utc": got["utc"].astimezone(UTC)} == row, transport


def test_views_runs_dictionaries_and_extensions(spark: SparkSession, tmp_path: Path) -> None:
    view, list_view = pa.string_view(), pa.list_view(pa.string_view())
    schema = pa.schema(
        [
            ("k", view),
            ("t", pa.run_end_encoded(pa.int32(), pa.timestamp("us"))),
            ("d", pa.dictionary(pa.int8(), pa.string_view())),
            ("b", pa.binary_view()),
            ("id", pa.uuid()),
            ("n", pa.decimal32(6, 2)),
            ("l", list_view),
            ("s", pa.struct([("v", list_view), ("w", pa.dictionary(pa.int8(), pa.string()))])),
            ("m", pa.map_(pa.string_view(), pa.large_list_view(pa.int64()))),
        ]
    )
    rows = [
        {
            "k": f"key {n % 4}" if n % 5 else None,
            "t": START.replace(tzinfo=None) + dt.timedelta(seconds=n),
            "d": "red",
            "b": bytes([n]),
            "id": bytes([n]) * 16,
            "n": Decimal(n).scaleb(-2),
            "l": ["a", None] if n % 3 else None,
            "s": {"v": ["b"], "w": "blue"} if n % 2 else {"v": None, "w": None},
            "m": [("x", [n])],
        }
        for n in range(40)
    ]
    frames = files_of(spark, dict.fromkeys("RS", pa.Table.from_pylist(rows, schema=spark_schema(schema))), tmp_path)
    given = eddy.Predicate(lambda batch: pc.is_valid(batch["l"]), ["l"])
    seconds = eddy.Range(dt.timedelta(seconds=9))
    streams = [eddy.Stream(name, schema, seconds, time="t", filter=given) for name in "RS"]
    select = [f"{name}.{column}" for name, column in zip("RSRSRSRSR", schema.names, strict=True)]
    query = eddy.Query(streams, ["R.k = S.k", "R.id = S.id"], select=select)
    expected = [tuple(row.values()) for row in rows if row["k"] is not None and row["l"] is not None]
    assert len(expected) > 20
    for transport in ("packed", "rows"):
        got = join(query, frames, transport=transport).toArrow()
        assert [str(tuple(row.values())) for row in sorted(got.to_pylist(), key=lambda row: row["S.t"])] == [
            *map(str, expected)
        ], transport


def test_any_frame_goes_as_rows_and_the_plan_shows_it(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("odd `name.", pa.string())])
    table = pa.Table.from_pylist([{"k": k, "odd `name.": str(k)} for k in range(10)], schema=schema)
    frame = spark.createDataFrame(table)
    query = two(schema)
    out = join(query, {"R": frame, "S": frame.where("k > 4")}, partitions=4)
    assert sorted(row[1] for row in out.collect()) == ["5", "6", "7", "8", "9"]
    plan = out._jdf.queryExecution().toString()
    assert "eddy_join[4 partitions by key: R.k = S.k]" in plan
    assert "eddy_split[R]" in plan
    text = explain(query, {"R": frame, "S": frame})
    assert "2 partitions by key: R.k = S.k" in text
    assert "rows: the DataFrame of stream 'R' is not a plain scan" in text
    assert "every order gives the same results" in text


def test_which_frames_the_workers_may_read_themselves(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    table = pa.Table.from_pylist([{"k": k, "v": 10 * k} for k in range(10)], schema=schema)
    scan = files_of(spark, {"R": table}, tmp_path)["R"]
    scan.write.partitionBy("v").parquet(str(tmp_path / "partitioned"))
    query = two(schema)

    def way(frame: DataFrame) -> str:
        return explain(query, {"R": scan, "S": frame}).split("transport: ")[1].splitlines()[0]

    assert way(scan) == "packed: the workers read 2 Parquet files"
    renamed = scan.selectExpr("v as k", "k as v")
    assert way(renamed).startswith("packed")
    assert "a Filter" in way(scan.where("k > 1"))
    assert "Limit" in way(scan.limit(3))
    assert "column 'v' is computed" in way(scan.selectExpr("k", "v + 1 as v"))
    assert "partitioned by columns" in way(spark.read.parquet(str(tmp_path / "partitioned")))
    assert "column 'v' has type int64 in" in way(spark.read.schema("k bigint, v int").parquet(str(tmp_path / "R")))
    cached = scan.select("*").cache()
    assert "InMemoryRelation" in way(cached)
    cached.unpersist()
    with pytest.raises(SparkJoinError, match=r"stream 'S' is not a plain scan.*a Filter.*transport='auto'"):
        join(query, {"R": scan, "S": scan.where("k > 1")}, transport="packed")
    out = join(query, {"R": scan, "S": renamed}, transport="packed")
    assert out.toArrow().to_pylist() == [{"R.k": 0, "R.v": 0, "S.k": 0, "S.v": 0}]


def test_refusals(spark: SparkSession) -> None:
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us"))])
    frame = spark.createDataFrame([], "k bigint, t timestamp_ntz")
    both = {"R": frame, "S": frame}

    def streams(window: eddy.Rows | eddy.Range, time: str | None = "t") -> eddy.Query:
        return eddy.Query([eddy.Stream(name, schema, window=window, time=time) for name in "RS"], ["R.k = S.k"])

    day = dt.timedelta(days=1)
    refused = [
        (streams(eddy.Rows(5)), both, {"partitions": 2}, r"stream 'R' has a Rows window.*partitions=1.*Range"),
        (streams(eddy.Rows(5), None), both, {}, r"order of arrival is not defined: stream 'R' has no time.*order_by"),
        (streams(eddy.Range(day)), both, {"order_by": {"R": "k", "S": "k"}}, "order_by: .*'R' has a Range window"),
        (streams(eddy.Rows(5)), both, {"order_by": {"R": "k"}}, "order_by names no column for stream 'S'"),
        (streams(eddy.Rows(5)), both, {"order_by": {"R": "k", "S": "z"}}, "stream 'S' has no column 'z'"),
        (streams(eddy.Rows(5)), both, {"order_by": {"R": "k", "S": "t"}}, "S.t is timestamp"),
        (streams(eddy.Rows(5)), both, {"order_by": {"R": "k", "S": "k", "X": "k"}}, "'X', which is not a stream"),
        (streams(eddy.Range(day)), {"R": frame}, {}, "stream 'S' has no DataFrame"),
        (streams(eddy.Range(day)), {**both, "T": frame}, {}, "given for 'T', which is not a stream"),
        (streams(eddy.Range(day)), {"R": frame.drop("k"), "S": frame}, {}, "stream 'R': the query needs column 'k'"),
        (two(schema), {"R": frame.selectExpr("string(k) k", "t"), "S": frame}, {}, "int64, the DataFrame has string"),
        (two(schema), {"R": frame.selectExpr("k", "timestamp(t) t"), "S": frame}, {}, "an instant.*tz='UTC'"),
        (two(schema), both, {"transport": "pigeon"}, "'auto', 'rows' or 'packed'"),
        (two(schema), both, {"partitions": 0}, "partitions=0"),
    ]
    for query, frames, how, message in refused:
        with pytest.raises(SparkJoinError, match=message):
            join(query, frames, **how)
    with pytest.raises(eddy.PlanError):
        join(two(schema), both, plan="(R X)")
    listed = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("l", pa.list_(pa.int8()))])
    rows = eddy.Query([eddy.Stream(name, listed, window=eddy.Rows(2), time="t") for name in "RS"], ["R.k = S.k"])
    frame = spark.createDataFrame([], "k bigint, t timestamp_ntz, l array<tinyint>")
    with pytest.raises(SparkJoinError, match=r"column 'l': values of type list.* have no order"):
        join(rows, {"R": frame, "S": frame})


def test_a_failing_task_names_stream_column_and_value(spark: SparkSession) -> None:
    schema = pa.schema([("k", pa.int8())])
    # Only one of the two can fail: tasks of both run side by side, and the error reports the first to fail.
    frames = {"R": spark.createDataFrame([(1000,)], "k bigint"), "S": spark.createDataFrame([(100,)], "k bigint")}
    with pytest.raises(Exception, match=r"stream 'R', column 'k': a value of type int64 does not fit int8.*1000"):
        join(two(schema), frames).collect()
