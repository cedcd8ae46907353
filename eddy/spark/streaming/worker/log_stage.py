"""The first stage of a micro-batch: tasks write rows to the log as segments, and report them to the driver.

This stage runs inside the streaming plan, which Spark plans once. So nothing here depends on the driver's state of a
batch. For example, late rows are logged too, and skipped where segments are read.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import pyarrow as pa

from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.split import Piece, Splitter
from eddy.spark.streaming.state.batch_names import batch_name
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.state.segments import Segment, SegmentWriter
from eddy.spark.transports.base import RowTask

REPORT = pa.schema(
    [
        ("stream", pa.int32()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("segments", pa.string()),
    ]
)
"""Report of a task on one stream: rows and bytes logged, least and greatest event time, its segments as JSON.

Rows with a null key match nothing. They are logged only if the query has branches, but their event times always count.
Event times are null without rows, and in a query without an order of arrival.
"""


@dataclass(frozen=True)
class LogReport:
    """The rows that a micro-batch added to the log.

    rows      per stream, rows logged
    bytes     size of all segments
    greatest  per stream, greatest event time; None without rows or event times
    segments  all of them
    """

    rows: tuple[int, ...]
    bytes: int
    greatest: tuple[int | None, ...]
    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, table: pa.Table, streams: int) -> LogReport:
        """Combine the reports of all tasks."""
        rows: list[int] = [0] * streams
        greatest: list[int | None] = [None] * streams
        segments: list[Segment] = []
        for one in table.to_pylist():
            stream = one["stream"]
            rows[stream] += one["rows"]
            so_far, last = greatest[stream], one["last"]
            greatest[stream] = last if so_far is None or (last is not None and last > so_far) else so_far
            segments += [Segment(**fields) for fields in json.loads(one["segments"])]
        return cls(tuple(rows), sum(table.column("bytes").to_pylist()), tuple(greatest), tuple(segments))


class LogRows(RowTask):
    """Writes the rows of one stream to the log; yields a report once they are durable, nothing without rows."""

    verb = "log"
    columns = "stream int, rows bigint, bytes bigint, first bigint, last bigint, segments string"

    def __init__(self, job: Job, locations: Locations) -> None:
        super().__init__(job)
        self._locations = locations

    def __call__(self, stream: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        splitter = Splitter(self.job, stream)
        n_rows = 0

        def write(pieces: Sequence[Piece]) -> int:
            for piece in pieces:
                writer.add(piece.cell, stream, piece.tuples, piece.first, piece.last)
            return sum(piece.tuples.num_rows for piece in pieces)

        # Two attempts of one task must not share a file, and retention reads the batch from the name.
        name = f"{batch_name(_batch_number())}-{stream}-{uuid.uuid4().hex}"
        with SegmentWriter(self._locations.log, name) as writer:
            for batch in batches:
                n_rows += write(splitter.add(batch))
            n_rows += write(splitter.finish())
            written = writer.finish()
        if not written and splitter.span is None:
            return
        first, last = splitter.span or (None, None)
        report = {
            "stream": stream,
            "rows": n_rows,
            "bytes": sum(one.length for one in written),
            "first": first,
            "last": last,
            # A copy is another name for the same bytes.
            "segments": json.dumps(
                [asdict(replace(one, group=one.group + offset)) for one in written for offset in splitter.offsets]
            ),
        }
        yield pa.RecordBatch.from_pylist([report], schema=REPORT)


def _batch_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    number = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if number is None:
        raise SparkJoinError("rows can be logged only in a micro-batch of a streaming query; call writeStream…start()")
    return int(number)
