"""Pushes of the most frequent join: all streams on one shared key, over SteMs, with event times in order.

Here the plan decides little. The heads of all partners of an arrival are in one row, one column per stream. So one
comparison of that row with the low marks of all windows decides whether the arrival has results; the kernel binds and
checks no key and walks no levels. It reads the descriptors of hops, as a general walk (`stairs.kernels.levels`) does,
only for arrivals with results. It follows the order of the route then, so the order of results and the counters are
those of the general walk.

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
    S_TIMES,
    S_WALKED,
    SHORT_OUTPUT,
    VIRTUAL,
)
from stairs.kernels.accelerate import inlined, jit, step, u64
from stairs.kernels.combinations import MOST_RESULTS, shortage
from stairs.kernels.memory import NEAR, prefetch
from stairs.kernels.opening import open_push
from stairs.kernels.windows import RANGE, ROWS, expire_range, expire_ranges
from stairs.memory.arena import Arena, Batch, Chunk, Entries, Routes, Walk

RECORD = 2
"""int32s in a record of a stream with one attribute: link, key id."""
BLOCK = 32
"""Number of arrivals that are prefetched together; `walk.ahead` has room for two blocks in progress."""


@inlined
def all_meet(arena: Arena, walk: Walk, i: int, row: int) -> bool:
    """Return whether the key whose heads start at `row` has a live tuple in every stream other than i."""
    heads, lows = arena.heads, walk.lows
    live = np.int64(0)
    for j in range(lows.shape[0]):
        live += heads[u64(row + j)] >= lows[u64(j)]
    return live + (heads[u64(row + i)] < lows[u64(i)]) == lows.shape[0]


@inlined
def expire_others(arena: Arena, walk: Walk, i: int) -> None:
    """Advance the low marks of all RANGE windows except that of stream i, as `expire_range` does."""
    streams, lows = arena.streams, walk.lows
    for j in range(lows.shape[0]):
        if j != i and streams[u64(j), S_KIND] == RANGE:
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
    arena: Arena,
    entries: Entries,
    routes: Routes,
    batch: Batch,
    walk: Walk,
    chunk: Chunk,
    rows: np.ndarray,
    count_only: bool,
) -> int:
    """Do the work of `stairs.kernels.one_by_one.push_singly` for arrivals that probe SteMs, or none (LOADING).

    Each stream has one attribute, all of them are in one class, there is no changelog, and arrivals are in time order.
    """
    status = open_push(arena, batch, rows)
    if status != DONE:
        return status
    streams, meta, recs, heads, lows = arena.streams, arena.meta, arena.recs, arena.heads, walk.lows
    timed, probing = meta[M_TIMED] != 0, meta[M_MODE] == VIRTUAL
    base, m = arena.classes[0, C_HEADS], streams.shape[0]
    out, tally, first, stop = meta[M_OUT], 1 - meta[M_TALLIED], meta[M_ARRIVAL], meta[M_STOP]
    for j in range(m):
        lows[u64(j)] = streams[u64(j), S_LO]
    far = is_large(arena)
    if far:
        for j in range(m):
            walk.current[u64(j)] = streams[u64(j), S_NEXT]
        fetch_heads(arena, batch, walk, first, min(first + BLOCK, stop))
    for a in range(first, stop):
        if far and (a - first) % BLOCK == 0:
            fetch_heads(arena, batch, walk, a + BLOCK, min(a + 2 * BLOCK, stop))
            if probing:
                fetch_partners(arena, batch, walk, a, min(a + BLOCK, stop))
        i = u64(batch.order[u64(a)])
        s = streams[i, S_NEXT]
        slot = s & streams[i, S_MASK]
        if timed:
            meta[M_WATERMARK] = min(max(meta[M_WATERMARK], arena.times[u64(streams[i, S_TIMES] + slot)]), meta[M_CAP])
        record = streams[i, S_RECS] + slot * RECORD
        kid = np.int64(recs[u64(record + 1)])
        if kid >= 0:
            row = base + kid * m
            met = probing and all_meet(arena, walk, np.int64(i), row)
            if met and timed:
                # Low marks may lag behind the watermark: an arrival without partners above them has none.
                expire_others(arena, walk, np.int64(i))
                met = all_meet(arena, walk, np.int64(i), row)
            if met:
                streams[i, S_WALKED] += tally
                found = combine(arena, routes, walk, np.int64(i), row, s, count_only, tally, out)
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
    if timed:
        expire_ranges(arena)
    return DONE
