"""A hash table from keys of several words to slots, and the cells of each slot.

    keys   int64[capacity, words]   the key of a slot
    cells  int64[capacity, fields]  the numbers kept for it
    live   int64[capacity]          1 = the slot is in use

A change is a set of keys, each with its cells or without cells. `write` enters a change, and the call may be repeated.
So an exception between two steps does no harm: the same change, or the change that undoes it, is written from the
start.

Invariants (`check`): the table maps the key of each slot in use to the slot, and has nothing else; the capacity is at
most half of its length.
"""

from __future__ import annotations

from copy import copy

import numpy as np
import numpy.typing as npt

from eddy.aggregates.kernels import M_FIELDS, M_FREE, M_NEXT, adopt, discard, drop, find, number_rows, rehash
from stairs.errors import StateError
from stairs.memory.allowance import Allowance
from stairs.seeds import seeds

Int64s = npt.NDArray[np.int64]
LEAST_ROOM = 64


def numbered(words: Int64s) -> tuple[Int64s, Int64s]:
    """Return the number of each row's key among int64[n, w], in order of appearance, and a row for each number. O(n).

    >>> numbered(np.array([[7], [8], [7]]))
    (array([0, 1, 0]), array([0, 1]))
    """
    n = len(words)
    numbers, first = np.empty(n, np.int64), np.empty(n, np.int64)
    table = np.full(max(1 << (2 * n).bit_length(), 2), -1, np.int64)
    return numbers, first[: number_rows(np.ascontiguousarray(words), table, seeds(2), numbers, first)].copy()


class SlotDirectory:
    """Slots for keys of `words` int64 words, with `fields` cells each. O(1) per key.

    >>> d = SlotDirectory(1, 1)
    >>> d.write(np.array([[5], [6]]), np.array([[50], [60]]), np.array([True, True])).tolist()
    [0, 1]
    >>> d.find(np.array([[6], [7]])).tolist()
    [1, -1]
    """

    def __init__(self, words: int, fields: int) -> None:
        self.keys = np.zeros((LEAST_ROOM, words), np.int64)
        self.cells = np.zeros((LEAST_ROOM, fields), np.int64)
        self.live = np.zeros(LEAST_ROOM, np.int64)
        self._freed = np.zeros(LEAST_ROOM, np.int64)
        self._table = np.full(2 * LEAST_ROOM, -1, np.int64)
        self._meta = np.zeros(M_FIELDS, np.int64)
        self._seeds = seeds(2)

    def __len__(self) -> int:
        return int(self._meta[M_NEXT] - self._meta[M_FREE])

    @property
    def capacity(self) -> int:
        """The number of slots that have room."""
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in (self.keys, self.cells, self.live, self._freed, self._table))

    @property
    def slots(self) -> Int64s:
        """The slots in use, ascending. O(slots ever used)."""
        return np.flatnonzero(self.live[: self._meta[M_NEXT]])

    def find(self, keys: Int64s) -> Int64s:
        """Return the slot of each key, -1 where there is none."""
        slots = np.empty(len(keys), np.int64)
        find(self.keys, self._table, self._seeds, np.ascontiguousarray(keys), slots)
        return slots

    def make_room(self, more: int, allowance: Allowance | None = None) -> None:
        """Make room for so many further keys. O(1) per key, amortized. Raises CapacityError if it is refused."""
        wanted = len(self) + more
        if wanted <= self.capacity:
            return
        room = 1 << (wanted - 1).bit_length()
        if allowance is not None:
            allowance.ask(self.nbytes // self.capacity * (room - self.capacity), f"room for {room:,} groups or values")
        self._resize(room)

    def _resize(self, room: int) -> None:
        def longer(array: Int64s) -> Int64s:
            grown = np.zeros((room, *array.shape[1:]), np.int64)
            grown[: len(array)] = array
            return grown

        keys, live, table = longer(self.keys), longer(self.live), np.full(2 * room, -1, np.int64)
        rehash(keys, table, self._seeds, live, self._meta)
        parts = keys, longer(self.cells), live, longer(self._freed), table
        self.keys, self.cells, self.live, self._freed, self._table = parts

    def write(self, keys: Int64s, cells: Int64s, kept: npt.NDArray[np.bool_]) -> Int64s:
        """Give each kept key its cells, and remove the others. Keys are different from each other.

        Returns the slot of each kept key.
        """
        self.make_room(int(np.count_nonzero(kept)))
        wanted = np.ascontiguousarray(keys[kept])
        slots = np.empty(len(wanted), np.int64)
        adopt(self.keys, self._table, self._seeds, self._freed, self.live, self._meta, wanted, slots)
        self.cells[slots] = cells[kept]
        if len(wanted) < len(keys):
            self.remove(self.find(keys[~kept]))
        return slots

    def remove(self, slots: Int64s) -> None:
        """Remove the keys of slots in use; -1 is skipped."""
        drop(self.keys, self._table, self._seeds, self._freed, self.live, self._meta, slots)

    def remove_listed(self, slots: Int64s, heads: Int64s, links: Int64s, owners: Int64s) -> None:
        """Remove the keys of slots, and the slots from the lists of their owners (`Values`), at once."""
        arrays = self.keys, self._table, self._seeds, self._freed, self.live, self._meta
        discard(heads, links, owners, *arrays, slots)

    def with_cells(self, cells: Int64s) -> SlotDirectory:
        """Return a directory that shares all but the cells, int64[capacity, fields]."""
        other = copy(self)
        other.cells = cells
        return other

    def check(self) -> None:
        """Raise StateError unless the invariants hold. O(slots), for tests."""
        slots = self.slots
        if len(slots) != len(self) or not np.array_equal(self.find(self.keys[slots]), slots):
            raise StateError(f"a directory of {len(self)} keys does not find all of its {len(slots)} slots")
        if np.count_nonzero(self._table >= 0) != len(slots) or 2 * self.capacity > len(self._table):
            raise StateError("the table of a directory has other entries than its keys")
