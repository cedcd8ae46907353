"""The different values of each group, with the number of results of each value, for functions that retract results.

A value is a row of words (`eddy.aggregates.words`): that of one input, or those of `by` and of the input of `first` and
`last`. The values of a group form a list, so that its least value is found again when the one before has left: O(values
of the group). Everything else is O(1) per value.

Invariants (`check`): the list of a group has exactly the slots whose keys begin with its slot; counts are positive.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from eddy.aggregates.directory import SlotDirectory, numbered
from eddy.aggregates.kernels import add_rows, enlist, listed
from stairs.errors import StateError
from stairs.memory.allowance import Allowance

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class ValueChange(NamedTuple):
    """Changes of values: of the group with which number, which value, and how many results had and have it."""

    numbers: Int64s
    words: Int64s
    old: Int64s
    new: Int64s


class Values:
    """The values of all groups, of `width` words each. A group is known by its slot."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.directory = SlotDirectory(1 + width, 1)
        self.heads = np.full(0, -1, np.int64)
        self.links = np.full((0, 2), -2, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.directory.nbytes + self.heads.nbytes + self.links.nbytes

    def change(self, words: Int64s, numbers: Int64s, signs: Int64s, slots: Int64s) -> ValueChange:
        """Return the changes by some rows: their values int64[n, width], the numbers of their groups, their signs.

        slots   of each group, -1 for a new one
        """
        keys = np.column_stack([numbers, words])
        places, first = numbered(keys)
        deltas = np.zeros((len(first), 1), np.int64)
        add_rows(np.ascontiguousarray(signs.reshape(-1, 1)), places, deltas)
        keys = keys[first]
        group_numbers = np.ascontiguousarray(keys[:, 0])
        stored = keys.copy()
        stored[:, 0] = slots[group_numbers]
        old = np.zeros(len(keys), np.int64)
        known = np.flatnonzero(stored[:, 0] >= 0)
        value_slots = self.directory.find(stored[known])
        old[known[value_slots >= 0]] = self.directory.cells[value_slots[value_slots >= 0], 0]
        return ValueChange(group_numbers, keys[:, 1:], old, old + deltas[:, 0])

    def of(self, slots: Int64s) -> tuple[Int64s, Int64s]:
        """Return the values of some groups: their words int64[n, width], and the place of the group in `slots`."""
        value_slots, places = np.zeros(0, np.int64), np.zeros(0, np.int64)
        if len(self.heads) and len(slots):
            n = listed(self.heads, self.links, slots, value_slots, places)
            if n:
                value_slots, places = np.empty(n, np.int64), np.empty(n, np.int64)
                listed(self.heads, self.links, slots, value_slots, places)
        return self.directory.keys[value_slots, 1:], places

    def write(self, owners: Int64s, words: Int64s, counts: Int64s, groups: int) -> None:
        """Set the counts of values of the groups in slots `owners`; 0 removes a value. The call may be repeated.

        owners   -1 for a group that is gone with its values
        groups   the number of slots of groups
        """
        there = owners >= 0
        if not there.all():
            owners, words, counts = owners[there], words[there], counts[there]
        keys = np.column_stack([owners, words])
        gone = counts <= 0
        self.make_room(groups, int(np.count_nonzero(~gone)))
        if gone.any():
            slots = self.directory.find(keys[gone])
            self.directory.remove_listed(slots, self.heads, self.links, owners[gone])
        slots = self.directory.write(keys[~gone], counts[~gone, None], np.ones(len(keys) - int(gone.sum()), np.bool_))
        enlist(self.heads, self.links, owners[~gone], slots)

    def make_room(self, groups: int, more: int, allowance: Allowance | None = None) -> None:
        """Make room for the values of so many groups, and so many further values. Raises CapacityError."""
        self.directory.make_room(more, allowance)
        if allowance is not None:
            more_bytes = 8 * max(groups - len(self.heads), 0) + 16 * max(self.directory.capacity - len(self.links), 0)
            allowance.ask(more_bytes, "lists of the values of groups")
        if len(self.heads) < groups:
            heads = np.full(groups, -1, np.int64)
            heads[: len(self.heads)] = self.heads
            self.heads = heads
        if len(self.links) < self.directory.capacity:
            links = np.full((self.directory.capacity, 2), -2, np.int64)
            links[: len(self.links)] = self.links
            self.links = links

    def check(self, groups: Int64s) -> None:
        """Raise StateError unless the invariants hold; groups: the slots of all groups. For tests."""
        self.directory.check()
        slots = self.directory.slots
        words, places = self.of(groups)
        keys = np.column_stack([groups[places], words])
        if len(keys) != len(slots) or len(numbered(keys)[1]) != len(slots) or (self.directory.find(keys) < 0).any():
            raise StateError(f"the lists of groups have {len(keys)} values of {len(slots)}")
        if (self.directory.cells[slots] <= 0).any():
            raise StateError("a value of a group is kept without a result that has it")
