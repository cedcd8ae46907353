"""A version of a query: the results that it owns, by the positions of their components, and when it has ended.

`first` and `last` are the least and the greatest position of the components of a result.

    fresh start at s      first >= s
    warm start at s       last >= s
    immediate stop at e   last < e
    drain stop at e       first < e
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.filters.adaptive import AdaptiveFilter
from eddy.ingest.validation import checked_times
from eddy.queries.family import Family, Found
from eddy.queries.kept import greatest_before
from eddy.queries.sources import Push, Sources
from eddy.query.query import Query
from stairs.graph import WindowKind

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
        self._where = None
        if self.query.conditions:
            self._where = AdaptiveFilter(self.query.conditions, place=self.query.where_place, rows="results")
        columns = [*self.query.select.values(), *self.query.where_columns]
        self._needed = list(dict.fromkeys(f"{stream}.{column}" for stream, column in columns))
        self._filters = {
            stream.name: AdaptiveFilter(stream.conditions, place=f"stream {stream.name}: its filter")
            for stream in self.query.streams
            if stream.conditions
        }

    # Its results

    def results(self, found: Found) -> tuple[pa.Table, Positions]:
        """Return the results of this version among what its family found, and the position of each."""
        rows = self._owned(found)
        table = found.table.select(self._needed)
        if len(rows) < len(found.rows):
            table = table.take(pa.array(rows))
        if self._where is not None and len(rows):
            (batch,) = table.combine_chunks().to_batches()
            accepted = self._where.accepted(batch)
            rows, table = rows[accepted], table.take(pa.array(accepted))
        columns = [table.column(f"{stream}.{column}") for stream, column in self.query.select.values()]
        return pa.Table.from_arrays(columns, schema=self.query.output_schema), found.last[rows]

    def _owned(self, found: Found) -> Positions:
        """Return the rows that are results but for the result filter, ascending."""
        if self.start is None or self.ended == self.start:
            return np.zeros(0, np.int64)
        rows = found.rows
        begin = found.last if self.warm else found.first
        if begin.min(initial=self.start) < self.start:
            rows = np.flatnonzero(begin >= self.start)
        if self.stop is not None:
            rows = rows[found.last[rows] < self.stop]
        if self.drain is not None:
            rows = rows[found.first[rows] < self.drain.at]
        rows = self._within_windows(found, rows)
        for stream in self.query.streams:
            if stream.name in self._filters and len(rows):
                batch = found.stream(stream.name, stream.schema.names, rows)
                rows = rows[self._filters[stream.name].accepted(batch)]
        return rows

    def _within_windows(self, found: Found, rows: Positions) -> Positions:
        """Return the rows whose components are in the windows of this query; the family may have wider ones."""
        spans = {
            stream: window.size
            for stream, window in zip(self.query.streams, self.query.graph.windows, strict=True)
            if window.kind == WindowKind.RANGE
        }
        if not len(rows) or all(self.family.windows[stream.name].size == size for stream, size in spans.items()):
            return rows
        times = {
            stream.name: checked_times(
                stream, found.stream(stream.name, [str(stream.time)], rows), self.query.time_type
            )
            for stream in self.query.streams
        }
        newest = np.maximum.reduce(list(times.values()))
        keep = np.logical_and.reduce([newest - times[stream.name] <= size for stream, size in spans.items()])
        return rows[keep]

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
        if self.ended is not None:
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
