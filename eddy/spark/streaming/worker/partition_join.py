"""The join of the key groups of one partition, one group after the other.

If the worker has the engine of a group in exactly the required state (`engines.py`), the worker uses it; otherwise the
engine is loaded from the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from time import perf_counter, process_time
from typing import Any, NamedTuple

import pyarrow as pa

from eddy.log import LOG
from eddy.pipeline.by_join import plans_in
from eddy.runtime import Runtime
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.merge import Merger, interleave
from eddy.spark.partitioning.split_tree import own_rows
from eddy.spark.partitioning.ties import sort_ties
from eddy.spark.streaming.state.segments import Segment
from eddy.spark.streaming.worker.engines import Engines, Loan
from eddy.spark.streaming.worker.failed_rows import FailedRows
from eddy.spark.streaming.worker.hot_keys import hot_keys
from eddy.spark.streaming.worker.kept_engine import Engine
from eddy.spark.streaming.worker.late_rows import TaskLateRows
from eddy.spark.streaming.worker.operator_stage import OperatorStage, outlet
from eddy.spark.streaming.worker.samples import StreamSampler
from eddy.spark.streaming.worker.state_loader import StateLoader, passed, split_late
from eddy.spark.streaming.worker.tasks import (
    LOADED,
    NEW,
    GroupTask,
    LateCount,
    PartitionReport,
    PartitionTask,
)
from eddy.spark.types import spark_schema
from stairs.errors import CapacityError
from stairs.graph import FOREVER


class SegmentRows(NamedTuple):
    """Rows of one segment that are not late, ascending in arrival order from position `first`."""

    first: int
    stream: int
    rows: pa.RecordBatch


class PartitionJoin:
    """Joins the key groups of one partition.

    known  rows of segments of the batch that this process has in memory
    stage  the operators above the joins, None without
    """

    def __init__(
        self,
        engines: Engines,
        task: PartitionTask,
        known: Mapping[Segment, pa.RecordBatch],
        stage: OperatorStage | None = None,
    ) -> None:
        job = engines.job
        self._job = job
        self._engines = engines
        self._locations = engines.locations
        self._task = task
        self._state = StateLoader(job, engines.locations, task.previous, task.tree)
        self._state.reader.know(known)
        self._results = outlet(
            stage, "", task.staging, task.partition, spark_schema(job.output_schema), self._locations.keep
        )
        """Results of the one query of a join."""
        self._late, self._failed = TaskLateRows(job.query, task.late_below), FailedRows()
        self._sampler = StreamSampler(job.query, task.steps)
        self._timed, self._waits = job.query.graph.timed, job.waits

    def run(self) -> PartitionReport:
        """Join all key groups of the partition."""
        report, began = PartitionReport(), process_time()
        try:
            # While these engines join, other workers pass engines on. A live engine is used before another engine
            # displaces it.
            for group_task in sorted(
                self._task.groups, key=lambda candidate: (candidate.handed, not self._engines.is_live(candidate.group))
            ):
                report.groups.append(self._join(group_task))
        finally:
            self._state.close()
            report.results = self._results.close()
        report.samples, report.cpu_s = self._sampler.samples(), process_time() - began
        report.late, report.late_rows = self._late.write(self._locations, self._task.batch), self._late.counts
        report.late += self._failed.write(self._locations, self._task.batch)
        return report

    def _given(self, watermark: int | None) -> int | None:
        """Return a watermark for an engine. An engine of a timed query needs one with each push, even while it is
        unknown."""
        return -FOREVER if watermark is None and self._timed else watermark

    def _watermark(self, pushed: dict[str, pa.Table], to_come: int) -> int | None:
        """Return the watermark after a push: no later row, of this batch or of later batches, is older."""
        task = self._task
        if task.watermark is None or not to_come:
            return task.watermark
        # Pushes are in ascending order of event time.
        times = (self._job.positions(table, self._job.query.index(name)) for name, table in pushed.items())
        newest = max(int(positions.max()) for positions in times if positions is not None)
        return min(task.watermark, newest if task.forgotten is None else max(newest, task.forgotten))

    def _join(self, group_task: GroupTask) -> dict[str, Any]:
        task, job = self._task, self._job
        began = perf_counter()
        with self._engines.loan(group_task.group, group_task.before, group_task.after, group_task.handed) as loan:
            read_before = self._state.bytes_read
            received = self._file_bytes(group_task) if group_task.handed and loan.runtime is not None else 0
            runtime, source = self._engine(group_task, loan)
            received += self._state.bytes_read - read_before
            ready = perf_counter()
            changes, stale = runtime.changes, runtime.late_counts
            self._follow_plan(group_task, runtime)
            arrivals, late = self._arrivals(group_task)
            results = 0
            joining = self._joining(arrivals)
            to_come = sum(arrival.rows.num_rows for arrival in joining)
            # Without new rows, the watermark alone makes waiting rows certain.
            for pushed in self._pushes(joining):
                to_come -= sum(table.num_rows for table in pushed.values())
                results += self._push(runtime, pushed, self._given(self._watermark(pushed, to_come)))
            results += self._push_passed(runtime, group_task, arrivals)
            tables = job.query.tables_changing
            lost = {name: n for name, n in runtime.late_counts.items() if n and name not in tables}
            if lost:
                raise SparkJoinError(
                    f"batch {task.batch}: key group {group_task.group} would have lost rows;"
                    " this is a defect, please report"
                    f" it: {', '.join(f'{n} of stream {name!r}' for name, n in lost.items())}"
                )
            late += self._count_stale(
                group_task.group, {name: runtime.late_counts[name] - stale[name] for name in tables}
            )
            joined, streams = perf_counter(), range(len(job.query.streams))
            keys = hot_keys(job, ((arrival.stream, arrival.rows) for arrival in arrivals)) if group_task.watched else []
            metrics: dict[str, Any] = {
                "batch": task.batch,
                "group": group_task.group,
                "partition": task.partition,
                "source": source,
                "rows": sum(arrival.rows.num_rows for arrival in arrivals),
                "late": late,
                "results": results,
                "state_bytes": runtime.nbytes,
                "plan": runtime.plan,
                "due": self._due(runtime),
                "transitions": runtime.changes - changes,
                "reason": runtime.reason if runtime.changes > changes else None,
                "ready_seconds": ready - began,
                "join_seconds": joined - ready,
                "received_bytes": received,
                "key_share": min((key.share for key in keys), default=None),
                "keys": keys,
                "stream_rows": [
                    sum(arrival.rows.num_rows for arrival in arrivals if arrival.stream == i) for i in streams
                ],
            }
        return metrics

    def _engine(self, group_task: GroupTask, loan: Loan) -> tuple[Engine, str]:
        """Return the engine of a key group before the batch, and its source."""
        source = NEW if group_task.before is None else loan.source
        if loan.runtime is None:
            runtime = loan.runtime = self._job.options.runtime(self._job.query, group_task.plan)
            if group_task.before is not None:
                source = LOADED
                self._log_loading(group_task)
                self._state.load(group_task.group, runtime, self._given(self._task.forgotten))
        return loan.runtime, source

    def _follow_plan(self, group_task: GroupTask, engine: Engine) -> None:
        """Change the plan of an engine to that of its task, if a user has requested another one."""
        if group_task.plan is None or group_task.plan == engine.plan:
            return
        assert isinstance(engine, Runtime)
        now = plans_in(engine.query, engine.plan)
        for path, plan in plans_in(engine.query, group_task.plan).items():
            if now[path] != plan:
                try:
                    engine.transition(plan)
                except CapacityError as problem:
                    # The job goes on, and its manifest has the plan that runs.
                    LOG.warning("key group %d: the requested plan %s does not run: %s", group_task.group, plan, problem)

    def _file_bytes(self, group_task: GroupTask) -> int:
        """Return the size of the file from which an engine was taken."""
        try:
            return self._locations.engine_file(group_task.group).stat().st_size
        except OSError:  # the owner, which has mapped the file, may have deleted it on request
            return 0

    def _log_loading(self, group_task: GroupTask) -> None:
        level = logging.INFO if group_task.by_log else logging.WARNING
        LOG.log(level, "batch %d: loading the engine of key group %d from the log", self._task.batch, group_task.group)

    def _push(self, engine: Engine, pushed: dict[str, pa.Table], watermark: int | None) -> int:
        """Join rows and write their results; return the number of results."""
        assert isinstance(engine, Runtime)
        job = self._job
        order = None if job.changing or job.arrival == "time" or not pushed else interleave(job, pushed)
        results = engine.push(pushed, order, watermark=watermark, atomic=job.changing)
        self._results.write(results)
        self._failed.add(engine.failed().to_batches())
        return results.num_rows

    def _joining(self, arrivals: Sequence[SegmentRows]) -> Sequence[SegmentRows]:
        """Return the rows that `_pushes` has."""
        return arrivals

    def _pushes(self, arrivals: Sequence[SegmentRows]) -> Iterable[dict[str, pa.Table]]:
        return pushes(self._job, arrivals) if arrivals else ({},)

    def _push_passed(self, engine: Engine, group_task: GroupTask, arrivals: Sequence[SegmentRows]) -> int:
        """Join rows for those queries of a hub for which rows wait; return the number of results."""
        return 0

    def _count_stale(self, group: int, stale: Mapping[str, int]) -> int:
        """Count stale changes by their table, those of several groups once; return their number."""
        counted = 0
        for name, rows in stale.items():
            i = self._job.query.index(name)
            if rows and self._task.tree.is_first(self._job.shares, i, group):
                self._late.add(i, LateCount(rows))
                counted += rows
        return counted

    def _due(self, engine: Engine) -> int | None:
        assert isinstance(engine, Runtime)
        # Rows that leave their windows take results back, whether or not others come.
        return -FOREVER if self._job.changing and self._timed else engine.due

    def _arrivals(self, group_task: GroupTask) -> tuple[list[SegmentRows], int]:
        """Return the group's rows that join now, ascending by first position, and the number of late rows."""
        job, arrivals, late = self._job, [], 0
        for segment in group_task.segments:
            read = self._state.reader.read(segment)
            group_rows = own_rows(job, self._task.tree, group_task.group, segment.stream, segment.splits, read)
            rows, too_late = split_late(job, segment, group_rows, self._task.late_below)
            # A row that was copied to several groups counts once.
            if self._task.tree.is_first(job.shares, segment.stream, group_task.group):
                self._sampler.add(segment.stream, rows)
                if too_late.num_rows:
                    late += too_late.num_rows
                    self._late.note(segment, too_late)
            if self._waits:
                rows = passed(job, segment.stream, rows, None, self._task.watermark)
            if rows.num_rows:
                positions = job.positions(rows.slice(0, 1), segment.stream)
                arrivals.append(SegmentRows(0 if positions is None else int(positions[0]), segment.stream, rows))
        if self._waits and group_task.before is not None:
            waited = self._state.waiting_rows(group_task.group, self._task.forgotten, self._task.watermark)
            arrivals += [SegmentRows(0, stream, rows) for stream, _, rows in waited]
        return sorted(arrivals, key=lambda arrival: (arrival.first, arrival.stream)), late


def pushes(job: Job, arrivals: Sequence[SegmentRows]) -> Iterator[dict[str, pa.Table]]:
    """Yield rows as pushes; `arrivals` ascend.

    In a changelog, the rows of a micro-batch are one push: its results are the difference between two answers.
    """
    if job.changing:
        rows: dict[str, list[pa.RecordBatch]] = {}
        for _, stream, batch in arrivals:
            rows.setdefault(job.query.streams[stream].name, []).append(batch)
        yield {name: pa.Table.from_batches(batches) for name, batches in rows.items()}
        return
    yield from merged(job, arrivals)


def merged(job: Job, arrivals: Sequence[SegmentRows]) -> Iterator[dict[str, pa.Table]]:
    """Yield rows in arrival order as pushes of a suitable size; `arrivals` ascend."""
    merger = Merger(job)
    made = (pushed for first, stream, rows in arrivals for pushed in merger.add(first, stream, rows))
    for pushed in chain(made, merger.finish()):
        for i, source in enumerate(job.query.streams):
            if source.name in pushed and job.tied(i):
                pushed[source.name] = sort_ties(job, i, pushed[source.name])
        yield pushed
