"""The rows that an engine keeps, so that a query can start on what has arrived already."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from eddy.queries.sources import Push
from stairs.graph import Window, WindowKind


class _Chunk(NamedTuple):
    rows: pa.RecordBatch
    end: int
    newest: int | None


class Kept:
    """The newest rows of one stream, as far as any window needs them.

    complete_from  the position from which all rows are here
    count          the rows that have arrived
    end            the position after the last of them
    """

    def __init__(self) -> None:
        self._chunks: deque[_Chunk] = deque()
        self.complete_from = 0
        self.count = 0
        self.end = 0

    def add(self, push: Push, i: int) -> None:
        """Add the rows of stream i, unless they are here."""
        batch, times = push.batches[i], push.times[i]
        if batch is not None and len(batch) and self.end <= push.places[i][0]:
            newest = None if times is None else int(times.max())
            chunk = _Chunk(batch, int(push.places[i][-1]) + 1, newest)
            if not self._chunks or self._chunks[-1].end < chunk.end:
                self._chunks.append(chunk)
            vars(self).update(count=self.count + len(batch), end=chunk.end)

    def trim(self, windows: list[Window], watermark: int) -> None:
        """Drop the rows that no window needs; `watermark`: no later row is older."""
        spans = [window.size for window in windows if window.kind == WindowKind.RANGE]
        least = max((window.size for window in windows if window.kind == WindowKind.ROWS), default=0)
        if any(window.kind == WindowKind.UNBOUNDED for window in windows):
            return
        rows = sum(len(chunk.rows) for chunk in self._chunks)
        while self._chunks:
            chunk = self._chunks[0]
            if spans and (chunk.newest is None or chunk.newest >= watermark - max(spans)):
                return
            if rows - len(chunk.rows) < least:
                return
            self.complete_from = chunk.end
            self._chunks.popleft()
            rows -= len(chunk.rows)

    def table(self) -> pa.Table | None:
        """Return the rows with their positions, None without any."""
        return pa.Table.from_batches([chunk.rows for chunk in self._chunks]) if self._chunks else None

    def nbytes(self) -> int:
        """Return the bytes of the rows."""
        return sum(chunk.rows.nbytes for chunk in self._chunks)


def greatest_before(push: Push, i: int, position: int, before: int) -> int:
    """Return the greatest event time of stream i before a position of a push, given that before the push."""
    times = push.times[i]
    if times is None:
        return before
    n = int(np.searchsorted(push.places[i], position))
    return max(before, int(times[:n].max())) if n else before
