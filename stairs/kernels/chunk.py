"""A chunk: successive arrivals that are inserted first and probe afterwards, all together.

Since all arrivals of a chunk are in their SteMs before the first of them probes, a probe decides for each tuple that it
finds whether its arrival may see that tuple. The *place* of an arrival is its position in the chunk. An arrival sees a
tuple that arrived before it and has not left its window. Only two sorts of tuples need a closer look: tuples of the
chunk, whose places are compared, and the tuples that leave their window during the chunk. All others are seen by every
arrival of the chunk.

A chunk ends early if a stream would have more arrivals in it than live tuples. So chains contain few tuples that came
later than the arrival that probes.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    A_CLASS,
    A_COLUMN,
    A_OFFSET,
    C_HEADS,
    C_STRIDE,
    K_COUNT,
    K_FIRST,
    K_LOW,
    K_START,
    K_STAY,
    M_CAP,
    M_TIMED,
    M_WATERMARK,
    S_ATTR0,
    S_ATTR1,
    S_KIND,
    S_LO,
    S_MASK,
    S_NEXT,
    S_RECS,
    S_SIZE,
    S_TIMES,
    S_WIDTH,
)
from stairs.kernels.accelerate import inlined, u64
from stairs.kernels.walk import RANGE, ROWS
from stairs.memory.arena import Arena, Batch, Chunk

FEW = 32
"""Arrivals that a stream may have in a chunk, however few live tuples it has."""


@inlined
def cut(arena: Arena, batch: Batch, chunk: Chunk, start: int, stop: int) -> int:
    """Return where the chunk that begins with arrival `start` ends, at the latest before arrival `stop`."""
    streams, own = arena.streams, chunk.streams
    for i in range(streams.shape[0]):
        own[u64(i), K_COUNT] = max(FEW, streams[u64(i), S_NEXT] - streams[u64(i), S_LO])
    stop = min(stop, start + chunk.places.shape[0])
    for a in range(start, stop):
        i = u64(batch.order[u64(a)])
        if own[i, K_COUNT] == 0:
            return a
        own[i, K_COUNT] -= 1
    return stop


@inlined
def lay_out(arena: Arena, batch: Batch, chunk: Chunk, start: int, stop: int, inserted: bool) -> None:
    """Describe the chunk of arrivals start .. stop - 1.

    inserted   the sequence numbers of these arrivals are assigned already
    """
    streams, own, places, meta = arena.streams, chunk.streams, chunk.places, arena.meta
    for i in range(streams.shape[0]):
        own[u64(i), K_COUNT] = 0
    for a in range(start, stop):
        own[u64(batch.order[u64(a)]), K_COUNT] += 1
    at = np.int64(0)
    for j in range(streams.shape[0]):
        i = u64(j)
        own[i, K_FIRST] = streams[i, S_NEXT] - (own[i, K_COUNT] if inserted else 0)
        own[i, K_START] = at
        at += own[i, K_COUNT]
        own[i, K_COUNT] = 0
    timed, watermark = meta[M_TIMED] != 0, meta[M_WATERMARK]
    for a in range(start, stop):
        i = u64(batch.order[u64(a)])
        r, place = own[i, K_COUNT], a - start
        own[i, K_COUNT] = r + 1
        places[u64(own[i, K_START] + r)] = place
        s = own[i, K_FIRST] + r
        chunk.tuples[u64(place)] = s
        if timed:
            time = arena.times[u64(streams[i, S_TIMES] + (s & streams[i, S_MASK]))]
            watermark = min(max(watermark, time), meta[M_CAP])
            chunk.clock[u64(place)] = watermark


@inlined
def find_stay(arena: Arena, chunk: Chunk, n: int, strict: bool) -> None:
    """Set for each stream the first tuple that no arrival of the chunk of n arrivals sees leave its window.

    If event times are compared in each result (`strict`), a tuple of a RANGE window need not leave it within a chunk.
    """
    streams, own = arena.streams, chunk.streams
    for i in range(streams.shape[0]):
        j = u64(i)
        following, size = own[j, K_FIRST] + own[j, K_COUNT], streams[j, S_SIZE]
        if streams[j, S_KIND] == ROWS:
            own[j, K_LOW] = max(streams[j, S_LO], own[j, K_FIRST] - size)
            own[j, K_STAY] = max(own[j, K_LOW], following - size)
        else:
            own[j, K_LOW] = streams[j, S_LO]
            stay = streams[j, S_LO]
            if streams[j, S_KIND] == RANGE and not strict:
                horizon = chunk.clock[u64(n - 1)] - size
                while (
                    stay < following and arena.times[u64(streams[j, S_TIMES] + (stay & streams[j, S_MASK]))] < horizon
                ):
                    stay += 1
            own[j, K_STAY] = stay


@inlined
def insert_chunk(arena: Arena, chunk: Chunk) -> None:
    """Insert the arrivals of the chunk into their SteMs, one attribute of one stream after another."""
    streams, attrs, recs, heads = arena.streams, arena.attrs, arena.recs, arena.heads
    for j in range(streams.shape[0]):
        i = u64(j)
        n, first = chunk.streams[i, K_COUNT], chunk.streams[i, K_FIRST]
        ring, mask, width = streams[i, S_RECS], streams[i, S_MASK], streams[i, S_WIDTH]
        if n > 0:
            for x in range(streams[i, S_ATTR0], streams[i, S_ATTR1]):
                c = u64(attrs[u64(x), A_CLASS])
                column, stride = arena.classes[c, C_HEADS] + attrs[u64(x), A_COLUMN], arena.classes[c, C_STRIDE]
                for s in range(first, first + n):
                    at = ring + (s & mask) * width + attrs[u64(x), A_OFFSET]
                    kid = np.int64(recs[u64(at + 1)])
                    if kid >= 0:
                        p = u64(column + kid * stride)
                        recs[u64(at)] = heads[p]
                        heads[p] = s
            streams[i, S_NEXT] = first + n


@inlined
def has_left(arena: Arena, chunk: Chunk, j: int, s: int, place: int) -> bool:
    """Return whether tuple s < K_STAY of stream j has left its window when the arrival at `place` probes."""
    row, own = arena.streams[u64(j)], chunk.streams[u64(j)]
    if row[S_KIND] == ROWS:
        return chunk.places[u64(own[K_START] + s + row[S_SIZE] - own[K_FIRST])] < place
    return arena.times[u64(row[S_TIMES] + (s & row[S_MASK]))] < chunk.clock[u64(place)] - row[S_SIZE]


@inlined
def newest_seen(arena: Arena, chunk: Chunk, j: int, offset: int, s: int, place: int) -> int:
    """Return the newest tuple that the arrival at `place` sees, from tuple s of stream j down its chain; -1 for none.

    offset   where (link, key id) of the chain lies in a record
    """
    row, own = arena.streams[u64(j)], chunk.streams[u64(j)]
    while s >= own[K_FIRST] and chunk.places[u64(own[K_START] + s - own[K_FIRST])] > place:
        s = np.int64(arena.recs[u64(row[S_RECS] + (s & row[S_MASK]) * row[S_WIDTH] + offset)])
    if s < own[K_LOW] or (s < own[K_STAY] and has_left(arena, chunk, j, s, place)):
        return np.int64(-1)
    return s
