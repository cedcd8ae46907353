"""The heads and the ring of entries of a STAIR (`stairs.stair`): where entries lie, how they expire, how room grows.

**Expiry.** An entry is live while each of its components is live: at or above the low mark of its stream. Low marks
only rise, so a dead entry stays dead. (The exception is a push that is undone: it lowers low marks again, and the state
forgets its contents.) When the ring is full, the tail advances until a slot is free. It passes dead entries. A live
entry becomes the newest of its key: it gets the next number (`stairs.kernels.stair.pass_tail`). So each entry below the
tail is dead or has a new number: a chain may end there, and its slot may be used again. A walk skips the dead entries
of a chain. When the tail passes more live entries than are stored, the ring is too small. Its successor has at least
twice as many slots as there are live entries. So the capacity stays below four times the number of live entries plus
those about to be stored, whatever the windows, and an insert costs amortised O(1). A head whose chain was all dead then
points below the tail: the key is still attempted, and still empty.

**Growth without a pause.** A ring that is too small becomes the *old ring*, and its successor takes the entries from
number `split` on. With each entry that is stored, the tail passes MOVED entries of the old ring, in the same way as
above; so the live ones get a number in the successor. When the tail reaches `split`, the old ring is released. Until
then both rings take memory. The live entries move at once if the bound on memory forbids two rings, and if a promotion
needs a large part of the ring.

Invariants: those of the numbers and slots in `stairs.stair`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stairs.caches import VersionMove
from stairs.descriptors import (
    C_CAPACITY,
    E_BIRTH,
    E_DEBT,
    E_FROM,
    E_HEADS,
    E_MASK,
    E_NEXT,
    E_OLD,
    E_OLD_MASK,
    E_RING,
    E_SHORT,
    E_SPLIT,
    E_TAIL,
    E_WIDTH,
)
from stairs.errors import CapacityError
from stairs.kernels.stair import (
    MOST_ENTRIES,
    UNMARKED,
    count_live,
    move,
)
from stairs.key_room import power_of_two
from stairs.memory.arena import Int32s, Int64s
from stairs.memory.segments import empty
from stairs.modules import Modules
from stairs.tables import StairTables

FIRST_ROOM = 64


def new_ring(size: int) -> Int32s:
    """Return a ring of `size` zeros: the system gives such memory page by page, when it is first written."""
    return np.zeros(size, np.int32)


class Spare(NamedTuple):
    """Memory of a dropped state, for a new state on the same class; all heads in it are below `birth`.

    So no key is attempted in the new state, and the heads of key ids that were never used are -1.
    """

    heads: Int32s
    memory: Int32s
    ring: Int32s
    birth: int
    heads_address: int
    ring_address: int


class EntryRing:
    """The memory of a STAIR, which is its subclass.

    heads, ring   see `stairs.stair`
    memory        the array in which the heads lie; they grow in place up to its end
    """

    tables: StairTables
    modules: Modules
    row: int
    streams: tuple[int, ...]
    by: int
    heads: Int32s
    memory: Int32s
    ring: Int32s
    _heads_room: int
    _old: Int32s | None = None
    """The old ring, while entries move out of it."""

    @property
    def what(self) -> str:
        """Name of the state for messages."""
        names = self.modules.graph.names
        return f"STAIR {{{', '.join(names[j] for j in self.streams)}}} on class {self.by}"

    @property
    def state(self) -> Int64s:
        """Descriptor of the state: int64[E_FIELDS], a view."""
        return self.tables.entries.states[self.row]

    @property
    def slots(self) -> Int32s:
        """Ring as int32[capacity, 1 + streams of the set], a view; memory beyond the power of two is left out."""
        return self._slots(self.ring, E_MASK)

    def _slots(self, ring: Int32s, mask: int) -> Int32s:
        width = 1 + len(self.streams)
        return ring[: (int(self.state[mask]) + 1) * width].reshape(-1, width)

    def _rings(self) -> list[Int32s]:
        """Return the slots of the ring and, if there is one, of the old ring."""
        return [self.slots] if self._old is None else [self.slots, self._slots(self._old, E_OLD_MASK)]

    def entry(self, e: int) -> Int32s:
        """Return entry number e, a view: int32[1 + streams of the set], its link and its components."""
        slots = self._rings()[-1 if e < self.state[E_SPLIT] else 0]
        entry: Int32s = slots[e & (len(slots) - 1)]
        return entry

    # Room

    def spare(self, following: int, heads: int, ring: int) -> Spare:
        """Return the memory for another state; this state must not be used any more.

        following, heads, ring   its E_NEXT, E_HEADS and E_RING
        """
        if self._old is not None:
            ring = self.ring.ctypes.data
        return Spare(self.heads, self.memory, self.ring, max(following, 0), heads, ring)

    def follow(self) -> None:
        """Make room for one head per key id of the class. O(1) unless the class grew, else O(new key ids), mostly."""
        room = int(self.modules.classes[self.by, C_CAPACITY])
        if room > self._heads_room:
            before, memory = len(self.heads), self.memory
            if room > len(memory):
                memory = empty(room, self.modules.most_keys(self.by), np.int32)
                memory[:before] = self.heads
            memory[before:room] = -1
            self.heads, self.memory, self._heads_room = memory[:room], memory, room
            self.state[E_HEADS] = memory.ctypes.data
        if self._old is not None and self.state[E_TAIL] >= self.state[E_SPLIT]:
            self.state[E_SPLIT] = 0
            self._old = None

    def make_room(self, least: int) -> None:
        """Move the live entries to a ring of at least 2 * (live entries + least) slots, at once or step by step.

        After a kernel returned NEED_ENTRIES, `least` is E_SHORT. `make_room(0)` releases room that the live entries do
        not need. Raises CapacityError with nothing changed. O(1) step by step, else O(entries in the ring).
        """
        self.tables.sync()
        if self._begin_move(least):
            return
        state = self.state
        live = count_live(self.modules.arena, self.tables.entries, self.row)
        if live + least > MOST_ENTRIES:
            raise CapacityError(
                f"{self.what} would contain more than {MOST_ENTRIES} entries; narrow the windows or choose another plan"
            )
        if state[E_NEXT] + live > self.modules.renumber_at:
            self._renumber_entries()
        room = max(FIRST_ROOM, power_of_two(2 * (live + least)))
        growth = 4 * room * int(state[E_WIDTH]) - self.ring.nbytes
        if growth > 0:
            self.modules.allowance.ask(growth, f"{self.what} with {live + least} entries")
        ring = new_ring(room * int(state[E_WIDTH]))
        address = ring.ctypes.data
        move(self.modules.arena, self.tables.entries, self.row, ring)
        # The descriptor has the address of the old ring until it is written.
        self._old, self.ring = self.ring, ring
        state[[E_RING, E_MASK, E_SPLIT, E_SHORT, E_DEBT]] = address, room - 1, 0, 0, 0
        self._old = None

    def _begin_move(self, least: int) -> bool:
        """Store entries in a ring of twice the slots from now on; return False if that is not the way.

        It is if more than half of the slots have live entries, as the debt proves without a count.
        """
        state, room = self.state, self.capacity
        following = int(state[E_NEXT])
        fits = room <= MOST_ENTRIES // 4 and following + 4 * room <= self.modules.renumber_at
        if not fits or self._old is not None or not 0 < least <= room // 8 or state[E_DEBT] <= (room - 1) >> 1:
            return False
        size = 2 * room * int(state[E_WIDTH])
        try:
            self.modules.allowance.ask(4 * size, f"{self.what}: a larger ring")
        except CapacityError:
            # Without the old ring, the successor may fit.
            return False
        ring = new_ring(size)
        address, mask = ring.ctypes.data, int(state[E_MASK])
        self._old, self.ring = self.ring, ring
        state[[E_RING, E_MASK, E_SPLIT, E_OLD, E_OLD_MASK, E_SHORT, E_DEBT]] = (
            *(address, 2 * room - 1, following),
            *(int(state[E_RING]), mask, 0, 0),
        )
        return True

    def _renumber_entries(self) -> None:
        """Renumber the entries from near 0, so that their numbers stay in an int32. O(state)."""
        state, heads, rings = self.state, self.heads, self._rings()
        birth, tail, split = int(state[E_BIRTH]), int(state[E_TAIL]), int(state[E_SPLIT])
        born, room = min(birth, 0), max(map(len, rings))
        shift = max(tail - 1, 0) // room * room  # the tail stays above the birth, slots stay where they are
        # A key id that is not in use yet has head -1, which makes it attempted once the state is complete.
        empty = np.where(heads >= birth, born, -1 if birth >= 0 else UNMARKED)
        heads[:] = np.where(heads >= tail, heads - shift, empty)
        for slots in rings:
            np.maximum(slots[:, 0] - shift, born, out=slots[:, 0])
        state[[E_TAIL, E_NEXT]] -= shift
        state[[E_BIRTH, E_FROM, E_SPLIT]] = born, 0, max(split - shift, 0)

    def settle_numbers(self) -> None:
        """Renumber the entries if their numbers approach the limit of an int32. O(1) otherwise."""
        if self.state[E_NEXT] > self.modules.renumber_at:
            self._renumber_entries()

    def renumbered(self, shifts: Sequence[int]) -> None:
        """Follow the tuples: sequence number s of stream i is now s - shifts[i]. O(ring)."""
        for slots in self._rings():
            for k, j in enumerate(self.streams, 1):
                if shifts[j]:
                    np.maximum(slots[:, k] - shifts[j], -1, out=slots[:, k])

    def moved(self, move: VersionMove) -> None:
        """Follow the compaction of a table: entries with dead versions are dead. O(ring)."""
        if move.stream in self.streams:
            k = 1 + self.streams.index(move.stream)
            for slots in self._rings():
                slots[:, k] = move.moved(slots[:, k].astype(np.int64))

    @property
    def capacity(self) -> int:
        """Number of entries that fit in the ring."""
        return int(self.state[E_MASK]) + 1

    @property
    def nbytes(self) -> int:
        """Bytes of heads and ring, and of the old ring while entries move."""
        old = 0 if self._old is None else self._old.nbytes
        return self.heads.nbytes + self.ring.nbytes + old
