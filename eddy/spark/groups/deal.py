"""The results of a join dealt to the parts of the operator above it, so that one part has all results of a group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from eddy.filters.conditions import evaluated
from eddy.filters.faults import FAILURES, reasons
from eddy.query.query import Query
from eddy.query.ungrouped import without_top
from eddy.spark.partitioning.fragments import row_hashes
from eddy.spark.partitioning.pieces import dealt
from stairs.plain_types import Column, taken, to_plain

Value = Callable[[pa.Table], Column]
"""Takes results; returns a column by whose values they are dealt."""


def _column(name: str, rows: pa.Table) -> Column:
    return rows.column(name)


def _values(query: Query) -> list[Value]:
    """Return the columns that are equal in all results of a group, none if all results have to meet."""
    ranking, aggregation = query.ranking, query.aggregation
    if aggregation is None:
        assert ranking is not None
        names = without_top(query).output_schema.names
        return [partial(_column, name) for name in ranking.by if name in names]
    keys = dict(aggregation.keys)
    if ranking is not None:
        # The groups that are ranked together meet: `by` names outputs, which may be group columns.
        outputs = {name: name for name in keys} if query.group_rows is None else query.group_rows.outputs
        by = (outputs.get(name) for name in ranking.by)
        keys = {name: keys[name] for name in by if isinstance(name, str) and name in keys}
    inputs = [aggregation.inputs[number] for number in keys.values()]
    return [
        partial(_column, argument.name) if argument.expression is None else partial(evaluated, argument.expression)
        for argument in inputs
    ]


class Deal:
    """The results of a join, dealt to parts by group.

    parts   their number; one if all results have to meet
    """

    def __init__(self, query: Query, parts: int) -> None:
        self._values = _values(query)
        self.parts = parts if self._values else 1

    def pieces(self, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield (part, results) in pieces. Results whose group cannot be computed go to part 0, where they fail."""
        if self.parts == 1:
            yield 0, rows
            return
        table = pa.Table.from_batches([rows])
        try:
            columns = [value(table) for value in self._values]
        except FAILURES:
            failing = sorted({row for value in self._values for row in reasons(value, table)})
            if not failing:
                raise
            yield 0, taken(rows, np.array(failing))
            rows = taken(rows, np.setdiff1d(np.arange(len(rows)), failing))
            table = pa.Table.from_batches([rows])
            columns = [value(table) for value in self._values]
        arrays = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in columns]
        keys = pa.RecordBatch.from_arrays([to_plain(array) for array in arrays], [str(k) for k in range(len(arrays))])
        yield from dealt(row_hashes(keys), rows, self.parts)
