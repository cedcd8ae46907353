"""The join of a query as numbers: windows in ticks, classes by number, and the places of compared values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pyarrow as pa

from eddy.expressions.conditions import unconnected
from eddy.filters.conditions import Condition
from eddy.query.comparisons import ColumnComparison
from eddy.query.predicates import AttributeClass
from eddy.streams.event_time import ticks
from eddy.streams.key_types import text_words, word_count
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from eddy.streams.windows import Range, Rows
from stairs.errors import QueryError
from stairs.graph import ComparedValue, JoinGraph, Window, WindowKind


def check_connected(
    streams: Sequence[Stream],
    classes: Sequence[AttributeClass],
    scans: Sequence[tuple[str, str]],
    conditions: Sequence[Condition] = (),
) -> None:
    """Raise QueryError unless equalities, and comparisons where there are none, connect all streams.

    conditions   those of the join that are neither, for the error
    """
    reached, grew = {streams[0].name}, True
    while grew:
        grew = False
        for names in (*(attribute_class.columns.keys() for attribute_class in classes), *map(set, scans)):
            if not reached.isdisjoint(names) and not reached.issuperset(names):
                reached.update(names)
                grew = True
    apart = [stream.name for stream in streams if stream.name not in reached]
    if apart:
        fault = f"no predicate connects {', '.join(apart)} with {streams[0].name}"
        if not conditions:
            raise QueryError(f"{fault}; every stream must be joined to another one")
        raise QueryError(f"{fault}: {unconnected(apart[0], conditions)}")


def check_times(
    streams: Sequence[Stream], lateness: int | timedelta, idle_after: int | timedelta | None, as_of: Sequence[str] = ()
) -> None:
    """Raise QueryError for windows, time columns, lateness and idle streams that do not fit together.

    as_of   the versioned tables
    """
    ranged = [stream.name for stream in streams if isinstance(stream.window, Range)]
    untimed = [stream.name for stream in streams if stream.time is None and not isinstance(stream, Table)]
    if as_of and untimed:
        raise QueryError(
            f"stream {untimed[0]} has no time column, but rows wait for the watermark of all streams, to get their"
            f" versions of {as_of[0]}; name the time column of {untimed[0]} with time=…"
        )
    if as_of:
        return
    if ranged and untimed:
        raise QueryError(
            f"stream {untimed[0]} has no time column, but {ranged[0]} has a RANGE window, its own or one that"
            " intervals require, which compares the event times of all tuples of a result; name the time column of"
            f" {untimed[0]} with time=…"
        )
    if ranged:
        return
    # A stream with event times has its lateness in all queries, also in those in which no row is late.
    given = next((stream for stream in streams if stream.lateness and stream.time is None), None)
    if lateness or given is not None:
        stated = lateness or f"{given and given.lateness} of stream {given and given.name}"
        raise QueryError(f"lateness {stated} without a RANGE window: only event-time windows have late tuples")
    if idle_after is not None:
        raise QueryError(f"idle_after {idle_after} without a RANGE window: no watermark waits for a silent stream")


def windows_in_numbers(
    streams: Sequence[Stream], derived: Mapping[str, int], time_type: pa.DataType | None
) -> tuple[Window, ...]:
    """Return the windows of streams in rows or ticks; `derived` has those that follow from intervals, by stream."""
    windows = []
    for stream in streams:
        if isinstance(stream.window, Rows):
            windows.append(Window(WindowKind.ROWS, stream.window.n))
        elif isinstance(stream.window, Range):
            assert stream.time is not None
            what, size = f"stream {stream.name}, window", derived.get(stream.name)
            if size is None:
                assert time_type is not None
                size = ticks(stream.window.d, time_type, stream.type_of(stream.time), what)
            windows.append(Window(WindowKind.RANGE, size))
        else:
            windows.append(Window(WindowKind.UNBOUNDED))
    return tuple(windows)


def places_of_values(
    streams: Sequence[Stream], comparisons: Sequence[ColumnComparison], time_type: pa.DataType | None, timed: bool
) -> dict[tuple[str, str, pa.DataType], ComparedValue]:
    """Return the places of the values that comparisons read: by stream, column and type."""
    places: dict[tuple[str, str, pa.DataType], ComparedValue] = {}
    names = [stream.name for stream in streams]
    counts = [int(timed)] * len(streams)
    for comparison in comparisons:
        for name, column in comparison.columns:
            i = names.index(name)
            if timed and streams[i].time == column and comparison.kind == time_type:
                places[name, column, comparison.kind] = ComparedValue(i, 0)
            elif (name, column, comparison.kind) not in places:
                places[name, column, comparison.kind] = ComparedValue(i, counts[i])
                counts[i] += 1
    return places


def join_graph(
    streams: Sequence[Stream],
    windows: tuple[Window, ...],
    classes: Sequence[AttributeClass],
    comparisons: Sequence[ColumnComparison],
    scans: Sequence[tuple[str, str]],
    values: Mapping[tuple[str, str, pa.DataType], ComparedValue],
    primary: Sequence[AttributeClass | None],
) -> JoinGraph:
    """Return the join graph; the arguments are those of the other functions here.

    primary   per stream the class of its primary key, None = it is no table
    """
    timed = any(window.kind == WindowKind.RANGE for window in windows)
    members = [*(attribute_class.columns.keys() for attribute_class in classes), *scans]
    # A single stream is in a class in which each tuple has its own key.
    alone = [(streams[0].name,)] if len(streams) == 1 else []
    members += alone
    keys = [attribute_class for attribute_class in primary if attribute_class is not None]
    numbers = iter(range(len(members), len(members) + len(keys)))
    key_numbers = tuple(None if attribute_class is None else next(numbers) for attribute_class in primary)
    return JoinGraph(
        names=tuple(stream.name for stream in streams),
        windows=windows,
        attributes=tuple(tuple(c for c, names in enumerate(members) if stream.name in names) for stream in streams),
        widths=(
            *(sum(map(word_count, attribute_class.types)) for attribute_class in classes),
            *(1 for _ in (*scans, *alone)),
            *(sum(map(word_count, attribute_class.types)) for attribute_class in keys),
        ),
        texts=(
            *(text_words(attribute_class.types) for attribute_class in classes),
            *(() for _ in (*scans, *alone)),
            *(text_words(attribute_class.types) for attribute_class in keys),
        ),
        timed=timed,
        comparisons=tuple(
            comparison.in_graph(values[*comparison.left, comparison.kind], values[*comparison.right, comparison.kind])
            for comparison in comparisons
        ),
        scans=tuple(range(len(classes), len(members))),
        primary=key_numbers if keys else (),
    )
