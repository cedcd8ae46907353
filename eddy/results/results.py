"""The results of a push: a table made from combinations of tuples, or only counts or row numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddy.filters.adaptive import AdaptiveFilter
from eddy.filters.faults import Faults, others
from eddy.ingest.changes import comparable
from eddy.query.determined import determined
from eddy.query.query import Query
from eddy.query.result_key import result_key
from eddy.results.failed_rows import failed_batch
from eddy.streams.stream import PRESENCE, readable_name
from stairs.descriptors import DELETED, INSERTED, UPDATED_FROM, UPDATED_TO
from stairs.errors import InputError
from stairs.plain_types import Column, Rows, taken

OP = "op"
"""The column of a changelog that has the operation."""

# `pa.array` imports pandas where that is installed, which would double the time of `import eddy.runtime`.
SIGNS = pa.StringArray.from_buffers(4, pa.py_buffer(np.array([0, 2, 4, 6, 8], np.int32)), pa.py_buffer(b"+I-D+U-U"))
"""The operation of each sign of the kernel."""

NUMBER = "\0number "
"""The beginning of the name of a column with the arrival numbers of a stream; no output column begins so."""

Place = tuple[int, int]
"""A column of the payload: (stream, number)."""
PRESENT = -1
"""The column number that means: whether a combination has a component of the stream."""


class Combinations(Protocol):
    """The combinations of tuples that a push has found."""

    @property
    def size(self) -> int:
        """Their number."""

    @property
    def signs(self) -> npt.NDArray[np.uint8]:
        """INSERTED or DELETED, uint8[size or more]; only needed in a changelog that is more than counted."""

    @property
    def deleted(self) -> int:
        """Number of deleted ones among them, if they are only counted."""

    def columns(self) -> dict[Place, Column]:
        """Return the kept columns of the combinations."""

    def numbers(self) -> npt.NDArray[np.int64]:
        """Return the arrival numbers of their components, int64[streams shown, size]; -1 = a null component."""

    def rows(self) -> pa.Table | None:
        """Return the columns of `Results.plain` as a table, None where `columns` has to do it."""


class Combined(NamedTuple):
    """Combinations from any source: their number, and a function that returns their columns, as in Combinations."""

    size: int
    columns: Callable[[], dict[Place, Column]]
    numbers: Callable[[], npt.NDArray[np.int64]]
    signs: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)
    deleted: int = 0

    def rows(self) -> pa.Table | None:
        """Return None: no faster access to the columns exists."""
        return None


class PushResults(NamedTuple):
    """The results of a push: the number inserted, the number deleted, their table, and rows of `FAILED`."""

    inserted: int
    deleted: int
    table: pa.Table
    failed: tuple[pa.RecordBatch, ...] = ()


class Results:
    """The results of the pushes of one runtime.

    kept        per stream the names of the columns that combinations have
    changelog   whether the first column is `op`, with "+I" or "-D"
    count_only, ids_only   see `Runtime`
    upsert      whether the rows that others replace are left out
    """

    def __init__(
        self,
        query: Query,
        kept: list[list[str]],
        *,
        changelog: bool,
        count_only: bool,
        ids_only: bool,
        upsert: bool = False,
    ) -> None:
        self.changelog, self.count_only, self.ids_only = changelog, count_only, ids_only
        self.upsert = upsert and changelog
        alone = query.aggregation is None and query.ranking is None
        tables = frozenset((*query.tables_at, *query.versioned_at))
        self.changing = changelog and bool(tables) and alone
        """Whether results are replaced by others, in pairs; groups and the first rows of groups need none."""
        self._key = key_places(query) if self.upsert and determined(query) else []
        """The numbers of the output columns that are the key of a result, where it does not have all keys of tables."""
        self._numbered = query.ranking is not None and query.aggregation is None
        """Whether results have their arrival numbers, which decide between rows of equal order."""
        self._tables = tables if self.changing else frozenset[int]()
        self.accepts = None
        if query.conditions:
            self.accepts = AdaptiveFilter(query.conditions, place=query.where_place, rows="results")
        """The filter of results."""
        self._names: dict[Place, str] = {
            (i, k): f"{stream.name}.{column}"
            for i, stream in enumerate(query.streams)
            for k, column in enumerate(kept[i])
        }
        places: dict[tuple[str, str], Place] = {
            (stream.name, column): (i, k) for i, stream in enumerate(query.streams) for k, column in enumerate(kept[i])
        }
        places.update({(stream.name, PRESENCE): (i, PRESENT) for i, stream in enumerate(query.streams)})
        self._where = [(readable_name(*place), places[place]) for place in query.where_columns]
        self._output, self._computed = query.output, query.computes
        self._chosen = [] if count_only or ids_only else [places[place] for place in query.select.values()]
        if count_only:
            schema = pa.schema([pa.field("count", pa.int64())])
        elif ids_only:
            schema = pa.schema(
                [pa.field(stream.name, pa.int64(), query.may_lack(stream.name)) for stream in query.shown]
            )
        else:
            schema = query.row_schema
        if self._numbered:
            for stream in query.shown:
                schema = schema.append(pa.field(NUMBER + stream.name, pa.int64(), False))
        if changelog and not count_only and OP in schema.names:
            what, remedy = ("stream", "rename it") if ids_only else ("selected column", "select it under another name")
            raise InputError(
                f"a {what} is named {OP!r}, which is the column of a changelog that has +I or -D; {remedy}"
            )
        self.schema = schema.insert(0, pa.field(OP, pa.string(), False)) if changelog else schema
        """The schema of the tables."""

    @property
    def plain(self) -> list[Place] | None:
        """The payload columns of a table, in order; None if the table also has other columns."""
        made = self.accepts is not None or self.changelog or self.count_only or self.ids_only or self._computed
        made = made or self._numbered
        return None if made else self._chosen

    @property
    def counted(self) -> bool:
        """Whether the kernel only needs to count combinations: no filter and no table reads them."""
        return self.count_only and self.accepts is None

    def make(self, combinations: Combinations, arrived: Sequence[int] = ()) -> PushResults:
        """Return the results among the combinations of a push, and the combinations that fail and were inserted.

        arrived   the rows of each stream in the push, for results that change
        """
        table = combinations.rows()
        if table is not None:
            return PushResults(table.num_rows, 0, table)
        keep, count = None, combinations.size
        signs = combinations.signs[: 0 if self.counted else count]
        columns = combinations.columns() if self._where or self._chosen else {}
        faults: Faults = {}
        if self.accepts is not None:
            keep, faults = self._accepted(self.accepts, columns, count)
            count = len(keep)
        arrays: list[Column] = []
        if not self.count_only and not self.ids_only:
            arrays = [columns[place] for place in self._chosen]
            if keep is not None:
                arrays = [taken(column, keep) for column in arrays]
            arrays, failing = self._output(arrays, count)
            if failing:
                keep = np.arange(count) if keep is None else keep
                faults.update((int(keep[row]), fault) for row, fault in failing.items())
                keep = keep[others(failing, count)]
                count = len(keep)
        failed = self._failed(faults, columns, signs) if faults else ()
        if self.changelog and keep is not None:
            signs = signs[keep]
            if self.changing:
                signs = parted(signs, keep)
        if self.changing and arrays:
            differing = self._differing(arrays, signs, arrived)
            if differing is not None:
                arrays, signs = [taken(column, differing) for column in arrays], signs[differing]
                count = len(signs)
        deleted = 0
        if self.changelog:
            deleted = combinations.deleted if self.counted else int(np.count_nonzero(signs & 1))
        inserted = count - deleted
        if self.count_only:
            arrays = [pa.array([inserted, deleted] if self.changelog else [inserted], pa.int64())]
            signs = np.array([INSERTED, DELETED], np.uint8)
        elif self.ids_only:
            numbers = combinations.numbers()
            rows = numbers if keep is None else numbers[:, keep]
            fields = list(self.schema)[-len(rows) :]
            arrays = [
                pa.array(row, mask=row < 0 if field.nullable else None) for row, field in zip(rows, fields, strict=True)
            ]
        if self._numbered:
            numbers = combinations.numbers()
            arrays += [pa.array(row) for row in (numbers if keep is None else numbers[:, keep])]
        if self.upsert:
            shown = np.flatnonzero(signs != UPDATED_FROM)
            arrays, signs = [taken(column, shown) for column in arrays], signs[shown]
            if self._key:
                kept, signs = last_of_keys([arrays[k] for k in self._key], signs)
                arrays = [taken(column, kept) for column in arrays]
        if self.changelog:
            arrays.insert(0, SIGNS.take(pa.array(signs)))
        return PushResults(inserted, deleted, pa.Table.from_arrays(arrays, schema=self.schema), failed)

    def _differing(self, arrays: list[Column], signs: npt.NDArray[np.uint8], arrived: Sequence[int]) -> Rows | None:
        """Return the numbers of the rows without pairs whose rows are equal, ascending; None if there are none."""
        before = np.flatnonzero(signs == UPDATED_FROM)
        if not len(before):
            return None
        same = np.ones(len(before), bool)
        for k, column in enumerate(arrays):
            if not self._computed and not (self._chosen[k][0] in self._tables and arrived[self._chosen[k][0]]):
                # Both rows of a pair have the same row of a stream, and of a table that has not changed.
                continue
            same[same] = equal_values(taken(column, before[same]), taken(column, before[same] + 1))
            if not same.any():
                return None
        keep = np.ones(len(signs), bool)
        keep[before[same]] = keep[before[same] + 1] = False
        return np.flatnonzero(keep)

    def _failed(
        self, faults: Faults, columns: Mapping[Place, Column], signs: npt.NDArray[np.uint8]
    ) -> tuple[pa.RecordBatch, ...]:
        """Return the combinations that fail. A deleted combination that fails has failed before."""
        if self.changelog:
            faults = {row: fault for row, fault in faults.items() if not signs[row] & 1}
        named = {self._names[place]: column for place, column in columns.items() if place in self._names}
        return tuple(failed_batch(dict(sorted(faults.items())), named))

    def _accepted(self, accepts: AdaptiveFilter, columns: dict[Place, Column], count: int) -> tuple[Rows, Faults]:
        """Return the numbers of the results that `where` accepts, ascending, and those that fail."""
        # Without the column of row numbers, a table that has no other column would have no length.
        names = [*(name for name, _ in self._where), "\0row"]
        arrays = [*(columns[place] for _, place in self._where), pa.array(np.arange(count))]
        return accepted_rows(accepts, pa.Table.from_arrays(arrays, names=names), "where")


def parted(signs: npt.NDArray[np.uint8], rows: Rows) -> npt.NDArray[np.uint8]:
    """Return the signs of kept rows, in which a row that has lost the other row of its pair stands for itself.

    rows   the numbers of the kept rows before, ascending
    """
    follows = np.append(np.diff(rows) == 1, False)
    whole = (signs == UPDATED_FROM) & follows & np.append(signs[1:] == UPDATED_TO, False)
    alone = signs > DELETED
    alone[:-1] &= ~whole[:-1]
    alone[-1:] &= ~whole[-1:]
    alone[1:] &= ~whole[:-1]
    kept_signs = signs.copy()
    kept_signs[alone] &= 1
    return kept_signs


def key_places(query: Query) -> list[int]:
    """Return the numbers of the output columns that identify a result."""
    names = list(query.outputs)
    return [names.index(name) for name in result_key(query)]


def last_of_keys(columns: list[Column], signs: npt.NDArray[np.uint8]) -> tuple[Rows, npt.NDArray[np.uint8]]:
    """Return the numbers of the rows of a push that a reader by key needs, ascending, and their signs.

    columns   the key of each row
    signs     INSERTED, DELETED or UPDATED_TO

    They are the last rows of each key, without keys that come and go within the push.
    """
    n = len(signs)
    if n < 2:
        return np.arange(n), signs
    names = [str(k) for k in range(len(columns))]
    given = pa.table([*map(comparable, columns), pa.array(np.arange(n))], [*names, "n"])
    groups = given.group_by(names).aggregate([("n", "min"), ("n", "max")])
    first, last = (groups[name].to_numpy() for name in ("n_min", "n_max"))
    order = np.argsort(last)
    first, last = first[order], last[order]
    stood, stands = signs[first] != INSERTED, signs[last] != DELETED
    last_signs = np.where(stands, np.where(stood, UPDATED_TO, INSERTED), DELETED).astype(np.uint8)
    kept = stood | stands
    return last[kept], last_signs[kept]


def equal_values(left: Column, right: Column) -> npt.NDArray[np.bool_]:
    """Return where two columns of one type have the same value; nulls are equal, and so are NaN."""
    try:
        equal = pc.fill_null(pc.equal(left, right), False)
        if pa.types.is_floating(left.type):
            equal = pc.or_(equal, pc.fill_null(pc.and_(pc.is_nan(left), pc.is_nan(right)), False))
        same = np.asarray(pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right))).cast(pa.uint8()))
        return same.astype(bool)
    except pa.ArrowNotImplementedError:
        # Lists, structs and the like.
        return np.array([a == b for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)], bool)


def accepted_rows(accepts: AdaptiveFilter, table: pa.Table, kind: str) -> tuple[Rows, Faults]:
    """Return the numbers of the rows of a table that a filter accepts, ascending, and the faults of those that fail."""
    accepted, faults, first = [np.zeros(0, np.int64)], Faults(), 0
    for batch in table.to_batches():
        rows, failing = accepts.divided(batch)
        accepted.append(rows + first)
        faults.update(accepts.faults(failing, kind, first))
        first += len(batch)
    return accepted[-1] if len(accepted) == 2 else np.concatenate(accepted), faults
