"""A table of a query: an input whose rows have a key, and are replaced and deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from eddy.streams.key_columns import HIDDEN, with_key
from eddy.streams.keyed import OP_COLUMN, KeyedInput
from eddy.streams.windows import Unbounded
from stairs.errors import QueryError


@runtime_checkable
class TableSource(Protocol):
    """A query whose answer is the contents of a table.

    output_schema   its columns
    """

    output_schema: pa.Schema

    def as_table(self) -> tuple[TableSource, Sequence[str]]:
        """Return the query with the columns that identify a row, hidden ones if they are not selected, and their names.

        There are none if there is one row at most. Raises QueryError for a query whose rows have no key.
        """


@dataclass(frozen=True, eq=False)
class Table(KeyedInput):
    """An input of a join whose rows change: each change replaces, or deletes, the row with the same key.

    Results follow the rows: those with the row before end, and those with the row after begin. So they are a changelog
    (`Runtime(output="changelog")`). docs/guide/semantics.md defines them.

    schema  the columns; or a query whose answer the table has: of tables, of groups or of `top`. Its rows come with the
          pushes of the streams that this query reads, and its key follows from the query
    key   the column, or the columns, that identify a row; their values are never null
    ops   None = each row that is pushed replaces the row with its key. "column" = rows that are pushed have one more
          column, "op": "+I", "+U", "c", "r" and "u" replace the row; "-D" and "d" delete it, by its key alone; "-U" is
          left out, because the row after it says the same. "debezium" = rows that are pushed are envelopes of
          Debezium: "op", "after" and, as far as there are some, "before" and the "key" of the message
    filter  a change whose row the filter rejects deletes the row with its key

    The other parameters are those of a stream; a table has no window, no time and no late rows. `source` is that query.

    >>> import pyarrow as pa
    >>> Table("customer", pa.schema([("id", pa.int64()), ("city", pa.string())]), key="id").keys
    ('id',)
    """

    source: TableSource | None = None

    def __post_init__(self) -> None:
        what = self.place
        if isinstance(self.schema, TableSource):
            self._derive(self.schema, what)
        super().__post_init__()
        for name, remedy in (
            ("time", "changes count in the order in which they arrive"),
            ("late", "no change is late"),
            ("lateness", "no change is late"),
        ):
            if getattr(self, name) is not None:
                raise QueryError(f"{what}: leave {name} out: {remedy}")
        if self.window is not None and not isinstance(self.window, Unbounded):
            raise QueryError(f"{what}: leave the window out: a row stays until a change replaces or deletes it")
        # A frozen class can set a field in this way only.
        object.__setattr__(self, "window", Unbounded())

    def _derive(self, source: TableSource, what: str) -> None:
        """Take the columns and the key from a query."""
        for name in ("key", "ops"):
            if getattr(self, name):
                raise QueryError(f"{what}: leave {name} out: it follows from the query")
        source, names = source.as_table()
        if OP_COLUMN in source.output_schema.names:
            raise QueryError(
                f"{what}: no output column of its query can be named {OP_COLUMN!r}; select it as another one"
            )
        schema, key = with_key(source.output_schema, names)
        for name, value in {"source": source, "schema": schema, "key": key, "ops": "column"}.items():
            object.__setattr__(self, name, value)

    @property
    def shown_keys(self) -> tuple[str, ...]:
        """The columns that identify a row, nulls and NaN included: without the hidden columns for these."""
        return self.keys if self.source is None else tuple(self.source.as_table()[1])

    @property
    def extent(self) -> str:
        """Which of its rows take part in a join, as text."""
        if self.source is not None:
            return f"ANSWER BY {', '.join(self.shown_keys).replace(HIDDEN, '') or 'NOTHING'}"
        return f"TABLE BY {', '.join(self.keys)}"
