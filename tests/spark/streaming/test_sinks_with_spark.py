"""Sinks that hand rows to Spark, and batches as Spark reads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.sinks import CallbackSink, ConsoleSink, Sink, TransactionSink
from eddy.spark.streaming.sinks.transactions import read_transactions
from tests.spark.streaming.sinks import Lasting, lasting, ready

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WIDE = pa.schema(
    [
        ("R.k", pa.uint32()),
        ("R.at", pa.timestamp("ms", "UTC")),
        ("S.at", pa.timestamp("ns")),
        ("S.v", pa.dictionary(pa.int8(), pa.string())),
    ]
)


def stage_wide(sink: Sink, batch: int, *keys: int) -> list[str]:
    """Write a file as a task does, in Spark's types."""
    from eddy.spark.types import spark_schema

    at = datetime(2024, 5, 6, tzinfo=UTC)
    columns = [
        list(keys),
        [at + timedelta(seconds=key) for key in keys],
        [at.replace(tzinfo=None)] * len(keys),
        [str(key) for key in keys],
    ]
    table = pa.table(columns, schema=spark_schema(WIDE))
    pq.write_table(table, sink.staging(batch) / "part.parquet")
    return ["part.parquet"]


def keys_of(frame: DataFrame) -> list[int]:
    return sorted(row[0] for row in frame.select("`R.k`").collect())


@lasting
def test_spark_reads_published_batches_only(kind: type[Lasting], spark: SparkSession, tmp_path: Path) -> None:
    from eddy.spark.types import struct_type

    sink = ready(kind(tmp_path / "the results"), tmp_path, WIDE)
    if isinstance(sink, TransactionSink):
        nothing = read_transactions(spark, sink.path)
        assert nothing.schema == struct_type(WIDE)
        assert nothing.collect() == []
    sink.publish(0, stage_wide(sink, 0, 1, 2), spark)
    sink.publish(1, stage_wide(sink, 1, 3), spark)
    stage_wide(sink, 2, 4)
    if isinstance(sink, TransactionSink):
        assert keys_of(read_transactions(spark, sink.path, upto=0)) == [1, 2]
        frame = read_transactions(spark, sink.path)
        assert frame.schema == struct_type(WIDE)
        (sink.path / "_log" / "schema.arrow").unlink()
        with pytest.raises(SparkJoinError, match=r"schema.arrow is missing: .* start the job again"):
            read_transactions(spark, sink.path)
    else:
        frame = spark.read.parquet(str(sink.path))
        assert frame.columns == [*WIDE.names, "batch"]
    assert keys_of(frame) == [1, 2, 3]


def test_a_callback_gets_the_same_rows_again(spark: SparkSession, tmp_path: Path) -> None:
    from eddy.spark.types import struct_type

    calls: list[tuple[int, list[Any]]] = []

    def note(frame: DataFrame, batch: int) -> None:
        assert frame.schema == struct_type(WIDE)
        calls.append((batch, sorted(frame.collect())))
        if len(calls) == 1:
            raise KeyError("out of order")

    sink = ready(CallbackSink(note), tmp_path, WIDE)
    files = stage_wide(sink, 0, 2, 1)
    with pytest.raises(SparkJoinError, match=r"note failed in batch 0: KeyError: 'out of order'; .* again"):
        sink.publish(0, files, spark)
    sink.publish(0, files, spark)
    sink.publish(1, [], spark)
    assert calls[0] == calls[1]
    assert [(batch, [row[0] for row in rows]) for batch, rows in calls[1:]] == [(0, [1, 2]), (1, [])]


def test_the_console_shows_some_rows(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sink = ready(ConsoleSink(rows=2), tmp_path, WIDE)
    sink.publish(0, stage_wide(sink, 0, 41, 42, 43), spark)
    sink.publish(1, [], spark)
    shown = capsys.readouterr().out
    assert shown.startswith("batch 0: 3 rows, showing 2\n+")
    assert "|R.k|" in shown
    assert "2024-05-06 00:00:41" in shown
    assert shown.endswith("batch 1: 0 rows\n")
