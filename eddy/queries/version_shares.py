"""The results of a family of versions, divided among them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.filters.faults import Faults, others
from eddy.queries.combinations import PushedCombinations, VersionRows
from eddy.queries.reader import Reader
from eddy.queries.sources import EnginePush


class VersionShares:
    """The results of a family, divided among its versions.

    The results of versions that need the same columns lie in one block of memory, which lives as long as any of their
    tables does.

    rows     by version the combinations that it accepts, None for all
    faults   by version those that fail
    """

    def __init__(
        self,
        combinations: PushedCombinations,
        rows: Mapping[Reader[Any], npt.NDArray[np.int64] | None],
        faults: Mapping[Reader[Any], Faults] = MappingProxyType({}),
    ) -> None:
        self._combinations = combinations
        rows = {
            reader: combinations.ranked(reader.query.graph.names, accepted) if reader.version.ordered else accepted
            for reader, accepted in rows.items()
        }
        self._rows = dict(rows)
        self._tables: dict[Reader[Any], pa.Table] = {}
        self._faults = {reader: dict(failing) for reader, failing in faults.items()}
        together: dict[tuple[str, ...], list[tuple[Reader[Any], npt.NDArray[np.int64]]]] = {}
        for reader, accepted in rows.items():
            if accepted is None:
                self._make(reader, combinations.batch(reader.needed, None))
            elif len(accepted):
                together.setdefault(reader.needed, []).append((reader, accepted))
        for columns, group in together.items():
            block, begin = combinations.batch(columns, np.concatenate([accepted for _, accepted in group])), 0
            for reader, accepted in group:
                self._make(reader, block.slice(begin, len(accepted)))
                begin += len(accepted)

    def _make(self, reader: Reader[Any], batch: pa.RecordBatch) -> None:
        """Make the results of a version, given the columns that it needs."""
        self._tables[reader], failing = reader.output(batch)
        if failing:
            rows = self.rows(reader)
            faults = self._faults.setdefault(reader, {})
            faults.update((int(rows[row]), fault) for row, fault in failing.items())
            self._rows[reader] = rows[others(failing, len(rows))]

    def table(self, reader: Reader[Any]) -> pa.Table:
        """Return the results of a version."""
        table = self._tables.get(reader)
        return reader.nothing if table is None else table

    @property
    def readers(self) -> list[Reader[Any]]:
        """The versions that have results or failed rows."""
        return list(dict.fromkeys([*self._tables, *self._faults]))

    def rows(self, reader: Reader[Any]) -> npt.NDArray[np.int64]:
        """Return the numbers of the found rows that belong to a version, in the order of its results."""
        rows = self._rows.get(reader, np.zeros(0, np.int64))
        return np.arange(len(self._combinations)) if rows is None else rows

    def failed(self, reader: Reader[Any]) -> tuple[pa.RecordBatch, ...]:
        """Return the failed rows of a version that lie within its present bounds."""
        faults = self._faults.get(reader)
        if not faults:
            return ()
        within = reader.within_bounds(self._combinations, np.array(list(faults), np.int64)).tolist()
        kept = {row: fault for (row, fault), keep in zip(faults.items(), within, strict=True) if keep}
        return tuple(reader.failed(self._combinations, dict(sorted(kept.items())))) if kept else ()

    def within_bounds(self, reader: Reader[Any]) -> VersionRows:
        """Return the results of a version that lie within its present bounds, and the position of each."""
        rows, table = self.rows(reader), self.table(reader)
        if len(rows):
            keep = reader.within_bounds(self._combinations, rows)
            if not keep.all():
                rows, table = rows[keep], table.filter(pa.array(keep))
        return VersionRows(table, self._combinations.last[rows], self.failed(reader))

    def owned(self, reader: Reader[Any], push: EnginePush) -> VersionRows:
        """Return the rows of a version in a push, with the arrival of each: results, or windows of groups."""
        owned = self.within_bounds(reader)
        if reader.grouping is None:
            return owned
        grouped = reader.grouping.follow(owned.table, push)
        return grouped._replace(failed=(*owned.failed, *grouped.failed))
