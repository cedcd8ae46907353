"""The walk of an eddy, which routes one tuple at a time and chooses the next state module at every hop.

Each tuple in flight has *done* bits, for the modules that it visited, and *ready* bits, for the modules for which it
has a key. The eddy takes the newest tuple in flight, chooses the module of lowest rank that is ready and not done, and
sends the tuple there. Each match returns as a tuple of its own, and a tuple that visited every module is a result.
Ranks are data: bit k of a tuple of stream i stands for the k-th module of i's ranking, so the choice is the lowest set
bit.

Under CACQ the modules are SteMs. Under STAIRs the modules of a ranking are the *duals* that a tuple of the stream meets
in the plan: a SteM, or a STAIR with the combinations of several streams. Three things are different there. A probe
promotes its key first if it is not attempted. A match binds the components and the keys of a whole entry. And the eddy
inserts the tuple that a hop made into the STAIR of its streams (H_STORE), from which later tuples of other streams get
it; both steps are those of a pipelined plan (`stairs.kernels.climb`).

Where all modules are SteMs of one key, every module is ready at once, so the ranks alone decide (`visit`). The hops are
the same, without bits.

Hops share no work, unlike in `stairs.kernels.levels`: no list of matches is multiplied out, and no route is fixed in
advance.
Source: Madden, Shah, Hellerstein, Raman, "Continuously adaptive continuous queries over streams", SIGMOD 2002.
Deshpande, Hellerstein, "Lifting the burden of history from adaptive query processing", VLDB 2004, for duals.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    C_HEADS,
    C_STRIDE,
    E_LOWS,
    E_PARTS0,
    E_PARTS1,
    E_TAIL,
    H_CLASS,
    H_COMPARE,
    H_OPS0,
    H_OPS1,
    H_STATE,
    H_STORE,
    H_TARGET,
    O_CHECK,
    O_CLASS,
    O_COLUMN,
    O_OFFSET,
    O_STREAM,
    P_STREAM,
    R_END,
    R_TRUNK,
    S_LO,
    SCANS,
    T_CANDIDATE,
    T_DONE,
    T_HOP,
    T_OFFSET,
    T_READY,
    V_MATCHES,
    V_PROBES,
    X_LEVEL,
    X_OTHER,
    X_STREAM,
)
from stairs.kernels.accelerate import inlined, step, u64
from stairs.kernels.bits import lowest_bit
from stairs.kernels.candidates import after_scanned, first_scanned, is_bounded, scanned_tuple
from stairs.kernels.climb import stair_newest, store, take_result
from stairs.kernels.compare import end_of, holds
from stairs.kernels.hop import entry_at, has_died, record_of
from stairs.kernels.memory import peek_int32
from stairs.memory.arena import Arena, Entries, Routes, Walk

FIRST = 1
"""The frame of the arrival. The frame before it belongs to promotions."""


@inlined
def is_bound(arena: Arena, routes: Routes, i: int, c: int, done: int, more: int) -> bool:
    """Return whether a tuple of stream i that visited `done` has a key of class c."""
    mask = routes.ready[u64(i * arena.classes.shape[0] + c)]
    return mask[4] != 0 or (mask[2] & done) != 0 or (mask[3] & more) != 0


@inlined
def is_done(rank: int, done: int, more: int) -> bool:
    """Return whether a tuple visited the module of a rank; -1 = the stream of the arrival, whose component it has."""
    return rank < 0 or ((done >> rank if rank < 64 else more >> (rank - 64)) & 1) != 0


@inlined
def comparison_done(routes: Routes, h: int, done: int, more: int) -> int:
    """Return the first comparison of a hop that bounds an integer by a stream that was visited; -1 for none."""
    first = routes.hops[u64(h), H_COMPARE]
    for x in range(first, end_of(routes, first)):
        if is_bounded(routes, x) and is_done(routes.compares[u64(x), X_LEVEL], done, more):
            return np.int64(x)
    return np.int64(-1)


@inlined
def choose(arena: Arena, entries: Entries, routes: Routes, walk: Walk, i: int, d: int, tally: int) -> None:
    """Send the tuple at depth d to the module of lowest rank that is ready and not done."""
    frame, ops = walk.frames[u64(d)], routes.ops
    bits = frame[T_READY] & ~frame[T_DONE]
    rank = lowest_bit(bits) if bits != 0 else 64 + lowest_bit(frame[T_READY + 1] & ~frame[T_DONE + 1])
    h = routes.span[u64(i), R_TRUNK] + rank
    frame[T_HOP] = h
    routes.counts[V_PROBES, u64(h)] += tally
    x = routes.hops[u64(h), H_STATE]
    if x >= 0:
        frame[T_CANDIDATE] = stair_newest(arena, entries, routes, walk, x, walk.kids[u64(routes.hops[u64(h), H_CLASS])])
        return
    for o in range(routes.hops[u64(h), H_OPS0], routes.hops[u64(h), H_OPS1]):
        c = ops[u64(o), O_CLASS]
        if is_bound(arena, routes, i, c, frame[T_DONE], frame[T_DONE + 1]):
            if ops[u64(o), O_CHECK] == 0:
                frame[T_CANDIDATE] = arena.heads[u64(walk.bound[u64(c)] + ops[u64(o), O_COLUMN])]
                frame[T_OFFSET] = ops[u64(o), O_OFFSET]
            else:
                j, by = routes.hops[u64(h), H_TARGET], comparison_done(routes, h, frame[T_DONE], frame[T_DONE + 1])
                frame[T_CANDIDATE] = first_scanned(arena, routes, by, j, walk.current, arena.streams[u64(j), S_LO])
                # Below SCANS, it names the comparison as well.
                frame[T_OFFSET] = SCANS - 1 - by
            break


@inlined
def take_entry(arena: Arena, entries: Entries, walk: Walk, x: int, e: int) -> bool:
    """Bind the components of an entry of a STAIR; return False if one of them has left its window."""
    states, parts = entries.states, entries.parts
    first, lows = states[u64(x), E_PARTS0], states[u64(x), E_LOWS]
    at = entry_at(entries, x, e) + 4 - 4 * first
    for k in range(first, states[u64(x), E_PARTS1]):
        j = parts[u64(k), P_STREAM]
        component = np.int64(peek_int32(at + 4 * k))
        if component < entries.lows[u64(lows + j)] or has_died(arena, entries, k, component):
            return False
        walk.current[u64(j)] = component
    return True


@step
def route(
    arena: Arena,
    entries: Entries,
    routes: Routes,
    walk: Walk,
    i: int,
    storing: bool,
    strict: bool,
    count_only: bool,
    tally: int,
    out: int,
) -> int:
    """Find all results of the tuple bound in `walk`; return the results now (see `stairs.kernels.climb.climb`)."""
    hops, ops, classes, m = routes.hops, routes.ops, arena.classes, walk.current.shape[0]
    base, d = routes.span[u64(i), R_TRUNK], np.int64(FIRST)
    n = classes.shape[0]
    every = routes.span[u64(i), R_END] - base
    frame = walk.frames[u64(d)]
    frame[T_DONE] = 0
    frame[T_DONE + 1] = 0
    # The ready bits of the arrival itself follow the masks of the classes.
    frame[T_READY] = routes.ready[u64(m * n + i), 0]
    frame[T_READY + 1] = routes.ready[u64(m * n + i), 1]
    choose(arena, entries, routes, walk, i, d, tally)
    while d >= FIRST:
        frame = walk.frames[u64(d)]
        h = frame[T_HOP]
        s = frame[T_CANDIDATE]
        x, record, agrees = hops[u64(h), H_STATE], np.int64(0), True
        if x < 0:
            j = hops[u64(h), H_TARGET]
            if s < arena.streams[u64(j), S_LO]:
                d -= 1
                continue
            if frame[T_OFFSET] <= SCANS:
                by, number = SCANS - 1 - frame[T_OFFSET], s
                s = scanned_tuple(arena, routes, by, number)
                record = record_of(arena, j, s)
                low = arena.streams[u64(j), S_LO]
                frame[T_CANDIDATE] = after_scanned(arena, routes, by, walk.current, number, low)
            else:
                record = record_of(arena, j, s)
                frame[T_CANDIDATE] = np.int64(arena.recs[u64(record + frame[T_OFFSET])])
            walk.current[u64(j)] = s
            agrees = arena.recs[u64(record + 1)] >= 0
        else:
            if s < entries.states[u64(x), E_TAIL]:
                d -= 1
                continue
            frame[T_CANDIDATE] = np.int64(peek_int32(entry_at(entries, x, s)))
            if not take_entry(arena, entries, walk, x, s):
                continue
        done, more = frame[T_DONE], frame[T_DONE + 1]
        ready, ready_more = frame[T_READY], frame[T_READY + 1]
        for o in range(hops[u64(h), H_OPS0], hops[u64(h), H_OPS1]):
            c = ops[u64(o), O_CLASS]
            if x >= 0:
                record = record_of(arena, ops[u64(o), O_STREAM], walk.current[u64(ops[u64(o), O_STREAM])])
            kid = np.int64(arena.recs[u64(record + ops[u64(o), O_OFFSET] + 1)])
            row = classes[u64(c), C_HEADS] + kid * classes[u64(c), C_STRIDE]
            bound = is_bound(arena, routes, i, c, done, more)
            if bound and ops[u64(o), O_CHECK] == 0:
                if walk.bound[u64(c)] != row:
                    agrees = False
                    break
                continue
            # The key of a scan class is that of the last tuple: a STAIR over it is looked up next.
            walk.bound[u64(c)] = row
            walk.kids[u64(c)] = kid
            if not bound:
                ready |= routes.ready[u64(i * n + c), 0]
                ready_more |= routes.ready[u64(i * n + c), 1]
        first = hops[u64(h), H_COMPARE]
        for k in range(first, end_of(routes, first)):
            test = routes.compares[u64(k)]
            if agrees and is_done(test[X_LEVEL], done, more):
                agrees = holds(arena, test, walk.current[u64(test[X_STREAM])], walk.current[u64(test[X_OTHER])])
        if not agrees:
            continue
        routes.counts[V_MATCHES, u64(h)] += tally
        y = hops[u64(h), H_STORE]
        if y >= 0 and storing:
            store(arena, entries, walk, y)
        if d == every:
            out = take_result(arena, walk, strict, count_only, out)
            continue
        rank = h - base
        if rank < 64:
            done |= np.int64(1) << rank
        else:
            more |= np.int64(1) << (rank - 64)
        d += 1
        onward = walk.frames[u64(d)]
        onward[T_DONE] = done
        onward[T_DONE + 1] = more
        onward[T_READY] = ready
        onward[T_READY + 1] = ready_more
        choose(arena, entries, routes, walk, i, d, tally)
    return out


@inlined
def is_on_one_key(arena: Arena, entries: Entries, routes: Routes) -> bool:
    """Return whether all modules are SteMs, of one key, without comparisons."""
    alike = arena.classes.shape[0] == 1 and routes.compares.shape[0] == 0
    return alike and entries.states.shape[0] == 0 and arena.streams.shape[0] > 1


@step
def visit(
    arena: Arena, routes: Routes, walk: Walk, i: int, strict: bool, count_only: bool, tally: int, out: int
) -> int:
    """Do the work of `route` where all modules are SteMs of one key (see the module)."""
    hops, heads, following = routes.hops, arena.heads, walk.turn
    base, row, d = routes.span[u64(i), R_TRUNK], walk.bound[0], np.int64(0)
    last = routes.span[u64(i), R_END] - base - 1
    following[0] = heads[u64(row + hops[u64(base), H_TARGET])]
    routes.counts[V_PROBES, u64(base)] += tally
    while d >= 0:
        h, s = base + d, following[u64(d)]
        j = hops[u64(h), H_TARGET]
        if s < arena.streams[u64(j), S_LO]:
            d -= 1
            continue
        following[u64(d)] = arena.recs[u64(record_of(arena, j, s))]
        walk.current[u64(j)] = s
        routes.counts[V_MATCHES, u64(h)] += tally
        if d < last:
            d += 1
            following[u64(d)] = heads[u64(row + hops[u64(h + 1), H_TARGET])]
            routes.counts[V_PROBES, u64(h + 1)] += tally
        else:
            out = take_result(arena, walk, strict, count_only, out)
    return out
