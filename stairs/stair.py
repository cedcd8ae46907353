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

The ring has a module of its own (`stairs.entry_ring`): expiry, growth without a pause.

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
    E_PASSED,
    E_PROMOTED,
    E_RING,
    E_SHORT,
    E_SPLIT,
    E_STORED,
    E_TAIL,
    E_UNMARKED,
    E_WIDTH,
    S_LO,
    S_NEXT,
)
from stairs.entry_ring import FIRST_ROOM, EntryRing, Spare
from stairs.errors import StateError
from stairs.kernels.promotion import advance
from stairs.kernels.stair import (
    all_attempted,
    count_live,
    demote,
    demote_all,
)
from stairs.memory.arena import Int32s, Int64s
from stairs.stems import MOST_NUMBER
from stairs.storage.parts import Parts, Plain
from stairs.tables import StairTables

KEPT_STATE = [
    *(E_BIRTH, E_TAIL, E_NEXT, E_SPLIT, E_UNMARKED, E_MARKED, E_HAND),
    *(E_STORED, E_PASSED, E_PROMOTED, E_COMPUTED, E_DEBT),
]
"""Fields of the descriptor that do not follow from the rest of the state."""

FIRST_FIELDS = [E_MASK, E_WIDTH, E_CLASS, E_LOWS, E_KEY_PART, E_KEY_OFFSET, E_BIRTH, E_HEADS, E_RING]
"""Fields of the descriptor that a new state decides; in E_LOWS its track, in E_BIRTH the last number before it."""


class NewState(NamedTuple):
    """A state to be added (see `Stair`): its streams, ascending, and the class it is indexed on.

    complete   all keys count as attempted from the start; refused unless there is no combination yet
    track      the track whose low marks apply
    """

    streams: tuple[int, ...]
    by: int
    complete: bool = False
    track: int = 0


class Stair(EntryRing):
    """The join of `streams` (two or more) indexed on class `by` (see the module).

    row   the row of its descriptor in `tables`

    `StairStore.add` makes states: it gives them memory (`begin`), and writes their descriptors. Memory: O(live entries
    + key ids of the class). Raises StateError for a set that does not fit the class, or that cannot be born complete.
    """

    def __init__(self, tables: StairTables, row: int, new: NewState) -> None:
        self.tables, self.row = tables, row
        self.modules = modules = tables.modules
        self.streams, self.by, complete, self.track = new
        columns = modules.graph.columns[self.by]
        self._keyed = next((k for k, j in enumerate(self.streams) if j in columns), -1)
        if len(self.streams) < 2 or self._keyed < 0:
            raise StateError(f"{self.what}: the set needs two or more streams, one of which has the class")
        if complete and all((modules.streams[list(self.streams), S_NEXT] > self.lows).tolist()):
            raise StateError(f"{self.what} cannot be born complete: each of its streams has tuples; promote its keys")

    def begin(self, spare: Spare | None, complete: bool = False) -> tuple[int, ...]:
        """Take over the memory of a dropped state, or new memory; return the descriptor's FIRST_FIELDS."""
        width = 1 + len(self.streams)
        if spare is None or complete or len(spare.ring) < FIRST_ROOM * width:
            heads: Int32s = np.full(int(self.modules.classes[self.by, C_CAPACITY]), -1, np.int32)
            ring: Int32s = np.full(FIRST_ROOM * width, -1, np.int32)
            spare = Spare(heads, heads, ring, -1 if complete else 0, heads.ctypes.data, ring.ctypes.data)
        self.heads, self.memory, self.ring, birth, heads_address, ring_address = spare
        self._heads_room = len(self.heads)
        mask = (1 << ((len(self.ring) // width).bit_length() - 1)) - 1
        offset = self.modules.graph.offsets[self.streams[self._keyed]][self.by]
        return mask, width, self.by, self.track, self._keyed, offset, birth, heads_address, ring_address

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
        numbers = parts.integers("state", len(KEPT_STATE), low=-1)
        birth, tail, following, split = numbers[:4]
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
        self.state[KEPT_STATE] = numbers

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
        return int(demote(self.modules.arena, self.tables.entries, self.row, kid))

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

    # Sizes and counters

    @property
    def rows(self) -> int:
        """Number of live entries. O(entries in the ring)."""
        self.tables.sync()
        return int(count_live(self.modules.arena, self.tables.entries, self.row))

    def counters(self) -> dict[str, int]:
        """Return counts since the creation: entries stored, composites passed on, keys promoted, entries computed."""
        names = {"stored": E_STORED, "passed": E_PASSED, "promoted": E_PROMOTED, "computed": E_COMPUTED}
        return {name: int(self.state[field]) for name, field in names.items()}
