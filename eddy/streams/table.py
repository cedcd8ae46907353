"""A table of a query: an input whose rows have a key, and are replaced and deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from eddy.streams.key_types import unified
from eddy.streams.stream import Stream
from eddy.streams.windows import Unbounded
from stairs.errors import QueryError

Ops = Literal["column", "debezium"]
"""How the changes of a table say what they do."""
OP_COLUMN = "op"
"""The column that says it."""


@dataclass(frozen=True, eq=False)
class Table(Stream):
    """An input of a join whose rows change: each change replaces, or deletes, the row with the same key.

    Results follow the rows: those with the row before end, and those with the row after begin. So they are a changelog
    (`Runtime(output="changelog")`). docs/guide/semantics.md defines them.

    key   the column, or the columns, that identify a row; their values are never null
    ops   None = each row that is pushed replaces the row with its key. "column" = rows that are pushed have one more
          column, "op": "+I", "+U", "c", "r" and "u" replace the row; "-D" and "d" delete it, by its key alone; "-U" is
          left out, because the row after it says the same. "debezium" = rows that are pushed are envelopes of
          Debezium: "op", "after" and, as far as there are some, "before" and the "key" of the message
    filter  a change whose row the filter rejects deletes the row with its key

    The other parameters are those of a stream; a table has no window, no time and no late rows.

    >>> import pyarrow as pa
    >>> Table("customer", pa.schema([("id", pa.int64()), ("city", pa.string())]), key="id").keys
    ('id',)
    """

    noun: ClassVar[str] = "table"

    key: str | Sequence[str] = ()
    ops: Ops | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        what = self.place
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
        # A set has another order in each process, and an iterator is read once.
        if not isinstance(self.key, Sequence):
            raise QueryError(f"{what}: key is a column or a list of columns, not {self.key!r}")
        if not isinstance(self.key, str):
            object.__setattr__(self, "key", tuple(self.key))
        if not self.keys:
            raise QueryError(f"{what}: name the columns that identify a row with key=…")
        for column in self.keys:
            if not isinstance(column, str):
                raise QueryError(f"{what}: key is a column or a list of columns, not {self.key!r}")
            if unified([self.type_of(column)]) is None:
                raise QueryError(f"{what}: column {column!r} is {self.type_of(column)}, which cannot be a key")
        if len(set(self.keys)) < len(self.keys):
            raise QueryError(f"{what}: a column occurs twice in the key {list(self.keys)}")
        if self.ops not in (None, *get_args(Ops)):
            raise QueryError(f"{what}: ops is None or one of {', '.join(map(repr, get_args(Ops)))}, not {self.ops!r}")
        if self.ops == "column" and OP_COLUMN in self.schema.names:
            raise QueryError(f"{what}: with ops={self.ops!r}, column {OP_COLUMN!r} says what a change does; rename it")

    @property
    def extent(self) -> str:
        """Which of its rows take part in a join, as text."""
        return f"TABLE BY {', '.join(self.keys)}"

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the key."""
        return (self.key,) if isinstance(self.key, str) else tuple(self.key)
