"""Candidates of a hop that scans, one at a time: for walks that climb, whose levels hold one candidate each.

The waiting tuples of a band come first, from the newest to the oldest; then the entries of its runs within the bounds.
The number of a candidate is the sequence number of a tuple, or a place in a run (PLACED), which is greater than all of
those. Without a band, all tuples are scanned. Within one walk, a stream is scanned by one hop, so nothing is sorted
into its band between two candidates of a scan.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    B_AT,
    B_COUNT,
    B_LEAST,
    B_SLOTS,
    B_TUPLES,
    B_UPTO,
    B_VALUES,
    B_WAITING,
    M_BAND,
    M_NEED,
    S_BANDS,
    S_LO,
    S_MASK,
    S_NEXT,
    S_VALUES,
    WITHIN,
    X_KIND,
    X_RING,
    X_STREAM,
)
from stairs.graph import FOREVER
from stairs.kernels.accelerate import inlined, step, u64
from stairs.kernels.bands import NO_BAND, RUNS, lane, ready_band, search_one
from stairs.kernels.compare import bounds, next_within
from stairs.kernels.memory import peek_int32, peek_int64
from stairs.memory.arena import Arena, Routes

PLACED = 1 << 40
"""Entry e of run k of a band has the number (k + 1) * PLACED + e."""


@inlined
def is_bounded(routes: Routes, x: int) -> bool:
    """Return whether comparison x bounds an integer; False for -1, which stands for no comparison."""
    return x >= 0 and routes.compares[u64(x), X_KIND] == WITHIN


@inlined
def band_of(arena: Arena, routes: Routes, x: int) -> int:
    """Return the band of the values that comparison x bounds."""
    test = routes.compares[u64(x)]
    return arena.streams[u64(test[X_STREAM]), S_BANDS] + test[X_RING]


@step
def next_scanned(arena: Arena, routes: Routes, x: int, current: np.ndarray, s: int, low: int) -> int:
    """Return s if it is a candidate of a scan, otherwise the next candidate; a number below `low` if none is left.

    x   the comparison that selects candidates, if it bounds an integer; otherwise each tuple is one
    """
    if not is_bounded(routes, x):
        return s
    test = routes.compares[u64(x)]
    row, band = arena.streams[u64(test[X_STREAM])], arena.bands[u64(band_of(arena, routes, x))]
    least, most = bounds(arena, test, current)
    # Whether the band has all tuples except for a few; otherwise all are scanned.
    large, fits = row[S_NEXT] - row[S_LO] >= band[B_LEAST], band[B_SLOTS] > row[S_MASK]
    searched = large and fits and row[S_NEXT] - band[B_UPTO] <= band[B_WAITING]
    run, e = np.int64(0), np.int64(-1)
    if s < PLACED:
        stop, ring = max(low, band[B_UPTO]) if searched else low, row[S_VALUES] + test[X_RING] * (row[S_MASK] + 1)
        s = next_within(arena.values, ring, row[S_MASK], s, stop, least, most)
        if s >= stop or not searched:
            return s
        search_one(arena.bands, band_of(arena, routes, x), max(least, -2 * FOREVER))
    else:
        run, e = s // PLACED - 1, s % PLACED
    while run < RUNS:
        n, at = band[u64(B_COUNT + run)], band[u64(B_AT + run)]
        values, tuples = band[B_VALUES] + 8 * at, band[B_TUPLES] + 4 * at
        if e < 0:
            e = peek_int64(lane(band, run + 1, 0))
        while e < n and peek_int64(values + 8 * e) <= most:
            # Entries of tuples that have left are dropped later.
            if peek_int32(tuples + 4 * e) >= low:
                return (run + 1) * PLACED + e
            e += 1
        run, e = run + 1, np.int64(-1)
    return low - 1


@step
def first_scanned(arena: Arena, routes: Routes, x: int, j: int, current: np.ndarray, low: int) -> int:
    """Return the first candidate of a scan of stream j, or a number below `low`; M_BAND asks for a band it lacks.

    The band takes the tuples that wait, if they are many.
    """
    row = arena.streams[u64(j)]
    if is_bounded(routes, x):
        band = ready_band(arena, j, routes.compares[u64(x), X_RING], row[S_LO], row[S_NEXT])
        if band == NO_BAND:
            arena.meta[M_BAND] = arena.meta[M_NEED] + 1
    return next_scanned(arena, routes, x, current, row[S_NEXT] - 1, low)


@inlined
def after_scanned(arena: Arena, routes: Routes, x: int, current: np.ndarray, s: int, low: int) -> int:
    """Return the candidate of a scan that follows number s, or a number below `low`."""
    return next_scanned(arena, routes, x, current, s - 1 if s < PLACED else s + 1, low)


@inlined
def scanned_tuple(arena: Arena, routes: Routes, x: int, s: int) -> int:
    """Return the tuple of candidate s of a scan."""
    if s < PLACED:
        return s
    band = arena.bands[u64(band_of(arena, routes, x))]
    return np.int64(peek_int32(band[B_TUPLES] + 4 * (band[u64(B_AT + s // PLACED - 1)] + s % PLACED)))
