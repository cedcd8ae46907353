"""The join of one partition: many pushes in one micro-batch lose no row."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddy
from eddy.spark.directories import StreamDirectory
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.engine import EngineOptions
from eddy.spark.partitioning.job import Job, make_job
from eddy.spark.partitioning.pieces import Splitter
from eddy.spark.partitioning.split_tree import SplitTree
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.segments import Segment, SegmentWriter
from eddy.spark.streaming.worker.engines import JoinStart, engines_of
from eddy.spark.streaming.worker.input_reader import logged_inputs
from eddy.spark.streaming.worker.partition_join import PartitionJoin
from eddy.spark.streaming.worker.tasks import GroupTask, PartitionTask
from eddy.spark.transports.inputs import FilePart
from eddy.spark.transports.parquet_source import FileInput
from tests.cases import assert_same, text_rows

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])


def logged(job: Job, locations: Locations, rows: dict[str, pa.Table], batch: int = 0) -> list[Segment]:
    """Write rows to the log as tasks do, in two tasks for each stream."""
    segments = []
    for i, (name, table) in enumerate(rows.items()):
        for half in (0, 1):
            splitter = Splitter(job, i)
            with SegmentWriter(locations.log, f"{batch:012d}-{i}-{half}") as writer:
                for record_batch in table.slice(half * table.num_rows // 2, table.num_rows // 2).to_batches():
                    splitter.add(record_batch)
                for piece in splitter.finish():
                    segments.append(writer.add(piece.cell, i, piece.tuples, piece.first, piece.last))
                writer.finish()
        assert name == job.query.streams[i].name
    return segments


@pytest.mark.parametrize("span", [3, 100_000])
def test_rows_of_one_batch_are_joined_in_many_pushes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, span: int
) -> None:
    """The watermark after the batch is ahead of most of its rows, which are not late because of it."""
    monkeypatch.setattr("eddy.spark.partitioning.merge.PUSH_ROWS", 64)
    for name in ("SPARK_LOCAL_DIRS", "LOCAL_DIRS"):
        monkeypatch.delenv(name, raising=False)
    chance = random.Random(41)

    def rows() -> pa.Table:
        drawn: list[dict[str, Any]] = [
            {"k": chance.randrange(20), "t": chance.randrange(1000), "n": chance.randrange(10**9)} for _ in range(500)
        ]
        return pa.Table.from_pylist(drawn, schema=SCHEMA)

    tables = {"R": rows(), "S": rows()}
    query = eddy.Query([eddy.Stream(name, SCHEMA, window=eddy.Range(span), time="t") for name in tables], ["R.k = S.k"])
    job = make_job(query, options=EngineOptions(), partitions=1)
    locations = Locations(tmp_path, "test", tmp_path / "scratch")
    for directory in (locations.log, locations.late, tmp_path / "staging"):
        directory.mkdir()
    group = GroupTask(0, None, "after", tuple(logged(job, locations, tables)), None)
    task = PartitionTask(0, 0, None, None, None, 990, tmp_path / "staging", (group,), SplitTree(1, 1))
    engines = engines_of(
        JoinStart(str(tmp_path), pickle.dumps((job, locations, (), None)), b"a secret of a test", True)
    )
    report = PartitionJoin(engines, task, {}).run()
    assert engines.holding().engines == {0: "after"}
    (figures,) = report.groups
    assert (figures["rows"], figures["late"], report.late) == (1000, 0, [])
    results = pa.concat_tables([pq.read_table(tmp_path / "staging" / file.file) for file in report.results])
    expected = eddy.Runtime(query).push(tables)
    assert expected.num_rows > 50
    assert_same(text_rows(results), text_rows(expected), "in many pushes")
    assert figures["results"] == expected.num_rows


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    query = eddy.Query([eddy.Stream(name, SCHEMA) for name in "RS"], ["R.k = S.k"])
    job, source = make_job(query, options=EngineOptions(), partitions=1), FileInput(StreamDirectory("file:/"), (), {})
    parts = (job, Locations(tmp_path, "test", tmp_path), (source, source), None)
    engines = engines_of(JoinStart(str(tmp_path), pickle.dumps(parts), b"a secret of a test", True))
    engines.locations.log.mkdir()
    gone = FilePart(1, str(tmp_path / "gone.parquet"))
    with (
        pytest.raises(SparkJoinError, match=r"stream 'S': .*gone.parquet cannot be read .*: restore it"),
        logged_inputs(engines, SplitTree(1, 1), 0, [gone]),
    ):
        pass
    assert not list(engines.locations.log.iterdir())
