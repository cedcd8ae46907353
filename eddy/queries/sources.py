"""The streams of an engine: their rows as arrivals in one order, for all queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.ingest.arrivals import Arrivals, Times
from eddy.ingest.clock import Clock
from eddy.ingest.gate import Gate
from eddy.query.clock_rule import ClockRule, WatermarkOf, checked_watermark, clock_rule
from eddy.query.host_limits import check_all_rows, check_counts_late
from eddy.query.query import Query
from eddy.streams.event_time import ticks, unified_time
from eddy.streams.keyed import KeyedInput
from eddy.streams.late_options import checked_span
from eddy.streams.stream import Stream
from eddy.streams.windows import Range, Rows
from stairs.clock_reading import ClockReading
from stairs.errors import InputError, QueryError
from stairs.graph import FOREVER, Window, WindowKind

POSITION = "#position"
"""The column that the engine adds to the rows of each stream."""


def one_batch(table: pa.Table, remedy: str) -> pa.RecordBatch | None:
    """Return the rows of a table in one batch, None without any. Raises InputError if a column exceeds 2 GiB."""
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise InputError(f"{table.num_rows} rows do not fit into columns of 2 GiB: {remedy}")
    return batches[0] if batches else None


class _Graph(NamedTuple):
    names: tuple[str, ...]
    timed: bool


class Sources:
    """The streams of an engine, in the form in which a `Gate` asks for those of a query.

    place    what has these streams, in errors: the class that takes a lateness and the like for all queries

    Raises QueryError for streams that do not fit together.
    """

    def __init__(
        self,
        streams: Sequence[Stream],
        lateness: int | timedelta = 0,
        watermark: WatermarkOf = "slowest",
        idle_after: int | timedelta | None = None,
        place: str = "Engine",
    ) -> None:
        self.streams = tuple(streams)
        self._place = place
        self._noun = noun = place.lower()
        names = tuple(stream.name for stream in self.streams)
        for stream in self.streams:
            if isinstance(stream, KeyedInput):
                raise QueryError(f"table {stream.name!r}: the {self._noun} takes streams; use a Runtime")
            if stream.source is not None:
                raise QueryError(
                    f"stream {stream.name!r} has the rows of a query, which the {noun} does not run; use a Runtime"
                )
            if stream.filter is not None:
                raise QueryError(f"stream {stream.name!r}: a filter belongs to the streams of a query")
            if stream.late is not None:
                raise QueryError(f"stream {stream.name!r}: leave late out: the {self._noun} only counts late rows")
            if POSITION in stream.schema.names:
                raise QueryError(f"stream {stream.name!r}: the {noun} uses the column name {POSITION!r}; rename it")
        if not names or len(set(names)) < len(names):
            raise QueryError(f"the {self._noun} has streams of different names, not {', '.join(names) or 'none'}")
        timed = [stream.name for stream in self.streams if stream.time is not None]
        if timed and len(timed) < len(names):
            lacking = next(name for name in names if name not in timed)
            raise QueryError(f"stream {lacking!r} has no time column, and {timed[0]!r} has one: all have one, or none")
        self.time_type = unified_time(stream.type_of(stream.time) for stream in self.streams if stream.time is not None)
        if timed and self.time_type is None:
            raise QueryError("time columns must all be integers, all timestamps (with or without a zone) or all dates")
        self.graph = _Graph(names, bool(timed))
        self.clock_rule = self._clock_rule(lateness, checked_watermark(watermark, idle_after), idle_after)
        """How the watermark follows the rows."""
        self.late_by_stream = ("count",) * len(names)
        self.windows = {
            stream.name: window_of(stream, self.time_type) for stream in self.streams if stream.window is not None
        }
        """Name of a stream -> the window for which the engine keeps its rows in any case."""
        self._gate = Gate(self)  # type: ignore[arg-type]  # it asks for no more than this has

    def _clock_rule(
        self, lateness: int | timedelta, watermark: WatermarkOf, idle_after: int | timedelta | None
    ) -> ClockRule:
        lateness = checked_span(lateness, "lateness")
        idle_after = None if idle_after is None else checked_span(idle_after, "idle_after")
        if self.time_type is not None and self.graph.timed:
            return clock_rule(self.streams, self.time_type, watermark, lateness, idle_after)
        given = {"lateness": lateness or next((one.lateness for one in self.streams if one.lateness), None)}
        for what, span in {**given, "idle_after": idle_after}.items():
            if span:
                raise QueryError(f"{what} {span} without event times: name the time columns with Stream(…, time=…)")
        return ClockRule(watermark == "slowest", (0,) * len(self.streams))

    def index(self, name: str) -> int:
        """Return the number of a stream."""
        return self.graph.names.index(name)

    def check(self, query: Query) -> None:
        """Raise QueryError for a query that does not fit the streams."""
        if not isinstance(query, Query):
            raise QueryError(f"the {self._noun} runs eddy.Query objects, not {query!r}")
        check_all_rows(query, f"the {self._noun}")
        self._check_groups(query)
        given = {"lateness": query.lateness or any(stream.lateness for stream in query.streams)}
        given |= {"watermark": query.watermark != "slowest", "idle_after": query.idle_after is not None}
        for what in [name for name, own in given.items() if own]:
            raise QueryError(
                f"{what} belongs to the {self._noun}, because all queries see the same arrivals:"
                f" {self._place}({what}=…)"
            )
        check_counts_late(query, f"the {self._noun}")
        known, noun = {stream.name: stream for stream in self.streams}, self._noun
        for stream in query.streams:
            own = known.get(stream.name)
            if own is None:
                raise QueryError(f"the {self._noun} has no stream {stream.name!r}; its streams are {', '.join(known)}")
            wrong = [field for field in stream.schema if field.name not in own.schema.names]
            wrong += [
                f for f in stream.schema if f.name in own.schema.names and own.schema.field(f.name).type != f.type
            ]
            if wrong:
                raise QueryError(
                    f"stream {stream.name!r}: the {noun} has no column {wrong[0].name!r} of type {wrong[0].type}; its"
                    f" columns are {', '.join(f'{f.name} {f.type}' for f in own.schema)}"
                )
            if stream.time is not None and stream.time != own.time:
                raise QueryError(
                    f"stream {stream.name!r}: its time column is {stream.time!r}, and that of the {noun} {own.time!r}"
                )

    def _check_groups(self, query: Query) -> None:
        aggregation = query.aggregation
        if aggregation is None:
            return
        if query.branches:
            raise QueryError(
                "an engine gives aggregates of inner joins only, and this query has branches; use a Runtime for it"
            )
        if aggregation.window is None:
            raise QueryError(
                "an engine gives aggregates over windows of event time: give the query a group_window; a changelog over"
                " the live windows, and groups of input that ends, are for a Runtime"
            )
        if aggregation.window.slack is None:
            raise QueryError(
                "group_window: results with any event time may come, because the stream whose time counts has no Range"
                " window or interval; give it one, or leave time= out"
            )
        if query.time_type != self.time_type:
            raise QueryError(
                f"group_window: the engine counts event time as {self.time_type}, because of its other streams, and the"
                f" query as {query.time_type}; give all time columns one type"
            )

    def admit(self, pushed: Mapping[str, object], order: object, clock: Clock | None) -> Arrivals:
        """Return the arrivals of a push. Raises InputError."""
        return self._gate.admit(pushed, order, clock)


def window_of(stream: Stream, time_type: pa.DataType | None) -> Window:
    """Return the window of a stream as numbers."""
    if isinstance(stream.window, Rows):
        return Window(WindowKind.ROWS, stream.window.n)
    if isinstance(stream.window, Range):
        assert stream.time is not None
        assert time_type is not None
        own = stream.type_of(stream.time)
        return Window(WindowKind.RANGE, ticks(stream.window.d, time_type, own, f"stream {stream.name}, window"))
    return Window(WindowKind.UNBOUNDED)


class EnginePush(NamedTuple):
    """One push, as all queries see it.

    first    position of the first arrival
    batches  per stream its rows, with their positions as an additional column; None for none
    order    uint8[arrivals], the stream of each
    places   per stream the positions of its rows, int64[rows]
    times    per stream the event times of its rows in ticks; None without event times
    clock    int64[arrivals], the greatest event time up to each arrival; empty without event times
    clock_before  the greatest event time before the push
    reading  the watermarks; None without event times
    """

    first: int
    batches: list[pa.RecordBatch | None]
    order: npt.NDArray[np.uint8]
    places: list[npt.NDArray[np.int64]]
    times: list[Times | None]
    clock: npt.NDArray[np.int64]
    clock_before: int
    reading: ClockReading | None

    @property
    def end(self) -> int:
        """The position after the last arrival."""
        return self.first + len(self.order)

    def clock_at(self, position: int) -> int:
        """Return the greatest event time before a position of the push, or its end; -FOREVER before the first row."""
        return self.clock_before if position <= self.first else int(self.clock[position - self.first - 1])

    def watermark_at(self, position: int) -> int:
        """Return the watermark before a position of the push, or its end; -FOREVER for none."""
        if self.reading is None:
            return -FOREVER
        return self.reading.before if position <= self.first else int(self.reading.marks[position - self.first - 1])


def placed(arrivals: Arrivals, first: int, greatest: int) -> EnginePush:
    """Return arrivals as a push that begins at position `first`; `greatest` is the greatest event time before it."""
    places = [first + np.flatnonzero(arrivals.order == i) for i in range(len(arrivals.batches))]
    batches = [
        None if batch is None else batch.append_column(POSITION, pa.array(own, pa.int64()))
        for batch, own in zip(arrivals.batches, places, strict=True)
    ]
    clock = np.full(len(arrivals.order), -FOREVER, np.int64)
    for own, times in zip(places, arrivals.times, strict=True):
        if times is not None:
            clock[own - first] = times
    if len(clock):
        clock[0] = max(clock[0], greatest)
    timed = any(times is not None for times in arrivals.times)
    clock = np.maximum.accumulate(clock) if timed else clock[:0]
    return EnginePush(first, batches, arrivals.order, places, arrivals.times, clock, greatest, arrivals.reading)
