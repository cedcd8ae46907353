"""Hops that scan all tuples of a stream, where comparisons connect it and no equality.

The first comparison of a hop, if it bounds an integer, is evaluated on blocks of values that follow each other in
memory: the machine compares several at once. Only a block that contains a match is looked at tuple by tuple.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    H_COMPARE,
    H_TARGET,
    K_COUNT,
    K_FIRST,
    K_LOW,
    K_STAY,
    L_AT,
    L_SIZE,
    Q_FIELDS,
    Q_PLACE,
    S_MASK,
    S_RECS,
    S_VALUES,
    S_WIDTH,
    WITHIN,
    X_HIGH,
    X_KIND,
    X_LOW,
    X_OTHER,
    X_OTHER_RING,
    X_RING,
)
from stairs.graph import FOREVER
from stairs.kernels.accelerate import inlined, step, u64
from stairs.kernels.chunk import has_arrived, has_left
from stairs.kernels.compare import value_of
from stairs.kernels.partials import add_partial, agrees, bind_keys, close_level
from stairs.memory.arena import Arena, Chunk, Routes, Walk

BLOCK = 64
"""Values that are compared before one of them is looked at."""


@inlined
def any_within(values: np.ndarray, first: int, last: int, low: int, high: int) -> bool:
    """Return whether one of values[first:last] lies within low .. high."""
    found = 0
    for k in range(first, last):
        v = values[u64(k)]
        found |= (v >= low) & (v <= high)
    return found != 0


@step
def scan(arena: Arena, routes: Routes, chunk: Chunk, walk: Walk, i: int, level: int, h: int, at: int) -> int:
    """Do the work of `stairs.kernels.levels.extend` for a hop that scans."""
    hops, partials, levels, values = routes.hops, chunk.partials, chunk.levels, arena.values
    j = u64(hops[u64(h), H_TARGET])
    row, own = arena.streams[j], chunk.streams[j]
    ring, mask, width = row[S_RECS] + 1, row[S_MASK], row[S_WIDTH]
    newer, oldest, stay = own[K_FIRST], own[K_LOW], own[K_STAY]
    following = newer + own[K_COUNT]
    x = hops[u64(h), H_COMPARE]
    blocks = x >= 0 and routes.compares[u64(x), X_KIND] == WITHIN
    base, low, high = row[S_VALUES], np.int64(-2 * FOREVER), np.int64(2 * FOREVER)
    if blocks:
        base += routes.compares[u64(x), X_RING] * (mask + 1)
    above = levels[i, u64(level), L_AT]
    end, last = at, np.int64(partials.shape[0]) - Q_FIELDS
    for q in range(levels[i, u64(level), L_SIZE]):
        place = np.int64(partials[u64(above + q * Q_FIELDS + Q_PLACE)])
        bind_keys(arena, routes, chunk, walk, i, level, q, h)
        if blocks:
            test = routes.compares[u64(x)]
            other = value_of(arena, test[X_OTHER], test[X_OTHER_RING], walk.others[0])
            low, high = other + test[X_LOW], other + test[X_HIGH]
        start = oldest
        while start < following:
            # A block ends where the ring does.
            stop = min(following, start + BLOCK, start + mask + 1 - (start & mask))
            slot = base + (start & mask)
            if not blocks or any_within(values, slot, slot + stop - start, low, high):
                for s in range(start, stop):
                    v = values[u64(slot + s - start)] if blocks else low
                    if v < low or v > high or arena.recs[u64(ring + (s & mask) * width)] < 0:
                        continue
                    if s >= newer and not has_arrived(chunk, np.int64(j), s, place):
                        continue
                    if s < stay and has_left(arena, chunk, np.int64(j), s, place):
                        continue
                    if agrees(arena, routes, walk, h, ring - 1 + (s & mask) * width, s):
                        if end > last:
                            return np.int64(-1)
                        end = add_partial(partials, end, q, s, place)
            start = stop
    close_level(routes, chunk, i, level + 1, h, at, end)
    return end
