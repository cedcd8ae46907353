"""Repeated starts of one checkpoint: settings that may change do, and other changes are refused."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import eddy
from eddy.spark import SparkJoinError, join
from eddy.spark.errors import StreamingStateError
from tests.cases import assert_same, text_rows
from tests.spark.streaming.jobs import Inputs, results, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])


def stream(name: str, schema: pa.Schema = SCHEMA, window: eddy.Range | eddy.Unbounded | None = None) -> eddy.Stream:
    return eddy.Stream(name, schema, window=window or eddy.Range(40), time="t")


def query(**more: Any) -> eddy.Query:
    return eddy.Query([stream(name) for name in "RST"], ["R.k = S.k", "S.k = T.k"], lateness=60, **more)


def add(inputs: Inputs, chance: random.Random, rows: int = 25, keys: int = 8) -> None:
    """Add a file to each stream."""
    for name in inputs.schemas:
        begin = 30 * len(inputs.tables[name])
        inputs.add(
            name,
            [
                {
                    "k": chance.randrange(keys),
                    "j": chance.randrange(8),
                    "t": begin + chance.randrange(50),
                    "n": chance.randrange(10**9),
                }
                for _ in range(rows)
            ],
        )


@pytest.mark.versions
@pytest.mark.campaign(1)
@pytest.mark.parametrize("transport", ["rows", "packed"])
def test_plan_strategy_bound_partitions_and_place_may_change(
    spark: SparkSession, tmp_path: Path, transport: str
) -> None:
    chance = random.Random(11)
    inputs = Inputs(tmp_path / "in", **dict.fromkeys("RST", SCHEMA))
    starts: list[dict[str, Any]] = [
        {"partitions": 1, "transport": transport},
        {"partitions": 2, "strategy": "jisc", "plan": "(S T) R"},
        {"partitions": 3, "strategy": "mjoin", "max_bytes": 100_000_000},
        {"partitions": 1, "strategy": "cacq", "rebalance": "off", "keep": 2},
        {"partitions": 2, "policy": "a-greedy", "plan": "R (S T)", "watermark": "per-source"},
        {"partitions": 2, "policy": "lottery", "idle_after": 1000.0, "lateness": {"R": 70}},
    ]
    partitions = []
    for number, how in enumerate(starts):
        add(inputs, chance)
        place = tmp_path / ("first" if number < 3 else "second")
        running = run(query(), inputs.frames(spark), tmp_path / "state", place, key_groups=6, **how)
        figures = running.groups()
        assert set(figures["source"].to_pylist()) <= ({"new"} if number == 0 else {"loaded", "live", "new"})
        partitions.append(running.partition_map.n)
        assert sum(running.batches()["late"].to_pylist()) == 0
        if how.get("strategy") == "jisc":
            assert set(figures["plan"].to_pylist()) == {"(S T) R"}
    assert partitions == [1, 2, 3, 1, 2, 2]
    expected = text_rows(join(query(), inputs.batch_frames(spark)).toArrow())
    assert len(expected) > 200
    assert_same([*results(tmp_path / "first"), *results(tmp_path / "second")], expected, "over all starts")
    other = "packed" if transport == "rows" else "rows"
    with pytest.raises(SparkJoinError, match=f"transport='{other}': the checkpoint .* was begun with '{transport}'"):
        run(query(), inputs.frames(spark), tmp_path / "state", tmp_path / "second", key_groups=6, transport=other)


def test_another_join_is_refused_by_what_differs(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(12)
    inputs = Inputs(tmp_path / "in", **dict.fromkeys("RST", SCHEMA))
    add(inputs, chance)
    run(query(), inputs.frames(spark), tmp_path / "state", tmp_path / "out")
    before = sorted(path.name for path in (tmp_path / "state").rglob("*") if path.is_file())
    keys = ["R.k = S.k", "S.k = T.k"]
    wider = pa.schema([*SCHEMA, ("m", pa.int64())])
    others: list[tuple[eddy.Query, dict[str, Any], str]] = [
        (eddy.Query([stream(n) for n in "RST"], ["R.j = S.k", "S.k = T.k"], lateness=60), {}, r"R\.k.*R\.j"),
        (
            eddy.Query([stream("R"), stream("S", window=eddy.Range(41)), stream("T")], keys, lateness=60),
            {},
            r"stream S, window.*40.*41",
        ),
        (eddy.Query([stream("R"), stream("S", wider), stream("T")], keys, lateness=60), {}, r"stream S.*\bm\b"),
        (eddy.Query([stream(n) for n in "RSX"], ["R.k = S.k", "S.k = X.k"], lateness=60), {}, r"\bT\b.*\bX\b"),
        (query(), {"key_groups": 8}, r"number of key groups: 4 in the checkpoint, 8 now"),
    ]
    for other, how, message in others:
        frames = {
            other_stream.name: inputs.frame(spark, name)
            for other_stream, name in zip(other.streams, "RST", strict=True)
        }
        if other.streams[1].schema is wider:
            frames["S"] = frames["S"].selectExpr("*", "n AS m")
        with pytest.raises(StreamingStateError, match=f"belongs to another join: .*{message}"):
            run(other, frames, tmp_path / "state", tmp_path / "out", **how)
    assert sorted(path.name for path in (tmp_path / "state").rglob("*") if path.is_file()) == before
    add(inputs, chance)
    # Without the argument the number of key groups is that of the checkpoint.
    run(query(), inputs.frames(spark), tmp_path / "state", tmp_path / "out", key_groups=None)
    expected = text_rows(join(query(), inputs.batch_frames(spark)).toArrow())
    assert_same(results(tmp_path / "out"), expected, "the old query")


def until(happened: Callable[[], bool], what: str) -> None:
    """Wait for an event of another thread."""
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.versions
def test_one_driver_at_a_time_and_none_when_the_query_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    """A query releases the checkpoint however it ends: stopped here or through Spark, finished, or failed."""
    inputs = Inputs(tmp_path / "in", **dict.fromkeys("RST", SCHEMA))
    add(inputs, random.Random(13))
    again = join(query(), inputs.frames(spark), checkpoint=tmp_path / "state", key_groups=4)
    waiting = again.writeStream.format("noop")
    first = waiting.start(queryName="eddy")
    assert (first.name, first.isActive, first.exception()) == ("eddy", True, None)
    with pytest.raises(StreamingStateError, match=r"state is in use by process \d+ on .*: only one driver can run"):
        waiting.start()
    first.processAllAvailable()
    assert first.awaitTermination(0.01) is False
    first.stop()
    second = waiting.start()
    assert (second.id, second.isActive) == (first.id, True)
    assert second.runId != first.runId
    second.inner.stop()

    failed = []

    def fails(rows: DataFrame, batch: int) -> None:
        failed.append(batch)
        raise ValueError("not today")

    def started() -> bool:
        """Start the failing query as soon as the checkpoint is free, for which Spark has no signal."""
        with contextlib.suppress(StreamingStateError):
            third.append(again.writeStream.foreachBatch(fails).start())
        return bool(third)

    third: list[Any] = []
    until(started, "the checkpoint of a query that Spark stopped is not free")
    add(inputs, random.Random(14))
    until(lambda: not third[0].isActive, "it did not fail")
    assert "the callback test_one_driver" in str(third[0].exception())
    assert failed == [1]
    calls: list[tuple[int, int]] = []
    last = again.writeStream.trigger(availableNow=True)
    last.foreachBatch(lambda rows, batch: calls.append((batch, rows.count()))).start().awaitTermination()
    assert [batch for batch, _ in calls] == [1]
    assert calls[0][1] > 0


def test_fewer_tasks_than_before_have_their_engines_in_each_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    """A session keeps the workers of the start before; the tasks of this one must not take turns in them."""
    chance = random.Random(16)
    inputs = Inputs(tmp_path / "in", **dict.fromkeys("RST", SCHEMA))
    add(inputs, chance)
    run(query(), inputs.frames(spark), tmp_path / "state", tmp_path / "out", partitions=2)
    for _ in range(4):
        add(inputs, chance)
    running = run(query(), inputs.frames(spark), tmp_path / "state", tmp_path / "out", partitions=1)
    first, *later = running.batches().to_pylist()
    assert first["loaded"] == 4
    assert [batch["loaded"] for batch in later] == [0] * 3


def test_too_small_a_bound_is_an_error_and_costs_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """The windows of one key group exceed max_bytes: the query fails, and resumes with a larger bound."""
    chance = random.Random(15)
    inputs = Inputs(tmp_path / "in", **dict.fromkeys("RST", SCHEMA))
    add(inputs, chance)
    run(query(), inputs.frames(spark), tmp_path / "state", tmp_path / "out", max_bytes=10_000_000)
    add(inputs, chance, rows=1500, keys=2000)
    small = join(query(), inputs.frames(spark), checkpoint=tmp_path / "state", max_bytes=60_000)
    running = small.writeStream.trigger(availableNow=True).format("parquet").start(tmp_path / "out")
    with pytest.raises(Exception, match=r"payload alone would take .* bytes, max_bytes is 60,000"):
        running.awaitTermination()
    assert "max_bytes is 60,000" in str(running.exception())
    assert not running.isActive
    run(query(), inputs.frames(spark), tmp_path / "state", tmp_path / "out", max_bytes=10_000_000)
    assert_same(results(tmp_path / "out"), text_rows(join(query(), inputs.batch_frames(spark)).toArrow()), "after more")


def test_a_sink_that_was_another_jobs_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", **dict.fromkeys("RST", SCHEMA))
    add(inputs, random.Random(16))
    run(query(), inputs.frames(spark), tmp_path / "state", tmp_path / "out")
    with pytest.raises(SparkJoinError, match=r"out holds results of job .*, and this is job .*; give each job"):
        run(query(), inputs.frames(spark), tmp_path / "other", tmp_path / "out")
