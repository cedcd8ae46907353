"""Bands: values of a stream in ascending order, in which a scan finds those between two bounds by binary search.

A band has an entry (value, sequence number) for each tuple of a ring of values that can join. Its entries form sorted
*runs* of three sizes. New tuples wait until there are enough of them. Then they are sorted in batches, and each batch
is merged into the first run. A run that has become too long is merged into the next one. Each merge drops the entries
of expired tuples, so an entry is moved a dozen times in its life, whatever the size of the window.

A band is a cache over a SteM. Tuples that it does not contain yet are read from the ring of values (B_UPTO), however
they got there. Its memory belongs to `stairs.bands`.

Source: O'Neil, Cheng, Gawlick, O'Neil, "The log-structured merge-tree (LSM-tree)", Acta Informatica 33, 1996.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    B_AT,
    B_AT_ONCE,
    B_BATCH,
    B_COUNT,
    B_LEAST,
    B_LOW,
    B_MOST,
    B_REFUSED,
    B_SLOTS,
    B_TUPLES,
    B_UPTO,
    B_VALUES,
    B_WAITING,
    H_COMPARE,
    H_TARGET,
    M_NEED,
    Q_FIELDS,
    S_BANDS,
    S_LO,
    S_MASK,
    S_NEXT,
    S_RECS,
    S_VALUES,
    S_WIDTH,
    WITHIN,
    X_KIND,
    X_RING,
)
from stairs.graph import FOREVER
from stairs.kernels.accelerate import inlined, step, u64
from stairs.kernels.memory import peek64, peek_int32, peek_int64, poke_int32, poke_int64, prefetch
from stairs.kernels.partials import add_partial
from stairs.memory.arena import Arena, Routes

RUNS = 3
GROUP = 16
"""Lower bounds that are searched for at once."""
AHEAD = 4
"""Cache lines of values that are prefetched from the beginning of what a search has found."""
SORTED = 16
"""Entries that are sorted by insertion."""
NO_BAND = -2
"""Stands for a band that lacks memory (M_NEED)."""


@inlined
def has_band(arena: Arena, routes: Routes, h: int) -> bool:
    """Return whether scans of hop h search a band, as the windows are now."""
    x = routes.hops[u64(h), H_COMPARE]
    if x < 0 or routes.compares[u64(x), X_KIND] != WITHIN:
        return False
    row = arena.streams[u64(routes.hops[u64(h), H_TARGET])]
    band = arena.bands[u64(row[S_BANDS] + routes.compares[u64(x), X_RING])]
    refused = band[B_REFUSED] != 0 and band[B_SLOTS] <= row[S_MASK]
    return row[S_NEXT] - row[S_LO] >= band[B_LEAST] and not refused


@inlined
def below(values: int, e: int, bound: int, n: int) -> int:
    """Return n if entry e of the values at an address is less than a bound, else 0; both lie within ±2^62."""
    # The sign of the difference makes a mask: a branch would be mispredicted each second time. The compiler makes no
    # branch of unsigned numbers, whose difference may wrap around.
    return n & np.int64(peek64(values + 8 * e) - u64(np.int64(bound))) >> 63


@inlined
def count_below(values: int, n: int, bound: int) -> int:
    """Return how many of n ascending values at an address are less than a bound; both lie within ±2^62."""
    first = np.int64(0)
    while n > 1:
        half = n >> 1
        first += below(values, first + half - 1, bound, half)
        n -= half
    return first + below(values, first, bound, 1) if n > 0 else first


@inlined
def lane(band: np.ndarray, k: int, q: int) -> int:
    """Return the address of lane q of a group: of its lower bound (k = 0), or of its first entry in run k - 1.

    The lanes lie where batches are sorted, since nothing is sorted in while a group is searched.
    """
    return band[B_VALUES] + 8 * (band[B_BATCH] + GROUP * k + q)


@step
def search(bands: np.ndarray, b: int, lanes: int) -> None:
    """Find, for each of up to GROUP lanes, the first entry of each run of band b that is not below its lower bound.

    All lanes take each step together, so that their cache misses overlap.
    """
    band = bands[u64(b)]
    for k in range(RUNS):
        at, n = band[u64(B_AT + k)], band[u64(B_COUNT + k)]
        values, tuples = band[B_VALUES] + 8 * at, band[B_TUPLES] + 4 * at
        bounds, firsts = lane(band, 0, 0), lane(band, k + 1, 0)
        for q in range(0, 8 * lanes, 8):
            poke_int64(firsts + q, 0)
        while n > 1:
            half = n >> 1
            for q in range(0, 8 * lanes, 8):
                first = peek_int64(firsts + q)
                poke_int64(firsts + q, first + below(values, first + half - 1, peek_int64(bounds + q), half))
            n -= half
        for q in range(0, 8 * lanes, 8):
            first = peek_int64(firsts + q)
            if n > 0:
                first += below(values, first, peek_int64(bounds + q), 1)
                poke_int64(firsts + q, first)
            for line in range(AHEAD):
                prefetch(values + 8 * first + 64 * line)
            for line in range(AHEAD // 2):
                prefetch(tuples + 4 * first + 64 * line)


@inlined
def halve(values: int, first: int, n: int, bound: int) -> tuple[int, int]:
    """Take a step of a binary search among n entries from `first` on; return the first and the number of those left."""
    half = n >> 1
    return first + below(values, first + half - 1, bound, half), n - half


@step
def search_one(bands: np.ndarray, b: int, bound: int) -> None:
    """Do the work of `search` for one lower bound, as lane 0: the runs take each step together."""
    band = bands[u64(b)]
    values = band[B_VALUES]
    a, c, d = values + 8 * band[B_AT], values + 8 * band[B_AT + 1], values + 8 * band[B_AT + 2]
    n, o, p = band[B_COUNT], band[B_COUNT + 1], band[B_COUNT + 2]
    first, second, third = np.int64(0), np.int64(0), np.int64(0)
    while n > 1 or o > 1 or p > 1:
        if n > 1:
            first, n = halve(a, first, n, bound)
        if o > 1:
            second, o = halve(c, second, o, bound)
        if p > 1:
            third, p = halve(d, third, p, bound)
    poke_int64(lane(band, 1, 0), first + (below(a, first, bound, 1) if n > 0 else 0))
    poke_int64(lane(band, 2, 0), second + (below(c, second, bound, 1) if o > 0 else 0))
    poke_int64(lane(band, 3, 0), third + (below(d, third, bound, 1) if p > 0 else 0))


@step
def count_within(bands: np.ndarray, b: int, q: int, high: int) -> int:
    """Return the number of entries of band b from what `search` found for lane q up to the value `high`."""
    band, count = bands[u64(b)], np.int64(0)
    for k in range(RUNS):
        first = peek_int64(lane(band, k + 1, q))
        values = band[B_VALUES] + 8 * (band[u64(B_AT + k)] + first)
        count += count_below(values, band[u64(B_COUNT + k)] - first, min(high + 1, 2 * FOREVER))
    return count


@step
def count_seen(bands: np.ndarray, b: int, q: int, high: int, first: int, last: int) -> int:
    """Return how many of what `count_within` counts are entries of the tuples first .. last - 1."""
    band, count = bands[u64(b)], np.int64(0)
    for k in range(RUNS):
        at = band[u64(B_AT + k)]
        values, tuples = band[B_VALUES] + 8 * at, band[B_TUPLES] + 4 * at
        for e in range(peek_int64(lane(band, k + 1, q)), band[u64(B_COUNT + k)]):
            if peek_int64(values + 8 * e) > high:
                break
            s = peek_int32(tuples + 4 * e)
            count += np.int64((s >= first) & (s < last))
    return count


@step
def take(
    partials: np.ndarray,
    end: int,
    bands: np.ndarray,
    b: int,
    q: int,
    high: int,
    first: int,
    last: int,
    parent: int,
    place: int,
) -> int:
    """Write what `count_seen` counts as partial results from `end` on; return their end, or -1 if they lack room.

    They extend the partial result `parent` of an event at `place`.
    """
    band, most = bands[u64(b)], np.int64(partials.shape[0]) - Q_FIELDS
    for k in range(RUNS):
        at = band[u64(B_AT + k)]
        values, tuples = band[B_VALUES] + 8 * at, band[B_TUPLES] + 4 * at
        for e in range(peek_int64(lane(band, k + 1, q)), band[u64(B_COUNT + k)]):
            if peek_int64(values + 8 * e) > high:
                break
            if end > most:
                return np.int64(-1)
            s = np.int64(peek_int32(tuples + 4 * e))
            add_partial(partials, end, parent, s, place)
            end += Q_FIELDS * np.int64(first <= s < last)
    return end


@step
def merge(values: int, tuples: int, n: int, more_values: int, more_tuples: int, more: int) -> None:
    """Merge sorted entries into n others, which are followed by room for them; arguments are addresses and counts."""
    a, b = n - 1, more - 1
    while a >= 0 and b >= 0:
        v, w = peek_int64(values + 8 * a), peek_int64(more_values + 8 * b)
        s, t = np.int64(peek_int32(tuples + 4 * a)), np.int64(peek_int32(more_tuples + 4 * b))
        later = v > w
        poke_int64(values + 8 * (a + b + 1), v if later else w)
        poke_int32(tuples + 4 * (a + b + 1), np.int32(s if later else t))
        a -= np.int64(later)
        b -= 1 - np.int64(later)
    for k in range(b + 1):
        poke_int64(values + 8 * k, peek_int64(more_values + 8 * k))
        poke_int32(tuples + 4 * k, peek_int32(more_tuples + 4 * k))


@step
def sort(values: int, tuples: int, n: int, room: int) -> None:
    """Sort n entries at addresses. Between `room` entries and half as many more, it may write anything."""
    for first in range(0, n, SORTED):
        for k in range(first + 1, min(first + SORTED, n)):
            v, s, at = peek_int64(values + 8 * k), peek_int32(tuples + 4 * k), k
            while at > first and peek_int64(values + 8 * (at - 1)) > v:
                poke_int64(values + 8 * at, peek_int64(values + 8 * (at - 1)))
                poke_int32(tuples + 4 * at, peek_int32(tuples + 4 * (at - 1)))
                at -= 1
            poke_int64(values + 8 * at, v)
            poke_int32(tuples + 4 * at, s)
    size = SORTED
    while size < n:
        for first in range(0, n - size, 2 * size):
            right, more = first + size, min(size, n - first - size)
            for k in range(more):
                poke_int64(values + 8 * (room + k), peek_int64(values + 8 * (right + k)))
                poke_int32(tuples + 4 * (room + k), peek_int32(tuples + 4 * (right + k)))
            merge(values + 8 * first, tuples + 4 * first, size, values + 8 * room, tuples + 4 * room, more)
        size *= 2


@step
def keep_from(values: int, tuples: int, n: int, low: int) -> int:
    """Drop the entries of tuples before `low` from n entries at addresses; return the number of those kept."""
    kept = np.int64(0)
    for k in range(n):
        s = peek_int32(tuples + 4 * k)
        poke_int64(values + 8 * kept, peek_int64(values + 8 * k))
        poke_int32(tuples + 4 * kept, s)
        kept += np.int64(s >= low)
    return kept


@step
def sort_in(arena: Arena, b: int, j: int, ring: int, low: int, following: int) -> None:
    """Add the tuples of stream j before `following` that band b, of one of its rings of values, does not contain.

    low   the first tuple that counts
    """
    band, row = arena.bands[u64(b)], arena.streams[u64(j)]
    recs, mask, width = row[S_RECS] + 1, row[S_MASK], row[S_WIDTH]
    slots = row[S_VALUES] + ring * (mask + 1)
    s = max(band[B_UPTO], low)
    while s < following:
        values, tuples = band[B_VALUES] + 8 * band[B_BATCH], band[B_TUPLES] + 4 * band[B_BATCH]
        more, stop = np.int64(0), min(s + band[B_AT_ONCE], following)
        while s < stop:
            poke_int64(values + 8 * more, arena.values[u64(slots + (s & mask))])
            poke_int32(tuples + 4 * more, np.int32(s))
            more += np.int64(arena.recs[u64(recs + (s & mask) * width)] >= 0)
            s += 1
        sort(values, tuples, more, band[B_AT_ONCE])
        for k in range(RUNS):
            at = band[u64(B_AT + k)]
            run, numbers = band[B_VALUES] + 8 * at, band[B_TUPLES] + 4 * at
            kept = keep_from(run, numbers, band[u64(B_COUNT + k)], low)
            merge(run, numbers, kept, values, tuples, more)
            band[u64(B_COUNT + k)] = kept + more
            if k + 1 == RUNS or kept + more <= band[u64(B_MOST + k)]:
                break
            # All of it goes into the next run.
            values, tuples, more = run, numbers, kept + more
            band[u64(B_COUNT + k)] = 0
    band[B_UPTO] = max(band[B_UPTO], following)
    band[B_LOW] = max(band[B_LOW], low)


@inlined
def ready_band(arena: Arena, j: int, ring: int, oldest: int, following: int) -> int:
    """Return the band of a ring of values, with the tuples oldest .. following - 1 in it except for a few; -1 for none.

    Return NO_BAND if it lacks memory.
    """
    b = arena.streams[u64(j), S_BANDS] + ring
    band = arena.bands[u64(b)]
    if following - oldest < band[B_LEAST]:
        return np.int64(-1)
    if band[B_SLOTS] <= arena.streams[u64(j), S_MASK]:
        arena.meta[M_NEED] = b
        return np.int64(-1) if band[B_REFUSED] != 0 else np.int64(NO_BAND)
    if following - band[B_UPTO] > band[B_WAITING]:
        sort_in(arena, b, j, ring, oldest, following)
    return b
