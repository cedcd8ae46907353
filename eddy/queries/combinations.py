"""The results that the join of a family found in a push, and the share of each version."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.filters.ranges import Codes
from eddy.ingest.validation import checked_times
from eddy.queries.sources import POSITION, one_batch
from stairs.plain_types import no_rows, taken

if TYPE_CHECKING:
    from eddy.streams.stream import Stream

FIRST, LAST, AGE = "#first", "#last", "#age."
"""Names of additional columns of a result: the least and the greatest position of its components, and the age of the
component of a stream, whose name follows: ticks from its event time to the greatest event time of the components."""


class PushedCombinations:
    """The combinations that a join found in a push.

    Rows are in the order of `last`.
    """

    def __init__(self, table: pa.Table, streams: Sequence[Stream], time_type: pa.DataType | None) -> None:
        self._streams = streams
        self._time_type = time_type
        self._table = table
        self._ages: dict[str, Codes] = {}

    def __len__(self) -> int:
        return self._table.num_rows

    @cached_property
    def _columns(self) -> dict[str, pa.Array]:
        batch = one_batch(self._table, "push fewer at a time")
        columns = [no_rows(kind) for kind in self._table.schema.types] if batch is None else batch.columns
        return dict(zip(self._table.column_names, columns, strict=True))

    @property
    def columns(self) -> list[str]:
        """The names of the columns of components."""
        return list(self._columns)

    @cached_property
    def first(self) -> Codes:
        """The least position of the components of each combination, int64[rows]."""
        return np.minimum.reduce(self._places)

    @cached_property
    def last(self) -> Codes:
        """The greatest position of the components of each combination, int64[rows]."""
        return np.maximum.reduce(self._places)

    @cached_property
    def _places(self) -> list[Codes]:
        return [np.asarray(self._columns[f"{stream.name}.{POSITION}"]) for stream in self._streams]

    def ranked(self, names: Sequence[str], rows: npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64]:
        """Return some rows, or all (None), by timestamp: the last component, then those of these streams in turn.

        int64[rows]. O(rows * log rows * streams).
        """
        numbers = np.arange(len(self)) if rows is None else rows
        places = [np.asarray(self._columns[f"{name}.{POSITION}"])[numbers] for name in names]
        return numbers[np.lexsort((*reversed(places), self.last[numbers]))]

    def batch(
        self, columns: Sequence[str], rows: npt.NDArray[np.int64] | None, names: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Return columns "stream.column" of some rows, or of all rows (None) without a copy; `names` renames them."""
        batch = pa.RecordBatch.from_arrays([self._columns[column] for column in columns], names=list(names or columns))
        return batch if rows is None else taken(batch, rows)

    def values(self, column: str) -> pa.Array | Codes:
        """Return a column, also one of `FIRST`, `LAST` and `AGE`."""
        if column in (FIRST, LAST):
            return self.first if column == FIRST else self.last
        if column.startswith(AGE):
            return self._age(column.removeprefix(AGE))
        return self._columns[column]

    def _age(self, name: str) -> Codes:
        if not self._ages:
            times = {
                stream.name: checked_times(
                    stream, self.batch([f"{stream.name}.{stream.time}"], None, [str(stream.time)]), self._time_type
                )
                for stream in self._streams
            }
            newest = np.maximum.reduce(list(times.values()))
            self._ages = {stream: newest - stream_times for stream, stream_times in times.items()}
        return self._ages[name]


class VersionRows(NamedTuple):
    """The rows that a version gives in a push, the position of each, and its failed rows (with columns `FAILED`)."""

    table: pa.Table
    places: npt.NDArray[np.int64]
    failed: tuple[pa.RecordBatch, ...] = ()
