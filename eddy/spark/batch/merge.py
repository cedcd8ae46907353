"""Puts blobs back into arrival order and hands them to the engine: the reduce side of both transports.

Blobs come ascending by their first tuple's position in arrival order, and each is sorted. So when a blob that starts at
position f comes, every tuple before f has been seen: the tuples waiting below f, the *frontier*, are final. They go
to the engine as soon as they make a push of some size (few big pushes cost less than many small ones).

    waiting   R |----a----|   |---c---|
              S    |------b------|
    frontier            ^ first of the blob that comes now
    pushed       what lies left of it

What must wait is what overlaps: about one blob per run and stream. Input without an order of arrival is pushed as it
comes.

Invariant: the pushes, one after the other, are the arrivals in the defined order: (position, stream of the query),
and in a query with a `ROWS` window then by the content of the tuple, column after column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddy.spark.batch.engine import PartitionEngine
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.split import unpack
from eddy.spark.types import sortable_type

PUSH_ROWS = 131_072


@dataclass
class _Waiting:
    """A blob's tuples not yet pushed: rows from `low` on, their positions ascending (None: no order of arrival)."""

    tuples: pa.RecordBatch
    positions: np.ndarray | None
    low: int = 0

    def below(self, frontier: int | None) -> int:
        """Number of waiting tuples before the frontier; all for None."""
        if frontier is None or self.positions is None:
            return self.tuples.num_rows - self.low
        return max(0, int(np.searchsorted(self.positions, frontier, side="left")) - self.low)


class Merger:
    """Merges the blobs of one partition into pushes: a table per stream that has rows in it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._waiting: list[list[_Waiting]] = [[] for _ in job.query.streams]
        self._rows = 0
        self._look_at = PUSH_ROWS  # with fewer rows waiting than this there cannot be a push

    def add(self, first: int, stream: int, tuples: pa.RecordBatch) -> Iterator[dict[str, pa.Table]]:
        """Take a blob, none of whose successors starts before it; yield the pushes that became final."""
        if self._rows >= self._look_at:
            frontier = None if self._job.arrival == "any" else first
            ready = sum(w.below(frontier) for blobs in self._waiting for w in blobs)
            if ready >= PUSH_ROWS:
                yield from self._give(frontier, ready)
                ready = 0
            # At least so many rows must come before another look is worth its cost.
            self._look_at = self._rows + PUSH_ROWS - ready
        self._waiting[stream].append(_Waiting(tuples, self._job.positions(tuples, stream)))
        self._rows += tuples.num_rows

    def finish(self) -> Iterator[dict[str, pa.Table]]:
        """Yield the pushes of everything that waits."""
        if self._rows:
            yield from self._give(None, self._rows)

    def _give(self, frontier: int | None, ready: int) -> Iterator[dict[str, pa.Table]]:
        for cut in self._cuts(frontier, ready):
            rows = self._take(cut)
            if rows:
                yield rows

    def _cuts(self, frontier: int | None, ready: int) -> list[int | None]:
        """Positions at which to cut so that no push is much larger than PUSH_ROWS, the frontier last."""
        if ready < 2 * PUSH_ROWS or self._job.arrival == "any":
            return [frontier]
        parts = []
        for blobs in self._waiting:
            for w in blobs:
                if w.positions is not None:
                    parts.append(w.positions[w.low : w.low + w.below(frontier)])
        inner = np.unique(np.sort(np.concatenate(parts))[PUSH_ROWS::PUSH_ROWS])
        return [*(int(cut) for cut in inner), frontier]

    def _take(self, frontier: int | None) -> dict[str, pa.Table]:
        rows: dict[str, pa.Table] = {}
        for i, blobs in enumerate(self._waiting):
            slices, left = [], []
            for w in blobs:
                n = w.below(frontier)
                if n:
                    slices.append(w.tuples.slice(w.low, n))
                    w.low += n
                    self._rows -= n
                if w.low < w.tuples.num_rows:
                    left.append(w)
            self._waiting[i] = left
            if slices:
                rows[self._job.query.streams[i].name] = pa.Table.from_batches(slices)
        return rows


def sort_ties(job: Job, stream: int, table: pa.Table) -> pa.Table:
    """Sort one stream's tuples by (position, content), so that equal positions have one order whatever came first."""
    by = job.sequence[stream]
    keys = [by, *(name for name in table.column_names if name != by)]
    ranked = pa.table([table.column(key).cast(sortable_type(table.field(key).type)) for key in keys], names=keys)
    return table.take(pc.sort_indices(ranked, sort_keys=[(key, "ascending") for key in keys]))


def interleave(job: Job, rows: dict[str, pa.Table]) -> np.ndarray:
    """Return the order of a push without event time: by (sequence column, stream), or stream by stream. uint8[rows]."""
    names = [stream.name for stream in job.query.streams]
    present = [(i, rows[name]) for i, name in enumerate(names) if name in rows]
    streams = np.concatenate([np.full(table.num_rows, i, np.uint8) for i, table in present])
    if job.arrival == "any":
        return streams
    positions = [job.positions(table, i) for i, table in present]
    return streams[np.argsort(np.concatenate([p for p in positions if p is not None]), kind="stable")]


def join_blobs(job: Job, blobs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join one partition: batches of blobs in, ascending by `first`; batches of results out.

    Holds the windows, and of the input what `Merger` must keep waiting.
    """
    merger = Merger(job)
    engine: PartitionEngine | None = None

    def push(rows: dict[str, pa.Table]) -> Iterator[pa.RecordBatch]:
        nonlocal engine
        engine = engine or PartitionEngine(job.query, job.options)
        if job.breaks_ties:
            for i, stream in enumerate(job.query.streams):
                if stream.name in rows:
                    rows[stream.name] = sort_ties(job, i, rows[stream.name])
        yield from engine.push(rows, None if job.arrival == "time" else interleave(job, rows))

    schemas = [stream.schema for stream in job.query.streams]
    for batch in blobs:
        for first, stream, tuples in unpack(batch, schemas):
            for rows in merger.add(first, stream, tuples):
                yield from push(rows)
    for rows in merger.finish():
        yield from push(rows)
    late = {} if engine is None else {name: n for name, n in engine.runtime.late_counts.items() if n}
    if late:
        raise SparkJoinError(
            "a partition met tuples out of order and would have lost them; this is a defect, please report it: "
            + ", ".join(f"{n} of stream {name!r}" for name, n in late.items())
        )
