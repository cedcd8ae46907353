"""The walk of a plan with stored states: an arrival climbs from its leaf to the root and probes SteMs and STAIRs.

The walk goes depth first over the hops of the route. A hop may probe a STAIR, and the composite after a hop may be
stored in one. Two functions here keep every state correct. `newest` probes a STAIR
for a key only if the key is attempted, and promotes the key first if not (just-in-time completion). `store` stores a
composite only if its key is attempted; a later promotion finds the other composites in the SteMs.

The JISC paper instead takes a key that is present in a state for a complete one (Procedure 1, line 1), and decides
whether a tuple is fresh by the last occurrence of its key (Definition 2). That loses results. Take plan ((S T) R) U
just after a transition, with ST incomplete, and s_old and t in S and T with one key. A new s with that key probes T,
which is complete, and (s, t) is stored in ST. Then r arrives: ST contains the key, so no completion happens, and
(r, s_old, t) is lost. Because s arrived before r, r is not fresh; this hides the loss, but does not repair it. Here
(s, t) is not stored, because the key is not attempted in ST, and r promotes the key, which finds both pairs.

Within one walk, the states probed do not contain the stream of the arrival, and the states stored into do. So a walk
never meets a composite that it stored, and a walk that runs out of room is reverted by dropping all entries with the
arrival.

Source: Aly, Aref, Ouzzani, Mahmoud, "JISC: Adaptive stream processing using just-in-time state completion", EDBT 2014.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    C_SCAN,
    DONE,
    E_AT,
    E_BIRTH,
    E_CLASS,
    E_FROM,
    E_KEY_PART,
    E_NEXT,
    E_PARTS0,
    E_PARTS1,
    E_PASSED,
    E_SHORT,
    E_STORED,
    E_TAIL,
    H_CLASS,
    H_NEWER,
    H_STATE,
    H_STORE,
    M_ARRIVAL,
    M_SHORT,
    M_SUPPRESSED,
    P_STREAM,
    R_END,
    R_TRUNK,
    S_KIND,
    S_MASK,
    S_SIZE,
    S_VALUES,
    SHORT_ENTRIES,
    SHORT_OUTPUT,
    V_MATCHES,
    V_PROBES,
)
from stairs.graph import FOREVER
from stairs.kernels.accelerate import inlined, step, u64
from stairs.kernels.combinations import write
from stairs.kernels.hop import after, entry_at, floor, head_at, newest_tuple, take
from stairs.kernels.memory import peek_int32, poke_int32
from stairs.kernels.promotion import promote
from stairs.kernels.stair import GONE, key_of, make_slots
from stairs.kernels.windows import RANGE
from stairs.memory.arena import Arena, Entries, Routes, Walk


@step
def stair_newest(arena: Arena, entries: Entries, routes: Routes, walk: Walk, x: int, kid: int) -> int:
    """Return the newest entry of a key, after a promotion if the key is not attempted; -1 if room was short."""
    newest = np.int64(peek_int32(head_at(entries, x, kid)))
    if newest >= entries.states[u64(x), E_BIRTH]:
        return newest
    if promote(arena, entries, routes, walk, x, kid) != DONE:
        return np.int64(-1)
    return np.int64(peek_int32(head_at(entries, x, kid)))


@inlined
def newest(arena: Arena, entries: Entries, routes: Routes, walk: Walk, lows: int, h: int) -> int:
    """Return the first candidate of a hop for the key bound for its class."""
    hop = routes.hops[u64(h)]
    c = u64(hop[H_CLASS])
    if hop[H_STATE] < 0:
        return newest_tuple(arena, entries, routes, walk.bound, walk.current, lows, h)
    return stair_newest(arena, entries, routes, walk, hop[H_STATE], walk.kids[c])


@inlined
def store(arena: Arena, entries: Entries, walk: Walk, x: int) -> None:
    """Store the bound components in a STAIR, unless their key is not attempted there."""
    row = entries.states[u64(x)]
    c = u64(row[E_CLASS])
    kid = walk.kids[c]
    if arena.classes[c, C_SCAN] != 0:
        # A later hop of this walk may have bound the key of another tuple.
        kid = key_of(
            arena, entries, x, walk.current[u64(entries.parts[u64(row[E_PARTS0] + row[E_KEY_PART]), P_STREAM])]
        )
    p = head_at(entries, x, kid)
    if peek_int32(p) < row[E_BIRTH]:
        row[E_PASSED] += 1
        return
    if row[E_AT] != arena.meta[M_ARRIVAL]:
        row[E_AT] = arena.meta[M_ARRIVAL]
        row[E_FROM] = row[E_NEXT]
    if not make_slots(arena, entries, x, 1):
        row[E_SHORT] += 1
        arena.meta[M_SHORT] |= SHORT_ENTRIES
        return
    # make_slots may have changed the head of the key.
    e, first = row[E_NEXT], row[E_PARTS0]
    at = entry_at(entries, x, e)
    poke_int32(at, peek_int32(p))
    at += 4 - 4 * first
    for k in range(first, row[E_PARTS1]):
        poke_int32(at + 4 * k, walk.current[u64(entries.parts[u64(k), P_STREAM])])
    poke_int32(p, e)
    row[E_NEXT] = e + 1
    row[E_STORED] += 1


@step
def take_back(entries: Entries, routes: Routes, i: int, row: int, s: int) -> None:
    """Drop the entries with tuple s of stream i from the STAIRs along a route; its walk lacked room and is repeated.

    O(entries that these STAIRs have stored or moved since the walk began).
    """
    states, parts = entries.states, entries.parts
    for h in range(routes.span[u64(row), R_TRUNK], routes.span[u64(row), R_END]):
        x = routes.hops[u64(h), H_STORE]
        if x < 0:
            continue
        offset = states[x, E_PARTS0]
        while parts[u64(offset), P_STREAM] != i:
            offset += 1
        offset = 4 + 4 * (offset - states[x, E_PARTS0])
        dropped = np.int64(0)
        for e in range(max(states[x, E_TAIL], states[x, E_FROM]), states[x, E_NEXT]):
            at = entry_at(entries, x, e)
            if peek_int32(at + offset) == s and peek_int32(at + 4) != GONE:
                poke_int32(at + 4, GONE)
                states[x, E_STORED] -= 1
                dropped += 1
        if states[x, E_SHORT] > 0:
            # The dropped entries need room again, in addition to those that found none.
            states[x, E_SHORT] += dropped


@inlined
def is_new(entries: Entries, walk: Walk, newer: int) -> bool:
    """Return whether all bound components are above the marks of a later track, which start at `newer`.

    The marks of streams outside of the box of that track are below every tuple, and do not count.
    """
    older = False
    for j in range(walk.current.shape[0]):
        older |= walk.current[u64(j)] < entries.marks[u64(newer + j)]
    return not older


@inlined
def wanted(arena: Arena, walk: Walk, strict: bool) -> bool:
    """Return whether the bound components are a result.

    strict   compare the event times of all components: none may be too old for the youngest
    """
    m = walk.current.shape[0]
    if strict:
        greatest, deadline = np.int64(-2 * FOREVER), np.int64(2 * FOREVER)
        for j in range(m):
            stream = arena.streams[u64(j)]
            t = arena.values[u64(stream[S_VALUES] + (walk.current[u64(j)] & stream[S_MASK]))]
            greatest = max(greatest, t)
            if stream[S_KIND] == RANGE:
                deadline = min(deadline, t + stream[S_SIZE])
        return greatest <= deadline
    return True


@inlined
def take_result(arena: Arena, walk: Walk, strict: bool, count_only: bool, out: int) -> int:
    """Write the bound components if they are a result, and return the results now, written or not."""
    if wanted(arena, walk, strict):
        if not count_only:
            if (out + 1) * walk.current.shape[0] <= walk.ids.shape[0]:
                write(walk, out)
            else:
                arena.meta[M_SHORT] |= SHORT_OUTPUT
        out += 1
    return out


@inlined
def climb(
    arena: Arena,
    entries: Entries,
    routes: Routes,
    walk: Walk,
    route: int,
    lows: int,
    storing: bool,
    strict: bool,
    count_only: bool,
    tally: int,
    out: int,
) -> int:
    """Find all results of the tuple bound in `walk` along a route, and return the number of results now.

    meta[M_SHORT] reports results or entries that did not fit.

    lows      where the low marks of the walk start
    storing   store composites in the STAIRs of the route
    out       the number of results in `walk.ids` before
    """
    hops, _m = routes.hops, walk.current.shape[0]
    candidate, back = walk.levels[0], walk.levels[1]
    first, end = routes.span[u64(route), R_TRUNK], routes.span[u64(route), R_END]
    resume, level = np.int64(-1), np.int64(0)
    h = first
    s = newest(arena, entries, routes, walk, lows, h)
    low = floor(entries, routes, lows, h)
    routes.counts[V_PROBES, u64(h)] += tally
    while True:
        if s < low:
            if resume < 0:
                return out
            level = resume
            s = candidate[u64(level)]
            resume = back[u64(level)]
            h = first + level
            low = floor(entries, routes, lows, h)
        following = after(arena, entries, routes, walk.current, h, s, low)
        if not take(arena, entries, routes, walk.bound, walk.kids, walk.current, lows, h, s):
            s = following
            continue
        routes.counts[V_MATCHES, u64(h)] += tally
        newer = hops[u64(h), H_NEWER]
        if newer > 0 and is_new(entries, walk, newer):
            arena.meta[M_SUPPRESSED] += tally
            s = following
            continue
        x = hops[u64(h), H_STORE]
        if x >= 0 and storing:
            store(arena, entries, walk, x)
        if h + 1 == end:
            out = take_result(arena, walk, strict, count_only, out)
            s = following
            continue
        if following >= low:
            candidate[u64(level)] = following
            back[u64(level)] = resume
            resume = level
        level += 1
        h += 1
        s = newest(arena, entries, routes, walk, lows, h)
        low = floor(entries, routes, lows, h)
        routes.counts[V_PROBES, u64(h)] += tally
