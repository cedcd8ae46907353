"""A table of a query: an input whose rows have a key, and are replaced and deleted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa

from eddy.streams.event_time import ticks, unified_time
from eddy.streams.key_columns import HIDDEN, with_key
from eddy.streams.keyed import OP_COLUMN, KeyedInput
from eddy.streams.late_options import checked_span
from eddy.streams.stream import QuerySource
from eddy.streams.windows import Unbounded
from stairs.errors import QueryError


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
    version  the column that orders the changes of a key, of integers, timestamps or dates: a change that is older than
          the newest change of its key is *stale*, does not arrive, and goes to the side output of late rows. With
          ops="debezium", the name of a number in the `source` of an envelope ("lsn"; "pos", with the `file` of it), or
          in the envelope itself ("ts_ms"). None = changes count in the order in which they arrive
    tombstones  how far the newest version of the table is ahead when the version of a deleted key is forgotten: a
          timedelta, or a number of a version that is one; None = never
    late  treatment of stale changes, as of late rows (`Query`)

    The other parameters are those of a stream; a table has no window and no time. `source` is that query.

    >>> import pyarrow as pa
    >>> Table("customer", pa.schema([("id", pa.int64()), ("city", pa.string())]), key="id").keys
    ('id',)
    """

    version: str | None = None
    tombstones: int | timedelta | None = None

    def __post_init__(self) -> None:
        what = self.place
        if isinstance(self.schema, QuerySource):
            self._derive(self.schema, what)
        super().__post_init__()
        for name, remedy in (
            ("time", "changes count in the order in which they arrive"),
            ("late", "without version=…, no change is stale"),
            ("lateness", "no change is late"),
        ):
            if getattr(self, name) is not None and not (name == "late" and self.version is not None):
                raise QueryError(f"{what}: leave {name} out: {remedy}")
        self._check_version(what)
        if self.window is not None and not isinstance(self.window, Unbounded):
            raise QueryError(
                f"{what}: leave the window out: a row stays until a change replaces or deletes it. For rows that leave"
                " with time, use the newest row of each key of a windowed stream: Table(name, Query([stream],"
                " top=Top(1, by=key, order='… desc')))"
            )
        # A frozen class can set a field in this way only.
        object.__setattr__(self, "window", Unbounded())

    def _derive(self, source: QuerySource, what: str) -> None:
        """Take the columns and the key from a query."""
        for name in ("key", "ops", "version"):
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

    def _check_version(self, what: str) -> None:
        """Raise QueryError unless versions have an order, and tombstones a span in it."""
        if self.version is None:
            if self.tombstones is not None:
                raise QueryError(f"{what}: leave tombstones out: only versions, version=…, outlive a delete")
            return
        if not isinstance(self.version, str):
            raise QueryError(f"{what}: version is the name of a column, not {self.version!r}")
        if self.version in self.keys:
            raise QueryError(f"{what}: column {self.version!r} is the version of a row, and no part of its key")
        if self.version_type is None:
            raise QueryError(
                f"{what}: column {self.version!r} is {self.type_of(self.version)}; a version is an integer, a timestamp"
                " or a date"
            )
        if self.tombstones is not None:
            checked_span(self.tombstones, f"{what}: tombstones")
            _ = self.tombstone_ticks

    @property
    def version_type(self) -> pa.DataType | None:
        """The type in which versions are compared; None for a column whose type has no place for them."""
        if self.version is None:
            return None
        return pa.int64() if self.ops == "debezium" else unified_time([self.type_of(self.version)])

    @property
    def tombstone_ticks(self) -> int | None:
        """The span of `tombstones` in ticks of versions, None = without end. Raises QueryError if it is no span."""
        kind = self.version_type
        if self.tombstones is None or kind is None:
            return None
        return ticks(self.tombstones, kind, None, f"{self.place}: tombstones")

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
