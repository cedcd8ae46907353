"""The changes of a table in a push: which rows are upserts, which are deletes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from eddy.ingest.arrivals import Deletes, Order, Rows
from eddy.ingest.soundness import Loose, loose_columns
from eddy.ingest.tables import arrow_table, checked_rows
from eddy.ingest.validation import checked_ticks
from eddy.streams.keyed import OP_COLUMN, KeyedInput
from eddy.streams.table import Table
from stairs.errors import InputError
from stairs.plain_types import plain, taken, to_plain

UPSERTS, DELETES, IMPLIED = ("+I", "+U", "c", "r", "u"), ("-D", "d"), ("-U",)
"""Operations: those of the changelogs of Flink and of this library, and those of Debezium."""
Mask = npt.NDArray[np.bool_]


class TableChanges(NamedTuple):
    """The changes of one table in a push.

    batch    their rows, in order; of a delete only the key has a meaning
    deletes  bool[changes], which of them are deletes; None = none is
    pushed   the number of rows that were pushed
    sources  the row of the push from which each change comes, ascending; None = each row is one change
    versions int64[changes], the version of each change; None for a table without versions
    """

    batch: pa.RecordBatch
    deletes: Deletes | None
    pushed: int
    sources: Rows | None
    versions: Rows | None = None

    def of(self, kept: Rows) -> TableChanges:
        """Return some of the changes, by their numbers, ascending."""
        return TableChanges(
            taken(self.batch, kept),
            None if self.deletes is None else self.deletes[kept],
            self.pushed,
            kept if self.sources is None else self.sources[kept],
            None if self.versions is None else self.versions[kept],
        )


def newest(changed: TableChanges, keys: Sequence[str]) -> TableChanges:
    """Return the last change of each key, in order."""
    n = changed.batch.num_rows
    columns = [comparable(changed.batch.column(key)) for key in keys]
    names = [str(k) for k in range(len(keys))]
    last = pa.table([*columns, pa.array(np.arange(n))], [*names, "n"]).group_by(names).aggregate([("n", "max")])
    if len(last) == n:
        return changed
    return changed.of(np.sort(last["n_max"].to_numpy()))


def spread(order: Order, changed: Mapping[int, TableChanges]) -> Order:
    """Return the order of changes and rows; that of the rows that were pushed is given."""
    if all(changes.sources is None for changes in changed.values()):
        return order
    repeats = np.ones(len(order), np.int64)
    for i, changes in changed.items():
        if changes.sources is not None:
            repeats[order == i] = np.bincount(changes.sources, minlength=changes.pushed)
    return np.repeat(order, repeats)


class ChangeReader:
    """Reads the changes that a user pushes for one table as rows."""

    def __init__(self, table: KeyedInput) -> None:
        self.table = table
        schema = table.schema
        self._schema = schema if table.ops is None else schema.append(pa.field(OP_COLUMN, pa.string()))
        self._loose: Loose = loose_columns(self._schema)
        self._version = table.version if isinstance(table, Table) else None
        self._version_type = table.version_type if isinstance(table, Table) else None

    def read(self, rows: object) -> TableChanges:
        """Return the changes.

        Raises InputError for rows that cannot be read, for an unknown operation, and for a change without a key or a
        version.
        """
        changed = self._changes(rows)
        for column in self.table.keys:
            absent = changed.batch.column(column).is_null(nan_is_null=True)
            if absent.true_count:
                row = int(np.flatnonzero(is_true(absent))[0])
                raise InputError(
                    f"{self.table.place}: row {row if changed.sources is None else changed.sources[row]} of the"
                    f" push has no key: {column}={changed.batch.column(column)[row].as_py()!r}; a change needs a value"
                    " in each column of the key"
                )
        return changed if self._version is None or changed.versions is not None else self._versioned(changed)

    def _versioned(self, changed: TableChanges) -> TableChanges:
        """Return changes with the versions that their column has."""
        table, kind = self.table, self._version_type
        assert self._version is not None
        assert kind is not None
        return changed._replace(versions=checked_ticks(table.place, self._version, "version", changed.batch, kind))

    def _changes(self, rows: object) -> TableChanges:
        """Return the changes of rows, which say what they do in a column if the table has one. Keys are not checked."""
        if self.table.ops == "column":
            rows = self._with_blanks(rows)
        batch = checked_rows(rows, self._schema, self.table.place, self._loose)
        if self.table.ops is None:
            return TableChanges(batch, None, batch.num_rows, None)
        ops = batch.column(len(batch.schema) - 1)
        batch = batch.select(self.table.schema.names)
        deletes = is_one_of(ops, DELETES)
        known = deletes | is_one_of(ops, UPSERTS)
        implied = is_one_of(ops, IMPLIED)
        self.require_known(
            ops, known | implied, f"an upsert is one of {', '.join(UPSERTS)}, a delete one of {', '.join(DELETES)}"
        )
        pushed, sources = batch.num_rows, None
        if implied.any():
            sources = np.flatnonzero(known)
            batch, deletes = taken(batch, sources), deletes[sources]
        return TableChanges(batch, deletes if deletes.any() else None, pushed, sources)

    def _with_blanks(self, rows: object) -> object:
        """Return rows of which deletes have nulls where they lack columns: a delete needs its key and its version."""
        needed = (*self.table.keys, *(() if self._version is None else (self._version,)))
        others = [name for name in self.table.schema.names if name not in needed]
        if isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
            blank, filled = dict.fromkeys(others), []
            for k, row in enumerate(rows):
                deletes = isinstance(row, Mapping) and row.get(OP_COLUMN) in DELETES
                for name in needed if deletes else ():
                    if name not in row:
                        raise InputError(
                            f"{self.table.place}: column {name!r} is missing in row {k} of the push, {row};"
                            f" a delete has {', '.join(needed)}"
                        )
                filled.append({**blank, **row} if deletes else row)
            return filled
        table = arrow_table(rows, self.table.place)
        given: Any = rows if table is None else table
        names = table.schema.names if table is not None else [*getattr(given, "columns", given)]
        lacking = [name for name in others if name not in names]
        if not lacking or OP_COLUMN not in names:
            return given
        ops = checked_rows(given, pa.schema([self._schema.field(OP_COLUMN)]), self.table.place).column(0)
        if not is_one_of(ops, (*DELETES, *IMPLIED)).all():
            return given
        blanks = {name: pa.nulls(len(ops), plain(self.table.type_of(name))) for name in lacking}
        if isinstance(given, Mapping):
            return {**given, **blanks}
        return {**{name: given[name] for name in self._schema.names if name in names}, **blanks}

    def require_known(self, ops: pa.Array, known: Mask, operations: str) -> None:
        """Raise InputError, with the first row of which the operation is unknown and the known `operations`."""
        if not known.all():
            row = int(np.flatnonzero(~known)[0])
            self.refuse(~known, f"is {ops[row].as_py()!r}; {operations}")

    def refuse(self, rows: Mask, problem: str) -> None:
        """Raise InputError for the operation of the first of the rows of the push that are marked."""
        row = int(np.flatnonzero(rows)[0])
        raise InputError(f"{self.table.place}: column {OP_COLUMN!r} of row {row} of the push {problem}")


def comparable(column: pa.Array) -> pa.Array:
    """Return a key column in a type of which Arrow compares the values. 0.0 and -0.0 are the same bits then."""
    plain_column = to_plain(column)
    if pt.is_floating(plain_column.type):
        return pc.add(plain_column.cast(pa.float64()), 0.0)
    return plain_column


def is_true(column: pa.Array) -> Mask:
    """Return a column of booleans without a null as a mask."""
    mask: Mask = np.asarray(column.cast(pa.uint8())).astype(bool)
    return mask


def is_one_of(ops: pa.Array, values: tuple[str, ...]) -> Mask:
    """Return which operations are one of some values; a null is none."""
    return is_true(pc.is_in(ops, pa.array(values)))
