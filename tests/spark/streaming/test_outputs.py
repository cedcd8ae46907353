"""Sinks of a join, and the size of its state on disk."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import eddy
from eddy.spark import join, read_transactions
from eddy.spark.streaming.state import compaction
from eddy.spark.streaming.state.batch_names import batch_name, batch_of
from eddy.spark.streaming.state.checkpoint import Checkpoint
from eddy.spark.streaming.state.manifest import Manifest
from eddy.spark.streaming.state.retention import retain
from eddy.storage.durable import temporary_name
from tests.cases import assert_same, text_rows
from tests.spark.streaming.jobs import Inputs, results, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.string())])


def query(window: eddy.Range | eddy.Unbounded) -> eddy.Query:
    streams = [eddy.Stream(name, SCHEMA, window=window, time="t") for name in "RS"]
    return eddy.Query(streams, ["R.k = S.k"])


def filled(root: Path, files: int, rows: int = 12, step: int = 10) -> Inputs:
    chance = random.Random(31)
    inputs = Inputs(root / "in", R=SCHEMA, S=SCHEMA)
    for number in range(files):
        for name in "RS":
            times = sorted(step * number + chance.randrange(step) for _ in range(rows))
            inputs.add(name, [{"k": chance.randrange(5), "t": t, "v": f"{name}{chance.random()}"} for t in times])
    return inputs


def test_each_kind_of_output_gets_the_same_results(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = filled(tmp_path, files=2)
    asked = query(eddy.Range(15))
    expected = text_rows(join(asked, inputs.batch_frames(spark)).toArrow())
    assert len(expected) > 30
    frames = inputs.frames(spark)

    def state(name: str) -> dict[str, Any]:
        return {"checkpoint": tmp_path / name, "key_groups": 4, "lateness": 10}

    run(asked, frames, tmp_path / "transactions", tmp_path / "log", "transactions", key_groups=4, lateness=10)
    written = read_transactions(spark, tmp_path / "log")
    assert_same(text_rows(written.toArrow()), expected, "transactions")
    first = read_transactions(spark, tmp_path / "log", upto=0)
    assert 0 < first.count() < len(expected)

    given: list[tuple[int, list[tuple[str, ...]]]] = []

    def function(rows: DataFrame, batch: int) -> None:
        given.append((batch, text_rows(rows.toArrow())))

    joined = join(asked, frames, **state("function"))
    joined.writeStream.foreachBatch(function).trigger(availableNow=True).start().awaitTermination()
    assert [batch for batch, _ in given] == [0, 1]
    assert_same([row for _, rows in given for row in rows], expected, "foreachBatch")

    joined = join(asked, frames, **state("console"))
    joined.writeStream.trigger(availableNow=True).start(format="console", numRows=3).awaitTermination()
    shown = capsys.readouterr().out
    assert f"batch 0: {len(given[0][1])} rows, showing 3" in shown
    assert f"batch 1: {len(given[1][1])} rows, showing 3" in shown

    counted = run(asked, frames, tmp_path / "noop", tmp_path, "noop", lateness=10)
    assert counted.batches()["results"].to_pylist() == [len(rows) for _, rows in given]


def sizes(state: Path) -> dict[str, int]:
    return {place: len(list((state / place).iterdir())) for place in ("log", "manifests", "published", "late")}


def chains(state: Path) -> list[int]:
    """Return the number of links of each key group's chain."""
    newest = Checkpoint(state).newest()
    assert newest is not None
    return [len(group.chain) for group in newest.groups.values()]


def test_what_windows_have_left_goes_from_the_disk(spark: SparkSession, tmp_path: Path) -> None:
    inputs = filled(tmp_path, files=9)
    asked = query(eddy.Range(10))
    running = run(asked, inputs.frames(spark), tmp_path / "state", tmp_path / "out", key_groups=2, lateness=10, keep=2)
    assert running.batches().num_rows == 9
    assert max(chains(tmp_path / "state")) <= 4
    left = sizes(tmp_path / "state")
    assert left["manifests"] == 2 + 1  # plus the directory of copies
    assert left["log"] <= 2 * (4 + 1)
    oldest = min(batch_of(path.name) or 0 for path in (tmp_path / "state" / "log").iterdir())
    assert oldest >= 4
    expected = text_rows(join(asked, inputs.batch_frames(spark)).toArrow())
    assert_same(results(tmp_path / "out"), expected, "with a window that moves on")


def test_compaction_shortens_the_log_and_changes_no_result(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows are unbounded, so each batch adds a link; restarts read the compacted links."""
    monkeypatch.setattr(compaction, "MERGED", 3)
    inputs = filled(tmp_path, files=0)
    asked = query(eddy.Unbounded())
    chance = random.Random(32)
    for start in range(3):
        for _ in range(3):
            for name in "RS":
                draw = chance.randrange
                inputs.add(name, [{"k": draw(30), "t": draw(9), "v": f"{name}{draw(10**9)}"} for _ in range(20)])
        running = run(asked, inputs.frames(spark), tmp_path / "state", tmp_path / "out", key_groups=2, keep=2)
        running.stop()  # waits for a running compaction
        assert running.compaction_problem is None
        assert running.batches().num_rows == 3, start
    bases = [path.name for path in (tmp_path / "state" / "log").iterdir() if "-base-" in path.name]
    assert bases
    assert max(chains(tmp_path / "state")) < 9
    assert sizes(tmp_path / "state")["log"] < 2 * 9
    assert not list((tmp_path / "state" / "log").glob("*.tmp"))
    assert_same(results(tmp_path / "out"), text_rows(join(asked, inputs.batch_frames(spark)).toArrow()), "compacted")


def test_a_failed_compaction_is_reported_and_harms_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "MERGED", 2)

    def fails(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr("eddy.spark.streaming.driver.maintenance.compact", fails)
    inputs = filled(tmp_path, files=4)
    asked = query(eddy.Unbounded())
    running = run(asked, inputs.frames(spark), tmp_path / "state", tmp_path / "out", key_groups=2)
    running.stop()
    assert "no room" in str(running.compaction_problem)
    assert set(chains(tmp_path / "state")) == {4}
    assert_same(results(tmp_path / "out"), text_rows(join(asked, inputs.batch_frames(spark)).toArrow()), "uncompacted")


def test_retention_leaves_a_file_that_compaction_is_writing(tmp_path: Path) -> None:
    """The file still has its temporary name, and its batch is old when it is complete."""
    checkpoint = Checkpoint(tmp_path)
    for batch in range(3):
        checkpoint.commit(Manifest(batch, {}, (0,), {}, (), (), {}))
        checkpoint.mark_published(batch)
    writing, left = (batch_name(0) + name for name in ("-base-1", "-base-2"))
    for name in (writing, left):
        (checkpoint.log / temporary_name(name)).touch()
    retain(checkpoint, 2, in_use=[writing])
    assert [path.name.split(".")[0] for path in checkpoint.log.iterdir()] == [writing]
