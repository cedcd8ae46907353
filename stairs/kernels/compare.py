"""Comparisons: predicates between values of two components that are no equalities."""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    DIFFERS,
    FLOATS_DIFFER,
    FLOATS_TURNED,
    H_COMPARE,
    S_MASK,
    S_VALUES,
    WITHIN,
    X_EXCLUDED,
    X_HIGH,
    X_KIND,
    X_LOW,
    X_OTHER,
    X_OTHER_RING,
    X_REMAINING,
    X_RING,
    X_STREAM,
)
from stairs.kernels.accelerate import inlined, step, u64
from stairs.memory.arena import Arena, Routes

BLOCK = 64
"""Values that are compared before one of them is looked at."""
NEAREST = 8
"""Values that are compared one by one before blocks are."""


@inlined
def value_of(arena: Arena, j: int, ring: int, s: int) -> int:
    """Return the value of tuple s of stream j in one of its rings."""
    row = arena.streams[u64(j)]
    return arena.values[u64(row[S_VALUES] + ring * (row[S_MASK] + 1) + (s & row[S_MASK]))]


@inlined
def floats_hold(row: np.ndarray, v: int, w: int) -> bool:
    """Return whether two floats, given as bits, fulfil a comparison."""
    kind = row[X_KIND]
    left, right = np.int64(v).view(np.float64), np.int64(w).view(np.float64)
    if kind >= FLOATS_TURNED:
        kind -= FLOATS_TURNED
        left, right = right, left
    low, high = np.int64(row[X_LOW]).view(np.float64), np.int64(row[X_HIGH]).view(np.float64)
    if kind == FLOATS_DIFFER:
        return left != right + low
    # An infinite bound is none. Added to an infinite value it would give NaN.
    above = low == -np.inf or left > right + low or (row[X_EXCLUDED] & 1 == 0 and left == right + low)
    below = high == np.inf or left < right + high or (row[X_EXCLUDED] & 2 == 0 and left == right + high)
    return above and below


@inlined
def holds(arena: Arena, row: np.ndarray, s: int, other: int) -> bool:
    """Return whether the component s found by a hop and the component bound before it fulfil a comparison."""
    v, w = value_of(arena, row[X_STREAM], row[X_RING], s), value_of(arena, row[X_OTHER], row[X_OTHER_RING], other)
    if row[X_KIND] == WITHIN:
        return v >= w + row[X_LOW] and v <= w + row[X_HIGH]
    if row[X_KIND] == DIFFERS:
        return v != w + row[X_LOW]
    return floats_hold(row, v, w)


@inlined
def end_of(routes: Routes, first: int) -> int:
    """Return the end of the comparisons of a hop, given the first one (H_COMPARE)."""
    return first + routes.compares[u64(first), X_REMAINING] if first >= 0 else first


@inlined
def any_within(values: np.ndarray, first: int, last: int, low: int, high: int) -> bool:
    """Return whether one of values[first:last] lies within low .. high."""
    within = 0
    for k in range(first, last):
        v = values[u64(k)]
        within |= (v >= low) & (v <= high)
    return within != 0


@step
def next_within(values: np.ndarray, ring: int, mask: int, s: int, low: int, least: int, most: int) -> int:
    """Return the newest tuple from s down to `low` with a value within least .. most, or a number below `low`.

    ring   where the ring of values starts
    """
    far = s - NEAREST
    while s >= low:
        slot = ring + (s & mask)
        v = values[u64(slot)]
        if v >= least and v <= most:
            break
        if s < far:
            # A block ends where the ring does.
            n = min(BLOCK, s - low + 1, (s & mask) + 1)
            if not any_within(values, slot - n + 1, slot + 1, least, most):
                s -= n
                continue
            far = s - n
        s -= 1
    return s


@inlined
def bounds(arena: Arena, test: np.ndarray, current: np.ndarray) -> tuple[int, int]:
    """Return the least and the greatest value that fulfil a comparison with bounds (WITHIN)."""
    other = value_of(arena, test[X_OTHER], test[X_OTHER_RING], current[u64(test[X_OTHER])])
    return other + test[X_LOW], other + test[X_HIGH]


@inlined
def all_hold(arena: Arena, routes: Routes, h: int, current: np.ndarray) -> bool:
    """Return whether components, a sequence number for each stream, fulfil the comparisons of a hop."""
    first = routes.hops[u64(h), H_COMPARE]
    for x in range(first, end_of(routes, first)):
        row = routes.compares[u64(x)]
        if not holds(arena, row, current[u64(row[X_STREAM])], current[u64(row[X_OTHER])]):
            return False
    return True
