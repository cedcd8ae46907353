"""A version of a query: which results it owns, by the positions of their components, and when it has ended.

`first` and `last` are the least and the greatest position of the components of a result.

    fresh start at s      first >= s
    warm start at s       last >= s
    immediate stop at e   last < e
    drain stop at e       first < e

The groups of a query with aggregates are owned by their windows (`eddy.queries.grouping`).
"""

from __future__ import annotations

from dataclasses import dataclass

from eddy.queries.sources import EnginePush
from eddy.query.query import Query


class Drain:
    """A drain stop at position `at`."""

    def __init__(self, at: int) -> None:
        self.at = at

    @property
    def parts(self) -> list[object]:
        """The objects whose attributes say how far it is."""
        return [self]

    def note(self, push: EnginePush) -> int | None:
        """Take notice of a push; return the position from which the drain is over, None if that is not known."""
        return None


@dataclass(eq=False)
class Version:
    """A version of a query.

    number         of the version, from 0
    start          position of its start; None: not known yet, because another version must end first
    warm           whether it may use rows before the start
    stop           position of its immediate stop, None without one
    drain          its drain stop, None without one
    over           the position from which its drain is over, None while that is not known
    ended          the position from which it has no more results, None while it may have some
    complete_from  the position from which all rows were kept, if the start is a warm one
    replaces       the versions to which it is the handover
    ordered        whether its results come in the order of their timestamps, also those of one arrival
    """

    number: int
    query: Query
    start: int | None
    warm: bool
    complete_from: int
    stop: int | None = None
    drain: Drain | None = None
    over: int | None = None
    ended: int | None = None
    replaces: tuple[Version, ...] = ()
    ordered: bool = False

    @property
    def bounds(self) -> tuple[int | None, int | None, int | None]:
        """The positions of its start, its immediate stop and its drain stop."""
        return self.start, self.stop, None if self.drain is None else self.drain.at

    def gives_from(self, position: int) -> bool:
        """Return whether it may have results from a position on."""
        return self.start is not None and (self.ended is None or self.ended > max(position, self.start))

    # Its end

    def stops(self, position: int, now: int) -> None:
        """Stop at a position; the earliest one counts. `now` is the position of the next arrival."""
        self.stop = position if self.stop is None else min(self.stop, position)
        if self.stop <= now:
            self._ends(self.stop)

    def note(self, push: EnginePush) -> None:
        """Take notice of a push, the first time before the results of this version are asked for."""
        if (self.stop is None and self.drain is None) or (self.ended is not None and self.ended <= push.first):
            return
        if self.stop is not None and self.stop <= push.end:
            self._ends(self.stop)
        drained = None if self.drain is None else self.drain.note(push)
        if drained is not None:
            self.drained(drained)

    def drained(self, position: int) -> None:
        """Have no more results from a position on, because the drain is over there."""
        self.over = position
        self._ends(position)

    def ended_before(self, element: int) -> bool:
        """Return whether a control element at a position finds that it has ended, and not by that element."""
        assert self.ended is not None
        drained = self.over is not None and self.over <= element
        return self.ended < element or (drained and self.drain is not None and self.drain.at < element)

    def _ends(self, position: int) -> None:
        self.ended = position if self.ended is None else min(self.ended, position)

    @property
    def parts(self) -> list[object]:
        """The objects whose attributes say what has become of it."""
        return [self] if self.drain is None else [self, *self.drain.parts]
