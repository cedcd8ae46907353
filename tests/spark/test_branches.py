"""Batch joins with branches on Spark give what Spark SQL gives for the same query; streaming ones are refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eddy.spark import SparkJoinError, explain, join
from tests.branched import SQL, in_order, query, tables
from tests.spark.test_join import files_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_same_query_in_spark_sql(spark: SparkSession, tmp_path: Path) -> None:
    frames = files_of(spark, tables(600, 2), tmp_path)
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    expected = in_order(spark.sql(SQL).toArrow())
    assert {None} < {row[2] for row in expected}
    for transport in ("packed", "rows"):
        got = join(query(), frames, transport=transport, partitions=3)
        assert in_order(got.toArrow()) == expected
    assert "3 partitions by key: R.a = S.a = T.a" in explain(query(), frames, partitions=3)


def test_a_streaming_join_has_no_branches(spark: SparkSession, tmp_path: Path) -> None:
    frames = files_of(spark, tables(10, 3), tmp_path)
    streams = {
        name: spark.readStream.schema(frame.schema).parquet(str(tmp_path / name)) for name, frame in frames.items()
    }
    with pytest.raises(SparkJoinError, match="no branches yet"):
        join(query(), streams, checkpoint=tmp_path / "state")
