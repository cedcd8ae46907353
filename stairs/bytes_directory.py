"""Interning of byte strings: a dense id for each string that a live key contains, so that keys are words of 64 bits.

A string lives while an interned key of its class contains it. A push first interns the strings of its rows; new ones
are *fresh*. When the push ends, committed or undone, `settle` counts one user for each key that the push added, and
forgets the fresh strings without a user. When the sweep recycles keys, `release` subtracts their users. A full heap is
compacted, and doubled if at least half of it is still live. An exception between two of these steps loses no string:
larger arrays are filled first and installed in one statement, and `recount` derives the counts from the keys in use.

Invariants (`stairs.checks.byte_strings`): the table holds exactly the ids that are not free; users > 0 for each of them
between pushes; strings are pairwise different; the dead bytes of the heap are those that no live string covers.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from stairs.kernels.byte_strings import (
    B_DEAD,
    B_FACTOR,
    B_FIELDS,
    B_FREE,
    B_FRESH,
    B_HEAP,
    B_NEXT,
    B_SEED,
    DONE,
    NEED_IDS,
    BytesArena,
    compact,
    copy_strings,
    intern,
    rebuild,
    recount,
    release,
    settle,
)
from stairs.memory.allowance import Allowance
from stairs.memory.arena import Bytes, Int64s
from stairs.seeds import seeds
from stairs.storage.parts import Parts, Plain, powers_of_two

Number = TypeVar("Number", bound=np.generic)

FIRST_IDS = 64
FIRST_HEAP = 1024


def read_only(array: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Return a read-only view: Arrow buffers may be writable or not, and a kernel is compiled for one kind."""
    view = array.view()
    view.flags.writeable = False
    return view


class BytesDirectory:
    """Dense, recycled ids for byte strings. A look-up costs O(bytes); memory O(live strings + strings of one push).

    >>> d = BytesDirectory()
    >>> d.intern(np.array([0, 2, 4, 6]), np.frombuffer(b"abcdab", np.uint8), np.zeros(3, np.uint8)).tolist()
    [0, 1, 0]
    """

    def __init__(self, allowance: Allowance | None = None) -> None:
        self.allowance = Allowance() if allowance is None else allowance
        self.arena = BytesArena(
            np.zeros(FIRST_HEAP, np.uint8),
            np.zeros(FIRST_IDS, np.int64),
            np.full(FIRST_IDS, -1, np.int32),
            np.zeros(FIRST_IDS, np.int64),
            np.zeros(FIRST_IDS, np.int32),
            np.full(2 * FIRST_IDS, -1, np.int32),
            np.zeros(FIRST_IDS, np.int32),
            np.zeros(FIRST_IDS, np.int32),
            np.zeros(B_FIELDS, np.int64),
        )
        self.arena.meta[[B_SEED, B_FACTOR]] = seeds(2)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arena)

    @property
    def fresh(self) -> int:
        """The number of strings that the push has brought, 0 between two pushes."""
        return int(self.arena.meta[B_FRESH])

    # Parts for another process (`eddy.live`)

    def to_parts(self) -> Plain:
        """Return everything from which `load_parts` resumes."""
        return self.arena._asdict()

    def load_parts(self, parts: Parts) -> None:
        """Resume from the parts of a directory. Raises StateError."""
        heap, start = parts.array("heap", np.uint8, (-1,)), parts.array("start", np.int64, (-1,))
        n, meta = len(start), parts.array("meta", np.int64, (B_FIELDS,))
        parts.require(powers_of_two([n]), f"room for {n} strings")
        parts.require(0 <= meta[B_FREE] <= meta[B_NEXT] <= n, f"{meta[B_FREE]} ids free of {meta[B_NEXT]}, {n} in all")
        parts.require(0 <= meta[B_DEAD] <= meta[B_HEAP] <= len(heap), f"{meta[B_HEAP]} bytes of {len(heap)} in use")
        parts.require(bool((meta[[B_SEED, B_FACTOR]] & 1).all()), "seeds of the hash that are even")
        self.arena = BytesArena(
            heap,
            start,
            parts.array("size", np.int32, (n,)),
            parts.array("hashes", np.int64, (n,)),
            parts.array("users", np.int32, (n,)),
            parts.array("table", np.int32, (2 * n,)),
            parts.array("freed", np.int32, (n,)),
            parts.array("fresh", np.int32, (n,)),
            meta,
        )

    def intern(self, offsets: Int64s, text: Bytes, dead: Bytes) -> Int64s:
        """Return the id of each row's string, int64[n]; rows marked dead get 0. O(bytes). Raises CapacityError.

        offsets   int64[n + 1] into text uint8[]
        dead      uint8[n]
        """
        ids = np.empty(len(offsets) - 1, np.int64)
        offsets, text, done = read_only(offsets), read_only(text), np.zeros(1, np.int64)
        while (status := intern(self.arena, offsets, text, dead, ids, done)) != DONE:
            if status == NEED_IDS:
                self._grow_ids()
            else:
                self._grow_heap(int(offsets[-1] - offsets[0]))
        return ids

    @property
    def most(self) -> int:
        """One more than the greatest id in use."""
        return int(self.arena.meta[B_NEXT])

    def read(self, ids: Int64s) -> tuple[Int64s, Bytes]:
        """Return the strings of ids int64[n], concatenated: (offsets int64[n + 1], bytes uint8[])."""
        offsets = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(self.arena.size[ids], out=offsets[1:])
        text = np.empty(int(offsets[-1]), np.uint8)
        copy_strings(self.arena, ids, offsets, text)
        return offsets, text

    def settle(self, used: Int64s) -> None:
        """End a push: `used` int64[] contains the ids in the keys that the push added, one entry per key."""
        settle(self.arena, used)

    def release(self, unused: Int64s) -> None:
        """Subtract users: `unused` int64[] contains the ids in recycled keys, one entry per key."""
        release(self.arena, unused)

    def recount(self, used: Int64s) -> None:
        """Recount the users: `used` int64[] contains the ids in all keys in use, one entry per key. O(strings + keys).

        The counts are correct afterwards, even if an exception interrupted a `settle` or a `release`.
        """
        recount(self.arena, used)

    def _grow_ids(self) -> None:
        old = self.arena
        room = 2 * len(old.start)
        self.allowance.ask(self.nbytes - old.heap.nbytes - old.meta.nbytes, f"room for {room} strings in keys")

        def wider(array: npt.NDArray[Number], fill: int) -> npt.NDArray[Number]:
            new = np.full(room, fill, array.dtype)
            new[: len(array)] = array
            return new

        new = old._replace(
            start=wider(old.start, 0),
            size=wider(old.size, -1),
            hashes=wider(old.hashes, 0),
            users=wider(old.users, 0),
            freed=wider(old.freed, 0),
            fresh=wider(old.fresh, 0),
            table=np.full(2 * room, -1, np.int32),
        )
        rebuild(new)
        self.arena = new

    def _grow_heap(self, extra: int) -> None:
        live = int(self.arena.meta[B_HEAP] - self.arena.meta[B_DEAD])
        room = FIRST_HEAP
        while room < 2 * live or room < live + extra:
            room *= 2
        self.allowance.ask(room - len(self.arena.heap), f"room for {room:,} bytes of strings in keys")
        heap = np.zeros(room, np.uint8)
        old = self.arena
        new = old._replace(start=old.start.copy(), meta=old.meta.copy())
        compact(new, heap)
        self.arena = new._replace(heap=heap)
