"""The transport for any DataFrame: its rows come to a Python worker as Arrow batches and leave as blobs.

One `mapInArrow` per stream, so that no stream carries the columns of the others; after it only blobs move. What this
costs is the way of each row out of the JVM, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.split import Splitter, as_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BLOB_COLUMNS = "part int, first bigint, stream int, blob binary"


class SplitRows:
    """What a worker does with the rows of one stream: a function from Arrow batches to batches of blobs."""

    def __init__(self, job: Job, stream: int) -> None:
        self._job = job
        self._stream = stream
        # Spark shows this name in its plans.
        self.__name__ = f"eddy_split[{job.query.streams[stream].name}]"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return as_batches(self._blobs(batches))

    def _blobs(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[tuple[int, int, int, pa.Buffer]]]:
        splitter = Splitter(self._job, self._stream)
        names = self._job.inputs[self._stream].names
        for batch in batches:
            yield splitter.blobs(splitter.add(batch.rename_columns(names)))
        yield splitter.blobs(splitter.finish())


def quoted(column: str) -> str:
    """Return a column name as Spark wants it where it would read a dot or a backtick otherwise."""
    return "`" + column.replace("`", "``") + "`"


def blobs_of_rows(job: Job, frames: Sequence[DataFrame]) -> DataFrame:
    """Return the blobs of all streams; `frames` has one DataFrame per stream, in the order of the query."""
    split = []
    for i, (schema, frame) in enumerate(zip(job.inputs, frames, strict=True)):
        # Columns go by number: mapInArrow of pyspark 4.3 looks them up by unquoted name and fails on a dot.
        needed = frame.select(*(frame[quoted(name)].alias(f"c{k}") for k, name in enumerate(schema.names)))
        split.append(needed.mapInArrow(SplitRows(job, i), BLOB_COLUMNS))
    return reduce(lambda left, right: left.unionAll(right), split)
