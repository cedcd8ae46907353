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
from eddy.queries.drain import Drain
from eddy.queries.family import Family, Found
from eddy.queries.sources import Push, Sources
from eddy.query.query import Query
from stairs.graph import WindowKind

Positions = npt.NDArray[np.int64]


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
        table = found.table.select(self._needed).take(pa.array(rows))
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
            if window.kind == WindowKind.RANGE and window != self.family.windows[stream.name]
        }
        if not len(rows) or not spans:
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
            self._ends(self.stop)

    def drains(self, at: int, sources: Sources, newest: Sequence[int], counts: Sequence[int]) -> None:
        """Stop by draining from a position on; the earliest drain counts.

        newest, counts  per stream, the greatest event time and the number of rows so far
        """
        if self.drain is None or at < self.drain.at:
            self.drain = Drain(at, self.query, sources, newest, counts)

    def note(self, push: Push) -> None:
        """Take notice of a push, the first time before the results of this version are asked for."""
        if self.ended is not None and self.ended <= push.first:
            return
        if self.stop is not None and self.stop <= push.end:
            self._ends(self.stop)
        drained = None if self.drain is None else self.drain.note(push)
        if drained is not None:
            self._ends(drained)

    def _ends(self, position: int) -> None:
        self.ended = position if self.ended is None else min(self.ended, position)
