"""The aggregation of a query: group columns, aggregate functions, `having`, windows of event time; checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from eddy.expressions.select import ResultColumns
from eddy.filters.conditions import (
    Filter,
    Predicate,
    columns_read,
    conditions,
    expression_type,
)
from eddy.filters.faults import FAILURES
from eddy.query.aggregate_functions import FUNCTIONS, AggregateFunction, is_value
from eddy.query.group_windows import GroupWindow, Hopping, Session, Tumbling
from eddy.streams.stream import PRESENCE, Stream, readable_name
from eddy.streams.table import Table
from stairs.errors import QueryError
from stairs.graph import JoinGraph

Argument: TypeAlias = str | pc.Expression
"""A column "stream.column", or an expression over columns of such names."""
Place = tuple[str, str]
"""(stream, column)."""
MOST_WINDOWS = 10_000
"""Maximal number of hopping windows of a result: each window has a row for the result when it ends."""


class JoinedStreams(ResultColumns, Protocol):
    """The part of a query (`eddy.query.query.Query`) that is made before its aggregates, and that they read."""

    streams: tuple[Stream, ...]
    graph: JoinGraph
    time_type: pa.DataType | None

    @property
    def shown(self) -> tuple[Stream, ...]:
        """The streams whose columns results can have."""

    def index(self, name: str) -> int:
        """Return the position of a stream. Raises QueryError for an unknown name."""

    def readable(self) -> tuple[pa.Schema, list[Place]]:
        """Return what expressions over results can read, and the place of each column."""

    def slack(self, time: int | None) -> int | None:
        """Return by how many ticks the event time of a result to come may be below the watermark; None = by any."""

    def ticks(self, span: int | timedelta, column_type: pa.DataType | None, what: str) -> int:
        """Return a span in ticks of the common time type."""


@dataclass(frozen=True, eq=False)
class Aggregate:
    """An aggregate function with its arguments; `eddy.agg` makes them.

    function  its name in `FUNCTIONS` (`eddy.query.aggregate_functions`)
    column    its argument; None only for count()
    by        the order of the results for `first` and `last`; None = event time
    """

    function: str
    column: Argument | None = None
    by: Argument | None = None

    def __repr__(self) -> str:
        by = "" if self.by is None else f" by {self.by}"
        return f"{self.function}({'' if self.column is None else self.column}{by})"


@dataclass(frozen=True)
class AggregateInput:
    """An argument of a group column or function: its name, its type, and the expression that computes it, or None."""

    name: str
    kind: pa.DataType
    expression: pc.Expression | None = None


@dataclass(frozen=True)
class ComputedAggregate:
    """An aggregate of a query.

    name        name of the output column
    function    name of the function in FUNCTIONS
    column, by  its arguments, as numbers of inputs; None = none, or the event time for `by`
    kind        type of the output column
    """

    name: str
    function: str
    column: int | None
    by: int | None
    kind: pa.DataType

    @property
    def rule(self) -> AggregateFunction:
        """The row of the function in FUNCTIONS."""
        return FUNCTIONS[self.function]


@dataclass(frozen=True)
class WindowTicks:
    """A window of groups in ticks of the common time type; a tumbling window is a hopping one.

    size, hop   size and hop of hopping windows, 0 for sessions
    gap         gap of sessions, else 0
    time        position of the stream whose event time counts; None = the greatest of all components
    slack       later results are at most this much older than the watermark; None = they may have any event time
    """

    size: int
    hop: int
    gap: int
    time: int | None
    slack: int | None


class Aggregation:
    """The aggregation of a query, checked.

    inputs   the arguments, computed from the columns "stream.column" of results
    keys     the group columns: names of output columns, and numbers of inputs
    functions  the aggregates
    times    the event times that determine the time of a result: "stream.column"; empty without event times
    window   None = groups over all results
    places   the (stream, column) pairs that all of these read
    """

    def __init__(
        self,
        query: JoinedStreams,
        group_by: Sequence[str] | Mapping[str, Argument],
        aggregates: Mapping[str, Aggregate],
        having: Filter | None,
        group_window: GroupWindow | None,
    ) -> None:
        self._query = query
        self._rows, pairs = query.readable()
        self._pairs = dict(zip(self._rows.names, pairs, strict=True))
        self.inputs: list[AggregateInput] = []
        self._read: dict[Place, None] = {}
        self.group_window = group_window
        self.times: tuple[str, ...] = ()
        self.keys = tuple(
            (name, self._input(argument, f"group_by, column {name!r}", True))
            for name, argument in _group_columns(group_by).items()
        )
        self.functions = tuple(self._function(name, aggregate) for name, aggregate in _functions(aggregates).items())
        self._texts = [f"{name} = {aggregate!r}" for name, aggregate in aggregates.items()]
        self.window = None if group_window is None else self._window(group_window)
        if self.window is not None or any(function.by is None and function.rule.ordered for function in self.functions):
            self._take_times()
        self.places = tuple(self._read)
        self.schema = self._schema()
        """The schema of the rows of groups."""
        self.having = having
        self.conditions: tuple[Predicate, ...] = conditions(having, self.schema, "having", declared=True)

    def __str__(self) -> str:
        parts = [f"group by {', '.join(name for name, _ in self.keys)}"] if self.keys else []
        parts += [", ".join(self._texts)] if self._texts else []
        if self.group_window is not None:
            sizes = (getattr(self.group_window, name, None) for name in ("size", "hop", "gap"))
            shown = ", ".join(str(size) for size in sizes if size is not None)
            parts.append(f"{type(self.group_window).__name__}({shown})")
        return "; ".join(parts)

    # Arguments

    def _input(self, argument: object, what: str, value: bool) -> int:
        """Return the number of an argument among the inputs; value: it must be of a type that can be a key."""
        if isinstance(argument, pc.Expression):
            try:
                kind = expression_type(argument, self._rows)
            except FAILURES as error:
                raise QueryError(
                    f"{what} does not fit: {str(error).splitlines()[0]}; the columns are {', '.join(self._rows.names)}"
                ) from error
            for k in columns_read(argument, self._rows):
                self._read[self._pairs[self._rows.names[k]]] = None
            aggregate_input = AggregateInput(f"\0{len(self.inputs)}", kind, argument)
        else:
            place = self._query.place_of(argument, what)
            self._read[place] = None
            name = readable_name(*place)
            aggregate_input = AggregateInput(name, self._rows.field(name).type)
        if value and not is_value(aggregate_input.kind):
            raise QueryError(
                f"{what} is {aggregate_input.kind}, whose values cannot be compared; use a column that can be a key"
            )
        if aggregate_input not in self.inputs:
            self.inputs.append(aggregate_input)
        return self.inputs.index(aggregate_input)

    def _function(self, name: str, aggregate: object) -> ComputedAggregate:
        what = f"aggregate {name!r}"
        if not isinstance(aggregate, Aggregate):
            raise QueryError(
                f"{what} must be a function of eddy.agg, such as agg.sum('stream.column'), not {aggregate!r}"
            )
        if aggregate.function not in FUNCTIONS:
            raise QueryError(f"{what}: there is no function {aggregate.function!r}; there are {', '.join(FUNCTIONS)}")
        rule = FUNCTIONS[aggregate.function]
        if aggregate.by is not None and not rule.ordered:
            raise QueryError(f"{what}: {aggregate.function} has no order, so by= has no meaning; leave it out")
        if aggregate.column is None:
            if rule.form != "count":
                raise QueryError(f"{what}: {aggregate.function} needs a column")
            return ComputedAggregate(name, aggregate.function, None, None, pa.int64())
        column = self._input(aggregate.column, what, False)
        kind = rule.result(self.inputs[column].kind)
        if kind is None:
            raise QueryError(
                f"{what}: {aggregate.function} takes {rule.arguments}, and {aggregate.column} is"
                f" {self.inputs[column].kind}"
            )
        by = None if aggregate.by is None else self._input(aggregate.by, f"{what}, by", True)
        return ComputedAggregate(name, aggregate.function, column, by, kind)

    # Time

    def _take_times(self) -> None:
        """Read the event times that decide the time of a result."""
        query, window = self._query, self.window
        chosen = query.shown if window is None or window.time is None else [query.streams[window.time]]
        untimed = [stream for stream in chosen if stream.time is None]
        if untimed:
            # A table has no event times, so those of the streams beside it would not help.
            lacking = next((stream for stream in untimed if isinstance(stream, Table)), untimed[0])
            remedy = "" if isinstance(lacking, Table) else "name it with time=…, or "
            raise QueryError(
                f"aggregates need the event time of each result, and {lacking.place} has no time column;"
                f" {remedy}give first and last a column to go by: by=…, ORDER BY in SQL"
            )
        places = [(stream.name, stream.time) for stream in chosen if stream.time is not None]
        self.times = tuple(f"{name}.{column}" for name, column in places)
        self._read.update(dict.fromkeys(places))

    def _window(self, window: GroupWindow) -> WindowTicks:
        query = self._query
        if not isinstance(window, Tumbling | Hopping | Session):
            raise QueryError(
                f"group_window must be eddy.Tumbling(size), eddy.Hopping(size, hop) or eddy.Session(gap), not"
                f" {window!r}"
            )
        name = f"group_window {type(window).__name__}"
        if not query.graph.timed:
            raise QueryError(
                f"{name}: the watermark ends these windows, and this query has none, because no stream has a Range"
                " window or an interval; give one stream a window, such as window=eddy.Range(d)"
            )
        time = None
        if window.time is not None:
            stream, column = query.place_of(window.time, f"{name}, time")
            if query.stream(stream).time != column:
                raise QueryError(
                    f"{name}: {stream}.{column} is not the time column of stream {stream}, which the watermark follows;"
                    f" declare it with time={column!r}"
                )
            if query.may_lack(stream):
                raise QueryError(
                    f"{name}: a result may have no row of stream {stream}, and then no event time; use the time of"
                    " another stream, or leave time= out for the greatest one"
                )
            time = query.index(stream)
        slack = query.slack(time)
        if isinstance(window, Session):
            return WindowTicks(0, 0, query.ticks(window.gap, None, f"{name}, gap"), time, slack)
        size = query.ticks(window.size, None, f"{name}, size")
        hop = size if isinstance(window, Tumbling) else query.ticks(window.hop, None, f"{name}, hop")
        if -(-size // hop) > MOST_WINDOWS:
            raise QueryError(
                f"{name}: with size {window.size} and hop {hop if isinstance(window, Tumbling) else window.hop}, each"
                f" result would be in {-(-size // hop):,} windows, the limit is {MOST_WINDOWS:,}; take a longer hop or"
                " a shorter size"
            )
        return WindowTicks(size, hop, 0, time, slack)

    # Output

    def _schema(self) -> pa.Schema:
        query, fields = self._query, []
        for name, number in self.keys:
            aggregate_input = self.inputs[number]
            nullable = True
            if aggregate_input.expression is None:
                stream, column = self._pairs[aggregate_input.name]
                nullable = column != PRESENCE and (
                    query.may_lack(stream) or query.stream(stream).schema.field(column).nullable
                )
            fields.append(pa.field(name, aggregate_input.kind, nullable))
        if self.group_window is not None:
            bounds = [self.group_window.start, self.group_window.end]
            fields += [pa.field(name, query.time_type, False) for name in bounds if name is not None]
        fields += [pa.field(function.name, function.kind, function.rule.nullable) for function in self.functions]
        names = [field.name for field in fields]
        doubled = next((name for name in names if names.count(name) > 1), None)
        if doubled is not None:
            raise QueryError(f"two output columns of groups are named {doubled!r}; give each its own name")
        return pa.schema(fields)


def _group_columns(group_by: object) -> dict[str, object]:
    """Return group columns by the name of their output column."""
    if isinstance(group_by, str):
        raise QueryError(f"group_by must be a list of columns or a mapping, not one string: write [{group_by!r}]")
    if isinstance(group_by, Mapping):
        columns = dict(group_by)
    elif isinstance(group_by, Iterable):
        listed = list(group_by)
        unnamed = next((column for column in listed if not isinstance(column, str)), None)
        if unnamed is not None:
            raise QueryError(f"group_by: {unnamed!r} has no name; write group_by={{'name': …}}")
        columns = {str(column): column for column in listed}
    else:
        raise QueryError(f"group_by must be a list of columns or a mapping, not {type(group_by).__name__}")
    _check_names(columns, "group_by")
    return columns


def _functions(aggregates: object) -> dict[str, object]:
    if not isinstance(aggregates, Mapping):
        raise QueryError(
            "aggregates must be a mapping from output columns to functions, such as {'n': agg.count()}, not"
            f" {type(aggregates).__name__}"
        )
    _check_names(aggregates, "aggregates")
    return dict(aggregates)


def _check_names(named: Mapping[Any, object], what: str) -> None:
    for name in named:
        if not isinstance(name, str) or not name:
            raise QueryError(f"{what}: the name of an output column must be a string that is not empty, not {name!r}")
