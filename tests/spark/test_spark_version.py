"""Tests of the differences between versions of Spark. `make compat` runs joins on each version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import InputPartition

import eddy
from eddy.spark.environment import spark_version, stream_reader
from eddy.spark.environment.spark_version import arrow_schema, check_version, dealt, hashed_to
from eddy.spark.environment.stream_reader import (
    LimitedReader,
    OlderReader,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    reader_of,
    require_limits,
)
from eddy.spark.errors import SparkJoinError

TYPES = "a timestamp, b array<timestamp>, c struct<d: timestamp, e: map<timestamp, timestamp>>, f timestamp_ntz, g int"


@pytest.mark.parametrize("known", ["4.0.0", "4.1.4", "4.2.1", "4.3.0"])
def test_known_versions_pass(monkeypatch: pytest.MonkeyPatch, known: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", known)
    check_version()


@pytest.mark.parametrize("unknown", ["3.5.9", "4.4.0.dev1", "5.0.0"])
def test_another_version_is_refused_with_the_ones_that_run(monkeypatch: pytest.MonkeyPatch, unknown: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", unknown)
    with pytest.raises(SparkJoinError, match=rf"pyspark {unknown} is installed.*Spark 4\.0 to 4\.3.*'pyspark>=4\.0,<4"):
        check_version()


def test_a_session_of_another_version_than_pyspark_is_refused() -> None:
    check_version(cast("SparkSession", SimpleNamespace(version=pyspark.__version__)))
    with pytest.raises(SparkJoinError, match=r"the session runs Spark 3\.5\.1, and pyspark is .*unset SPARK_HOME"):
        check_version(cast("SparkSession", SimpleNamespace(version="3.5.1")))


def test_the_requirement_has_the_versions_that_are_checked() -> None:
    from release.sources import ROOT

    first, (major, minor) = spark_version.FIRST, spark_version.LAST
    assert f'"pyspark>={first[0]}.{first[1]},<{major}.{minor + 1}"' in (ROOT / "pyproject.toml").read_text()


def test_only_two_modules_know_the_version() -> None:
    known = {Path(spark_version.__file__), Path(stream_reader.__file__)}
    asking = {path for path in Path(eddy.__file__).parent.rglob("*.py") if "pyspark.__version__" in path.read_text()}
    assert asking == known


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [1, 2, 7, 200])
def test_rows_are_dealt_by_number_on_a_spark_without_the_function(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    monkeypatch.setattr(spark_version, "version", lambda: (4, 0))
    rows = spark.range(3 * partitions).selectExpr(f"cast(id % {partitions} as int) as part")
    placed = dealt(rows, partitions, "part").select("part", F.spark_partition_id().alias("at")).collect()
    assert len(placed) == 3 * partitions
    assert all(part == at for part, at in placed)
    assert len(set(hashed_to(partitions))) == partitions


@pytest.mark.spark
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_types_are_those_that_take_the_zone(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    from pyspark.sql.pandas import types

    schema = spark.createDataFrame([], TYPES).schema
    now = arrow_schema(schema, zone)
    assert now.field("b").type.value_type == pa.timestamp("us", zone)
    newest = types.to_arrow_type
    monkeypatch.setattr(spark_version, "version", lambda: (4, 1))
    monkeypatch.setattr(types, "to_arrow_type", lambda kind, **more: newest(kind, **{"timezone": "UTC", **more}))
    assert arrow_schema(schema, zone) == now


class _TenRows(LimitedReader):
    """Has ten rows; an offset counts those that were read, and a micro-batch reads four."""

    def __init__(self) -> None:
        self.there: int | None = None
        self.done: list[Any] = []

    def initialOffset(self) -> dict[str, Any]:
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(4)

    def prepareForTriggerAvailableNow(self) -> None:
        self.there = 5

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        everything = isinstance(limit, ReadAllAvailable)
        return {"rows": min(self.there or 10, 10 if everything else start["rows"] + 4)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition((start["rows"], end["rows"]))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter([partition.value])

    def commit(self, end: dict[str, Any]) -> None:
        self.done.append(end)

    def stop(self) -> None:
        self.done.append("stop")


def test_an_older_spark_reads_from_the_last_end_with_the_limit_of_the_source() -> None:
    source = _TenRows()
    reader: Any = OlderReader(source, now=False)
    assert reader.initialOffset() == {"rows": 0}
    assert [reader.latestOffset()["rows"] for _ in range(4)] == [4, 8, 10, 10]
    (part,) = reader.partitions({"rows": 4}, {"rows": 8})
    assert list(reader.read(part)) == [(4, 8)]
    reader.commit({"rows": 8})
    reader.stop()
    assert source.done == [{"rows": 8}, "stop"]


def test_an_older_spark_continues_after_a_restart_where_its_log_ends() -> None:
    reader: Any = OlderReader(_TenRows(), now=False)
    reader.partitions({"rows": 5}, {"rows": 5})
    assert reader.latestOffset() == {"rows": 9}


def test_an_older_spark_ends_with_what_is_there() -> None:
    reader: Any = OlderReader(_TenRows(), now=True)
    assert [reader.latestOffset()["rows"] for _ in range(3)] == [4, 5, 5]


def test_a_limit_that_would_have_no_effect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    source = _TenRows()
    assert reader_of(source) is source
    require_limits("max_rows=4")
    monkeypatch.setattr(stream_reader, "limits_reads", lambda: False)
    assert isinstance(reader_of(source), OlderReader)
    with pytest.raises(SparkJoinError, match=r"max_rows=4 needs Spark 4\.2 or newer.*transport 'packed'"):
        require_limits("max_rows=4")
