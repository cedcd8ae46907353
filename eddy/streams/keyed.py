"""An input whose rows have a key: what a table and a versioned table have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import pyarrow as pa

from eddy.streams.key_types import unified
from eddy.streams.stream import Stream
from stairs.errors import QueryError

Ops = Literal["column", "debezium"]
"""How the changes of a table say what they do."""
OP_COLUMN = "op"
"""The column that says it."""


@dataclass(frozen=True, eq=False)
class KeyedInput(Stream):
    """A stream of changes of rows, each of which has a key; see `Table` and `VersionedTable`.

    Raises QueryError for a key or `ops` that does not fit the schema.
    """

    noun: ClassVar[str] = "table"

    key: str | Sequence[str] = ()
    ops: Ops | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        what = self.place
        # A set has another order in each process, and an iterator is read once.
        if not isinstance(self.key, Sequence):
            raise QueryError(f"{what}: key is a column or a list of columns, not {self.key!r}")
        if not isinstance(self.key, str):
            # A frozen class can set a field in this way only.
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
    def keys(self) -> tuple[str, ...]:
        """The columns of the key."""
        return (self.key,) if isinstance(self.key, str) else tuple(self.key)

    @property
    def late_schema(self) -> pa.Schema:
        """The columns of its late rows: with `ops`, also what each of them says."""
        if self.ops is None or OP_COLUMN in self.schema.names:
            return self.schema
        return self.schema.append(pa.field(OP_COLUMN, pa.string(), False))
