"""A node of a streaming join in hops: the copies of windows that it keeps from micro-batch to micro-batch.

A copy has the token of its state, like an engine. A task uses a copy only in the state after the newest micro-batch
with a manifest; otherwise the rows of the copy come from the log.

`max_bytes` bounds a node: its copies with their indices, its table of keys, and the messages that wait for the node.
Code that adds to these calls `ask` first. A join may exceed the bound temporarily, by a run that is merged and by a
block of tuples.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa

from eddy.placement.keys import KeyNumbers
from eddy.spark.hops.legs import OPEN, Legs, TupleColumns
from eddy.spark.hops.windows import GrowingWindow, SortedWindow, together
from eddy.spark.partitioning.job import Job
from stairs.errors import CapacityError

BROKEN = ""
"""The token of a copy that is being changed."""
SPARE_NUMBERS = 1 << 16
"""A node renumbers its keys when it has given more numbers than twice its rows plus this number."""


@dataclass
class Copy:
    """A copy of a window."""

    token: str
    window: GrowingWindow


class WorkerNode:
    """A node: its number, and its copies of windows.

    copies   (stream, class by whose keys the stream's rows are partitioned) -> the copy
    """

    def __init__(self, job: Job, number: int) -> None:
        self._job, self._number = job, number
        self._columns = TupleColumns(job.query, OPEN)
        self.legs = self._new_legs()
        self.copies: dict[tuple[int, int], Copy] = {}

    def _new_legs(self) -> Legs:
        return Legs(self._columns, KeyNumbers(self._job.query), True)

    @property
    def columns(self) -> TupleColumns:
        """The columns of intermediate tuples."""
        return self._columns

    @property
    def nbytes(self) -> int:
        """Bytes of all copies and of the table of their keys."""
        return sum(copy.window.nbytes for copy in self.copies.values()) + self.legs.numbers.nbytes

    @property
    def room(self) -> int | None:
        """Bytes that `max_bytes` leaves; None without a bound."""
        limit = self._job.options.max_bytes
        return None if limit is None else max(0, limit - self.nbytes)

    def ask(self, n_bytes: int, what: str) -> None:
        """Raise CapacityError unless the node has room for `n_bytes` more bytes; `what` names their use."""
        limit = self._job.options.max_bytes
        if limit is None or self.nbytes + n_bytes <= limit:
            return
        kept: Counter[int] = Counter()
        for (stream, _), copy in self.copies.items():
            kept[stream] += copy.window.nbytes
        names = self._job.query.graph.names
        most = [f" (windows of stream {names[i]!r} take {size:,} of them)" for i, size in kept.most_common(1) if size]
        raise CapacityError(
            f"node {self._number} of a join in hops would take {self.nbytes + n_bytes:,} bytes with {what}"
            f"{''.join(most)}; max_bytes is {limit:,}: use shorter windows or more partitions, raise max_bytes, or take"
            ' placement="grid", where memory= spills engines'
        )

    def window(self, stream: int, parts: list[pa.RecordBatch]) -> SortedWindow:
        """Return rows of a stream as a window."""
        schema = self._job.query.streams[stream].schema
        rows = together(parts, schema)
        return self.legs.window(stream, rows, self._job.positions(rows, stream))

    def settle(self, token: str, watermark: int | None) -> None:
        """End a micro-batch: drop rows that no later row can join, and give all copies the token."""
        for (stream, _), copy in self.copies.items():
            span = self._job.query.spans[stream]
            if watermark is not None and span is not None:
                copy.window.forget(watermark - span)
        rows = sum(len(copy.window) for copy in self.copies.values())
        if self.legs.numbers.kept > 2 * rows + SPARE_NUMBERS:
            # Numbers are never freed one by one, so the numbers of keys without rows would fill the memory.
            self.legs = self._new_legs()
            for (stream, _), copy in self.copies.items():
                copy.window = GrowingWindow(self.window(stream, list(copy.window.parts())))
        for copy in self.copies.values():
            copy.token = token
