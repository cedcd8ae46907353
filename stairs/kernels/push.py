"""The kernel of a push: one call interns the keys of all rows, probes and inserts each arrival, and writes the results.

An arrival meets every older tuple once, so the last component of each result finds it, exactly once. The mode decides
how arrivals probe. Along routes over SteMs, they probe in chunks (`stairs.kernels.batched`). Through stored states
(`stairs.kernels.climb`) or hop by hop (`stairs.kernels.cacq`), they probe one by one, each before it is inserted. In a
changelog, a tuple that leaves its window probes once more before it leaves, and finds the results to delete.

No code is compiled for a plan: routes are tables. The walk of one tuple that lacks room runs to its end without
writing, so that the room it needs is known and the counters are right. Then the kernel returns a status, the caller
makes room and calls again, and the kernel repeats that walk.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
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
    DELETED,
    DONE,
    INSERTED,
    LOADING,
    M_ARRIVAL,
    M_CAP,
    M_CHANGELOG,
    M_DELETED,
    M_GIVEN,
    M_INTERN_ATTR,
    M_INTERN_ROW,
    M_LATENESS,
    M_MODE,
    M_NEED,
    M_OUT,
    M_SHORT,
    M_STARTED,
    M_STOP,
    M_TALLIED,
    M_TIMED,
    M_WATERMARK,
    NEED_KEYS,
    ROUTED,
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
    S_WIDTH,
    VIRTUAL,
)
from stairs.graph import FOREVER
from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.batched import push_batched
from stairs.kernels.cacq import route
from stairs.kernels.climb import climb, take_back
from stairs.kernels.combinations import shortage
from stairs.kernels.keys import AHEAD, adopt, ask_for, find_slot, is_far, spread, sweep
from stairs.kernels.one_key import joins_on_one_key, push_one_key
from stairs.kernels.windows import RANGE, ROWS, expire_range
from stairs.memory.arena import Arena, Batch, Chunk, Entries, Routes, Walk


@inlined
def intern_batch(arena: Arena, batch: Batch, rows: np.ndarray) -> int:
    """Write the key ids of all rows of the push into their future records. A later call resumes where this one stopped.

    In a separate pass, the look-ups of neighbouring rows do not wait for each other. `Modules.begin` made room in the
    rings for all rows in addition to the live windows.
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
        far = is_far(arena, c)
        for r in range(meta[M_INTERN_ROW], rows[i]):
            if far and r + AHEAD < rows[i]:
                ask_for(arena, c, batch.input[u64(source + r + AHEAD)])
            kid = np.int64(-1)
            if batch.dead[u64(dead + r)] == 0:
                at = source + r * words
                if words == 1:
                    # As find_slot does, with the descriptors of the class in registers.
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
    attrs = arena.attrs
    for x in range(arena.streams[i, S_ATTR0], arena.streams[i, S_ATTR1]):
        p = u64(walk.bound[u64(attrs[u64(x), A_CLASS])] + attrs[u64(x), A_COLUMN])
        arena.recs[u64(record + attrs[u64(x), A_OFFSET])] = arena.heads[p]
        arena.heads[p] = s


@inlined
def start(arena: Arena, rows: np.ndarray) -> None:
    """Sweep dead keys, record the ids in use, and lay out the input: words and marks, stream by stream."""
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


@inlined
def set_low(arena: Arena, entries: Entries, j: int, lo: int) -> None:
    """Set the low mark of stream j to `lo`, in every track."""
    arena.streams[u64(j), S_LO] = lo
    for p in range(j, entries.lows.shape[0], arena.streams.shape[0]):
        entries.lows[u64(p)] = max(lo, entries.marks[u64(p)])


@inlined
def sync_lows(arena: Arena, entries: Entries) -> None:
    """Raise the low marks of all tracks to those of the windows."""
    for j in range(min(arena.streams.shape[0], entries.lows.shape[0])):
        set_low(arena, entries, j, arena.streams[u64(j), S_LO])


@jit
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
    """Run `emit` for plans with stored states: one walk for each track, the oldest first."""
    m = arena.streams.shape[0]
    tracks = entries.lows.shape[0] // m
    s = walk.current[u64(i)]
    for t in range(tracks):
        newer = (t + 1) * m if t + 1 < tracks else -1
        # A tuple that leaves a window may be older than a track.
        if s >= entries.lows[u64(t * m + i)]:
            out = climb(arena, entries, routes, walk, t * m + i, t * m, newer, storing, strict, count_only, tally, out)
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
    if arena.meta[M_MODE] == ROUTED:
        return route(arena, entries, routes, walk, i, strict, count_only, tally, out)
    return probe_stored(arena, entries, routes, walk, i, storing, strict, count_only, tally, out)


@inlined
def sign(walk: Walk, first: int, last: int, value: int) -> None:
    """Mark results first .. last - 1 as inserted or deleted."""
    for r in range(first, last):
        walk.signs[u64(r)] = value


@jit
def retire(arena: Arena, entries: Entries, routes: Routes, walk: Walk, j: int, strict: bool, count_only: bool) -> int:
    """Delete the results with the oldest tuple of stream j, and remove it from its window; return the status."""
    streams, meta = arena.streams, arena.meta
    s = streams[j, S_LO]
    record = streams[j, S_RECS] + (s & streams[j, S_MASK]) * streams[j, S_WIDTH]
    if arena.recs[u64(record + 1)] >= 0:
        out = meta[M_OUT]
        bind(arena, walk, j, record)
        walk.current[u64(j)] = s
        found = emit(arena, entries, routes, walk, j, False, strict, count_only, 1 - meta[M_TALLIED], out)
        if meta[M_SHORT] != 0:
            return shortage(arena, found)
        meta[M_TALLIED] = 0
        if not count_only:
            sign(walk, out, found, DELETED)
        meta[M_DELETED] += found - out
        meta[M_OUT] = found
    set_low(arena, entries, j, s + 1)
    return DONE


@jit
def retire_all(
    arena: Arena, entries: Entries, routes: Routes, walk: Walk, i: int, strict: bool, count_only: bool
) -> int:
    """Retire all expired tuples, then the tuple that an arrival of stream i displaces (i = -1: no arrival)."""
    streams, meta = arena.streams, arena.meta
    if meta[M_TIMED] != 0:
        for j in range(streams.shape[0]):
            if streams[j, S_KIND] != RANGE:
                continue
            horizon = meta[M_WATERMARK] - meta[M_LATENESS] - streams[j, S_SIZE]
            while streams[j, S_LO] < streams[j, S_NEXT]:
                if arena.times[u64(streams[j, S_TIMES] + (streams[j, S_LO] & streams[j, S_MASK]))] >= horizon:
                    break
                status = retire(arena, entries, routes, walk, j, strict, count_only)
                if status != DONE:
                    return status
    if i >= 0 and streams[i, S_KIND] == ROWS and streams[i, S_NEXT] + 1 - streams[i, S_SIZE] > streams[i, S_LO]:
        return retire(arena, entries, routes, walk, i, strict, count_only)
    return DONE


@jit
def push(
    arena: Arena,
    entries: Entries,
    routes: Routes,
    batch: Batch,
    walk: Walk,
    chunk: Chunk,
    rows: np.ndarray,
    count_only: bool,
) -> int:
    """Process the arrivals of a push from M_ARRIVAL to M_STOP, or until room is needed; return the status.

    rows    int64[streams], rows of the push per stream
    """
    streams, meta, recs = arena.streams, arena.meta, arena.recs
    if meta[M_STARTED] == 0:
        start(arena, rows)
    status = intern_batch(arena, batch, rows)
    if status != DONE:
        return status
    timed, given, changelog = meta[M_TIMED] != 0, meta[M_GIVEN] >= -FOREVER, meta[M_CHANGELOG] != 0
    # If arrivals may be older than earlier ones, the event times of all components are compared.
    strict = given or meta[M_LATENESS] > 0
    batched = meta[M_MODE] == VIRTUAL or meta[M_MODE] == LOADING
    out = meta[M_OUT]
    meta[M_SHORT] = 0
    meta[M_NEED] = 0
    if not strict and joins_on_one_key(arena):
        status = push_one_key(arena, routes, batch, walk, count_only)
        if status != DONE:
            return status
        out = meta[M_OUT]
    elif batched and meta[M_ARRIVAL] < meta[M_STOP]:
        status = push_batched(arena, routes, batch, chunk, walk, strict, count_only)
        if status != DONE:
            return status
        out = meta[M_OUT]
    sync_lows(arena, entries)
    for a in range(meta[M_ARRIVAL], meta[M_STOP]):
        i = u64(batch.order[a])
        s = streams[i, S_NEXT]
        slot = s & streams[i, S_MASK]
        if timed:
            meta[M_WATERMARK] = min(max(meta[M_WATERMARK], arena.times[u64(streams[i, S_TIMES] + slot)]), meta[M_CAP])
        if changelog:
            meta[M_OUT] = out
            status = retire_all(arena, entries, routes, walk, np.int64(i), strict, count_only)
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
            found = emit(arena, entries, routes, walk, np.int64(i), True, strict, count_only, 1 - again, out)
            if meta[M_SHORT] != 0:
                meta[M_ARRIVAL] = a
                meta[M_OUT] = out
                return shortage(arena, found)
            if changelog and not count_only:
                sign(walk, out, found, INSERTED)
            out = found
            meta[M_TALLIED] = 0
            # A walk never rebinds a class of the arrival, so its head rows are still bound.
            insert(arena, walk, i, s, record)
        streams[i, S_NEXT] = s + 1
        if streams[i, S_KIND] == ROWS and s + 1 - streams[i, S_SIZE] > streams[i, S_LO]:
            set_low(arena, entries, np.int64(i), s + 1 - streams[i, S_SIZE])
    meta[M_ARRIVAL] = meta[M_STOP]
    meta[M_OUT] = out
    if given and meta[M_STOP] == batch.order.shape[0]:
        meta[M_WATERMARK] = meta[M_GIVEN]
        if changelog:
            if batched:
                status = push_batched(arena, routes, batch, chunk, walk, strict, count_only)
            else:
                status = retire_all(arena, entries, routes, walk, np.int64(-1), strict, count_only)
            if status != DONE:
                return status
    if timed:
        for i in range(streams.shape[0]):
            if streams[i, S_KIND] == RANGE and not changelog:
                expire_range(arena, i)
    return DONE
