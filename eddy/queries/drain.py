"""A drain stop of a version: from which position on no result with a component before it can come.

A row before the drain leaves a window of time when the watermark passes its end, and a window of rows when as many
later rows have come as the window has. Rows that the filter of a stream rejects have no place in a window of rows, nor
has a row before a fresh start a place in a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eddy.filters.adaptive import AdaptiveFilter
from eddy.queries.kept import KeptRows
from eddy.queries.sources import EnginePush, Sources
from eddy.queries.version import Drain, Version
from eddy.streams.stream import Stream
from stairs.graph import FOREVER, Window, WindowKind


@dataclass
class _Window:
    """The window of a stream.

    i       number of the stream in the engine
    before  whether rows came before the drain
    newest  of a window of time, the greatest event time of these rows in ticks; of a window of rows, the position of
            the newest of them that has a place in it; -FOREVER without any
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

    def note(self, push: EnginePush, at: int) -> None:
        """Take notice of a push, once of each that has rows."""
        places, times = push.places[self.i], push.times[self.i]
        n = int(np.searchsorted(places, at))
        self.before |= n > 0
        counts = self.window.kind == WindowKind.ROWS
        filling = self._filling(push) if counts and self.passed is None else places[:0]
        earlier = int(np.searchsorted(filling, at))
        if counts and earlier:
            self.newest = int(filling[earlier - 1])
        elif times is not None and n and not counts:
            self.newest = max(self.newest, int(times[:n].max()))
        if self.passed is not None or push.end < at:
            return
        if not self.before:
            self.passed = at
        elif counts:
            missing = self.window.size - self.since
            if missing <= len(filling) - earlier:
                self.passed = int(filling[earlier + missing - 1]) + 1
            self.since += len(filling) - earlier
        elif self.window.kind == WindowKind.RANGE:
            beyond = np.flatnonzero(push.watermarks > self.newest + self.window.size)
            if len(beyond):
                self.passed = push.first + int(beyond[0])
        if push.ends and self.passed is None:
            self.passed = push.end

    def passed_from(self, oldest: int | None, at: int) -> int | None:
        """Return from where no result has a row before the drain, given the oldest row that results may have."""
        unused = self.window.kind == WindowKind.ROWS and oldest is not None and self.newest < oldest
        return at if unused else self.passed

    def _filling(self, push: EnginePush) -> npt.NDArray[np.int64]:
        """Return the positions of the rows that have a place in the window."""
        places, batch = push.places[self.i], push.batches[self.i]
        if self.filter is None or not len(places):
            return places
        assert batch is not None
        return places[self.filter.divided(batch.select(self.stream.schema.names))[0]]


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

    def note(self, push: EnginePush) -> int | None:
        """See `Drain.note`; only the groups know the end."""
        if self.greatest is None and push.end >= self.at:
            self.greatest = push.clock_at(self.at)
        return None


class DrainByArrivals(Drain):
    """A drain whose end follows from the arrivals, given before one of which the pushes noted here tell."""

    def __init__(
        self, at: int, version: Version, sources: Sources, newest: Sequence[int], kept: Sequence[KeptRows] | None
    ) -> None:
        """See `drain_version`; without the rows that are kept, `fill` follows."""
        super().__init__(at)
        self._version = version
        self._noted: tuple[int, ...] = ()
        self._windows = []
        for stream, window in zip(version.query.streams, version.query.graph.windows, strict=True):
            i = sources.index(stream.name)
            counts = window.kind == WindowKind.ROWS
            row_filter = None
            if counts and stream.conditions:
                row_filter = AdaptiveFilter(stream.conditions, place=f"{stream.place}: its filter")
            before, latest = False, None
            if kept is not None:
                before, latest = kept[i].count > 0, kept[i].newest(row_filter) if counts else newest[i]
            self._windows.append(_Window(i, window, stream, row_filter, before, -FOREVER if latest is None else latest))

    @property
    def parts(self) -> list[object]:
        """See `Drain.parts`."""
        return [self, *self._windows]

    def contents(self) -> list[tuple[bool, int, int, int | None]]:
        """Return how far each stream is: `before`, `newest`, `since` and `passed` of its window."""
        return [(window.before, window.newest, window.since, window.passed) for window in self._windows]

    def fill(self, contents: Sequence[tuple[bool, int, int, int | None]]) -> None:
        """Continue where another one was, given its `contents`."""
        for window, (before, newest, since, passed) in zip(self._windows, contents, strict=True):
            window.before, window.newest, window.since, window.passed = before, newest, since, passed

    def note(self, push: EnginePush) -> int | None:
        """See `Drain.note`. It may be called again once the start of the version is known."""
        # Pushes without rows may follow each other, with later watermarks.
        push_number = (push.first, push.end, push.watermark_at(push.end), push.ends)
        if self._noted != push_number:
            for window in self._windows:
                window.note(push, self.at)
            self._noted = push_number
        if push.end < self.at:
            return None
        version = self._version
        # Nothing is known of a version that waits. A warm one has all rows that are kept.
        oldest = version.start if not version.warm else 0
        known = [stream_window.passed_from(oldest, self.at) for stream_window in self._windows]
        passed = [position for position in known if position is not None]
        return max(self.at, *passed) if len(passed) == len(self._windows) else None


def drain_version(version: Version, at: int, sources: Sources, newest: Sequence[int], kept: Sequence[KeptRows]) -> None:
    """Have a version stop by draining from a position on; the earliest drain counts.

    newest, kept  per stream of the engine, the greatest event time and the rows that are kept
    """
    if version.drain is None or at < version.drain.at:
        grouped = version.query.aggregation is not None
        version.drain = DrainByWindows(at) if grouped else DrainByArrivals(at, version, sources, newest, kept)
