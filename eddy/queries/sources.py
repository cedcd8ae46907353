"""The streams and tables of an engine: their rows and changes as arrivals in one order, for all queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.ingest.arrivals import Arrivals, Deletes, Order, Times
from eddy.ingest.changes import DELETES, UPSERTS
from eddy.ingest.clock import Clock
from eddy.ingest.gate import Gate
from eddy.ingest.given_watermark import as_ticks
from eddy.ingest.newest_versions import NewestVersions
from eddy.query.clock_rule import ClockRule, WatermarkOf, checked_watermark, clock_rule
from eddy.query.host_limits import check_all_rows, check_counts_late
from eddy.query.query import Query
from eddy.streams.event_time import ticks, unified_time
from eddy.streams.keyed import OP_COLUMN, KeyedInput, Ops
from eddy.streams.late_options import LATE_ROWS, Late, check_late, checked_bound_of_rows, checked_span
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from eddy.streams.versioned_table import VersionedTable
from eddy.streams.windows import Range, Rows
from stairs.clock_reading import ClockReading
from stairs.errors import InputError, QueryError
from stairs.graph import FOREVER, Window, WindowKind
from stairs.plain_types import TOO_LONG, plain, to_plain

POSITION = "#position"
"""The column that the engine adds to the rows of each stream."""
UPSERT, DELETE = UPSERTS[0], DELETES[0]
"""The operations of changes that the engine has read."""


def one_batch(table: pa.Table, remedy: str) -> pa.RecordBatch | None:
    """Return the rows of a table in one batch, None without any. Raises InputError if a column exceeds 2 GiB."""
    batches = table.to_batches()
    if len(batches) > 1:
        try:
            batches = table.combine_chunks().to_batches()
        except TOO_LONG:
            # One dictionary has no place for all values.
            table = pa.Table.from_batches(list(map(plain_rows, batches)))
            batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise InputError(f"{table.num_rows} rows do not fit into columns of 2 GiB: {remedy}")
    return batches[0] if batches else None


def plain_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows whose columns have plain types (`stairs.plain_types`)."""
    return pa.RecordBatch.from_arrays(list(map(to_plain, batch.columns)), names=batch.schema.names)


class _Graph(NamedTuple):
    names: tuple[str, ...]
    timed: bool


class Sources:
    """The streams and tables of an engine, in the form in which a `Gate` asks for those of a query.

    place    what has these streams, in errors: the class that takes a lateness and the like for all queries
    alone    whether queries may have joins of their own: those over tables, with branches, with first rows and others

    Raises QueryError for streams that do not fit together.
    """

    def __init__(
        self,
        streams: Sequence[Stream],
        lateness: int | timedelta = 0,
        watermark: WatermarkOf = "slowest",
        idle_after: int | timedelta | None = None,
        place: str = "Engine",
        alone: bool = False,
        late: Late = "count",
        late_rows: int = LATE_ROWS,
    ) -> None:
        self.streams = tuple(streams)
        self._place, self._alone = place, alone
        self._noun = place.lower()
        names = tuple(stream.name for stream in self.streams)
        for stream in self.streams:
            self._check_input(stream)
        if not names or len(set(names)) < len(names):
            raise QueryError(f"the {self._noun} has streams of different names, not {', '.join(names) or 'none'}")
        self.tables = {i: stream for i, stream in enumerate(self.streams) if isinstance(stream, Table)}
        """The tables, by their numbers."""
        self.versioned = {i: stream for i, stream in enumerate(self.streams) if isinstance(stream, VersionedTable)}
        """The versioned tables, by their numbers: their rows have event times, as those of streams."""
        self.keyed: dict[int, KeyedInput] = {**self.tables, **self.versioned}
        """All inputs whose rows have a key, by their numbers."""
        eventful = [stream for stream in self.streams if not isinstance(stream, Table)]
        timed = [stream.name for stream in eventful if stream.time is not None]
        if timed and len(timed) < len(eventful):
            lacking = next(stream.name for stream in eventful if stream.name not in timed)
            raise QueryError(f"stream {lacking!r} has no time column, and {timed[0]!r} has one: all have one, or none")
        self.time_type = unified_time(stream.type_of(stream.time) for stream in self.streams if stream.time is not None)
        if timed and self.time_type is None:
            raise QueryError("time columns must all be integers, all timestamps (with or without a zone) or all dates")
        self.graph = _Graph(names, bool(timed))
        self.clock_rule = self._clock_rule(lateness, checked_watermark(watermark, idle_after), idle_after)
        """How the watermark follows the rows."""
        check_late(late, f"{place}: ")
        self.late_by_stream = tuple(late if stream.late is None else stream.late for stream in self.streams)
        self.late_rows = checked_bound_of_rows(late_rows, "late_rows")
        self.watermark = watermark
        self.windows = {
            stream.name: window_of(stream, self.time_type)
            for stream in eventful
            if stream.window is not None and not isinstance(stream, VersionedTable)
        }
        """Name of a stream -> the window for which the engine keeps its rows in any case."""
        self._gate = Gate(self)  # type: ignore[arg-type]  # it asks for no more than this has
        self.kept_schemas = [self._kept_schema(i) for i in range(len(names))]
        """Per input the columns of its rows, as queries see them: with what changes do, and positions."""

    def _check_input(self, stream: Stream) -> None:
        """Raise QueryError for a stream or table that an engine cannot have."""
        noun, what = self._noun, stream.place
        if stream.source is not None:
            raise QueryError(
                f"{what} has the rows of a query; give the {noun} the streams that this query reads, and start a query"
                " over its answer: Table(name, query)"
                if self._alone
                else f"{what} has the rows of a query, which the {noun} does not run; use a Runtime"
            )
        if isinstance(stream, KeyedInput) and not self._alone:
            raise QueryError(f"{what}: the {noun} takes streams; use a Runtime")
        if stream.filter is not None:
            raise QueryError(f"{what}: a filter belongs to the streams of a query")
        if stream.late is not None and not self._alone:
            raise QueryError(f"{what}: leave late out: the {noun} only counts late rows")
        if POSITION in stream.schema.names:
            raise QueryError(f"{what}: the {noun} uses the column name {POSITION!r}; rename it")
        if isinstance(stream, KeyedInput) and stream.ops is not None and OP_COLUMN in stream.schema.names:
            raise QueryError(f"{what}: the {noun} says in column {OP_COLUMN!r} what a change does; rename it")

    def _kept_schema(self, i: int) -> pa.Schema:
        schema = self.streams[i].schema
        if i in self.keyed:
            schema = pa.schema([field.with_type(plain(field.type)) for field in schema])
            if self.keyed[i].ops is not None:
                schema = schema.append(pa.field(OP_COLUMN, pa.string()))
        return schema.append(pa.field(POSITION, pa.int64()))

    def read_again(self, table: KeyedInput) -> KeyedInput:
        """Return a table of a query as it reads changes that the engine has read: none is stale, all say what they do.

        A change has lost the form in which it was pushed, such as that of an envelope.
        """
        ops: Ops | None = None if self.keyed[self.index(table.name)].ops is None else "column"
        if isinstance(table, Table):
            return replace(table, ops=ops, version=None, tombstones=None, late=None)
        return replace(table, ops=ops, late=None)

    def _clock_rule(
        self, lateness: int | timedelta, watermark: WatermarkOf, idle_after: int | timedelta | None
    ) -> ClockRule:
        lateness = checked_span(lateness, "lateness")
        idle_after = None if idle_after is None else checked_span(idle_after, "idle_after")
        if self.time_type is not None and self.graph.timed:
            rule = clock_rule(self.streams, self.time_type, watermark, lateness, idle_after)
            return rule._replace(
                lateness=tuple(0 if i in self.tables else span for i, span in enumerate(rule.lateness))
            )
        given = {"lateness": lateness or next((stream.lateness for stream in self.streams if stream.lateness), None)}
        for what, span in {**given, "idle_after": idle_after}.items():
            if span:
                raise QueryError(f"{what} {span} without event times: name the time columns with Stream(…, time=…)")
        return ClockRule(watermark == "slowest", (0,) * len(self.streams))

    def clock(self) -> Clock | None:
        """Return a new clock of the streams, None without event times. Changes of tables pass it by."""
        if not self.graph.timed:
            return None
        spans = [span for i, span in enumerate(self.clock_rule.lateness) if i not in self.tables]
        return Clock(self.clock_rule._replace(lateness=tuple(spans)), None)

    def index(self, name: str) -> int:
        """Return the number of a stream."""
        return self.graph.names.index(name)

    def check(self, query: Query) -> None:
        """Raise QueryError for a query that does not fit the streams."""
        if not isinstance(query, Query):
            raise QueryError(f"the {self._noun} runs eddy.Query objects, not {query!r}")
        if not self._alone:
            check_all_rows(query, f"the {self._noun}")
            self._check_groups(query)
        self._check_time(query)
        self._check_clock(query)
        if self._alone:
            self._check_late(query)
        else:
            check_counts_late(query, f"the {self._noun}")
        for stream in query.streams:
            if isinstance(stream.source, Query):
                if stream.name in self.graph.names:
                    raise QueryError(
                        f"{stream.place} has the rows of a query, and the {self._noun} has an input of this name; give"
                        " it another name in the query"
                    )
                self.check(stream.source)
            else:
                self._check_stream(stream)

    def _check_clock(self, query: Query) -> None:
        """Raise QueryError for a query with a clock of its own."""
        of_streams = {stream.name: stream.lateness for stream in self.streams}
        lates = (stream.lateness for stream in query.streams if stream.lateness != of_streams.get(stream.name))
        given = {"lateness": query.lateness or any(lates)}
        given |= {"watermark": query.watermark != "slowest", "idle_after": query.idle_after is not None}
        for what in [name for name, setting in given.items() if setting]:
            raise QueryError(
                f"{what} belongs to the {self._noun}, because all queries see the same arrivals:"
                f" {self._place}({what}=…)"
            )

    def _check_late(self, query: Query) -> None:
        """Raise QueryError if a query says what comes of late rows, which arrive for no query."""
        lates = [query.late, *(stream.late for stream in query.streams)]
        if query.late_rows != LATE_ROWS or any(callable(late) for late in lates) or "keep" in lates[1:]:
            raise QueryError(
                f"late and late_rows belong to the {self._noun}, because late rows arrive for no query:"
                f" {self._place}(late=…, late_rows=…), or Stream(…, late=…) among the streams of the {self._noun}"
            )

    def _check_stream(self, stream: Stream) -> None:
        """Raise QueryError for an input of a query that the engine does not have."""
        known, noun = {host_stream.name: host_stream for host_stream in self.streams}, self._noun
        host_stream = known.get(stream.name)
        if host_stream is None and isinstance(stream, KeyedInput):
            raise QueryError(
                f"{stream.place}: the {noun} lacks it; give the {noun} a {type(stream).__name__} of this name"
            )
        if host_stream is None:
            raise QueryError(f"the {noun} has no stream {stream.name!r}; its streams are {', '.join(known)}")
        wrong = [field for field in stream.schema if field.name not in host_stream.schema.names]
        wrong += [
            f
            for f in stream.schema
            if f.name in host_stream.schema.names and host_stream.schema.field(f.name).type != f.type
        ]
        if wrong:
            raise QueryError(
                f"{stream.place}: the {noun} has no column {wrong[0].name!r} of type {wrong[0].type}; its"
                f" columns are {', '.join(f'{f.name} {f.type}' for f in host_stream.schema)}"
            )
        if stream.time is not None and stream.time != host_stream.time:
            raise QueryError(
                f"{stream.place}: its time column is {stream.time!r}, and that of the {noun} {host_stream.time!r}"
            )
        theirs, mine = _noun_of(host_stream), _noun_of(stream)
        if theirs != mine:
            raise QueryError(f"{stream.place}: it is a {theirs} of the {noun}, and a {mine} of the query")
        if isinstance(host_stream, KeyedInput) and isinstance(stream, KeyedInput):
            self._check_table(stream, host_stream)

    def _check_table(self, table: KeyedInput, host_table: KeyedInput) -> None:
        """Raise QueryError for a table of a query that the engine has with other changes."""
        noun = self._noun
        if table.keys != host_table.keys:
            raise QueryError(
                f"{table.place}: its key is {', '.join(table.keys)}, and that of the {noun}"
                f" {', '.join(host_table.keys)}"
            )
        for what in ("ops", "version", "tombstones"):
            mine, theirs = getattr(table, what, None), getattr(host_table, what, None)
            if mine not in (None, theirs):
                raise QueryError(
                    f"{table.place}: its {what} is {mine!r}, and that of the {noun} {theirs!r}; leave it out, because"
                    f" the {noun} reads the changes"
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

    def _check_time(self, query: Query) -> None:
        """Raise QueryError if a query counts event time otherwise than its watermark, which is that of all streams."""
        groups = query.aggregation
        windowed = groups is not None and groups.window is not None
        if (windowed or query.graph.timed) and query.time_type != self.time_type:
            raise QueryError(
                f"the {self._noun} counts event time as {self.time_type}, because of its other streams, and the query"
                f" as {query.time_type}; give all time columns one type"
            )

    def unkept(self, query: Query) -> str | None:
        """Return a stream of a query whose windows have rows that the engine need not keep, None without one."""
        for stream, window in zip(query.streams, query.graph.windows, strict=True):
            if isinstance(stream.source, Query):
                missing = self.unkept(stream.source)
                if missing is not None:
                    return missing
            elif not isinstance(stream, KeyedInput):
                kept = self.windows.get(stream.name)
                every = kept is not None and kept.kind == WindowKind.UNBOUNDED
                longer = kept is not None and kept.kind == window.kind and kept.size >= window.size
                counted = window.kind == WindowKind.ROWS and stream.conditions
                if not every and (query.unretracted or counted or not longer):
                    return stream.name
        return None

    def admit(
        self,
        pushed: Mapping[str, object],
        order: object,
        clock: Clock | None,
        watermark: object = None,
        atomic: bool = False,
    ) -> Arrivals:
        """Return the arrivals of a push; watermark as in `Engine.push`. Raises InputError."""
        if atomic and not self.keyed:
            raise InputError("atomic is for changes of tables, and this engine has none; leave it out")
        given = as_ticks(watermark)
        if given is not None and clock is None:
            raise InputError(f"watermark={given}: no stream of the engine has a time column; leave it out")
        return self._gate.admit(pushed, order, clock, given, atomic=atomic)

    @property
    def versions(self) -> Mapping[int, NewestVersions]:
        """The newest versions of the keys of tables that have versions, by the numbers of these tables."""
        return self._gate.versions


def _noun_of(stream: Stream) -> str:
    """Return which of the three kinds of inputs a stream is."""
    return "versioned table" if isinstance(stream, VersionedTable) else stream.noun


def window_of(stream: Stream, time_type: pa.DataType | None) -> Window:
    """Return the window of a stream as numbers."""
    if isinstance(stream.window, Rows):
        return Window(WindowKind.ROWS, stream.window.n)
    if isinstance(stream.window, Range):
        assert stream.time is not None
        assert time_type is not None
        column_type = stream.type_of(stream.time)
        return Window(WindowKind.RANGE, ticks(stream.window.d, time_type, column_type, f"stream {stream.name}, window"))
    return Window(WindowKind.UNBOUNDED)


@dataclass(frozen=True)
class EnginePush:
    """One push, as all queries see it.

    first    position of the first arrival
    arrivals  the arrivals of all streams; rows have their positions as an additional column
    places   per stream the positions of its rows, int64[rows]
    clock_before  the greatest event time before the push
    """

    first: int
    arrivals: Arrivals
    places: list[npt.NDArray[np.int64]]
    clock_before: int

    @property
    def batches(self) -> list[pa.RecordBatch | None]:
        """Per stream its rows, with their positions; None for none."""
        return self.arrivals.batches

    @property
    def order(self) -> Order:
        """The stream of each arrival, uint8[arrivals]."""
        return self.arrivals.order

    @property
    def times(self) -> list[Times | None]:
        """Per stream the event times of its rows in ticks; None without event times."""
        return self.arrivals.times

    @property
    def reading(self) -> ClockReading | None:
        """The watermarks; None without event times."""
        return self.arrivals.reading

    @property
    def atomic(self) -> bool:
        """Whether queries over tables give the difference between the answers before and after the push."""
        return self.arrivals.atomic

    @property
    def ends(self) -> bool:
        """Whether the input ends with the push."""
        return self.arrivals.ends

    @cached_property
    def clock(self) -> npt.NDArray[np.int64]:
        """The greatest event time up to each arrival, int64[arrivals]. O(arrivals)."""
        clock = np.full(len(self.order), -FOREVER, np.int64)
        for positions, times in zip(self.places, self.times, strict=True):
            if times is not None:
                clock[positions - self.first] = times
        if len(clock):
            clock[0] = max(clock[0], self.clock_before)
        return np.maximum.accumulate(clock)

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
        if position >= self.end:
            return self.reading.after
        return self.reading.before if position <= self.first else int(self.reading.marks[position - self.first - 1])

    def watermark_before(self, position: int) -> int:
        """Return the watermark before a position of the push, also if the push has no arrival and raises it."""
        if self.reading is not None and position <= self.first:
            return self.reading.before
        return self.watermark_at(position)

    @property
    def watermarks(self) -> npt.NDArray[np.int64]:
        """The watermark before each position of the push and before its end, with event times. O(arrivals)."""
        assert self.reading is not None
        # The caller may have given one that is beyond that of the last row.
        marks = np.concatenate([[self.reading.before], self.reading.marks])
        marks[-1] = self.reading.after
        return marks

    @property
    def rises(self) -> bool:
        """Whether the watermark after the push is above that before it."""
        return self.reading is not None and self.reading.after > self.reading.before


def placed(arrivals: Arrivals, first: int, greatest: int, sources: Sources) -> EnginePush:
    """Return arrivals as a push that begins at position `first`; `greatest` is the greatest event time before it."""
    places = [first + np.flatnonzero(arrivals.order == i) for i in range(len(arrivals.batches))]
    batches = [
        None if batch is None else _with_places(batch, arrivals.deletes.get(i), positions, sources.kept_schemas[i])
        for i, (batch, positions) in enumerate(zip(arrivals.batches, places, strict=True))
    ]
    return EnginePush(first, replace(arrivals, batches=batches), places, greatest)


def _with_places(
    batch: pa.RecordBatch, deletes: Deletes | None, places: npt.NDArray[np.int64], schema: pa.Schema
) -> pa.RecordBatch:
    """Return rows with what changes do, if the input is a table that says it, and with positions."""
    if batch.num_columns < len(schema) - 1:
        gone = np.zeros(len(batch), bool) if deletes is None else deletes
        batch = batch.append_column(schema.field(-2), pa.array(np.where(gone, DELETE, UPSERT), pa.string()))
    # This takes a third of the time of a new batch of all columns.
    return batch.append_column(schema.field(-1), pa.array(places))
