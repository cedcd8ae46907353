"""The results that the join of a family found in a push, and the share of each version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.filters.faults import Faults, others
from eddy.filters.ranges import Codes
from eddy.ingest.validation import checked_times
from eddy.queries.sources import POSITION, one_batch
from stairs.plain_types import no_rows, taken

if TYPE_CHECKING:
    from eddy.queries.owner import Owner
    from eddy.streams.stream import Stream

FIRST, LAST, AGE = "#first", "#last", "#age."
"""Names of additional columns of a result: the least and the greatest position of its components, and the age of the
component of a stream, whose name follows: ticks from its event time to the greatest event time of the components."""


class Found:
    """The combinations that a join found in a push.

    Rows are in the order of `last`.
    """

    def __init__(self, table: pa.Table, streams: Sequence[Stream], time_type: pa.DataType | None) -> None:
        self._streams = streams
        self._time_type = time_type
        batch = one_batch(table, "push fewer at a time")
        columns = [no_rows(kind) for kind in table.schema.types] if batch is None else batch.columns
        self._columns: dict[str, pa.Array] = dict(zip(table.column_names, columns, strict=True))
        self._ages: dict[str, Codes] = {}

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

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

    def batch(
        self, columns: Sequence[str], rows: npt.NDArray[np.int64] | None, names: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Return columns "stream.column" of some rows, or of all rows (None) without a copy; `names` renames them."""
        batch = pa.RecordBatch.from_arrays([self._columns[one] for one in columns], names=list(names or columns))
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
                one.name: checked_times(
                    one, self.batch([f"{one.name}.{one.time}"], None, [str(one.time)]), self._time_type
                )
                for one in self._streams
            }
            newest = np.maximum.reduce(list(times.values()))
            self._ages = {stream: newest - own for stream, own in times.items()}
        return self._ages[name]


class Owned(NamedTuple):
    """The rows that a version gives in a push, the position of each, and its failed rows (with columns `FAILED`)."""

    table: pa.Table
    places: npt.NDArray[np.int64]
    failed: tuple[pa.RecordBatch, ...] = ()


class Shares:
    """The results of a family, divided among its versions.

    The results of versions that need the same columns lie in one block of memory, which lives as long as any of their
    tables does.

    rows     by version the combinations that it accepts, None for all
    faults   by version those that fail
    """

    def __init__(
        self,
        found: Found,
        rows: Mapping[Owner, npt.NDArray[np.int64] | None],
        faults: Mapping[Owner, Faults] = MappingProxyType({}),
    ) -> None:
        self._found = found
        self._rows = dict(rows)
        self._tables: dict[Owner, pa.Table] = {}
        self._faults = {owner: dict(own) for owner, own in faults.items()}
        together: dict[tuple[str, ...], list[tuple[Owner, npt.NDArray[np.int64]]]] = {}
        for owner, own in rows.items():
            if own is None:
                self._make(owner, found.batch(owner.needed, None))
            elif len(own):
                together.setdefault(owner.needed, []).append((owner, own))
        for columns, group in together.items():
            block, begin = found.batch(columns, np.concatenate([own for _, own in group])), 0
            for owner, own in group:
                self._make(owner, block.slice(begin, len(own)))
                begin += len(own)

    def _make(self, owner: Owner, batch: pa.RecordBatch) -> None:
        """Make the results of a version, given the columns that it needs."""
        self._tables[owner], failing = owner.output(batch)
        if failing:
            rows = self.rows(owner)
            own = self._faults.setdefault(owner, {})
            own.update((int(rows[row]), fault) for row, fault in failing.items())
            self._rows[owner] = rows[others(failing, len(rows))]

    def table(self, owner: Owner) -> pa.Table:
        """Return the results of a version."""
        table = self._tables.get(owner)
        return owner.query.row_schema.empty_table() if table is None else table

    def rows(self, owner: Owner) -> npt.NDArray[np.int64]:
        """Return the numbers of the found rows that belong to a version, ascending."""
        rows = self._rows.get(owner, np.zeros(0, np.int64))
        return np.arange(len(self._found)) if rows is None else rows

    def failed(self, owner: Owner) -> tuple[pa.RecordBatch, ...]:
        """Return the failed rows of a version that lie within its present bounds."""
        faults = self._faults.get(owner)
        if not faults:
            return ()
        within = owner.within_bounds(self._found, np.array(list(faults), np.int64)).tolist()
        kept = {row: fault for (row, fault), keep in zip(faults.items(), within, strict=True) if keep}
        return tuple(owner.failed(self._found, dict(sorted(kept.items())))) if kept else ()

    def within_bounds(self, owner: Owner) -> Owned:
        """Return the results of a version that lie within its present bounds, and the position of each."""
        rows, table = self.rows(owner), self.table(owner)
        if len(rows):
            keep = owner.within_bounds(self._found, rows)
            if not keep.all():
                rows, table = rows[keep], table.filter(pa.array(keep))
        return Owned(table, self._found.last[rows], self.failed(owner))
