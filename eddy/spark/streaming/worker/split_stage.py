"""The first stage of a micro-batch: rows become segments of the log, and what is told of them is one row a task.

It runs inside the streaming plan, which Spark plans once. So nothing here depends on what the driver knows of a batch;
late rows, for one, are cut off where segments are read.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from eddy.spark.batch.rows import quoted
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.split import Piece, Splitter
from eddy.spark.streaming.state.batch_names import batch_name
from eddy.spark.streaming.state.locations import Places
from eddy.spark.streaming.state.segments import Segment, SegmentWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOLD = pa.schema(
    [
        ("stream", pa.int32()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("segments", pa.string()),
    ]
)
"""What a task tells of a stream: rows and bytes logged, least and greatest event time, its segments as JSON.

Rows with a null key are not logged, as they match nothing, but time passes by them: event times are null without a row,
or without an order.
"""
TOLD_COLUMNS = "stream int, rows bigint, bytes bigint, first bigint, last bigint, segments string"


@dataclass(frozen=True)
class Told:
    """What a micro-batch added to the log: per stream rows and greatest event time, None for none; all segments."""

    rows: tuple[int, ...]
    bytes: int
    greatest: tuple[int | None, ...]
    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, table: pa.Table, streams: int) -> Told:
        """Put together what the tasks told."""
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


def _batch_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    number = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if number is None:
        raise SparkJoinError("rows are logged in the micro-batches of a streaming query only; start the join")
    return int(number)


def log_rows(job: Job, places: Places, stream: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows of one stream to the log, for one task; yield what is to be told of it, nothing if there were none.

    It is told once it is durable.
    """
    splitter = Splitter(job, stream)
    n_rows = 0

    def write(pieces: Sequence[Piece]) -> int:
        for piece in pieces:
            writer.add(piece.cell, stream, piece.tuples, piece.first, piece.last)
        return sum(piece.tuples.num_rows for piece in pieces)

    # Attempts of one task must not meet in one file, and retention reads the batch off the name.
    with SegmentWriter(places.log, f"{batch_name(_batch_number())}-{stream}-{uuid.uuid4().hex}") as writer:
        for batch in batches:
            n_rows += write(splitter.add(batch))
        n_rows += write(splitter.finish())
        written = writer.finish()
    if not written and splitter.span is None:
        return
    first, last = splitter.span or (None, None)
    told = {
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
    yield pa.RecordBatch.from_pylist([told], schema=TOLD)


class LogRows:
    """What a worker does with rows of one stream: a function from Arrow batches to what is told of them."""

    def __init__(self, job: Job, places: Places, stream: int) -> None:
        self._job = job
        self._places = places
        self._stream = stream
        # Spark shows this name in its plans.
        self.__name__ = f"eddy_log[{job.query.streams[stream].name}]"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = self._job.inputs[self._stream].names
        named = (batch.rename_columns(names) for batch in batches)
        return log_rows(self._job, self._places, self._stream, named)


def told_of_rows(job: Job, places: Places, frames: Sequence[DataFrame]) -> DataFrame:
    """Return a streaming DataFrame that logs the rows of all streams when it runs; a DataFrame per stream comes in."""
    logged = []
    for i, (schema, frame) in enumerate(zip(job.inputs, frames, strict=True)):
        needed = frame.select(*(frame[quoted(name)].alias(f"c{k}") for k, name in enumerate(schema.names)))
        logged.append(needed.mapInArrow(LogRows(job, places, i), TOLD_COLUMNS))
    return reduce(lambda left, right: left.unionAll(right), logged)


OBSERVED = "eddy"


def observed(job: Job, told: DataFrame) -> DataFrame:
    """Return what is told with Spark's own metrics of it, which come with each progress as `observedMetrics["eddy"]`.

    rows, bytes                     logged, over all streams
    rows of <name>, last of <name>  per stream: rows logged, greatest event time in ticks (null without rows or times)
    """
    from pyspark.sql import functions as F

    metrics = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("rows", "bytes")]
    for i, stream in enumerate(job.query.streams):
        own = F.col("stream") == i
        metrics.append(F.coalesce(F.sum(F.when(own, F.col("rows"))), F.lit(0)).alias(f"rows of {stream.name}"))
        metrics.append(F.max(F.when(own, F.col("last"))).alias(f"last of {stream.name}"))
    return told.observe(OBSERVED, *metrics)
