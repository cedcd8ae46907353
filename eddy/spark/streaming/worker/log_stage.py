"""The log of a micro-batch: tasks write the rows of the streams as segments.

Rows that Spark carries are logged in a separate Spark job, inside the streaming plan, which Spark plans once
(`LogRows`). The tasks that join the rows read and log files (`join_stage.py`). The log also contains late rows, and the
reader of a segment skips them, because only the driver knows which rows of a batch are late.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import pyarrow as pa

from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.pieces import GridPiece, Splitter
from eddy.spark.partitioning.split_tree import GroupSplit, SplitTree
from eddy.spark.streaming.state.batch_names import batch_name
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.manifest import OutputFile
from eddy.spark.streaming.state.segments import Segment, SegmentWriter
from eddy.spark.streaming.worker.failed_rows import FailedRows
from eddy.spark.transports.base import RowTask

SPLITS = "eddy.splits"
"""The property of a Spark job that contains the splits of key groups as JSON."""
REPORT = pa.schema(
    [
        ("stream", pa.int32()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("segments", pa.string()),
        ("failed", pa.string()),
        ("seconds", pa.float64()),
    ]
)
"""The schema in which Spark carries a `StreamReport`, with its segments and files as JSON."""


@dataclass(frozen=True)
class StreamReport:
    """The rows of one stream that a task logged.

    rows      number of logged rows; a row with a null key matches no row, and is logged only in a query with branches
    first     least event time, including rows with null keys. None without rows, and in a query without arrival order
    last      greatest event time
    segments  locations of the rows; a copy for another key group is another name for the same bytes
    bytes     size of the segments, each counted once
    failed    files of the rows for which the filter of the stream has no value
    seconds   that a task of a job of its own took; 0 if the task also joins
    """

    stream: int
    rows: int
    first: int | None
    last: int | None
    segments: tuple[Segment, ...]
    bytes: int
    failed: tuple[OutputFile, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class LogReport:
    """The rows that a micro-batch added to the log.

    rows      per stream, rows logged
    bytes     size of all segments
    greatest  per stream, greatest event time; None without rows or event times
    segments  all of them
    failed    files of the rows for which a filter has no value
    seconds   that all tasks of a job of their own took
    """

    rows: tuple[int, ...]
    bytes: int
    greatest: tuple[int | None, ...]
    segments: tuple[Segment, ...]
    failed: tuple[OutputFile, ...] = ()
    seconds: float = 0.0

    @classmethod
    def of(cls, reports: Iterable[StreamReport], streams: int) -> LogReport:
        """Combine the reports of all tasks."""
        rows: list[int] = [0] * streams
        greatest: list[int | None] = [None] * streams
        segments: list[Segment] = []
        failed: list[OutputFile] = []
        size, seconds = 0, 0.0
        for report in reports:
            rows[report.stream] += report.rows
            so_far, last = greatest[report.stream], report.last
            greatest[report.stream] = last if so_far is None or (last is not None and last > so_far) else so_far
            segments += report.segments
            failed += report.failed
            size += report.bytes
            seconds += report.seconds
        return cls(tuple(rows), size, tuple(greatest), tuple(segments), tuple(failed), seconds)


def reports_of(table: pa.Table) -> list[StreamReport]:
    """Return the reports that Spark carried."""
    rows = table.to_pylist()
    reports = []
    for row in rows:
        segments = tuple(Segment(**entry) for entry in json.loads(row["segments"]))
        failed = tuple(OutputFile(**entry) for entry in json.loads(row["failed"]))
        reports.append(StreamReport(**{**row, "segments": segments, "failed": failed}))
    return reports


def log_writer(locations: Locations, batch: int, what: str) -> SegmentWriter:
    """Return the writer of a new log file. Two attempts of one task must not write to one file."""
    locations.begin(batch)
    return locations.writer(f"{batch_name(batch)}-{what}-{uuid.uuid4().hex}")


def log_rows(
    job: Job,
    locations: Locations,
    batch: int,
    tree: SplitTree,
    writer: SegmentWriter,
    stream: int,
    batches: Iterable[pa.RecordBatch],
) -> tuple[StreamReport, dict[Segment, pa.RecordBatch]]:
    """Write rows of one stream; return the report, valid once the writer has finished, and the rows of each segment.

    batch  the number of the micro-batch
    tree   splits of key groups, by which the rows of streams without copies get their groups
    """
    failing: list[pa.RecordBatch] = []
    splitter = Splitter(job, stream, tree, failing)
    written: dict[Segment, pa.RecordBatch] = {}

    def write(pieces: Sequence[GridPiece]) -> None:
        for piece in pieces:
            segment = writer.add(piece.cell, stream, piece.tuples, piece.first, piece.last, splitter.splits)
            written[segment] = piece.tuples

    for rows in batches:
        write(splitter.add(rows))
    write(splitter.finish())
    first, last = splitter.span or (None, None)
    failed = FailedRows()
    if job.query.failed != "count":
        failed.add(failing)
    report = StreamReport(
        stream=stream,
        rows=sum(segment.rows for segment in written),
        first=first,
        last=last,
        segments=tuple(
            replace(segment, group=segment.group + offset) for segment in written for offset in splitter.offsets
        ),
        bytes=sum(segment.length for segment in written),
        failed=tuple(failed.write(locations, batch)),
    )
    return report, written


class LogRows(RowTask):
    """Writes the rows of one stream to the log; yields a report once the rows are durable, no report without rows."""

    verb = "log"
    columns = (
        "stream int, rows bigint, bytes bigint, first bigint, last bigint, segments string, failed string,"
        " seconds double"
    )

    def __init__(self, job: Job, locations: Locations) -> None:
        super().__init__(job)
        self._locations = locations

    def __call__(self, stream: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number, began = _batch_number(), time.monotonic()
        with log_writer(self._locations, number, str(stream)) as writer:
            report, _ = log_rows(self.job, self._locations, number, _splits(self.job), writer, stream, batches)
            writer.finish()
        if report.segments or report.failed or report.last is not None:
            texts = {
                name: json.dumps(entries) for name, entries in asdict(report).items() if name in ("segments", "failed")
            }
            row = {**asdict(report), **texts, "seconds": time.monotonic() - began}
            yield pa.RecordBatch.from_pylist([row], schema=REPORT)


def splits_text(tree: SplitTree) -> str | None:
    """Return the splits as the property `SPLITS` of a Spark job; None without splits."""
    return json.dumps(tree.splits) if tree.splits else None


def _splits(job: Job) -> SplitTree:
    """Return the splits that the driver has set for the running Spark job."""
    from pyspark import TaskContext

    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(SPLITS)
    splits = tuple(GroupSplit(*entry) for entry in json.loads(text)) if text else ()
    return SplitTree(job.shares.partitions, len(job.shares.counts), splits)


def _batch_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    number = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if number is None:
        raise SparkJoinError("rows can be logged only in a micro-batch of a streaming query; call writeStream…start()")
    return int(number)
