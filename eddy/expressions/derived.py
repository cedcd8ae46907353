"""Key columns that an expression computes from the columns of one stream, with Arrow."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eddy.filters.conditions import evaluated
from eddy.filters.faults import FAILURES, reasons
from stairs.errors import InputError


class Derived(str):
    """A computed column of a stream. As a string it is its name, which is its text and no name of a given column.

    expression  its value for each row, over the columns of the stream
    kind        its type
    columns     the columns that it reads
    shown       its text in SQL, with columns named stream.column
    """

    __slots__ = ("columns", "expression", "kind", "shown")

    expression: pc.Expression
    kind: pa.DataType
    columns: tuple[str, ...]
    shown: str

    def __new__(
        cls, name: str, expression: pc.Expression, kind: pa.DataType, columns: tuple[str, ...], shown: str
    ) -> Derived:
        """Return a computed column."""
        made = super().__new__(cls, name)
        made.expression, made.kind, made.columns, made.shown = expression, kind, columns, shown
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return str(self), self.expression, self.kind, self.columns, self.shown

    def of(self, batch: pa.RecordBatch, place: str) -> pa.Array:
        """Return its values on rows of the stream `place`. Raises InputError with a value for which it has none."""
        rows = pa.Table.from_batches([batch.select(list(self.columns))])
        try:
            column = evaluated(self.expression, rows)
        except FAILURES as error:
            raise self._refusal(rows, place) from error
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

    def _refusal(self, rows: pa.Table, place: str) -> InputError:
        """Return the error for rows of which the expression fails on one at least."""
        ((row, fault),) = reasons(partial(evaluated, self.expression), rows, most=1).items()
        values = ", ".join(f"{name} = {rows.column(name)[row].as_py()!r}" for name in self.columns)
        return InputError(
            f"{place}: the key {self} has no value where {values}: {fault}; keep such rows out with filter=…"
        )


def given_columns(component: Iterable[str]) -> Iterable[str]:
    """Yield the columns of a stream from which columns of a key are made: those themselves, or those that they read."""
    for name in component:
        if isinstance(name, Derived):
            yield from name.columns
        else:
            yield name


def column_of(batch: pa.RecordBatch, name: str, place: str) -> pa.Array:
    """Return a given or computed column of rows of the stream `place`."""
    return name.of(batch, place) if isinstance(name, Derived) else batch.column(name)
