"""The reduce side of a batch join, which turns the blobs of one partition into its results."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from eddy.spark.batch.blobs import unpack
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.engine import PartitionEngine
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.merge import Merger, interleave
from eddy.spark.partitioning.ties import sort_ties


class JoinPartition:
    """The function that Spark runs on the blobs of one partition, which are ascending by `first`."""

    def __init__(self, job: Job) -> None:
        self._job = job
        n = job.shares.partitions
        # Spark shows this name in its plans.
        self.__name__ = f"eddy_join[{'1 partition' if n == 1 else job.shares.describe().splitlines()[0]}]"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return join_blobs(self._job, batches)


def join_blobs(job: Job, blobs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join one partition: yield batches of results for batches of blobs, which are ascending by `first`.

    Memory: the windows, and the input that `Merger` holds back.
    """
    merger = Merger(job)
    engine: PartitionEngine | None = None

    def push(rows: dict[str, pa.Table]) -> Iterator[pa.RecordBatch]:
        nonlocal engine
        engine = engine or PartitionEngine(job.query, job.options)
        for name in job.first:
            if name in rows:
                yield from engine.push({name: rows.pop(name)})
        if not rows:
            return
        for i, stream in enumerate(job.query.streams):
            if stream.name in rows and job.tied(i):
                rows[stream.name] = sort_ties(job, i, rows[stream.name])
        yield from engine.push(rows, None if job.arrival == "time" else interleave(job, rows))

    schemas = job.logged
    for batch in blobs:
        for first, stream, tuples in unpack(batch, schemas):
            for rows in merger.add(first, stream, tuples):
                yield from push(rows)
    for rows in merger.finish():
        yield from push(rows)
    if engine is not None:
        yield from engine.finish()
    late = {} if engine is None else {name: n for name, n in engine.runtime.late_counts.items() if n}
    if late:
        raise SparkJoinError(
            "a partition received tuples out of order and would have lost them; this is a defect, please report it: "
            + ", ".join(f"{n} of stream {name!r}" for name, n in late.items())
        )
