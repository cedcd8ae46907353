"""A user's own sink in a streaming job: it publishes each batch once, despite a failure between commit and publish."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddy
from eddy.spark import Sink, SparkJoinError, join
from eddy.spark.streaming.sinks import FORMATS
from eddy.spark.streaming.state.checkpoint import Checkpoint
from tests.spark.streaming.jobs import Inputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])
QUERY = eddy.Query([eddy.Stream(name, SCHEMA, window=eddy.Range(40), time="t") for name in "RS"], ["R.k = S.k"])


class SqliteSink(Sink):
    """The example in the docstring of `Sink`, with failures on request.

    fail_before   batches for which the first attempt fails before it changes anything
    fail_after    batches for which the first attempt fails after its transaction
    """

    def __init__(self, path: Path, fail_before: Sequence[int] = (), fail_after: Sequence[int] = ()) -> None:
        self._path = path
        self._fail_before, self._fail_after = set(fail_before), set(fail_after)
        self.calls: list[tuple[int, tuple[str, ...]]] = []

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession) -> None:
        self.calls.append((batch, tuple(files)))
        if batch in self._fail_before:
            raise ConnectionError("the database is away")
        with contextlib.closing(sqlite3.connect(self._path)) as db, db:
            db.execute("CREATE TABLE IF NOT EXISTS batches (batch INTEGER PRIMARY KEY)")
            db.execute("CREATE TABLE IF NOT EXISTS pairs (r INTEGER, s INTEGER)")
            if db.execute("SELECT 1 FROM batches WHERE batch = ?", [batch]).fetchone():
                return
            for path in self.paths(batch, files):
                rows = pq.read_table(path).select(["R.n", "S.n"]).to_pylist()
                db.executemany("INSERT INTO pairs VALUES (?, ?)", [tuple(row.values()) for row in rows])
            db.execute("INSERT INTO batches VALUES (?)", [batch])
        if batch in self._fail_after:
            raise ConnectionError("the driver loses the reply")

    def pairs(self) -> list[tuple[int, int]]:
        with contextlib.closing(sqlite3.connect(self._path)) as db:
            return sorted(db.execute("SELECT r, s FROM pairs"))

    def batches(self) -> list[int]:
        with contextlib.closing(sqlite3.connect(self._path)) as db:
            return [batch for (batch,) in db.execute("SELECT batch FROM batches ORDER BY batch")]


def filled(root: Path, files: int) -> Inputs:
    chance = random.Random(51)
    inputs = Inputs(root / "in", R=SCHEMA, S=SCHEMA)
    for number in range(files):
        for name in "RS":
            times = sorted(20 * number + chance.randrange(20) for _ in range(15))
            inputs.add(name, [{"k": chance.randrange(5), "t": t, "n": chance.randrange(10**9)} for t in times])
    return inputs


def run(frames: dict[str, DataFrame], state: Path, sink: Sink) -> None:
    joined = join(QUERY, frames, checkpoint=state, key_groups=4, lateness=20)
    running = joined.writeStream.sink(sink).trigger(availableNow=True).start()
    assert running.awaitTermination(120)


def expected(inputs: Inputs, spark: SparkSession) -> list[tuple[int, int]]:
    rows = join(QUERY, inputs.batch_frames(spark)).select("`R.n`", "`S.n`").collect()
    return sorted((row[0], row[1]) for row in rows)


@pytest.mark.parametrize("moment", ["fail_before", "fail_after"])
def test_a_batch_is_published_once_despite_a_failure_after_its_commit(
    spark: SparkSession, tmp_path: Path, moment: str
) -> None:
    inputs, state, database = filled(tmp_path, 3), tmp_path / "state", tmp_path / "results.db"
    failures: dict[str, Any] = {moment: [1]}
    failing = SqliteSink(database, **failures)
    with pytest.raises(SparkJoinError, match=r"the sink SqliteSink failed in batch 1: ConnectionError: .* again"):
        run(inputs.frames(spark), state, failing)
    assert failing.batches() == ([0] if moment == "fail_before" else [0, 1])
    checkpoint = Checkpoint(state)
    assert checkpoint.newest_number() == 1, "the batch is committed"
    assert not checkpoint.is_published(1)

    again = SqliteSink(database)
    run(inputs.frames(spark), state, again)
    assert again.calls[0] == failing.calls[-1], "the same batch with the same files"
    assert [batch for batch, _ in again.calls] == [1, 2]
    assert again.batches() == [0, 1, 2]
    want = expected(inputs, spark)
    assert len(want) > 30
    assert again.pairs() == want
    assert not list((state / "staging").glob("00*1")), "files of published batches are cleaned"


def test_defaults_give_the_results_as_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    class Collect(Sink):
        def publish(self, batch: int, files: Sequence[str], spark: SparkSession) -> None:
            frame = self.frame(spark, batch, files).select("`R.n`", "`S.n`")
            rows.extend((row[0], row[1]) for row in frame.collect())

    rows: list[tuple[int, int]] = []
    inputs = filled(tmp_path, 2)
    run(inputs.frames(spark), tmp_path / "state", Collect())
    assert sorted(rows) == expected(inputs, spark)


def test_the_registry_names_every_format() -> None:
    assert list(FORMATS) == ["parquet", "transactions", "delta", "kafka", "console", "noop"]
    assert all(issubclass(kind, Sink) and kind.name == name for name, kind in FORMATS.items())


def test_a_sink_has_to_publish() -> None:
    with pytest.raises(TypeError, match="publish"):
        Sink()  # type: ignore[abstract]
