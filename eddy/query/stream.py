"""A stream of a query: its name, its Arrow schema, its window, its event time, its filter."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from eddy.filters.conditions import Filter, Predicate, conditions
from eddy.query.lateness import Late, check_late
from eddy.query.windows import Range, Rows, Unbounded, Window
from stairs.errors import QueryError
from stairs.plain_types import unfit


@dataclass(frozen=True, eq=False)
class Stream:
    """One input of a join.

    `filter` says which tuples the stream consists of: rows for which it is false or null never arrive. The same source
    may stand in a query under several names. A filter is an Arrow expression, a function of a batch, a `Predicate`, or
    a list of these, all of which must hold (docs/guide/filters.md). `late` says what becomes of rows that come too
    late; None = what the query says. Raises QueryError for a schema, column, filter or `late` that does not fit.

    >>> Stream("R", pa.schema([("a", pa.int64()), ("t", pa.timestamp("us"))]), window=Rows(1000), time="t").name
    'R'
    """

    name: str
    schema: pa.Schema
    window: Window = field(default_factory=Unbounded)
    time: str | None = None
    filter: Filter | None = None
    late: Late | None = None
    conditions: tuple[Predicate, ...] = field(init=False, repr=False, default=())
    """What `filter` says, one by one, named."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise QueryError(f"a stream is named by a string that is not empty, not by {self.name!r}")
        if not isinstance(self.schema, pa.Schema):
            raise QueryError(
                f"stream {self.name}: its schema is a pyarrow.Schema, not {type(self.schema).__name__}; build one with"
                " pyarrow.schema([(column, type), …])"
            )
        doubled = sorted({name for name in self.schema.names if self.schema.names.count(name) > 1})
        if doubled or not self.schema.names:
            fault = f"two columns {doubled[0]!r}" if doubled else "no columns"
            raise QueryError(f"stream {self.name}: its schema has {fault}")
        for one in self.schema:
            why = unfit(one.type)
            if why is not None:
                raise QueryError(f"stream {self.name}: column {one.name!r} is {one.type}: {why}")
        if not isinstance(self.window, Rows | Range | Unbounded):
            raise QueryError(
                f"stream {self.name}: its window is eddy.Rows(n), eddy.Range(d) or eddy.Unbounded(), not"
                f" {self.window!r}"
            )
        if self.time is not None:
            self.type_of(self.time)
        elif isinstance(self.window, Range):
            raise QueryError(
                f"stream {self.name}: a RANGE window needs event times; name the stream's time column with time=…"
            )
        if self.late is not None:
            check_late(self.late, f"stream {self.name}: ")
        # The way to set a field of a frozen class.
        object.__setattr__(self, "conditions", conditions(self.filter, self.schema, f"stream {self.name}: its filter"))

    def type_of(self, column: str) -> pa.DataType:
        """Return the type of a column. Raises QueryError when the stream has none of this name."""
        if column not in self.schema.names:
            raise QueryError(
                f"stream {self.name} has no column {column!r}; its columns are {', '.join(self.schema.names)}"
            )
        return self.schema.field(column).type
