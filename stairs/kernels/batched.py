"""Batched probing: the events of a chunk walk their routes together.

The walk goes stream by stream and hop by hop (`stairs.kernels.levels`). Then all results of the chunk are counted
before the first is written (`stairs.kernels.combinations`). If the room for partial results is too small, fewer events
walk at once. If the results lack room, the kernel returns a status and repeats the walk in the next call; the arrivals
of the chunk stay inserted.

Sources. The multi-way join without intermediate states: Viglas, Naughton, Burger, "Maximizing the output rate of
multi-way join queries over streaming information sources", VLDB 2003 (MJoin). Batches of look-ups that hide cache
misses: Chen, Ailamaki, Gibbons, Mowry, "Improving hash join performance through prefetching", ICDE 2004.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    DELETED,
    DONE,
    K_COUNT,
    K_GONE,
    L_AT,
    L_MATCHES,
    L_PROBES,
    L_SIZE,
    LOADING,
    M_AFTER,
    M_ARRIVAL,
    M_CHANGELOG,
    M_DELETED,
    M_INSERTED,
    M_MARKS,
    M_MODE,
    M_NEED,
    M_OUT,
    M_STOP,
    M_TIMED,
    M_WATERMARK,
    NEED_BAND,
    NEED_OUTPUT,
    NEED_PARTIALS,
    Q_FIELDS,
    Q_HEAD,
    R_END,
    R_TRUNK,
    S_WALKED,
    V_MATCHES,
    V_PROBES,
)
from stairs.kernels.accelerate import inlined, jit, step, u64
from stairs.kernels.bands import NO_BAND
from stairs.kernels.by_address import opened
from stairs.kernels.chunk import close_events, find_stay, insert_chunk, open_chunk
from stairs.kernels.combinations import (
    MOST_RESULTS,
    count_results,
    count_twins,
    write_in_time,
    write_results,
    write_twins,
)
from stairs.kernels.learning import learn
from stairs.kernels.levels import is_weighed, judge_ahead, last_level, probe_stream
from stairs.kernels.marks import keep_marks, rest
from stairs.kernels.opening import is_strict, open_push
from stairs.kernels.windows import expire_ranges
from stairs.memory.arena import Arena, Batch, Chunk, Routes, Walk

MUCH = 1 << 18
"""int32s of partial results that a core's own cache holds. If they do not suffice, fewer events walk at once."""


@inlined
def is_active(chunk: Chunk, i: int) -> bool:
    """Return whether stream i has an event in the chunk."""
    return chunk.streams[i, K_COUNT] + chunk.streams[i, K_GONE] > 0


@inlined
def tally(arena: Arena, routes: Routes, chunk: Chunk, count_only: bool) -> None:
    """Add what the levels of all streams found to the counters of their hops."""
    for i in range(arena.streams.shape[0]):
        if is_active(chunk, i):
            arena.streams[i, S_WALKED] += chunk.levels[i, 0, L_MATCHES]
            trunk = routes.span[i, R_TRUNK]
            for h in range(trunk, routes.span[i, R_END]):
                routes.counts[V_PROBES, u64(h)] += chunk.levels[i, u64(h - trunk + 1), L_PROBES]
                routes.counts[V_MATCHES, u64(h)] += chunk.levels[i, u64(h - trunk + 1), L_MATCHES]
            if is_weighed(routes, i, count_only):
                level = chunk.levels[i, u64(last_level(routes, i))]
                for p in range(level[L_AT] + Q_HEAD, level[L_AT] + level[L_SIZE] * Q_FIELDS, Q_FIELDS):
                    routes.counts[V_MATCHES, u64(routes.span[i, R_END] - 1)] += chunk.partials[u64(p)] - 1


@inlined
def probe_places(arena: Arena, routes: Routes, chunk: Chunk, walk: Walk, n: int, strict: bool, count_only: bool) -> int:
    """Find and write the results of the first n events of the chunk, or of fewer; return the number of events.

    If a single event lacks room for partial results, or the results or a band lack room, return minus the status.
    """
    m = arena.streams.shape[0]
    while True:
        at = np.int64(0)
        for i in range(m):
            if is_active(chunk, i) and at >= 0:
                at = probe_stream(arena, routes, chunk, walk, i, at, n, count_only and not strict)
                if at >= 0 and arena.links.shape[0] > 0:
                    learn(arena, routes, chunk, i)
        if at >= 0:
            break
        if at == NO_BAND:
            return -NEED_BAND
        if n == 1 or chunk.partials.shape[0] < MUCH:
            return -NEED_PARTIALS
        n //= 2
    for place in range(n):
        chunk.counts[u64(place)] = 0
    for i in range(m):
        if is_active(chunk, i):
            count_results(arena, routes, chunk, walk, i, strict, is_weighed(routes, i, count_only and not strict))
    results, most, out, twins = np.int64(0), np.int64(0), arena.meta[M_OUT], count_twins(arena, chunk, n)
    for place in range(n):
        results += chunk.counts[u64(place)]
        most = max(most, chunk.counts[u64(place)])
    if most == MOST_RESULTS or (not count_only and out + results > walk.ids.shape[0] // m):
        arena.meta[M_NEED] = MOST_RESULTS if most == MOST_RESULTS else out + results
        return -NEED_OUTPUT
    tally(arena, routes, chunk, count_only and not strict)
    arena.meta[M_OUT] = out + results
    for place in range(n):
        arena.meta[M_DELETED] += chunk.counts[u64(place)] if chunk.signs[u64(place)] == DELETED else 0
    if count_only or results == 0:
        return n
    for place in range(n):
        count = chunk.counts[u64(place)]
        chunk.counts[u64(place)] = out
        if arena.meta[M_CHANGELOG] != 0:
            for r in range(out, out + count):
                walk.signs[u64(r)] = chunk.signs[u64(place)]
        out += count
    for i in range(m):
        if is_active(chunk, i):
            if strict:
                write_in_time(arena, routes, chunk, walk, i)
            else:
                write_results(routes, chunk, walk, i)
    if twins:
        write_twins(chunk, walk, n)
    return n


@step
def probe_chunks(
    arena: Arena, routes: Routes, batch: Batch, chunk: Chunk, walk: Walk, strict: bool, count_only: bool
) -> int:
    """Process the arrivals from M_ARRIVAL to M_STOP chunk by chunk; return the status.

    If M_ARRIVAL is M_STOP, only the tuples that the watermark has passed leave.
    """
    meta, most = arena.meta, np.int64(chunk.places.shape[0])
    while True:
        start, stop = meta[M_ARRIVAL], meta[M_STOP]
        inserted = meta[M_INSERTED] > start
        n = open_chunk(arena, batch, chunk, start, meta[M_INSERTED] if inserted else stop, inserted)
        if n == 0:
            return DONE
        if not inserted:
            meta[M_INSERTED] = start + insert_chunk(arena, chunk)
            if meta[M_MARKS] != 0:
                keep_marks(arena, chunk)
        if meta[M_MODE] != LOADING:
            find_stay(arena, chunk, n, strict)
            asked = most if most < n else n
            n = probe_places(arena, routes, chunk, walk, asked, strict, count_only)
            if n < 0:
                return np.int64(-n)
            # As many events as the room for partial results allowed, and a few more each time.
            most = n if n < asked else min(most + most // 16 + 1, np.int64(chunk.places.shape[0]))
            for i in range(arena.streams.shape[0]):
                if is_active(chunk, i):
                    judge_ahead(routes, u64(i))
            if arena.links.shape[0] > 0:
                rest(arena, chunk.partials)
        meta[M_ARRIVAL] = start + close_events(arena, chunk, n)
        if start < stop and meta[M_ARRIVAL] == stop:
            return DONE


@jit
def push_batched(
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
    """Do the work of `stairs.kernels.one_by_one.push_singly` for arrivals that probe SteMs, or none (LOADING)."""
    arena, routes = opened(Arena, arena_at, ()), opened(Routes, routes_at, ())
    batch, walk, chunk = opened(Batch, input_at, (order,)), opened(Walk, walk_at, ()), opened(Chunk, chunk_at, ())
    meta = arena.meta
    status = open_push(arena, batch, rows)
    if status != DONE:
        return status
    strict = is_strict(arena)
    if meta[M_ARRIVAL] < meta[M_STOP]:
        status = probe_chunks(arena, routes, batch, chunk, walk, strict, count_only)
        if status != DONE:
            return status
    if meta[M_TIMED] != 0 and meta[M_STOP] == batch.order.shape[0]:
        meta[M_WATERMARK] = meta[M_AFTER]
        if meta[M_CHANGELOG] != 0:
            return probe_chunks(arena, routes, batch, chunk, walk, strict, count_only)
        expire_ranges(arena)
    return DONE
