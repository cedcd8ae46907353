"""The rows that an engine keeps, so that a query can start on what has arrived already."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddy.filters.adaptive import AdaptiveFilter
from eddy.ingest.arrivals import Times
from eddy.ingest.changes import TableChanges, newest
from eddy.ingest.validation import checked_times
from eddy.queries.sources import DELETE, POSITION, EnginePush, one_batch, plain_rows
from eddy.streams.keyed import OP_COLUMN, KeyedInput
from eddy.streams.versioned_table import VersionedTable
from stairs.errors import InputError
from stairs.graph import FOREVER, Window, WindowKind
from stairs.plain_types import TOO_LONG, plain

_ROW = "#row"


class Need(NamedTuple):
    """A window for which rows are kept; with a window of rows, also the filter whose accepted rows it counts."""

    window: Window
    filter: AdaptiveFilter | None = None


class _Chunk(NamedTuple):
    rows: pa.RecordBatch
    end: int
    oldest: int | None
    newest: int | None
    passing: dict[AdaptiveFilter, int]

    def count(self, filter: AdaptiveFilter | None) -> int:
        """Return the number of rows that a filter accepts."""
        if filter is None:
            return len(self.rows)
        if filter not in self.passing:
            try:
                self.passing[filter] = len(filter.divided(self.rows)[0])
            except InputError:
                # The rows came before the query, which would have refused them, and no window has them.
                self.passing[filter] = 0
        return self.passing[filter]


def _chunk(rows: pa.RecordBatch, end: int, times: Times | None) -> _Chunk:
    if times is None:
        return _Chunk(rows, end, None, None, {})
    return _Chunk(rows, end, int(times.min()), int(times.max()), {})


class KeptRows:
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

    def add(self, push: EnginePush, i: int) -> None:
        """Add the rows of stream i, unless they are here."""
        batch, times = push.batches[i], push.times[i]
        if batch is not None and len(batch) and self.end <= push.places[i][0]:
            chunk = _chunk(self._stored(batch), int(push.places[i][-1]) + 1, times)
            if not self._chunks or self._chunks[-1].end < chunk.end:
                self._chunks.append(chunk)
            vars(self).update(count=self.count + len(batch), end=chunk.end)

    def _stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    def resume(
        self, batches: list[pa.RecordBatch], times: list[Times | None], count: int, end: int, complete_from: int
    ) -> None:
        """Begin with restored rows; `times` has the event times of each batch."""
        ends = [int(batch.column(POSITION)[-1].as_py()) + 1 for batch in batches]
        self._chunks = deque(map(_chunk, batches, ends, times))
        self.count, self.end, self.complete_from = count, end, complete_from

    def trim(self, needs: list[Need], watermark: int) -> None:
        """Drop the rows that no window needs, given the watermark."""
        if any(need.window.kind == WindowKind.UNBOUNDED for need in needs):
            return
        spans = [need.window.size for need in needs if need.window.kind == WindowKind.RANGE]
        rowed = [need for need in needs if need.window.kind == WindowKind.ROWS]
        left = [sum(chunk.count(need.filter) for chunk in self._chunks) for need in rowed]
        while self._chunks:
            chunk = self._chunks[0]
            if spans and (chunk.newest is None or chunk.newest >= watermark - max(spans)):
                return
            counts = [chunk.count(need.filter) for need in rowed]
            left = [rows - count for rows, count in zip(left, counts, strict=True)]
            if any(count and rows < need.window.size for rows, count, need in zip(left, counts, rowed, strict=True)):
                return
            self.complete_from = chunk.end
            self._chunks.popleft()

    @property
    def oldest(self) -> int:
        """The least event time of a row that is kept; FOREVER without one."""
        return min((chunk.oldest for chunk in self._chunks if chunk.oldest is not None), default=FOREVER)

    @property
    def ends(self) -> list[int]:
        """For each push with rows that are kept, the position after the last one of them."""
        return [chunk.end for chunk in self._chunks]

    @property
    def batches(self) -> list[pa.RecordBatch]:
        """The rows with their positions, as they are kept."""
        return [chunk.rows for chunk in self._chunks]

    def rows(self) -> pa.RecordBatch | None:
        """Return the rows with their positions, or None if there are none. Raises InputError if they exceed 2 GiB."""
        if not self._chunks:
            return None
        return one_batch(pa.Table.from_batches(self.batches), "use shorter windows")

    def newest(self, filter: AdaptiveFilter | None) -> int | None:
        """Return the position of the newest accepted row; None if the filter accepts no row."""
        for chunk in reversed(self._chunks):
            if chunk.count(filter):
                last = -1 if filter is None else int(filter.divided(chunk.rows)[0][-1])
                return int(chunk.rows.column(POSITION)[last].as_py())
        return None

    def nbytes(self) -> int:
        """Return the bytes of the rows."""
        return sum(chunk.rows.nbytes for chunk in self._chunks)


class KeptTable(KeptRows):
    """The rows of one table: the last change of each key, without deletes.

    A log of changes in chunks that grow towards the oldest one, so that there are few of them after many small pushes.
    It is compacted when it is twice as long as after the last time: O(log changes) per change. Columns are plain:
    dictionaries of several pushes may be too many values for one. What is done after a push cannot fail: a log that is
    too long for one batch stays as it is, and a start that needs all of it is refused.
    """

    LEAST = 1024
    """Changes up to which a log is left as it is."""

    def __init__(self, table: KeyedInput) -> None:
        super().__init__()
        self._table = table
        self._after = self._counted = 0
        """The rows after the last compaction, and `count` then."""
        self._encoded = any(plain(kind) != kind for kind in table.schema.types)

    def _stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return plain_rows(batch) if self._encoded else batch

    def add(self, push: EnginePush, i: int) -> None:
        """Add the changes of table i, unless they are here."""
        super().add(push, i)
        chunks = list(self._chunks)
        while len(chunks) > 1 and len(chunks[-2].rows) <= len(chunks[-1].rows):
            try:
                rows = pa.concat_batches([chunks[-2].rows, chunks[-1].rows])
            except TOO_LONG:
                break
            chunks[-2:] = [_Chunk(rows, chunks[-1].end, None, None, {})]
        # In one statement, because an exception may come between any two.
        self._chunks = deque(chunks)

    def trim(self, needs: list[Need], watermark: int) -> None:
        """Compact the log if it has become long. All rows stay, whatever the windows need."""
        if self.is_long:
            self._compact()

    def _compact(self) -> None:
        """Compact the log, or leave one that is too long for one batch as it is."""
        try:
            self.rows()
        except InputError:
            self._after, self._counted = sum(len(chunk.rows) for chunk in self._chunks), self.count

    @property
    def is_long(self) -> bool:
        """Whether the log is twice as long as after it was compacted."""
        return self.count - self._counted > self._after + self.LEAST

    def rows(self) -> pa.RecordBatch | None:
        """Return the rows of the table, in the order of their last changes, with positions; None if there are none."""
        rows = super().rows()
        if rows is None:
            return None
        rows = self._last(rows)
        self._after, self._counted = len(rows), self.count
        self._chunks = deque([_Chunk(rows, self.end, None, None, {})] if len(rows) else [])
        return rows if len(rows) else None

    def _last(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Return the changes that say all that the others said."""
        last = newest(TableChanges(changes, None, len(changes), None), self._table.keys).batch
        if OP_COLUMN in last.schema.names and self._table.ops is not None:
            last = last.filter(pc.not_equal(last.column(OP_COLUMN), DELETE))
        return last


class KeptVersions(KeptTable):
    """The versions of one table that a row may get: of each key the last one of the past, and all later ones.

    What is older than the watermark, and than all rows of streams that are kept, is of the past. A row may be kept
    longer than its window says, with a younger one that came before it.
    """

    def __init__(self, table: VersionedTable, time_type: pa.DataType) -> None:
        super().__init__(table)
        self._time_type = time_type
        self._past = -FOREVER

    def forget(self, before: int) -> None:
        """Compact the log; what is older than this time is of the past. O(versions that are kept)."""
        self._past = max(self._past, before)
        self._compact()

    def _last(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        times = checked_times(self._table, changes, self._time_type)
        gone = np.flatnonzero(times < self._past)
        # Of versions of one time, the last one to arrive is valid.
        gone = gone[np.argsort(times[gone], kind="stable")]
        old = changes.take(pa.array(gone))
        last = newest(TableChanges(old.append_column(_ROW, pa.array(gone)), None, len(old), None), self._table.keys)
        kept = np.concatenate([last.batch.column(_ROW).to_numpy(), np.flatnonzero(times >= self._past)])
        return changes.take(pa.array(np.sort(kept)))
