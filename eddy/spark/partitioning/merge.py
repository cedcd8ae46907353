"""Restores the arrival order of pieces and groups them into pushes: the reduce side of both kinds of join.

Pieces arrive in ascending order of the position of their first tuple, and each piece is sorted. So when a piece arrives
that starts at position f, the *frontier*, all tuples before f have arrived, and the waiting tuples below f are final.
Final tuples are pushed when there are enough of them, because few large pushes cost less than many small pushes.

    waiting   R |----a----|   |---c---|
              S    |------b------|
    frontier            ^ first of the piece that arrives now
    pushed       all tuples left of the frontier

Only overlapping pieces wait: about one piece per run and stream. Input without an order of arrival is pushed when it
arrives.

Invariant: the pushes, one after the other, are the arrivals in the defined order: by (position, stream of the query),
and in a query with a `ROWS` window then by the content of the tuple, column after column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from eddy.spark.partitioning.job import Job

PUSH_ROWS = 131_072


@dataclass
class _Waiting:
    """The tuples of a piece from row `low` on, not yet pushed. Positions ascend; None without an order of arrival."""

    tuples: pa.RecordBatch
    positions: np.ndarray | None
    low: int = 0

    def below(self, frontier: int | None) -> int:
        """Return the number of waiting tuples before the frontier; None = all waiting tuples."""
        if frontier is None or self.positions is None:
            return self.tuples.num_rows - self.low
        return max(0, int(np.searchsorted(self.positions, frontier, side="left")) - self.low)


class Merger:
    """Merges the pieces of one partition into pushes. A push has a table for each stream with rows in it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._waiting: list[list[_Waiting]] = [[] for _ in job.query.streams]
        self._rows = 0
        self._look_at = PUSH_ROWS  # fewer waiting rows are not enough for a push

    def add(self, first: int, stream: int, tuples: pa.RecordBatch) -> Iterator[dict[str, pa.Table]]:
        """Take a piece that no later piece precedes; yield the pushes that have become final."""
        if self._rows >= self._look_at:
            frontier = None if self._job.arrival == "any" else first
            ready = sum(w.below(frontier) for pieces in self._waiting for w in pieces)
            if ready >= PUSH_ROWS:
                yield from self._give(frontier, ready)
                ready = 0
            # Before this number of rows waits, another search cannot find a push.
            self._look_at = self._rows + PUSH_ROWS - ready
        self._waiting[stream].append(_Waiting(tuples, self._job.positions(tuples, stream)))
        self._rows += tuples.num_rows

    def finish(self) -> Iterator[dict[str, pa.Table]]:
        """Yield the pushes of all waiting rows."""
        if self._rows:
            yield from self._give(None, self._rows)

    def _give(self, frontier: int | None, ready: int) -> Iterator[dict[str, pa.Table]]:
        for cut in self._cuts(frontier, ready):
            rows = self._take(cut)
            if rows:
                yield rows

    def _cuts(self, frontier: int | None, ready: int) -> list[int | None]:
        """Return the positions of cuts, the frontier last, so that no push is much larger than PUSH_ROWS."""
        if ready < 2 * PUSH_ROWS or self._job.arrival == "any":
            return [frontier]
        parts = []
        for pieces in self._waiting:
            for w in pieces:
                if w.positions is not None:
                    parts.append(w.positions[w.low : w.low + w.below(frontier)])
        inner = np.unique(np.sort(np.concatenate(parts))[PUSH_ROWS::PUSH_ROWS])
        return [*(int(cut) for cut in inner), frontier]

    def _take(self, frontier: int | None) -> dict[str, pa.Table]:
        rows: dict[str, pa.Table] = {}
        for i, pieces in enumerate(self._waiting):
            slices, left = [], []
            for w in pieces:
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


def interleave(job: Job, rows: dict[str, pa.Table]) -> np.ndarray:
    """Return the order of a push without event time, uint8[rows]: by (`order_by` column, stream), else by stream."""
    names = [stream.name for stream in job.query.streams]
    present = [(i, rows[name]) for i, name in enumerate(names) if name in rows]
    streams = np.concatenate([np.full(table.num_rows, i, np.uint8) for i, table in present])
    if job.arrival == "any":
        return streams
    positions = [job.positions(table, i) for i, table in present]
    return streams[np.argsort(np.concatenate([p for p in positions if p is not None]), kind="stable")]
