"""The end of the input: what waits for it comes with a last micro-batch, once, and later rows are refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import eddy
from eddy import agg
from eddy.spark import SparkJoinError, join
from eddy.spark.errors import StreamingStateError
from tests.spark.streaming.jobs import Inputs, published

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from eddy.spark import StreamingJoinQuery

ROWS = pa.schema([("k", pa.int64()), ("t", pa.int64())])


def left() -> eddy.Query:
    branch = eddy.Branch([eddy.Stream("S", ROWS, time="t")], ["S.k = R.k", "S.t between R.t and R.t + 5"], "left")
    return eddy.Query([eddy.Stream("R", ROWS, time="t")], branches=[branch], select={"k": "R.k", "t": "S.t"})


def counted() -> eddy.Query:
    streams = [eddy.Stream(name, ROWS, window=eddy.Range(5), time="t") for name in "RS"]
    window = eddy.Tumbling(10)
    return eddy.Query(streams, ["R.k = S.k"], group_by=["R.k"], aggregates={"n": agg.count()}, group_window=window)


def run(
    spark: SparkSession, query: eddy.Query, inputs: Inputs, place: Path, finish: bool, **how: Any
) -> StreamingJoinQuery:
    joined = join(query, inputs.frames(spark), checkpoint=place / "state", key_groups=4, **how)
    writer = joined.writeStream.trigger(availableNow=True, finish=finish).format("parquet")
    running = writer.start(place / "out")
    running.awaitTermination()
    return running


def rows(inputs: Inputs, *times: int) -> None:
    for name in "RS":
        inputs.add(name, [{"k": at + (name == "S" and at % 2), "t": at} for at in times])


@pytest.mark.versions
def test_rows_that_wait_for_a_partner_come_with_the_end(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", R=ROWS, S=ROWS)
    rows(inputs, 1, 2)
    run(spark, left(), inputs, tmp_path, finish=False)
    rows(inputs, 3, 4)
    rows(inputs, 5, 6)
    before = published(tmp_path / "out").num_rows
    running = run(spark, left(), inputs, tmp_path, finish=True)
    written = sorted(map(str, published(tmp_path / "out").to_pylist()))
    whole = eddy.Runtime(left(), bounded=True)
    wanted = whole.push({name: inputs.rows(name) for name in "RS"}).to_pylist() + whole.finish().to_pylist()
    assert written == sorted(map(str, wanted))
    assert before < len(written)
    assert running.late_counts == {"R": 0, "S": 0}
    # The same command again, as a scheduler gives it, finds nothing to do.
    again = run(spark, left(), inputs, tmp_path, finish=True)
    assert sorted(map(str, published(tmp_path / "out").to_pylist())) == written
    assert again.late_counts == {"R": 0, "S": 0}
    rows(inputs, 7)
    with pytest.raises(StreamingStateError, match="rows came after the end of the input"):
        run(spark, left(), inputs, tmp_path, finish=False)


@pytest.mark.versions
def test_a_failure_in_the_last_batch_is_made_good_by_any_later_start(spark: SparkSession, tmp_path: Path) -> None:
    inputs, got, broken = Inputs(tmp_path / "in", R=ROWS, S=ROWS), list[Any](), True

    def take(results: DataFrame, batch: int) -> None:
        taken = [(row.k, row.t) for row in results.collect()]
        if broken and (1, None) in taken:
            raise OSError("no disk")
        got.extend(taken)

    def start(finish: bool) -> None:
        joined = join(left(), inputs.frames(spark), checkpoint=tmp_path / "state", key_groups=4)
        joined.writeStream.trigger(availableNow=True, finish=finish).foreachBatch(take).start().awaitTermination()

    rows(inputs, 1, 2)
    with pytest.raises(SparkJoinError, match="no disk"):
        start(finish=True)
    broken = False
    start(finish=False)
    assert sorted(got, key=str) == [(1, None), (2, 2)]


def test_windows_of_aggregates_are_given_at_the_end(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", R=ROWS, S=ROWS)
    rows(inputs, 2, 4)
    rows(inputs, 12, 14)
    run(spark, counted(), inputs, tmp_path, finish=False)
    assert {row["window_start"] for row in published(tmp_path / "out").to_pylist()} <= {0}
    run(spark, counted(), inputs, tmp_path, finish=True)
    windows = sorted((row["window_start"], row["R.k"], row["n"]) for row in published(tmp_path / "out").to_pylist())
    assert windows == [(0, 2, 1), (0, 4, 1), (10, 12, 1), (10, 14, 1)]


def test_what_cannot_finish_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", R=ROWS, S=ROWS)
    with pytest.raises(SparkJoinError, match="needs input that the workers read"):
        run(spark, left(), inputs, tmp_path, finish=True, transport="rows")
    untimed = eddy.Query([eddy.Stream(name, ROWS) for name in "RS"], ["R.k = S.k"])
    with pytest.raises(SparkJoinError, match="without event time no result waits"):
        run(spark, untimed, inputs, tmp_path / "untimed", finish=True)
    joined = join(left(), inputs.frames(spark), checkpoint=tmp_path / "other")
    with pytest.raises(SparkJoinError, match="pass availableNow=True with it"):
        joined.writeStream.trigger(processingTime="1 second", finish=True)
