"""A drain stop of a version: from which position on no result with a component before it can come.

A row before the drain leaves a window of time when the watermark passes its end, and a window of rows when as many
later rows have come as the window has. Rows that the filter of a stream rejects have no place in a window of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eddy.filters.adaptive import AdaptiveFilter
from eddy.queries.sources import Push, Sources
from eddy.query.query import Query
from eddy.query.stream import Stream
from stairs.graph import FOREVER, Window, WindowKind


@dataclass
class _Window:
    """The window of a stream.

    i       number of the stream in the engine
    before  whether rows came before the drain
    newest  the greatest event time of these rows, in ticks
    since   rows since the drain that have a place in the window
    passed  the position from which none of the rows before the drain is in the window, None if not known yet
    """

    i: int
    window: Window
    stream: Stream
    filter: AdaptiveFilter | None
    before: bool
    newest: int
    since: int = 0
    passed: int | None = None

    def note(self, push: Push, at: int, lateness: int) -> None:
        """Take notice of a push, once of each that has rows."""
        places, times = push.places[self.i], push.times[self.i]
        n = int(np.searchsorted(places, at))
        self.before |= n > 0
        if times is not None and n:
            self.newest = max(self.newest, int(times[:n].max()))
        if self.passed is not None or push.end < at:
            return
        if not self.before:
            self.passed = at
        elif self.window.kind == WindowKind.ROWS:
            filling = self._filling(push, n)
            missing = self.window.size - self.since
            if missing <= len(filling):
                self.passed = int(filling[missing - 1]) + 1
            self.since += len(filling)
        elif self.window.kind == WindowKind.RANGE:
            # clock[j] is the time before position first + j.
            clock = np.concatenate([[push.clock_before], push.clock])
            beyond = np.flatnonzero(clock - lateness > self.newest + self.window.size)
            if len(beyond):
                self.passed = push.first + int(beyond[0])

    def _filling(self, push: Push, n: int) -> npt.NDArray[np.int64]:
        """Return the positions of the rows from the n-th on that have a place in the window."""
        places, batch = push.places[self.i][n:], push.batches[self.i]
        if self.filter is None or not len(places):
            return places
        assert batch is not None
        return places[self.filter.accepted(batch.slice(n).select(self.stream.schema.names))]


class Drain:
    """A drain stop at position `at`."""

    def __init__(self, at: int) -> None:
        self.at = at

    @property
    def parts(self) -> list[object]:
        """The objects whose attributes say how far it is."""
        return [self]

    def note(self, push: Push) -> int | None:
        """Take notice of a push; return the position from which the drain is over, None if that is not known."""
        return None


class DrainByTime(Drain):
    """A drain whose end follows from watermarks; newest: per stream the greatest event time before it, in ticks."""

    def __init__(self, at: int, newest: Sequence[int]) -> None:
        super().__init__(at)
        self.newest = list(newest)

    def over(self, watermark: int | None, windows: Sequence[Window]) -> bool:
        """Return whether no result with a component before the drain can come any more, by windows of time."""
        return all(
            newest == -FOREVER or (watermark is not None and watermark > newest + window.size)
            for newest, window in zip(self.newest, windows, strict=True)
        )


class DrainByWindows(Drain):
    """A drain of windows of groups, which are over when those that begin before it have been given.

    greatest   the greatest event time before the drain, in ticks, None if the drain has not been reached
    """

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.greatest: int | None = None

    def note(self, push: Push) -> int | None:
        """See `Drain.note`; only the groups know the end."""
        if self.greatest is None and push.end >= self.at:
            self.greatest = push.clock_at(self.at)
        return None


class DrainByArrivals(Drain):
    """A drain whose end follows from the arrivals, given before one of which the pushes noted here tell."""

    def __init__(self, at: int, query: Query, sources: Sources, newest: Sequence[int], counts: Sequence[int]) -> None:
        super().__init__(at)
        self._lateness = sources.graph.lateness
        self._noted = (-1, -1)
        self._windows = []
        for stream, window in zip(query.streams, query.graph.windows, strict=True):
            i = sources.index(stream.name)
            rowed = window.kind == WindowKind.ROWS and stream.conditions
            own = AdaptiveFilter(stream.conditions, place=f"stream {stream.name}: its filter") if rowed else None
            self._windows.append(_Window(i, window, stream, own, counts[i] > 0, newest[i] if counts[i] else -FOREVER))

    @property
    def parts(self) -> list[object]:
        """See `Drain.parts`."""
        return [self, *self._windows]

    def contents(self) -> list[tuple[bool, int, int, int | None]]:
        """Return how far each stream is: `before`, `newest`, `since` and `passed` of its window."""
        return [(own.before, own.newest, own.since, own.passed) for own in self._windows]

    def fill(self, contents: Sequence[tuple[bool, int, int, int | None]]) -> None:
        """Continue where another one was, given its `contents`."""
        for own, (before, newest, since, passed) in zip(self._windows, contents, strict=True):
            own.before, own.newest, own.since, own.passed = before, newest, since, passed

    def note(self, push: Push) -> int | None:
        """See `Drain.note`."""
        if self._noted != (push.first, push.end):
            for own in self._windows:
                own.note(push, self.at, self._lateness)
            self._noted = push.first, push.end
        passed = [own.passed for own in self._windows if own.passed is not None]
        return max(self.at, *passed) if len(passed) == len(self._windows) else None
