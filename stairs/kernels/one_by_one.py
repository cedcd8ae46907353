"""Pushes of strategies that store states or route hop by hop: arrivals are processed one by one.

An arrival probes before it is inserted: through stored states (`stairs.kernels.climb`), or hop by hop through SteMs or
stored states (`stairs.kernels.cacq`). In a changelog, a tuple that leaves its window probes once more before it leaves,
and finds the results to delete.

If the walk of a tuple lacks room, it runs to its end without writing, so that the room it needs is known and the
counters are right. Then the kernel returns a status, the caller makes room and calls again, and the kernel repeats that
walk.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    A_CLASS,
    A_COLUMN,
    A_OFFSET,
    C_HEADS,
    C_SCAN,
    C_STRIDE,
    DELETED,
    DONE,
    ENDS,
    INSERTED,
    M_AFTER,
    M_ARRIVAL,
    M_BAND,
    M_CHANGELOG,
    M_DELETED,
    M_MODE,
    M_NEED,
    M_NEWEST,
    M_OUT,
    M_SHORT,
    M_STOP,
    M_TALLIED,
    M_TIMED,
    M_WATERMARK,
    NEED_BAND,
    R_END,
    R_TRUNK,
    ROUTED,
    S_ATTR0,
    S_ATTR1,
    S_KIND,
    S_LIFE,
    S_LO,
    S_MASK,
    S_NEXT,
    S_RECS,
    S_SIZE,
    S_VALUES,
    S_WIDTH,
)
from stairs.kernels.accelerate import inlined, jit, step, u64
from stairs.kernels.by_address import opened
from stairs.kernels.cacq import is_on_one_key, route, visit
from stairs.kernels.climb import climb, take_back
from stairs.kernels.combinations import shortage
from stairs.kernels.opening import is_strict, open_push
from stairs.kernels.versions import DEAD, bury, end_version, ended_by, insert_version, life_of, pass_dead
from stairs.kernels.windows import RANGE, ROWS, expire_range, expire_ranges, set_low, sync_lows
from stairs.memory.arena import Arena, Batch, Entries, Routes, Walk


@inlined
def bind(arena: Arena, walk: Walk, i: int, record: int) -> None:
    """Bind the head rows of the keys of an arrival."""
    attrs, classes = arena.attrs, arena.classes
    for x in range(arena.streams[i, S_ATTR0], arena.streams[i, S_ATTR1]):
        c = u64(attrs[u64(x), A_CLASS])
        kid = np.int64(arena.recs[u64(record + attrs[u64(x), A_OFFSET] + 1)])
        walk.kids[c] = kid
        walk.bound[c] = classes[c, C_HEADS] + kid * classes[c, C_STRIDE]


@inlined
def insert(arena: Arena, walk: Walk, i: int, s: int, record: int) -> None:
    """Insert the arrival into its SteM as the newest tuple of its keys."""
    attrs, classes = arena.attrs, arena.classes
    for x in range(arena.streams[i, S_ATTR0], arena.streams[i, S_ATTR1]):
        c = u64(attrs[u64(x), A_CLASS])
        row = walk.bound[c]
        if classes[c, C_SCAN] != 0:
            row = (
                classes[c, C_HEADS]
                + np.int64(arena.recs[u64(record + attrs[u64(x), A_OFFSET] + 1)]) * classes[c, C_STRIDE]
            )
        p = u64(row + attrs[u64(x), A_COLUMN])
        arena.recs[u64(record + attrs[u64(x), A_OFFSET])] = arena.heads[p]
        arena.heads[p] = s


@step
def probe_stored(
    arena: Arena,
    entries: Entries,
    routes: Routes,
    walk: Walk,
    i: int,
    storing: bool,
    strict: bool,
    count_only: bool,
    tally: int,
    out: int,
) -> int:
    """Run `emit` for plans with stored states: one walk for each track that has a route of stream i, the oldest first.

    Callers give `storing` as np.bool_: numba would compile a kernel once for each literal.
    """
    m = arena.streams.shape[0]
    tracks = entries.lows.shape[0] // m
    s = walk.current[u64(i)]
    for t in range(tracks):
        row = u64(t * m + i)
        # A tuple that leaves a window may be older than a track.
        if s >= entries.lows[row] and routes.span[row, R_TRUNK] < routes.span[row, R_END]:
            out = climb(arena, entries, routes, walk, t * m + i, t * m, storing, strict, count_only, tally, out)
    if storing and arena.meta[M_SHORT] != 0:
        for t in range(tracks):
            take_back(entries, routes, i, t * m + i, s)
    return out


@inlined
def emit(
    arena: Arena,
    entries: Entries,
    routes: Routes,
    walk: Walk,
    i: int,
    storing: bool,
    strict: bool,
    count_only: bool,
    tally: int,
    out: int,
) -> int:
    """Find all results of the tuple bound in `walk`, and return the number of results now."""
    if arena.meta[M_TIMED] != 0 and arena.meta[M_CHANGELOG] == 0:
        for j in range(arena.streams.shape[0]):
            if arena.streams[u64(j), S_KIND] == RANGE:
                expire_range(arena, j)
                set_low(arena, entries, j, arena.streams[u64(j), S_LO])
    if arena.meta[M_MODE] == ROUTED and is_on_one_key(arena, entries, routes):
        return visit(arena, routes, walk, i, strict, count_only, tally, out)
    if arena.meta[M_MODE] == ROUTED:
        out = route(arena, entries, routes, walk, i, storing, strict, count_only, tally, out)
        if storing and arena.meta[M_SHORT] != 0:
            take_back(entries, routes, i, i, walk.current[u64(i)])
        return out
    return probe_stored(arena, entries, routes, walk, i, storing, strict, count_only, tally, out)


@inlined
def sign(walk: Walk, first: int, last: int, value: int) -> None:
    """Mark results first .. last - 1 as inserted or deleted."""
    for r in range(first, last):
        walk.signs[u64(r)] = value


@step
def take_away(
    arena: Arena, entries: Entries, routes: Routes, walk: Walk, j: int, s: int, strict: bool, count_only: bool
) -> int:
    """Delete the results with tuple s of stream j, which is about to leave; return the status."""
    streams, meta = arena.streams, arena.meta
    record = streams[j, S_RECS] + (s & streams[j, S_MASK]) * streams[j, S_WIDTH]
    if arena.recs[u64(record + 1)] >= 0:
        out = meta[M_OUT]
        bind(arena, walk, j, record)
        walk.current[u64(j)] = s
        end = emit(arena, entries, routes, walk, j, np.bool_(False), strict, count_only, 1 - meta[M_TALLIED], out)
        if meta[M_SHORT] != 0:
            return shortage(arena, end)
        meta[M_TALLIED] = 0
        if not count_only:
            sign(walk, out, end, DELETED)
        meta[M_DELETED] += end - out
        meta[M_OUT] = end
    return DONE


@inlined
def retire(arena: Arena, entries: Entries, routes: Routes, walk: Walk, j: int, strict: bool, count_only: bool) -> int:
    """Delete the results with the oldest tuple of stream j, and remove it from its window; return the status."""
    s = arena.streams[j, S_LO]
    status = DONE
    if arena.meta[M_CHANGELOG] != ENDS:
        status = take_away(arena, entries, routes, walk, j, s, strict, count_only)
    if status == DONE:
        set_low(arena, entries, j, s + 1)
    return status


@step
def replace(
    arena: Arena, entries: Entries, routes: Routes, walk: Walk, i: int, s: int, strict: bool, count_only: bool
) -> int:
    """Delete the results with the version of table i that change s ends, and bury it; return the status."""
    ended = ended_by(arena, i, s)
    if ended < 0:
        ended = end_version(arena, i, s)
    if ended >= 0 and life_of(arena, i, ended) != DEAD:
        status = take_away(arena, entries, routes, walk, i, ended, strict, count_only)
        if status != DONE:
            return status
        bury(arena, i, ended, s)
        set_low(arena, entries, i, pass_dead(arena, i, s))
    return DONE


@step
def retire_all(
    arena: Arena, entries: Entries, routes: Routes, walk: Walk, i: int, strict: bool, count_only: bool
) -> int:
    """Retire all expired tuples, then the tuple that an arrival of stream i displaces (i = -1: no arrival)."""
    streams, meta = arena.streams, arena.meta
    if meta[M_TIMED] != 0:
        for j in range(streams.shape[0]):
            if streams[j, S_KIND] != RANGE:
                continue
            horizon = meta[M_WATERMARK] - streams[j, S_SIZE]
            while streams[j, S_LO] < streams[j, S_NEXT]:
                if arena.values[u64(streams[j, S_VALUES] + (streams[j, S_LO] & streams[j, S_MASK]))] >= horizon:
                    break
                status = retire(arena, entries, routes, walk, j, strict, count_only)
                if status != DONE:
                    return status
    if i >= 0 and streams[i, S_KIND] == ROWS and streams[i, S_NEXT] + 1 - streams[i, S_SIZE] > streams[i, S_LO]:
        return retire(arena, entries, routes, walk, i, strict, count_only)
    return DONE


@jit
def push_singly(
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
    """Process the arrivals of a push from M_ARRIVAL to M_STOP, or until room is needed; return the status.

    arena_at …  addresses of descriptions of the Arena, Entries, Routes, Input, Walk and Chunk (`kernels.by_address`)
    order       uint8[arrivals], the stream of each arrival
    rows        int64[streams], rows of the push per stream
    """
    arena, entries, routes = opened(Arena, arena_at, ()), opened(Entries, entries_at, ()), opened(Routes, routes_at, ())
    batch, walk = opened(Batch, input_at, (order,)), opened(Walk, walk_at, ())
    streams, meta, recs = arena.streams, arena.meta, arena.recs
    status = open_push(arena, batch, rows)
    if status != DONE:
        return status
    timed, changelog, strict, out = meta[M_TIMED] != 0, meta[M_CHANGELOG] != 0, is_strict(arena), meta[M_OUT]
    sync_lows(arena, entries)
    for a in range(meta[M_ARRIVAL], meta[M_STOP]):
        i = u64(batch.order[a])
        s = streams[i, S_NEXT]
        slot = s & streams[i, S_MASK]
        if timed:
            meta[M_WATERMARK] = batch.clock[u64(a)]
            meta[M_NEWEST] = max(meta[M_NEWEST], arena.values[u64(streams[i, S_VALUES] + slot)])
        if changelog:
            meta[M_OUT] = out
            status = retire_all(arena, entries, routes, walk, np.int64(i), strict, count_only)
            if status != DONE:
                meta[M_ARRIVAL] = a
                return status
            out = meta[M_OUT]
        if streams[i, S_LIFE] > 0:
            meta[M_OUT] = out
            status = replace(arena, entries, routes, walk, np.int64(i), s, strict, count_only)
            if status != DONE:
                meta[M_ARRIVAL] = a
                return status
            out = meta[M_OUT]
        record = streams[i, S_RECS] + slot * streams[i, S_WIDTH]
        alive = recs[u64(record + 1)] >= 0
        if alive:
            bind(arena, walk, i, record)
            walk.current[i] = s
            again = meta[M_TALLIED]
            # States note the first entry of each arrival by it.
            meta[M_ARRIVAL] = a
            end = emit(arena, entries, routes, walk, np.int64(i), np.bool_(True), strict, count_only, 1 - again, out)
            if meta[M_SHORT] != 0:
                meta[M_OUT] = out
                return shortage(arena, end)
            if changelog and not count_only:
                sign(walk, out, end, INSERTED)
            out = end
            meta[M_TALLIED] = 0
        if streams[i, S_LIFE] > 0:
            insert_version(arena, np.int64(i), s)
        elif alive:
            # A walk rebinds no class of the arrival but scan classes, so the head rows of the others are still bound.
            insert(arena, walk, i, s, record)
        streams[i, S_NEXT] = s + 1
        if streams[i, S_KIND] == ROWS and s + 1 - streams[i, S_SIZE] > streams[i, S_LO]:
            set_low(arena, entries, np.int64(i), s + 1 - streams[i, S_SIZE])
        if meta[M_BAND] != 0:
            meta[M_NEED], meta[M_BAND] = meta[M_BAND] - 1, 0
            meta[M_ARRIVAL], meta[M_OUT] = a + 1, out
            return NEED_BAND
    meta[M_ARRIVAL] = meta[M_STOP]
    meta[M_OUT] = out
    if timed and meta[M_STOP] == batch.order.shape[0]:
        meta[M_WATERMARK] = meta[M_AFTER]
        if changelog:
            status = retire_all(arena, entries, routes, walk, np.int64(-1), strict, count_only)
            if status != DONE:
                return status
    if timed and not changelog:
        expire_ranges(arena)
    return DONE
