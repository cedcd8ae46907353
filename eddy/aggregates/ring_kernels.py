"""Kernels of ring values (`eddy.aggregates.rings`): the changes by a tuple, from its stream up to a root.

A *row* of numbers stands for a set of partial results: how many they are, and for each input among their components a
*part*: in how many of them it is not null (and counts of NaN, inf, -inf), then the limbs of its sum. Rows are added,
and multiplied as polynomials of degree one: of two rows of different streams, each part is scaled by the other count.

    values   the row of a stream v and a key: all partial results of v and the streams below it with this key, over the
             tuples within `bounds`. UNKNOWN until a tuple of the parent asks for it (`promote`)
    deltas   the changes under way: by key, and by tuple for roots
    lifts    the parts of the inputs of single tuples

A count stays below LIMIT, so no limb overflows; otherwise M_OVER is set, and the computed values are meaningless.
Source: Nikolic, Olteanu, "Incremental view maintenance with triple lock factorization benefits", SIGMOD 2018 (F-IVM).
"""

from __future__ import annotations

import numpy as np

from eddy.aggregates.kernels import LIMB, MASK
from eddy.aggregates.ring import (
    B_LOW,
    B_NEXT,
    D_ATTR,
    D_STREAM,
    G_AT,
    G_ATTR,
    G_FROM,
    G_LIMBS,
    G_PLAIN,
    G_SOURCE,
    LIMIT,
    M_FOUND,
    M_OVER,
    M_WALKED,
    T_CHILD0,
    T_CHILD1,
    T_LIFT_WIDTH,
    T_LIFTS,
    T_PARENT,
    T_PARENT_UP,
    T_PART0,
    T_PART1,
    T_TOUCHED,
    T_UP,
    T_VALUES,
    T_WIDTH,
    UNKNOWN,
    Int64s,
    Ring,
)
from stairs.descriptors import (
    A_CLASS,
    A_COLUMN,
    A_OFFSET,
    C_HEADS,
    C_STRIDE,
    S_MASK,
    S_RECS,
    S_WIDTH,
)
from stairs.kernels.accelerate import inlined, step, u64
from stairs.kernels.marks import newest_of
from stairs.memory.arena import Arena


@inlined
def record_of(arena: Arena, i: int, s: int) -> int:
    """Return where the record of a tuple starts."""
    streams = arena.streams
    return streams[u64(i), S_RECS] + (s & streams[u64(i), S_MASK]) * streams[u64(i), S_WIDTH]


@inlined
def newest(arena: Arena, x: int, kid: int) -> int:
    """Return the newest tuple with a key of attribute x, below 0 if there is none."""
    c = u64(arena.attrs[u64(x), A_CLASS])
    p = arena.classes[c, C_HEADS] + kid * arena.classes[c, C_STRIDE] + arena.attrs[u64(x), A_COLUMN]
    return np.int64(newest_of(np.int64(arena.heads[u64(p)])))


@inlined
def row_at(ring: Ring, v: int, key: int) -> int:
    """Return where a row of a stream starts."""
    return ring.tree[u64(v), T_VALUES] + key * ring.tree[u64(v), T_WIDTH]


@inlined
def times(ring: Ring, left: int, right: int) -> int:
    """Return the product of two counts below LIMIT."""
    count = left * right
    if abs(count) >= LIMIT:
        ring.meta[M_OVER] = 1
        return np.int64(1)
    return count


@inlined
def add_part(target: Int64s, at: int, source: Int64s, start: int, factor: int, plain: int, limbs: int) -> None:
    """Add a part, times a factor below LIMIT, to another part in normal form, which stays in normal form."""
    for k in range(plain):
        target[u64(at + k)] += source[u64(start + k)] * factor
    at, start = at + plain, start + plain
    over = np.int64(0)
    for k in range(limbs - 1):
        value = target[u64(at + k)] + source[u64(start + k)] * factor + over
        target[u64(at + k)] = value & MASK
        over = value >> LIMB
    if limbs > 0:
        target[u64(at + limbs - 1)] += source[u64(start + limbs - 1)] * factor + over


@step
def add_term(
    arena: Arena, ring: Ring, target: Int64s, at: int, v: int, s: int, total: int, skip: int, change: int, count: int
) -> None:
    """Add the partial results of a tuple to the row target[at:].

    total    product of the counts of its children but `skip`, of which none is 0
    skip     the child whose rows are `deltas` from `change` on, -1 = none
    count    the count of that row, or 1 or -1
    """
    weight = times(ring, total, count)
    target[u64(at)] += weight
    record, row = record_of(arena, v, s), ring.tree[u64(v)]
    if row[T_UP] < 0 and ring.roots.shape[0] == 1:
        ring.meta[M_FOUND] += abs(weight)
    for g in range(row[T_PART0], row[T_PART1]):
        part = ring.parts[u64(g)]
        w = part[G_FROM]
        if w < 0:
            slot = s & arena.streams[u64(v), S_MASK]
            start = row[T_LIFTS] + slot * row[T_LIFT_WIDTH] + part[G_SOURCE]
            add_part(target, at + part[G_AT], ring.lifts, start, weight, part[G_PLAIN], part[G_LIMBS])
        elif w == skip:
            start = change + part[G_SOURCE]
            add_part(target, at + part[G_AT], ring.deltas, start, total, part[G_PLAIN], part[G_LIMBS])
        else:
            kid = np.int64(arena.recs[u64(record + arena.attrs[u64(part[G_ATTR]), A_OFFSET] + 1)])
            start = row_at(ring, w, kid)
            factor = times(ring, total // ring.values[u64(start)], count)
            start += part[G_SOURCE]
            add_part(target, at + part[G_AT], ring.values, start, factor, part[G_PLAIN], part[G_LIMBS])


@step
def known_product(arena: Arena, ring: Ring, v: int, s: int, skip: int) -> int:
    """Return the product of the counts of the children of a tuple but `skip`; if one is UNKNOWN and none 0, -1 - it."""
    record, total, unknown = record_of(arena, v, s), np.int64(1), np.int64(-1)
    if arena.recs[u64(record + 1)] < 0:
        return np.int64(0)
    for k in range(ring.tree[u64(v), T_CHILD0], ring.tree[u64(v), T_CHILD1]):
        w = ring.children[u64(k), D_STREAM]
        if w == skip:
            continue
        kid = np.int64(arena.recs[u64(record + arena.attrs[u64(ring.children[u64(k), D_ATTR]), A_OFFSET] + 1)])
        count = ring.values[u64(row_at(ring, w, kid))]
        if count == 0:
            return np.int64(0)
        if count == UNKNOWN:
            unknown = np.int64(k) if unknown < 0 else unknown
        else:
            total = times(ring, total, count)
    return total if unknown < 0 else -1 - unknown


@inlined
def open_frame(arena: Arena, ring: Ring, depth: int, v: int, s: int, k: int) -> None:
    """Begin to compute the row that child k of tuple s of stream v asks for."""
    w, x = ring.children[u64(k), D_STREAM], ring.children[u64(k), D_ATTR]
    kid = np.int64(arena.recs[u64(record_of(arena, v, s) + arena.attrs[u64(x), A_OFFSET] + 1)])
    frame = ring.frames[u64(depth)]
    frame[0], frame[1], frame[2] = w, kid, newest(arena, ring.tree[u64(w), T_UP], kid)
    for f in range(ring.tree[u64(w), T_WIDTH]):
        ring.sums[u64(depth), u64(f)] = 0


@step
def promote(arena: Arena, ring: Ring, v: int, s: int, k: int) -> None:
    """Compute the row that child k of tuple s of stream v asks for, and those below it that are UNKNOWN."""
    depth = np.int64(0)
    open_frame(arena, ring, depth, v, s, k)
    while depth >= 0:
        frame = ring.frames[u64(depth)]
        w, kid, t = frame[0], frame[1], frame[2]
        if t < ring.bounds[u64(w), B_LOW]:
            at = row_at(ring, w, kid)
            if ring.sums[u64(depth), 0] >= LIMIT:
                ring.meta[M_OVER] = 1
            for f in range(ring.tree[u64(w), T_WIDTH]):
                ring.values[u64(at + f)] = ring.sums[u64(depth), u64(f)]
            depth -= 1
            continue
        if t < ring.bounds[u64(w), B_NEXT]:
            ring.meta[M_WALKED] += 1
            total = known_product(arena, ring, w, t, -1)
            if total < 0:
                depth += 1
                open_frame(arena, ring, depth, w, t, -1 - total)
                continue
            if total > 0:
                add_term(arena, ring, ring.sums[u64(depth)], 0, w, t, total, -1, 0, 1)
        link = record_of(arena, w, t) + arena.attrs[u64(ring.tree[u64(w), T_UP]), A_OFFSET]
        frame[2] = np.int64(arena.recs[u64(link)])


@step
def product(arena: Arena, ring: Ring, v: int, s: int, skip: int) -> int:
    """Return the product of the counts of the children of a tuple but `skip`."""
    while True:
        total = known_product(arena, ring, v, s, skip)
        if total >= 0:
            return total
        promote(arena, ring, v, s, -1 - total)


@inlined
def touch(arena: Arena, ring: Ring, v: int, s: int) -> int:
    """Return where the change of the row of a tuple starts: that of its key, or of itself in the root."""
    x = ring.tree[u64(v), T_UP]
    if x < 0:
        key, name = s & arena.streams[u64(v), S_MASK], s
    else:
        key = np.int64(arena.recs[u64(record_of(arena, v, s) + arena.attrs[u64(x), A_OFFSET] + 1)])
        name = key
    first = ring.tree[u64(v), T_TOUCHED]
    if ring.marked[u64(first + key)] == 0:
        ring.marked[u64(first + key)] = 1
        ring.touched[u64(first + ring.counts[u64(v)])] = name
        ring.counts[u64(v)] += 1
    return row_at(ring, v, key)


@inlined
def add_tuples(arena: Arena, ring: Ring, v: int, first: int, last: int, sign: int) -> None:
    """Add the partial results of some tuples of a stream to the changes, or subtract them."""
    for s in range(first, last):
        total = product(arena, ring, v, s, -1)
        if total > 0:
            add_term(arena, ring, ring.deltas, touch(arena, ring, v, s), v, s, total, -1, 0, sign)


@inlined
def settle(ring: Ring, v: int, key: int, at: int) -> bool:
    """Add the change of a key to its row if the row is known; return whether the change is zero."""
    to, row, empty = row_at(ring, v, key), ring.tree[u64(v)], True
    for f in range(row[T_WIDTH]):
        empty = empty and ring.deltas[u64(at + f)] == 0
    if not empty and ring.values[u64(to)] != UNKNOWN:
        ring.values[u64(to)] += ring.deltas[u64(at)]
        if ring.values[u64(to)] >= LIMIT:
            ring.meta[M_OVER] = 1
        for g in range(row[T_PART0], row[T_PART1]):
            part = ring.parts[u64(g)]
            add_part(
                ring.values, to + part[G_AT], ring.deltas, at + part[G_AT], np.int64(1), part[G_PLAIN], part[G_LIMBS]
            )
    return empty


@step
def rise(arena: Arena, ring: Ring, v: int, emits: bool) -> None:
    """Carry the changes of a stream up to the root; if not `emits`, up to its children."""
    while ring.tree[u64(v), T_UP] >= 0:
        row, p = ring.tree[u64(v)], ring.tree[u64(v), T_PARENT]
        ends = not emits and ring.tree[u64(p), T_UP] < 0
        link = arena.attrs[u64(row[T_PARENT_UP]), A_OFFSET]
        for n in range(ring.counts[u64(v)]):
            kid = np.int64(ring.touched[u64(row[T_TOUCHED] + n)])
            at = row_at(ring, v, kid)
            empty = settle(ring, v, kid, at)
            if not empty and not ends:
                count = ring.deltas[u64(at)]
                s = newest(arena, row[T_PARENT_UP], kid)
                while s >= ring.bounds[u64(p), B_LOW]:
                    if s < ring.bounds[u64(p), B_NEXT]:
                        ring.meta[M_WALKED] += 1
                        total = product(arena, ring, p, s, v)
                        if total > 0:
                            to = touch(arena, ring, p, s)
                            add_term(arena, ring, ring.deltas, to, p, s, total, v, at, count)
                    s = np.int64(arena.recs[u64(record_of(arena, p, s) + link)])
            for f in range(row[T_WIDTH]):
                ring.deltas[u64(at + f)] = 0
            ring.marked[u64(row[T_TOUCHED] + kid)] = 0
        ring.counts[u64(v)] = 0
        v = p


@step
def leave(arena: Arena, ring: Ring, v: int, low: int) -> None:
    """Let the tuples of a stream before `low` leave, and take no joined row back."""
    before = ring.bounds[u64(v), B_LOW]
    if low > before:
        if ring.tree[u64(v), T_UP] >= 0:
            add_tuples(arena, ring, v, before, min(low, ring.bounds[u64(v), B_NEXT]), np.int64(-1))
            rise(arena, ring, v, np.bool_(False))
        ring.bounds[u64(v), B_LOW] = low


@inlined
def clear_changes(arena: Arena, ring: Ring, root: int) -> None:
    """Forget the changes of a root."""
    row, mask = ring.tree[u64(root)], arena.streams[u64(root), S_MASK]
    for n in range(ring.counts[u64(root)]):
        slot = np.int64(ring.touched[u64(row[T_TOUCHED] + n)]) & mask
        at = row_at(ring, root, slot)
        for f in range(row[T_WIDTH]):
            ring.deltas[u64(at + f)] = 0
        ring.marked[u64(row[T_TOUCHED] + slot)] = 0
    ring.counts[u64(root)] = 0
