"""The kernel of the engine: one call takes a whole push through interning, probing, results and insertion.

Each arrival walks the hops of its stream's route depth first. At level l the walk holds one candidate of hop l; a
candidate that is live and passes the hop's checks binds the key ids of its classes and opens level l + 1; past the last
hop a result is written. Only then is the arrival inserted: so it meets every older tuple once, and each result is found
exactly once, by its last component.

Nothing is compiled for a plan: routes are tables. When room runs short, the arrival at hand is walked to its end
without writing, so that the room it needs is known and the counters are right; then the kernel stops with a status, the
caller makes room and calls again, and that arrival is walked once more.
"""

from __future__ import annotations

import numpy as np

from stairs.accelerate import inlined, jit, u64
from stairs.arena import Arena, Batch, Routes, Walk
from stairs.fields import (
    A_CLASS,
    A_COLUMN,
    A_INPUT,
    A_OFFSET,
    A_STREAM,
    C_FREE,
    C_FREE0,
    C_HEADS,
    C_NEXT,
    C_NEXT0,
    C_SHIFT,
    C_STRIDE,
    C_TABLE,
    C_WIDTH,
    DONE,
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
    M_ARRIVAL,
    M_INTERN_ATTR,
    M_INTERN_ROW,
    M_LATENESS,
    M_NEED,
    M_OUT,
    M_SHORT,
    M_STARTED,
    M_TALLIED,
    M_TIMED,
    M_WATERMARK,
    NEED_KEYS,
    NEED_LISTS,
    NEED_OUTPUT,
    O_CHECK,
    O_CLASS,
    O_OFFSET,
    R_END,
    R_LEAF,
    R_ROOT,
    R_TRUNK,
    S_ATTR0,
    S_ATTR1,
    S_DEAD,
    S_KIND,
    S_LO,
    S_MASK,
    S_NEXT,
    S_RECS,
    S_SIZE,
    S_TIMES,
    S_WALKED,
    S_WIDTH,
    SHORT_LISTS,
    SHORT_OUTPUT,
)
from stairs.graph import FOREVER
from stairs.keys_kernels import adopt, find_slot, spread, sweep

ROWS = 0
RANGE = 1
MOST_RESULTS = 1 << 48
"""An arrival that completes more ends the push: no product overflows an int64."""


@inlined
def intern_batch(arena: Arena, batch: Batch, rows: np.ndarray) -> int:
    """Write the key ids of all rows of the push into the records they will have. Goes on from where it stopped.

    In a pass of its own, look-ups of neighbouring rows do not wait for each other; the ring has room for all of them
    beside the live window (`Modules.begin` sees to it).
    """
    attrs, streams, classes, recs, meta = arena.attrs, arena.streams, arena.classes, arena.recs, arena.meta
    table = arena.table
    while meta[M_INTERN_ATTR] < attrs.shape[0]:
        x = meta[M_INTERN_ATTR]
        i, c = attrs[x, A_STREAM], attrs[x, A_CLASS]
        ring, mask, width = streams[i, S_RECS], streams[i, S_MASK], streams[i, S_WIDTH]
        first, dead = streams[i, S_NEXT], streams[i, S_DEAD]
        field, source, words = attrs[x, A_OFFSET] + 1, attrs[x, A_INPUT], classes[c, C_WIDTH]
        base, shift = classes[c, C_TABLE], classes[c, C_SHIFT]
        last = (np.int64(1) << (64 - shift)) - 1
        for r in range(meta[M_INTERN_ROW], rows[i]):
            kid = np.int64(-1)
            if batch.dead[u64(dead + r)] == 0:
                at = source + r * words
                if words == 1:
                    # The look-up of find_slot, with what it reads of the class held in registers.
                    tag = batch.input[u64(at)]
                    slot = spread(tag, shift)
                    p = base + 2 * slot
                    kid = table[u64(p + 1)]
                    while kid >= 0 and table[u64(p)] != tag:
                        slot = (slot + 1) & last
                        p = base + 2 * slot
                        kid = table[u64(p + 1)]
                else:
                    p = find_slot(arena, c, batch.input, at)
                    kid = table[u64(p + 1)]
                if kid < 0:
                    kid = adopt(arena, c, batch.input, at, p)
                    if kid < 0:
                        meta[M_INTERN_ROW] = r
                        meta[M_NEED] = c
                        return NEED_KEYS
            recs[u64(ring + ((first + r) & mask) * width + field)] = kid
        meta[M_INTERN_ATTR] = x + 1
        meta[M_INTERN_ROW] = 0
    return DONE


@inlined
def expire_range(arena: Arena, j: int) -> None:
    """Move the low mark of a RANGE window past every tuple that no acceptable arrival can match. O(1) a tuple, once."""
    streams, meta = arena.streams, arena.meta
    horizon = meta[M_WATERMARK] - meta[M_LATENESS] - streams[j, S_SIZE]
    lo, following, mask, ring = streams[j, S_LO], streams[j, S_NEXT], streams[j, S_MASK], streams[j, S_TIMES]
    while lo < following and arena.times[u64(ring + (lo & mask))] < horizon:
        lo += 1
    streams[j, S_LO] = lo


@inlined
def agree(arena: Arena, routes: Routes, walk: Walk, record: int, first: int, last: int) -> bool:
    """Check and bind the keys of the tuple just matched, whose record starts at `record`: ops first .. last - 1."""
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
    """Return the newest sequence number a hop finds for the key bound for its class."""
    return np.int64(arena.heads[u64(walk.bound[u64(routes.hops[u64(h), H_CLASS])] + routes.hops[u64(h), H_COLUMN])])


@inlined
def all_live(arena: Arena, routes: Routes, walk: Walk, first: int, last: int) -> bool:
    """Tell whether each of the leaf hops first .. last - 1 finds a live tuple: if not, the walk need not go on."""
    # No way out in the middle: the heads lie side by side, and one branch is guessed wrong less often than several.
    live = True
    for h in range(first, last):
        live &= head(arena, routes, walk, h) >= arena.streams[u64(routes.hops[u64(h), H_TARGET]), S_LO]
    return live


@inlined
def collect(arena: Arena, routes: Routes, walk: Walk, i: int, first: int, last: int, tally: int) -> None:
    """Write the live tuples that leaf hops first .. last - 1 find into `walk.lists`, as far as there is room."""
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
    """Write the components bound as result `out`."""
    m = walk.current.shape[0]
    for j in range(m):
        walk.ids[u64(out * m + j)] = walk.current[u64(j)]


@inlined
def extend(arena: Arena, routes: Routes, walk: Walk, i: int, out: int) -> int:
    """Do what `product` does for a route with one leaf hop: each tuple it found makes a result."""
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
    """Write every combination of the collected lists with the components bound; return the results now, written or not.

    The first combination is written, then doubled as it were: for each list, the block so far is copied once for each
    further element, which is put in its place in the copy. So lists of one element cost nothing.
    """
    hops, ids, ends, lists = routes.hops, walk.ids, walk.ends, walk.lists
    leaf, end = routes.span[i, R_LEAF], routes.span[i, R_END]
    # In floating point beside, where it cannot wrap around.
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
    """Do what `product` does, keeping only combinations in which no component is too old for the youngest."""
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
    """Collect the leaf hops from `first` on and write the results; return how many there are now."""
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
    """Find all results whose last component is the arrival bound in `walk` and return how many there are now.

    `out` results are in `walk.ids` before; whether all fit, meta[M_SHORT] tells. `strict`: a candidate may be older or
    younger than the arrival by more than a window (lateness is allowed), so the times of all components are compared.
    """
    streams, hops, recs = arena.streams, routes.hops, arena.recs
    candidate, back = walk.levels[0], walk.levels[1]
    trunk, leaf, root = routes.span[i, R_TRUNK], routes.span[i, R_LEAF], routes.span[i, R_ROOT]
    if arena.meta[M_TIMED] != 0:
        for h in range(trunk, routes.span[i, R_END]):
            if streams[hops[u64(h), H_TARGET], S_KIND] == RANGE:
                expire_range(arena, hops[u64(h), H_TARGET])
    if not all_live(arena, routes, walk, leaf, root):
        return out
    streams[i, S_WALKED] += tally
    if trunk == leaf:
        return finish(arena, routes, walk, i, strict, count_only, tally, out, leaf)
    # `resume` is the deepest level above the one at hand that has a live candidate left, -1 = none: the walk goes back
    # there at once, not level by level. levels[0] holds these candidates, levels[1] the level to
    # resume after each.
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
def bind(arena: Arena, walk: Walk, i: int, record: int) -> None:
    """Bind the head rows of the keys of an arrival."""
    attrs, classes = arena.attrs, arena.classes
    for x in range(arena.streams[i, S_ATTR0], arena.streams[i, S_ATTR1]):
        c = u64(attrs[u64(x), A_CLASS])
        kid = arena.recs[u64(record + attrs[u64(x), A_OFFSET] + 1)]
        walk.bound[c] = classes[c, C_HEADS] + kid * classes[c, C_STRIDE]


@inlined
def insert(arena: Arena, walk: Walk, i: int, s: int, record: int) -> None:
    """Make the arrival the newest tuple of its keys in its SteM."""
    attrs = arena.attrs
    for x in range(arena.streams[i, S_ATTR0], arena.streams[i, S_ATTR1]):
        p = u64(walk.bound[u64(attrs[u64(x), A_CLASS])] + attrs[u64(x), A_COLUMN])
        arena.recs[u64(record + attrs[u64(x), A_OFFSET])] = arena.heads[p]
        arena.heads[p] = s


@inlined
def start(arena: Arena, rows: np.ndarray) -> None:
    """Sweep dead keys, note which ids are in use, and lay out the input: words and marks, stream after stream."""
    streams, classes, attrs = arena.streams, arena.classes, arena.attrs
    sweep(arena)
    for c in range(classes.shape[0]):
        classes[c, C_NEXT0] = classes[c, C_NEXT]
        classes[c, C_FREE0] = classes[c, C_FREE]
    words, marks = np.int64(0), np.int64(0)
    for i in range(streams.shape[0]):
        streams[i, S_DEAD] = marks
        marks += rows[i]
        for x in range(streams[i, S_ATTR0], streams[i, S_ATTR1]):
            attrs[u64(x), A_INPUT] = words
            words += rows[i] * classes[attrs[u64(x), A_CLASS], C_WIDTH]
    arena.meta[M_STARTED] = 1


@jit
def push(arena: Arena, routes: Routes, batch: Batch, walk: Walk, rows: np.ndarray, count_only: bool) -> int:
    """Take the arrivals of a push from where they stand to the end, or to where room is needed; return the status.

    rows    int64[streams], rows of the push per stream
    """
    streams, meta, recs = arena.streams, arena.meta, arena.recs
    if meta[M_STARTED] == 0:
        start(arena, rows)
    status = intern_batch(arena, batch, rows)
    if status != DONE:
        return status
    timed, strict = meta[M_TIMED] != 0, meta[M_LATENESS] > 0
    out = meta[M_OUT]
    tally = 1 - meta[M_TALLIED]
    meta[M_TALLIED] = 0
    meta[M_SHORT] = 0
    meta[M_NEED] = 0
    for a in range(meta[M_ARRIVAL], batch.order.shape[0]):
        i = u64(batch.order[a])
        s = streams[i, S_NEXT]
        slot = s & streams[i, S_MASK]
        if timed:
            meta[M_WATERMARK] = max(meta[M_WATERMARK], arena.times[u64(streams[i, S_TIMES] + slot)])
        record = streams[i, S_RECS] + slot * streams[i, S_WIDTH]
        alive = recs[u64(record + 1)] >= 0
        if alive:
            bind(arena, walk, i, record)
            walk.current[i] = s
            found = probe(arena, routes, walk, i, strict, count_only, tally, out)
            if meta[M_SHORT] != 0:
                meta[M_ARRIVAL] = a
                meta[M_OUT] = out
                meta[M_TALLIED] = 1
                if meta[M_SHORT] >= SHORT_LISTS:
                    return NEED_LISTS
                meta[M_NEED] = found
                return NEED_OUTPUT
            out = found
            tally = 1
            # A dependent walk binds no class of the arrival anew, so its rows are still bound.
            insert(arena, walk, i, s, record)
        streams[i, S_NEXT] = s + 1
        if streams[i, S_KIND] == ROWS and s + 1 - streams[i, S_SIZE] > streams[i, S_LO]:
            streams[i, S_LO] = s + 1 - streams[i, S_SIZE]
    meta[M_ARRIVAL] = batch.order.shape[0]
    meta[M_OUT] = out
    if timed:
        for i in range(streams.shape[0]):
            if streams[i, S_KIND] == RANGE:
                expire_range(arena, i)
    return DONE
