"""Stable hashes of keys, which say to which partition a row belongs: the same in every process and every version.

They have no seed, and have nothing in common with the homes of keys in hash tables (`stairs.kernels.hashes`). So the
keys of one partition are spread over its tables as all keys are. Whoever chooses keys can choose them for one
partition, as with any hash that is the same everywhere.
"""

from __future__ import annotations

import numpy as np

from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.memory import peek8, peek32, peek64


@inlined
def stir(x: int, word: int) -> int:
    """Mix a word into a hash. For each word it is a bijection of the hash, and for each hash one of the word."""
    x = (u64(x) ^ u64(word)) * u64(0x9E3779B97F4A7C15)
    return x ^ (x >> u64(32))


@inlined
def stable_hash(address: int, size: int) -> int:
    """Return a 64-bit hash of `size` bytes, read eight at a time; the last reads of a string may overlap."""
    x, k = u64(size), np.int64(0)
    while k + 8 <= size:
        x = stir(x, peek64(address + k))
        k += 8
    if size >= 8:
        x = stir(x, peek64(address + size - 8))
    elif size >= 4:
        x = stir(x, u64(peek32(address)) | u64(peek32(address + size - 4)) << u64(32))
    elif size > 0:
        ends = u64(peek8(address)) | u64(peek8(address + size - 1)) << u64(16)
        x = stir(x, ends | u64(peek8(address + (size >> 1))) << u64(8))
    x *= u64(0xBF58476D1CE4E5B9)
    return np.int64(x ^ (x >> u64(29)))


@jit
def hash_rows(offsets: np.ndarray, text: np.ndarray, hashes: np.ndarray) -> None:
    """Write the hash of each row: offsets int64[n + 1] into text uint8[], hashes int64[n]."""
    address = np.int64(text.ctypes.data)
    for r in range(hashes.shape[0]):
        hashes[r] = stable_hash(address + offsets[r], offsets[r + 1] - offsets[r])


@jit
def mix_words(words: np.ndarray, hashes: np.ndarray) -> None:
    """Mix a further word of each row's key into its hash: words int64[n], hashes uint64[n]."""
    for r in range(hashes.shape[0]):
        x = (hashes[r] ^ u64(words[r])) * u64(0xBF58476D1CE4E5B9)
        x ^= x >> u64(32)
        x *= u64(0x94D049BB133111EB)
        hashes[r] = x ^ (x >> u64(29))
