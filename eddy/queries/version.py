"""A version of a query: the results that it owns, by the positions of their components, and when it has ended.

`first` and `last` are the least and the greatest position of the components of a result.

    fresh start at s      first >= s
    warm start at s       last >= s
    immediate stop at e   last < e
    drain stop at e       first < e
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.filters.adaptive import AdaptiveFilter
from eddy.filters.conditions import Predicate
from eddy.filters.ranges import GREATEST, LEAST, Range, ranges_of
from eddy.queries.found import AGE, FIRST, LAST, Found
from eddy.queries.kept import greatest_before
from eddy.queries.sources import Push, Sources
from eddy.query.query import Query
from eddy.query.windows import Rows
from stairs.graph import WindowKind

if TYPE_CHECKING:
    from eddy.queries.family import Family

Positions = npt.NDArray[np.int64]


@dataclass
class Drain:
    """A drain stop: at a position, and what must pass until no result with an earlier component can come.

    newest  per stream the greatest event time before the position, in ticks
    counts  per stream the rows before the position
    known   whether the position was reached, so that the figures are final
    """

    at: int
    newest: list[int]
    counts: list[int]
    known: bool = False


@dataclass(eq=False)
class Version:
    """A version of a query.

    number         of the version, from 0
    start          position of its start; None: not known yet, because another version must end first
    warm           whether it may use rows before the start
    stop           position of its immediate stop, None without one
    drain          its drain stop, None without one
    ended          the position from which it has no more results, None while it may have some
    complete_from  the position from which all rows were kept, if the start is a warm one
    """

    number: int
    query: Query
    family: Family
    start: int | None
    warm: bool
    complete_from: int
    stop: int | None = None
    drain: Drain | None = None
    ended: int | None = None

    def __post_init__(self) -> None:
        columns = [*self.query.select.values(), *self.query.where_columns]
        self.needed = tuple(dict.fromkeys(f"{stream}.{column}" for stream, column in columns))
        """The columns of its results and those that `where` reads, as "stream.column"."""
        self.ranges: dict[str, list[Range]] = {stream.name: [] for stream in self.query.streams}
        """By stream its conditions as far as they are ranges, on columns named "stream.column"."""
        self._filters: dict[str, AdaptiveFilter] = {}
        self._filtered: dict[str, list[str]] = {}
        for stream in self.query.streams:
            if isinstance(stream.window, Rows):
                continue  # the family has this filter
            owner = {f"{stream.name}.{column}": stream.name for column in stream.schema.names}
            named = pa.schema(zip(owner, stream.schema.types, strict=True))
            rest = [one for one in stream.conditions if not self._read(one, stream.schema, named, owner)]
            if rest:
                self._filters[stream.name] = AdaptiveFilter(rest, place=f"stream {stream.name}: its filter")
                read = {column for one in rest for column in one.read(stream.schema)}
                self._filtered[stream.name] = [column for column in stream.schema.names if column in read]
        owner = {f"{stream}.{column}": stream for stream, column in self.query.where_columns}
        types = [self.query.stream(stream).type_of(column) for stream, column in self.query.where_columns]
        named = pa.schema(zip(owner, types, strict=True))
        rest = [one for one in self.query.conditions if not self._read(one, named, named, owner)]
        self._where = AdaptiveFilter(rest, place=self.query.where_place, rows="results") if rest else None
        filtered = {f"{stream}.{column}" for stream, own in self._filtered.items() for column in own}
        ranges = {one.column for own in self.ranges.values() for one in own}
        self.read = frozenset({*self.needed, *filtered, *ranges})
        """All columns that it reads of what its family finds, but for event times."""

    def _read(self, given: Predicate, schema: pa.Schema, named: pa.Schema, owner: Mapping[str, str]) -> bool:
        """Add the ranges of a condition; return whether it has any.

        named, owner   the columns of the schema, named "stream.column", and the stream of each
        """
        ranges = ranges_of(given, schema)
        for one in ranges or ():
            column = named.names[schema.names.index(one.column)]
            self.ranges[owner[column]].append(one._replace(column=column))
        return ranges is not None

    # Its results

    def bounds(self) -> list[Range]:
        """Return the positions of its results; it has started."""
        assert self.start is not None
        found = [Range(LAST if self.warm else FIRST, self.start, GREATEST)]
        if self.stop is not None:
            found.append(Range(LAST, LEAST, self.stop - 1))
        if self.drain is not None:
            found.append(Range(FIRST, LEAST, self.drain.at - 1))
        return found

    def within_bounds(self, found: Found, rows: Positions) -> npt.NDArray[np.bool_]:
        """Return for each of some rows whether it is within the bounds as they are now."""
        keep = np.ones(len(rows), np.bool_)
        for column, low, high, _ in self.bounds():
            places = (found.first if column == FIRST else found.last)[rows]
            keep &= (places >= low) & (places <= high)
        return keep

    def windows(self) -> list[Range]:
        """Return the greatest ages of its components, where its family has a wider window."""
        pairs = zip(self.query.streams, self.query.graph.windows, strict=True)
        return [
            Range(AGE + stream.name, LEAST, window.size)
            for stream, window in pairs
            if window.kind == WindowKind.RANGE and self.family.windows[stream.name] != window
        ]

    @property
    def asks_more(self) -> bool:
        """Whether it has conditions that are no ranges."""
        return self._where is not None or bool(self._filters)

    def accepted(self, found: Found, rows: Positions) -> Positions:
        """Return the rows for which the conditions hold that are no ranges."""
        for stream in self.query.streams:
            if stream.name in self._filters and len(rows):
                columns = self._filtered[stream.name]
                batch = found.batch([f"{stream.name}.{column}" for column in columns], rows, columns)
                rows = rows[self._filters[stream.name].accepted(batch)]
        if self._where is not None and len(rows):
            columns = list(dict.fromkeys(f"{stream}.{column}" for stream, column in self.query.where_columns))
            rows = rows[self._where.accepted(found.batch(columns, rows))]
        return rows

    def output(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the results, given the needed columns of their rows. O(columns)."""
        place = {name: k for k, name in enumerate(self.needed)}
        columns = [batch.column(place[f"{stream}.{column}"]) for stream, column in self.query.select.values()]
        return pa.Table.from_arrays(columns, schema=self.query.output_schema)

    # Its end

    def stops(self, position: int, now: int) -> None:
        """Stop at a position; the earliest one counts. `now` is the position of the next arrival."""
        self.stop = position if self.stop is None else min(self.stop, position)
        if self.stop <= now:
            self.ended = self.stop

    def drains(self, at: int, sources: Sources, newest: Sequence[int], counts: Sequence[int]) -> None:
        """Stop by draining from a position on; an earlier drain stays.

        newest, counts  per stream, the greatest event time and the number of rows so far
        """
        if self.drain is None:
            own = [sources.index(stream.name) for stream in self.query.streams]
            self.drain = Drain(at, [newest[i] for i in own], [counts[i] for i in own])

    def note(self, push: Push, sources: Sources, counts: Sequence[int]) -> None:
        """Take notice of a push; `counts` are the rows of each stream before it."""
        if self.ended is not None or (self.stop is None and self.drain is None):
            return
        if self.stop is not None and self.stop <= push.end:
            self.ended = self.stop
        if self.drain is not None and self.drain.at <= push.end:
            drained = self._drained(self.drain, push, sources, counts)
            if drained is not None:
                self.ended = drained if self.ended is None else min(self.ended, drained)

    def _drained(self, drain: Drain, push: Push, sources: Sources, counts: Sequence[int]) -> int | None:
        """Return the position from which no result with a component before the drain can come, None if not yet."""
        own = [sources.index(stream.name) for stream in self.query.streams]
        if not drain.known:
            for k, i in enumerate(own):
                drain.newest[k] = greatest_before(push, i, drain.at, drain.newest[k])
                drain.counts[k] = counts[i] + int(np.searchsorted(push.places[i], drain.at))
            drain.known = True
        passed = max(drain.at, push.first)
        for k, (i, window) in enumerate(zip(own, self.query.graph.windows, strict=True)):
            if drain.counts[k] == 0:
                continue
            if window.kind == WindowKind.RANGE:
                beyond = np.flatnonzero(push.clock - sources.graph.lateness > drain.newest[k] + window.size)
                if not len(beyond):
                    return None
                passed = max(passed, push.first + int(beyond[0]) + 1)
            elif window.kind == WindowKind.ROWS:
                missing = drain.counts[k] + window.size - counts[i]
                if missing > len(push.places[i]):
                    return None
                if missing > 0:
                    passed = max(passed, int(push.places[i][missing - 1]) + 1)
            else:
                return None
        return passed
