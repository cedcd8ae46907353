"""A stream of a query: its name, Arrow schema, window, event time and filter."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar, Protocol, Self, runtime_checkable

import pyarrow as pa

from eddy.filters.conditions import Filter, Predicate, conditions
from eddy.streams.key_columns import hidden
from eddy.streams.late_options import Late, check_late, checked_span
from eddy.streams.schemas import schema_of
from eddy.streams.windows import Range, Rows, Unbounded, Window
from stairs.errors import QueryError
from stairs.nearest import nearest, no_column
from stairs.plain_types import unfit

PRESENCE = "\0present"
"""The name of the pseudo-column that states whether a result has a component of a stream."""


def present(stream: str) -> str:
    """Return the name under which expressions read whether a result has a component of a stream."""
    return f"PRESENT({stream})"


def readable_name(stream: str, column: str) -> str:
    """Return the name under which expressions read a column of a result."""
    return present(stream) if column == PRESENCE else f"{stream}.{column}"


@runtime_checkable
class QuerySource(Protocol):
    """A query whose rows are those of an input.

    output_schema   its columns
    """

    output_schema: pa.Schema

    def as_stream(self) -> QuerySource:
        """Return the query. Raises QueryError unless none of the rows that it gives is ever taken back."""

    def as_table(self) -> tuple[QuerySource, Sequence[str]]:
        """Return the query with the columns that identify a row, hidden ones if they are not selected, and their names.

        There are none if there is one row at most. Raises QueryError for a query whose rows have no key.
        """


@dataclass(frozen=True, eq=False)
class Stream:
    """One input of a join.

    name    unique in the query; a query may use the same source under several names
    schema  the columns, with their types: a pyarrow.Schema, or what has or describes one: a frame of pandas, Polars or
            Spark, a relation of DuckDB, a dict from names to types (`eddy.streams.schemas.schema_of`). Or a query none
            of whose rows is ever taken back, such as that of windows of event time: the rows that it gives come with
            the pushes of the streams that it reads. The attribute is a pyarrow.Schema, and `source` the query
    window  the tuples that can still be part of a result: `Rows`, `Range` or `Unbounded`; None = as long as intervals
            between event times allow results (`Query`), `Unbounded` in a query without intervals
    time    the column of event times, None = no event times
    filter  condition on rows; a row for which it is false or null does not arrive: an Arrow expression, a function of a
            batch, a `Predicate`, or a list of these, which must all be true (docs/guide/filters.md)
    late    treatment of late rows (`Query`), None = that of the query
    lateness  span by which a row may be older than the newest row of this stream (`Query`): a timedelta, or ticks of
            integer event times; None = that of the query

    Raises QueryError for a schema, column, window, filter, `late` or lateness that does not fit.

    >>> Stream("R", pa.schema([("a", pa.int64()), ("t", pa.timestamp("us"))]), window=Rows(1000), time="t").name
    'R'
    """

    noun: ClassVar[str] = "stream"
    """The noun for such an input in errors."""

    name: str
    schema: pa.Schema
    window: Window | None = None
    time: str | None = None
    filter: Filter | None = None
    late: Late | None = None
    lateness: int | timedelta | None = None
    source: QuerySource | None = None
    conditions: tuple[Predicate, ...] = field(init=False, repr=False, default=())
    """The named conditions of `filter`."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise QueryError(f"the name of a {self.noun} must be a string that is not empty, not {self.name!r}")
        # A frozen class can set a field in this way only.
        if isinstance(self.schema, QuerySource):
            object.__setattr__(self, "source", self.schema.as_stream())
            object.__setattr__(self, "schema", self.schema.output_schema)
        object.__setattr__(self, "schema", schema_of(self.schema, f"{self.place}: "))
        doubled = sorted({name for name in self.schema.names if self.schema.names.count(name) > 1})
        if doubled or not self.schema.names:
            fault = f"two columns {doubled[0]!r}" if doubled else "no columns"
            raise QueryError(f"{self.place}: its schema has {fault}")
        if PRESENCE in self.schema.names:
            raise QueryError(f"{self.place}: no column can be named {PRESENCE!r}; rename it")
        for column in self.schema:
            why = unfit(column.type)
            if why is not None:
                raise QueryError(f"{self.place}: column {column.name!r} is {column.type}: {why}")
        if not isinstance(self.window, Rows | Range | Unbounded | None):
            raise QueryError(
                f"{self.place}: its window must be eddy.Rows(n), eddy.Range(d) or eddy.Unbounded(), not {self.window!r}"
            )
        if self.time is not None:
            self.type_of(self.time)
        elif isinstance(self.window, Range):
            raise QueryError(f"{self.place}: a RANGE window needs event times; name its time column with time=…")
        if self.late is not None:
            check_late(self.late, f"{self.place}: ")
        if self.lateness is not None:
            object.__setattr__(self, "lateness", checked_span(self.lateness, f"{self.place}: lateness"))
        object.__setattr__(self, "conditions", conditions(self.filter, self.schema, f"{self.place}: its filter"))

    def with_source(self, source: QuerySource) -> Self:
        """Return the input with another query in place of its own, which gives the same rows."""
        other = copy(self)
        object.__setattr__(other, "source", source)
        return other

    @property
    def place(self) -> str:
        """The noun and the name, with which errors begin: "stream R", "table T"."""
        return f"{self.noun} {self.name}"

    @property
    def filter_form(self) -> str:
        """How to write its filter, for advice."""
        return f"{type(self).__name__}(…, filter=…)"

    @property
    def extent(self) -> str:
        """Which of its rows take part in a join, as text."""
        return str(self.window)

    @property
    def late_schema(self) -> pa.Schema:
        """The columns of its late rows."""
        return self.schema

    def type_of(self, column: str) -> pa.DataType:
        """Return the type of a column. Raises QueryError for an unknown name."""
        if column not in self.schema.names:
            shown = [name for name in self.schema.names if not hidden(name)]
            raise QueryError(no_column(self.place, column, shown))
        return self.schema.field(column).type


def no_input(name: object, streams: Sequence[Stream]) -> str:
    """Return the error of a name that none of the inputs has."""
    names: dict[str, list[str]] = {}
    for stream in streams:
        names.setdefault(stream.noun, []).append(stream.name)
    near = nearest(name, (stream.name for stream in streams))
    known = ", the ".join(f"{noun}s are {', '.join(members)}" for noun, members in names.items())
    return f"there is no {' or '.join(names)} {name!r}{near}; the {known}"
