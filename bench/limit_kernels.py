"""Hand-written static loops for exactly the benchmark queries: the limit the engine is held against.

Each is what one would write in C for that one query: order of the joins, number of streams and window fixed in the code, one
hash table a stream and attribute with newest-first chains of sequence numbers, ROWS windows by comparison with a low mark,
row ids as output. Nothing is shared with the engine but the decorator and the multiplicative hash.
"""

from __future__ import annotations

import numpy as np

from stairs.accelerate import inlined, jit


@inlined
def bucket(key: int, bits: int) -> int:
    """Return the bucket of a key."""
    return np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - bits))


@jit
def w1_loop(
    order: np.ndarray,
    keys: np.ndarray,
    window: int,
    bits: int,
    heads: np.ndarray,
    link: np.ndarray,
    held: np.ndarray,
    nxt: np.ndarray,
    ids: np.ndarray,
) -> int:
    """Join four streams on one key, ROWS `window` each; write row ids to ids int32[4, room] and return how many.

    order uint8[n] the stream of each arrival, keys int64[n] in arrival order; heads int32[4 << bits] all -1: one row a bucket,
    so the four probes of an arrival share a cache line; link int32[4, ring] and held int64[4, ring] by slot, ring a power of
    two > window; nxt int64[4] zeros.
    """
    mask = link.shape[1] - 1
    n = 0
    for a in range(order.shape[0]):
        i = np.int64(order[a])
        key = keys[a]
        row = bucket(key, bits) * 4
        x, y, z = (1 if i == 0 else 0), (1 if i == 2 or i == 3 else 2), (2 if i == 3 else 3)
        s0 = np.int64(heads[row + x])
        while s0 >= nxt[x] - window and s0 >= 0:
            if held[x, s0 & mask] == key:
                s1 = np.int64(heads[row + y])
                while s1 >= nxt[y] - window and s1 >= 0:
                    if held[y, s1 & mask] == key:
                        s2 = np.int64(heads[row + z])
                        while s2 >= nxt[z] - window and s2 >= 0:
                            if held[z, s2 & mask] == key:
                                ids[i, n] = nxt[i]
                                ids[x, n] = s0
                                ids[y, n] = s1
                                ids[z, n] = s2
                                n += 1
                            s2 = np.int64(link[z, s2 & mask])
                    s1 = np.int64(link[y, s1 & mask])
            s0 = np.int64(link[x, s0 & mask])
        s = nxt[i]
        held[i, s & mask] = key
        link[i, s & mask] = heads[row + i]
        heads[row + i] = s
        nxt[i] = s + 1
    return n
