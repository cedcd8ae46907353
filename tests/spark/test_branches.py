"""Joins with branches on Spark, batch and streaming, give what Spark SQL gives for the same query."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import eddy
from eddy.query.branch import How
from eddy.spark import explain, join
from eddy.spark.partitioning.job import make_job
from tests.branched import NAMES, SCHEMA, SQL, in_order, query, tables
from tests.cases import text_rows
from tests.spark.streaming.jobs import Inputs, published, run
from tests.spark.test_join import files_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG_AFTER = 100_000
"""An event time that no window of an earlier row reaches."""


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


KEYS_APART = """
SELECT R.id AS r, S.id AS s, T.id AS t
FROM R JOIN S ON R.a = S.a AND S.at BETWEEN R.at AND R.at + 40
LEFT JOIN T ON T.b = S.b AND T.at BETWEEN S.at - 10 AND S.at + 5
WHERE NOT EXISTS (SELECT 1 FROM U WHERE U.id = R.id AND U.at BETWEEN R.at - 50 AND R.at + 15)
"""
"""Each join has a key of its own."""


def keys_apart() -> eddy.Query:
    r, s, t, u = (eddy.Stream(name, SCHEMA, time="at") for name in "RSTU")
    return eddy.Query(
        [r, s],
        ["R.a = S.a", "S.at between R.at and R.at + 40"],
        branches=[
            eddy.Branch([t], ["T.b = S.b", "T.at between S.at - 10 and S.at + 5"], "left"),
            eddy.Branch([u], ["U.id = R.id", "U.at between R.at - 50 and R.at + 15"], "anti"),
        ],
        select={"r": "R.id", "s": "S.id", "t": "T.id"},
    )


@pytest.mark.campaign(1)
@pytest.mark.parametrize("partitions", [6, 8])
def test_branches_with_keys_of_their_own_are_dealt_to_all_tasks(
    spark: SparkSession, tmp_path: Path, partitions: int
) -> None:
    frames = files_of(spark, {name: tables(600, 2)[name] for name in "RSTU"}, tmp_path)
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    expected = Counter(text_rows(spark.sql(KEYS_APART).toArrow()))
    assert 10 < sum("None" in row for row in expected) < len(expected)
    for transport in ("packed", "rows"):
        assert (
            Counter(text_rows(join(keys_apart(), frames, transport=transport, partitions=partitions).toArrow()))
            == expected
        )
    assert f"{partitions} partitions" in explain(keys_apart(), frames, partitions=partitions)


def in_files(inputs: Inputs, whole: dict[str, pa.Table], first: int, last: int, batches: int = 6) -> None:
    """Add files first .. last - 1 of each stream, each with the rows of a span of time."""
    span = max(table["at"].to_numpy().max() for table in whole.values()) // batches + 1
    for k in range(first, last):
        for name, table in whole.items():
            inputs.add(name, table.filter(pa.array(table["at"].to_numpy() // span == k)))


@pytest.mark.campaign(0)
def test_a_streaming_join_with_branches(spark: SparkSession, tmp_path: Path) -> None:
    """Across restarts with other plans, other partitions, and engines from the log instead of live ones."""
    whole, inputs, out = tables(600, 4), Inputs(tmp_path / "in", **dict.fromkeys(NAMES, SCHEMA)), tmp_path / "out"
    sources: set[str] = set()
    for first, how in ((0, {"partitions": 2}), (2, {"partitions": 1, "strategy": "jisc"}), (4, {"plan": "S R"})):
        in_files(inputs, whole, first, first + 2)
        if first == 4:
            # Nothing that comes later is of their keys: only the watermark decides what still waits.
            for name in NAMES:
                inputs.add(name, [{"id": -1, "a": None, "b": "last", "at": LONG_AFTER}])
        running = run(query(), inputs.frames(spark), tmp_path / "state", out, **how)
        sources |= set(running.groups().column("source").to_pylist())
        if first == 0:
            running.forget_engines()
    assert sources == {"new", "live", "loaded"}
    for name, frame in inputs.batch_frames(spark).items():
        frame.createOrReplaceTempView(name)
    expected = in_order(spark.sql(SQL).toArrow())
    assert {None} < {row[2] for row in expected}
    assert in_order(published(out)) == expected


def test_a_streaming_join_whose_branches_have_keys_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    """Across a restart, moves and splits along each of the keys."""
    whole, out = {name: tables(600, 4)[name] for name in "RSTU"}, tmp_path / "out"
    inputs = Inputs(tmp_path / "in", **dict.fromkeys("RSTU", SCHEMA))
    in_files(inputs, whole, 0, 2)
    running = run(keys_apart(), inputs.frames(spark), tmp_path / "state", out, partitions=2)
    assert running.partition_map.groups > 1
    assert len(set(running.groups().column("group").to_pylist())) > 1
    in_files(inputs, whole, 2, 4)
    joined = join(keys_apart(), inputs.frames(spark), checkpoint=tmp_path / "state", rebalance="off")
    running = joined.writeStream.toParquet(out)
    for group in range(running.partition_map.groups):
        running.split(group)
    running.move(0, 1)
    running.processAllAvailable()
    in_files(inputs, whole, 4, 6)
    for name in "RSTU":
        inputs.add(name, [{"id": -1, "a": None, "b": "last", "at": LONG_AFTER}])
    running.processAllAvailable()
    running.stop()
    for name, frame in inputs.batch_frames(spark).items():
        frame.createOrReplaceTempView(name)
    expected = Counter(text_rows(spark.sql(KEYS_APART).toArrow()))
    assert Counter(text_rows(published(out))) == expected


@pytest.mark.parametrize("how", ["left", "anti", "semi"])
def test_rows_with_a_null_key_and_keys_that_fall_silent(spark: SparkSession, tmp_path: Path, how: How) -> None:
    rows = pa.schema([("k", pa.int64()), ("at", pa.int64())])
    r, s = (eddy.Stream(name, rows, window=eddy.Range(10), time="at") for name in "RS")
    branched = eddy.Query([r], branches=[eddy.Branch([s], ["R.k = S.k"], how)])
    inputs = Inputs(tmp_path / "in", R=rows, S=rows)
    inputs.add("R", [{"k": k, "at": 5} for k in (None, 1, 2, 3)])
    inputs.add("S", [{"k": k, "at": 7} for k in (None, 3, 3)])
    for _ in range(2):
        inputs.add("R", [{"k": None, "at": LONG_AFTER}])
        inputs.add("S", [{"k": None, "at": LONG_AFTER}])
    run(branched, inputs.frames(spark), tmp_path / "state", tmp_path / "out")
    expected = {"left": [None, 1, 2, 3, 3], "anti": [None, 1, 2], "semi": [3]}[how]
    keys = published(tmp_path / "out").column("R.k").to_pylist()
    assert sorted(keys, key=str) == sorted(expected, key=str)


def test_a_semi_join_without_windows_is_loaded_from_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing orders the rows of different streams."""
    rows = pa.schema([("k", pa.int64())])
    r, s = (eddy.Stream(name, rows, window=eddy.Unbounded()) for name in "RS")
    branched = eddy.Query([r], branches=[eddy.Branch([s], ["R.k = S.k"], "semi")])
    inputs = Inputs(tmp_path / "in", R=rows, S=rows)
    inputs.add("R", [{"k": k} for k in (1, 2, 3)])
    inputs.add("S", [{"k": 3}, {"k": 3}])
    run(branched, inputs.frames(spark), tmp_path / "state", tmp_path / "out").forget_engines()
    inputs.add("S", [{"k": 1}, {"k": 3}])
    run(branched, inputs.frames(spark), tmp_path / "state", tmp_path / "out")
    assert sorted(published(tmp_path / "out").column("R.k").to_pylist()) == [1, 3]


def test_each_join_of_a_worker_has_the_windows_of_the_query() -> None:
    r, s, t = (eddy.Stream(name, pa.schema([("k", pa.int64()), ("at", pa.int64())]), time="at") for name in "RST")
    soon = eddy.Branch([s], ["R.k = S.k", "S.at between R.at and R.at + 10"], "left")
    whole = eddy.Query([r], branches=[soon, eddy.Branch([t], ["R.k = T.k"], "semi")])
    theirs = make_job(whole, partitions=4).query
    ours, worker_joins = (asked.inner_joins().values() for asked in (whole, theirs))
    assert len(worker_joins) > 1
    assert [inner.graph.windows for inner in worker_joins] == [inner.graph.windows for inner in ours]
    eddy.Runtime(theirs)
