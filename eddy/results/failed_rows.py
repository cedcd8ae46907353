"""Rows and groups without a result because an expression fails on them, as rows of a table.

The table has the same columns for all queries, so it outlives a change of the query: the values of a row are texts, by
the name of their column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from eddy.filters.faults import FAILURES, Faults
from stairs.plain_types import Column, taken, to_plain

FAILED = pa.schema(
    [
        pa.field("kind", pa.string(), False),
        pa.field("expression", pa.string(), False),
        pa.field("reason", pa.string(), False),
        pa.field("row", pa.map_(pa.string(), pa.string()), False),
    ]
)
"""The columns of failed rows.

kind         the part that failed: "filter" or "where" (a condition), "select", "group_by" or "aggregate" (an expression
             over a joined row), or "aggregate" (a sum), "having", "select" over a group
expression   text of the expression
reason       reason of the failure: the message of Arrow, or the type that a sum exceeds
row          by name of a column the values of the joined row, or of the group and the bounds of its window, as text
"""


ENDS_AT_FAILED = (
    "ends at a row for which an expression has no value: keep such rows out, leave them out of the results with"
    " Query(…, failed='count'), or use a Runtime"
)
"""The treatment of failed rows in a simulation."""


class FailedBatch(NamedTuple):
    """The failed rows of one push: the rows, None if they are only counted; their number; the first one by column."""

    rows: pa.RecordBatch | None
    n_rows: int
    first: dict[str, Any]


def failed_batch(faults: Faults, columns: Mapping[str, Column]) -> list[pa.RecordBatch]:
    """Return a batch of the rows of columns that have faults, none without faults. O(faults * columns)."""
    if not faults:
        return []
    numbers = np.array(list(faults), np.int64)
    texts = {name: _texts(taken(column, numbers)) for name, column in columns.items()}
    rows = [list(zip(texts, values, strict=True)) for values in zip(*texts.values(), strict=True)] if texts else []
    all_faults = faults.values()
    arrays = [
        pa.array([fault.kind for fault in all_faults], pa.string()),
        pa.array([fault.expression for fault in all_faults], pa.string()),
        pa.array([fault.reason for fault in all_faults], pa.string()),
        pa.array(rows or [[]] * len(faults), FAILED.field("row").type),
    ]
    return [pa.RecordBatch.from_arrays(arrays, schema=FAILED)]


def failed_text(failed: pa.RecordBatch | pa.Table) -> str:
    """Return a text about the first of some failed rows."""
    first = failed.slice(0, 1).to_pylist()[0]
    row = ", ".join(f"{name} = {value}" for name, value in first["row"])
    return f"{first['kind']} {first['expression']} has no value for a row: {first['reason']}. The row has {row}"


def _texts(column: Column) -> list[str | None]:
    """Return the values of a column as text."""
    try:
        values: list[str | None] = column.cast(pa.string()).to_pylist()
        return values
    except (*FAILURES, UnicodeDecodeError):
        pass
    plain = to_plain(column if isinstance(column, pa.Array) else column.combine_chunks())
    if pt.is_string(plain.type) or pt.is_large_string(plain.type):
        plain = plain.cast(pa.large_binary())  # it is no UTF-8
    return [str(value) if value.is_valid else None for value in plain]
