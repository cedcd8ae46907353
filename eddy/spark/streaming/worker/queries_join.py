"""The join of a micro-batch in a hub: each key group joins its rows for all queries; each version has its own files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from eddy.queries.sources import POSITION
from eddy.spark.partitioning.engine import signed
from eddy.spark.streaming.state.segments import Segment
from eddy.spark.streaming.worker.engines import Engines, Loan
from eddy.spark.streaming.worker.group_queries import GroupQueries, VersionResults, in_one_batch
from eddy.spark.streaming.worker.kept_engine import Engine
from eddy.spark.streaming.worker.lone_group_join import Rows
from eddy.spark.streaming.worker.operator_stage import OperatorStage, outlet
from eddy.spark.streaming.worker.output_files import ResultFile
from eddy.spark.streaming.worker.partition_join import PartitionJoin, SegmentRows, merged
from eddy.spark.streaming.worker.tasks import (
    LOADED,
    NEW,
    GroupTask,
    PartitionReport,
    PartitionTask,
    VersionReport,
    VersionTask,
)
from eddy.spark.types import spark_schema
from eddy.storage.durable import WRITERS


class _VersionFiles:
    """The result files of one version in one partition."""

    def __init__(
        self,
        version: VersionTask,
        partition: int,
        schema: pa.Schema,
        keep: Callable[[Path], None],
        stage: OperatorStage | None,
    ) -> None:
        self._files = outlet(stage, version.key, version.staging, partition, schema, keep)
        self._before = self._files.rows
        self._alone = ResultFile(version.staging, partition, schema, keep) if version.splits else None

    def write(self, part: VersionResults, batch: int) -> None:
        """Write results of a micro-batch."""
        if self._alone is None:
            self._files.write(part.results)
        else:
            assert part.first is not None  # a version with a join alone does not drain
            is_alone = part.first >= batch
            self._files.write(part.results.filter(pa.array(~is_alone)))
            self._alone.write(part.results.filter(pa.array(is_alone)))

    def finish(self) -> None:
        for file in (self._files, self._alone):
            if isinstance(file, ResultFile):
                file.finish()

    def close(self) -> VersionReport:
        report = VersionReport(self._files.close(), rows=self._files.rows - self._before)
        if self._alone is not None:
            report.alone, report.alone_rows = self._alone.close(), self._alone.rows
        return report


class QueriesJoin(PartitionJoin):
    """Joins the key groups of one partition for the versions of a hub."""

    def __init__(
        self,
        engines: Engines,
        task: PartitionTask,
        known: Mapping[Segment, pa.RecordBatch],
        stage: OperatorStage | None = None,
    ) -> None:
        super().__init__(engines, task, known, stage)
        assert task.versions is not None
        self._waits = False  # `_push_passed` has the rows that the watermark passes
        self._versions = [(version, engines.queries[version.key]) for version in task.versions]
        self._names = {version.key: version.query for version, query in self._versions if query.failed != "count"}
        self._files = {
            version.key: _VersionFiles(
                version,
                task.partition,
                spark_schema(signed(query.output_schema, version.output)),
                engines.locations.keep,
                stage,
            )
            for version, query in self._versions
        }

    def run(self) -> PartitionReport:
        """Join all key groups of the partition."""
        closed: dict[str, VersionReport] = {}
        try:
            report = super().run()
        finally:
            for files in self._files.values():
                files.finish()
            # Files are made durable side by side: each waits for the disk, and for nothing else.
            with ThreadPoolExecutor(WRITERS) as pool:
                reports = pool.map(_VersionFiles.close, self._files.values())
                closed.update(zip(self._files, reports, strict=True))
        report.versions = closed
        return report

    def _engine(self, group_task: GroupTask, loan: Loan) -> tuple[Engine, str]:
        source = NEW if group_task.before is None else loan.source
        if loan.runtime is None:
            loan.runtime = GroupQueries(self._engines.sources, self._job.options, self._engines.event_times)
            if group_task.before is not None:
                source = LOADED
                self._log_loading(group_task)
        engine = loan.runtime
        assert isinstance(engine, GroupQueries)

        def rows() -> Rows:
            if group_task.before is None:
                return dict.fromkeys((stream.name for stream in self._job.query.streams), None)
            return self._state.placed_rows(group_task.group, POSITION)

        engine.adapt(self._versions, self._task.batch, rows, self._given(self._task.forgotten), self._engines.queries)
        return engine, source

    def _push(self, engine: Engine, pushed: dict[str, pa.Table], watermark: int | None) -> int:
        assert isinstance(engine, GroupQueries)
        return self._write(engine.push(pushed, self._task.batch, watermark))

    def _joining(self, arrivals: Sequence[SegmentRows]) -> Sequence[SegmentRows]:
        # Of tables only changelogs have rows, and these take them with the rows that the watermark passes.
        tables, streams = self._job.query.tables_changing, self._job.query.streams
        return [arrival for arrival in arrivals if streams[arrival.stream].name not in tables]

    def _pushes(self, arrivals: Sequence[SegmentRows]) -> Iterable[dict[str, pa.Table]]:
        return merged(self._job, arrivals) if arrivals else ({},)

    def _push_passed(self, engine: Engine, group_task: GroupTask, arrivals: Sequence[SegmentRows]) -> int:
        assert isinstance(engine, GroupQueries)
        if not engine.changing:
            return 0
        before, after = self._task.forgotten, self._task.watermark
        waited: Rows = {}
        if group_task.before is not None and engine.waits:
            waited = self._state.placed_waiting(group_task.group, before, after, POSITION)
        parts: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        for arrival in arrivals:
            parts[self._job.query.streams[arrival.stream].name].append(arrival.rows)
        rows = {name: in_one_batch(pa.Table.from_batches(batches)) for name, batches in parts.items()}
        return self._write(engine.pass_rows(waited, rows, self._given(before), self._given(after)))

    def _write(self, parts: Iterable[VersionResults]) -> int:
        """Write results of versions; return their number."""
        count = 0
        for part in parts:
            if part.failed and part.key in self._names:
                self._failed.add(part.failed, self._names[part.key])
            self._files[part.key].write(part, self._task.batch)
            count += part.results.num_rows
        return count

    def _due(self, engine: Engine) -> int | None:
        return engine.due
