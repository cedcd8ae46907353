"""The history of an engine: the control elements of all its queries, in the order in which they were given.

The start of a version that waited follows from earlier elements. It comes before elements of its query that were given
ahead for the same position or a later one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

HISTORY = pa.schema(
    [
        ("position", pa.int64()),
        ("query", pa.string()),
        ("version", pa.int32()),
        ("event", pa.string()),
        ("complete_from", pa.int64()),
    ]
)
"""Columns of `Engine.history`: where an element takes effect, the query and its newest version, the element, and the
position from which that version has all results."""


MOST = 10_000
"""Elements that a history keeps at least; beyond twice as many, older ones are dropped."""


class Event(NamedTuple):
    """A row of `HISTORY`."""

    position: int
    query: str
    version: int
    event: str
    complete_from: int


class ElementHistory:
    """The last elements, `MOST` or more.

    Their number is an attribute of its own, so an `AttributeSavepoint` copies no elements. It restores the number;
    elements of the list beyond it were taken back, and `add` drops them.
    """

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._count = 0

    def add(self, event: Event) -> None:
        """Add an element."""
        del self._events[self._count :]
        self._events.append(event)
        self._count += 1
        if self._count > 2 * MOST:
            # A list of its own, because a savepoint has the present one.
            vars(self).update(_events=self._events[-MOST:], _count=MOST)

    def add_follower(self, event: Event) -> None:
        """Add what followed by itself from earlier elements, before elements given ahead. O(elements since)."""
        place, events = self._count, self._events[: self._count]
        for k in range(self._count - 1, -1, -1):
            earlier = events[k]
            if earlier.query != event.query:
                continue
            same_version = earlier.version == event.version
            if same_version and earlier.position == event.position and earlier.event.endswith("change"):
                # The change itself starts the version, as if it had been given where it found the query stopped.
                events[k] = earlier._replace(complete_from=event.complete_from)
            if earlier.position < event.position or (same_version and earlier.event.endswith("change")):
                break
            place = k
            if same_version:
                events[k] = earlier._replace(complete_from=event.complete_from)
        # A list of its own, because a savepoint has the present one.
        self._events = [*events[:place], event, *events[place:]]
        self._count += 1

    def resume(self, events: Sequence[Event]) -> None:
        """Continue with the elements of another one."""
        self._events, self._count = list(events), len(events)

    def table(self) -> pa.Table:
        """Return the elements, as `HISTORY` describes. O(elements)."""
        return pa.Table.from_pylist([event._asdict() for event in self._events[: self._count]], schema=HISTORY)
