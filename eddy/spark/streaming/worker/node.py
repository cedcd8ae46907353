"""A node of a streaming join in hops: the copies of windows that it keeps from micro-batch to micro-batch.

A copy has the token of the state that it is in, like an engine. A task uses it only if this is the state after the
newest micro-batch with a manifest; else the rows of the copy come from the log.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from eddy.placement.keys import KeyNumbers
from eddy.spark.hops.legs import OPEN, Columns, Legs
from eddy.spark.hops.windows import GrowingWindow, SortedWindow, together
from eddy.spark.partitioning.job import Job

BROKEN = ""
"""The token of a copy that is being changed."""
SPARE_NUMBERS = 1 << 16
"""So many keys more than twice its rows a node may have numbered before it numbers them anew."""


@dataclass
class Copy:
    """A copy of a window."""

    token: str
    window: GrowingWindow


class Node:
    """One node.

    copies   (stream, class by whose keys its rows are dealt) -> the copy
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._columns = Columns(job.query, OPEN)
        self.legs = self._new_legs()
        self.copies: dict[tuple[int, int], Copy] = {}

    def _new_legs(self) -> Legs:
        return Legs(self._columns, KeyNumbers(self._job.query), True)

    @property
    def columns(self) -> Columns:
        """The columns of intermediate tuples."""
        return self._columns

    @property
    def nbytes(self) -> int:
        """Bytes of all copies."""
        return sum(one.window.nbytes for one in self.copies.values())

    def window(self, stream: int, parts: list[pa.RecordBatch]) -> SortedWindow:
        """Return rows of a stream as a window."""
        schema = self._job.query.streams[stream].schema
        rows = together(parts, schema)
        return self.legs.window(stream, rows, self._job.positions(rows, stream))

    def settle(self, token: str, watermark: int | None) -> None:
        """End a micro-batch: the copies have this token, and forget what no later row joins."""
        for (stream, _), copy in self.copies.items():
            span = self._job.query.spans[stream]
            if watermark is not None and span is not None:
                copy.window.forget(watermark - span)
        rows = sum(len(copy.window) for copy in self.copies.values())
        if self.legs.numbers.kept > 2 * rows + SPARE_NUMBERS:
            # Numbers are never forgotten one by one, so those of keys that are gone would fill the memory.
            self.legs = self._new_legs()
            for (stream, _), copy in self.copies.items():
                copy.window = GrowingWindow(self.window(stream, list(copy.window.parts())))
        for copy in self.copies.values():
            copy.token = token
