"""A nested loop for the join R.x < S.x of two streams in ROWS windows, written by hand."""

from __future__ import annotations

import numpy as np

from stairs.kernels.accelerate import jit


@jit
def theta_loop(
    order: np.ndarray, values: np.ndarray, window: int, held: np.ndarray, nxt: np.ndarray, ids: np.ndarray
) -> int:
    """Take arrivals, write the ids of their results while the buffer has room, and return the number of results.

    order   uint8[arrivals], 0 = R, 1 = S
    values  int64[arrivals], x
    held    int64[2, ring], the values of each stream by slot; `nxt` int64[2], the numbers of the next arrivals
    ids     int32[2, room]
    """
    mask, count = held.shape[1] - 1, 0
    for a in range(order.shape[0]):
        i, v = np.int64(order[a]), values[a]
        j, s = 1 - i, nxt[i]
        for t in range(max(nxt[j] - window, 0), nxt[j]):
            w = held[j, t & mask]
            if (i == 0 and v < w) or (i == 1 and w < v):
                if count < ids.shape[1]:
                    ids[i, count] = s
                    ids[j, count] = t
                count += 1
        held[i, s & mask] = v
        nxt[i] = s + 1
    return count
