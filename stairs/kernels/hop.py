"""Steps of one hop of a route, for kernels that probe SteMs and STAIRs: its candidates, and the keys a match binds.

A candidate of a hop is a sequence number of a SteM or an entry number of a STAIR. Both form chains, newest first, that
end below a floor: the low mark of the stream or the tail of the ring. So a walk treats both alike, except in three
steps: where the chain begins, which candidate follows, and which components a candidate has.

`lows` decides which tuples count, and not the low marks of the streams: a plan that runs next to an older plan knows
only the tuples after its start (`jisc.strategies.parallel_track`).
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    C_HEADS,
    C_STRIDE,
    E_HEADS,
    E_LOWS,
    E_MASK,
    E_OLD,
    E_OLD_MASK,
    E_PARTS0,
    E_PARTS1,
    E_RING,
    E_SPLIT,
    E_TAIL,
    E_WIDTH,
    H_CLASS,
    H_COLUMN,
    H_COMPARE,
    H_OFFSET,
    H_OPS0,
    H_OPS1,
    H_STATE,
    H_TARGET,
    O_CHECK,
    O_CLASS,
    O_OFFSET,
    O_STREAM,
    P_LIFE,
    P_STREAM,
    S_MASK,
    S_RECS,
    S_WIDTH,
    SCANS,
)
from stairs.kernels.accelerate import inlined, u64
from stairs.kernels.candidates import after_scanned, first_scanned, scanned_tuple
from stairs.kernels.compare import all_hold
from stairs.kernels.memory import peek_int32
from stairs.kernels.versions import ALIVE
from stairs.memory.arena import Arena, Entries, Routes


@inlined
def entry_at(entries: Entries, x: int, e: int) -> int:
    """Return the address of entry number e."""
    row = entries.states[u64(x)]
    if e < row[E_SPLIT]:
        return row[E_OLD] + 4 * ((e & row[E_OLD_MASK]) * row[E_WIDTH])
    return row[E_RING] + 4 * ((e & row[E_MASK]) * row[E_WIDTH])


@inlined
def head_at(entries: Entries, x: int, kid: int) -> int:
    """Return the address of the head of a key."""
    return entries.states[u64(x), E_HEADS] + 4 * kid


@inlined
def record_of(arena: Arena, j: int, s: int) -> int:
    """Return where the record of tuple s of stream j starts in `recs`."""
    row = arena.streams[u64(j)]
    return row[S_RECS] + (s & row[S_MASK]) * row[S_WIDTH]


@inlined
def has_died(arena: Arena, entries: Entries, k: int, s: int) -> bool:
    """Return whether tuple s, in its window, of the stream of row k of `parts` is a version that has ended."""
    at = entries.parts[u64(k), P_LIFE]
    return at > 0 and arena.recs[u64(record_of(arena, entries.parts[u64(k), P_STREAM], s) + at)] != ALIVE


@inlined
def is_live(arena: Arena, entries: Entries, x: int, e: int) -> bool:
    """Return whether all components of an entry are live. O(streams of the set)."""
    states, parts = entries.states, entries.parts
    first, lows = states[u64(x), E_PARTS0], states[u64(x), E_LOWS]
    at = entry_at(entries, x, e) + 4 - 4 * first
    for k in range(first, states[u64(x), E_PARTS1]):
        s = np.int64(peek_int32(at + 4 * k))
        if s < entries.lows[u64(lows + parts[u64(k), P_STREAM])] or has_died(arena, entries, k, s):
            return False
    return True


@inlined
def floor(entries: Entries, routes: Routes, lows: int, h: int) -> int:
    """Return the number below which the chains of a hop end; the low marks of the walk start at `lows`."""
    x = routes.hops[u64(h), H_STATE]
    if x >= 0:
        return entries.states[u64(x), E_TAIL]
    return entries.lows[u64(lows + routes.hops[u64(h), H_TARGET])]


@inlined
def newest_tuple(
    arena: Arena, entries: Entries, routes: Routes, bound: np.ndarray, current: np.ndarray, lows: int, h: int
) -> int:
    """Return the first candidate of a hop that probes a SteM."""
    hop = routes.hops[u64(h)]
    if hop[H_OFFSET] == SCANS:
        return first_scanned(arena, routes, hop[H_COMPARE], hop[H_TARGET], current, floor(entries, routes, lows, h))
    return np.int64(arena.heads[u64(bound[u64(hop[H_CLASS])] + hop[H_COLUMN])])


@inlined
def after(arena: Arena, entries: Entries, routes: Routes, current: np.ndarray, h: int, s: int, low: int) -> int:
    """Return the candidate that follows s in its chain or scan, which ends below `low`."""
    hop = routes.hops[u64(h)]
    if hop[H_STATE] >= 0:
        return np.int64(peek_int32(entry_at(entries, hop[H_STATE], s)))
    if hop[H_OFFSET] == SCANS:
        return after_scanned(arena, routes, hop[H_COMPARE], current, s, low)
    return np.int64(arena.recs[u64(record_of(arena, hop[H_TARGET], s) + hop[H_OFFSET])])


@inlined
def take(
    arena: Arena,
    entries: Entries,
    routes: Routes,
    bound: np.ndarray,
    kids: np.ndarray,
    current: np.ndarray,
    lows: int,
    h: int,
    s: int,
) -> bool:
    """Bind the components of candidate s of hop h and their keys; return False if one is dead or fails a check.

    lows   where the low marks of the walk start. A state that two tracks share has entries that only one of them knows
    """
    hop, ops, classes = routes.hops[u64(h)], routes.ops, arena.classes
    x = hop[H_STATE]
    if x < 0:
        if hop[H_OFFSET] == SCANS:
            s = scanned_tuple(arena, routes, hop[H_COMPARE], s)
            if arena.recs[u64(record_of(arena, hop[H_TARGET], s) + 1)] < 0:
                return False
        current[u64(hop[H_TARGET])] = s
    else:
        states, parts = entries.states, entries.parts
        first = states[u64(x), E_PARTS0]
        at = entry_at(entries, x, s) + 4 - 4 * first
        for k in range(first, states[u64(x), E_PARTS1]):
            j = parts[u64(k), P_STREAM]
            component = np.int64(peek_int32(at + 4 * k))
            if component < entries.lows[u64(lows + j)] or has_died(arena, entries, k, component):
                return False
            current[u64(j)] = component
    for o in range(hop[H_OPS0], hop[H_OPS1]):
        op = ops[u64(o)]
        c = u64(op[O_CLASS])
        kid = np.int64(arena.recs[u64(record_of(arena, op[O_STREAM], current[u64(op[O_STREAM])]) + op[O_OFFSET] + 1)])
        if op[O_CHECK] == 0:
            kids[c] = kid
            bound[c] = classes[c, C_HEADS] + kid * classes[c, C_STRIDE]
        elif kids[c] != kid:
            return False
    return hop[H_COMPARE] < 0 or all_hold(arena, routes, h, current)
