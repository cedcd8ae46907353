"""The hand-written loop for W1 with RANGE windows; that for ROWS windows is `bench.limit_kernels.w1_loop`."""

from __future__ import annotations

import numpy as np

from bench.limit_kernels import Tables, bucket
from stairs.kernels.accelerate import jit, u64


@jit
def w1_range_loop(
    order: np.ndarray,
    keys: np.ndarray,
    times: np.ndarray,
    span: int,
    bits: int,
    kept: Tables,
    held_times: np.ndarray,
) -> int:
    """Join four streams on one key, RANGE `span` each, arrivals by time; write row ids; return how many results.

    order uint8[n] the stream of each arrival, keys and times int64[n] in arrival order; held_times int64[4, ring], kept
    from call to call. A chain ends at the first tuple that is too old, or whose slot has been taken by another.
    """
    heads, link, held, nxt, ids = kept.heads, kept.link, kept.held, kept.nxt, kept.ids
    mask = link.shape[1] - 1
    n = 0
    for a in range(order.shape[0]):
        i = u64(order[a])
        key = keys[a]
        oldest = times[a] - span
        row = bucket(key, bits) * 4
        x, y, z = u64(1 if i == 0 else 0), u64(1 if i >= 2 else 2), u64(2 if i == 3 else 3)
        low_x, low_y, low_z = max(nxt[x] - mask - 1, 0), max(nxt[y] - mask - 1, 0), max(nxt[z] - mask - 1, 0)
        s0 = np.int64(heads[u64(row + x)])
        while s0 >= low_x and held_times[x, u64(s0 & mask)] >= oldest:
            if held[x, u64(s0 & mask)] == key:
                s1 = np.int64(heads[u64(row + y)])
                while s1 >= low_y and held_times[y, u64(s1 & mask)] >= oldest:
                    if held[y, u64(s1 & mask)] == key:
                        s2 = np.int64(heads[u64(row + z)])
                        while s2 >= low_z and held_times[z, u64(s2 & mask)] >= oldest:
                            if held[z, u64(s2 & mask)] == key:
                                ids[i, u64(n)] = nxt[i]
                                ids[x, u64(n)] = s0
                                ids[y, u64(n)] = s1
                                ids[z, u64(n)] = s2
                                n += 1
                            s2 = np.int64(link[z, u64(s2 & mask)])
                    s1 = np.int64(link[y, u64(s1 & mask)])
            s0 = np.int64(link[x, u64(s0 & mask)])
        s = nxt[i]
        held[i, u64(s & mask)] = key
        held_times[i, u64(s & mask)] = times[a]
        link[i, u64(s & mask)] = heads[u64(row + i)]
        heads[u64(row + i)] = s
        nxt[i] = s + 1
    return n
