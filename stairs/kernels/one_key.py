"""Pushes of the most frequent join: all streams on one shared key, over SteMs.

Here the plan decides little. The heads of all partners of an arrival are in one row, one column per stream. So one
comparison of that row with the low marks of all windows decides whether the arrival has results; the kernel binds and
checks no key and walks no levels. It reads the descriptors of hops, as a general walk (`stairs.kernels.levels`) does,
only for arrivals with results. It follows the order of the route then, so the order of results and the counters are
those of the general walk.

From `presence.MANY` streams on, bits of the key decide whether the heads are compared at all, and an arrival with one
partner in each stream copies the heads: it visits no record (`stairs.kernels.presence`).

Arrivals come in blocks. One pass inserts a block and lists the arrivals that met partners, without a branch on whether
they did; the next pass visits the list (`stairs.kernels.one_key_results`). A RANGE window may contain tuples that are
too old for the arrival, because windows expire once a block. Where arrivals may be late, it may also contain partners
that are too old for each other. Marks that move with the blocks (`stairs.kernels.one_key_times`) leave few tuples in
doubt. If an arrival has such a partner, the event times of all its partners are compared: if no partner is too old for
any other, all combinations are results; otherwise the kernel visits them one by one.

A walk that lacks room runs to its end without writing, as in `stairs.kernels.one_by_one`. The kernel takes its arrival
back then, and those after it.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    C_HEADS,
    C_NEXT,
    DONE,
    M_AFTER,
    M_ARRIVAL,
    M_MODE,
    M_NEWEST,
    M_OUT,
    M_SHORT,
    M_STOP,
    M_TALLIED,
    M_TIMED,
    M_WATERMARK,
    S_KIND,
    S_LO,
    S_MASK,
    S_NEXT,
    S_RECS,
    S_SIZE,
    S_WALKED,
    VIRTUAL,
)
from stairs.kernels.accelerate import inlined, jit, step, u64
from stairs.kernels.by_address import opened
from stairs.kernels.combinations import shortage
from stairs.kernels.memory import NEAR, prefetch
from stairs.kernels.one_key_results import (
    ALL,
    NEWEST,
    NONE,
    combine,
    combine_alone,
    combine_in_time,
    count_alone,
    in_time,
)
from stairs.kernels.one_key_times import move_marks, open_marks, time_of, times_of
from stairs.kernels.opening import open_push
from stairs.kernels.presence import (
    RECORD,
    arrive,
    half_of,
    is_alone,
    open_presence,
    set_bits,
    several_now,
    stale,
)
from stairs.kernels.windows import RANGE, ROWS, expire_ranges
from stairs.memory.arena import Arena, Batch, Routes, Walk

BLOCK = 64
"""Most arrivals that are inserted before the first of them probes; `walk.met` has room for as many entries."""
CLOSE = NEAR // 4
"""Bytes of heads and records up to which a prefetch costs more than it saves: a second-level cache has other uses too,
and its latency counts where one arrival takes a few nanoseconds."""


@inlined
def is_large(arena: Arena) -> bool:
    """Return whether the heads and live records take more than CLOSE bytes."""
    streams = arena.streams
    touched = 4 * arena.classes[0, C_NEXT] * streams.shape[0]
    for i in range(streams.shape[0]):
        touched += 4 * RECORD * (streams[u64(i), S_NEXT] - streams[u64(i), S_LO])
    return touched > CLOSE


@step
def fetch_heads(arena: Arena, batch: Batch, walk: Walk, first: int, last: int) -> None:
    """Prefetch the heads of arrivals first .. last - 1. `walk.current` counts the tuples of each stream that were."""
    streams, recs, following = arena.streams, arena.recs, walk.current
    base, m, origin = arena.classes[0, C_HEADS], streams.shape[0], np.int64(arena.heads.ctypes.data)
    half = half_of(arena)
    for a in range(first, last):
        i = u64(batch.order[u64(a)])
        kid = np.int64(recs[u64(streams[i, S_RECS] + (following[i] & streams[i, S_MASK]) * RECORD + 1)])
        following[i] += 1
        if kid >= 0 and half == 0:
            prefetch(origin + 4 * (base + kid * m))
        elif kid >= 0:
            prefetch(np.int64(arena.presence.ctypes.data) + 16 * half * kid)
            prefetch(origin + 4 * (base + kid * m + np.int64(i)))


@step
def fetch_partners(arena: Arena, walk: Walk, entries: int) -> None:
    """Prefetch the newest partners of all entries."""
    streams, met, m, origin = arena.streams, walk.met, arena.streams.shape[0], np.int64(arena.recs.ctypes.data)
    for x in range(entries):
        newest = x * (NEWEST + 2 * m) + NEWEST
        for j in range(m):
            slot = np.int64(met[u64(newest + j)]) & streams[u64(j), S_MASK]
            prefetch(origin + 4 * (streams[u64(j), S_RECS] + slot * RECORD))


@inlined
def enter(arena: Arena, walk: Walk, row: int, at: int) -> int:
    """Copy a row of heads, and the low marks, to the entry at `at`; return the number of streams with a live tuple."""
    heads, lows, met, m, live = arena.heads, walk.lows, walk.met, arena.streams.shape[0], np.int64(0)
    for j in range(m):
        head, low = heads[u64(row + j)], lows[u64(j)]
        met[u64(at + NEWEST + j)] = head
        met[u64(at + NEWEST + m + j)] = low
        live += head >= low
    return live


@inlined
def insert(arena: Arena, batch: Batch, walk: Walk, first: int, last: int, probing: bool) -> int:
    """Insert arrivals first .. last - 1, and list those that have a live partner in each stream; return their number.

    No branch predictor knows which arrivals have partners. So each arrival writes an entry, and the next one overwrites
    the entry of an arrival that lacks one.
    """
    streams, recs, heads, lows, met = arena.streams, arena.recs, arena.heads, walk.lows, walk.met
    base, m = arena.classes[0, C_HEADS], streams.shape[0]
    listed = np.int64(0)
    for a in range(first, last):
        i = u64(batch.order[u64(a)])
        s = streams[i, S_NEXT]
        record = streams[i, S_RECS] + (s & streams[i, S_MASK]) * RECORD
        kid = np.int64(recs[u64(record + 1)])
        if kid >= 0:
            row = base + kid * m
            older = heads[u64(row) + i]
            if probing:
                at = listed * (NEWEST + 2 * m)
                live = np.int64(older < lows[i]) + enter(arena, walk, row, at)
                met[u64(at)] = a - first
                met[u64(at + NEWEST) + i] = s
                listed += live == m
            recs[u64(record)] = older
            heads[u64(row) + i] = s
        streams[i, S_NEXT] = s + 1
        if streams[i, S_KIND] == ROWS:
            lows[i] = max(np.int64(lows[i]), s + 1 - streams[i, S_SIZE])
            streams[i, S_LO] = lows[i]
    return listed


@inlined
def insert_many(arena: Arena, batch: Batch, walk: Walk, first: int, last: int, probing: bool) -> int:
    """Do the work of `insert` in a join of many streams: their heads are read only if the bits of the key are set."""
    streams, recs, heads, lows, met = arena.streams, arena.recs, arena.heads, walk.lows, walk.met
    base, m, half, listed = arena.classes[0, C_HEADS], streams.shape[0], half_of(arena), np.int64(0)
    for a in range(first, last):
        i = np.int64(batch.order[u64(a)])
        s = streams[u64(i), S_NEXT]
        record = streams[u64(i), S_RECS] + (s & streams[u64(i), S_MASK]) * RECORD
        kid, low = np.int64(recs[u64(record + 1)]), streams[u64(i), S_LO]
        if streams[u64(i), S_KIND] == ROWS:
            low = max(low, s + 1 - streams[u64(i), S_SIZE])
        if kid >= 0:
            row = base + kid * m
            older = np.int64(heads[u64(row + i)])
            recs[u64(record)] = older
            heads[u64(row + i)] = s
            if arrive(arena, kid, half, i, older >= low) and probing:
                at = listed * (NEWEST + 2 * m)
                met[u64(at)] = a - first
                if enter(arena, walk, row, at) == m:
                    several_now(arena, walk, kid, half, i, listed)
                    listed += 1
                else:
                    stale(arena, kid, half)
        streams[u64(i), S_NEXT] = s + 1
        if streams[u64(i), S_KIND] == ROWS:
            lows[u64(i)], streams[u64(i), S_LO] = low, low
    return listed


@step
def take_back(arena: Arena, batch: Batch, walk: Walk, at: int, first: int, last: int, newest: int) -> int:
    """Take back the arrivals of a block first .. last - 1 from the one of entry `at` on, and return its position.

    newest      M_NEWEST before the block
    """
    streams, recs, meta, m = arena.streams, arena.recs, arena.meta, arena.streams.shape[0]
    arrival = first + np.int64(walk.met[u64(at)])
    for a in range(last - 1, arrival - 1, -1):
        i = u64(batch.order[u64(a)])
        s = streams[i, S_NEXT] - 1
        record = streams[i, S_RECS] + (s & streams[i, S_MASK]) * RECORD
        kid = np.int64(recs[u64(record + 1)])
        if kid >= 0:
            arena.heads[u64(arena.classes[0, C_HEADS] + kid * m) + i] = recs[u64(record)]
        streams[i, S_NEXT] = s
    for j in range(m):
        walk.turn[u64(j)] = streams[u64(j), S_NEXT]
        if streams[u64(j), S_KIND] == ROWS:
            low = np.int64(walk.met[u64(at + NEWEST + m + j)])
            set_bits(arena, j, low, streams[u64(j), S_LO])
            streams[u64(j), S_LO] = low
    if meta[M_TIMED] != 0:
        for a in range(arrival - 1, first - 1, -1):
            i = u64(batch.order[u64(a)])
            walk.turn[i] -= 1
            newest = max(newest, time_of(arena, np.int64(i), walk.turn[i]))
        meta[M_NEWEST] = newest
        # The next call begins with this arrival.
        meta[M_WATERMARK] = batch.clock[u64(arrival)]
    return arrival


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
    streams, meta, m = arena.streams, arena.meta, arena.streams.shape[0]
    timed, bounded, probing = meta[M_TIMED] != 0, False, meta[M_MODE] == VIRTUAL
    out, tally, first, stop = meta[M_OUT], 1 - meta[M_TALLIED], meta[M_ARRIVAL], meta[M_STOP]
    for j in range(m):
        walk.lows[u64(j)] = streams[u64(j), S_LO]
        walk.current[u64(j)] = streams[u64(j), S_NEXT]
        bounded |= streams[u64(j), S_KIND] == RANGE
    if bounded:
        open_marks(arena, walk)
    half = half_of(arena)
    if half > 0:
        open_presence(arena)
    far = is_large(arena)
    if far:
        fetch_heads(arena, batch, walk, first, min(first + BLOCK, stop))
    while first < stop:
        last = min(first + BLOCK, stop)
        if far:
            fetch_heads(arena, batch, walk, last, min(last + BLOCK, stop))
        newest, hold = meta[M_NEWEST], True
        if timed:
            least, greatest = times_of(arena, batch, walk, first, last)
            greatest = max(greatest, newest)
            if bounded:
                hold = move_marks(arena, walk, least, greatest, last - first)
            meta[M_NEWEST], meta[M_WATERMARK] = greatest, batch.clock[u64(last - 1)]
        if half > 0:
            listed = insert_many(arena, batch, walk, first, last, probing)
        else:
            listed = insert(arena, batch, walk, first, last, probing)
        if far and half == 0:
            fetch_partners(arena, walk, listed)
        for x in range(listed):
            at = x * (NEWEST + 2 * m)
            i = np.int64(batch.order[u64(first + np.int64(walk.met[u64(at)]))])
            sure, timely, end = np.int64(0), np.int64(ALL), np.int64(-1)
            if not hold:
                sure, timely = m, in_time(arena, routes, walk, i, at)
            while end < 0 and timely != NONE:
                if timely == ALL and half > 0 and is_alone(walk, half, x):
                    end = combine_alone(arena, walk, at, sure, count_only, out)
                    walk.alone[u64(i)] += tally * (end >= 0)
                elif timely == ALL:
                    end = combine(arena, routes, walk, i, at, sure, count_only, tally, out)
                else:
                    end = combine_in_time(arena, routes, walk, i, at, count_only, tally, out)
                if end < 0:
                    sure, timely = m, in_time(arena, routes, walk, i, at)
            if end >= 0:
                streams[u64(i), S_WALKED] += tally
                if meta[M_SHORT] != 0:
                    count_alone(routes, walk)
                    meta[M_ARRIVAL] = take_back(arena, batch, walk, at, first, last, newest)
                    meta[M_OUT] = out
                    return shortage(arena, end)
                out, tally = end, np.int64(1)
                meta[M_TALLIED] = 0
        first = last
    count_alone(routes, walk)
    meta[M_ARRIVAL] = stop
    meta[M_OUT] = out
    if timed:
        if stop == batch.order.shape[0]:
            meta[M_WATERMARK] = meta[M_AFTER]
        expire_ranges(arena)
    return DONE
