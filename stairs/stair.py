"""STAIR: the join of a set of streams, indexed on one attribute class; a cache over the SteMs, key by key.

For each key there are two cases. *Attempted*: the live entries stored are exactly the live combinations with that
key. *Not attempted*: nothing is stored for the key. Promote takes a key from the second case to the first and computes
its entries from the SteMs; demote takes it back. Both are correct at any moment. A composite whose key is not
attempted is not stored: other combinations with that key may exist, and a probe that found only this one would take it
for all of them. The composite is not lost, because the promotion finds it in the SteMs. Each composite that completes
while its key is attempted must be inserted, once.

    heads   int32[key ids of the class]     the newest entry of each key, and the key's mark
    ring    int32[capacity * (1 + streams)] entries: (link, a sequence number for each stream of the set, ascending)

    slot of entry e = e & (capacity - 1); entries are numbered from 0 in the order in which they were stored

    set {R, S} on class `by`, birth 4; key id 7 promoted when (r 2, s 5) and (r 2, s 6) were live, then (r 3, s 6)
    inserted; key id 8 promoted when it had no combination; key id 9 not attempted:

        heads[7] = 7      entry 7 = (link 6 | r 3, s 6)     birth = 4, tail = 5, next = 8
        heads[8] = 4      entry 6 = (link 5 | r 2, s 6)
        heads[9] = -1     entry 5 = (link 4 | r 2, s 5)

**The head contains the mark.** A key is attempted when heads[key id] >= birth. Entry number `birth` is never used, so
the head of an attempted key without entries is `birth`. A demoted key has head -2. A new birth above all existing
entries makes every key unattempted in O(1). A state born complete has birth -1; a key id never seen (head -1) is
attempted there and has no entries.

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

**Recycled key ids.** A key id is recycled when no live tuple of any stream has the key (`stairs.kernels.keys.sweep`).
Each entry of the old key has a component with that key id, from a stream of the set that has the class, and that
component was dead when the id was recycled. So the entries are dead for good, and a stale head leads to nothing. The
mark stays right in both cases: at that moment no combination has the id, so both cases require that no live entry is
stored, and later inserts respect the mark.

**Completion.** Marks are counted, so that the state can prove itself complete: no key id lacks its mark. Two things
mark a key without a probe (`stairs.kernels.promotion.advance`, a few key ids at a time). First, the key has no live
tuple in some stream of the set, so it has no combination; this accounts for keys that leave the windows before a probe
asks for them. Second, a budget promotes keys in the background. The JISC paper (sec. 4.3) instead counts down from the
number of distinct keys of a complete child; that count never reaches zero once such a key has left its window. Case 3
of the paper, in which both children are incomplete and no counter is defined, needs no special treatment here, because
key ids are counted and not the entries of children.

**Changes underneath.** The SteMs notify their caches (`stairs.caches`). When sequence numbers shift, components shift
with them. When a push is undone, the ring may contain its inserts, and may lack entries whose components are live
again; no record of either exists, so the state forgets: it makes all keys unattempted, which is always correct.

Invariants (`stairs.checks.stair`): birth < tail <= next <= max(tail, split) + capacity, a power of two; heads < next;
birth <= link < entry; each live entry is in the chain of its key, once, and that key is attempted; an attempted key has
exactly the combinations that a nested loop over all live tuples finds.
Source: Deshpande, Hellerstein, "Lifting the burden of history from adaptive query processing", VLDB 2004, for STAIR,
promote and demote. There, promote and demote move tuples from one state to another; here every state exists in
addition to the SteMs, which are always complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from stairs.descriptors import (
    C_CAPACITY,
    C_NEXT,
    E_BIRTH,
    E_CLASS,
    E_COMPUTED,
    E_COUNT,
    E_DEBT,
    E_FIELDS,
    E_FROM,
    E_HAND,
    E_HEADS,
    E_KEY_OFFSET,
    E_KEY_PART,
    E_LOWS,
    E_MARKED,
    E_MASK,
    E_NEXT,
    E_OLD,
    E_OLD_MASK,
    E_PARTS0,
    E_PARTS1,
    E_PASSED,
    E_PROMOTED,
    E_RING,
    E_SHORT,
    E_SPLIT,
    E_STORED,
    E_TAIL,
    E_UNMARKED,
    E_WIDTH,
    P_COLUMN,
    P_STREAM,
    S_LO,
    S_NEXT,
)
from stairs.errors import CapacityError, StateError
from stairs.kernels.promotion import advance
from stairs.kernels.stair import (
    MOST_ENTRIES,
    UNMARKED,
    all_attempted,
    count_live,
    demote,
    demote_all,
    move,
)
from stairs.memory.arena import Int32s, Int64s
from stairs.stems import MOST_NUMBER, power_of_two
from stairs.storage.parts import Parts, Plain
from stairs.tables import StairTables

FIRST_ROOM = 64
KEPT_STATE = [
    *(E_BIRTH, E_TAIL, E_NEXT, E_SPLIT, E_UNMARKED, E_MARKED, E_HAND),
    *(E_STORED, E_PASSED, E_PROMOTED, E_COMPUTED, E_DEBT),
]
"""Fields of the descriptor that do not follow from the rest of the state."""


def new_ring(size: int) -> Int32s:
    """Return a ring of `size` zeros: the system gives such memory page by page, when it is first written."""
    return np.zeros(size, np.int32)


class Spare(NamedTuple):
    """Memory of a dropped state, for a new state on the same class; all heads in it are below `birth`.

    So no key is attempted in the new state, and the heads of key ids that were never used are -1.
    """

    heads: Int32s
    ring: Int32s
    birth: int
    heads_address: int
    ring_address: int


class Stair:
    """The join of `streams` (two or more) indexed on class `by` (see the module).

    row         the row of its descriptor in `tables`
    complete    all keys count as attempted from the start; refused unless there is no combination yet
    track       the track whose low marks apply
    spare       memory of a dropped state to take over

    `StairStore.add` makes states. Memory: O(live entries + key ids of the class). Raises StateError for a set that
    does not fit the class, or that cannot be born complete.
    """

    def __init__(
        self,
        tables: StairTables,
        row: int,
        streams: Iterable[int],
        by: int,
        complete: bool = False,
        track: int = 0,
        spare: Spare | None = None,
    ) -> None:
        self.tables, self.row = tables, row
        self.modules = modules = tables.modules
        self.streams = tuple(sorted(set(streams)))
        self.by, self.track = by, track
        graph, members = modules.graph, np.array(self.streams)
        columns = np.array([graph.columns[by].get(j, -1) for j in self.streams])
        keyed = int((columns >= 0).argmax())
        if len(self.streams) < 2 or columns[keyed] < 0:
            raise StateError(f"{self.what}: the set needs two or more streams, one of which has the class")
        if complete and all((modules.streams[list(self.streams), S_NEXT] > self.lows).tolist()):
            raise StateError(f"{self.what} cannot be born complete: each of its streams has tuples; promote its keys")
        width = 1 + len(self.streams)
        if spare is None or complete or len(spare.ring) < FIRST_ROOM * width:
            heads: Int32s = np.full(int(modules.classes[by, C_CAPACITY]), -1, np.int32)
            ring: Int32s = np.full(FIRST_ROOM * width, -1, np.int32)
            spare = Spare(heads, ring, -1 if complete else 0, heads.ctypes.data, ring.ctypes.data)
        self.heads, self.ring, birth = spare.heads, spare.ring, spare.birth
        self._old: Int32s | None = None
        """The old ring, while entries move out of it."""
        self._heads_room = len(self.heads)
        fields = [0] * E_FIELDS
        fields[E_MASK] = (1 << ((len(self.ring) // width).bit_length() - 1)) - 1
        fields[E_WIDTH], fields[E_CLASS] = width, by
        fields[E_PARTS0] = first = row * graph.n_streams
        fields[E_PARTS1], fields[E_LOWS] = first + len(self.streams), track * graph.n_streams
        fields[E_KEY_PART] = keyed
        fields[E_KEY_OFFSET] = graph.offsets[self.streams[keyed]][by]
        fields[E_BIRTH], fields[E_TAIL], fields[E_NEXT] = birth, birth + 1, birth + 1
        fields[E_HEADS], fields[E_RING] = spare.heads_address, spare.ring_address
        self.state[:] = fields
        parts = tables.entries.parts[first : first + len(self.streams)]
        parts[:, P_STREAM], parts[:, P_COLUMN] = members, columns
        self.follow()

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
        own: Int32s = slots[e & (len(slots) - 1)]
        return own

    @property
    def lows(self) -> Int64s:
        """First sequence number that counts, per stream of the set: its low mark, or the track's mark if greater."""
        marks = self.tables.marks[self.track, list(self.streams)]
        return np.maximum(self.modules.streams[list(self.streams), S_LO], marks)

    # Parts for another process (`eddy.live`)

    def to_parts(self) -> Plain:
        """Return everything from which `load_parts` resumes."""
        return {
            "row": self.row,
            "streams": list(self.streams),
            "by": self.by,
            "track": self.track,
            "state": self.state[KEPT_STATE].tolist(),
            "heads": self.heads,
            "ring": self.ring,
            "old": np.zeros(0, np.int32) if self._old is None else self._old,
        }

    def load_parts(self, parts: Parts) -> None:
        """Resume from the numbers of a state that kept these heads and this ring. Raises StateError."""
        found = parts.integers("state", len(KEPT_STATE), low=-1)
        birth, tail, following, split = found[:4]
        parts.require(
            birth < tail <= following <= min(max(tail, split) + self.capacity, MOST_NUMBER) and split <= following,
            f"birth {birth}, tail {tail}, next {following}, split {split}, {self.capacity} slots",
        )
        if tail < split:
            old = parts.array("old", np.int32, (-1,))
            slots = len(old) // int(self.state[E_WIDTH])
            room = 1 << max(slots.bit_length() - 1, 0)
            parts.require(split - tail <= room <= slots, f"{split - tail} entries in an old ring of {slots} slots")
            self._old = old
            self.state[[E_OLD, E_OLD_MASK]] = old.ctypes.data, room - 1
        self.state[KEPT_STATE] = found

    # Room

    def spare(self) -> Spare:
        """Return the memory for another state; this state must not be used any more."""
        state = self.state
        following, heads, ring = int(state[E_NEXT]), int(state[E_HEADS]), int(state[E_RING])
        if self._old is not None:
            ring = self.ring.ctypes.data
        return Spare(self.heads, self.ring, max(following, 0), heads, ring)

    def follow(self) -> None:
        """Make room for one head per key id of the class. O(1) unless the class grew."""
        room = int(self.modules.classes[self.by, C_CAPACITY])
        if room > self._heads_room:
            longer = np.full(room, -1, np.int32)
            longer[: len(self.heads)] = self.heads
            self.heads, self._heads_room = longer, room
            self.state[E_HEADS] = longer.ctypes.data
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
        live = count_live(self.tables.entries, self.row)
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

    def _ready(self) -> None:
        self.follow()
        self.tables.sync()
        self.settle_numbers()

    # Keys

    def demote(self, kid: int) -> int:
        """Drop the entries of a key, clear its mark, and return how many entries were live. O(entries of the key).

        Raises StateError for a key id that the class does not have.
        """
        if not 0 <= kid < self.modules.classes[self.by, C_NEXT]:
            raise StateError(f"{self.what}: class {self.by} has no key id {kid}")
        self._ready()
        return int(demote(self.tables.entries, self.row, kid))

    @property
    def complete(self) -> bool:
        """Whether every key that can have a combination is attempted. O(1) if proven, else O(key ids)."""
        if self.proven:
            return True
        self.follow()
        self.tables.sync()
        return bool(all_attempted(self.modules.arena, self.tables.entries, self.row))

    @property
    def proven(self) -> bool:
        """Whether the counters prove the state complete: no key id lacks its mark. O(1)."""
        state = self.state
        if state[E_BIRTH] < 0:
            return bool(state[E_UNMARKED] == 0)
        return bool(state[E_MARKED] >= self.modules.classes[self.by, C_NEXT])

    @property
    def pending(self) -> int:
        """Number of key ids without a mark, at least the number of keys that await promotion; 0 = complete. O(1)."""
        state = self.state
        if state[E_BIRTH] < 0:
            return int(state[E_UNMARKED])
        return int(self.modules.classes[self.by, C_NEXT] - state[E_MARKED])

    def advance(self, looks: int, budget: int = 0) -> int:
        """Examine the next `looks` key ids, mark those without a combination, and promote up to `budget` others.

        Returns the number of keys promoted. When every key id has its mark, new keys will be attempted from the start,
        as if the state were born complete; they have no combination yet. O(looks + promotions). Raises CapacityError;
        the promotions made so far stand.
        """
        self._ready()
        tables, arena, walk, done = self.tables, self.modules.arena, self.modules.walk, 0
        while advance(arena, tables.entries, tables.routes, walk, self.row, looks, budget - done):
            done += int(self.state[E_COUNT])
            self.make_room(int(self.state[E_SHORT]))
        return done + int(self.state[E_COUNT])

    def settle(self) -> bool:
        """Examine every key id and return whether the state is complete; if so, its birth precedes all keys."""
        # The hand may stand anywhere. A key that was demoted in a complete state stays unattempted here.
        self.advance(int(self.modules.classes[self.by, C_NEXT]) + 1)
        return self.complete

    def promote_all(self) -> int:
        """Promote every key that can have a combination, and return how many. The state is complete afterwards.

        Raises CapacityError; the promotions made so far stand.
        """
        ids = int(self.modules.classes[self.by, C_NEXT])
        done = self.advance(ids, ids)
        self.advance(0)
        return done

    def demote_all(self) -> int:
        """Demote every key, one by one, and return how many entries were live. O(key ids + entries)."""
        self._ready()
        return int(demote_all(self.modules.arena, self.tables.entries, self.row))

    def forget(self) -> None:
        """Make every key unattempted and drop all entries. O(1); `make_room(0)` releases the room.

        The state is correct afterwards, whatever happened to it or to its SteMs: after an undone push, at a transition.
        """
        state = self.state
        birth = int(state[E_NEXT])
        state[[E_BIRTH, E_TAIL, E_NEXT]] = birth, birth + 1, birth + 1
        state[[E_MARKED, E_UNMARKED, E_SHORT]] = 0
        if self._old is not None:
            # An exception may have come before the address of its successor was written.
            slots = len(self.ring) // int(state[E_WIDTH])
            state[[E_RING, E_MASK, E_SPLIT]] = self.ring.ctypes.data, (1 << (slots.bit_length() - 1)) - 1, 0
            self._old = None

    def renumbered(self, shifts: Sequence[int]) -> None:
        """Follow the tuples: sequence number s of stream i is now s - shifts[i]. O(ring)."""
        for slots in self._rings():
            for k, j in enumerate(self.streams, 1):
                if shifts[j]:
                    np.maximum(slots[:, k] - shifts[j], -1, out=slots[:, k])

    # Sizes and counters

    @property
    def rows(self) -> int:
        """Number of live entries. O(entries in the ring)."""
        self.tables.sync()
        return int(count_live(self.tables.entries, self.row))

    @property
    def capacity(self) -> int:
        """Number of entries that fit in the ring."""
        return int(self.state[E_MASK]) + 1

    @property
    def nbytes(self) -> int:
        """Bytes of heads and ring, and of the old ring while entries move."""
        old = 0 if self._old is None else self._old.nbytes
        return self.heads.nbytes + self.ring.nbytes + old

    def counters(self) -> dict[str, int]:
        """Return counts since the creation: entries stored, composites passed on, keys promoted, entries computed."""
        names = {"stored": E_STORED, "passed": E_PASSED, "promoted": E_PROMOTED, "computed": E_COMPUTED}
        return {name: int(self.state[field]) for name, field in names.items()}
