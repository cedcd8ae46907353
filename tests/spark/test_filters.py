"""`eddy.spark.filter`, and functions as filters of a join: workers apply them, with the results of plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import eddy
import eddy.spark
from eddy.spark import SparkJoinError, join

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("text.of it", pa.string()), ("t", pa.timestamp("us", "UTC"))])
N = 3000


def table() -> pa.Table:
    rows = [{"k": k, "text.of it": None if k % 11 == 0 else f"row {k % 7}", "t": k * 10**6} for k in range(N)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def expected() -> list[int]:
    return [k for k in range(N) if k % 11 and k % 7 in (3, 5) and k % 3 == 0 and k > 100]


@pytest.mark.versions
def test_the_rows_of_a_filter_keep_their_schema(spark: SparkSession) -> None:
    frame = spark.createDataFrame(table())
    numbers = {3, 5}
    predicates = [
        lambda batch: np.array([value is not None and int(value[-1]) in numbers for value in batch[1].to_pylist()]),
        eddy.Predicate(lambda batch: np.asarray(batch["k"]) % 3 == 0, columns=["k"]),
        pc.field("k") > 100,
    ]
    kept = eddy.spark.filter(frame, predicates, names=["digit", "thirds", "large"])
    assert kept.schema == frame.schema
    assert "eddy_filter[3 predicates]" in kept._jdf.queryExecution().toString()
    got = kept.toArrow().sort_by("k")
    assert got["k"].to_pylist() == expected()
    assert got["t"].to_pylist() == [table()["t"][k].as_py() for k in expected()]
    assert eddy.spark.filter(frame, []) is frame
    assert eddy.spark.filter(frame, pc.field("k") < 0).count() == 0


def test_a_streaming_frame_is_filtered(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"k": pa.array(range(100), pa.int64())}), tmp_path / "in" / "part.parquet")
    stream = spark.readStream.schema("k bigint").parquet(str(tmp_path / "in"))
    kept = eddy.spark.filter(stream, [pc.field("k") > 89, _even])
    query = (
        kept.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert sorted(row[0] for row in spark.read.parquet(str(tmp_path / "out")).collect()) == [90, 92, 94, 96, 98]


def _even(batch: pa.RecordBatch) -> np.ndarray:
    even: np.ndarray = np.asarray(batch["k"]) % 2 == 0
    return even


def test_a_join_with_functions_as_filters(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("unread", pa.string())])
    rows = pa.table({"k": [k % 40 for k in range(200)], "v": range(200), "unread": ["x"] * 200}, schema=schema)
    pq.write_table(rows, tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
    limit = 150
    streams = [
        eddy.Stream("R", schema, filter=[pc.field("v") < limit, lambda batch: np.asarray(batch["v"]) % 2 == 0]),
        eddy.Stream("S", schema, filter=eddy.Predicate(lambda batch: pc.greater(batch["v"], 60), ["v"])),
    ]
    near = eddy.Predicate(lambda batch: pc.less(pc.abs(pc.subtract(batch[0], batch[1])), 50), ["R.v", "S.v"])
    query = eddy.Query(streams, ["R.k = S.k"], select=["R.v", "S.v"], where=[near, pc.field("R.v") != 100])
    wanted = sorted(
        (r, s) for r in range(0, limit, 2) for s in range(61, 200) if r % 40 == s % 40 and abs(r - s) < 50 and r != 100
    )
    for transport in ("packed", "rows"):
        out = join(query, {"R": frame, "S": frame}, transport=transport)
        assert sorted(map(tuple, out.collect())) == wanted, transport


def test_wrong_predicates_are_refused_before_a_job(spark: SparkSession) -> None:
    frame = spark.createDataFrame(table())
    for predicates, message in (
        (pc.field("z") > 1, "z"),
        ([pc.field("k") > 1, "k > 1"], "eddy.spark.filter, condition 2, must be a .*not str"),
        ([pc.field("k")], "returns int64, not a boolean"),
        ([eddy.Predicate(_even, ["z"])], "reads 'z', which is no column"),
    ):
        with pytest.raises(eddy.QueryError, match=message):
            eddy.spark.filter(frame, predicates)
    with pytest.raises(eddy.QueryError, match="names must have one string for each of 1 predicates"):
        eddy.spark.filter(frame, _even, names=["p", "q"])
    with pytest.raises(SparkJoinError, match="two columns 'k'"):
        eddy.spark.filter(frame.selectExpr("k", "k"), _even)
    with pytest.raises(SparkJoinError, match=r"eddy.spark.filter: a Spark DataFrame is needed, and this is a list"):
        eddy.spark.filter([1], _even)  # type: ignore[arg-type]


def test_a_failing_task_names_the_predicate(spark: SparkSession) -> None:
    frame = spark.createDataFrame(table())
    with pytest.raises(Exception, match=r"eddy.spark.filter, predicate 'short', failed on these rows.* 1 values for"):
        eddy.spark.filter(frame, lambda batch: pa.array([True]), names=["short"]).collect()
