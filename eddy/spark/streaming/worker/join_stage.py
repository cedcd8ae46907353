"""The second stage of a micro-batch: each task joins the rows of its key groups, one group after the other.

A group's engine is the live one of this host if it is exactly the one wanted, else it is loaded from the log. Nothing
that a task leaves behind counts until the driver's manifest names it: another attempt of the same task may run at the
same time, on this host or another, and either may win.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eddy.live.engine_file import EngineFile
from eddy.log import LOG
from eddy.runtime import Runtime
from eddy.spark.batch.engine import as_spark
from eddy.spark.batch.merge import Merger, interleave
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.job import Job
from eddy.spark.streaming.state.batch_names import batch_name
from eddy.spark.streaming.state.checkpoint import read_manifest
from eddy.spark.streaming.state.durable import private_opener, sync_directory
from eddy.spark.streaming.state.locations import Places
from eddy.spark.streaming.state.manifest import GroupState, OutputFile
from eddy.spark.streaming.state.segments import Segment, SegmentReader
from eddy.spark.types import spark_schema
from stairs.graph import FOREVER

LIVE, LOADED, NEW = "live", "loaded", "new"
DONE_COLUMNS = "done binary"


@dataclass(frozen=True)
class GroupTask:
    """A key group's share of a micro-batch.

    before    token of the state that its rows meet, None: it has none yet
    after     token of the state they leave
    segments  the rows
    plan      the plan the group had, to go on with when its engine has to be loaded
    """

    group: int
    before: str | None
    after: str
    segments: tuple[Segment, ...]
    plan: str | None


@dataclass(frozen=True)
class PartitionTask:
    """What one task of the second stage does.

    previous    the batch whose manifest tells where the state before is; None for the first
    late_below  per stream, the event time below which rows of this batch are late
    forgotten   what the engines may have forgotten by before this batch
    watermark   what they may forget by from this batch on
    staging     where result files go; None: results are counted only
    """

    batch: int
    partition: int
    previous: int | None
    late_below: tuple[int, ...] | None
    forgotten: int | None
    watermark: int | None
    staging: Path | None
    groups: tuple[GroupTask, ...]


class LateFigures(NamedTuple):
    """Late rows of one stream: how many there are, and by how many ticks the oldest of them missed the watermark."""

    rows: int = 0
    behind: int = 0

    def plus(self, other: LateFigures) -> LateFigures:
        """Return the figures of both."""
        return LateFigures(self.rows + other.rows, max(self.behind, other.behind))


@dataclass
class PartitionDone:
    """Result of a task: the files that it wrote, late rows by stream, and a row of figures for each of its groups."""

    results: list[OutputFile] = field(default_factory=list)
    late: list[OutputFile] = field(default_factory=list)
    late_rows: dict[int, LateFigures] = field(default_factory=dict)
    groups: list[dict[str, Any]] = field(default_factory=list)

    def packed(self) -> bytes:
        """Return it as bytes that the driver unpacks."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def unpacked(data: bytes) -> PartitionDone:
        """Return what a worker packed."""
        done = json.loads(data)
        files = [[OutputFile(**file) for file in done[kind]] for kind in ("results", "late")]
        late_rows = {int(stream): LateFigures(*figures) for stream, figures in done["late_rows"].items()}
        return PartitionDone(files[0], files[1], late_rows, done["groups"])


class _Arrived(NamedTuple):
    """Rows of one segment, ascending in arrival order from position `first`."""

    first: int
    stream: int
    rows: pa.RecordBatch


def pushes(job: Job, arrived: Sequence[_Arrived]) -> Iterator[dict[str, pa.Table]]:
    """Yield rows in arrival order as pushes of a size that suits; `arrived` ascends."""
    merger = Merger(job)
    for first, stream, rows in arrived:
        yield from merger.add(first, stream, rows)
    yield from merger.finish()


class _ResultFile:
    """The results of one task as one Parquet file, begun with the first of them."""

    def __init__(self, staging: Path | None, partition: int, schema: pa.Schema) -> None:
        self._staging = staging
        self._name = f"part-{partition:05d}-{uuid.uuid4().hex}.parquet"
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self.rows = 0

    def write(self, results: pa.Table) -> None:
        self.rows += results.num_rows
        if self._staging is None or not results.num_rows:
            return
        if self._writer is None:
            self._staging.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._staging / self._name, self._schema)
        self._writer.write_table(as_spark(results, self._schema))

    def close(self) -> list[OutputFile]:
        if self._writer is None or self._staging is None:
            return []
        self._writer.close()
        return [written(self._staging, self._name, self.rows)]


def written(directory: Path, name: str, rows: int, stream: int | None = None) -> OutputFile:
    """Make a file durable and return what the manifest is to say of it."""
    descriptor = os.open(directory / name, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        size = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    sync_directory(directory)
    return OutputFile(file=name, rows=rows, bytes=size, stream=stream)


class _State:
    """Finds the state that a group had: from the manifest before, read when first needed."""

    def __init__(self, job: Job, places: Places, previous: int | None) -> None:
        self._job = job
        self._places = places
        self._previous = previous
        self._groups: dict[int, GroupState] | None = None
        self._reader: SegmentReader | None = None
        self._schemas = [stream.schema for stream in job.query.streams]

    @property
    def reader(self) -> SegmentReader:
        self._reader = self._reader or SegmentReader(self._places.log, self._schemas)
        return self._reader

    def load(self, one: GroupTask, runtime: Runtime, watermark: int | None) -> None:
        """Load everything that the group's chain says into a runtime; `watermark` is the one that held after it."""
        if self._groups is None:
            assert self._previous is not None
            self._groups = read_manifest(self._places.root, self._previous).groups
        rows: list[list[pa.RecordBatch]] = [[] for _ in self._schemas]
        for link in self._groups[one.group].chain:
            for segment in link.segments:
                batch = self.reader.read(segment)
                rows[segment.stream].append(on_time(self._job, segment, batch, link.late_below)[0])
        names = [stream.name for stream in self._job.query.streams]
        tables = {name: pa.Table.from_batches(own) for name, own in zip(names, rows, strict=True) if own}
        runtime.load(tables, watermark=watermark)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


def on_time(
    job: Job, segment: Segment, rows: pa.RecordBatch, late_below: Sequence[int] | None
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the rows of a segment that are not late, and those that are. Segments are sorted by event time."""
    mark = None if late_below is None else late_below[segment.stream]
    if mark is None or segment.first >= mark:
        return rows, rows.slice(0, 0)
    positions = job.positions(rows, segment.stream)
    assert positions is not None
    n = int(np.searchsorted(positions, mark, side="left"))
    return rows.slice(n), rows.slice(0, n)


def settled(token: str, job: Job) -> bytes:
    """Return the token under which an engine is kept: of its state, and of what the engine was made with."""
    return hashlib.blake2b(f"{token} {job.options.text}".encode(), digest_size=16).digest()


class JoinGroups:
    """What a worker does with numbers of tasks: runs each and gives back what it did, packed.

    key   of the live engines (`eddy.live.engine_file`); the driver sends it to the workers, who write it to no file
    """

    def __init__(self, job: Job, places: Places, tasks: Sequence[PartitionTask], key: bytes) -> None:
        self._job = job
        self._places = places
        self._tasks = tasks
        self._key = key
        self.__name__ = "eddy_join"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                done = _Joining(self._job, self._places, self._tasks[number], self._key).run()
                yield pa.RecordBatch.from_arrays([pa.array([done.packed()], pa.binary())], names=["done"])


class _Joining:
    """Joins the groups of one task."""

    def __init__(self, job: Job, places: Places, task: PartitionTask, key: bytes) -> None:
        self._job = job
        self._key = key
        self._places = places
        self._task = task
        self._state = _State(job, places, task.previous)
        self._results = _ResultFile(task.staging, task.partition, spark_schema(job.query.output_schema))
        self._late: list[list[pa.RecordBatch]] = [[] for _ in job.query.streams]
        self._late_rows: dict[int, LateFigures] = {}
        self._timed = job.query.graph.timed

    def run(self) -> PartitionDone:
        """Return what the task gives back."""
        done = PartitionDone()
        try:
            for one in self._task.groups:
                done.groups.append(self._join(one))
        finally:
            self._state.close()
            done.results = self._results.close()
        done.late, done.late_rows = self._write_late(), self._late_rows
        return done

    def _given(self, watermark: int | None) -> int | None:
        """Return a watermark as an engine gets it: with each push, even if nothing is known, or with none."""
        return -FOREVER if watermark is None and self._timed else watermark

    def _watermark(self, pushed: dict[str, pa.Table], to_come: int) -> int | None:
        """Return what no later row of the group is older than: those that are to come in this batch, and after it."""
        task = self._task
        if task.watermark is None or not to_come:
            return task.watermark
        # Pushes come in the order of event time.
        places = (self._job.positions(table, self._job.query.index(name)) for name, table in pushed.items())
        newest = max(int(own.max()) for own in places if own is not None)
        return min(task.watermark, newest if task.forgotten is None else max(newest, task.forgotten))

    def _join(self, one: GroupTask) -> dict[str, Any]:
        task, job = self._task, self._job
        began = perf_counter()
        with EngineFile(self._places.arena(one.group), self._key) as arena:
            runtime, source = None, NEW
            if one.before is not None:
                source = LIVE
                if arena.locked:
                    runtime = arena.load(settled(one.before, job), job.query, job.options.new_policy())
            if runtime is None:
                runtime = job.options.runtime(job.query, one.plan)
                if one.before is not None:
                    source = LOADED
                    LOG.warning("batch %d: the engine of key group %d is rebuilt from the log", task.batch, one.group)
                    self._state.load(one, runtime, self._given(task.forgotten))
            ready = perf_counter()
            changes = runtime.changes
            arrived, late = self._arrivals(one)
            results = 0
            to_come = sum(own.rows.num_rows for own in arrived)
            for pushed in pushes(job, arrived):
                order = None if job.arrival == "time" else interleave(job, pushed)
                to_come -= sum(table.num_rows for table in pushed.values())
                found = runtime.push(pushed, order, watermark=self._given(self._watermark(pushed, to_come)))
                results += found.num_rows
                self._results.write(found)
            lost = {name: n for name, n in runtime.late_counts.items() if n}
            if lost:
                raise SparkJoinError(
                    f"key group {one.group} would have lost rows in batch {task.batch}; this is a defect, please report"
                    f" it: {', '.join(f'{n} of stream {name!r}' for name, n in lost.items())}"
                )
            joined = perf_counter()
            figures: dict[str, Any] = {
                "batch": task.batch,
                "group": one.group,
                "partition": task.partition,
                "source": source,
                "rows": sum(own.rows.num_rows for own in arrived),
                "late": late,
                "results": results,
                "state_bytes": runtime.nbytes,
                "plan": runtime.plan,
                "transitions": runtime.changes - changes,
                "reason": runtime.reason if runtime.changes > changes else None,
                "ready_seconds": ready - began,
                "join_seconds": joined - ready,
            }
            if arena.locked:
                # Without room for it there is no engine in the file, and the next batch loads it from the log.
                with contextlib.suppress(OSError):
                    arena.save(runtime, settled(one.after, job))
        figures["keep_seconds"] = perf_counter() - joined
        return figures

    def _arrivals(self, one: GroupTask) -> tuple[list[_Arrived], int]:
        """Return the rows of the group by first position in arrival order, and how many rows are late."""
        job, arrived, late = self._job, [], 0
        for segment in one.segments:
            rows, too_late = on_time(job, segment, self._state.reader.read(segment), self._task.late_below)
            # A late row that was copied to several groups is told once.
            if too_late.num_rows and job.shares.is_first(segment.stream, one.group):
                late += too_late.num_rows
                self._note_late(segment, too_late)
            if rows.num_rows:
                positions = job.positions(rows.slice(0, 1), segment.stream)
                arrived.append(_Arrived(0 if positions is None else int(positions[0]), segment.stream, rows))
        return sorted(arrived, key=lambda own: (own.first, own.stream)), late

    def _note_late(self, segment: Segment, rows: pa.RecordBatch) -> None:
        """Keep late rows for their file, unless they are counted only."""
        stream, marks = segment.stream, self._task.late_below
        assert marks is not None
        figures = LateFigures(rows.num_rows, marks[stream] - segment.first)
        self._late_rows[stream] = self._late_rows.get(stream, LateFigures()).plus(figures)
        if self._job.query.late_by_stream[stream] != "count":
            self._late[stream].append(rows)

    def _write_late(self) -> list[OutputFile]:
        """Write the late rows, a file for each stream with any."""
        files = []
        for i, batches in enumerate(self._late):
            if batches:
                name = f"{batch_name(self._task.batch)}-{i}-{uuid.uuid4().hex}.parquet"
                table = pa.Table.from_batches(batches)
                table = as_spark(table, spark_schema(table.schema))
                with open(self._places.late / name, "xb", opener=private_opener) as file:
                    pq.write_table(table, file)
                files.append(written(self._places.late, name, table.num_rows, i))
        return files
