"""Kernels over the order of arrival: count, merge by event time, mark late rows."""

from __future__ import annotations

import numpy as np

from stairs.graph import FOREVER
from stairs.kernels.accelerate import jit, u64


@jit
def count_streams(order: np.ndarray, counts: np.ndarray) -> None:
    """Count how often each stream occurs in order uint8[arrivals]; counts int64[256] is overwritten."""
    for i in range(counts.shape[0]):
        counts[u64(i)] = 0
    for a in range(order.shape[0]):
        counts[u64(order[a])] += 1


@jit
def merge_by_time(
    times: np.ndarray, cursor: np.ndarray, ends: np.ndarray, next_time: np.ndarray, order: np.ndarray
) -> None:
    """Merge streams that are each in order of time: write the stream of each arrival; ties go to the first stream.

    times int64[rows] within ±2^61, stream after stream; cursor int64[streams], the start of each stream (overwritten);
    ends int64[streams]; next_time int64[streams] is scratch; order uint8[rows] is the output. O(arrivals * streams).
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
    """Mark the rows that are older than the watermark when they arrive; return their number.

    order uint8[arrivals]; times int64[rows] and late uint8[rows] (output), stream after stream; cursor int64[streams],
    the start of each stream (overwritten); newest int64[streams], -FOREVER before: output, the greatest event time
    before the first late row of each stream; greatest: the greatest event time before the push. A late row does not
    move the watermark. O(arrivals).
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
