"""The walk of a plan with stored states: an arrival climbs from its leaf to the root, probing SteMs and STAIRs.

Depth first over the hops of the route, as in `walk_kernels.probe`, but each hop may probe a STAIR, and the composite a
hop has made may go into one. The rule that keeps every state right is in two places here. A STAIR is probed for a key
only once the key is attempted: `newest` promotes it first if it is not (just-in-time completion). A composite is
stored only under a key that is attempted: `store` passes over the others, the later promotion finds them in the SteMs.

The JISC paper instead takes a key that is present in a state for a complete one (Procedure 1, line 1), and calls a
tuple fresh by when its key came last (Definition 2). That loses results. Plan ((S T) R) U, just after a transition, ST
incomplete, s_old and t in S and T with one key. A new s of that key probes T, which is complete, and (s, t) goes into
ST. Then r comes: ST contains the key, so nothing is completed, and (r, s_old, t) is lost; that r is not fresh, s having
come before it, hides the loss and does not heal it. Here (s, t) is not stored, because the key is not attempted in ST,
and r promotes it: both pairs are found.

Within one walk the states probed do not contain the stream of the arrival and the states stored into do. So nothing
stored in a walk is met by it, and a walk that runs out of room is taken back by dropping what has the arrival in it.

Source: Aly, Aref, Ouzzani, Mahmoud, "JISC: Adaptive stream processing using just-in-time state completion", EDBT 2014.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    DONE,
    E_BIRTH,
    E_CLASS,
    E_NEXT,
    E_PARTS0,
    E_PARTS1,
    E_PASSED,
    E_SHORT,
    E_STORED,
    E_TAIL,
    H_CLASS,
    H_COLUMN,
    H_MATCHES,
    H_PROBES,
    H_STATE,
    H_STORE,
    M_SHORT,
    M_SUPPRESSED,
    P_STREAM,
    R_END,
    R_TRUNK,
    S_KIND,
    S_MASK,
    S_SIZE,
    S_TIMES,
    SHORT_ENTRIES,
    SHORT_OUTPUT,
)
from stairs.graph import FOREVER
from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.hop import after, entry_at, floor, head_at, take
from stairs.kernels.memory import peek_int32, poke_int32
from stairs.kernels.promotion import promote
from stairs.kernels.stair import GONE, make_slots
from stairs.kernels.walk import RANGE, write
from stairs.memory.arena import Arena, Entries, Routes, Walk


@jit
def stair_newest(arena: Arena, entries: Entries, routes: Routes, walk: Walk, x: int, kid: int) -> int:
    """Return the newest entry of a key, promoting the key first if it is not attempted; -1 when there was no room."""
    newest = np.int64(peek_int32(head_at(entries, x, kid)))
    if newest >= entries.states[u64(x), E_BIRTH]:
        return newest
    if promote(arena, entries, routes, walk, x, kid) != DONE:
        return np.int64(-1)
    return np.int64(peek_int32(head_at(entries, x, kid)))


@inlined
def newest(arena: Arena, entries: Entries, routes: Routes, walk: Walk, h: int) -> int:
    """Return the first candidate of a hop for the key bound for its class."""
    hop = routes.hops[u64(h)]
    c = u64(hop[H_CLASS])
    if hop[H_STATE] < 0:
        return np.int64(arena.heads[u64(walk.bound[c] + hop[H_COLUMN])])
    return stair_newest(arena, entries, routes, walk, hop[H_STATE], walk.kids[c])


@inlined
def store(arena: Arena, entries: Entries, walk: Walk, x: int) -> None:
    """Put the components bound into a STAIR, unless the key they have there is not attempted."""
    row = entries.states[u64(x)]
    p = head_at(entries, x, walk.kids[u64(row[E_CLASS])])
    if peek_int32(p) < row[E_BIRTH]:
        row[E_PASSED] += 1
        return
    if not make_slots(arena, entries, x, 1):
        row[E_SHORT] += 1
        arena.meta[M_SHORT] |= SHORT_ENTRIES
        return
    # Making a slot may have given the key a new head.
    e, first = row[E_NEXT], row[E_PARTS0]
    at = entry_at(entries, x, e)
    poke_int32(at, peek_int32(p))
    at += 4 - 4 * first
    for k in range(first, row[E_PARTS1]):
        poke_int32(at + 4 * k, walk.current[u64(entries.parts[u64(k), P_STREAM])])
    poke_int32(p, e)
    row[E_NEXT] = e + 1
    row[E_STORED] += 1


@jit
def take_back(entries: Entries, routes: Routes, i: int, row: int, s: int) -> None:
    """Let the STAIRs along a route have nothing that holds tuple s of stream i: a walk that ran out of room is redone.

    O(their rings), which is as much as making room costs.
    """
    states, parts = entries.states, entries.parts
    for h in range(routes.span[u64(row), R_TRUNK], routes.span[u64(row), R_END]):
        x = routes.hops[u64(h), H_STORE]
        if x < 0:
            continue
        own = states[x, E_PARTS0]
        while parts[u64(own), P_STREAM] != i:
            own += 1
        own = 4 + 4 * (own - states[x, E_PARTS0])
        dropped = np.int64(0)
        for e in range(states[x, E_TAIL], states[x, E_NEXT]):
            at = entry_at(entries, x, e)
            if peek_int32(at + own) == s and peek_int32(at + 4) != GONE:
                poke_int32(at + 4, GONE)
                states[x, E_STORED] -= 1
                dropped += 1
        if states[x, E_SHORT] > 0:
            # What found room needs it again, beside what did not.
            states[x, E_SHORT] += dropped


@inlined
def wanted(arena: Arena, entries: Entries, walk: Walk, newer: int, strict: bool, tally: int) -> bool:
    """Tell whether the components bound are a result of this walk.

    `newer`: where the marks of the next plan start, -1 = there is none; what is all newer is that plan's result.
    `strict`: no component may be too old for the youngest.
    """
    m = walk.current.shape[0]
    if newer >= 0:
        older = False
        for j in range(m):
            older |= walk.current[u64(j)] < entries.marks[u64(newer + j)]
        if not older:
            arena.meta[M_SUPPRESSED] += tally
            return False
    if strict:
        greatest, deadline = np.int64(-2 * FOREVER), np.int64(2 * FOREVER)
        for j in range(m):
            stream = arena.streams[u64(j)]
            t = arena.times[u64(stream[S_TIMES] + (walk.current[u64(j)] & stream[S_MASK]))]
            greatest = max(greatest, t)
            if stream[S_KIND] == RANGE:
                deadline = min(deadline, t + stream[S_SIZE])
        return greatest <= deadline
    return True


@inlined
def climb(
    arena: Arena,
    entries: Entries,
    routes: Routes,
    walk: Walk,
    route: int,
    lows: int,
    newer: int,
    storing: bool,
    strict: bool,
    count_only: bool,
    tally: int,
    out: int,
) -> int:
    """Find all results of the tuple bound in `walk` along a route, and return how many there are now.

    `out` results are in `walk.ids` before; whether all fit, and all entries, meta[M_SHORT] tells. `lows`: where the low
    marks of the walk start. `storing`: composites go into the STAIRs they belong to.
    """
    hops, m = routes.hops, walk.current.shape[0]
    candidate, back = walk.levels[0], walk.levels[1]
    first, end = routes.span[u64(route), R_TRUNK], routes.span[u64(route), R_END]
    resume, level = np.int64(-1), np.int64(0)
    h = first
    s = newest(arena, entries, routes, walk, h)
    low = floor(entries, routes, lows, h)
    hops[u64(h), H_PROBES] += tally
    while True:
        if s < low:
            if resume < 0:
                return out
            level = resume
            s = candidate[u64(level)]
            resume = back[u64(level)]
            h = first + level
            low = floor(entries, routes, lows, h)
        following = after(arena, entries, routes, h, s)
        if not take(arena, entries, routes, walk.bound, walk.kids, walk.current, h, s):
            s = following
            continue
        hops[u64(h), H_MATCHES] += tally
        x = hops[u64(h), H_STORE]
        if x >= 0 and storing:
            store(arena, entries, walk, x)
        if h + 1 == end:
            if wanted(arena, entries, walk, newer, strict, tally):
                if not count_only:
                    if (out + 1) * m <= walk.ids.shape[0]:
                        write(walk, out)
                    else:
                        arena.meta[M_SHORT] |= SHORT_OUTPUT
                out += 1
            s = following
            continue
        if following >= low:
            candidate[u64(level)] = following
            back[u64(level)] = resume
            resume = level
        level += 1
        h += 1
        s = newest(arena, entries, routes, walk, h)
        low = floor(entries, routes, lows, h)
        hops[u64(h), H_PROBES] += tally
