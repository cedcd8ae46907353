"""A version of a query: which results it owns, by the positions of their components, and when it has ended.

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

from eddy.queries.kept import greatest_before
from eddy.queries.sources import Push, Sources
from eddy.query.query import Query
from stairs.graph import WindowKind


@dataclass(frozen=True)
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
    start: int | None
    warm: bool
    complete_from: int
    stop: int | None = None
    drain: Drain | None = None
    ended: int | None = None

    @property
    def bounds(self) -> tuple[int | None, int | None, int | None]:
        """The positions of its start, its immediate stop and its drain stop."""
        return self.start, self.stop, None if self.drain is None else self.drain.at

    def gives_from(self, position: int) -> bool:
        """Return whether it may have results from a position on."""
        begun = self.start is not None and self.start != self.ended
        return begun and (self.ended is None or self.ended > position)

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
            newest = [greatest_before(push, i, drain.at, time) for i, time in zip(own, drain.newest, strict=True)]
            rows = [counts[i] + int(np.searchsorted(push.places[i], drain.at)) for i in own]
            self.drain = drain = Drain(drain.at, newest, rows, True)
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
