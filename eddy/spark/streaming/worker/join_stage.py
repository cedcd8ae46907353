"""The second stage of a micro-batch: each task joins the rows of its key groups, one group after the other.

A group's engine is the live engine on this host if it has exactly the wanted state; else it is loaded from the log.
Nothing that a task writes counts until the driver's manifest names it: another attempt of the same task may run at the
same time, on this host or another, and either may win.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import pyarrow as pa

from eddy.live.engine_file import EngineFile
from eddy.log import LOG
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.merge import Merger, interleave
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.manifest import OutputFile
from eddy.spark.streaming.state.segments import Segment
from eddy.spark.streaming.worker.output_files import ResultFile, write_late
from eddy.spark.streaming.worker.state_loader import StateLoader, split_late
from eddy.spark.streaming.worker.tasks import (
    LIVE,
    LOADED,
    NEW,
    GroupTask,
    LateCount,
    PartitionReport,
    PartitionTask,
)
from eddy.spark.types import spark_schema
from stairs.graph import FOREVER

REPORT_COLUMNS = "report binary"


class JoinGroups:
    """The function that Spark runs on task numbers: it runs each task and yields its packed report.

    key   secret of the live engines (`eddy.live.engine_file`). Spark sends it to the workers, which write it to no file
    """

    def __init__(self, job: Job, locations: Locations, tasks: Sequence[PartitionTask], key: bytes) -> None:
        self._job = job
        self._locations = locations
        self._tasks = tasks
        self._key = key
        self.__name__ = "eddy_join"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                report = _PartitionJoin(self._job, self._locations, self._tasks[number], self._key).run()
                yield pa.RecordBatch.from_arrays([pa.array([report.packed()], pa.binary())], names=["report"])


class _Arrival(NamedTuple):
    """Rows of one segment that are not late, ascending in arrival order from position `first`."""

    first: int
    stream: int
    rows: pa.RecordBatch


class _PartitionJoin:
    """Joins the key groups of one task."""

    def __init__(self, job: Job, locations: Locations, task: PartitionTask, key: bytes) -> None:
        self._job = job
        self._key = key
        self._locations = locations
        self._task = task
        self._state = StateLoader(job, locations, task.previous)
        self._results = ResultFile(task.staging, task.partition, spark_schema(job.query.output_schema))
        self._late: list[list[pa.RecordBatch]] = [[] for _ in job.query.streams]
        self._late_rows: dict[int, LateCount] = {}
        self._timed = job.query.graph.timed

    def run(self) -> PartitionReport:
        """Join all key groups of the task."""
        report = PartitionReport()
        try:
            for one in self._task.groups:
                report.groups.append(self._join(one))
        finally:
            self._state.close()
            report.results = self._results.close()
        report.late, report.late_rows = self._write_late(), self._late_rows
        return report

    def _given(self, watermark: int | None) -> int | None:
        """Return a watermark for an engine: in a timed query it needs one with every push, even before any is known."""
        return -FOREVER if watermark is None and self._timed else watermark

    def _watermark(self, pushed: dict[str, pa.Table], to_come: int) -> int | None:
        """Return the watermark after a push: no row that follows it, in this batch or later ones, is older."""
        task = self._task
        if task.watermark is None or not to_come:
            return task.watermark
        # Pushes ascend by event time.
        times = (self._job.positions(table, self._job.query.index(name)) for name, table in pushed.items())
        newest = max(int(own.max()) for own in times if own is not None)
        return min(task.watermark, newest if task.forgotten is None else max(newest, task.forgotten))

    def _join(self, one: GroupTask) -> dict[str, Any]:
        task, job = self._task, self._job
        began = perf_counter()
        with EngineFile(self._locations.engine_file(one.group), self._key) as file:
            runtime, source = None, NEW
            if one.before is not None:
                source = LIVE
                if file.locked:
                    runtime = file.load(engine_token(one.before, job), job.query, job.options.new_policy())
            if runtime is None:
                runtime = job.options.runtime(job.query, one.plan)
                if one.before is not None:
                    source = LOADED
                    LOG.warning("batch %d: loading the engine of key group %d from the log", task.batch, one.group)
                    self._state.load(one.group, runtime, self._given(task.forgotten))
            ready = perf_counter()
            changes = runtime.changes
            arrivals, late = self._arrivals(one)
            results = 0
            to_come = sum(own.rows.num_rows for own in arrivals)
            # Without rows, the watermark alone decides rows that waited.
            for pushed in pushes(job, arrivals) if arrivals else ({},):
                order = None if job.arrival == "time" or not pushed else interleave(job, pushed)
                to_come -= sum(table.num_rows for table in pushed.values())
                found = runtime.push(pushed, order, watermark=self._given(self._watermark(pushed, to_come)))
                results += found.num_rows
                self._results.write(found)
            lost = {name: n for name, n in runtime.late_counts.items() if n}
            if lost:
                raise SparkJoinError(
                    f"batch {task.batch}: key group {one.group} would have lost rows; this is a defect, please report"
                    f" it: {', '.join(f'{n} of stream {name!r}' for name, n in lost.items())}"
                )
            joined = perf_counter()
            metrics: dict[str, Any] = {
                "batch": task.batch,
                "group": one.group,
                "partition": task.partition,
                "source": source,
                "rows": sum(own.rows.num_rows for own in arrivals),
                "late": late,
                "results": results,
                "state_bytes": runtime.nbytes,
                "plan": runtime.plan,
                "due": runtime.due,
                "transitions": runtime.changes - changes,
                "reason": runtime.reason if runtime.changes > changes else None,
                "ready_seconds": ready - began,
                "join_seconds": joined - ready,
            }
            if file.locked:
                # If the disk is full, the file holds no engine, and the next batch loads it from the log.
                with contextlib.suppress(OSError):
                    file.save(runtime, engine_token(one.after, job))
        metrics["keep_seconds"] = perf_counter() - joined
        return metrics

    def _arrivals(self, one: GroupTask) -> tuple[list[_Arrival], int]:
        """Return the group's rows that are not late, ascending by first position, and the number of late rows."""
        job, arrivals, late = self._job, [], 0
        for segment in one.segments:
            rows, too_late = split_late(job, segment, self._state.reader.read(segment), self._task.late_below)
            # A late row that was copied to several groups counts once.
            if too_late.num_rows and job.shares.is_first(segment.stream, one.group):
                late += too_late.num_rows
                self._note_late(segment, too_late)
            if rows.num_rows:
                positions = job.positions(rows.slice(0, 1), segment.stream)
                arrivals.append(_Arrival(0 if positions is None else int(positions[0]), segment.stream, rows))
        return sorted(arrivals, key=lambda own: (own.first, own.stream)), late

    def _note_late(self, segment: Segment, rows: pa.RecordBatch) -> None:
        """Count late rows, and collect them for their file unless the query only counts them."""
        stream, marks = segment.stream, self._task.late_below
        assert marks is not None
        count = LateCount(rows.num_rows, marks[stream] - segment.first)
        self._late_rows[stream] = self._late_rows.get(stream, LateCount()).plus(count)
        if self._job.query.late_by_stream[stream] != "count":
            self._late[stream].append(rows)

    def _write_late(self) -> list[OutputFile]:
        """Write a file for each stream with late rows."""
        return [
            write_late(self._locations.late, self._task.batch, i, rows) for i, rows in enumerate(self._late) if rows
        ]


def pushes(job: Job, arrivals: Sequence[_Arrival]) -> Iterator[dict[str, pa.Table]]:
    """Yield rows in arrival order as pushes of a suitable size; `arrivals` ascend."""
    merger = Merger(job)
    for first, stream, rows in arrivals:
        yield from merger.add(first, stream, rows)
    yield from merger.finish()


def engine_token(token: str, job: Job) -> bytes:
    """Return the token under which a live engine is kept: a digest of its state's token and the engine options."""
    return hashlib.blake2b(f"{token} {job.options.text}".encode(), digest_size=16).digest()
