"""Kernels of one STAIR: the marks of its keys, and its ring of entries (`stairs.stair`, `stairs.entry_ring`).

All take the entries of the STAIRs and x, the row of the STAIR in `states`; some take the arena of the SteMs. None
checks its arguments: a key id belongs to the class and is below the room for heads.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    C_HEADS,
    C_NEXT,
    C_STRIDE,
    E_BIRTH,
    E_CLASS,
    E_DEBT,
    E_KEY_OFFSET,
    E_KEY_PART,
    E_LOWS,
    E_MARKED,
    E_MASK,
    E_NEXT,
    E_PARTS0,
    E_PARTS1,
    E_SPLIT,
    E_TAIL,
    E_UNMARKED,
    E_WIDTH,
    P_COLUMN,
    P_STREAM,
)
from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.hop import entry_at, head_at, is_live, record_of
from stairs.kernels.memory import peek_int32, poke_int32
from stairs.memory.arena import Arena, Entries

UNMARKED = -2
"""Head of a demoted key: below any birth, including that of a state born complete (-1)."""
GONE = -1
"""First component of a dropped entry: below any low mark."""
MOVED = 2
"""Entries that leave the old ring for each entry stored: the old ring is empty before its successor is full."""
MOST_ENTRIES = 1 << 29
"""Largest number of entries of one state. A promotion that finds more stops there."""


@inlined
def key_of(arena: Arena, entries: Entries, x: int, s: int) -> int:
    """Return the key id of the composite whose key component is tuple s, -1 when that tuple can join nothing."""
    states = entries.states
    j = entries.parts[u64(states[u64(x), E_PARTS0] + states[u64(x), E_KEY_PART]), P_STREAM]
    return np.int64(arena.recs[u64(record_of(arena, j, s) + states[u64(x), E_KEY_OFFSET] + 1)])


@inlined
def attempted(entries: Entries, x: int, kid: int) -> bool:
    """Return whether the key is attempted, the only proof that all of its combinations are stored."""
    return peek_int32(head_at(entries, x, kid)) >= entries.states[u64(x), E_BIRTH]


@inlined
def mark(entries: Entries, x: int, kid: int, newest: int) -> None:
    """Make `newest` the head of a key that was not attempted, which marks the key as attempted."""
    poke_int32(head_at(entries, x, kid), newest)
    if entries.states[u64(x), E_BIRTH] < 0:
        entries.states[u64(x), E_UNMARKED] -= 1
    else:
        entries.states[u64(x), E_MARKED] += 1


@inlined
def proven(arena: Arena, entries: Entries, x: int) -> bool:
    """Return whether the counters prove the state complete: no key id lacks its mark. O(1)."""
    states = entries.states
    if states[x, E_BIRTH] < 0:
        return states[x, E_UNMARKED] == 0
    return states[x, E_MARKED] >= arena.classes[states[x, E_CLASS], C_NEXT]


@inlined
def free_room(entries: Entries, x: int) -> int:
    """Return the number of entries that fit in the ring without freeing slots."""
    row = entries.states[u64(x)]
    return row[E_MASK] + 1 - (row[E_NEXT] - max(row[E_TAIL], row[E_SPLIT]))


@inlined
def pass_tail(arena: Arena, entries: Entries, x: int) -> bool:
    """Advance the tail by one entry; return whether that is live.

    A live entry becomes the newest of its key: it gets the next number. In a full ring the next number has the slot of
    the entry. Otherwise the entry is copied to the next slot, which must be free. A link to the old number now ends its
    chain; that is correct, because every older entry of the chain has a still lower number.
    """
    row = entries.states[u64(x)]
    tail = row[E_TAIL]
    row[E_TAIL] = tail + 1
    if not is_live(arena, entries, x, tail):
        return False
    at, to = entry_at(entries, x, tail), entry_at(entries, x, row[E_NEXT])
    p = head_at(entries, x, key_of(arena, entries, x, np.int64(peek_int32(at + 4 + 4 * row[E_KEY_PART]))))
    poke_int32(to, peek_int32(p))
    if to != at:
        for k in range(1, row[E_WIDTH]):
            poke_int32(to + 4 * k, peek_int32(at + 4 * k))
    poke_int32(p, row[E_NEXT])
    row[E_NEXT] += 1
    return True


@inlined
def follow_up(arena: Arena, entries: Entries, x: int, stored: int) -> None:
    """Move MOVED entries out of the old ring, if there is one, for each of `stored` entries."""
    row = entries.states[u64(x)]
    for _ in range(MOVED * stored):
        if row[E_TAIL] >= row[E_SPLIT] or free_room(entries, x) == 0:
            return
        pass_tail(arena, entries, x)


@inlined
def make_slots(arena: Arena, entries: Entries, x: int, wanted: int) -> bool:
    """Advance the tail until `wanted` slots are free; return False if that needs a larger ring.

    O(1) per entry passed; the ring is too small when the tail passes more live entries than are stored.
    """
    row = entries.states[u64(x)]
    if row[E_TAIL] < row[E_SPLIT]:
        follow_up(arena, entries, x, wanted)
    while free_room(entries, x) < wanted:
        if row[E_TAIL] == row[E_NEXT] or row[E_TAIL] < row[E_SPLIT] or row[E_DEBT] > row[E_MASK] >> 1:
            return False
        row[E_DEBT] += pass_tail(arena, entries, x)
    row[E_DEBT] = max(row[E_DEBT] - wanted, 0)
    return True


@jit
def demote(arena: Arena, entries: Entries, x: int, kid: int) -> int:
    """Drop the entries of a key, clear its mark and return how many entries were live."""
    states = entries.states
    if not attempted(entries, x, kid):
        return 0
    p, tail = head_at(entries, x, kid), states[x, E_TAIL]
    e = np.int64(peek_int32(p))
    dropped = 0
    while e >= tail:
        at = entry_at(entries, x, e)
        if is_live(arena, entries, x, e):
            dropped += 1
            # The tail must see a dead entry; otherwise it would wait until a component leaves its window.
            poke_int32(at + 4, GONE)
        e = np.int64(peek_int32(at))
    poke_int32(p, UNMARKED)
    if states[x, E_BIRTH] < 0:
        states[x, E_UNMARKED] += 1
    else:
        states[x, E_MARKED] -= 1
    return dropped


@jit
def demote_all(arena: Arena, entries: Entries, x: int) -> int:
    """Demote every key of a state, one by one, and return how many entries were live. O(key ids + entries)."""
    dropped = 0
    for kid in range(arena.classes[entries.states[x, E_CLASS], C_NEXT]):
        dropped += demote(arena, entries, x, kid)
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
    """Move the live entries, in their order, to another ring, under new numbers from the next one on. O(old ring).

    ring   int32[capacity * width], capacity a power of two. The old ring keeps its contents. Afterwards chains contain
           live entries only, and the head of a key without live entries is below the tail, which ends its chain.
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
        p = head_at(entries, x, key_of(arena, entries, x, np.int64(peek_int32(old + 4 + 4 * key))))
        # A head from before the move is below the new tail, so it ends the chain.
        ring[u64(new)] = peek_int32(p)
        for k in range(1, width):
            ring[u64(new + k)] = peek_int32(old + 4 * k)
        poke_int32(p, n)
        n += 1
    states[x, E_TAIL] = following
    states[x, E_NEXT] = n


@inlined
def may_combine(arena: Arena, entries: Entries, x: int, kid: int) -> bool:
    """Return whether each stream of the set that has the class has a live tuple with the key."""
    states, parts = entries.states, entries.parts
    c, lows = states[x, E_CLASS], states[x, E_LOWS]
    row = arena.classes[c, C_HEADS] + kid * arena.classes[c, C_STRIDE]
    for k in range(states[x, E_PARTS0], states[x, E_PARTS1]):
        column = parts[u64(k), P_COLUMN]
        if column >= 0 and arena.heads[u64(row + column)] < entries.lows[u64(lows + parts[u64(k), P_STREAM])]:
            return False
    return True


@jit
def all_attempted(arena: Arena, entries: Entries, x: int) -> bool:
    """Return whether every key that can have a combination is attempted. O(key ids)."""
    for kid in range(arena.classes[entries.states[x, E_CLASS], C_NEXT]):
        if not attempted(entries, x, kid) and may_combine(arena, entries, x, kid):
            return False
    return True
