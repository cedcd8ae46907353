"""Wrong arguments, and the messages for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import eddy
from eddy.spark import Hub, Source, SparkJoinError, explain, join
from eddy.spark import filter as filter_rows
from tests.spark.streaming.jobs import Inputs, published, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64())])


def query(window: eddy.Range | eddy.Rows | eddy.Unbounded | None = None, **more: Any) -> eddy.Query:
    streams = [eddy.Stream(name, SCHEMA, window=window or eddy.Range(10), time="t") for name in "RS"]
    return eddy.Query(streams, ["R.k = S.k"], **more)


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ("orders", r"this is the text 'orders'; pass for the table or view of this name spark.table\('orders'\)"),
        (
            pd.DataFrame({"k": [1], "t": [1]}),
            r"this is a pandas.DataFrame; pass for its rows spark.createDataFrame\(frame\)",
        ),
        (SCHEMA.empty_table(), r"this is a pyarrow.Table; pass for its rows spark.createDataFrame\(frame\)"),
        (pl.DataFrame({"k": [1]}), r"this is a polars.DataFrame; .* spark.createDataFrame\(frame.to_arrow\(\)\)"),
        (None, r"this is a NoneType; pass such as spark.table"),
        (print, r"a Spark DataFrame is needed, and this is a builtin_function_or_method"),
    ],
    ids=["name", "pandas", "arrow", "polars", "none", "function"],
)
def test_what_is_no_dataframe_gets_the_remedy(wrong: Any, remedy: str) -> None:
    for call in (join, explain):
        with pytest.raises(SparkJoinError, match=f"^stream 'R': .*{remedy}"):
            call(query(), {"R": wrong, "S": wrong}, checkpoint="state")
        with pytest.raises(SparkJoinError, match=r"pass a mapping from stream to DataFrame, \{'R': …, 'S': …\}"):
            call(query(), wrong)
    with pytest.raises(SparkJoinError, match=f"^stream 'R': .*{remedy}"):
        Hub(None, [Source(stream, wrong, key="k") for stream in query().streams], "state")  # type: ignore[arg-type]
    with pytest.raises(SparkJoinError, match=f"^eddy.spark.filter: .*{remedy}"):
        filter_rows(wrong, [])
    with pytest.raises(SparkJoinError, match=r"the query is text: pass an eddy.Query, or the text to eddy.spark.sql"):
        join("SELECT 1", {})  # type: ignore[call-overload]
    with pytest.raises(SparkJoinError, match=r"the query is a list: pass an eddy.Query"):
        join([], {})  # type: ignore[call-overload]


@pytest.fixture
def frames(spark: SparkSession, tmp_path: Path) -> dict[str, DataFrame]:
    return Inputs(tmp_path / "in", R=SCHEMA, S=SCHEMA).frames(spark)


def test_arguments_of_the_join(frames: dict[str, DataFrame], spark: SparkSession, tmp_path: Path) -> None:
    batch = spark.createDataFrame([], "k long, t long")
    there: dict[str, Any] = {"checkpoint": tmp_path / "state"}
    changelog = {**there, "output": "changelog"}
    counted = eddy.Query(query().streams, query().on, group_by=["R.k"], aggregates={"n": eddy.agg.count()})
    cases: list[tuple[eddy.Query, dict[str, DataFrame], dict[str, Any], str]] = [
        (query(), frames, {}, "needs checkpoint=, a directory that the driver and all workers reach"),
        (query(), {"R": batch, "S": batch}, there, "checkpoint= is for streaming DataFrames.*leave it out"),
        (query(), {**frames, "S": batch}, there, r"stream 'S': its DataFrame is a batch one.*spark\.readStream"),
        (query(), frames, {**there, "order_by": {"R": "t", "S": "t"}}, "order_by= is for batch DataFrames"),
        (query(eddy.Rows(5)), frames, there, "stream 'R' has a Rows window.*use a Range window"),
        (query(), {"R": frames["R"]}, there, "stream 'S' has no DataFrame"),
        (query(), {**frames, "T": frames["R"]}, there, "given for 'T', which is not a stream"),
        (query(), {**frames, "S": frames["S"].drop("t")}, there, "stream 'S': the query needs column 't'"),
        (query(), {**frames, "S": frames["S"].selectExpr("'' k", "t")}, there, "int64, the DataFrame has string"),
        (query(), frames, {"checkpoint": "hdfs://a/b"}, "'hdfs://a/b' is no URL of an object store"),
        (query(), frames, {**there, "transport": "pigeon"}, "transport='pigeon': pass 'auto', 'rows' or 'packed'"),
        (query(), frames, {**there, "rebalance": "often"}, "rebalance='often': pass 'auto' or 'off', or a Rebalancer"),
        (query(), frames, {**there, "key_groups": 0}, "key_groups=0: give 1 or more"),
        (query(), frames, {**there, "partitions": 0}, "partitions=0: give 1 or more"),
        (query(), frames, {**there, "partitions": 5, "key_groups": 4}, "partitions=5: give 1 to 4"),
        (query(), frames, {**there, "keep": 1}, "keep=1: give 2 or more"),
        (query(), frames, {**there, "watermark": "fastest"}, "watermark='fastest': pass one of 'slowest'"),
        (query(), frames, {**there, "lateness": {"X": 1}}, "lateness: the query has no stream 'X'"),
        (query(), frames, {**there, "lateness": {"S": -1}}, "lateness of stream S: -1 is negative"),
        (query(), frames, {**there, "idle_after": 0}, "idle_after=0.0: give a time above 0"),
        (query(eddy.Unbounded()), frames, {**there, "lateness": 3}, "lateness of stream R: 3 without a RANGE"),
        (query(), frames, {**there, "output": "upsert"}, "output='upsert': pass 'append' or 'changelog'"),
        (query(), {"R": batch, "S": batch}, {"output": "changelog"}, "output='changelog' is for streaming DataFrames"),
        (query(eddy.Unbounded()), frames, changelog, "output='changelog': no result ever ends"),
        (query(eddy.Rows(5)), frames, changelog, "output='changelog': stream R has a Rows window"),
        (counted, frames, changelog, "output='changelog' is for joins without aggregates"),
        (query(), frames, {**changelog, "change": "handover"}, "change= is for queries whose results are not taken"),
        (query(), frames, {**changelog, "placement": "hops"}, "output='changelog' takes results back"),
    ]
    for asked, given, how, message in cases:
        with pytest.raises(SparkJoinError, match=message):
            join(asked, given, **how)
    with pytest.raises(eddy.PlanError):
        join(query(), frames, plan="(R X)", **there)
    assert not (tmp_path / "state").exists()


def test_frames_of_spark_connect_are_refused(tmp_path: Path) -> None:
    class Connected:
        isStreaming = True

    frames: dict[str, Any] = {"R": Connected(), "S": Connected()}
    with pytest.raises(SparkJoinError, match=r"stream 'R': its DataFrame lives in Spark Connect.*a classic session"):
        join(query(), frames, checkpoint=tmp_path / "state")


def test_a_type_that_spark_lacks_is_refused_before_anything_runs(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("u", pa.union([pa.field("a", pa.int8())], "sparse"))])
    frame = Inputs(tmp_path / "in", R=SCHEMA).frame(spark, "R").selectExpr("k", "t AS u")
    asked = eddy.Query([eddy.Stream(name, schema) for name in "RS"], ["R.k = S.k"])
    with pytest.raises(SparkJoinError, match="column 'u'"):
        join(asked, {"R": frame, "S": frame}, checkpoint=tmp_path / "state")


def test_arguments_of_the_writer(frames: dict[str, DataFrame], tmp_path: Path) -> None:
    """After each error the checkpoint is free."""
    joined = join(query(), frames, checkpoint=tmp_path / "state")
    assert joined.isStreaming
    for wrong, message in (
        (lambda writer: writer.format("csv"), r"format\('csv'\): pass one of parquet, transactions"),
        (lambda writer: writer.outputMode("update"), r"outputMode\('update'\): .* 'append'"),
        (lambda writer: writer.option("checkpointLocation", "/there"), "pass checkpoint= to eddy.spark.join"),
        (lambda writer: writer.trigger(continuous="1 second"), "runs in micro-batches; pass processingTime"),
        (lambda writer: writer.start(), r"the join has no sink: call format\(…\) with one of parquet"),
        (lambda writer: writer.format("parquet").start(), r"format 'parquet' needs a path: call start\(path\)"),
        (lambda writer: writer.format("noop").start("there"), "format 'noop' has no option 'path'; its options: none"),
        (lambda writer: writer.start(format="console", numRows="many"), "numRows='many' is not a whole number above 0"),
        (lambda writer: writer.start(format="console", numRows=0), "numRows='0' is not a whole number above 0"),
        (lambda writer: writer.start("s3://bucket/out", "parquet"), "not a path of a mounted file system"),
        (lambda writer: writer.start(tmp_path / "in", "parquet"), "in holds 'R', which no job published"),
        (lambda writer: writer.format("noop").foreachBatch(print).start(), "foreachBatch and sink take no format"),
        (lambda writer: writer.sink("print"), r"sink\('print'\): pass an instance of a subclass of eddy.spark.Sink"),
        (lambda writer: writer.foreachBatch("print"), "takes a function of a DataFrame and .*, not 'print'"),
    ):
        with pytest.raises(SparkJoinError, match=message):
            wrong(joined.writeStream)
    with pytest.raises(Exception, match="processingTime"):
        joined.writeStream.format("noop").trigger(processingTime="").start()
    outputs = joined.writeStream.outputMode("append").queryName("named").trigger(availableNow=True)
    running = outputs.start(format="noop")
    assert running.awaitTermination(60)
    assert running.name == "named"


def test_what_is_wrong_with_rows_ends_the_query_and_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """For null event times, values that do not fit and files of another type, the error names stream and column."""
    narrow = pa.schema([("k", pa.int8()), ("t", pa.int64())])
    small = eddy.Query([eddy.Stream(n, narrow, window=eddy.Range(9), time="t") for n in "RS"], ["R.k = S.k"])
    for place, asked, row, transport, message in (
        ("null", query(), {"k": 1, "t": None}, "rows", r"stream 'R', column 't': 1 rows are null.*drop or fill them"),
        ("null packed", query(), {"k": 1, "t": None}, "packed", r"stream 'R', column 't': 1 rows are null"),
        ("wide", small, {"k": 1000, "t": 1}, "rows", r"stream 'R', column 'k': a value .* does not fit int8.*1000"),
    ):
        inputs = Inputs(tmp_path / place, R=SCHEMA, S=SCHEMA)
        inputs.add("R", [row])
        with pytest.raises(Exception, match=message):
            run(asked, inputs.frames(spark), tmp_path / place / "state", tmp_path / place / "out", transport=transport)
    inputs = Inputs(tmp_path / "types", R=SCHEMA, S=SCHEMA)
    inputs.add("R", pa.table({"k": ["1"], "t": [1]}))
    with pytest.raises(Exception, match=r"stream 'R': column 'k' has type string in .*rewrite the file, or .*'rows'"):
        run(query(), inputs.frames(spark), tmp_path / "types state", tmp_path / "types out", transport="packed")


def test_null_keys_match_nothing(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", R=SCHEMA, S=SCHEMA)
    for name in "RS":
        inputs.add(name, [{"k": k, "t": 1} for k in (None, 1, None)])
    run(query(), inputs.frames(spark), tmp_path / "state", tmp_path / "out")
    assert published(tmp_path / "out").to_pylist() == [{"R.k": 1, "R.t": 1, "S.k": 1, "S.t": 1}]
