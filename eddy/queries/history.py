"""The history of an engine: the control elements of all its queries, in the order in which they were given."""

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


class Event(NamedTuple):
    """A row of `HISTORY`."""

    position: int
    query: str
    version: int
    event: str
    complete_from: int


class History:
    """The elements so far.

    Their number is an attribute of its own, so a `Savepoint` copies no elements. It restores the number; elements of
    the list beyond it were taken back, and `add` drops them.
    """

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._count = 0

    def add(self, event: Event) -> None:
        """Add an element."""
        del self._events[self._count :]
        self._events.append(event)
        self._count += 1

    def resume(self, events: Sequence[Event]) -> None:
        """Continue with the elements of another one."""
        self._events, self._count = list(events), len(events)

    def table(self) -> pa.Table:
        """Return the elements, as `HISTORY` describes. O(elements)."""
        return pa.Table.from_pylist([one._asdict() for one in self._events[: self._count]], schema=HISTORY)
