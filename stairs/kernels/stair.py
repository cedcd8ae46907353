"""Kernels of the STAIRs: insert, probe, promote, demote, complete, and what keeps the ring small (`stairs.stair`).

All take the arena of the SteMs, the entries of the STAIRs and x, the row of the STAIR in `states`. None checks what
it is given: a key id is one of the class and below the room for heads, a composite one live tuple of each stream of
the set.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    C_HEADS,
    C_NEXT,
    C_STRIDE,
    DONE,
    E_BASE,
    E_BIRTH,
    E_CLASS,
    E_COMPUTED,
    E_COUNT,
    E_DEBT,
    E_HAND,
    E_KEY_OFFSET,
    E_KEY_PART,
    E_LOWS,
    E_MARKED,
    E_MASK,
    E_NEXT,
    E_PARTS0,
    E_PARTS1,
    E_PROMOTED,
    E_ROUTE,
    E_SHORT,
    E_TAIL,
    E_UNMARKED,
    E_WIDTH,
    H_CLASS,
    H_COLUMN,
    H_STATE,
    M_SHORT,
    NEED_ENTRIES,
    P_COLUMN,
    P_STREAM,
    R_LEAF,
    R_TRUNK,
    SHORT_ENTRIES,
)
from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.hop import after, entry_at, floor, head_at, is_live, record_of, take
from stairs.kernels.memory import peek_int32, poke_int32
from stairs.memory.arena import Arena, Entries, Routes, Walk

UNMARKED = -2
"""Head of a key that was demoted: below any birth, that of a state born complete (-1) included."""
GONE = -1
"""First component of an entry that was dropped: below any low mark."""
MOST_ENTRIES = 1 << 29
"""Entries of one state. A promotion that finds more stops there."""
INCOMPLETE = -1
"""What `combine` returns when its route needs a key of a STAIR that is not attempted there."""


@inlined
def key_of(arena: Arena, entries: Entries, x: int, s: int) -> int:
    """Return the key id of the composite whose key component is tuple s, -1 when that tuple can join nothing."""
    states = entries.states
    j = entries.parts[u64(states[u64(x), E_PARTS0] + states[u64(x), E_KEY_PART]), P_STREAM]
    return np.int64(arena.recs[u64(record_of(arena, j, s) + states[u64(x), E_KEY_OFFSET] + 1)])


@inlined
def attempted(entries: Entries, x: int, kid: int) -> bool:
    """Tell whether the key is attempted: the one proof that what is stored for it is all there is."""
    return peek_int32(head_at(entries, x, kid)) >= entries.states[u64(x), E_BIRTH]


@inlined
def mark(entries: Entries, x: int, kid: int, newest: int) -> None:
    """Make `newest` the head of a key that was not attempted: it is from now on."""
    poke_int32(head_at(entries, x, kid), newest)
    if entries.states[u64(x), E_BIRTH] < 0:
        entries.states[u64(x), E_UNMARKED] -= 1
    else:
        entries.states[u64(x), E_MARKED] += 1


@inlined
def free_room(entries: Entries, x: int) -> int:
    """Return the entries that fit in the ring as it stands."""
    states = entries.states
    return states[x, E_MASK] + 1 - (states[x, E_NEXT] - states[x, E_TAIL])


@inlined
def make_slots(arena: Arena, entries: Entries, x: int, wanted: int) -> bool:
    """Free slots at the tail of the ring until so many are; False when that asks for a larger ring.

    The tail passes dead entries. A live one it meets goes on as the newest of its key: under the next number, which in
    a full ring has the slot where it lies. What links to the old number ends there now, and so it should: whatever is
    older in the chain has a lower number still. O(1) an entry passed; the ring is too small when more live entries are
    passed than are stored.
    """
    row = entries.states[u64(x)]
    while row[E_MASK] + 1 - (row[E_NEXT] - row[E_TAIL]) < wanted:
        tail = row[E_TAIL]
        if tail == row[E_NEXT]:
            return False
        if is_live(entries, x, tail):
            if row[E_NEXT] - tail != row[E_MASK] + 1 or row[E_DEBT] > row[E_MASK] >> 1:
                return False
            at = entry_at(entries, x, tail)
            p = head_at(entries, x, key_of(arena, entries, x, np.int64(peek_int32(at + 4 + 4 * row[E_KEY_PART]))))
            poke_int32(at, peek_int32(p))
            poke_int32(p, row[E_NEXT])
            row[E_NEXT] += 1
            row[E_DEBT] += 1
        row[E_TAIL] = tail + 1
    row[E_DEBT] = max(row[E_DEBT] - wanted, 0)
    return True


@jit
def insert(arena: Arena, entries: Entries, x: int, composites: np.ndarray) -> int:
    """Store those composites whose key is attempted, pass over the others: all or, when room is short, none.

    composites   int64[n, streams of the set], sequence numbers. E_COUNT tells how many are stored, E_SHORT how many
    found no room.
    """
    states = entries.states
    n, parts = composites.shape
    key = states[x, E_KEY_PART]
    wanted = 0
    for r in range(n):
        kid = key_of(arena, entries, x, composites[r, key])
        if kid >= 0 and attempted(entries, x, kid):
            wanted += 1
    states[x, E_COUNT] = wanted
    if not make_slots(arena, entries, x, wanted):
        states[x, E_SHORT] = wanted
        return NEED_ENTRIES
    e = states[x, E_NEXT]
    for r in range(n):
        kid = key_of(arena, entries, x, composites[r, key])
        if kid >= 0 and attempted(entries, x, kid):
            at, p = entry_at(entries, x, e), head_at(entries, x, kid)
            poke_int32(at, peek_int32(p))
            for k in range(parts):
                poke_int32(at + 4 + 4 * k, composites[r, k])
            poke_int32(p, e)
            e += 1
    states[x, E_NEXT] = e
    return DONE


@jit
def probe(entries: Entries, x: int, kid: int, out: np.ndarray) -> int:
    """Write the live entries of a key, newest first, as far as there is room, and return how many there are.

    out   int64[room, streams of the set]. Dead entries met are unlinked, so that each is passed once.
    """
    p, tail = head_at(entries, x, kid), entries.states[x, E_TAIL]
    room, parts = out.shape
    e = np.int64(peek_int32(p))
    newer = p
    n = 0
    while e >= tail:
        at = entry_at(entries, x, e)
        link = np.int64(peek_int32(at))
        if is_live(entries, x, e):
            if n < room:
                for k in range(parts):
                    out[u64(n), u64(k)] = peek_int32(at + 4 + 4 * k)
            n += 1
            newer = at
        else:
            poke_int32(newer, link)
        e = link
    return n


@inlined
def may_combine(arena: Arena, entries: Entries, x: int, kid: int) -> bool:
    """Tell whether each stream of the set that has the class holds a live tuple with the key."""
    states, parts = entries.states, entries.parts
    c, lows = states[x, E_CLASS], states[x, E_LOWS]
    row = arena.classes[c, C_HEADS] + kid * arena.classes[c, C_STRIDE]
    for k in range(states[x, E_PARTS0], states[x, E_PARTS1]):
        column = parts[u64(k), P_COLUMN]
        if column >= 0 and arena.heads[u64(row + column)] < entries.lows[u64(lows + parts[u64(k), P_STREAM])]:
            return False
    return True


@inlined
def combine(arena: Arena, entries: Entries, routes: Routes, walk: Walk, x: int, kid: int, route: int) -> int:
    """Write all live combinations with a key after the newest entry, as far as there is room; return how many.

    Along a route of promotion, depth first, newest tuples first. Links are left as they are and nothing is published.
    INCOMPLETE when the route leads to a STAIR whose key is not attempted.
    """
    frame, hops, states, classes = walk.frames[0], routes.hops, entries.states, arena.classes
    m, n = walk.current.shape[0], walk.bound.shape[0]
    candidate, bound = frame[0:m], frame[m : m + n]
    kids, current = frame[m + n : m + 2 * n], frame[m + 2 * n : 2 * m + 2 * n]
    lows, parts0, parts1 = states[x, E_LOWS], states[x, E_PARTS0], states[x, E_PARTS1]
    first, last = routes.span[u64(route), R_TRUNK], routes.span[u64(route), R_LEAF] - 1
    following, room, found = states[x, E_NEXT], free_room(entries, x), np.int64(0)
    by = u64(states[x, E_CLASS])
    kids[by] = kid
    bound[by] = classes[by, C_HEADS] + kid * classes[by, C_STRIDE]
    h, opening = first, True
    while h >= first and found <= MOST_ENTRIES:
        if opening:
            c, y = u64(hops[u64(h), H_CLASS]), hops[u64(h), H_STATE]
            if y < 0:
                candidate[u64(h - first)] = arena.heads[u64(bound[c] + hops[u64(h), H_COLUMN])]
            else:
                newest = np.int64(peek_int32(head_at(entries, y, kids[c])))
                if newest < states[u64(y), E_BIRTH]:
                    return INCOMPLETE
                candidate[u64(h - first)] = newest
            opening = False
        s = candidate[u64(h - first)]
        if s < floor(entries, routes, lows, h):
            h -= 1
            continue
        candidate[u64(h - first)] = after(arena, entries, routes, h, s)
        if not take(arena, entries, routes, bound, kids, current, h, s):
            continue
        if h < last:
            h += 1
            opening = True
            continue
        if found < room:
            at = entry_at(entries, x, following + found) + 4 - 4 * parts0
            for k in range(parts0, parts1):
                poke_int32(at + 4 * k, current[u64(entries.parts[u64(k), P_STREAM])])
        found += 1
    return found


@inlined
def find_all(arena: Arena, entries: Entries, routes: Routes, walk: Walk, x: int, kid: int) -> int:
    """Do what `combine` does by the shortest route that leads to complete ones: over STAIRs below, else over SteMs."""
    found = combine(arena, entries, routes, walk, x, kid, entries.states[x, E_ROUTE])
    if found == INCOMPLETE:
        found = combine(arena, entries, routes, walk, x, kid, entries.states[x, E_BASE])
    return found


@inlined
def turn_round(entries: Entries, x: int, first: int, last: int) -> None:
    """Put entries first .. last in the opposite order."""
    parts = entries.states[x, E_WIDTH] - 1
    while first < last:
        left, right = entry_at(entries, x, first), entry_at(entries, x, last)
        for _ in range(parts):
            left += 4
            right += 4
            s = peek_int32(left)
            poke_int32(left, peek_int32(right))
            poke_int32(right, s)
        first += 1
        last -= 1


@inlined
def publish(entries: Entries, x: int, kid: int, found: int) -> None:
    """Link the combinations written after the newest entry into the chain of their key and mark it attempted."""
    states = entries.states
    following, link = states[x, E_NEXT], states[x, E_BIRTH]
    # Newest tuples were found first; stored last, they are probed first and the tail meets the oldest first.
    turn_round(entries, x, following, following + found - 1)
    for e in range(following, following + found):
        poke_int32(entry_at(entries, x, e), link)
        link = e
    states[x, E_NEXT] = following + found
    states[x, E_COUNT] = found
    states[x, E_PROMOTED] += 1
    states[x, E_COMPUTED] += found
    mark(entries, x, kid, link)


@jit
def promote(arena: Arena, entries: Entries, routes: Routes, walk: Walk, x: int, kid: int) -> int:
    """Store all live combinations of a key and mark it attempted; nothing when it is, or when room is short.

    E_COUNT tells how many combinations were stored, E_SHORT with NEED_ENTRIES how many need room.
    """
    states = entries.states
    states[x, E_COUNT] = 0
    if attempted(entries, x, kid):
        return DONE
    found = np.int64(0)
    if may_combine(arena, entries, x, kid):
        found = find_all(arena, entries, routes, walk, x, kid)
        if free_room(entries, x) < found <= MOST_ENTRIES and make_slots(arena, entries, x, found):
            found = find_all(arena, entries, routes, walk, x, kid)
        if found > free_room(entries, x) or found > MOST_ENTRIES:
            states[x, E_SHORT] = max(states[x, E_SHORT], found)
            arena.meta[M_SHORT] |= SHORT_ENTRIES
            return NEED_ENTRIES
    publish(entries, x, kid, found)
    return DONE


@jit
def demote(entries: Entries, x: int, kid: int) -> int:
    """Drop the entries of a key, clear its mark and return how many entries were live."""
    states = entries.states
    if not attempted(entries, x, kid):
        return 0
    p, tail = head_at(entries, x, kid), states[x, E_TAIL]
    e = np.int64(peek_int32(p))
    dropped = 0
    while e >= tail:
        at = entry_at(entries, x, e)
        if is_live(entries, x, e):
            dropped += 1
            # Dead for the tail too, which would wait for the components otherwise.
            poke_int32(at + 4, GONE)
        e = np.int64(peek_int32(at))
    poke_int32(p, UNMARKED)
    if states[x, E_BIRTH] < 0:
        states[x, E_UNMARKED] += 1
    else:
        states[x, E_MARKED] -= 1
    return dropped


@jit
def count_live(entries: Entries, x: int) -> int:
    """Return the number of live entries. O(entries in the ring)."""
    n = 0
    for e in range(entries.states[x, E_TAIL], entries.states[x, E_NEXT]):
        if is_live(entries, x, e):
            n += 1
    return n


@jit
def move(arena: Arena, entries: Entries, x: int, ring: np.ndarray) -> None:
    """Put the live entries, in their order, into another ring, all under new numbers from the next one on.

    ring   int32[capacity * width], capacity a power of two. The old ring is left as it is; chains hold live
    entries only afterwards, and a head that had none is below the tail, which is all it takes. O(old ring).
    """
    states = entries.states
    width = states[x, E_WIDTH]
    mask = ring.shape[0] // width - 1
    tail, following, key = states[x, E_TAIL], states[x, E_NEXT], states[x, E_KEY_PART]
    n = following
    for e in range(tail, following):
        if not is_live(entries, x, e):
            continue
        old, new = entry_at(entries, x, e), (n & mask) * width
        p = head_at(entries, x, key_of(arena, entries, x, np.int64(peek_int32(old + 4 + 4 * key))))
        # A head from before the move has an old number: below the new tail, it ends the chain.
        ring[u64(new)] = peek_int32(p)
        for k in range(1, width):
            ring[u64(new + k)] = peek_int32(old + 4 * k)
        poke_int32(p, n)
        n += 1
    states[x, E_TAIL] = following
    states[x, E_NEXT] = n


@jit
def all_attempted(arena: Arena, entries: Entries, x: int) -> bool:
    """Tell whether every key that could have a combination is attempted. O(key ids)."""
    for kid in range(arena.classes[entries.states[x, E_CLASS], C_NEXT]):
        if not attempted(entries, x, kid) and may_combine(arena, entries, x, kid):
            return False
    return True


@inlined
def proven(arena: Arena, entries: Entries, x: int) -> bool:
    """Tell whether the counters prove the state complete: no key id there is lacks its mark. O(1)."""
    states = entries.states
    if states[x, E_BIRTH] < 0:
        return states[x, E_UNMARKED] == 0
    return states[x, E_MARKED] >= arena.classes[states[x, E_CLASS], C_NEXT]


@jit
def advance(arena: Arena, entries: Entries, routes: Routes, walk: Walk, x: int, looks: int, budget: int) -> int:
    """Look at the next key ids of a state, `looks` of them at most, and settle what can be settled.

    A key without a live tuple in some stream of the set has no combination: it is marked for nothing, which is how
    keys that leave the windows before they are attempted are accounted for. Of the others `budget` are promoted. When
    every key id has its mark the state is complete, and keys yet to come are attempted too, as if it were born so.
    E_COUNT: keys promoted, also when there was no room (NEED_ENTRIES) for one more.
    """
    states = entries.states
    c, done = states[x, E_CLASS], np.int64(0)
    ids = arena.classes[c, C_NEXT]
    kid = states[x, E_HAND]
    for _ in range(min(looks, ids)):
        if proven(arena, entries, x):
            break
        if kid >= ids:
            kid = np.int64(0)
        if not attempted(entries, x, kid):
            if not may_combine(arena, entries, x, kid):
                mark(entries, x, kid, states[x, E_BIRTH])
            elif done < budget:
                if promote(arena, entries, routes, walk, x, kid) != DONE:
                    states[x, E_HAND] = kid
                    states[x, E_COUNT] = done
                    return NEED_ENTRIES
                done += 1
        kid += 1
    states[x, E_HAND] = kid
    states[x, E_COUNT] = done
    if states[x, E_BIRTH] >= 0 and proven(arena, entries, x):
        states[x, E_BIRTH] = -1
        states[x, E_UNMARKED] = 0
    return DONE


@jit
def advance_all(
    arena: Arena, entries: Entries, routes: Routes, walk: Walk, rows: np.ndarray, first: int, looks: int, budget: int
) -> int:
    """Advance states rows[first:] one after the other; return the position of the one that lacked room, else -1.

    rows   int64[], rows of `states`
    """
    for r in range(first, rows.shape[0]):
        if advance(arena, entries, routes, walk, rows[r], looks, budget) != DONE:
            return r
    return -1


@jit
def promote_keys(
    arena: Arena, entries: Entries, routes: Routes, walk: Walk, rows: np.ndarray, c: int, first: int
) -> int:
    """Promote the keys of class c from `first` on, each in all states of it among rows, in their order.

    Returns the key id that lacked room in a state, -1 when all are done.
    """
    for kid in range(first, arena.classes[c, C_NEXT]):
        for r in range(rows.shape[0]):
            x = rows[r]
            if entries.states[x, E_CLASS] == c and promote(arena, entries, routes, walk, x, kid) != DONE:
                return kid
    return -1


@jit
def demote_all(arena: Arena, entries: Entries, x: int) -> int:
    """Demote every key of a state, one by one, and return how many entries were live. O(key ids + entries)."""
    dropped = 0
    for kid in range(arena.classes[entries.states[x, E_CLASS], C_NEXT]):
        dropped += demote(entries, x, kid)
    return dropped
