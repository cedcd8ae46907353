"""Kernels of ring values (`eddy.aggregates.rings`): what arrivals and departures change, from a stream up to a root.

A *row* of numbers stands for a set of partial results: how many they are, and for each input among their components a
*part*: in how many of them it is not null (and counts of NaN, inf, -inf), then the limbs of its sum. Rows are added,
and multiplied as polynomials of degree one: of two rows of different streams, each part is scaled by the other count.

    values   the row of a stream v and a key: all partial results of v and the streams below it with this key, over the
             tuples within `bounds`. UNKNOWN until a tuple of the parent asks for it (`promote`)
    deltas   the changes under way: by key, and by tuple for roots
    lifts    the parts of the inputs of single tuples

If there are several roots, they are a connected part of the tree, and their tuples are joined (`expand`).

A count stays below LIMIT, so no limb overflows; else M_OVER is set, and what was computed has no meaning.
Source: Nikolic, Olteanu, "Incremental view maintenance with triple lock factorization benefits", SIGMOD 2018 (F-IVM).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from eddy.aggregates.kernels import LIMB, MASK
from stairs.descriptors import (
    A_CLASS,
    A_COLUMN,
    A_OFFSET,
    C_HEADS,
    C_STRIDE,
    M_CAP,
    M_TIMED,
    S_KIND,
    S_LO,
    S_MASK,
    S_NEXT,
    S_RECS,
    S_SIZE,
    S_VALUES,
    S_WIDTH,
)
from stairs.kernels.accelerate import bundled, inlined, jit, step, u64
from stairs.kernels.marks import newest_of
from stairs.kernels.windows import RANGE, ROWS
from stairs.memory.arena import Arena

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

UNKNOWN = np.int64(-(1 << 62))
"""The count of a row that was not asked for yet."""
LIMIT = np.int64(1 << 31)

# tree[v]: a stream
T_UP = 0  # its attribute of the class that it shares with its parent, a row of `attrs`; -1 = it is a root
T_PARENT = 1
T_PARENT_UP = 2  # the attribute of the parent in that class
T_WIDTH = 3  # numbers of a row
T_VALUES = 4  # where its rows start in `values` (not of roots) and in `deltas`
T_LIFTS = 5  # where the parts of its tuples start in `lifts`
T_LIFT_WIDTH = 6
T_CHILD0 = 7  # its children are rows CHILD0 .. CHILD1 - 1 of `children`
T_CHILD1 = 8
T_PART0 = 9  # its parts are rows PART0 .. PART1 - 1 of `parts`
T_PART1 = 10
T_TOUCHED = 11  # where its changed rows start in `touched` and `marked`
T_OUT = 12  # of a root: where its parts start in a row of `out`
T_HOP0 = 13  # of a root: the others are found by rows HOP0 .. HOP0 + roots - 2 of `hops`
T_FIELDS = 14

# children[k]
D_STREAM = 0
D_ATTR = 1  # the attribute of the parent in the class that they share
D_FIELDS = 2

# parts[k]
G_AT = 0  # where it starts in a row of the stream
G_FROM = 1  # the child that it comes from, -1 = the stream's own tuples
G_SOURCE = 2  # where it starts in a row of the child, or in the parts of a tuple
G_PLAIN = 3  # counts
G_LIMBS = 4
G_ATTR = 5  # D_ATTR of the child
G_FIELDS = 6

# hops[k]: another root, with one that was found before
J_STREAM = 0
J_ATTR = 1  # its attribute in the class that both share
J_FROM = 2  # the one found before
J_FROM_ATTR = 3
J_FIELDS = 4

# bounds[v]
B_LOW = 0  # the first tuple that counts
B_NEXT = 1

# meta
M_OVER = 0  # 1 = a count has reached LIMIT
M_WALKED = 1  # tuples visited
M_FOUND = 2  # joined rows that begin, and that end, as far as they were told apart
M_OUT = 3  # rows of `out`
M_TIME = 4  # watermark at the last arrival
M_DONE = 5  # streams or arrivals taken
M_OPEN = 6  # 1 = the last one has changed roots that were not expanded yet
M_NEED = 7  # rows of `out` that are needed
M_FIELDS = 8


@bundled
class Ring(NamedTuple):
    """The arrays of ring values (see the module).

    frames, sums   memory of `promote`: int64[streams, 4], int64[streams, widest row]
    touched, marked  by stream the changed rows (keys, or sequence numbers of the root), and whether a row is one
    counts         int64[streams], the number of changed rows
    roots          int64[roots]
    found, terms   by root in `expand`: its tuple, the next candidate, its count, int64[streams, 3]; its row
    """

    tree: Int64s
    children: Int64s
    parts: Int64s
    values: Int64s
    deltas: Int64s
    lifts: Int64s
    frames: Int64s
    sums: Int64s
    touched: Int32s
    marked: npt.NDArray[np.uint8]
    counts: Int64s
    bounds: Int64s
    meta: Int64s
    roots: Int64s
    hops: Int64s
    found: Int64s
    terms: Int64s


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
    found = left * right
    if abs(found) >= LIMIT:
        ring.meta[M_OVER] = 1
        return np.int64(1)
    return found


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
    own = times(ring, total, count)
    target[u64(at)] += own
    record, row = record_of(arena, v, s), ring.tree[u64(v)]
    if row[T_UP] < 0 and ring.roots.shape[0] == 1:
        ring.meta[M_FOUND] += abs(own)
    for g in range(row[T_PART0], row[T_PART1]):
        part = ring.parts[u64(g)]
        w = part[G_FROM]
        if w < 0:
            slot = s & arena.streams[u64(v), S_MASK]
            start = row[T_LIFTS] + slot * row[T_LIFT_WIDTH] + part[G_SOURCE]
            add_part(target, at + part[G_AT], ring.lifts, start, own, part[G_PLAIN], part[G_LIMBS])
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
    """Add the change of a key to its row if that is known; return whether the change is none."""
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
        target[u64(k)] = ring.found[u64(v), 0]
        count = times(ring, count, ring.found[u64(v), 2])
    target[u64(m)] = count
    if m > 1:
        ring.meta[M_FOUND] += abs(count)
    for k in range(m):
        v = ring.roots[u64(k)]
        factor = np.int64(1)
        for j in range(m):
            if j != k:
                factor = times(ring, factor, ring.found[u64(ring.roots[u64(j)]), 2])
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
    at = record_of(arena, hop[J_FROM], ring.found[u64(hop[J_FROM]), 0]) + arena.attrs[u64(hop[J_FROM_ATTR]), A_OFFSET]
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
    ring.found[u64(first[J_STREAM]), 1] = first_candidate(arena, ring, first)
    while level >= 0:
        hop = ring.hops[u64(hops + level)]
        q = hop[J_STREAM]
        t = ring.found[u64(q), 1]
        if t < ring.bounds[u64(q), B_LOW]:
            level -= 1
            continue
        link = record_of(arena, q, t) + arena.attrs[u64(hop[J_ATTR]), A_OFFSET]
        ring.found[u64(q), 1] = np.int64(arena.recs[u64(link)])
        if t >= ring.bounds[u64(q), B_NEXT]:
            continue
        ring.meta[M_WALKED] += 1
        total = product(arena, ring, q, t, np.int64(-1))
        if total == 0:
            continue
        own = ring.terms[u64(q)]
        for f in range(ring.tree[u64(q), T_WIDTH]):
            own[u64(f)] = 0
        add_term(arena, ring, own, np.int64(0), q, t, total, np.int64(-1), np.int64(0), np.int64(1))
        ring.found[u64(q), 0], ring.found[u64(q), 2] = t, own[0]
        if level == last:
            write_row(arena, ring, root, at, out)
        else:
            level += 1
            following = ring.hops[u64(hops + level)]
            ring.found[u64(following[J_STREAM]), 1] = first_candidate(arena, ring, following)


@step
def expand(arena: Arena, ring: Ring, out: Int64s) -> bool:
    """Write what the changes of all roots mean to `out`, and forget them. False = there is no room, nothing is done."""
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
                ring.found[u64(v), 0], ring.found[u64(v), 2] = s, ring.deltas[u64(at)]
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
    """Carry the windows to what they are now, stream by stream, and write what changes to `out`.

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
def follow_arrivals(arena: Arena, ring: Ring, order: npt.NDArray[np.uint8], lateness: int, out: Int64s) -> bool:
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
                meta[M_TIME] = min(max(meta[M_TIME], time), arena.meta[M_CAP])
                leave_ranges(arena, ring, meta[M_TIME] - lateness)
            add_tuples(arena, ring, i, s, s + 1, np.int64(1))
            rise(arena, ring, i, np.bool_(True))
            meta[M_OPEN] = 1
        # What several roots mean depends on the windows now; what one means does not.
        if ring.roots.shape[0] > 1 and not expand(arena, ring, out):
            return False
        meta[M_OPEN] = 0
        ring.bounds[u64(i), B_NEXT] = s + 1
        if streams[u64(i), S_KIND] == ROWS:
            leave(arena, ring, i, s + 1 - streams[u64(i), S_SIZE])
        meta[M_DONE] += 1
    return expand(arena, ring, out)
