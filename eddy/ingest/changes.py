"""The changes of a table in a push: which rows are upserts, which are deletes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddy.ingest.arrivals import Deletes, Rows
from eddy.ingest.soundness import Loose, loose_columns
from eddy.ingest.tables import checked_rows
from eddy.streams.table import OP_COLUMN, Table
from stairs.errors import InputError

UPSERTS, DELETES, IMPLIED = ("+I", "+U", "c", "r", "u"), ("-D", "d"), ("-U",)
"""Operations: those of the changelogs of Flink and of this library, and those of Debezium."""


class Changed(NamedTuple):
    """The changes of one table in a push.

    batch    their rows, in order
    deletes  bool[rows], which of them are deletes; None = none is
    kept     the numbers of those rows of the push that are changes, ascending; None = all are
    """

    batch: pa.RecordBatch
    deletes: Deletes | None
    kept: Rows | None


class ChangeReader:
    """Reads the changes that a user pushes for one table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        schema = table.schema
        self._schema = schema if table.ops is None else schema.append(pa.field(OP_COLUMN, pa.string()))
        self._loose: Loose = loose_columns(self._schema)

    def read(self, rows: object) -> Changed:
        """Return the changes. Raises InputError for rows that cannot be read, and for an unknown operation."""
        name = self.table.name
        batch = checked_rows(rows, self._schema, name, self._loose)
        if self.table.ops is None:
            return Changed(batch, None, None)
        ops = batch.column(len(batch.schema) - 1)
        batch = batch.select(self.table.schema.names)
        deletes = _one_of(ops, DELETES)
        known = deletes | _one_of(ops, UPSERTS)
        implied = _one_of(ops, IMPLIED)
        strange = np.flatnonzero(~(known | implied))
        if len(strange):
            row = int(strange[0])
            raise InputError(
                f"table {name}: column {OP_COLUMN!r} of row {row} of the push is {ops[row].as_py()!r}; an upsert is one"
                f" of {', '.join(UPSERTS)}, a delete one of {', '.join(DELETES)}"
            )
        kept = np.flatnonzero(known) if implied.any() else None
        return Changed(batch, deletes if deletes.any() else None, kept)


def _one_of(ops: pa.Array, values: tuple[str, ...]) -> Deletes:
    found: Deletes = np.asarray(pc.is_in(ops, pa.array(values)).cast(pa.uint8())).astype(bool)
    return found
