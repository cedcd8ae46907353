"""Streaming joins whose checkpoint is in an object store: what they publish is what they publish with a directory."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import eddy
from eddy.demo.object_server import BUCKET, SECRET, ObjectServer, object_server
from eddy.program.running import RunningProgram, check_program
from eddy.spark import SparkJoinError, StreamingStateError, explain, join
from eddy.spark.streaming.sinks import ParquetSink
from tests.cases import text_rows
from tests.spark.streaming import test_groups as groups
from tests.spark.streaming.hub_jobs import DrawnRows, grouped, hub_of
from tests.spark.streaming.hub_jobs import query as hub_query
from tests.spark.streaming.jobs import Inputs, newest_manifest, published, results, run
from tests.spark.streaming.test_restart import SCHEMA, add, query
from tests.spark.streaming.test_tables import total

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with object_server() as running:
        yield running


@pytest.fixture
def place(server: ObjectServer, request: pytest.FixtureRequest) -> dict[str, Any]:
    """The options of a join with a checkpoint of its own."""
    name = request.node.name.replace("[", "/").replace("]", "")
    return {"checkpoint": f"s3://{BUCKET}/{name}", "checkpoint_options": server.options}


@pytest.mark.versions
@pytest.mark.campaign(1)
@pytest.mark.parametrize("transport", ["rows", "packed"])
def test_restarts_elsewhere_publish_what_a_directory_does(
    spark: SparkSession, tmp_path: Path, place: dict[str, Any], transport: str
) -> None:
    """Each start has a new working directory, as on another host. Some rows are late."""
    chance, inputs = random.Random(5), Inputs(tmp_path / "in", **dict.fromkeys("RST", SCHEMA))
    asked, how = query(), {"transport": transport, "key_groups": 6, "keep": 2}
    for number in range(4):
        add(inputs, chance)
        inputs.add("R", [{"k": 1, "j": 1, "t": -200 + number, "n": number}] if number else [])
        running = run(asked, inputs.frames(spark), out=tmp_path / "out", **how, **place)
        plain = run(asked, inputs.frames(spark), tmp_path / "state", tmp_path / "plain", **how)
        if number == 2:
            running.split(0)  # of the next start, if a batch comes; requests end with the run
    assert sorted(results(tmp_path / "out")) == sorted(results(tmp_path / "plain"))
    assert len(results(tmp_path / "out")) > 100
    assert sorted(text_rows(running.late("R").toArrow())) == sorted(text_rows(plain.late("R").toArrow()))
    assert running.late("R").count() >= 3
    assert running.recoveries == []
    assert str(place["checkpoint"]) in repr(running)
    shown = explain(asked, inputs.frames(spark), **how, **place)
    assert f"after batch {plain.batches()['batch'].to_pylist()[-1]}, in {place['checkpoint']}" in shown


def test_a_batch_that_was_not_published_is_published_by_the_next_start(
    spark: SparkSession, tmp_path: Path, place: dict[str, Any]
) -> None:
    chance, inputs = random.Random(6), Inputs(tmp_path / "in", **dict.fromkeys("RST", SCHEMA))
    given: dict[int, Counter[tuple[str, ...]]] = {}
    fails = [True]

    def take(rows: DataFrame, batch: int) -> None:
        counts = Counter(text_rows(rows.toArrow()))
        assert given.setdefault(batch, counts) == counts
        if fails.pop() if fails else False:
            raise ValueError("injected")

    def once() -> None:
        joined = join(query(), inputs.frames(spark), key_groups=4, **place)
        running = joined.writeStream.trigger(availableNow=True).foreachBatch(take).start()
        running.awaitTermination(120)

    add(inputs, chance)
    with pytest.raises(Exception, match="injected"):
        once()
    add(inputs, chance)
    once()
    run(query(), inputs.frames(spark), tmp_path / "state", tmp_path / "plain")
    assert sum(given.values(), Counter()) == Counter(results(tmp_path / "plain"))
    assert len(given) >= 2


def test_aggregates_go_on_from_the_groups(spark: SparkSession, tmp_path: Path, place: dict[str, Any]) -> None:
    chance, inputs = random.Random(7), Inputs(tmp_path / "in", R=groups.ROWS, S=groups.ROWS)
    asked, begin = groups.grouped(eddy.Tumbling(7)), 0
    for _ in range(3):
        begin = groups.add(inputs, chance, 2, begin)
        run(asked, inputs.frames(spark), out=tmp_path / "out", **place)
        run(asked, inputs.frames(spark), tmp_path / "state", tmp_path / "plain")
    assert sorted(results(tmp_path / "out")) == sorted(results(tmp_path / "plain"))
    assert len(results(tmp_path / "out")) > 5


def test_groups_go_on_from_rows_in_their_place(spark: SparkSession, tmp_path: Path, place: dict[str, Any]) -> None:
    chance, inputs = random.Random(7), Inputs(tmp_path / "in", R=groups.ROWS, S=groups.ROWS)
    asked, begin, logged = groups.grouped(None, ["R.t", "S.t"], expiry="final"), 0, 0
    for files in (6, 1, 1):
        begin = groups.add(inputs, chance, files, begin)
        run(asked, inputs.frames(spark), out=tmp_path / "out", **place)
        run(asked, inputs.frames(spark), tmp_path / "state", tmp_path / "plain")
        parts = newest_manifest(tmp_path / "state").operators[""].parts
        logged += sum(len(part.files) > 1 for part in parts)
        assert total(tmp_path / "out") == total(tmp_path / "plain")
    assert logged
    assert len(total(tmp_path / "out")) > 100


def test_a_hub_goes_on(spark: SparkSession, tmp_path: Path, place: dict[str, Any]) -> None:
    rows = DrawnRows(tmp_path / "in", 3)
    for _ in range(4):
        rows.add()
        for where, how in (("out", place), ("plain", {"checkpoint": tmp_path / "state"})):
            hub = hub_of(spark, rows.inputs, **how)
            hub.start("wide", hub_query({"R": 30, "S": 20}), ParquetSink(tmp_path / where / "wide"))
            hub.start("all", hub_query({"R": 45, "S": 40, "T": 20}), ParquetSink(tmp_path / where / "all"))
            hub.start("groups", grouped(3), ParquetSink(tmp_path / where / "groups"))
            assert hub.run(availableNow=True).awaitTermination(120)
    for name in ("wide", "all", "groups"):
        table = published(tmp_path / "out" / name)
        assert sorted(text_rows(table)) == sorted(text_rows(published(tmp_path / "plain" / name)))
        assert table.num_rows > (20 if name != "groups" else 3)


def test_what_cannot_run_is_refused_before_data_are_touched(
    spark: SparkSession, tmp_path: Path, server: ObjectServer, place: dict[str, Any]
) -> None:
    chance, inputs = random.Random(8), Inputs(tmp_path / "in", **dict.fromkeys("RST", SCHEMA))
    add(inputs, chance)
    missing = {**place, "checkpoint": "s3://no-such-bucket/x"}
    with pytest.raises(StreamingStateError, match="the bucket does not exist"):
        run(query(), inputs.frames(spark), out=tmp_path / "none", **missing)
    run(query(), inputs.frames(spark), out=tmp_path / "out", **place)
    with pytest.raises(StreamingStateError, match=f"the checkpoint {place['checkpoint']} belongs to another join"):
        run(query(select=["R.n"]), inputs.frames(spark), out=tmp_path / "out", **place)
    with pytest.raises(SparkJoinError, match="was begun with"):
        run(query(), inputs.frames(spark), out=tmp_path / "out", transport="rows", **place)
    held = join(query(), inputs.frames(spark), key_groups=4, **place).writeStream.format("noop").start()
    try:
        with pytest.raises(StreamingStateError, match=r"is in use by process \d+"):
            run(query(), inputs.frames(spark), out=tmp_path / "out", **place)
    finally:
        held.stop()
    frames = {**inputs.frames(spark), "R": inputs.frames(spark)["R"].dropDuplicates(["n"])}
    apart = {**place, "checkpoint": f"{place['checkpoint']}/apart"}
    with pytest.raises(StreamingStateError, match="keeps a state in Spark") as refused:
        run(query(), frames, out=tmp_path / "apart", **apart)
    assert SECRET not in str(refused.value)
    assert not any(name.startswith("manifests") for name in server.store(apart["checkpoint"][19:]).names("manifests"))


def test_a_program_keeps_its_state_in_an_object_store(
    tmp_path: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch, place: dict[str, Any]
) -> None:
    """Each INSERT has a prefix of its own; the settings come from the environment."""
    asked: list[Any] = []

    def joined(*given: Any, **how: Any) -> Any:
        asked.append(how["checkpoint"])
        raise SparkJoinError("enough")

    monkeypatch.setattr("eddy.spark.join", joined)
    text = """
        CREATE TABLE a (k BIGINT, at TIMESTAMP, WATERMARK FOR at AS at) WITH ('connector' = 'files', 'path' = 'in');
        CREATE TABLE b (k BIGINT, at TIMESTAMP, WATERMARK FOR at AS at) WITH ('connector' = 'files', 'path' = 'in');
        CREATE TABLE c (k BIGINT) WITH ('connector' = 'files', 'path' = 'out');
        INSERT INTO c SELECT a.k FROM a JOIN b ON a.k = b.k AND b.at BETWEEN a.at AND a.at + INTERVAL '1' MINUTE;
    """
    monkeypatch.setattr("eddy.program.running.input_frame", lambda spark, table: None)
    monkeypatch.setattr(eddy.Query, "inputs", lambda query, frames: frames)
    with pytest.raises(SparkJoinError, match="enough"):
        RunningProgram.started(None, check_program(text), "s3://bucket/jobs", {})  # type: ignore[arg-type]
    assert asked == ["s3://bucket/jobs/c"]
