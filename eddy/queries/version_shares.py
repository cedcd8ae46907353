"""The results of a family of versions, divided among them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.filters.faults import Faults, others
from eddy.queries.found import FoundCombinations, VersionRows
from eddy.queries.owner import Owner
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
        found: FoundCombinations,
        rows: Mapping[Owner[Any], npt.NDArray[np.int64] | None],
        faults: Mapping[Owner[Any], Faults] = MappingProxyType({}),
    ) -> None:
        self._found = found
        self._rows = dict(rows)
        self._tables: dict[Owner[Any], pa.Table] = {}
        self._faults = {owner: dict(own) for owner, own in faults.items()}
        together: dict[tuple[str, ...], list[tuple[Owner[Any], npt.NDArray[np.int64]]]] = {}
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

    def _make(self, owner: Owner[Any], batch: pa.RecordBatch) -> None:
        """Make the results of a version, given the columns that it needs."""
        self._tables[owner], failing = owner.output(batch)
        if failing:
            rows = self.rows(owner)
            own = self._faults.setdefault(owner, {})
            own.update((int(rows[row]), fault) for row, fault in failing.items())
            self._rows[owner] = rows[others(failing, len(rows))]

    def table(self, owner: Owner[Any]) -> pa.Table:
        """Return the results of a version."""
        table = self._tables.get(owner)
        return owner.nothing if table is None else table

    @property
    def owners(self) -> list[Owner[Any]]:
        """The versions that have results or failed rows."""
        return list(dict.fromkeys([*self._tables, *self._faults]))

    def rows(self, owner: Owner[Any]) -> npt.NDArray[np.int64]:
        """Return the numbers of the found rows that belong to a version, ascending."""
        rows = self._rows.get(owner, np.zeros(0, np.int64))
        return np.arange(len(self._found)) if rows is None else rows

    def failed(self, owner: Owner[Any]) -> tuple[pa.RecordBatch, ...]:
        """Return the failed rows of a version that lie within its present bounds."""
        faults = self._faults.get(owner)
        if not faults:
            return ()
        within = owner.within_bounds(self._found, np.array(list(faults), np.int64)).tolist()
        kept = {row: fault for (row, fault), keep in zip(faults.items(), within, strict=True) if keep}
        return tuple(owner.failed(self._found, dict(sorted(kept.items())))) if kept else ()

    def within_bounds(self, owner: Owner[Any]) -> VersionRows:
        """Return the results of a version that lie within its present bounds, and the position of each."""
        rows, table = self.rows(owner), self.table(owner)
        if len(rows):
            keep = owner.within_bounds(self._found, rows)
            if not keep.all():
                rows, table = rows[keep], table.filter(pa.array(keep))
        return VersionRows(table, self._found.last[rows], self.failed(owner))

    def owned(self, owner: Owner[Any], push: EnginePush) -> VersionRows:
        """Return the rows of a version in a push, with the arrival of each: results, or windows of groups."""
        owned = self.within_bounds(owner)
        if owner.grouping is None:
            return owned
        found = owner.grouping.follow(owned.table, push)
        return found._replace(failed=(*owned.failed, *found.failed))
