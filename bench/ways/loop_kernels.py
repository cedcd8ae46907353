"""Hand-written loops, each for one query of the benchmarks: the limits with which the engine is compared.

Each loop is the program that a programmer would write in C for one query: the order of the joins and the number of
streams are fixed in the code; each stream and attribute has a hash table with newest-first chains of sequence numbers;
ROWS windows end at a low mark; the output is row ids. The loops share only the decorator and the multiplicative hash
with the engine.
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


class LoopTables(NamedTuple):
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


def tables(streams: int, indexes: int, row: int, bits: int, window: int, room: int) -> LoopTables:
    """Return empty tables: `row` heads in each of 2^bits buckets, rings of a power of two > window."""
    ring = 1 << window.bit_length()
    return LoopTables(
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
    kept: LoopTables,
    held_times: np.ndarray,
) -> int:
    """Join four streams on one key; write row ids; return the number of results.

    order uint8[n] the stream of each arrival, keys int64[n] in arrival order. Without times, windows are ROWS `width`;
    with times int64[n], ascending, they are RANGE `width`, and held_times int64[4, ring] keeps those of the rings. Then
    a chain ends at the first tuple that is too old or whose slot another tuple has taken.
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


@inlined
def head_at(index: int, key: int, bits: int) -> int:
    """Return the place of the head of an index of the chain: three consecutive tables, two heads in a bucket row."""
    return np.int64(((index >> 1) << (bits + 1)) + 2 * bucket(key, bits) + (index & 1))


@inlined
def low_mark(nxt: np.ndarray, stream: int, window: int) -> int:
    """Return the sequence number of the oldest row in a window."""
    return max(nxt[stream] - window, 0)


@inlined
def chain_onward(
    kept: LoopTables, s0: int, s1: int, key: int, window: int, bits: int, n: int, j: tuple, x: tuple
) -> int:
    """Join rows s0 and s1 of the first two streams with the other two; return the number of results so far.

    key  key of s1 for the third stream; j: the streams from one end of the chain to the other; x: their indexes
    """
    link, held, ids = kept.link, kept.held, kept.ids
    mask = link.shape[1] - 1
    low_2, low_3 = low_mark(kept.nxt, j[2], window), low_mark(kept.nxt, j[3], window)
    s2 = np.int64(kept.heads[u64(head_at(x[3], key, bits))])
    while s2 >= low_2:
        if held[x[3], u64(s2 & mask)] == key:
            last = held[x[4], u64(s2 & mask)]
            s3 = np.int64(kept.heads[u64(head_at(x[5], last, bits))])
            while s3 >= low_3:
                if held[x[5], u64(s3 & mask)] == last:
                    ids[j[0], u64(n)] = s0
                    ids[j[1], u64(n)] = s1
                    ids[j[2], u64(n)] = s2
                    ids[j[3], u64(n)] = s3
                    n += 1
                s3 = np.int64(link[x[5], u64(s3 & mask)])
        s2 = np.int64(link[x[3], u64(s2 & mask)])
    return n


@inlined
def insert(kept: LoopTables, index: int, key: int, s: int, bits: int) -> None:
    """Put a row into an index of the chain."""
    slot, place = u64(s & (kept.link.shape[1] - 1)), u64(head_at(index, key, bits))
    kept.held[index, slot] = key
    kept.link[index, slot] = kept.heads[place]
    kept.heads[place] = s


@inlined
def chain_from_end(kept: LoopTables, key: int, window: int, bits: int, n: int, j: tuple, x: tuple) -> int:
    """Join and insert an arrival at an end of the chain; as `chain_onward`."""
    mask, low, s = kept.link.shape[1] - 1, low_mark(kept.nxt, j[1], window), kept.nxt[j[0]]
    s1 = np.int64(kept.heads[u64(head_at(x[1], key, bits))])
    while s1 >= low:
        if kept.held[x[1], u64(s1 & mask)] == key:
            n = chain_onward(kept, s, s1, kept.held[x[2], u64(s1 & mask)], window, bits, n, j, x)
        s1 = np.int64(kept.link[x[1], u64(s1 & mask)])
    insert(kept, x[0], key, s, bits)
    return n


@inlined
def chain_from_middle(kept: LoopTables, ka: int, kb: int, window: int, bits: int, n: int, j: tuple, x: tuple) -> int:
    """Join an arrival next to an end of the chain, first with that end, and insert it; as `chain_onward`."""
    mask, low, s = kept.link.shape[1] - 1, low_mark(kept.nxt, j[0], window), kept.nxt[j[1]]
    s0 = np.int64(kept.heads[u64(head_at(x[0], ka, bits))])
    while s0 >= low:
        if kept.held[x[0], u64(s0 & mask)] == ka:
            n = chain_onward(kept, s0, s, kb, window, bits, n, j, x)
        s0 = np.int64(kept.link[x[0], u64(s0 & mask)])
    insert(kept, x[1], ka, s, bits)
    insert(kept, x[2], kb, s, bits)
    return n


@jit
def w2_loop(order: np.ndarray, keys: np.ndarray, window: int, bits: int, kept: LoopTables) -> int:
    """Join the chain R(a) S(a, b) T(b, c) U(c), ROWS `window` each; write row ids; return the number of results.

    order uint8[n], keys int64[n, 2] in arrival order. Indexes: 0 = R.a, 1 = S.a; 2 = S.b, 3 = T.b; 4 = T.c, 5 = U.c.
    The chain is symmetric; the constants below become part of the four inlined loops.
    """
    n = 0
    for a in range(order.shape[0]):
        i = u64(order[a])
        if i == 0:
            n = chain_from_end(kept, keys[a, 0], window, bits, n, (0, 1, 2, 3), (0, 1, 2, 3, 4, 5))
        elif i == 3:
            n = chain_from_end(kept, keys[a, 0], window, bits, n, (3, 2, 1, 0), (5, 4, 3, 2, 1, 0))
        elif i == 1:
            n = chain_from_middle(kept, keys[a, 0], keys[a, 1], window, bits, n, (0, 1, 2, 3), (0, 1, 2, 3, 4, 5))
        else:
            n = chain_from_middle(kept, keys[a, 1], keys[a, 0], window, bits, n, (3, 2, 1, 0), (5, 4, 3, 2, 1, 0))
        kept.nxt[i] += 1
    return n


@jit
def w21_loop(order: np.ndarray, keys: np.ndarray, window: int, bits: int, kept: LoopTables, walk: np.ndarray) -> int:
    """Join m streams on one key over their hash tables only, ROWS `window` each; write row ids; return their number.

    order uint8[n], keys int64[n] in arrival order, found int64[m] room for the walk. At each stream the walk takes
    the newest tuple with the key; after a result the walk continues with the next tuple of the last stream, so that it
    also finds several matches.
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
                s = np.int64(link[u64(j), u64(walk[u64(j)] & mask)])
                continue
            walk[u64(j)] = s
            k = j + 1
            if k == i:
                k += 1
            if k < m:
                j = k
                s = np.int64(heads[u64(row + j)])
                continue
            walk[u64(i)] = nxt[u64(i)]
            for k in range(m):
                ids[u64(k), u64(n)] = walk[u64(k)]
            n += 1
            s = np.int64(link[u64(j), u64(s & mask)])
        s = nxt[u64(i)]
        slot = u64(s & mask)
        held[u64(i), slot] = key
        link[u64(i), slot] = heads[u64(row + i)]
        heads[u64(row + i)] = s
        nxt[u64(i)] = s + 1
    return n
