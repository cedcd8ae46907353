"""A versioned table of a query: its rows are valid from an event time on, until the next row of their key."""

from __future__ import annotations

from dataclasses import dataclass

from eddy.streams.keyed import KeyedInput
from eddy.streams.windows import Unbounded
from stairs.errors import QueryError


@dataclass(frozen=True, eq=False)
class VersionedTable(KeyedInput):
    """An input of as-of joins (`AsOf`): prices, exchange rates, addresses, each valid from its event time on.

    A row is a *version* of its key. It is valid from its event time until that of the next version of its key; of
    versions with one event time, the last one to arrive is valid. docs/guide/semantics.md defines the results.

    key   the column, or the columns, that identify what has versions; their values are never null
    time  the column of event times, from which on a version is valid
    ops   None = each row that is pushed is a version. "column" = rows that are pushed have one more column, "op": "+I",
          "+U", "c", "r" and "u" are versions; "-D" and "d" say that the key has no version from their event time on;
          "-U" is left out
    filter  a row that the filter rejects says that its key has no version from its event time on

    The other parameters are those of a stream; a versioned table has no window: a version stays as long as a row may
    need it.

    >>> import pyarrow as pa
    >>> schema = pa.schema([("currency", pa.string()), ("at", pa.timestamp("s")), ("rate", pa.float64())])
    >>> VersionedTable("rates", schema, key="currency", time="at").keys
    ('currency',)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        what = self.place
        if self.time is None:
            raise QueryError(f"{what}: name the column with time=… from whose event time on a version is valid")
        if self.time in self.keys:
            raise QueryError(f"{what}: column {self.time!r} is the time of a version, and no part of its key")
        if self.ops == "debezium":
            raise QueryError(
                f"{what}: ops='debezium' says nothing about the event time of a delete; push rows with ops='column',"
                " or use a Table for changes that count in the order in which they arrive"
            )
        if self.window is not None and not isinstance(self.window, Unbounded):
            raise QueryError(f"{what}: leave the window out: a version stays as long as a row may need it")
        # A frozen class can set a field in this way only.
        object.__setattr__(self, "window", Unbounded())

    @property
    def extent(self) -> str:
        """Which of its rows take part in a join, as text."""
        return f"VERSIONS BY {', '.join(self.keys)}"
