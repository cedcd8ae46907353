"""The argument `as_of` of a query: tables whose versions rows get, by event time or when they arrive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, NamedTuple, get_args

import pyarrow as pa

from eddy.expressions.derived import Derived, given_columns
from eddy.expressions.parser import column_place
from eddy.expressions.written import parse_predicates
from eddy.query.arguments import listed, predicate_texts
from eddy.streams.event_time import ticks
from eddy.streams.key_types import unified
from eddy.streams.late_options import checked_span
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from eddy.streams.versioned_table import VersionedTable
from stairs.errors import QueryError

AsOfHow = Literal["inner", "left"]
Direction = Literal["backward", "forward", "nearest"]


@dataclass(frozen=True, eq=False)
class AsOf:
    """A table of which each row of a query gets the version at one of its event times, or at its arrival.

    table      a `VersionedTable`, for the version at an event time; or a `Table`, for the row of its key when the last
               component of a row arrives. Changes of a `Table` that come later do not change the row
    on         equalities of each column of its key with a column of the other streams
    at         the event time for which a version is wanted, "stream.column": the time column of a stream of the query.
               None = that of the only stream, or the table is a `Table`
    how        "inner": rows without a version are left out. "left": they have nulls in the columns of the table
    direction  "backward": the version that is valid at that time. "forward": the first version that begins then or
               later. "nearest": the one of both whose begin is nearer, and the valid one if they are equally near
    tolerance  the greatest distance between that time and the begin of the version: a timedelta, or ticks of integer
               event times; None = any. "forward" and "nearest" need it, because a row waits as long for a version

    Raises QueryError for arguments that do not fit.

    >>> from eddy import Query
    >>> bids = Stream("bid", pa.schema([("cur", pa.string()), ("t", pa.int64())]), time="t")
    >>> rates = VersionedTable("rate", pa.schema([("cur", pa.string()), ("t", pa.int64())]), key="cur", time="t")
    >>> Query([bids], as_of=[AsOf(rates, ["bid.cur = rate.cur"])]).output_schema.names
    ['bid.cur', 'bid.t', 'rate.cur', 'rate.t']
    """

    table: VersionedTable | Table
    on: Sequence[str]
    at: str | None = None
    how: AsOfHow = "inner"
    direction: Direction = "backward"
    tolerance: int | timedelta | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.table, VersionedTable | Table):
            raise QueryError(f"as_of: the table of an AsOf is an eddy.VersionedTable or eddy.Table, not {self.table!r}")
        object.__setattr__(self, "on", predicate_texts(self.on))
        what = f"as-of join with {self.table.name}"
        for name, value, known in (("how", self.how, AsOfHow), ("direction", self.direction, Direction)):
            if value not in get_args(known):
                raise QueryError(f"{what}: {name} is one of {', '.join(map(repr, get_args(known)))}, not {value!r}")
        if isinstance(self.table, Table):
            if self.table.keys != self.table.shown_keys:
                raise QueryError(
                    f"{what}: the key of a table that has the answer of a query may be null, and rows cannot look it up"
                    " yet; join it in `on`"
                )
            given = {"at": self.at, "tolerance": self.tolerance, "direction": self.direction}
            for option, chosen in given.items():
                if chosen not in (None, "backward"):
                    raise QueryError(
                        f"{what}: {option}={chosen!r} goes by event time, which the changes of a Table do not have;"
                        " leave it out for the row at the arrival, or make the table a VersionedTable"
                    )
        if self.tolerance is not None:
            object.__setattr__(self, "tolerance", checked_span(self.tolerance, f"{what}: tolerance"))
        elif self.direction != "backward":
            raise QueryError(
                f"{what}: direction={self.direction!r} needs a tolerance: without one, a row might wait for a later"
                " version without end"
            )

    @property
    def default_time(self) -> str:
        """The meaning of `at=None`, as text."""
        return "the arrival" if isinstance(self.table, Table) else "the event time"


class ProbedKey(NamedTuple):
    """A column of the key of a versioned table, and what it equals.

    stream   the position of the other stream in the query
    column   its column, given or computed
    key      the column of the table
    kind     the type in which both are compared
    """

    stream: int
    column: str
    key: str
    kind: pa.DataType


class AsOfJoin(NamedTuple):
    """An as-of join of a query, by the positions of its streams.

    table      the position of the table
    at         the position of the stream whose event time counts; None = the arrival of a row counts
    keys       the key, column by column of `VersionedTable.keys`
    left       whether rows without a version stay
    direction  as in `AsOf`
    tolerance  in ticks, None = any
    """

    table: int
    at: int | None
    keys: tuple[ProbedKey, ...]
    left: bool
    direction: Direction
    tolerance: int | None

    @property
    def ahead(self) -> int:
        """How much later than the time of a row its version may begin, in ticks."""
        return 0 if self.direction == "backward" or self.tolerance is None else self.tolerance

    def probing(self) -> Mapping[int, list[str]]:
        """Return the columns that the key is made of, by the position of their stream."""
        columns: dict[int, list[str]] = {}
        for key in self.keys:
            columns.setdefault(key.stream, []).extend(given_columns([key.column]))
        return columns


def checked_as_of(as_of: Any) -> tuple[AsOf, ...]:
    """Return as-of joins as a tuple. Raises QueryError for a value that is no list of them."""
    joins = tuple(listed(as_of, "as_of", "eddy.AsOf objects"))
    for join in joins:
        if not isinstance(join, AsOf):
            raise QueryError(f"as_of must be a list of eddy.AsOf objects, not {join!r}")
    return joins


def as_of_join(
    as_of: AsOf, shown: Sequence[Stream], index: Callable[[str], int], time_type: pa.DataType | None, table: int
) -> AsOfJoin:
    """Return an as-of join by positions.

    shown   the streams whose columns rows have, without versioned tables
    index   returns the position of a stream by its name
    table   the position of the versioned table

    Raises QueryError for a key or time that does not fit.
    """
    what = f"as-of join with {as_of.table.name}"
    at = None if isinstance(as_of.table, Table) else index(_timed(as_of, shown, what).name)
    parsed = parse_predicates(as_of.on, [*shown, as_of.table])
    if parsed.comparisons or parsed.conditions:
        raise QueryError(
            f"{what}: on has equalities with the key {', '.join(as_of.table.keys)} only; put other conditions in where="
        )
    probed_keys: dict[str, ProbedKey] = {}
    for pair in parsed.equalities:
        key_columns = [column for name, column in pair if name == as_of.table.name]
        others = [place for place in pair if place[0] != as_of.table.name]
        if len(key_columns) != 1 or key_columns[0] not in as_of.table.keys or isinstance(key_columns[0], Derived):
            raise QueryError(
                f"{what}: {' = '.join('.'.join(place) for place in pair)} is no equality of a key column of the table"
                f" with a column of another stream; the key is {', '.join(as_of.table.keys)}"
            )
        ((name, column),) = others
        stream = next((stream for stream in shown if stream.name == name), None)
        if stream is None:
            raise QueryError(f"{what}: rows have no columns of {name!r}; the streams are {_names(shown)}")
        if key_columns[0] in probed_keys:
            raise QueryError(
                f"{what}: key column {key_columns[0]!r} equals two columns; keep one, and compare them in where="
            )
        type_of = column.kind if isinstance(column, Derived) else stream.type_of(column)
        kind = unified([type_of, as_of.table.type_of(key_columns[0])])
        if kind is None:
            raise QueryError(
                f"{what}: {name}.{column} is {type_of} and {as_of.table.name}.{key_columns[0]}"
                f" is {as_of.table.type_of(key_columns[0])},"
                " which are never equal"
            )
        probed_keys[key_columns[0]] = ProbedKey(index(name), column, key_columns[0], kind)
    lacking = [key for key in as_of.table.keys if key not in probed_keys]
    if lacking:
        raise QueryError(f"{what}: on has no equality with key column {lacking[0]!r}, so several versions would fit")
    tolerance = None
    if as_of.tolerance is not None:
        assert time_type is not None
        tolerance = ticks(as_of.tolerance, time_type, None, f"{what}: tolerance")
    keys = tuple(probed_keys[key] for key in as_of.table.keys)
    return AsOfJoin(table, at, keys, as_of.how == "left", as_of.direction, tolerance)


def _timed(as_of: AsOf, shown: Sequence[Stream], what: str) -> Stream:
    """Return the stream whose event time counts."""
    if as_of.at is None:
        if len(shown) != 1:
            raise QueryError(f"{what}: name the event time with at='stream.column'; the streams are {_names(shown)}")
        (stream,) = shown
    else:
        place = column_place(as_of.at) if isinstance(as_of.at, str) else None
        matches = [stream for stream in shown if place is not None and place == (stream.name, stream.time)]
        if not matches:
            times = [f"{stream.name}.{stream.time}" for stream in shown if stream.time is not None]
            raise QueryError(
                f"{what}: at={as_of.at!r} is not the time column of a stream whose columns rows have; these are"
                f" {', '.join(times) or 'none: name them with time=…'}"
            )
        (stream,) = matches
    if stream.time is None:
        raise QueryError(f"{what}: stream {stream.name} has no event times; name its time column with time=…")
    return stream


def _names(streams: Sequence[Stream]) -> str:
    return ", ".join(stream.name for stream in streams)
