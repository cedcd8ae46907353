"""The walk along a compiled route over SteMs: no state is stored, and inner nodes of the plan are virtual.

The walk goes depth first. At level l it has one candidate of hop l. A candidate that is live and passes the checks of
its hop binds the key ids of its classes and opens level l + 1. After the last trunk hop, each leaf hop is looked up
once, and the walk writes the product of their matches.
Source of the multi-way join without intermediate states: Viglas, Naughton, Burger, "Maximizing the output rate of
multi-way join queries over streaming information sources", VLDB 2003 (MJoin).
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    C_HEADS,
    C_STRIDE,
    H_CLASS,
    H_COLUMN,
    H_LEAF0,
    H_LEAF1,
    H_MATCHES,
    H_OFFSET,
    H_OPS0,
    H_OPS1,
    H_PROBES,
    H_TARGET,
    M_CHANGELOG,
    M_LATENESS,
    M_NEED,
    M_SHORT,
    M_TALLIED,
    M_TIMED,
    M_WATERMARK,
    NEED_ENTRIES,
    NEED_LISTS,
    NEED_OUTPUT,
    O_CHECK,
    O_CLASS,
    O_OFFSET,
    R_END,
    R_LEAF,
    R_ROOT,
    R_TRUNK,
    S_KIND,
    S_LO,
    S_MASK,
    S_NEXT,
    S_RECS,
    S_SIZE,
    S_TIMES,
    S_WALKED,
    S_WIDTH,
    SHORT_ENTRIES,
    SHORT_LISTS,
    SHORT_OUTPUT,
)
from stairs.graph import FOREVER
from stairs.kernels.accelerate import inlined, u64
from stairs.memory.arena import Arena, Routes, Walk

ROWS = 0
RANGE = 1
MOST_RESULTS = 1 << 48
"""Upper bound on the results of an arrival, so that no product overflows an int64. More results end the push."""


@inlined
def expire_range(arena: Arena, j: int) -> None:
    """Advance the low mark of a RANGE window past tuples that no later arrival can match. Amortised O(1) per tuple."""
    streams, meta = arena.streams, arena.meta
    horizon = meta[M_WATERMARK] - meta[M_LATENESS] - streams[j, S_SIZE]
    lo, following, mask, ring = streams[j, S_LO], streams[j, S_NEXT], streams[j, S_MASK], streams[j, S_TIMES]
    while lo < following and arena.times[u64(ring + (lo & mask))] < horizon:
        lo += 1
    streams[j, S_LO] = lo


@inlined
def agree(arena: Arena, routes: Routes, walk: Walk, record: int, first: int, last: int) -> bool:
    """Check and bind the keys of the tuple whose record starts at `record`: ops first .. last - 1."""
    ops, classes = routes.ops, arena.classes
    for o in range(first, last):
        c = u64(ops[u64(o), O_CLASS])
        kid = arena.recs[u64(record + ops[u64(o), O_OFFSET] + 1)]
        row = classes[c, C_HEADS] + kid * classes[c, C_STRIDE]
        if ops[u64(o), O_CHECK] == 0:
            walk.bound[c] = row
        elif walk.bound[c] != row:
            return False
    return True


@inlined
def head(arena: Arena, routes: Routes, walk: Walk, h: int) -> int:
    """Return the newest sequence number that a hop finds for the bound key of its class."""
    return np.int64(arena.heads[u64(walk.bound[u64(routes.hops[u64(h), H_CLASS])] + routes.hops[u64(h), H_COLUMN])])


@inlined
def all_live(arena: Arena, routes: Routes, walk: Walk, first: int, last: int) -> bool:
    """Return whether each leaf hop first .. last - 1 finds a live tuple; if not, the walk has no result."""
    # Without an early exit: the heads are adjacent, and one branch is mispredicted less often than several.
    live = True
    for h in range(first, last):
        live &= head(arena, routes, walk, h) >= arena.streams[u64(routes.hops[u64(h), H_TARGET]), S_LO]
    return live


@inlined
def collect(arena: Arena, routes: Routes, walk: Walk, i: int, first: int, last: int, tally: int) -> None:
    """Write the live tuples that leaf hops first .. last - 1 find into `walk.lists`, as many as fit."""
    streams, hops, recs, base = arena.streams, routes.hops, arena.recs, routes.span[i, R_LEAF]
    at, room = walk.ends[u64(first - base)], walk.lists.shape[0]
    for h in range(first, last):
        j, offset = u64(hops[u64(h), H_TARGET]), hops[u64(h), H_OFFSET]
        ring, mask, width, lo = streams[j, S_RECS], streams[j, S_MASK], streams[j, S_WIDTH], streams[j, S_LO]
        s = head(arena, routes, walk, h)
        began = at
        while s >= lo:
            if at < room:
                walk.lists[u64(at)] = s
            at += 1
            s = np.int64(recs[u64(ring + (s & mask) * width + offset)])
        hops[u64(h), H_PROBES] += tally
        hops[u64(h), H_MATCHES] += tally * (at - began)
        walk.ends[u64(h - base + 1)] = at
    if at > room:
        arena.meta[M_SHORT] |= SHORT_LISTS
        arena.meta[M_NEED] = max(arena.meta[M_NEED], at)


@inlined
def write(walk: Walk, out: int) -> None:
    """Write the bound components as result `out`."""
    m = walk.current.shape[0]
    for j in range(m):
        walk.ids[u64(out * m + j)] = walk.current[u64(j)]


@inlined
def extend(arena: Arena, routes: Routes, walk: Walk, i: int, out: int) -> int:
    """Do the work of `product` for a route with one leaf hop: each tuple that it found makes one result."""
    total, m = walk.ends[1], walk.current.shape[0]
    if (out + total) * m > walk.ids.shape[0]:
        arena.meta[M_SHORT] |= SHORT_OUTPUT
        return out + total
    j = u64(routes.hops[u64(routes.span[i, R_LEAF]), H_TARGET])
    for e in range(total):
        walk.current[j] = walk.lists[u64(e)]
        write(walk, out + e)
    return out + total


@inlined
def product(arena: Arena, routes: Routes, walk: Walk, i: int, count_only: bool, out: int) -> int:
    """Write every combination of the collected lists with the bound components; return the results now, written or not.

    The first combination forms a block. For each list, the block is copied once per further element of the list, which
    replaces the first element in the copy. So lists of one element cost nothing.
    """
    hops, ids, ends, lists = routes.hops, walk.ids, walk.ends, walk.lists
    leaf, end = routes.span[i, R_LEAF], routes.span[i, R_END]
    # The float cannot wrap around.
    total, size = np.int64(1), 1.0
    for k in range(end - leaf):
        total *= ends[u64(k + 1)] - ends[u64(k)]
        size *= ends[u64(k + 1)] - ends[u64(k)]
    if size > MOST_RESULTS:
        arena.meta[M_SHORT] |= SHORT_OUTPUT
        return MOST_RESULTS
    if count_only:
        return out + total
    m = walk.current.shape[0]
    if (out + total) * m > ids.shape[0]:
        arena.meta[M_SHORT] |= SHORT_OUTPUT
        return out + total
    for k in range(end - leaf):
        walk.current[u64(hops[u64(leaf + k), H_TARGET])] = lists[u64(ends[u64(k)])]
    write(walk, out)
    if total == 1:
        return out + 1
    block, origin = m, out * m
    for k in range(end - leaf - 1, -1, -1):
        at = origin + block
        for e in range(ends[u64(k)] + 1, ends[u64(k + 1)]):
            s = lists[u64(e)]
            for q in range(block):
                ids[u64(at + q)] = ids[u64(origin + q)]
            for q in range(at + hops[u64(leaf + k), H_TARGET], at + block, m):
                ids[u64(q)] = s
            at += block
        block = at - origin
    return out + total


@inlined
def strict_product(arena: Arena, routes: Routes, walk: Walk, i: int, count_only: bool, out: int) -> int:
    """Do the work of `product`, but keep only combinations in which no component is too old for the youngest."""
    hops, ends, lists, streams = routes.hops, walk.ends, walk.lists, arena.streams
    leaf, end, trunk = routes.span[i, R_LEAF], routes.span[i, R_END], routes.span[i, R_TRUNK]
    turn = walk.levels[2]
    for k in range(end - leaf):
        if ends[u64(k)] == ends[u64(k + 1)]:
            return out
        turn[u64(k)] = ends[u64(k)]
    while True:
        for k in range(end - leaf):
            walk.current[hops[u64(leaf + k), H_TARGET]] = lists[turn[u64(k)]]
        greatest, deadline = np.int64(-2 * FOREVER), np.int64(2 * FOREVER)
        for h in range(trunk - 1, end):
            j = i if h < trunk else u64(hops[u64(h), H_TARGET])
            t = arena.times[u64(streams[j, S_TIMES] + (walk.current[j] & streams[j, S_MASK]))]
            greatest = max(greatest, t)
            if streams[j, S_KIND] == RANGE:
                deadline = min(deadline, t + streams[j, S_SIZE])
        if greatest <= deadline:
            if not count_only:
                if (out + 1) * walk.current.shape[0] <= walk.ids.shape[0]:
                    write(walk, out)
                else:
                    arena.meta[M_SHORT] |= SHORT_OUTPUT
            out += 1
        k = end - leaf - 1
        while k >= 0:
            turn[u64(k)] += 1
            if turn[u64(k)] < ends[u64(k + 1)]:
                break
            turn[u64(k)] = ends[u64(k)]
            k -= 1
        if k < 0:
            return out


@inlined
def finish(
    arena: Arena, routes: Routes, walk: Walk, i: int, strict: bool, count_only: bool, tally: int, out: int, first: int
) -> int:
    """Collect the leaf hops from `first` on and write the results; return the number of results now."""
    collect(arena, routes, walk, i, first, routes.span[i, R_END], tally)
    if arena.meta[M_SHORT] >= SHORT_LISTS:
        return out
    if strict:
        return strict_product(arena, routes, walk, i, count_only, out)
    if routes.span[i, R_END] - routes.span[i, R_LEAF] == 1 and not count_only:
        return extend(arena, routes, walk, i, out)
    return product(arena, routes, walk, i, count_only, out)


@inlined
def probe(
    arena: Arena, routes: Routes, walk: Walk, i: int, strict: bool, count_only: bool, tally: int, out: int
) -> int:
    """Find all results whose last component is the arrival bound in `walk`, and return the number of results now.

    meta[M_SHORT] reports results that did not fit.

    strict   a candidate may be older or younger than the arrival by more than a window, because lateness is allowed;
             so the event times of all components are compared
    out      the number of results in `walk.ids` before
    """
    streams, hops, recs = arena.streams, routes.hops, arena.recs
    candidate, back = walk.levels[0], walk.levels[1]
    trunk, leaf, root = routes.span[i, R_TRUNK], routes.span[i, R_LEAF], routes.span[i, R_ROOT]
    if arena.meta[M_TIMED] != 0 and arena.meta[M_CHANGELOG] == 0:
        for h in range(trunk, routes.span[i, R_END]):
            if streams[hops[u64(h), H_TARGET], S_KIND] == RANGE:
                expire_range(arena, hops[u64(h), H_TARGET])
    if not all_live(arena, routes, walk, leaf, root):
        return out
    streams[i, S_WALKED] += tally
    if trunk == leaf:
        return finish(arena, routes, walk, i, strict, count_only, tally, out, leaf)
    # `resume` is the deepest level above the present one that has a live candidate left, -1 = none. The walk returns
    # there directly. levels[0] contains these candidates, levels[1] the level to resume after each of them.
    resume, level, first = np.int64(-1), np.int64(0), leaf
    h = trunk
    j = u64(hops[u64(h), H_TARGET])
    low = streams[j, S_LO]
    s = head(arena, routes, walk, h)
    hops[u64(h), H_PROBES] += tally
    while True:
        if s < low:
            if resume < 0:
                return out
            level = resume
            s = candidate[u64(level)]
            resume = back[u64(level)]
            h = trunk + level
            j = u64(hops[u64(h), H_TARGET])
            low = streams[j, S_LO]
        record = streams[j, S_RECS] + (s & streams[j, S_MASK]) * streams[j, S_WIDTH]
        following = np.int64(recs[u64(record + hops[u64(h), H_OFFSET])])
        walk.current[j] = s
        if not agree(arena, routes, walk, record, hops[u64(h), H_OPS0], hops[u64(h), H_OPS1]):
            s = following
            continue
        hops[u64(h), H_MATCHES] += tally
        if not all_live(arena, routes, walk, hops[u64(h), H_LEAF0], hops[u64(h), H_LEAF1]):
            s = following
            continue
        if h + 1 == leaf:
            out = finish(arena, routes, walk, i, strict, count_only, tally, out, first)
            first = root
            s = following
            continue
        if following >= low:
            candidate[u64(level)] = following
            back[u64(level)] = resume
            resume = level
        level += 1
        h += 1
        j = u64(hops[u64(h), H_TARGET])
        low = streams[j, S_LO]
        s = head(arena, routes, walk, h)
        hops[u64(h), H_PROBES] += tally


@inlined
def shortage(arena: Arena, found: int) -> int:
    """Return the status for the room that a walk lacked; the counters include the walk, which will be repeated."""
    meta = arena.meta
    meta[M_TALLIED] = 1
    if (meta[M_SHORT] & SHORT_ENTRIES) != 0:
        return NEED_ENTRIES
    if meta[M_SHORT] >= SHORT_LISTS:
        return NEED_LISTS
    meta[M_NEED] = found
    return NEED_OUTPUT
