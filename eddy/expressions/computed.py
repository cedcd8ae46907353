"""Output columns that an expression computes from the columns of a result, with Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from eddy.filters.conditions import columns_read, expression_type, project
from eddy.filters.faults import FAILURES, Fault, Faults, others, reasons
from stairs.errors import QueryError
from stairs.plain_types import Column, taken

_COUNT = "\0count"
"""A column that gives rows without other columns their number."""


@dataclass(frozen=True, eq=False)
class ComputedExpression:
    """An expression over columns named "stream.column".

    expression  its value for each result
    sql         its text in SQL (`eddy.sql`), None if there is none
    columns     the columns that it reads, None if they are not known yet
    """

    expression: pc.Expression
    sql: str | None = None
    columns: frozenset[str] | None = None

    @property
    def title(self) -> str:
        """The text of the expression in SQL, or the text by Arrow."""
        return str(self.expression) if self.sql is None else self.sql


def computed_type(name: str, computed: ComputedExpression, schema: pa.Schema) -> tuple[pa.DataType, list[str]]:
    """Return the type of an output column, and the columns of the schema that it reads.

    Raises QueryError for an expression that does not fit the schema.
    """
    columns = f"the columns are {', '.join(schema.names)}"
    try:
        if computed.columns is None:
            read = [schema.names[k] for k in columns_read(computed.expression, schema)]
        else:
            read = [column for column in schema.names if column in computed.columns]
        read_schema = pa.schema([schema.field(column) for column in read])
        kind = expression_type(computed.expression, read_schema.append(pa.field(_COUNT, pa.bool_())))
    except FAILURES as error:
        fault = str(error).splitlines()[0]
        raise QueryError(
            f"select: output column {name!r}, {computed.title}, does not fit: {fault}; {columns}"
        ) from error
    return kind, read


def _table(names: Sequence[str], columns: Sequence[Column], count: int) -> pa.Table:
    """Return a table of columns. A table without columns has no rows, so the returned table has one column more."""
    return pa.Table.from_arrays([*columns, pa.nulls(count, pa.bool_())], names=[*names, _COUNT])


def _evaluated(chosen: Mapping[str, ComputedExpression], rows: pa.Table) -> list[pa.ChunkedArray]:
    """Return the values of expressions on rows. Raises an error of Arrow."""
    return list(project({name: computed.expression for name, computed in chosen.items()}, rows).columns)


def compute(
    chosen: Mapping[str, ComputedExpression], columns: Mapping[str, Column], count: int
) -> tuple[dict[str, Column], Faults]:
    """Return output columns by name, given the columns that they read, of `count` rows each; and the rows that fail.

    Rows that fail are left out of the columns.
    """
    rows = _table(list(columns), list(columns.values()), count)
    try:
        return dict(zip(chosen, _evaluated(chosen, rows), strict=True)), {}
    except FAILURES:
        # Only a separate evaluation of each expression shows which expression fails.
        faults: Faults = {}
        for name, computed in chosen.items():
            failing = reasons(lambda part, name=name, computed=computed: _evaluated({name: computed}, part), rows)  # type: ignore[misc]
            for row, reason in failing.items():
                faults.setdefault(row, Fault("select", f"{computed.title} AS {name}", reason))
        if not faults:
            raise
    kept = others(faults, count)
    rest = _table(list(columns), [taken(column, kept) for column in columns.values()], len(kept))
    return dict(zip(chosen, _evaluated(chosen, rest), strict=True)), dict(sorted(faults.items()))
