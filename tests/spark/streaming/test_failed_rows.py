"""Rows that fail on Spark: a streaming job leaves them out and goes on, over restarts; a batch join fails."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy import agg
from eddy.spark import SparkJoinError, join
from tests.spark.streaming.jobs import Inputs, published, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ROWS = pa.schema([("k", pa.int64()), ("x", pa.int64()), ("t", pa.int64())])
STREAMS = [eddy.Stream(name, ROWS, window=eddy.Range(8), time="t") for name in "RS"]
SHARE = {"v": pc.field("R.x") / pc.field("S.x"), "k": "R.k"}


def add(inputs: Inputs, t: int) -> None:
    """Add a file to each stream; the row of S with k = 1 fails."""
    inputs.add("R", [{"k": k, "x": 12 * k, "t": t} for k in range(4)])
    inputs.add("S", [{"k": k, "x": 0 if k == 1 else 2, "t": t} for k in range(4)])


@pytest.mark.parametrize("placement", ["grid", "hops"])
def test_a_job_leaves_rows_that_fail_out_and_goes_on(spark: SparkSession, tmp_path: Path, placement: str) -> None:
    inputs, got = Inputs(tmp_path / "in", R=ROWS, S=ROWS), []
    query = eddy.Query(STREAMS, ["R.k = S.k"], select=SHARE, failed=lambda rows: got.extend(rows.to_pylist()))
    for number in range(3):
        add(inputs, 20 * number)
        running = run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out", placement=placement)
        rows = sorted((row["k"], row["v"]) for row in published(tmp_path / "out").to_pylist())
        assert rows == sorted([(0, 0), (2, 12), (3, 18)] * (number + 1))
        failed = [row.asDict() for row in running.failed().collect()]
        assert len(failed) == len(got) == number + 1
        assert running.failed_count == 1
        for row in failed:
            assert (row["kind"], row["reason"], row["query"]) == ("select", "divide by zero", None)
            assert row["row"]["R.x"] == "12"
    # Another expression, with the columns that the job has.
    add(inputs, 60)
    other = eddy.Query(STREAMS, ["R.k = S.k"], select={"v": pc.field("R.x") + pc.field("S.x"), "k": "R.k"})
    running = run(other, inputs.frames(spark), tmp_path / "state", tmp_path / "out", placement=placement)
    assert (1, 12) in {(row["k"], row["v"]) for row in published(tmp_path / "out").to_pylist()}
    assert running.failed().count() == 3


@pytest.mark.parametrize("transport", ["files", "spark"])
def test_a_row_for_which_a_filter_has_no_value_does_not_stop_a_job(
    spark: SparkSession, tmp_path: Path, transport: str
) -> None:
    inputs = Inputs(tmp_path / "in", R=ROWS, S=ROWS)
    inverse = pc.scalar(60) / pc.field("x") > 0
    streams = [eddy.Stream(name, ROWS, window=eddy.Range(8), time="t", filter=inverse) for name in "RS"]
    for number in range(2):
        add(inputs, 20 * number)
        query = eddy.Query(streams, ["R.k = S.k"], select=["R.k"])
        frames = inputs.frames(spark)
        if transport == "spark":
            frames = {name: frame.where("k >= 0") for name, frame in frames.items()}
        running = run(query, frames, tmp_path / "state", tmp_path / "out")
        assert sorted(row["R.k"] for row in published(tmp_path / "out").to_pylist()) == sorted([2, 3] * (number + 1))
    failed = [row.asDict() for row in running.failed().collect()]
    assert {(row["kind"], row["reason"]) for row in failed} == {("filter", "divide by zero")}
    rows = [{name: value for name, value in row["row"].items() if name.endswith(("k", "t"))} for row in failed]
    wanted = [{"R.k": "0", "R.t": t} for t in ("0", "20")] + [{"S.k": "1", "S.t": t} for t in ("0", "20")]
    assert sorted(rows, key=str) == sorted(wanted, key=str)


def test_a_window_that_fails_is_left_out_and_the_job_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", R=ROWS, S=ROWS)

    def replaced(having: pc.Expression) -> eddy.Query:
        functions = {"total": agg.sum("S.x")}
        window = eddy.Tumbling(10)
        return eddy.Query(
            STREAMS, ["R.k = S.k"], group_by=["R.k"], aggregates=functions, having=having, group_window=window
        )

    query = replaced(pc.scalar(6) / pc.field("total") > 0)
    for number in range(3):
        add(inputs, 20 * number)
        running = run(query, inputs.frames(spark), tmp_path / "state", tmp_path / "out")
    windows = [(row["window_start"], row["R.k"]) for row in published(tmp_path / "out").to_pylist()]
    assert sorted(windows) == [(t, k) for t in (0, 20) for k in (0, 2, 3)]
    failed = [row.asDict() for row in running.failed().collect()]
    assert sorted((row["kind"], row["row"]["window_start"], row["row"]["R.k"]) for row in failed) == [
        ("having", "0", "1"),
        ("having", "20", "1"),
    ]
    # Groups are as before, and another `having` says which are given.
    add(inputs, 60)
    other = replaced(having=pc.field("total") >= 0)
    run(other, inputs.frames(spark), tmp_path / "state", tmp_path / "out")
    windows = [(row["window_start"], row["R.k"]) for row in published(tmp_path / "out").to_pylist()]
    assert sorted(windows)[-4:] == [(40, k) for k in range(4)]


def test_a_batch_join_fails_or_only_counts(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", R=ROWS, S=ROWS)
    add(inputs, 0)
    groups = {"group_by": ["R.k"], "aggregates": {"total": agg.sum(pc.field("R.x") / pc.field("S.x"))}}
    for what in ({"select": SHARE}, groups):
        with pytest.raises(Exception, match="has no value for a row: divide by zero") as caught:
            join(eddy.Query(STREAMS, ["R.k = S.k"], **what), inputs.batch_frames(spark)).collect()
        assert not isinstance(caught.value, SparkJoinError) or "where=" in str(caught.value)
        counting = eddy.Query(STREAMS, ["R.k = S.k"], failed="count", **what)
        assert join(counting, inputs.batch_frames(spark)).count() == 3
