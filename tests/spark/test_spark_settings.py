"""Settings of Spark and properties of DataFrames that change what a query means: used, refused, or listed as ignored.

docs/guide/spark.md lists them.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy.spark import SparkJoinError, join, sql
from eddy.spark.options import StreamingOptions
from eddy.spark.session_zone import session_zone
from eddy.spark.streaming.driver.watermarks import make_rules
from tests.spark.streaming.jobs import Inputs, results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
START = dt.datetime(2024, 10, 30, 3, 17, tzinfo=dt.UTC)
ZONES = ["UTC", "Asia/Tokyo", "America/Los_Angeles"]
ON = "a.k = b.k AND b.at BETWEEN a.at AND a.at + INTERVAL '8' HOUR"
BY_DATE = f"SELECT CAST(a.at AS DATE) AS day, COUNT(*) AS n FROM a JOIN b ON {ON} GROUP BY CAST(a.at AS DATE)"
PARTS = f"""
    SELECT a.k, CAST(a.at AS DATE) AS day, EXTRACT(HOUR FROM b.at) AS hour, DATE_TRUNC('DAY', a.at) AS midnight,
        YEAR(a.at) AS year, a.at FROM a JOIN b ON {ON} WHERE DAY(a.at) <> 2
"""


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def views(spark: SparkSession) -> None:
    # Not in the night of a clock change: there Arrow does not round local times.
    rows = [(i % 3, START + dt.timedelta(hours=5 * i, seconds=i)) for i in range(18)]
    for name in "ab":
        spark.createDataFrame(rows, "k int, at timestamp").createOrReplaceTempView(name)


@pytest.mark.parametrize("zone", ZONES)
def test_dates_and_hours_are_those_of_the_session(spark: SparkSession, zone: str) -> None:
    with setting(spark, "spark.sql.session.timeZone", zone):
        views(spark)
        for text in (PARTS, BY_DATE):
            counts = Counter(map(tuple, sql(spark, text, times={"a": "at", "b": "at"}, partitions=1).collect()))
            assert counts == Counter(map(tuple, spark.sql(text).collect()))
            assert counts
        late = eddy.spark.filter(spark.table("a"), pc.hour(pc.field("at")) > 20)
        assert late.count() == spark.sql("SELECT * FROM a WHERE HOUR(at) > 20").count()


def test_zones_have_the_names_of_arrow(spark: SparkSession) -> None:
    for given, name in (("GMT+5:30", "+05:30"), ("PST", "America/Los_Angeles"), ("Z", "UTC"), ("-03:00", "-03:00")):
        with setting(spark, "spark.sql.session.timeZone", given):
            assert session_zone(spark) == name


def test_the_delay_of_a_watermark_is_the_lateness_of_its_stream(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int32()), ("at", pa.timestamp("us", "UTC"))])
    inputs = Inputs(tmp_path / "in", a=schema, b=schema)
    # Rows of a are up to 10 s behind those of earlier micro-batches, rows of b up to 3 s.
    for behind in ((0, 0), (30, 30), (20, 27), (60, 60), (50, 57)):
        for name, seconds in zip("ab", behind, strict=True):
            inputs.add(name, [{"k": k, "at": START + dt.timedelta(seconds=seconds)} for k in range(3)])
    delays = {"a": "10 seconds", "b": "3 seconds"}
    frames = {name: inputs.frame(spark, name).withWatermark("at", delay) for name, delay in delays.items()}
    for name, frame in frames.items():
        frame.createOrReplaceTempView(f"delayed_{name}")
        inputs.batch_frames(spark)[name].createOrReplaceTempView(name)
    on = "a.k = b.k AND b.at BETWEEN a.at AND a.at + INTERVAL '30' SECOND"
    text = f"SELECT a.k, a.at, b.at AS later FROM delayed_a AS a JOIN delayed_b AS b ON {on}"
    joined = sql(spark, text, checkpoint=tmp_path / "state", key_groups=2, partitions=1)
    assert joined.carried.transport == "packed"
    running = joined.writeStream.trigger(availableNow=True).toParquet(tmp_path / "out")
    assert running.awaitTermination(120)
    assert not any(running.late_counts.values())
    wanted = spark.sql(text.replace("delayed_", "")).collect()
    assert len(results(tmp_path / "out")) == len(wanted) > 20


def test_a_lateness_that_is_given_counts_more_than_a_delay(caplog: pytest.LogCaptureFixture) -> None:
    schema = pa.schema([("k", pa.int32()), ("at", pa.timestamp("s"))])
    second = dt.timedelta(seconds=1)
    streams = [eddy.Stream(name, schema, window=eddy.Range(9 * second), time="at") for name in "ab"]

    def lateness(query: eddy.Query, given: Any = None, **delays: int) -> tuple[int, ...]:
        declared = {name: delay * second for name, delay in delays.items()}
        return make_rules(query, StreamingOptions(lateness=given), declared).lateness

    plain = eddy.Query(streams, ["a.k = b.k"])
    late = eddy.Query(streams, ["a.k = b.k"], lateness=7 * second)
    with caplog.at_level(logging.WARNING):
        assert lateness(plain, a=10) == (10, 0)
        assert lateness(plain, {"b": 4 * second}, a=10) == (10, 4)
        assert lateness(late, b=7) == (7, 7)
        assert not caplog.records
        assert lateness(plain, 2 * second, a=10) == (2, 2)
        assert lateness(late, a=10) == (7, 7)
    assert [record.message.split(",")[0] for record in caplog.records] == [
        "stream a: withWatermark declares a delay of 0:00:10"
    ] * 2
    unbounded = eddy.Query([eddy.Stream(name, schema) for name in "ab"], ["a.k = b.k"])
    assert lateness(unbounded, a=10) == (0, 0)


def test_text_that_spark_compares_in_another_way_is_refused(spark: SparkSession) -> None:
    plain = spark.createDataFrame([(1, "x"), (2, "X")], "k int, s string")
    metadata = {"__CHAR_VARCHAR_TYPE_STRING": "char(4)"}
    others = {
        "collation makes different texts equal": plain.selectExpr("k", "s COLLATE UTF8_LCASE AS s"),
        "pads CHAR with blanks": plain.withMetadata("s", metadata),
        "spark.sql.caseSensitive=false ignores case": plain.selectExpr("k", "s", "k AS S"),
    }
    schema = pa.schema([("k", pa.int32()), ("s", pa.string())])
    streams = [eddy.Stream(name, schema) for name in "ab"]
    for why, frame in others.items():
        with pytest.raises(SparkJoinError, match=f"stream 'b'.*{why}"):
            join(eddy.Query(streams, ["a.s = b.s"]), {"a": plain, "b": frame})
    unread = eddy.Query(streams, ["a.k = b.k"], select=["a.s"])
    for frame in list(others.values())[:2]:
        assert join(unread, {"a": plain, "b": frame}, partitions=1).count() == 2


IGNORED = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.legacy.interval.enabled": "true",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.shuffle.partitions": "3",
}


def test_settings_that_the_guide_lists_as_ignored_change_no_result(spark: SparkSession) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "spark.md").read_text()
    spark.createDataFrame([(1, 0, "1.50"), (2, 3, "7")], "k int, n int, s string").createOrReplaceTempView("a")
    spark.table("a").createOrReplaceTempView("b")
    text = """
        SELECT a.k / b.n AS x, a.k % b.n AS y, CAST(a.s AS DECIMAL(9, 2)) * CAST(b.s AS DECIMAL(9, 2)) AS z,
            a.k + 1 AS w, CAST('2024-11-02 05:00:00' AS TIMESTAMP) + INTERVAL '90' MINUTE AS t
        FROM a JOIN b ON a.k = b.k
    """
    usual = sql(spark, text, partitions=1)
    rows = sorted(usual.collect(), key=str)
    assert usual.schema["t"].dataType.simpleString() == "timestamp_ntz"
    for name, value in IGNORED.items():
        assert f"`{name}`" in guide
        with setting(spark, name, value):
            joined = sql(spark, text, partitions=1)
            assert (sorted(joined.collect(), key=str), joined.schema) == (rows, usual.schema), name
