"""Kernel of the block seal: NH, the fast half of UMAC, which reduces the blocks of a live engine to a few sums.

A chunk of up to CHUNK words of 32 bits becomes two sums of 64 bits, each under its own key:

    sum over i of (x[i] + a[i]) * (y[i] + b[i])      x, y: the two halves of the chunk; + modulo 2^32, * and sum 2^64

For two different chunks of one length, one sum is equal under at most one key in 2^32, and both sums under at most one
in 2^64. No more is needed: a keyed BLAKE2b over the sums makes the seal (`eddy.live.seal`).
Source: Black, Halevi, Krawczyk, Krovetz, Rogaway, "UMAC: fast and secure message authentication", CRYPTO 1999, sec. 4.
"""

from __future__ import annotations

import numpy as np
from numpy import uint32 as u32

from stairs.kernels.accelerate import jit, u64

CHUNK = 1024
"""Words of a chunk, a power of two; the words of a block are a multiple of 16."""
HALF = CHUNK // 2
KEY_WORDS = 2 * CHUNK
SUMS = 2


@jit
def fold(words: np.ndarray, places: np.ndarray, key: np.ndarray, sums: np.ndarray) -> None:
    """Reduce blocks, chunk by chunk. O(bytes), about as fast as memory is read.

    words uint32[]; places int64[blocks, 2], start and length of each block in words, lengths even; key
    uint32[KEY_WORDS]; sums uint64[chunks of all blocks, SUMS] is the output.
    """
    n = 0
    for p in range(places.shape[0]):
        at, end = places[p, 0], places[p, 0] + places[p, 1]
        while at < end:
            half = min(end - at, CHUNK) // 2
            first, second = u64(0), u64(0)
            for i in range(half):
                x, y = words[u64(at + i)], words[u64(at + half + i)]
                first += u64(u32(x + key[u64(i)])) * u64(u32(y + key[u64(HALF + i)]))
                second += u64(u32(x + key[u64(CHUNK + i)])) * u64(u32(y + key[u64(CHUNK + HALF + i)]))
            sums[u64(n), 0] = first
            sums[u64(n), 1] = second
            n += 1
            at += 2 * half
