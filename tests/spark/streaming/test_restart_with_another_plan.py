"""A job that restarts with another join order: Spark's chain of joins silently gives wrong results, eddy's join gives
the right ones.

Spark keeps the state of each join of a chain under the number of the operator. Restarted in another order, the join of
R with T finds the rows of S where those of T should be; columns of the same types are taken for one another.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddy
from eddy.spark import join

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

STREAMS = "RST"
WITHIN_S = 15
LATENESS_S = 40
SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("v", pa.int64())])
SPARK_SCHEMA = "k long, at timestamp, v long"
SECOND = 10**6

Rows = dict[str, list[list[tuple[int, int, int]]]]


@pytest.fixture
def spark_with_one_partition(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", before or "2")


def rows() -> Rows:
    """Return two batches of (key, event time in seconds, number) for each stream, without late rows."""
    chance = random.Random(1)
    return {
        name: [
            [
                (chance.randrange(6), 1_700_000_000 + 40 * batch + chance.randrange(40), 1000 * batch + n)
                for n in range(40)
            ]
            for batch in range(2)
        ]
        for name in STREAMS
    }


def add_batch(root: Path, made: Rows, batch: int) -> None:
    for name in STREAMS:
        (root / name).mkdir(parents=True, exist_ok=True)
        path = root / name / f"{batch}.parquet"
        keys, times, numbers = zip(*made[name][batch], strict=True)
        columns = [pa.array(keys), pa.array([time * SECOND for time in times]).cast(SCHEMA.types[1]), pa.array(numbers)]
        pq.write_table(pa.table(columns, schema=SCHEMA), root / f"{name}-{batch}")
        os.utime(root / f"{name}-{batch}", (1_700_000_000 + batch, 1_700_000_000 + batch))
        os.rename(root / f"{name}-{batch}", path)


def expected(made: Rows) -> Counter[tuple[int, ...]]:
    flat = {name: [row for batch in made[name] for row in batch] for name in STREAMS}
    counts: Counter[tuple[int, ...]] = Counter()
    for r in flat["R"]:
        for s in (s for s in flat["S"] if s[0] == r[0]):
            for t in (t for t in flat["T"] if t[0] == r[0]):
                times = (r[1], s[1], t[1])
                if max(times) - min(times) <= WITHIN_S:
                    counts[(r[2], s[2], t[2])] += 1
    return counts


def source(spark: SparkSession, root: Path, name: str) -> DataFrame:
    return spark.readStream.schema(SPARK_SCHEMA).parquet(str(root / name))


def spark_chain(spark: SparkSession, root: Path, order: str) -> DataFrame:
    """Join the streams in this order; all within 15 seconds of each other.

    Spark refuses a chain with more than one event-time column, so the others continue as numbers.
    """
    from pyspark.sql import functions as F

    def stream(name: str) -> DataFrame:
        given = source(spark, root, name).withWatermark("at", f"{LATENESS_S} seconds")
        micros = F.unix_micros("at").alias(f"{name}_micros")
        return given.select(*(F.col(column).alias(f"{name}_{column}") for column in SCHEMA.names), micros)

    def matched(first: str, other: str) -> Column:
        near = F.expr(f"interval {WITHIN_S} seconds")
        same = F.col(f"{first}_k") == F.col(f"{other}_k")
        return same & F.col(f"{other}_at").between(F.col(f"{first}_at") - near, F.col(f"{first}_at") + near)

    start, two, three = order
    pairs = stream(start).join(stream(two), matched(start, two)).drop(f"{two}_at")
    apart = F.abs(F.col(f"{two}_micros") - F.col(f"{three}_micros"))
    joined = pairs.join(stream(three), matched(start, three) & (apart <= WITHIN_S * SECOND))
    return joined.select("R_v", "S_v", "T_v")


def results(root: Path) -> Counter[tuple[int, ...]]:
    counts: Counter[tuple[int, ...]] = Counter()
    for path in (root / "out").rglob("part-*.parquet"):
        table = pq.ParquetFile(path).read()
        counts.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return counts


def run_spark(spark: SparkSession, root: Path, order: str) -> None:
    writer = spark_chain(spark, root, order).writeStream.format("parquet").trigger(availableNow=True)
    writer.option("checkpointLocation", str(root / "checkpoint")).start(str(root / "out")).awaitTermination()


def run_ours(spark: SparkSession, root: Path, plan: str) -> None:
    window = eddy.Range(dt.timedelta(seconds=WITHIN_S))
    streams = [eddy.Stream(name, SCHEMA, window=window, time="at") for name in STREAMS]
    query = eddy.Query(streams, ["R.k = S.k", "S.k = T.k"], select=[f"{name}.v" for name in STREAMS])
    frames = {name: source(spark, root, name) for name in STREAMS}
    late = dt.timedelta(seconds=LATENESS_S)
    joined = join(query, frames, checkpoint=root / "checkpoint", plan=plan, lateness=late, key_groups=4)
    joined.writeStream.format("parquet").trigger(availableNow=True).start(root / "out").awaitTermination()


@pytest.mark.campaign(0)
def test_spark_restarted_in_another_order_is_wrong_and_says_nothing(
    spark_with_one_partition: SparkSession, tmp_path: Path
) -> None:
    made = rows()
    for order, place in (("RST", tmp_path / "same"), ("RTS", tmp_path / "other")):
        add_batch(place, made, 0)
        run_spark(spark_with_one_partition, place, "RST")
        add_batch(place, made, 1)
        run_spark(spark_with_one_partition, place, order)  # raises nothing
    assert results(tmp_path / "same") == expected(made)
    restarted = results(tmp_path / "other")
    assert (restarted - expected(made)).total() > 0, "results that are none"


def test_ours_restarted_with_another_plan_is_right(spark: SparkSession, tmp_path: Path) -> None:
    made = rows()
    add_batch(tmp_path, made, 0)
    run_ours(spark, tmp_path, "((R S) T)")
    add_batch(tmp_path, made, 1)
    run_ours(spark, tmp_path, "((R T) S)")
    assert results(tmp_path) == expected(made)
    assert len(expected(made)) > 500
