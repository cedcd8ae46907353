"""The rows that trees keep, as Arrow batches: rows are added at the end, and read by their numbers.

An object never changes; `with_rows` returns another one that shares its batches. So a push that does not happen leaves
no trace. A batch is joined with the one before it when that has at most twice as many rows. So there are O(log rows)
batches, and a row is copied O(log rows) times.

    numbers  0 1 2 3 4 5 6 7 | 8 9 | 10     three batches of 8, 2 and 1 rows, which start at 0, 8 and 10

Rows that no tree keeps stay until there are as many of them as of others; then the rest is numbered anew (`only`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stairs.plain_types import MOST_BYTES, Column, plain, taken, to_plain

Int64s = npt.NDArray[np.int64]
LARGEST_BATCH = MOST_BYTES // 4
"""Bytes of a batch that is not joined with others."""


class StoredRows:
    """Rows in columns of plain types. O(1) to make.

    >>> rows = StoredRows(pa.schema([("x", pa.int64())]))
    >>> rows = rows.with_rows([pa.record_batch({"x": [5, 6]})]).with_rows([pa.record_batch({"x": [7]})])
    >>> rows.columns(np.array([2, 0]), [0])[0].to_pylist(), len(rows)
    ([7, 5], 3)
    """

    def __init__(self, schema: pa.Schema, batches: Sequence[pa.RecordBatch] = ()) -> None:
        self.schema, self.batches = schema, tuple(batches)
        self._ends = np.cumsum([len(batch) for batch in self.batches], dtype=np.int64)
        self.nbytes = sum(batch.nbytes for batch in self.batches)
        """Bytes of all rows."""

    def __len__(self) -> int:
        return int(self._ends[-1]) if self.batches else 0

    def with_rows(self, added: Iterable[pa.RecordBatch]) -> StoredRows:
        """Return these rows and others after them. O(log rows) per added row, amortized."""
        batches = list(self.batches)
        for batch in added:
            batches.append(batch)
            while len(batches) > 1 and _joins(*batches[-2:]):
                last, before = batches.pop(), batches.pop()
                batches.append(_joined([before, last]))
        return StoredRows(self.schema, batches)

    def columns(self, numbers: Int64s, which: Sequence[int]) -> list[pa.Array]:
        """Return some columns of the rows of these numbers, in their order. O(rows + log stored)."""
        batches = [batch.select(list(which)) for batch in self.batches]
        if len(batches) == 1:
            return taken(batches[0], numbers).columns
        if not len(numbers):
            return [pa.nulls(0, self.schema.field(k).type) for k in which]
        order = np.argsort(numbers, kind="stable")
        parts = np.split(numbers[order], np.searchsorted(numbers[order], self._ends[:-1]))
        starts = [0, *self._ends[:-1].tolist()]
        pieces = [
            taken(batch, part - start) for batch, part, start in zip(batches, parts, starts, strict=True) if len(part)
        ]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return taken(_joined(pieces), back).columns

    def only(self, numbers: Int64s) -> StoredRows:
        """Return the rows of these numbers, numbered anew in their order."""
        picked = StoredRows(self.schema)
        step = max(len(numbers) * LARGEST_BATCH // max(self.nbytes, 1), 1)
        for start in range(0, len(numbers), step):
            columns = self.columns(numbers[start : start + step], range(len(self.schema)))
            picked = picked.with_rows([pa.RecordBatch.from_arrays(columns, schema=self.schema)])
        return picked


def plain_column(column: Column) -> Column:
    """Return a column in its plain type."""
    if not isinstance(column, pa.ChunkedArray):
        return to_plain(column)
    return pa.chunked_array([to_plain(chunk) for chunk in column.chunks], plain(column.type))


def _joins(before: pa.RecordBatch, last: pa.RecordBatch) -> bool:
    return len(before) <= 2 * len(last) and before.nbytes + last.nbytes <= LARGEST_BATCH


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return batches as one."""
    if len(batches) == 1:
        return batches[0]
    columns = [pa.concat_arrays([batch.column(k) for batch in batches]) for k in range(batches[0].num_columns)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)
