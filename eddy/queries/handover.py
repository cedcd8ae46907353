"""The handover from one changelog to another: the difference between two answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddy.streams.keyed import OP_COLUMN

_SIGN, _ROW = "\0sign", "\0row"


def difference_of(old: Sequence[pa.Table], new: pa.Table) -> pa.Table:
    """Return what changes answers, given as changelogs, into another one: rows to take back, then rows to add.

    Rows that are equal in all columns cancel, unless a column is nested. Columns that only `old` has come last.
    """
    every = pa.concat_tables([*map(_taken_back, old), new], promote_options="default")
    if not len(every):
        return every
    names = [name for name in every.column_names if name != OP_COLUMN]
    plain = not any(pa.types.is_nested(every.schema.field(name).type) for name in names)
    signs = np.where(np.asarray(pc.is_in(every.column(OP_COLUMN), pa.array(["+I", "+U"]))), 1, -1)
    if plain and names:
        keyed = (
            every.select(names).append_column(_SIGN, pa.array(signs)).append_column(_ROW, pa.array(range(len(every))))
        )
        left = keyed.group_by(names, use_threads=False).aggregate([(_SIGN, "sum"), (_ROW, "min")])
        net = left.column(f"{_SIGN}_sum").to_numpy()
        rows = np.repeat(left.column(f"{_ROW}_min").to_numpy(), np.abs(net))
        signs = np.sign(np.repeat(net, np.abs(net)))
    else:
        rows = np.arange(len(every))
    order = np.lexsort([rows, signs])
    rows, signs = rows[order], signs[order]
    ops = pa.array(np.where(signs > 0, "+I", "-D"), pa.string())
    changes = every.take(pa.array(rows))
    return changes.set_column(changes.schema.get_field_index(OP_COLUMN), every.schema.field(OP_COLUMN), ops)


def _taken_back(answer: pa.Table) -> pa.Table:
    """Return a changelog with the opposite of each row."""
    place = answer.schema.get_field_index(OP_COLUMN)
    begins = pc.is_in(answer.column(place), pa.array(["+I", "+U"]))
    return answer.set_column(place, answer.schema.field(place), pc.if_else(begins, "-D", "+I"))
