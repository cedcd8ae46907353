"""The kernel that finds late rows: a running maximum over the arrivals; and the one that counts them."""

from __future__ import annotations

import numpy as np

from stairs.graph import FOREVER
from stairs.kernels.accelerate import jit, u64


@jit
def count_streams(order: np.ndarray, counts: np.ndarray) -> None:
    """Add up how often each stream stands in order uint8[arrivals]: counts int64[256], zeros before."""
    for a in range(order.shape[0]):
        counts[u64(order[a])] += 1


@jit
def merge_by_time(
    times: np.ndarray, cursor: np.ndarray, ends: np.ndarray, next_time: np.ndarray, order: np.ndarray
) -> None:
    """Merge streams that are each in time order: write which of them each arrival is of, ties to the first.

    times int64[rows] within ±2^61, stream after stream; cursor int64[streams], where each starts (used up); ends
    int64[streams]; next_time int64[streams] is room; order uint8[rows]. O(arrivals * streams).
    """
    streams = cursor.shape[0]
    never = np.int64(1) << 62
    for i in range(streams):
        next_time[i] = times[cursor[i]] if cursor[i] < ends[i] else never
    for a in range(order.shape[0]):
        first = 0
        for i in range(1, streams):
            if next_time[u64(i)] < next_time[u64(first)]:
                first = i
        order[u64(a)] = first
        at = cursor[u64(first)] + 1
        cursor[u64(first)] = at
        next_time[u64(first)] = times[u64(at)] if at < ends[u64(first)] else never


@jit
def mark_late(
    order: np.ndarray,
    times: np.ndarray,
    cursor: np.ndarray,
    late: np.ndarray,
    newest: np.ndarray,
    greatest: int,
    lateness: int,
) -> int:
    """Mark the rows that are older than the watermark when their turn comes and return how many there are.

    order uint8[arrivals]; times int64[rows] and late uint8[rows], stream after stream; cursor int64[streams], where
    each stream's rows start (used up); newest int64[streams], -FOREVER before: the greatest event time when the first
    late row of each stream came; greatest: the greatest event time before. A late row does not move the watermark.
    """
    found = 0
    for a in range(order.shape[0]):
        i = order[a]
        t = times[cursor[i]]
        if t > greatest:
            greatest = t
        elif t < greatest - lateness:
            late[cursor[i]] = 1
            found += 1
            if newest[i] == -FOREVER:
                newest[i] = greatest
        cursor[i] += 1
    return found
