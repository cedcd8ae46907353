"""Hops that scan all tuples of a stream, where comparisons connect it and no equality.

The first comparison of a hop, if it bounds an integer, selects the candidates. In large windows they are found in a
band (`stairs.kernels.bands`). Tuples that the band does not contain yet, and small windows, are compared in blocks of
values that follow each other in memory: the machine compares several at once. Only a block that contains a match is
looked at tuple by tuple.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    B_UPTO,
    H_COMPARE,
    H_OPS0,
    H_OPS1,
    H_TARGET,
    K_COUNT,
    K_FIRST,
    K_LOW,
    K_STAY,
    L_AT,
    L_SIZE,
    O_CHECK,
    Q_FIELDS,
    Q_HEAD,
    Q_PLACE,
    Q_TUPLE,
    S_LIFE,
    S_MASK,
    S_RECS,
    S_VALUES,
    S_WIDTH,
    WITHIN,
    X_HIGH,
    X_KIND,
    X_LEVEL,
    X_LOW,
    X_OTHER,
    X_OTHER_RING,
    X_REMAINING,
    X_RING,
)
from stairs.graph import FOREVER
from stairs.kernels.accelerate import inlined, step, u64
from stairs.kernels.bands import GROUP, NO_BAND, count_seen, count_within, lane, ready_band, search, take
from stairs.kernels.chunk import has_arrived, has_left
from stairs.kernels.compare import BLOCK, any_within, value_of
from stairs.kernels.memory import poke_int64
from stairs.kernels.partials import add_partial, agrees, ancestor, bind_keys, close_level
from stairs.memory.arena import Arena, Chunk, Routes, Walk

FEW = 16
"""Candidates are taken from a band if they are at most one in FEW tuples, where more than their value is checked: they
lie in memory in no order."""


@inlined
def checks_more(routes: Routes, h: int) -> bool:
    """Return whether hop h checks more than its first comparison."""
    more = routes.compares[u64(routes.hops[u64(h), H_COMPARE]), X_REMAINING] > 1
    for o in range(routes.hops[u64(h), H_OPS0], routes.hops[u64(h), H_OPS1]):
        more |= routes.ops[u64(o), O_CHECK] != 0
    return more


@step
def scan(
    arena: Arena, routes: Routes, chunk: Chunk, walk: Walk, i: int, level: int, h: int, at: int, weighed: bool
) -> int:
    """Do the work of `stairs.kernels.levels.extend` for a hop that scans. Return NO_BAND if a band lacks memory.

    weighed   as `stairs.kernels.levels.is_weighed`
    """
    hops, partials, levels, values = routes.hops, chunk.partials, chunk.levels, arena.values
    j = u64(hops[u64(h), H_TARGET])
    row, events = arena.streams[j], chunk.streams[j]
    ring, mask, width = row[S_RECS] + 1, row[S_MASK], row[S_WIDTH]
    newer, oldest, stay = events[K_FIRST], events[K_LOW], events[K_STAY]
    following = newer + events[K_COUNT]
    x, b, more = hops[u64(h), H_COMPARE], np.int64(-1), True
    bounded = x >= 0 and routes.compares[u64(x), X_KIND] == WITHIN
    test, table = routes.compares[u64(max(x, 0))], row[S_LIFE] > 0
    base, low, high = row[S_VALUES], np.int64(-2 * FOREVER), np.int64(2 * FOREVER)
    if bounded:
        base += routes.compares[u64(x), X_RING] * (mask + 1)
        more = checks_more(routes, h) or table
        b = ready_band(arena, np.int64(j), routes.compares[u64(x), X_RING], oldest, following)
        if b == NO_BAND:
            return b
    above = levels[i, u64(level), L_AT]
    end, last, most = at, np.int64(partials.shape[0]) - Q_FIELDS, (following - oldest) // FEW
    before, first, beyond = np.int64(-1), oldest, newer
    size = levels[i, u64(level), L_SIZE]
    for q in range(size):
        if b >= 0 and q % GROUP == 0:
            for k in range(min(GROUP, size - q)):
                other = ancestor(chunk, i, q + k, level, test[X_LEVEL])
                low = value_of(arena, test[X_OTHER], test[X_OTHER_RING], other) + test[X_LOW]
                poke_int64(lane(arena.bands[u64(b)], 0, k), max(low, -2 * FOREVER))
            search(arena.bands, b, min(GROUP, size - q))
        place = np.int64(partials[u64(above + q * Q_FIELDS + Q_PLACE)])
        # The event sees the tuples first .. beyond - 1. Both rise with its place.
        if place < before:
            first, beyond = oldest, newer
        while first < stay and has_left(arena, chunk, np.int64(j), first, place):
            first += 1
        while beyond < following and has_arrived(chunk, np.int64(j), beyond, place):
            beyond += 1
        before, start = place, first
        bind_keys(arena, routes, chunk, walk, i, level, q, h)
        if bounded:
            other = value_of(arena, test[X_OTHER], test[X_OTHER_RING], walk.others[0])
            low, high = other + test[X_LOW], other + test[X_HIGH]
        if b >= 0 and (not more or count_within(arena.bands, b, q % GROUP, high) <= most):
            start = max(first, arena.bands[u64(b), B_UPTO])
            if weighed and not more:
                count = count_seen(arena.bands, b, q % GROUP, high, first, beyond)
                if end > last:
                    return np.int64(-1)
                partials[u64(end + Q_HEAD)] = count
                end = add_partial(partials, end, q, -1, place) if count > 0 else end
            else:
                begin = end
                end = take(partials, end, arena.bands, b, q % GROUP, high, first, beyond, q, place)
                if end < 0:
                    return end
                if more:
                    taken = end
                    end = begin
                    for p in range(begin, taken, Q_FIELDS):
                        s = np.int64(partials[u64(p + Q_TUPLE)])
                        if table and (
                            arena.recs[u64(ring + (s & mask) * width)] < 0
                            or has_left(arena, chunk, np.int64(j), s, place)
                        ):
                            continue
                        if agrees(arena, routes, walk, h, ring - 1 + (s & mask) * width, s):
                            partials[u64(end + Q_HEAD)] = 1
                            end = add_partial(partials, end, q, s, place)
        while start < beyond:
            # A block ends where the ring does.
            stop = min(beyond, start + BLOCK, start + mask + 1 - (start & mask))
            slot = base + (start & mask)
            if not bounded or any_within(values, slot, slot + stop - start, low, high):
                for s in range(start, stop):
                    v = values[u64(slot + s - start)] if bounded else low
                    if v < low or v > high or arena.recs[u64(ring + (s & mask) * width)] < 0:
                        continue
                    if table and has_left(arena, chunk, np.int64(j), s, place):
                        continue
                    if agrees(arena, routes, walk, h, ring - 1 + (s & mask) * width, s):
                        if end > last:
                            return np.int64(-1)
                        partials[u64(end + Q_HEAD)] = 1
                        end = add_partial(partials, end, q, s, place)
            start = stop
    close_level(routes, chunk, i, level + 1, h, at, end)
    return end
