"""Kernels of windows that are sorted by key and time. The caller provides all output arrays."""

from __future__ import annotations

import numpy as np

from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.hashes import finish, stir


@inlined
def slot_of(key: np.int64, mask: np.uint64, seeds: np.ndarray) -> np.uint64:
    """Return the first slot of a key in a table of mask + 1 slots, under two seeds."""
    return u64(finish(stir(u64(seeds[0]), key, seeds[1]), seeds[0], seeds[1])) & mask


@jit
def index_runs(keys: np.ndarray, slots: np.ndarray, seeds: np.ndarray, ends: np.ndarray) -> None:
    """Enter the runs of equal keys into a hash table.

    keys int64[n] ascending; slots int64[2^k > runs] of -1: the start of a run; seeds int64[2] of the hash; ends
    int64[n]: the end of a run, at the position of its start.
    """
    mask = np.uint64(slots.size - 1)
    begin = np.int64(0)
    for i in range(1, keys.size + 1):
        if i < keys.size and keys[u64(i)] == keys[u64(begin)]:
            continue
        h = slot_of(keys[u64(begin)], mask, seeds)
        while slots[h] >= 0:
            h = (h + np.uint64(1)) & mask
        slots[h] = begin
        ends[u64(begin)] = i
        begin = np.int64(i)


@jit
def find_runs(
    keys: np.ndarray,
    times: np.ndarray,
    slots: np.ndarray,
    seeds: np.ndarray,
    ends: np.ndarray,
    wanted: np.ndarray,
    lows: np.ndarray,
    highs: np.ndarray,
    first: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Write for each key the rows with this key and a time from low to high, as (first row, number of rows).

    keys, times int64[n], ascending by (key, time); slots, seeds, ends of `index_runs`; all others int64[m].
    """
    mask = np.uint64(slots.size - 1)
    for k in range(wanted.size):
        h = slot_of(wanted[k], mask, seeds)
        while slots[h] >= 0 and keys[u64(slots[h])] != wanted[k]:
            h = (h + np.uint64(1)) & mask
        counts[k] = 0
        if slots[h] < 0:
            continue
        begin = slots[h]
        end = ends[u64(begin)]
        low, high = begin, end
        while low < high:
            middle = (low + high) >> 1
            if times[u64(middle)] < lows[k]:
                low = middle + 1
            else:
                high = middle
        first[k] = low
        high = end
        while low < high:
            middle = (low + high) >> 1
            if times[u64(middle)] <= highs[k]:
                low = middle + 1
            else:
                high = middle
        counts[k] = low - first[k]
