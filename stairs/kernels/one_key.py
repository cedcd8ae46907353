"""Pushes of the most frequent join: all streams on one shared key, over SteMs.

Here the plan decides little. The heads of all partners of an arrival are in one row, one column per stream. So one
comparison of that row with the low marks of all windows decides whether the arrival has results; the kernel binds and
checks no key and walks no levels. It reads the descriptors of hops, as a general walk (`stairs.kernels.levels`) does,
only for arrivals with results. It follows the order of the route then, so the order of results and the counters are
those of the general walk.

A RANGE window may contain tuples that are too old for the arrival, because windows expire once in a block of arrivals,
and at an arrival that meets such a tuple. Where arrivals may be late, it may also contain partners that are too old for
each other. If no partner is too old for any other, all combinations are results; otherwise the kernel visits them one
by one.

A walk that lacks room runs to its end without writing, as in `stairs.kernels.one_by_one`.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    C_HEADS,
    C_NEXT,
    DONE,
    H_MATCHES,
    H_PROBES,
    H_TARGET,
    M_ARRIVAL,
    M_CAP,
    M_GIVEN,
    M_MODE,
    M_OUT,
    M_SHORT,
    M_STOP,
    M_TALLIED,
    M_TIMED,
    M_WATERMARK,
    R_END,
    R_LEAF,
    S_KIND,
    S_LO,
    S_MASK,
    S_NEXT,
    S_RECS,
    S_SIZE,
    S_VALUES,
    S_WALKED,
    SHORT_OUTPUT,
    VIRTUAL,
)
from stairs.graph import FOREVER
from stairs.kernels.accelerate import inlined, jit, step, u64
from stairs.kernels.by_address import opened
from stairs.kernels.combinations import MOST_RESULTS, shortage
from stairs.kernels.memory import NEAR, prefetch
from stairs.kernels.opening import open_push
from stairs.kernels.windows import RANGE, ROWS, expire_range, expire_ranges
from stairs.memory.arena import Arena, Batch, Routes, Walk

RECORD = 2
"""int32s in a record of a stream with one attribute: link, key id."""
BLOCK = 32
"""Number of arrivals that are prefetched together; `walk.ahead` has room for two blocks in progress. RANGE windows
expire once a block."""
NONE, SOME, ALL = 0, 1, 2


@inlined
def all_meet(arena: Arena, walk: Walk, i: int, row: int) -> bool:
    """Return whether the key whose heads start at `row` has a live tuple in every stream other than i."""
    heads, lows = arena.heads, walk.lows
    live = np.int64(0)
    for j in range(lows.shape[0]):
        live += heads[u64(row + j)] >= lows[u64(j)]
    return live + (heads[u64(row + i)] < lows[u64(i)]) == lows.shape[0]


@inlined
def expire(arena: Arena, walk: Walk) -> None:
    """Advance the low marks of all RANGE windows, as `expire_range` does."""
    streams, lows = arena.streams, walk.lows
    for j in range(lows.shape[0]):
        if streams[u64(j), S_KIND] == RANGE:
            expire_range(arena, j)
            lows[u64(j)] = streams[u64(j), S_LO]


@inlined
def combine(
    arena: Arena, routes: Routes, walk: Walk, i: int, row: int, s: int, count_only: bool, tally: int, out: int
) -> int:
    """Write every combination of the live partners of tuple s of stream i; return the results now, written or not.

    The newest partners form a block of one result. For each hop, from the last to the first, the block is copied once
    per further partner, which replaces the partner in the copy. So partners are visited one by one and never listed.
    """
    streams, hops, recs, heads, ids, lows = arena.streams, routes.hops, arena.recs, arena.heads, walk.ids, walk.lows
    m = lows.shape[0]
    made, size, origin, room = 1, 1.0, out * m, ids.shape[0]
    writing = not count_only and origin + m <= room
    if writing:
        for j in range(m):
            ids[u64(origin + j)] = heads[u64(row + j)]
        ids[u64(origin + i)] = s
    for h in range(routes.span[u64(i), R_END] - 1, routes.span[u64(i), R_LEAF] - 1, -1):
        j = hops[u64(h), H_TARGET]
        ring, mask, low = streams[u64(j), S_RECS], streams[u64(j), S_MASK], np.int64(lows[u64(j)])
        block, end = made * m, origin + made * m
        newest, partners = np.int64(heads[u64(row + j)]), 1
        partner = np.int64(recs[u64(ring + (newest & mask) * RECORD)])
        while partner >= low:
            partners += 1
            writing = writing and end + block <= room
            if writing:
                for q in range(block):
                    ids[u64(end + q)] = ids[u64(origin + q)]
                for q in range(end + j, end + block, m):
                    ids[u64(q)] = partner
                end += block
            partner = np.int64(recs[u64(ring + (partner & mask) * RECORD)])
        size *= partners
        made = made * partners if size <= MOST_RESULTS else MOST_RESULTS
        hops[u64(h), H_PROBES] += tally
        hops[u64(h), H_MATCHES] += tally * partners
    if (not count_only and not writing) or size > MOST_RESULTS:
        arena.meta[M_SHORT] |= SHORT_OUTPUT
    return out + made


@inlined
def time_of(arena: Arena, j: int, s: int) -> int:
    """Return the event time of tuple s of stream j."""
    return arena.values[u64(arena.streams[u64(j), S_VALUES] + (s & arena.streams[u64(j), S_MASK]))]


@inlined
def deadline_of(arena: Arena, j: int, time: int) -> int:
    """Return the last event time that a tuple of stream j with this event time can join."""
    return time + arena.streams[u64(j), S_SIZE] if arena.streams[u64(j), S_KIND] == RANGE else 2 * FOREVER


@step
def in_time(arena: Arena, routes: Routes, walk: Walk, i: int, row: int, s: int) -> int:
    """Return whether NONE, SOME or ALL combinations of the partners of tuple s of stream i are in time.

    SOME may turn out to be none. Then `walk.turn` has the number of partners of each hop that are in time for tuple s.
    """
    streams, hops, recs, heads = arena.streams, routes.hops, arena.recs, arena.heads
    own = time_of(arena, i, s)
    greatest, deadline = own, deadline_of(arena, i, own)
    for h in range(routes.span[u64(i), R_LEAF], routes.span[u64(i), R_END]):
        j, timely = hops[u64(h), H_TARGET], np.int64(0)
        ring, mask, low = streams[u64(j), S_RECS], streams[u64(j), S_MASK], np.int64(walk.lows[u64(j)])
        partner = np.int64(heads[u64(row + j)])
        while partner >= low:
            time = time_of(arena, j, partner)
            end = deadline_of(arena, j, time)
            greatest, deadline = max(greatest, time), min(deadline, end)
            timely += end >= own
            partner = np.int64(recs[u64(ring + (partner & mask) * RECORD)])
        if timely == 0:
            return NONE
        walk.turn[u64(h - routes.span[u64(i), R_LEAF])] = timely
    return ALL if greatest <= deadline else SOME


@step
def combine_in_time(
    arena: Arena, routes: Routes, walk: Walk, i: int, row: int, s: int, count_only: bool, tally: int, out: int
) -> int:
    """Write those combinations of the live partners of tuple s of stream i that are in time, as `combine` does.

    `walk.turn` has the partners of each hop.
    """
    streams, hops, recs, heads, ids = arena.streams, routes.hops, arena.recs, arena.heads, walk.ids
    m, chosen, following = streams.shape[0], walk.frames[0], walk.turn
    greatest, deadline = walk.levels[0], walk.levels[1]
    first, depth = routes.span[u64(i), R_LEAF], routes.span[u64(i), R_END] - routes.span[u64(i), R_LEAF]
    for h in range(first, first + depth):
        hops[u64(h), H_PROBES] += tally
        hops[u64(h), H_MATCHES] += tally * following[u64(h - first)]
    chosen[u64(i)] = s
    greatest[0] = time_of(arena, i, s)
    deadline[0] = deadline_of(arena, i, greatest[0])
    following[0] = heads[u64(row + hops[u64(first), H_TARGET])]
    level = np.int64(0)
    while level >= 0:
        j, partner = hops[u64(first + level), H_TARGET], following[u64(level)]
        if partner < walk.lows[u64(j)]:
            level -= 1
            continue
        following[u64(level)] = recs[u64(streams[u64(j), S_RECS] + (partner & streams[u64(j), S_MASK]) * RECORD)]
        time = time_of(arena, j, partner)
        youngest, end = max(greatest[u64(level)], time), min(deadline[u64(level)], deadline_of(arena, j, time))
        if youngest > end:
            continue
        chosen[u64(j)] = partner
        if level + 1 < depth:
            level += 1
            greatest[u64(level)], deadline[u64(level)] = youngest, end
            following[u64(level)] = heads[u64(row + hops[u64(first + level), H_TARGET])]
            continue
        if not count_only:
            if (out + 1) * m <= ids.shape[0]:
                for k in range(m):
                    ids[u64(out * m + k)] = chosen[u64(k)]
            else:
                arena.meta[M_SHORT] |= SHORT_OUTPUT
        out += 1
    return out


@inlined
def is_large(arena: Arena) -> bool:
    """Return whether the heads and live records exceed a core's own cache."""
    streams = arena.streams
    touched = 4 * arena.classes[0, C_NEXT] * streams.shape[0]
    for i in range(streams.shape[0]):
        touched += 4 * RECORD * (streams[u64(i), S_NEXT] - streams[u64(i), S_LO])
    return touched > NEAR


@step
def fetch_heads(arena: Arena, batch: Batch, walk: Walk, first: int, last: int) -> None:
    """Prefetch the heads of arrivals first .. last - 1, and write their positions to `walk.ahead`.

    `walk.current` counts the tuples of each stream that were prefetched.
    """
    streams, recs, following = arena.streams, arena.recs, walk.current
    base, m, origin = arena.classes[0, C_HEADS], streams.shape[0], np.int64(arena.heads.ctypes.data)
    for a in range(first, last):
        i = u64(batch.order[u64(a)])
        kid = np.int64(recs[u64(streams[i, S_RECS] + (following[i] & streams[i, S_MASK]) * RECORD + 1)])
        following[i] += 1
        row = base + kid * m if kid >= 0 else np.int64(-1)
        walk.ahead[u64(a % (2 * BLOCK))] = row
        if kid >= 0:
            prefetch(origin + 4 * row)


@step
def fetch_partners(arena: Arena, batch: Batch, walk: Walk, first: int, last: int) -> None:
    """Prefetch the newest partners of those arrivals first .. last - 1 that have results in the present state."""
    streams, heads = arena.streams, arena.heads
    origin = np.int64(arena.recs.ctypes.data)
    for a in range(first, last):
        row = walk.ahead[u64(a % (2 * BLOCK))]
        if row >= 0 and all_meet(arena, walk, np.int64(batch.order[u64(a)]), row):
            for j in range(streams.shape[0]):
                slot = np.int64(heads[u64(row + j)]) & streams[u64(j), S_MASK]
                prefetch(origin + 4 * (streams[u64(j), S_RECS] + slot * RECORD))


@jit
def push_one_key(
    arena_at: int,
    entries_at: int,
    routes_at: int,
    input_at: int,
    walk_at: int,
    chunk_at: int,
    order: np.ndarray,
    rows: np.ndarray,
    count_only: bool,
) -> int:
    """Do the work of `stairs.kernels.one_by_one.push_singly` for arrivals that probe SteMs, or none (LOADING).

    Each stream has one attribute, all of them are in one class, and there is no changelog.
    """
    arena, routes = opened(Arena, arena_at, ()), opened(Routes, routes_at, ())
    batch, walk = opened(Batch, input_at, (order,)), opened(Walk, walk_at, ())
    status = open_push(arena, batch, rows)
    if status != DONE:
        return status
    streams, meta, recs, heads, lows = arena.streams, arena.meta, arena.recs, arena.heads, walk.lows
    timed, bounded, probing = meta[M_TIMED] != 0, False, meta[M_MODE] == VIRTUAL
    base, m = arena.classes[0, C_HEADS], streams.shape[0]
    out, tally, first, stop = meta[M_OUT], 1 - meta[M_TALLIED], meta[M_ARRIVAL], meta[M_STOP]
    for j in range(m):
        lows[u64(j)] = streams[u64(j), S_LO]
        bounded |= streams[u64(j), S_KIND] == RANGE
    far, before = is_large(arena), out
    if far:
        for j in range(m):
            walk.current[u64(j)] = streams[u64(j), S_NEXT]
        fetch_heads(arena, batch, walk, first, min(first + BLOCK, stop))
    for a in range(first, stop):
        if far and (a - first) % BLOCK == 0:
            fetch_heads(arena, batch, walk, a + BLOCK, min(a + 2 * BLOCK, stop))
            # Where a block gave no result, the next one rarely has any.
            if probing and (out > before or a == first):
                fetch_partners(arena, batch, walk, a, min(a + BLOCK, stop))
            before = out
        if bounded and a % BLOCK == 0:
            expire(arena, walk)
        i = u64(batch.order[u64(a)])
        s = streams[i, S_NEXT]
        slot = s & streams[i, S_MASK]
        if timed:
            meta[M_WATERMARK] = min(max(meta[M_WATERMARK], arena.values[u64(streams[i, S_VALUES] + slot)]), meta[M_CAP])
        record = streams[i, S_RECS] + slot * RECORD
        kid = np.int64(recs[u64(record + 1)])
        if kid >= 0:
            row = base + kid * m
            met = probing and all_meet(arena, walk, np.int64(i), row)
            timely = ALL if met else NONE
            if met and bounded:
                # Low marks lag behind the watermark, and by the lateness.
                timely = in_time(arena, routes, walk, np.int64(i), row, s)
                if timely == SOME:
                    # Without late rows, only the lag of low marks makes some combinations miss their time.
                    expire(arena, walk)
                    timely = in_time(arena, routes, walk, np.int64(i), row, s)
            if timely != NONE:
                streams[i, S_WALKED] += tally
                if timely == ALL:
                    found = combine(arena, routes, walk, np.int64(i), row, s, count_only, tally, out)
                else:
                    found = combine_in_time(arena, routes, walk, np.int64(i), row, s, count_only, tally, out)
                if meta[M_SHORT] != 0:
                    meta[M_ARRIVAL] = a
                    meta[M_OUT] = out
                    return shortage(arena, found)
                out = found
            tally = np.int64(1)
            meta[M_TALLIED] = 0
            p = u64(row) + i
            recs[u64(record)] = heads[p]
            heads[p] = s
        streams[i, S_NEXT] = s + 1
        if streams[i, S_KIND] == ROWS:
            lows[i] = max(np.int64(lows[i]), s + 1 - streams[i, S_SIZE])
            streams[i, S_LO] = lows[i]
    meta[M_ARRIVAL] = stop
    meta[M_OUT] = out
    if meta[M_GIVEN] >= -FOREVER and stop == batch.order.shape[0]:
        meta[M_WATERMARK] = meta[M_GIVEN]
    if timed:
        expire_ranges(arena)
    return DONE
