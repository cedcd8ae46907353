"""The columns of groups that a query selects, and expressions over them: `Query(group_by=…, select=…)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eddy.expressions.computed import ComputedExpression, compute, computed_type
from eddy.expressions.select import computed_of_groups
from eddy.filters.faults import Faults, others
from stairs.errors import QueryError
from stairs.nearest import nearest
from stairs.plain_types import Column, taken


class GroupOutputs:
    """The output columns of a query with groups.

    outputs   by name a column of the groups, or an expression over them
    schema    the schema of the output
    """

    def __init__(self, select: Sequence[str] | Mapping[str, Any], groups: pa.Schema) -> None:
        if isinstance(select, str) or not isinstance(select, Sequence | Mapping):
            raise QueryError(f"select must be a list of columns or a mapping, not {type(select).__name__}")
        pairs = dict(select) if isinstance(select, Mapping) else {name: name for name in select}
        if not pairs:
            raise QueryError("select is empty; leave it out for all columns of the groups")
        self.outputs = {name: _output(name, output, groups) for name, output in pairs.items()}
        self._reads: dict[str, None] = {}
        fields = []
        for name, output in self.outputs.items():
            if isinstance(output, ComputedExpression):
                kind, read = computed_type(name, output, groups)
                fields.append(pa.field(name, kind))
                self._reads.update(dict.fromkeys(read))
            else:
                fields.append(groups.field(output).with_name(name))
        self.schema = pa.schema(fields)

    def of(self, table: pa.Table) -> tuple[pa.Table, Faults]:
        """Return the output of rows of groups, and the rows on which an expression fails, which have no output."""
        computed = {name: output for name, output in self.outputs.items() if isinstance(output, ComputedExpression)}
        if table.num_rows == 0:
            # Arrow cannot make empty arrays of every type.
            return pa.Table.from_batches([], schema=self.schema), {}
        values: dict[str, Column] = {}
        faults: Faults = {}
        if computed:
            values, faults = compute(computed, {name: table.column(name) for name in self._reads}, table.num_rows)
        plain = {
            name: table.column(output)
            for name, output in self.outputs.items()
            if not isinstance(output, ComputedExpression)
        }
        if faults:
            kept = others(faults, table.num_rows)
            if not len(kept):
                return pa.Table.from_batches([], schema=self.schema), faults
            plain = {name: taken(column, kept) for name, column in plain.items()}
        columns = [values[name] if name in values else plain[name] for name in self.outputs]
        return pa.Table.from_arrays(columns, schema=self.schema), faults


def _output(name: object, output: Any, groups: pa.Schema) -> str | ComputedExpression:
    if not isinstance(name, str):
        raise QueryError(f"select: the name of an output column must be a string, not {name!r}")
    if isinstance(output, ComputedExpression):
        return output
    if isinstance(output, pc.Expression):
        return ComputedExpression(output)
    if output in groups.names:
        return str(output)
    if isinstance(output, str) and output != name:
        return computed_of_groups(output, groups)
    raise QueryError(
        f"select: there is no column {output!r}{nearest(output, groups.names)}; the columns of the groups are"
        f" {', '.join(groups.names)}"
    )
