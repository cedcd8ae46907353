"""STAIR: the join of a set of streams, indexed on one attribute class; a cache over the SteMs, key by key.

For each key there are two cases. *Attempted*: the live entries stored are exactly the live combinations with that
key. *Not attempted*: nothing is stored for it. Promote takes a key from the second case to the first, computing its
entries from the SteMs; demote takes it back. Both are correct at any moment. A composite of a key not attempted is
not stored: there may be others with that key, and who found it there would take it for all there are. It is not lost,
the promotion finds it in the SteMs. Each composite that completes while its key is attempted must be inserted, once.

    heads   int32[key ids of the class]     the newest entry of each key, and the key's mark
    ring    int32[capacity * (1 + streams)] entries: (link, a sequence number for each stream of the set, ascending)

    slot of entry e = e & (capacity - 1); entries are numbered from 0 in the order in which they were stored

    set {R, S} on class `by`, birth 4; key id 7 promoted when (r 2, s 5) and (r 2, s 6) were live, then (r 3, s 6)
    inserted; key id 8 promoted when it had no combination; key id 9 not attempted:

        heads[7] = 7      entry 7 = (link 6 | r 3, s 6)     birth = 4, tail = 5, next = 8
        heads[8] = 4      entry 6 = (link 5 | r 2, s 6)
        heads[9] = -1     entry 5 = (link 4 | r 2, s 5)

**The mark is in the head.** A key is attempted when heads[key id] >= birth. Entry number `birth` is never used, so an
attempted key without entries has head = birth. A demoted key has head -2. A new birth, above all entries there are,
makes every key unattempted in O(1). A state born complete has birth -1, with which a key id never seen (head -1) is
attempted and has no entries.

**Expiry.** An entry is live while each of its components is: at or above the low mark of its stream. Low marks only
rise, so what is dead stays dead. (The exception is a push that is undone: it puts low marks back, and the state
forgets.) When the ring is full, the tail moves on until a slot is free. It passes the dead entries it meets; a live one
goes on under the next number, as the newest of its key, in the slot where it lies (`stair_kernels.make_slots`). So all
entries below the tail are dead or have a new number: a chain may end there, and their slots may be used again, at no
loss. A walk over a chain unlinks the dead entries it meets, so that they are passed once as well. When the tail passes
more live entries than are stored, the live ones are moved, in their order, to a ring twice their number. So the
capacity stays below four times the live entries plus those about to be stored, whatever the windows, and no insert
costs more than O(1) amortised. A head whose chain was all dead then points below the tail: still attempted, still
empty.

**Key ids are used again** when no live tuple of any stream has the key (`keys_kernels.sweep`). Each entry of the old
key has a component with that key id, from a stream of the set that has the class, and it was not live when the id was
taken back. So the entries are dead for good, and a stale head leads to nothing. The mark is right too, whichever it
is: at that moment there is no combination with the id, so nothing stored is exactly what both cases ask for, and from
then on inserts keep to the mark.

**Completion.** Marks are counted, so that the state proves itself complete: when no key id there is lacks its mark. Two
things mark a key without a probe (`stair_kernels.advance`, a look at a time): it has no live tuple in some stream of
the set, so nothing is all there is, which is what happens to keys that leave the windows before anybody asks for them;
or there is a budget to promote keys in the background. The JISC paper (sec. 4.3) counts down from the distinct keys of
a complete child instead, which never gets to zero once such a key has left. Its case 3, where both children are
incomplete and no counter means anything, needs no other treatment here: key ids are counted, not entries of children.

**What changes underneath.** The SteMs tell their caches (`Modules.caches`). When sequence numbers shift, components
shift with them. When a push is undone, inserts of it may stand in the ring, and entries may have been dropped for
components that are live again; no record is kept of either, so the state forgets: all keys unattempted, which is
always correct.

Invariants (check()): birth < tail <= next <= tail + capacity, a power of two; heads < next; birth <= link < entry;
each live entry is in the chain of its key, once, and that key is attempted; an attempted key has exactly the
combinations that trying all live tuples one by one gives.
Source: Deshpande, Hellerstein, "Lifting the burden of history from adaptive query processing", VLDB 2004, for STAIR,
promote and demote; there they move tuples from one state to another, here every state is beside the SteMs, which are
always complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stairs.checks.stair import check_stair
from stairs.descriptors import (
    C_CAPACITY,
    C_NEXT,
    E_BIRTH,
    E_CLASS,
    E_COMPUTED,
    E_COUNT,
    E_DEBT,
    E_FIELDS,
    E_HAND,
    E_HEADS,
    E_KEY_OFFSET,
    E_KEY_PART,
    E_LOWS,
    E_MARKED,
    E_MASK,
    E_NEXT,
    E_PARTS0,
    E_PARTS1,
    E_PASSED,
    E_PROMOTED,
    E_RING,
    E_SHORT,
    E_STORED,
    E_TAIL,
    E_UNMARKED,
    E_WIDTH,
    NEED_ENTRIES,
    P_COLUMN,
    P_STREAM,
    S_BASE,
    S_LO,
    S_NEXT,
)
from stairs.errors import CapacityError, StateError
from stairs.kernels.stair import (
    MOST_ENTRIES,
    UNMARKED,
    advance,
    all_attempted,
    attempted,
    count_live,
    demote,
    demote_all,
    insert,
    move,
    probe,
    promote,
)
from stairs.memory.arena import Int32s, Int64s
from stairs.modules import MOST_NUMBER, power_of_two
from stairs.storage.parts import Parts, Plain

if TYPE_CHECKING:
    from stairs.store import StairStore

FIRST_ROOM = 64
KEPT_STATE = [E_BIRTH, E_TAIL, E_NEXT, E_UNMARKED, E_MARKED, E_HAND, E_STORED, E_PASSED, E_PROMOTED, E_COMPUTED, E_DEBT]
"""What of the descriptor does not follow from the rest."""


class Spare(NamedTuple):
    """Memory of a state that is gone, indexed on the same class; all heads in it are below `birth`.

    So for a state that is born there no key is attempted, and heads of key ids that were never used are -1.
    """

    heads: Int32s
    ring: Int32s
    birth: int
    heads_address: int
    ring_address: int


class Stair:
    """The join of `streams` (two or more) indexed on class `by`, one of the states of a store (see the module).

    complete    all keys count as attempted from the start; refused unless there is no combination yet
    track       which low marks it goes by
    spare       memory to begin with, so that it need not grow anew

    Made by `StairStore.add`, which also gives it its row. Memory: O(live entries + key ids of the class).
    """

    def __init__(
        self,
        store: StairStore,
        row: int,
        streams: Iterable[int],
        by: int,
        complete: bool = False,
        track: int = 0,
        spare: Spare | None = None,
    ) -> None:
        self.store, self.row = store, row
        self.modules = modules = store.modules
        self.streams = tuple(sorted(set(streams)))
        self.by, self.track = by, track
        graph, members = modules.graph, np.array(self.streams)
        columns = store.columns[by][members]
        keyed = int((columns >= 0).argmax())
        if len(self.streams) < 2 or columns[keyed] < 0:
            raise StateError(f"{self.what}: a set of two or more streams, one of which has the class, is needed")
        if complete and all((modules.streams[list(self.streams), S_NEXT] > self.lows).tolist()):
            raise StateError(f"{self.what} cannot be born complete: each of its streams has tuples; promote its keys")
        width = 1 + len(self.streams)
        if spare is None or complete or len(spare.ring) < FIRST_ROOM * width:
            heads: Int32s = np.full(int(modules.classes[by, C_CAPACITY]), -1, np.int32)
            ring: Int32s = np.full(FIRST_ROOM * width, -1, np.int32)
            spare = Spare(heads, ring, -1 if complete else 0, heads.ctypes.data, ring.ctypes.data)
        self.heads, self.ring, birth = spare.heads, spare.ring, spare.birth
        self._heads_room = len(self.heads)
        fields = [0] * E_FIELDS
        fields[E_MASK] = (1 << ((len(self.ring) // width).bit_length() - 1)) - 1
        fields[E_WIDTH], fields[E_CLASS] = width, by
        fields[E_PARTS0] = first = row * graph.n_streams
        fields[E_PARTS1], fields[E_LOWS] = first + len(self.streams), track * graph.n_streams
        fields[E_KEY_PART] = keyed
        fields[E_KEY_OFFSET] = 2 * graph.attributes[self.streams[keyed]].index(by)
        fields[E_BIRTH], fields[E_TAIL], fields[E_NEXT] = birth, birth + 1, birth + 1
        fields[E_HEADS], fields[E_RING] = spare.heads_address, spare.ring_address
        self.state[:] = fields
        parts = store.entries.parts[first : first + len(self.streams)]
        parts[:, P_STREAM], parts[:, P_COLUMN] = members, columns
        self._found: Int64s | None = None
        self.follow()

    @property
    def what(self) -> str:
        """What it is, for messages."""
        names = self.modules.graph.names
        return f"STAIR {{{', '.join(names[j] for j in self.streams)}}} on class {self.by}"

    @property
    def state(self) -> Int64s:
        """Its row of descriptors: int64[E_FIELDS]."""
        return self.store.entries.states[self.row]

    @property
    def slots(self) -> Int32s:
        """The ring as int32[capacity, 1 + streams of the set]; memory beyond a whole power of two is left out."""
        width = 1 + len(self.streams)
        return self.ring[: (int(self.state[E_MASK]) + 1) * width].reshape(-1, width)

    @property
    def lows(self) -> Int64s:
        """The sequence number from which on a tuple counts, per stream of the set: low marks, or marks of its track."""
        marks = self.store.entries.marks.reshape(-1, self.modules.graph.n_streams)[self.track, list(self.streams)]
        return np.maximum(self.modules.streams[list(self.streams), S_LO], marks)

    def publish(self) -> None:
        """Write down where heads and ring lie; after either was made anew."""
        self.state[[E_HEADS, E_RING]] = self.heads.ctypes.data, self.ring.ctypes.data

    # Kept for another process (`eddy.live.engine_file`)

    def to_parts(self) -> Plain:
        """Return all that goes on."""
        return {
            "row": self.row,
            "streams": list(self.streams),
            "by": self.by,
            "track": self.track,
            "state": self.state[KEPT_STATE].tolist(),
            "heads": self.heads,
            "ring": self.ring,
        }

    def load_parts(self, parts: Parts) -> None:
        """Go on from the numbers that a state with these heads and this ring kept."""
        found = parts.integers("state", len(KEPT_STATE), low=-1)
        birth, tail, following = found[:3]
        parts.require(
            birth < tail <= following <= min(tail + self.capacity, MOST_NUMBER),
            f"birth {birth}, tail {tail}, next {following}, {self.capacity} slots",
        )
        self.state[KEPT_STATE] = found

    # Room

    def spare(self) -> Spare:
        """Return its memory for another state; this one must not be used any more."""
        state = self.state
        following, heads, ring = int(state[E_NEXT]), int(state[E_HEADS]), int(state[E_RING])
        return Spare(self.heads, self.ring, max(following, 0), heads, ring)

    def follow(self) -> None:
        """Make room for a head of each key id the class has room for; after the class grew. O(1) when it has not."""
        room = int(self.modules.classes[self.by, C_CAPACITY])
        if room > self._heads_room:
            longer = np.full(room, -1, np.int32)
            longer[: len(self.heads)] = self.heads
            self.heads, self._heads_room = longer, room
            self.publish()

    def make_room(self, least: int) -> None:
        """Move the live entries to a ring with room for as many again and `least` more. O(entries in the ring).

        After a kernel returned NEED_ENTRIES: `least` is E_SHORT. Raises CapacityError with nothing changed.
        """
        self.store.sync()
        state = self.state
        live = count_live(self.store.entries, self.row)
        if live + least > MOST_ENTRIES:
            raise CapacityError(
                f"{self.what} would hold more than {MOST_ENTRIES} entries; narrow the windows or choose another plan"
            )
        if state[E_NEXT] + live > self.modules.renumber_at:
            self._renumber_entries()
        room = max(FIRST_ROOM, power_of_two(2 * (live + least)))
        growth = 4 * room * int(state[E_WIDTH]) - self.ring.nbytes
        if growth > 0:
            self.modules.allowance.ask(growth, f"{self.what} with {live + least} entries")
        ring: Int32s = np.full(room * int(state[E_WIDTH]), -1, np.int32)
        move(self.modules.arena, self.store.entries, self.row, ring)
        state[[E_MASK, E_SHORT, E_DEBT]] = room - 1, 0, 0
        self.ring = ring
        self.publish()

    def trim(self) -> None:
        """Give back room that the live entries do not need, after many were dropped. O(entries in the ring)."""
        self.make_room(0)

    def _renumber_entries(self) -> None:
        """Number the entries from near 0 again, so that their numbers stay in an int32. O(state)."""
        state, heads = self.state, self.heads
        birth, tail, room = int(state[E_BIRTH]), int(state[E_TAIL]), int(state[E_MASK]) + 1
        born = min(birth, 0)
        shift = max(tail - 1, 0) // room * room  # the tail stays above the birth, slots stay where they are
        # A key id yet to come has head -1, which makes it attempted once the state is complete.
        empty = np.where(heads >= birth, born, -1 if birth >= 0 else UNMARKED)
        heads[:] = np.where(heads >= tail, heads - shift, empty)
        links = self.slots[:, 0]
        np.maximum(links - shift, born, out=links)
        state[[E_TAIL, E_NEXT]] -= shift
        state[E_BIRTH] = born

    def settle_numbers(self) -> None:
        """Renumber the entries when their numbers come near the end of an int32. O(1) when they do not."""
        if self.state[E_NEXT] > self.modules.renumber_at:
            self._renumber_entries()

    def _ready(self) -> None:
        self.follow()
        self.store.sync()
        self.settle_numbers()

    def _checked(self, kid: int) -> int:
        if not 0 <= kid < self.modules.classes[self.by, C_NEXT]:
            raise StateError(f"{self.what}: class {self.by} has no key id {kid}")
        self._ready()
        return int(kid)

    # Entries of a key

    def insert(self, components: Sequence[int]) -> bool:
        """Store a composite unless its key is not attempted, and return whether it was stored. O(streams) amortised.

        components   the sequence number of a live tuple of each stream of the set, ascending by stream, that join
        """
        return self.insert_all(np.array([components], np.int64)) == 1

    def insert_all(self, composites: Int64s) -> int:
        """Store those composites whose key is attempted, in this order, and return how many those were.

        composites   int64[n, streams of the set]; each as `insert` takes it. Raises StateError when a component is not
        a live tuple, CapacityError when there is no room; then none is stored.
        """
        composites = np.ascontiguousarray(composites, np.int64)
        if composites.ndim != 2 or composites.shape[1] != len(self.streams):
            raise StateError(f"{self.what}: composites of shape {composites.shape}, not (n, {len(self.streams)})")
        if not ((composites >= self.lows) & (composites < self.modules.streams[list(self.streams), S_NEXT])).all():
            raise StateError(f"{self.what}: a component of {composites.tolist()} is not in its window")
        self._ready()
        while insert(self.modules.arena, self.store.entries, self.row, composites) == NEED_ENTRIES:
            self.make_room(int(self.state[E_SHORT]))
        return int(self.state[E_COUNT])

    def probe(self, kid: int, arrivals: bool = False) -> Int64s:
        """Return the live entries of a key: int64[n, streams of the set], newest first; sequence or arrival numbers.

        Newest first: by when they were stored, and of one promotion by their tuples in the order of its route. For a
        key that is not attempted there are none, which says nothing about its combinations. O(entries), and once for
        each dead one.
        """
        kid = self._checked(kid)
        room = self._found if self._found is not None else np.zeros((0, len(self.streams)), np.int64)
        while (n := probe(self.store.entries, self.row, kid, room)) > len(room):
            self._found = room = np.empty((power_of_two(n), len(self.streams)), np.int64)
        found = room[:n].copy()
        return found + self.modules.streams[list(self.streams), S_BASE] if arrivals else found

    def promote(self, kid: int) -> int:
        """Compute the entries of a key, mark it attempted, and return how many there are.

        From STAIRs below it where their keys are attempted, else from the SteMs. 0 and nothing done when it is
        attempted. O(chains walked + entries). Raises CapacityError with nothing changed.
        """
        kid = self._checked(kid)
        store = self.store
        while promote(self.modules.arena, store.entries, store.routes, self.modules.walk, self.row, kid):
            store.make_room()
        return int(self.state[E_COUNT])

    def demote(self, kid: int) -> int:
        """Drop the entries of a key, clear its mark, and return how many entries were live. O(entries)."""
        return int(demote(self.store.entries, self.row, self._checked(kid)))

    def is_attempted(self, kid: int) -> bool:
        """Return whether what is stored for a key is all there is. O(1)."""
        return bool(attempted(self.store.entries, self.row, self._checked(kid)))

    # All keys

    @property
    def complete(self) -> bool:
        """Whether every key that can have a combination is attempted. O(1) once proven, O(key ids) before."""
        if self.proven:
            return True
        self.follow()
        self.store.sync()
        return bool(all_attempted(self.modules.arena, self.store.entries, self.row))

    @property
    def proven(self) -> bool:
        """Whether the counters prove the state complete: no key id lacks its mark. O(1)."""
        state = self.state
        if state[E_BIRTH] < 0:
            return bool(state[E_UNMARKED] == 0)
        return bool(state[E_MARKED] >= self.modules.classes[self.by, C_NEXT])

    @property
    def pending(self) -> int:
        """Key ids without a mark: 0 = complete; an upper bound of the keys that wait for their promotion. O(1)."""
        state = self.state
        if state[E_BIRTH] < 0:
            return int(state[E_UNMARKED])
        return int(self.modules.classes[self.by, C_NEXT] - state[E_MARKED])

    def advance(self, looks: int, budget: int = 0) -> int:
        """Look at the next `looks` key ids, mark those without a combination, promote `budget` of the others.

        Returns the keys promoted. When every key id has its mark, keys yet to come are attempted too, as if the state
        were born complete: right, because there is nothing of them yet. O(looks + promotions).
        """
        self._ready()
        store, done = self.store, 0
        while advance(
            self.modules.arena, store.entries, store.routes, self.modules.walk, self.row, looks, budget - done
        ):
            done += int(self.state[E_COUNT])
            store.make_room()
        return done + int(self.state[E_COUNT])

    def settle(self) -> bool:
        """Return whether the state is complete, having looked at every key id; if so its birth is before all keys."""
        # The hand may stand anywhere; a key demoted while it is complete has to be promoted by somebody else.
        self.advance(int(self.modules.classes[self.by, C_NEXT]) + 1)
        return self.complete

    def promote_all(self) -> int:
        """Promote every key that can have a combination; return the keys promoted. Afterwards complete."""
        ids = int(self.modules.classes[self.by, C_NEXT])
        done = self.advance(ids, ids)
        self.advance(0)
        return done

    def demote_all(self) -> int:
        """Demote every key, one by one, and return how many entries were live. O(key ids + entries)."""
        self._ready()
        return int(demote_all(self.modules.arena, self.store.entries, self.row))

    def forget(self) -> None:
        """Make every key unattempted and drop all entries. O(1); `trim` gives the room back.

        Puts the state right whatever happened to it or to its SteMs: after a push was undone, at a transition.
        """
        state = self.state
        birth = int(state[E_NEXT])
        state[[E_BIRTH, E_TAIL, E_NEXT]] = birth, birth + 1, birth + 1
        state[[E_MARKED, E_UNMARKED, E_SHORT]] = 0

    def renumbered(self, shifts: Sequence[int]) -> None:
        """Follow the SteMs: sequence number s of stream i is now s - shifts[i]. O(ring)."""
        columns = self.slots[:, 1:]
        for k, j in enumerate(self.streams):
            if shifts[j]:
                np.maximum(columns[:, k] - shifts[j], -1, out=columns[:, k])

    # Looking in

    @property
    def rows(self) -> int:
        """Live entries. O(entries in the ring)."""
        self.store.sync()
        return int(count_live(self.store.entries, self.row))

    @property
    def capacity(self) -> int:
        """Entries the ring has room for."""
        return int(self.state[E_MASK]) + 1

    @property
    def nbytes(self) -> int:
        """Bytes of heads and ring."""
        return self.heads.nbytes + self.ring.nbytes

    def counters(self) -> dict[str, int]:
        """Return what was done since it was made: entries stored, passed on, keys promoted, entries computed."""
        names = {"stored": E_STORED, "passed": E_PASSED, "promoted": E_PROMOTED, "computed": E_COMPUTED}
        return {name: int(self.state[field]) for name, field in names.items()}

    def check(self) -> None:
        """Raise StateError unless all invariants hold, naming the first that does not. O(all combinations)."""
        self.follow()
        check_stair(self)
