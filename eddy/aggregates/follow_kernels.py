"""Kernels that follow arrivals and departures (`eddy.aggregates.ring_kernels`), and write what changes in groups.

If there are several roots, they are a connected part of the tree, and their tuples are joined (`expand`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eddy.aggregates.ring import (
    B_LOW,
    B_NEXT,
    G_AT,
    G_LIMBS,
    G_PLAIN,
    J_ATTR,
    J_FROM,
    J_FROM_ATTR,
    J_STREAM,
    M_DONE,
    M_FOUND,
    M_NEED,
    M_OPEN,
    M_OUT,
    M_TIME,
    M_WALKED,
    T_HOP0,
    T_OUT,
    T_PART0,
    T_PART1,
    T_TOUCHED,
    T_WIDTH,
    Int64s,
    Ring,
)
from eddy.aggregates.ring_kernels import (
    add_part,
    add_term,
    add_tuples,
    clear_changes,
    leave,
    newest,
    product,
    record_of,
    rise,
    row_at,
    times,
)
from stairs.descriptors import (
    A_OFFSET,
    M_TIMED,
    S_KIND,
    S_LO,
    S_MASK,
    S_NEXT,
    S_SIZE,
    S_VALUES,
)
from stairs.kernels.accelerate import inlined, jit, step, u64
from stairs.kernels.windows import RANGE, ROWS
from stairs.memory.arena import Arena


@inlined
def write_row(arena: Arena, ring: Ring, root: int, at: int, out: Int64s) -> None:
    """Write the product of the rows of all roots to `out`, if there is room: tuples, count, parts."""
    m, n = ring.roots.shape[0], ring.meta[M_OUT]
    ring.meta[M_OUT] += 1
    if n >= out.shape[0]:
        return
    target = out[u64(n)]
    for f in range(target.shape[0]):
        target[u64(f)] = 0
    count = np.int64(1)
    for k in range(m):
        v = ring.roots[u64(k)]
        target[u64(k)] = ring.walk[u64(v), 0]
        count = times(ring, count, ring.walk[u64(v), 2])
    target[u64(m)] = count
    if m > 1:
        ring.meta[M_FOUND] += abs(count)
    for k in range(m):
        v = ring.roots[u64(k)]
        factor = np.int64(1)
        for j in range(m):
            if j != k:
                factor = times(ring, factor, ring.walk[u64(ring.roots[u64(j)]), 2])
        row = ring.tree[u64(v)]
        for g in range(row[T_PART0], row[T_PART1]):
            part = ring.parts[u64(g)]
            to, start = row[T_OUT] + part[G_AT] - 1, part[G_AT]
            if v == root:
                add_part(target, to, ring.deltas, at + start, factor, part[G_PLAIN], part[G_LIMBS])
            else:
                add_part(target, to, ring.terms[u64(v)], start, factor, part[G_PLAIN], part[G_LIMBS])


@inlined
def first_candidate(arena: Arena, ring: Ring, hop: Int64s) -> int:
    """Return the newest tuple of a root with the key of the one found before."""
    at = record_of(arena, hop[J_FROM], ring.walk[u64(hop[J_FROM]), 0]) + arena.attrs[u64(hop[J_FROM_ATTR]), A_OFFSET]
    return newest(arena, hop[J_ATTR], np.int64(arena.recs[u64(at + 1)]))


@step
def expand_tuple(arena: Arena, ring: Ring, root: int, at: int, out: Int64s) -> None:
    """Write the rows of the tuple found of a root with the tuples of the other roots."""
    hops, last = ring.tree[u64(root), T_HOP0], ring.roots.shape[0] - 2
    level = np.int64(0)
    if last < 0:
        write_row(arena, ring, root, at, out)
        return
    first = ring.hops[u64(hops)]
    ring.walk[u64(first[J_STREAM]), 1] = first_candidate(arena, ring, first)
    while level >= 0:
        hop = ring.hops[u64(hops + level)]
        q = hop[J_STREAM]
        t = ring.walk[u64(q), 1]
        if t < ring.bounds[u64(q), B_LOW]:
            level -= 1
            continue
        link = record_of(arena, q, t) + arena.attrs[u64(hop[J_ATTR]), A_OFFSET]
        ring.walk[u64(q), 1] = np.int64(arena.recs[u64(link)])
        if t >= ring.bounds[u64(q), B_NEXT]:
            continue
        ring.meta[M_WALKED] += 1
        total = product(arena, ring, q, t, np.int64(-1))
        if total == 0:
            continue
        terms = ring.terms[u64(q)]
        for f in range(ring.tree[u64(q), T_WIDTH]):
            terms[u64(f)] = 0
        add_term(arena, ring, terms, np.int64(0), q, t, total, np.int64(-1), np.int64(0), np.int64(1))
        ring.walk[u64(q), 0], ring.walk[u64(q), 2] = t, terms[0]
        if level == last:
            write_row(arena, ring, root, at, out)
        else:
            level += 1
            following = ring.hops[u64(hops + level)]
            ring.walk[u64(following[J_STREAM]), 1] = first_candidate(arena, ring, following)


@step
def expand(arena: Arena, ring: Ring, out: Int64s) -> bool:
    """Write the effect of the changes of all roots to `out`, and forget the changes. False = no room, no effect."""
    before = ring.meta[M_OUT]
    for k in range(ring.roots.shape[0]):
        v = ring.roots[u64(k)]
        row, mask = ring.tree[u64(v)], arena.streams[u64(v), S_MASK]
        for n in range(ring.counts[u64(v)]):
            s = np.int64(ring.touched[u64(row[T_TOUCHED] + n)])
            at, empty = row_at(ring, v, s & mask), True
            for f in range(row[T_WIDTH]):
                empty = empty and ring.deltas[u64(at + f)] == 0
            if not empty:
                ring.walk[u64(v), 0], ring.walk[u64(v), 2] = s, ring.deltas[u64(at)]
                expand_tuple(arena, ring, v, at, out)
    if ring.meta[M_OUT] > out.shape[0]:
        ring.meta[M_NEED], ring.meta[M_OUT] = ring.meta[M_OUT], before
        return False
    for k in range(ring.roots.shape[0]):
        clear_changes(arena, ring, ring.roots[u64(k)])
    return True


@inlined
def may_go_on(arena: Arena, ring: Ring, out: Int64s) -> bool:
    """Expand the changes of the last event if there are several roots, whose windows are about to change."""
    if ring.roots.shape[0] > 1 and ring.meta[M_OPEN] != 0 and not expand(arena, ring, out):
        return False
    ring.meta[M_OPEN] = 0
    return True


@jit
def follow_windows(arena: Arena, ring: Ring, out: Int64s) -> bool:
    """Bring the windows to their present state, stream by stream, and write the changes to `out`.

    Return False if `out` lacks room; another call resumes.
    """
    while ring.meta[M_DONE] < arena.streams.shape[0]:
        if not may_go_on(arena, ring, out):
            return False
        v = ring.meta[M_DONE]
        low, following = arena.streams[u64(v), S_LO], arena.streams[u64(v), S_NEXT]
        before, last = ring.bounds[u64(v), B_LOW], ring.bounds[u64(v), B_NEXT]
        if low > before or following > last:
            add_tuples(arena, ring, v, before, min(low, last), np.int64(-1))
            add_tuples(arena, ring, v, max(low, last), following, np.int64(1))
            rise(arena, ring, v, np.bool_(True))
            ring.bounds[u64(v), B_LOW], ring.bounds[u64(v), B_NEXT] = low, following
        ring.meta[M_DONE], ring.meta[M_OPEN] = v + 1, 1
    return expand(arena, ring, out)


@inlined
def leave_ranges(arena: Arena, ring: Ring, watermark: int) -> None:
    """Let all tuples leave that are too old for their RANGE windows."""
    streams = arena.streams
    for j in range(streams.shape[0]):
        if streams[u64(j), S_KIND] == RANGE:
            low, first, mask = ring.bounds[u64(j), B_LOW], streams[u64(j), S_VALUES], streams[u64(j), S_MASK]
            while low < ring.bounds[u64(j), B_NEXT]:
                if arena.values[u64(first + (low & mask))] >= watermark - streams[u64(j), S_SIZE]:
                    break
                low += 1
            leave(arena, ring, j, low)


@jit
def follow_arrivals(arena: Arena, ring: Ring, order: npt.NDArray[np.uint8], out: Int64s) -> bool:
    """Take the arrivals of a push in their order: each adds its joined rows, and what leaves takes none back.

    Return False if `out` lacks room; another call resumes.
    """
    streams, meta = arena.streams, ring.meta
    while meta[M_DONE] < order.shape[0]:
        i = np.int64(order[u64(meta[M_DONE])])
        s = ring.bounds[u64(i), B_NEXT]
        if meta[M_OPEN] == 0:
            if arena.meta[M_TIMED] != 0:
                time = arena.values[u64(streams[u64(i), S_VALUES] + (s & streams[u64(i), S_MASK]))]
                meta[M_TIME] = max(meta[M_TIME], time)
                leave_ranges(arena, ring, meta[M_TIME])
            add_tuples(arena, ring, i, s, s + 1, np.int64(1))
            rise(arena, ring, i, np.bool_(True))
            meta[M_OPEN] = 1
        # The effect of several roots depends on the present windows; the effect of a single root does not.
        if ring.roots.shape[0] > 1 and not expand(arena, ring, out):
            return False
        meta[M_OPEN] = 0
        ring.bounds[u64(i), B_NEXT] = s + 1
        if streams[u64(i), S_KIND] == ROWS:
            leave(arena, ring, i, s + 1 - streams[u64(i), S_SIZE])
        meta[M_DONE] += 1
    return expand(arena, ring, out)
