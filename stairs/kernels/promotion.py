"""Kernels that complete STAIRs: they promote keys and mark keys that have no combination (`stairs.stair`).

All take the arena of the SteMs, the entries of the STAIRs, the routes of promotions, and x, the row of the STAIR in
`states`. None checks its arguments.
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
    E_HAND,
    E_LOWS,
    E_NEXT,
    E_PARTS0,
    E_PARTS1,
    E_PROMOTED,
    E_ROUTE,
    E_SHORT,
    E_UNMARKED,
    E_WIDTH,
    H_CLASS,
    H_STATE,
    M_SHORT,
    NEED_ENTRIES,
    P_STREAM,
    R_LEAF,
    R_TRUNK,
    SHORT_ENTRIES,
)
from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.hop import after, entry_at, floor, head_at, newest_tuple, take
from stairs.kernels.memory import peek_int32, poke_int32
from stairs.kernels.stair import MOST_ENTRIES, attempted, follow_up, free_room, make_slots, mark, may_combine, proven
from stairs.memory.arena import Arena, Entries, Routes, Walk

INCOMPLETE = -1
"""Result of `combine` when its route needs a key of a STAIR that is not attempted there."""


@inlined
def combine(arena: Arena, entries: Entries, routes: Routes, walk: Walk, x: int, kid: int, route: int) -> int:
    """Write all live combinations with a key after the newest entry, as many as fit; return how many exist.

    The walk follows a route of promotion, depth first, newest tuples first. It leaves links as they are and publishes
    nothing. Returns INCOMPLETE when the route leads to a STAIR whose key is not attempted.
    """
    frame, hops, states, classes = walk.frames[0], routes.hops, entries.states, arena.classes
    m, n = walk.current.shape[0], walk.bound.shape[0]
    candidate, bound = frame[0:m], frame[m : m + n]
    kids, current = frame[m + n : m + 2 * n], frame[m + 2 * n : 2 * m + 2 * n]
    lows, parts0, parts1 = states[x, E_LOWS], states[x, E_PARTS0], states[x, E_PARTS1]
    first, last = routes.span[u64(route), R_TRUNK], routes.span[u64(route), R_LEAF] - 1
    following, room, count = states[x, E_NEXT], free_room(entries, x), np.int64(0)
    by = u64(states[x, E_CLASS])
    kids[by] = kid
    bound[by] = classes[by, C_HEADS] + kid * classes[by, C_STRIDE]
    h, opening = first, True
    while h >= first and count <= MOST_ENTRIES:
        if opening:
            c, y = u64(hops[u64(h), H_CLASS]), hops[u64(h), H_STATE]
            if y < 0:
                candidate[u64(h - first)] = newest_tuple(arena, entries, routes, bound, current, lows, h)
            else:
                newest = np.int64(peek_int32(head_at(entries, y, kids[c])))
                if newest < states[u64(y), E_BIRTH]:
                    return INCOMPLETE
                candidate[u64(h - first)] = newest
            opening = False
        s = candidate[u64(h - first)]
        low = floor(entries, routes, lows, h)
        if s < low:
            h -= 1
            continue
        candidate[u64(h - first)] = after(arena, entries, routes, current, h, s, low)
        if not take(arena, entries, routes, bound, kids, current, lows, h, s):
            continue
        if h < last:
            h += 1
            opening = True
            continue
        if count < room:
            at = entry_at(entries, x, following + count) + 4 - 4 * parts0
            for k in range(parts0, parts1):
                poke_int32(at + 4 * k, current[u64(entries.parts[u64(k), P_STREAM])])
        count += 1
    return count


@inlined
def find_all(arena: Arena, entries: Entries, routes: Routes, walk: Walk, x: int, kid: int) -> int:
    """Run `combine` over the STAIRs below, or over SteMs alone if a STAIR lacks a key."""
    count = combine(arena, entries, routes, walk, x, kid, entries.states[x, E_ROUTE])
    if count == INCOMPLETE:
        count = combine(arena, entries, routes, walk, x, kid, entries.states[x, E_BASE])
    return count


@inlined
def reverse(entries: Entries, x: int, first: int, last: int) -> None:
    """Reverse the order of entries first .. last."""
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
def publish(entries: Entries, x: int, kid: int, count: int) -> None:
    """Link the combinations written after the newest entry into the chain of their key and mark it attempted."""
    states = entries.states
    following, link = states[x, E_NEXT], states[x, E_BIRTH]
    # The walk finds the newest tuples first. Stored last, they are probed first, and the tail meets the oldest first.
    reverse(entries, x, following, following + count - 1)
    for e in range(following, following + count):
        poke_int32(entry_at(entries, x, e), link)
        link = e
    states[x, E_NEXT] = following + count
    states[x, E_COUNT] = count
    states[x, E_PROMOTED] += 1
    states[x, E_COMPUTED] += count
    mark(entries, x, kid, link)


@jit
def promote(arena: Arena, entries: Entries, routes: Routes, walk: Walk, x: int, kid: int) -> int:
    """Store all live combinations of a key and mark it attempted; change nothing if it is, or if room is short.

    E_COUNT is the number of combinations stored; with NEED_ENTRIES, E_SHORT is the number that needs room.
    """
    states = entries.states
    states[x, E_COUNT] = 0
    if attempted(entries, x, kid):
        return DONE
    count = np.int64(0)
    if may_combine(arena, entries, x, kid):
        count = find_all(arena, entries, routes, walk, x, kid)
        if free_room(entries, x) < count <= MOST_ENTRIES and make_slots(arena, entries, x, count):
            count = find_all(arena, entries, routes, walk, x, kid)
        if count > free_room(entries, x) or count > MOST_ENTRIES:
            states[x, E_SHORT] = max(states[x, E_SHORT], count)
            arena.meta[M_SHORT] |= SHORT_ENTRIES
            return NEED_ENTRIES
    publish(entries, x, kid, count)
    follow_up(arena, entries, x, count)
    return DONE


@jit
def promote_keys(
    arena: Arena, entries: Entries, routes: Routes, walk: Walk, rows: np.ndarray, c: int, first: int
) -> int:
    """Promote the keys of class c from `first` on, each in all states on this class among `rows`, in their order.

    Returns the key id that lacked room in a state, -1 when all are done.
    """
    for kid in range(first, arena.classes[c, C_NEXT]):
        for r in range(rows.shape[0]):
            x = rows[r]
            if entries.states[x, E_CLASS] == c and promote(arena, entries, routes, walk, x, kid) != DONE:
                return kid
    return -1


@jit
def advance(arena: Arena, entries: Entries, routes: Routes, walk: Walk, x: int, looks: int, budget: int) -> int:
    """Examine up to `looks` key ids of a state, from its hand on, and mark or promote their keys.

    A key without a live tuple in some stream of the set has no combination, so it is marked without a promotion; this
    accounts for keys that leave the windows before they are attempted. Up to `budget` of the other keys are promoted.
    When every key id has its mark, the state is complete and new keys are attempted from the start, as if it were born
    complete. E_COUNT is the number of keys promoted, also when one more found no room (NEED_ENTRIES).
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
    """Advance the states rows[first:] one after another; return the position of one that lacked room, else -1.

    rows   int64[], rows of `states`
    """
    for r in range(first, rows.shape[0]):
        if advance(arena, entries, routes, walk, rows[r], looks, budget) != DONE:
            return r
    return -1
