"""Hand-written loops, each for one query of the benchmarks: the limit that the engine is compared with.

Each is the loop one would write in C for that query: the order of the joins and the number of streams are fixed in the
code; each stream and attribute has a hash table with newest-first chains of sequence numbers; ROWS windows end at a low
mark; the output is row ids. The loops share only the decorator and the multiplicative hash with the engine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stairs.kernels.accelerate import inlined, jit, u64


@inlined
def bucket(key: int, bits: int) -> int:
    """Return the bucket of a key."""
    return np.int64((u64(key) * u64(0x9E3779B97F4A7C15)) >> u64(64 - bits))


class Tables(NamedTuple):
    """State of a loop, made by `tables`.

    heads  int32[heads of a row << bits]   one row a bucket: the probes of an arrival share a cache line; -1 = none
    link   int32[indexes, ring]            by index and slot, the next older tuple of the bucket
    held   int64[indexes, ring]            by index and slot, the key
    nxt    int64[streams]                  sequence number of the next arrival
    ids    int32[streams, room]            row ids of the results
    """

    heads: npt.NDArray[np.int32]
    link: npt.NDArray[np.int32]
    held: npt.NDArray[np.int64]
    nxt: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int32]


def tables(streams: int, indexes: int, row: int, bits: int, window: int, room: int) -> Tables:
    """Return empty tables: `row` heads in each of 2^bits buckets, rings of a power of two > window."""
    ring = 1 << window.bit_length()
    return Tables(
        np.full(row << bits, -1, np.int32),
        np.zeros((indexes, ring), np.int32),
        np.zeros((indexes, ring), np.int64),
        np.zeros(streams, np.int64),
        np.empty((streams, room), np.int32),
    )


@jit
def w1_loop(
    order: np.ndarray,
    keys: np.ndarray,
    times: np.ndarray | None,
    width: int,
    bits: int,
    kept: Tables,
    held_times: np.ndarray,
) -> int:
    """Join four streams on one key; write row ids; return how many results.

    order uint8[n] the stream of each arrival, keys int64[n] in arrival order. Without times, windows are ROWS `width`;
    with times int64[n], ascending, they are RANGE `width`, and held_times int64[4, ring] keeps those of the rings. Then
    a chain ends at the first tuple that is too old, or whose slot has been taken by another.
    """
    heads, link, held, nxt, ids = kept.heads, kept.link, kept.held, kept.nxt, kept.ids
    mask = link.shape[1] - 1
    rows = np.int64(width)
    oldest = np.int64(0)
    if times is not None:
        rows = np.int64(mask + 1)
    n = 0
    for a in range(order.shape[0]):
        i = u64(order[a])
        key = keys[a]
        if times is not None:
            oldest = times[a] - width
        row = bucket(key, bits) * 4
        x, y, z = u64(1 if i == 0 else 0), u64(1 if i >= 2 else 2), u64(2 if i == 3 else 3)
        low_x, low_y, low_z = max(nxt[x] - rows, 0), max(nxt[y] - rows, 0), max(nxt[z] - rows, 0)
        s0 = np.int64(heads[u64(row + x)])
        while s0 >= low_x:
            if times is not None:
                if held_times[x, u64(s0 & mask)] < oldest:
                    break
            if held[x, u64(s0 & mask)] == key:
                s1 = np.int64(heads[u64(row + y)])
                while s1 >= low_y:
                    if times is not None:
                        if held_times[y, u64(s1 & mask)] < oldest:
                            break
                    if held[y, u64(s1 & mask)] == key:
                        s2 = np.int64(heads[u64(row + z)])
                        while s2 >= low_z:
                            if times is not None:
                                if held_times[z, u64(s2 & mask)] < oldest:
                                    break
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
        if times is not None:
            held_times[i, u64(s & mask)] = times[a]
        link[i, u64(s & mask)] = heads[u64(row + i)]
        heads[u64(row + i)] = s
        nxt[i] = s + 1
    return n


@jit
def w2_loop(order: np.ndarray, keys: np.ndarray, window: int, bits: int, kept: Tables) -> int:
    """Join the chain R(a) S(a, b) T(b, c) U(c), ROWS `window` each; write row ids; return how many results.

    order uint8[n], keys int64[n, 2] in arrival order. Indexes, and the two heads of a bucket row of each attribute:
    0 = R.a, 1 = S.a; 2 = S.b, 3 = T.b; 4 = T.c, 5 = U.c. heads is three tables, one an attribute, end to end.
    """
    heads, link, held, nxt, ids = kept.heads, kept.link, kept.held, kept.nxt, kept.ids
    mask = link.shape[1] - 1
    table = np.int64(2) << bits
    n = 0
    for a in range(order.shape[0]):
        i = u64(order[a])
        low_r, low_s = max(nxt[0] - window, 0), max(nxt[1] - window, 0)
        low_t, low_u = max(nxt[2] - window, 0), max(nxt[3] - window, 0)
        s = nxt[i]
        slot = u64(s & mask)
        if i == 0:
            key = keys[a, 0]
            row = 2 * bucket(key, bits)
            s1 = np.int64(heads[u64(row + 1)])
            while s1 >= low_s:
                if held[1, u64(s1 & mask)] == key:
                    kb = held[2, u64(s1 & mask)]
                    s2 = np.int64(heads[u64(table + 2 * bucket(kb, bits) + 1)])
                    while s2 >= low_t:
                        if held[3, u64(s2 & mask)] == kb:
                            kc = held[4, u64(s2 & mask)]
                            s3 = np.int64(heads[u64(2 * table + 2 * bucket(kc, bits) + 1)])
                            while s3 >= low_u:
                                if held[5, u64(s3 & mask)] == kc:
                                    ids[0, u64(n)] = s
                                    ids[1, u64(n)] = s1
                                    ids[2, u64(n)] = s2
                                    ids[3, u64(n)] = s3
                                    n += 1
                                s3 = np.int64(link[5, u64(s3 & mask)])
                        s2 = np.int64(link[3, u64(s2 & mask)])
                s1 = np.int64(link[1, u64(s1 & mask)])
            held[0, slot] = key
            link[0, slot] = heads[u64(row)]
            heads[u64(row)] = s
        elif i == 3:
            key = keys[a, 0]
            row = 2 * table + 2 * bucket(key, bits)
            s2 = np.int64(heads[u64(row)])
            while s2 >= low_t:
                if held[4, u64(s2 & mask)] == key:
                    kb = held[3, u64(s2 & mask)]
                    s1 = np.int64(heads[u64(table + 2 * bucket(kb, bits))])
                    while s1 >= low_s:
                        if held[2, u64(s1 & mask)] == kb:
                            ka = held[1, u64(s1 & mask)]
                            s0 = np.int64(heads[u64(2 * bucket(ka, bits))])
                            while s0 >= low_r:
                                if held[0, u64(s0 & mask)] == ka:
                                    ids[0, u64(n)] = s0
                                    ids[1, u64(n)] = s1
                                    ids[2, u64(n)] = s2
                                    ids[3, u64(n)] = s
                                    n += 1
                                s0 = np.int64(link[0, u64(s0 & mask)])
                        s1 = np.int64(link[2, u64(s1 & mask)])
                s2 = np.int64(link[4, u64(s2 & mask)])
            held[5, slot] = key
            link[5, slot] = heads[u64(row + 1)]
            heads[u64(row + 1)] = s
        elif i == 1:
            ka, kb = keys[a, 0], keys[a, 1]
            row_a, row_b = 2 * bucket(ka, bits), table + 2 * bucket(kb, bits)
            s0 = np.int64(heads[u64(row_a)])
            while s0 >= low_r:
                if held[0, u64(s0 & mask)] == ka:
                    s2 = np.int64(heads[u64(row_b + 1)])
                    while s2 >= low_t:
                        if held[3, u64(s2 & mask)] == kb:
                            kc = held[4, u64(s2 & mask)]
                            s3 = np.int64(heads[u64(2 * table + 2 * bucket(kc, bits) + 1)])
                            while s3 >= low_u:
                                if held[5, u64(s3 & mask)] == kc:
                                    ids[0, u64(n)] = s0
                                    ids[1, u64(n)] = s
                                    ids[2, u64(n)] = s2
                                    ids[3, u64(n)] = s3
                                    n += 1
                                s3 = np.int64(link[5, u64(s3 & mask)])
                        s2 = np.int64(link[3, u64(s2 & mask)])
                s0 = np.int64(link[0, u64(s0 & mask)])
            held[1, slot] = ka
            held[2, slot] = kb
            link[1, slot] = heads[u64(row_a + 1)]
            link[2, slot] = heads[u64(row_b)]
            heads[u64(row_a + 1)] = s
            heads[u64(row_b)] = s
        else:
            kb, kc = keys[a, 0], keys[a, 1]
            row_b, row_c = table + 2 * bucket(kb, bits), 2 * table + 2 * bucket(kc, bits)
            s3 = np.int64(heads[u64(row_c + 1)])
            while s3 >= low_u:
                if held[5, u64(s3 & mask)] == kc:
                    s1 = np.int64(heads[u64(row_b)])
                    while s1 >= low_s:
                        if held[2, u64(s1 & mask)] == kb:
                            ka = held[1, u64(s1 & mask)]
                            s0 = np.int64(heads[u64(2 * bucket(ka, bits))])
                            while s0 >= low_r:
                                if held[0, u64(s0 & mask)] == ka:
                                    ids[0, u64(n)] = s0
                                    ids[1, u64(n)] = s1
                                    ids[2, u64(n)] = s
                                    ids[3, u64(n)] = s3
                                    n += 1
                                s0 = np.int64(link[0, u64(s0 & mask)])
                        s1 = np.int64(link[2, u64(s1 & mask)])
                s3 = np.int64(link[5, u64(s3 & mask)])
            held[3, slot] = kb
            held[4, slot] = kc
            link[3, slot] = heads[u64(row_b + 1)]
            link[4, slot] = heads[u64(row_c)]
            heads[u64(row_b + 1)] = s
            heads[u64(row_c)] = s
        nxt[i] = s + 1
    return n


@jit
def w21_loop(order: np.ndarray, keys: np.ndarray, window: int, bits: int, kept: Tables, found: np.ndarray) -> int:
    """Join m streams on one key over their hash tables only, ROWS `window` each; write row ids; return their number.

    order uint8[n], keys int64[n] in arrival order, found int64[m] room for the walk. At each stream the walk takes
    the newest tuple with the key; after a result it continues from the next one of the last stream, so that it finds
    several matches as well.
    """
    heads, link, held, nxt, ids = kept.heads, kept.link, kept.held, kept.nxt, kept.ids
    mask, m = link.shape[1] - 1, np.int64(nxt.shape[0])
    n = 0
    for a in range(order.shape[0]):
        i = np.int64(order[a])
        key = keys[a]
        row = bucket(key, bits) * m
        j = np.int64(1 if i == 0 else 0)
        s = np.int64(heads[u64(row + j)])
        while True:
            low = max(nxt[u64(j)] - window, 0)
            while s >= low and held[u64(j), u64(s & mask)] != key:
                s = np.int64(link[u64(j), u64(s & mask)])
            if s < low:
                j -= 1
                if j == i:
                    j -= 1
                if j < 0:
                    break
                s = np.int64(link[u64(j), u64(found[u64(j)] & mask)])
                continue
            found[u64(j)] = s
            k = j + 1
            if k == i:
                k += 1
            if k < m:
                j = k
                s = np.int64(heads[u64(row + j)])
                continue
            found[u64(i)] = nxt[u64(i)]
            for k in range(m):
                ids[u64(k), u64(n)] = found[u64(k)]
            n += 1
            s = np.int64(link[u64(j), u64(s & mask)])
        s = nxt[u64(i)]
        slot = u64(s & mask)
        held[u64(i), slot] = key
        link[u64(i), slot] = heads[u64(row + i)]
        heads[u64(row + i)] = s
        nxt[u64(i)] = s + 1
    return n
