"""Results of a join as a streaming source: each batch once, through restarts, for the operators and sinks of Spark."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import eddy
from eddy.spark import SparkJoinError, read_transactions, stream_transactions
from eddy.spark.environment.spark_version import limits_reads
from tests.spark.streaming.jobs import Inputs, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us", "UTC")), ("n", pa.decimal128(9, 2))])
MINUTE_US = 60_000_000


def query() -> eddy.Query:
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(timedelta(minutes=5)), time="t") for name in "RS"]
    return eddy.Query(streams, ["R.k = S.k"], select={"k": "R.k", "at": "S.t", "n": "R.n"})


class Upstream:
    """A join that publishes a batch for each pair of files."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.out = root / "results"
        self.inputs = Inputs(root / "in", R=SCHEMA, S=SCHEMA)

    def publish(self, batches: int = 1) -> None:
        for _ in range(batches):
            number = len(self.inputs.tables["R"])
            for name in "RS":
                keys = pa.array([number % 3, 7, 7 if name == "R" else 8], pa.int64())
                times = pa.array([number * MINUTE_US] * 3, pa.timestamp("us", "UTC"))
                amounts = pa.array([Decimal(number), Decimal(1), Decimal(2)], SCHEMA.field("n").type)
                self.inputs.add(name, pa.table([keys, times, amounts], schema=SCHEMA))
        run(query(), self.inputs.frames(self.spark), self.root / "state", self.out, "transactions")

    def counts(self) -> Counter[int]:
        return Counter(row.k for row in read_transactions(self.spark, self.out).collect())


@pytest.fixture
def upstream(spark: SparkSession, tmp_path: Path) -> Upstream:
    source = Upstream(spark, tmp_path)
    source.publish(3)
    return source


def finish(frame: DataFrame, checkpoint: Path, out: Path) -> list[int]:
    """Write a stream to Parquet, partitioned by key, to the end; return the rows of each micro-batch."""
    writer = frame.writeStream.partitionBy("k").option("checkpointLocation", str(checkpoint))
    running = writer.trigger(availableNow=True).format("parquet").start(str(out))
    running.awaitTermination()
    return [progress.numInputRows for progress in running.recentProgress if progress.numInputRows]


def test_spark_finds_the_source_without_registration(spark: SparkSession, upstream: Upstream) -> None:
    assert spark.readStream.format("eddy").load(str(upstream.out)).columns == ["k", "at", "n"]


@pytest.mark.versions
def test_each_batch_comes_once_through_restarts(spark: SparkSession, upstream: Upstream, tmp_path: Path) -> None:
    checkpoint, out = tmp_path / "downstream", tmp_path / "copied"
    (first,) = finish(stream_transactions(spark, upstream.out), checkpoint, out)
    assert first == upstream.counts().total() > 6
    before = upstream.counts()
    upstream.publish(4)
    option = {"maxBatchesPerTrigger": 2} if limits_reads() else {}
    limited = spark.readStream.format("eddy").options(**option).load(str(upstream.out))
    rows = finish(limited, checkpoint, out)
    assert len(rows) == (2 if option else 1)
    assert sum(rows) == (upstream.counts() - before).total()
    assert Counter(row.k for row in spark.read.parquet(str(out)).collect()) == upstream.counts()
    assert finish(limited, checkpoint, out) == []


def test_aggregates_windows_and_static_tables(spark: SparkSession, upstream: Upstream) -> None:
    from pyspark.sql import functions as f

    names = spark.createDataFrame([(k, f"key {k}") for k in range(9)], "k long, name string")
    results = stream_transactions(spark, upstream.out)
    assert [field.simpleString() for field in results.schema] == ["k:bigint", "at:timestamp", "n:decimal(9,2)"]
    counted = results.join(names, "k").groupBy("name").agg(f.count("*").alias("rows"), f.sum("n").alias("n"))
    running = counted.writeStream.outputMode("complete").format("memory").queryName("counted").start()
    running.processAllAvailable()
    assert {row.name: row["rows"] for row in spark.table("counted").collect()} == {
        f"key {k}": count for k, count in upstream.counts().items()
    }
    upstream.publish()
    running.processAllAvailable()
    running.stop()
    sums = {row.name: row.n for row in spark.table("counted").collect()}
    expected = read_transactions(spark, upstream.out).join(names, "k").groupBy("name").agg(f.sum("n").alias("n"))
    assert sums == {row.name: row.n for row in expected.collect()}
    minutes = results.withWatermark("at", "1 minute").groupBy(f.window("at", "2 minutes"), "k").count()
    running = minutes.writeStream.trigger(availableNow=True).format("memory").queryName("minutes").start()
    running.awaitTermination()
    assert {row.window.start.minute for row in spark.table("minutes").collect()} == {0}


def test_tables_and_memory_get_each_row_once(spark: SparkSession, upstream: Upstream, tmp_path: Path) -> None:
    def to_table() -> None:
        writer = stream_transactions(spark, upstream.out).writeStream.trigger(availableNow=True).format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "downstream")).partitionBy("k")
        writer.toTable("downstream.pairs").awaitTermination()

    def count(table: str) -> Counter[int]:
        return Counter(row.k for row in spark.table(table).collect())

    spark.sql(f"CREATE DATABASE downstream LOCATION '{tmp_path}/warehouse'")
    try:
        to_table()
        memory = stream_transactions(spark, upstream.out).writeStream.format("memory").queryName("pairs").start()
        memory.processAllAvailable()
        assert count("downstream.pairs") == count("pairs") == upstream.counts()
        upstream.publish()
        to_table()
        memory.processAllAvailable()
        memory.stop()
        assert count("downstream.pairs") == count("pairs") == upstream.counts()
        managed = {row.col_name: row.data_type for row in spark.sql("DESCRIBE EXTENDED downstream.pairs").collect()}
        assert managed["Type"] == "MANAGED"
        assert sorted(path.name for path in (tmp_path / "warehouse" / "pairs").glob("k=*"))[:2] == ["k=0", "k=1"]
    finally:
        spark.sql("DROP DATABASE downstream CASCADE")


def test_what_is_no_directory_of_results_is_refused(spark: SparkSession, upstream: Upstream, tmp_path: Path) -> None:
    with pytest.raises(SparkJoinError, match=r"schema.arrow is missing: give the path to which a job wrote"):
        stream_transactions(spark, tmp_path / "nothing")
    stream_transactions(spark, upstream.out)
    reader = spark.readStream.format("eddy")
    with pytest.raises(Exception, match="pass its path to load"):
        reader.load()
    wrong = reader.option("maxBatchesPerTrigger", "none").load(str(upstream.out))
    running = wrong.writeStream.format("noop").start()
    with pytest.raises(Exception, match="give a number of batches, 1 or more"):
        running.awaitTermination(60)
