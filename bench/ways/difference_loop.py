"""The changelog of the set difference A - B - C in ROWS windows, on one key of small integers, written by hand."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stairs.kernels.accelerate import inlined, jit


class DifferenceWindows(NamedTuple):
    """The windows of the three streams.

    keys     int64[3, ring], the keys of each stream by slot
    counts   int64[3, keys], the number of tuples with each key in each window, except that of A
    lists    int64[2, ring], per slot of A the next older and the next newer tuple with its key, -1 = none
    first    int64[keys], the newest tuple of A with each key; -1 = none
    flips    uint8[ring], 0; per slot of A, whether the tuple has changed sides an odd number of times in a push
    following  int64[3], the number of the next arrival of each stream

    The ring has room for a window and a push.
    """

    keys: np.ndarray
    counts: np.ndarray
    lists: np.ndarray
    first: np.ndarray
    flips: np.ndarray
    following: np.ndarray


@inlined
def put_out(windows: DifferenceWindows, key: int, rows: np.ndarray, signs: np.ndarray, written: int, sign: int) -> int:
    """Write all tuples of A with a key to the output; return the number of rows written so far."""
    mask, t = windows.keys.shape[1] - 1, windows.first[key]
    while t >= 0:
        rows[written], signs[written] = t, sign
        written += 1
        t = windows.lists[0, t & mask]
    return written


@inlined
def net(windows: DifferenceWindows, rows: np.ndarray, signs: np.ndarray, written: int) -> int:
    """Reduce changes to one for each tuple whose state they change in total; return their number."""
    mask, kept = windows.keys.shape[1] - 1, 0
    for x in range(written):
        windows.flips[rows[x] & mask] ^= 1
    for x in range(written):
        if windows.flips[rows[x] & mask]:
            # Changes of a tuple alternate, so the first of an odd number of changes equals the last.
            windows.flips[rows[x] & mask] = 0
            rows[kept], signs[kept] = rows[x], signs[x]
            kept += 1
    return kept


@jit
def difference_loop(
    order: np.ndarray, keys: np.ndarray, window: int, windows: DifferenceWindows, rows: np.ndarray, signs: np.ndarray
) -> int:
    """Take a push, write the tuples that leave and enter the difference with it, and return their number.

    order   uint8[arrivals], 0 = A, 1 = B, 2 = C
    keys    int64[arrivals]
    rows    int64[room], with room enough; `signs` uint8[room], 1 = enters, 0 = leaves
    """
    mask, written = windows.keys.shape[1] - 1, 0
    for a in range(order.shape[0]):
        i, key = np.int64(order[a]), keys[a]
        s = windows.following[i]
        old = s - window
        if old >= 0:
            gone = windows.keys[i, old & mask]
            if i:
                windows.counts[i, gone] -= 1
                if windows.counts[1, gone] + windows.counts[2, gone] == 0:
                    written = put_out(windows, gone, rows, signs, written, 1)
            else:
                # The oldest tuple is the last in the list of its key.
                before = windows.lists[1, old & mask]
                if before >= 0:
                    windows.lists[0, before & mask] = -1
                else:
                    windows.first[gone] = -1
                if windows.counts[1, gone] + windows.counts[2, gone] == 0:
                    rows[written], signs[written] = old, 0
                    written += 1
        windows.keys[i, s & mask] = key
        windows.following[i] = s + 1
        free = windows.counts[1, key] + windows.counts[2, key] == 0
        if i:
            if free:
                written = put_out(windows, key, rows, signs, written, 0)
            windows.counts[i, key] += 1
            continue
        head = windows.first[key]
        windows.lists[0, s & mask], windows.lists[1, s & mask] = head, -1
        if head >= 0:
            windows.lists[1, head & mask] = s
        windows.first[key] = s
        if free:
            rows[written], signs[written] = s, 1
            written += 1
    return net(windows, rows, signs, written)
