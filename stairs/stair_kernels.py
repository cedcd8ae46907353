"""Kernels of the STAIRs: insert, probe, promote, demote, and what keeps the ring small (layout: `stairs.stair`).

All take the arena of the SteMs, the entries of the STAIRs and x, the row of the STAIR in `states`. None checks what
it is given: a key id is one of the class and below the room for heads, a composite one live tuple of each stream of
the set.
"""

from __future__ import annotations

import numpy as np

from stairs.accelerate import inlined, jit, u64
from stairs.arena import Arena, Entries, Routes, Walk
from stairs.fields import (
    C_HEADS,
    C_NEXT,
    C_STRIDE,
    DONE,
    E_BIRTH,
    E_CLASS,
    E_COUNT,
    E_HEADS,
    E_KEY_OFFSET,
    E_KEY_PART,
    E_MASK,
    E_NEXT,
    E_PARTS0,
    E_PARTS1,
    E_RING,
    E_TAIL,
    E_UNMARKED,
    E_WIDTH,
    H_OFFSET,
    H_OPS0,
    H_OPS1,
    H_TARGET,
    NEED_ENTRIES,
    P_COLUMN,
    P_STREAM,
    R_LEAF,
    R_TRUNK,
    S_LO,
    S_MASK,
    S_RECS,
    S_WIDTH,
)
from stairs.walk_kernels import agree, head

UNMARKED = -2
"""Head of a key that was demoted: below any birth, that of a state born complete (-1) included."""
GONE = -1
"""First component of an entry that was dropped: below any low mark."""
MOST_ENTRIES = 1 << 29
"""Entries of one state. A promotion that finds more stops there."""


@inlined
def entry_at(entries: Entries, x: int, e: int) -> int:
    """Return where entry number e lies in `ring`."""
    states = entries.states
    return states[x, E_RING] + (e & states[x, E_MASK]) * states[x, E_WIDTH]


@inlined
def is_live(arena: Arena, entries: Entries, x: int, e: int) -> bool:
    """Tell whether all components of an entry are in their windows. O(streams of the set), less for a dead one."""
    states, parts = entries.states, entries.parts
    first = states[x, E_PARTS0]
    at = entry_at(entries, x, e) + 1 - first
    for k in range(first, states[x, E_PARTS1]):
        if entries.ring[u64(at + k)] < arena.streams[u64(parts[k, P_STREAM]), S_LO]:
            return False
    return True


@inlined
def key_of(arena: Arena, entries: Entries, x: int, s: int) -> int:
    """Return the key id of the composite whose key component is tuple s, -1 when that tuple can join nothing."""
    j = entries.parts[entries.states[x, E_PARTS0] + entries.states[x, E_KEY_PART], P_STREAM]
    record = arena.streams[j, S_RECS] + (s & arena.streams[j, S_MASK]) * arena.streams[j, S_WIDTH]
    return int(arena.recs[u64(record + entries.states[x, E_KEY_OFFSET] + 1)])


@inlined
def attempted(entries: Entries, x: int, kid: int) -> bool:
    """Tell whether the key is attempted: the one proof that what is stored for it is all there is."""
    return entries.heads[u64(entries.states[x, E_HEADS] + kid)] >= entries.states[x, E_BIRTH]


@inlined
def free_room(entries: Entries, x: int) -> int:
    """Return the entries that fit in the ring as it stands."""
    states = entries.states
    return states[x, E_MASK] + 1 - (states[x, E_NEXT] - states[x, E_TAIL])


@inlined
def reclaim(arena: Arena, entries: Entries, x: int) -> None:
    """Move the tail past the dead entries it meets. O(1) an entry, once."""
    tail, following = entries.states[x, E_TAIL], entries.states[x, E_NEXT]
    while tail < following and not is_live(arena, entries, x, tail):
        tail += 1
    entries.states[x, E_TAIL] = tail


@jit
def insert(arena: Arena, entries: Entries, x: int, composites: np.ndarray) -> int:
    """Store those composites whose key is attempted, pass over the others: all or, when room is short, none.

    composites   int64[n, streams of the set], sequence numbers. E_COUNT tells how many are, or would be, stored.
    """
    states, ring = entries.states, entries.ring
    n, parts = composites.shape
    key = states[x, E_KEY_PART]
    wanted = 0
    for r in range(n):
        kid = key_of(arena, entries, x, composites[r, key])
        if kid >= 0 and attempted(entries, x, kid):
            wanted += 1
    states[x, E_COUNT] = wanted
    if wanted > free_room(entries, x):
        reclaim(arena, entries, x)
        if wanted > free_room(entries, x):
            return NEED_ENTRIES
    e = states[x, E_NEXT]
    for r in range(n):
        kid = key_of(arena, entries, x, composites[r, key])
        if kid >= 0 and attempted(entries, x, kid):
            at = entry_at(entries, x, e)
            p = u64(states[x, E_HEADS] + kid)
            ring[u64(at)] = entries.heads[p]
            for k in range(parts):
                ring[u64(at + 1 + k)] = composites[r, k]
            entries.heads[p] = e
            e += 1
    states[x, E_NEXT] = e
    return DONE


@jit
def probe(arena: Arena, entries: Entries, x: int, kid: int, out: np.ndarray) -> int:
    """Write the live entries of a key, newest first, as far as there is room, and return how many there are.

    out   int64[room, streams of the set]. Dead entries met are unlinked, so that each is passed once.
    """
    states, ring, heads = entries.states, entries.ring, entries.heads
    p, tail = u64(states[x, E_HEADS] + kid), states[x, E_TAIL]
    room, parts = out.shape
    e = int(heads[p])
    newer = -1
    n = 0
    while e >= tail:
        at = entry_at(entries, x, e)
        link = int(ring[u64(at)])
        if is_live(arena, entries, x, e):
            if n < room:
                for k in range(parts):
                    out[u64(n), u64(k)] = ring[u64(at + 1 + k)]
            n += 1
            newer = at
        elif newer < 0:
            heads[p] = link
        else:
            ring[u64(newer)] = link
        e = link
    return n


@jit
def combine(arena: Arena, entries: Entries, routes: Routes, walk: Walk, x: int, kid: int) -> int:
    """Write all live combinations with a key after the newest entry, as far as there is room; return how many.

    Depth first as in `walk_kernels.probe`, newest tuples first. Links are left as they are and nothing is published.
    """
    streams, hops, candidate = arena.streams, routes.hops, walk.levels[0]
    c, parts0, parts1 = entries.states[x, E_CLASS], entries.states[x, E_PARTS0], entries.states[x, E_PARTS1]
    first, last = routes.span[0, R_TRUNK], routes.span[0, R_LEAF] - 1
    following, room = entries.states[x, E_NEXT], free_room(entries, x)
    walk.bound[c] = arena.classes[c, C_HEADS] + kid * arena.classes[c, C_STRIDE]
    found = 0
    h = first
    candidate[0] = head(arena, routes, walk, h)
    while found <= MOST_ENTRIES:
        s = candidate[h - first]
        j = u64(hops[h, H_TARGET])
        if s < streams[j, S_LO]:
            if h == first:
                return found
            h -= 1
            continue
        record = streams[j, S_RECS] + (s & streams[j, S_MASK]) * streams[j, S_WIDTH]
        candidate[h - first] = arena.recs[u64(record + hops[h, H_OFFSET])]
        walk.current[j] = s
        if not agree(arena, routes, walk, record, hops[h, H_OPS0], hops[h, H_OPS1]):
            continue
        if h < last:
            h += 1
            candidate[h - first] = head(arena, routes, walk, h)
            continue
        if found < room:
            at = entry_at(entries, x, following + found) + 1 - parts0
            for k in range(parts0, parts1):
                entries.ring[u64(at + k)] = walk.current[u64(entries.parts[k, P_STREAM])]
        found += 1
    return found


@inlined
def turn_round(entries: Entries, x: int, first: int, last: int) -> None:
    """Put entries first .. last in the opposite order."""
    ring, parts = entries.ring, entries.states[x, E_WIDTH] - 1
    while first < last:
        left, right = entry_at(entries, x, first) + 1, entry_at(entries, x, last) + 1
        for k in range(parts):
            s = ring[u64(left + k)]
            ring[u64(left + k)] = ring[u64(right + k)]
            ring[u64(right + k)] = s
        first += 1
        last -= 1


@jit
def promote(arena: Arena, entries: Entries, routes: Routes, walk: Walk, x: int, kid: int) -> int:
    """Store all live combinations of a key and mark it attempted; nothing when it is, or when room is short.

    routes   one route, trunk hops only, from the chain of the key in one SteM through all streams of the set
    E_COUNT tells how many combinations were stored or, with NEED_ENTRIES, how many need room.
    """
    states = entries.states
    states[x, E_COUNT] = 0
    if attempted(entries, x, kid):
        return DONE
    found = combine(arena, entries, routes, walk, x, kid)
    if free_room(entries, x) < found <= MOST_ENTRIES:
        reclaim(arena, entries, x)
        if found <= free_room(entries, x):
            found = combine(arena, entries, routes, walk, x, kid)
    states[x, E_COUNT] = found
    if found > free_room(entries, x) or found > MOST_ENTRIES:
        return NEED_ENTRIES
    following, link = states[x, E_NEXT], states[x, E_BIRTH]
    # Newest tuples were found first; stored last, they are probed first and the tail meets the oldest first.
    turn_round(entries, x, following, following + found - 1)
    for e in range(following, following + found):
        entries.ring[u64(entry_at(entries, x, e))] = link
        link = e
    entries.heads[u64(states[x, E_HEADS] + kid)] = link
    states[x, E_NEXT] = following + found
    if states[x, E_BIRTH] < 0:
        states[x, E_UNMARKED] -= 1
    return DONE


@jit
def demote(arena: Arena, entries: Entries, x: int, kid: int) -> int:
    """Drop the entries of a key, clear its mark and return how many entries were live."""
    states = entries.states
    if not attempted(entries, x, kid):
        return 0
    p, tail = u64(states[x, E_HEADS] + kid), states[x, E_TAIL]
    e = int(entries.heads[p])
    dropped = 0
    while e >= tail:
        at = entry_at(entries, x, e)
        if is_live(arena, entries, x, e):
            dropped += 1
            # Dead for the tail too, which would wait for the components otherwise.
            entries.ring[u64(at + 1)] = GONE
        e = int(entries.ring[u64(at)])
    entries.heads[p] = UNMARKED
    if states[x, E_BIRTH] < 0:
        states[x, E_UNMARKED] += 1
    return dropped


@jit
def count_live(arena: Arena, entries: Entries, x: int) -> int:
    """Return the number of live entries. O(entries in the ring)."""
    n = 0
    for e in range(entries.states[x, E_TAIL], entries.states[x, E_NEXT]):
        if is_live(arena, entries, x, e):
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
        if not is_live(arena, entries, x, e):
            continue
        old, new = entry_at(entries, x, e), (n & mask) * width
        p = u64(states[x, E_HEADS] + key_of(arena, entries, x, int(entries.ring[u64(old + 1 + key)])))
        # A head from before the move has an old number: below the new tail, it ends the chain.
        ring[u64(new)] = entries.heads[p]
        for k in range(1, width):
            ring[u64(new + k)] = entries.ring[u64(old + k)]
        entries.heads[p] = n
        n += 1
    states[x, E_TAIL] = following
    states[x, E_NEXT] = n


@inlined
def may_combine(arena: Arena, entries: Entries, x: int, kid: int) -> bool:
    """Tell whether each stream of the set that has the class holds a live tuple with the key."""
    c = entries.states[x, E_CLASS]
    row = arena.classes[c, C_HEADS] + kid * arena.classes[c, C_STRIDE]
    for k in range(entries.states[x, E_PARTS0], entries.states[x, E_PARTS1]):
        column = entries.parts[k, P_COLUMN]
        if column >= 0 and arena.heads[u64(row + column)] < arena.streams[entries.parts[k, P_STREAM], S_LO]:
            return False
    return True


@jit
def all_attempted(arena: Arena, entries: Entries, x: int) -> bool:
    """Tell whether every key that could have a combination is attempted. O(key ids)."""
    for kid in range(arena.classes[entries.states[x, E_CLASS], C_NEXT]):
        if not attempted(entries, x, kid) and may_combine(arena, entries, x, kid):
            return False
    return True
