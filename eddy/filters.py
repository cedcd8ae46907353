"""Expressions over rows: checked when a query is written, evaluated a batch at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.acero import Declaration, ProjectNodeOptions, TableSourceNodeOptions

from stairs.errors import QueryError

FAILURES = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError)
"""What Arrow raises for an expression that does not fit its rows."""


def _evaluated(expression: pc.Expression, table: pa.Table) -> pa.ChunkedArray:
    # Only the expression's column is made: filtering the table would copy columns that have no filter kernel.
    source = Declaration("table_source", TableSourceNodeOptions(table))
    project = Declaration("project", ProjectNodeOptions([expression], ["accepted"]), inputs=[source])
    return project.to_table(use_threads=False).column("accepted")


def accepted_rows(expression: pc.Expression, table: pa.Table) -> npt.NDArray[np.int64]:
    """Return the rows for which the expression is true (not null), ascending. Raises one of FAILURES."""
    accepted = _evaluated(expression, table).combine_chunks().cast(pa.bool_()).fill_null(False)
    return np.flatnonzero(np.asarray(accepted.cast(pa.uint8())))


def check_expression(expression: object, schema: pa.Schema, what: str) -> None:
    """Raise QueryError unless the expression gives a boolean on rows of the schema."""
    if not isinstance(expression, pc.Expression):
        raise QueryError(
            f"{what} is a pyarrow.compute.Expression such as pyarrow.compute.field('x') > 3, not"
            f" {type(expression).__name__}"
        )
    columns = f"the columns are {', '.join(schema.names)}"
    try:
        kind = _evaluated(expression, schema.empty_table()).type
    except FAILURES as error:
        raise QueryError(f"{what} does not fit: {str(error).splitlines()[0]}; {columns}") from error
    if not (pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise QueryError(f"{what} gives {kind}, not a boolean; {columns}")


def columns_read(expression: pc.Expression, schema: pa.Schema) -> list[int]:
    """Return which columns of the schema an expression reads: those without which it fails. O(columns) evaluations."""
    read = []
    for k in range(len(schema)):
        try:
            _evaluated(expression, schema.remove(k).empty_table())
        except FAILURES:
            read.append(k)
    return read
