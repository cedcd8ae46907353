"""Kernels that read live state for a sample of tuples; they change only the arrays for their output.

`sample` picks recent tuples, and counts for each pick its partners in every SteM. `trace` walks a route as
`stairs.kernels.levels` does, but depth first; it counts its steps and writes no results, and it stops when a budget of
steps is spent. So a plan can be tried on the present state at a bounded cost, even if the plan is bad.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    A_CLASS,
    A_COLUMN,
    A_OFFSET,
    A_STREAM,
    C_HEADS,
    C_SCAN,
    C_STRIDE,
    H_CLASS,
    H_COLUMN,
    H_COMPARE,
    H_LEAF0,
    H_LEAF1,
    H_OFFSET,
    H_OPS0,
    H_OPS1,
    H_TARGET,
    O_CHECK,
    O_CLASS,
    O_OFFSET,
    R_END,
    R_LEAF,
    R_ROOT,
    R_TRUNK,
    S_ATTR0,
    S_ATTR1,
    S_BASE,
    S_LO,
    S_MASK,
    S_NEXT,
    S_RECS,
    S_VALUES,
    S_WIDTH,
    SCANS,
    WITHIN,
    X_KIND,
    X_RING,
)
from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.bands import has_band
from stairs.kernels.compare import all_hold, bounds, next_within
from stairs.kernels.marks import newest_of
from stairs.kernels.versions import BURIED
from stairs.memory.arena import Arena, Routes, Walk

GOLDEN = 2654435769
"""2 ** 32 divided by the golden ratio: its multiples fill an interval evenly."""
PASSED = 256
"""Tuples that a scan passes over in the time of a step."""
LONGEST = 64
"""Number of tuples of a chain that are counted; the rest is estimated from their distance."""

# work[k]: totals of a trace over its tuples
W_TUPLES = 0  # tuples whose walk began
W_PROBES = 1  # chains looked up by trunk hops
W_VISITS = 2  # tuples visited in them
W_CHECKS = 3  # leaf hops compared before the walk continued
W_LEAVES = 4  # chains walked by leaf hops
W_LEAF_VISITS = 5  # tuples visited in those
W_RESULTS = 6
W_SCANNED = 7  # tuples that scans passed over, by their first comparison
W_SPARED = 8  # ... those that a scan would not pass over because a band would find the next one
W_SEARCHED = 9  # scans that would search a band
W_FIELDS = 10


@inlined
def chain_length(arena: Arena, j: int, offset: int, newest: int) -> float:
    """Return the number of live tuples in a chain of stream j: counted up to LONGEST, estimated beyond."""
    row = arena.streams[u64(j)]
    low, s, n = row[S_LO], np.int64(newest), 0
    while s >= low and n < LONGEST:
        n += 1
        s = np.int64(arena.recs[u64(row[S_RECS] + (s & row[S_MASK]) * row[S_WIDTH] + offset)])
    if s < low:
        return float(n)
    return n * float(newest - low + 1) / float(newest - s)


@inlined
def profile(arena: Arena, i: int, s: int, counts: np.ndarray) -> None:
    """Count the live partners of tuple s of stream i: for each of its classes, in each other stream of the class."""
    attrs, classes, streams = arena.attrs, arena.classes, arena.streams
    record = streams[i, S_RECS] + (s & streams[i, S_MASK]) * streams[i, S_WIDTH]
    k = 0
    for x in range(streams[i, S_ATTR0], streams[i, S_ATTR1]):
        c = attrs[x, A_CLASS]
        kid = int(arena.recs[u64(record + attrs[x, A_OFFSET] + 1)])
        if kid <= BURIED:
            # A version that has ended since it arrived.
            kid = BURIED - kid
        row = classes[c, C_HEADS] + kid * classes[c, C_STRIDE]
        for y in range(attrs.shape[0]):
            if attrs[y, A_CLASS] == c and attrs[y, A_STREAM] != i:
                counts[k] = 0.0
                if kid >= 0 and classes[c, C_SCAN] != 0:
                    row_of_other = streams[attrs[y, A_STREAM]]
                    counts[k] = float(row_of_other[S_NEXT] - row_of_other[S_LO])
                elif kid >= 0:
                    newest = newest_of(arena.heads[u64(row + attrs[y, A_COLUMN])])
                    counts[k] = chain_length(arena, attrs[y, A_STREAM], attrs[y, A_OFFSET], newest)
                k += 1


@jit
def sample(
    arena: Arena, each: int, progress: np.ndarray, owed: np.ndarray, picks: np.ndarray, profiles: np.ndarray
) -> int:
    """Pick about `each` of the arrivals since the last sample and profile them; return the number of these arrivals.

    progress   int64[streams + 1, 3]: per stream, arrivals up to the last sample, arrivals since then, all picks; in the
               last row, all picks of all streams
    owed       float64[streams]: picks due to each stream, with fractions carried over
    picks      int64[n, 2]: a ring of stream and sequence number
    profiles   float64[streams, rows, k]: per stream, a ring
    """
    streams, m = arena.streams, arena.streams.shape[0]
    total = np.int64(0)
    for i in range(m):
        now = streams[i, S_NEXT] + streams[i, S_BASE]
        progress[i, 1] = now - progress[i, 0]
        progress[i, 0] = now
        total += progress[i, 1]
    if total <= 0:
        return 0
    for i in range(m):
        span = min(progress[i, 1], streams[i, S_NEXT] - streams[i, S_LO])
        owed[i] += each * float(progress[i, 1]) / float(total)
        n = min(np.int64(owed[i]), span)
        owed[i] = min(owed[i] - n, 1.0)
        for k in range(n):
            # One pick from each of n stretches, at a position that moves by the golden ratio. At even distances, keys
            # that arrive periodically could always be picked at the same point of their period.
            first, width = k * span // n, (k + 1) * span // n - k * span // n
            place = (((progress[m, 2] & 0xFFFFFFF) * GOLDEN & 0xFFFFFFFF) * width) >> 32
            s = streams[i, S_NEXT] - 1 - first - place
            profile(arena, i, s, profiles[i, progress[i, 2] % profiles.shape[1]])
            at = progress[m, 2] % picks.shape[0]
            picks[at, 0] = i
            picks[at, 1] = s
            progress[i, 2] += 1
            progress[m, 2] += 1
    return int(total)


@jit
def count_partners(arena: Arena, i: int, tuples: np.ndarray, counts: np.ndarray) -> None:
    """Profile live tuples of stream i, int64[n] sequence numbers, into counts, float64[n, neighbours of i]."""
    for n in range(tuples.shape[0]):
        profile(arena, i, tuples[n], counts[n])


@inlined
def follow(arena: Arena, routes: Routes, j: int, h: int, s: int) -> int:
    """Return the candidate after s in the chain of hop h."""
    row = arena.streams[u64(j)]
    at = row[S_RECS] + (s & row[S_MASK]) * row[S_WIDTH] + routes.hops[u64(h), H_OFFSET]
    return s - 1 if routes.hops[u64(h), H_OFFSET] == SCANS else int(arena.recs[u64(at)])


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
def skip(arena: Arena, routes: Routes, walk: Walk, h: int, s: int, work: np.ndarray) -> int:
    """Return the candidate of a hop from s on; a scan passes over tuples that do not fulfil its first comparison."""
    if routes.hops[u64(h), H_OFFSET] != SCANS:
        return s
    x = routes.hops[u64(h), H_COMPARE]
    if x < 0 or routes.compares[u64(x), X_KIND] != WITHIN:
        return s
    test, row = routes.compares[u64(x)], arena.streams[u64(routes.hops[u64(h), H_TARGET])]
    ring = row[S_VALUES] + test[X_RING] * (row[S_MASK] + 1)
    least, most = bounds(arena, test, walk.current)
    candidate = next_within(arena.values, ring, row[S_MASK], s, row[S_LO], least, most)
    work[W_SCANNED] += float(s - candidate)
    work[W_SPARED] += float(s - candidate) if has_band(arena, routes, h) else 0.0
    return int(candidate)


@inlined
def head(arena: Arena, routes: Routes, walk: Walk, h: int, pruned: bool) -> int:
    """Return the newest sequence number that a hop finds for the bound key of its class."""
    if routes.hops[u64(h), H_OFFSET] == SCANS:
        return int(arena.streams[u64(routes.hops[u64(h), H_TARGET]), S_NEXT] - 1)
    at = walk.bound[u64(routes.hops[u64(h), H_CLASS])] + routes.hops[u64(h), H_COLUMN]
    return int(arena.heads[u64(at)]) if pruned else newest_of(arena.heads[u64(at)])


@inlined
def first_of(arena: Arena, routes: Routes, walk: Walk, h: int, pruned: bool, work: np.ndarray) -> int:
    """Return the first candidate of a hop."""
    if routes.hops[u64(h), H_OFFSET] == SCANS and has_band(arena, routes, h):
        work[W_SEARCHED] += 1.0
    return skip(arena, routes, walk, h, head(arena, routes, walk, h, pruned), work)


@inlined
def all_live(arena: Arena, routes: Routes, walk: Walk, first: int, last: int, pruned: bool) -> bool:
    """Return whether each leaf hop first .. last - 1 finds a live tuple; if not, the walk has no result."""
    # Without an early exit: the heads are adjacent, and one branch is mispredicted less often than several.
    live = True
    for h in range(first, last):
        live &= head(arena, routes, walk, h, pruned) >= arena.streams[u64(routes.hops[u64(h), H_TARGET]), S_LO]
    return live


@inlined
def is_bound_by(routes: Routes, h: int, c: int) -> bool:
    """Return whether a match of hop h binds the key of class c."""
    bound = False
    for o in range(routes.hops[u64(h), H_OPS0], routes.hops[u64(h), H_OPS1]):
        bound |= routes.ops[u64(o), O_CHECK] == 0 and routes.ops[u64(o), O_CLASS] == c
    return bound


@inlined
def ahead_live(arena: Arena, routes: Routes, walk: Walk, i: int, h: int, leaf: int, work: np.ndarray) -> bool:
    """Return whether the trunk hops that are looked up ahead of their turn find a live tuple.

    i   the stream of the arrival that has bound their keys, before hop h; -1 = hop h has bound them. The hop that comes
        next is not looked up ahead.
    """
    live, attrs = True, arena.attrs
    for later in range(h + 1 if i >= 0 else h + 2, leaf):
        c, bound = routes.hops[u64(later), H_CLASS], False
        if i < 0:
            bound = is_bound_by(routes, h, c)
        else:
            for x in range(arena.streams[u64(i), S_ATTR0], arena.streams[u64(i), S_ATTR1]):
                bound |= attrs[u64(x), A_CLASS] == c
        if bound:
            work[W_CHECKS] += 1.0
            low = arena.streams[u64(routes.hops[u64(later), H_TARGET]), S_LO]
            live &= head(arena, routes, walk, later, True) >= low
    return live


@inlined
def leaf_product(
    arena: Arena, routes: Routes, walk: Walk, first: int, last: int, work: np.ndarray, pruned: bool
) -> float:
    """Count the tuples that leaf hops first .. last - 1 find, and return the product of the counts."""
    product = 1.0
    for h in range(first, last):
        j = routes.hops[u64(h), H_TARGET]
        newest = head(arena, routes, walk, h, pruned)
        length = chain_length(arena, j, routes.hops[u64(h), H_OFFSET], newest)
        work[W_LEAVES] += 1.0
        work[W_LEAF_VISITS] += length
        product *= length
    return product


@jit
def trace(
    arena: Arena,
    routes: Routes,
    walk: Walk,
    streams: np.ndarray,
    tuples: np.ndarray,
    budget: int,
    visits: np.ndarray,
    work: np.ndarray,
    pruned: bool,
) -> None:
    """Walk the routes of live tuples, in this order, until the budget of trunk steps is spent.

    A scan passes over tuples, newest first, also where the plan would search a band. PASSED of them count as a step.

    streams, tuples   int64[n], the stream and sequence number of each tuple
    visits            int64[hops, 3], incremented: chains looked up, tuples visited, tuples that passed the checks
    work              float64[W_FIELDS], incremented; W_SCANNED is 0 at first
    pruned            whether the walk stops at no-good marks and looks hops up ahead of their turn, as that of a plan
                      with nothing stored does
    """
    hops, attrs = routes.hops, arena.attrs
    candidate, back = walk.levels[0], walk.levels[1]
    for n in range(tuples.shape[0]):
        if budget <= np.int64(work[W_SCANNED]) // PASSED:
            return
        i = u64(streams[n])
        record = arena.streams[i, S_RECS] + (tuples[n] & arena.streams[i, S_MASK]) * arena.streams[i, S_WIDTH]
        work[W_TUPLES] += 1.0
        if arena.recs[u64(record + 1)] < 0:
            continue
        for x in range(arena.streams[i, S_ATTR0], arena.streams[i, S_ATTR1]):
            c = u64(attrs[u64(x), A_CLASS])
            kid = np.int64(arena.recs[u64(record + attrs[u64(x), A_OFFSET] + 1)])
            walk.bound[c] = arena.classes[c, C_HEADS] + kid * arena.classes[c, C_STRIDE]
        walk.current[i] = tuples[n]
        trunk, leaf, root = routes.span[i, R_TRUNK], routes.span[i, R_LEAF], routes.span[i, R_ROOT]
        end = routes.span[i, R_END]
        work[W_CHECKS] += root - leaf
        budget -= 1
        if not all_live(arena, routes, walk, leaf, root, pruned):
            continue
        if pruned and not ahead_live(arena, routes, walk, int(i), trunk, leaf, work):
            continue
        around = leaf_product(arena, routes, walk, leaf, root, work, pruned) if trunk == leaf else 0.0
        if trunk == leaf:
            work[W_RESULTS] += around
            continue
        resume, level, h = np.int64(-1), np.int64(0), trunk
        j = hops[u64(h), H_TARGET]
        s = first_of(arena, routes, walk, h, pruned, work)
        visits[u64(h), 0] += 1
        work[W_PROBES] += 1.0
        while budget > np.int64(work[W_SCANNED]) // PASSED:
            if s < arena.streams[u64(j), S_LO]:
                if resume < 0:
                    break
                level = resume
                s, resume = candidate[u64(level)], back[u64(level)]
                h = trunk + level
                j = hops[u64(h), H_TARGET]
            budget -= 1
            visits[u64(h), 1] += 1
            work[W_VISITS] += 1.0
            following = skip(arena, routes, walk, h, follow(arena, routes, j, h, s), work)
            start = arena.streams[u64(j), S_RECS] + (s & arena.streams[u64(j), S_MASK]) * arena.streams[u64(j), S_WIDTH]
            walk.current[u64(j)] = s
            fits = agree(arena, routes, walk, start, hops[u64(h), H_OPS0], hops[u64(h), H_OPS1])
            if arena.recs[u64(start + 1)] < 0 or not fits or not all_hold(arena, routes, h, walk.current):
                s = following
                continue
            visits[u64(h), 2] += 1
            work[W_CHECKS] += hops[u64(h), H_LEAF1] - hops[u64(h), H_LEAF0]
            if not all_live(arena, routes, walk, hops[u64(h), H_LEAF0], hops[u64(h), H_LEAF1], pruned):
                s = following
                continue
            if pruned and not ahead_live(arena, routes, walk, -1, h, leaf, work):
                s = following
                continue
            if h + 1 == leaf:
                if around == 0.0:
                    # Looked up once for all results of the tuple, as in a walk.
                    around = leaf_product(arena, routes, walk, leaf, root, work, pruned)
                work[W_RESULTS] += around * leaf_product(arena, routes, walk, root, end, work, pruned)
                s = following
                continue
            if following >= arena.streams[u64(j), S_LO]:
                candidate[u64(level)] = following
                back[u64(level)] = resume
                resume = level
            level += 1
            h += 1
            j = hops[u64(h), H_TARGET]
            s = first_of(arena, routes, walk, h, pruned, work)
            visits[u64(h), 0] += 1
            work[W_PROBES] += 1.0
