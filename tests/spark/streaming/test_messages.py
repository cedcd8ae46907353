"""Messages of a streaming join: its exceptions, its log records, and its jobs in Spark's UI."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import eddy
from eddy.spark import Sink, join
from eddy.spark.errors import SparkJoinError, StreamingStateError, error_of_worker
from eddy.spark.streaming.state.spark_files import check_spark_files
from tests.spark.streaming.jobs import Inputs, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64())])


def query() -> eddy.Query:
    return eddy.Query(
        [eddy.Stream(name, SCHEMA, window=eddy.Range(1000), time="t") for name in "RS"], ["R.k = S.k"], lateness=1000
    )


def add(inputs: Inputs) -> None:
    chance = random.Random(5)
    for name in inputs.schemas:
        inputs.add(name, [{"k": chance.randrange(9), "t": chance.randrange(50)} for _ in range(20)])


@pytest.fixture
def inputs(spark: SparkSession, tmp_path: Path) -> Inputs:
    """Two streams with a joined batch in `state`, and files of a second batch."""
    made = Inputs(tmp_path / "in", R=SCHEMA, S=SCHEMA)
    add(made)
    # With this transport Spark has a list of files for each stream, too.
    running = run(query(), made.frames(spark), tmp_path / "state", tmp_path / "out", transport="rows")
    running.forget_engines()
    add(made)
    return made


def descriptions(spark: SparkSession) -> list[str]:
    """Return the descriptions of all jobs in Spark's UI, oldest first."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)  # type: ignore[union-attr]
    shown = [jobs.apply(k).description() for k in range(jobs.length())]
    return [description.get() if description.isDefined() else "" for description in reversed(shown)]


def test_a_damaged_log_file_is_the_error_of_the_query(spark: SparkSession, inputs: Inputs, tmp_path: Path) -> None:
    for path in (tmp_path / "state" / "log").iterdir():
        path.write_bytes(path.read_bytes()[:-60])
    joined = join(query(), inputs.frames(spark), checkpoint=tmp_path / "state")
    running = joined.writeStream.trigger(availableNow=True).format("parquet").start(tmp_path / "out")
    with pytest.raises(StreamingStateError) as raised:
        running.awaitTermination()
    for problem in (raised.value, running.exception()):
        assert isinstance(problem, StreamingStateError)
        assert str(problem).startswith(str(tmp_path / "state" / "log"))
        assert "restore the file from a backup" in str(problem)
        assert "Traceback" not in str(problem)
        assert "\n" not in str(problem)
    assert raised.value.__suppress_context__, "Spark's trace would be printed before it"
    with pytest.raises(StreamingStateError, match="restore the file from a backup"):
        running.processAllAvailable()
    assert "Traceback" in str(running.inner.exception())


def test_the_error_of_a_callback_keeps_its_trace(spark: SparkSession, inputs: Inputs, tmp_path: Path) -> None:
    def fails(rows: object, batch: int) -> None:
        raise ValueError("not today")

    frames = inputs.frames(spark)
    joined = join(query(), frames, checkpoint=tmp_path / "other", key_groups=2)
    running = joined.writeStream.trigger(availableNow=True).foreachBatch(fails).start()
    with pytest.raises(SparkJoinError, match=r"^the callback .* failed in batch 0: ValueError: not today") as raised:
        running.awaitTermination()
    assert isinstance(raised.value.__cause__, ValueError)


def test_the_line_that_matters_comes_before_the_trace_of_spark(
    spark: SparkSession, inputs: Inputs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Sink):
        def publish(self, batch: int, files: Sequence[str], spark: SparkSession) -> None:
            raise OSError("the disk of the warehouse is full")

    joined = join(query(), inputs.frames(spark), checkpoint=tmp_path / "broken", key_groups=2)
    running = joined.writeStream.trigger(availableNow=True).sink(Broken()).start()
    with pytest.raises(SparkJoinError, match=r"^the sink Broken failed in batch 0: OSError: the disk") as raised:
        running.awaitTermination()
    (line,) = [
        record.message for record in caplog.records if (record.name, record.levelname) == ("eddy", "ERROR")
    ]  # once; Spark logs its own trace when the call of the micro-batch has returned
    assert "has failed in batch 0: the sink Broken failed in batch 0: OSError: the disk of the warehouse" in line
    assert isinstance(raised.value.__cause__, OSError)
    # What Spark logs has the line as well, and no trace of the sink.
    assert "publish_results" not in str(running.inner.exception())


@pytest.mark.campaign(2)
@pytest.mark.parametrize("log", ["offsets/0", "commits/0", "sources/0/0", "metadata"])
@pytest.mark.parametrize("with_sums", [True, False])
def test_a_shortened_file_of_sparks_is_named_before_the_start(
    spark: SparkSession, inputs: Inputs, tmp_path: Path, log: str, with_sums: bool
) -> None:
    state = tmp_path / "state"
    check_spark_files(state / "spark")
    path = state / "spark" / log
    whole = path.read_bytes()
    if not with_sums:
        path.with_name(f".{path.name}.crc").unlink()
    path.write_bytes(whole[: len(whole) // 2 if with_sums else 1])
    joined = join(query(), inputs.frames(spark), checkpoint=state)
    with pytest.raises(StreamingStateError) as raised:
        joined.writeStream.format("parquet").start(tmp_path / "out")
    assert str(raised.value).startswith(f"{path}: this file of Spark is damaged: ")
    if log.startswith("commits"):
        assert f"delete it and .{path.name}.crc next to it" in str(raised.value)
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    else:
        assert "restore it from a backup, or start with a new checkpoint" in str(raised.value)
        path.write_bytes(whole)
    again = run(query(), inputs.frames(spark), state, tmp_path / "out")
    assert again.batches()["batch"].to_pylist() == [1]


def test_spark_shows_what_its_jobs_are_for(spark: SparkSession, inputs: Inputs, tmp_path: Path) -> None:
    before = len(descriptions(spark))
    calls: list[str | None] = []

    def look(rows: object, batch: int) -> None:
        calls.append(spark.sparkContext.getLocalProperty("spark.job.description"))

    spark.sparkContext.setJobDescription("mine")
    try:
        frames = inputs.frames(spark, files=2)
        joined = join(query(), frames, checkpoint=tmp_path / "other", key_groups=2, transport="rows")
        writer = joined.writeStream.trigger(availableNow=True).foreachBatch(look)
        writer.queryName("shop").start().awaitTermination()
        assert spark.sparkContext.getLocalProperty("spark.job.description") == "mine"
    finally:
        spark.sparkContext.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    assert calls == ["shop: batch 0, publish results"]
    shown = descriptions(spark)[before:]
    assert {"shop: batch 0, log rows", "shop: batch 0, join"} <= set(shown)
    assert not [
        description for description in shown if not description.startswith(("shop: batch 0, ", "shop: keep workers"))
    ]


def test_an_operator_reads_of_starts_recoveries_and_refusals(
    spark: SparkSession, inputs: Inputs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "eddy")
    state = tmp_path / "state"
    damaged = state / "manifests" / "000000000000.manifest"
    damaged.write_bytes(b"cut")
    # Spark replays batch 0, which is joined and published.
    for name in ("0", ".0.crc"):
        (state / "spark" / "commits" / name).unlink()
    frames = inputs.frames(spark)
    joined = join(query(), frames, checkpoint=state)
    running = joined.writeStream.format("parquet").queryName("shop").start(tmp_path / "out")
    running.processAllAvailable()
    with pytest.raises(StreamingStateError, match="is in use"):
        joined.writeStream.format("parquet").start(tmp_path / "out")
    running.stop()
    records = [(record.levelname, record.getMessage().replace(f"shop ({state})", "SHOP")) for record in caplog.records]
    assert ("WARNING", "SHOP: Spark replays batch 0, which is committed; publishing it if needed") in records
    assert any(level == "WARNING" and text.startswith(f"SHOP: {damaged} (") for level, text in records)
    rebuilt = [text for level, text in records if level == "WARNING" and "loaded the engines of key groups" in text]
    assert len(rebuilt) == 1
    assert rebuilt[0].startswith("SHOP: batch 1: loaded the engines of key groups [")
    refused = "start was refused: StreamingStateError: "
    assert any(level == "WARNING" and text.startswith(refused) for level, text in records)
    started = records.index(("INFO", "SHOP starts after batch 0"))
    assert records.index(("INFO", "SHOP is stopping on request")) > started
    assert not [text for level, text in records if level == "ERROR"]


def text_of(task: Callable[[], object]) -> str:
    import traceback

    try:
        task()
    except Exception:
        return f"Job aborted\n{traceback.format_exc()}\n\tat org.apache.spark.api.python"
    raise AssertionError("it did not raise")


def test_an_error_of_a_task_is_found_in_what_spark_says() -> None:
    def refuses() -> None:
        try:
            raise ValueError("first")
        except ValueError as problem:
            raise eddy.InputError("stream R: column 'k' is 7") from problem

    error = error_of_worker(RuntimeError(text_of(refuses)))
    assert (type(error), str(error)) == (eddy.InputError, "stream R: column 'k' is 7")
    assert error_of_worker(RuntimeError(text_of(lambda: 1 // 0))) is None
    join_error = SparkJoinError("mine")
    assert error_of_worker(join_error) is join_error
