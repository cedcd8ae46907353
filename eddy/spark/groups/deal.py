"""The results of a join dealt to the parts of the operator above it, so that one part has all results of a group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
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


def _keys(query: Query) -> list[int]:
    """Return the numbers of the group columns by which groups are dealt."""
    assert query.aggregation is not None
    names = [name for name, _ in query.aggregation.keys]
    if query.ranking is None:
        return list(range(len(names)))
    # The groups that are ranked together meet: `by` names outputs, which may be group columns.
    outputs = {name: name for name in names} if query.group_rows is None else query.group_rows.outputs
    by = (outputs.get(name) for name in query.ranking.by)
    return [names.index(name) for name in by if isinstance(name, str) and name in names]


def _values(query: Query) -> list[Value]:
    """Return the columns that are equal in all results of a group, none if all results have to meet."""
    if query.aggregation is None:
        assert query.ranking is not None
        names = without_top(query).output_schema.names
        return [partial(_column, name) for name in query.ranking.by if name in names]
    inputs = [query.aggregation.inputs[query.aggregation.keys[k][1]] for k in _keys(query)]
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
        self._keys = _keys(query) if query.aggregation is not None else []
        self._query = query
        self.parts = parts if self._values else 1

    def __str__(self) -> str:
        if not self._values:
            return "all results meet in one task"
        aggregation, ranking = self._query.aggregation, self._query.ranking
        if aggregation is not None:
            names = [aggregation.keys[k][0] for k in self._keys]
        else:
            assert ranking is not None
            names = list(ranking.by)
        return f"results are dealt to the tasks by {', '.join(names)}"

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
        yield from dealt(_hashes(columns), rows, self.parts)

    def groups(self, columns: Sequence[Column], n: int) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Yield (part, numbers of groups) for n groups, given their group columns."""
        if self.parts == 1:
            yield 0, np.arange(n)
            return
        numbers = pa.RecordBatch.from_arrays([pa.array(np.arange(n))], ["number"])
        parts: dict[int, list[npt.NDArray[np.int64]]] = defaultdict(list)
        for part, piece in dealt(_hashes([columns[k] for k in self._keys]), numbers, self.parts):
            parts[part].append(piece.column(0).to_numpy())
        for part, pieces in parts.items():
            yield part, np.concatenate(pieces)


def _hashes(columns: Sequence[Column]) -> npt.NDArray[np.uint64]:
    """Return a hash of each row of some columns, which is the same in each process and for each way to write a type."""
    arrays = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in columns]
    keys = pa.RecordBatch.from_arrays([to_plain(array) for array in arrays], [str(k) for k in range(len(arrays))])
    return row_hashes(keys)
