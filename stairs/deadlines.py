"""Deadlines in order: what is due when a clock passes them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stairs.storage.parts import Parts, Plain

Int64s = npt.NDArray[np.int64]
LEAST_ROOM = 64


class Queue(NamedTuple):
    """Deadlines at[first:end], ascending, with what is due at each, due[first:end]."""

    at: Int64s
    due: Int64s
    first: int
    end: int


class Deadlines:
    """Deadlines with a number that says what is due at each. Equal deadlines keep the order in which they were added.

    Most of them are added in ascending order: those that are not move the later ones. O(log n) per call, and O(1) per
    deadline that is added, moved or taken.
    """

    def __init__(self) -> None:
        self._queue = Queue(np.zeros(LEAST_ROOM, np.int64), np.zeros(LEAST_ROOM, np.int64), 0, 0)
        self._saved: tuple[Queue, Int64s, Int64s] | None = None
        """The queue before the open push, and its last deadlines, which were moved in place."""

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self._queue.at.nbytes + self._queue.due.nbytes

    @property
    def earliest(self) -> int | None:
        """The earliest deadline, None without deadlines."""
        queue = self._queue
        return int(queue.at[queue.first]) if queue.first < queue.end else None

    # Parts for another process

    def to_parts(self) -> Plain:
        """Return everything from which `load_parts` resumes."""
        return self._queue._asdict()

    def load_parts(self, parts: Parts) -> None:
        """Resume from the parts of other deadlines. Raises StateError for parts that do not fit."""
        at = parts.array("at", np.int64, (-1,))
        due = parts.array("due", np.int64, at.shape)
        end = parts.integer("end", high=len(at))
        self._queue = Queue(at, due, parts.integer("first", high=end), end)

    # A push

    def begin(self) -> None:
        """Open a push, which `undo` can revert until `commit`. One `add` may follow."""
        self._saved = self._queue, self._queue.at[:0], self._queue.due[:0]

    def commit(self) -> None:
        """Close the push."""
        self._saved = None

    def undo(self) -> None:
        """Undo the open push. It may be repeated."""
        if self._saved is None:
            return
        queue, at, due = self._saved
        queue.at[queue.end - len(at) : queue.end] = at
        queue.due[queue.end - len(at) : queue.end] = due
        self._queue = queue
        self._saved = None

    def add(self, at: Int64s, due: Int64s) -> None:
        """Add deadlines int64[n] with what is due at each, int64[n]."""
        if not len(at):
            return
        queue = self._queue
        place = queue.first + int(np.searchsorted(queue.at[queue.first : queue.end], at.min(), "right"))
        moved = queue.at[place : queue.end].copy(), queue.due[place : queue.end].copy()
        if self._saved is not None:
            self._saved = self._saved[0], *moved
        queue = _with_room(queue, len(at))
        start, end = queue.end - len(moved[0]), queue.end + len(at)
        # The moved ones come first: of equal deadlines they were added earlier.
        merged, rows = at, due
        if len(moved[0]):
            merged, rows = np.concatenate([moved[0], at]), np.concatenate([moved[1], due])
        if (merged[1:] < merged[:-1]).any():
            order = np.argsort(merged, kind="stable")
            merged, rows = merged[order], rows[order]
        queue.at[start:end], queue.due[start:end] = merged, rows
        self._queue = queue._replace(end=end)

    def take(self, now: int | None) -> tuple[Int64s, Int64s]:
        """Remove what is due before `now`, None = all of it; return the deadlines and what is due, in order."""
        queue, end = self._queue, self._queue.end
        if now is not None:
            end = queue.first + int(np.searchsorted(queue.at[queue.first : end], now))
        self._queue = queue._replace(first=end)
        return queue.at[queue.first : end].copy(), queue.due[queue.first : end].copy()


def _with_room(queue: Queue, n: int) -> Queue:
    """Return the queue with room for n more: itself, or a copy."""
    if queue.end + n <= len(queue.at):
        return queue
    live = queue.end - queue.first
    room = 2 * (live + n) + LEAST_ROOM
    at, due = np.zeros(room, np.int64), np.zeros(room, np.int64)
    at[:live], due[:live] = queue.at[queue.first : queue.end], queue.due[queue.first : queue.end]
    return Queue(at, due, 0, live)
