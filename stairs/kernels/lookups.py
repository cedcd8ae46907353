"""Kernels of the checks: they look up each key and each string.

They follow hash tables and no links. The caller has checked that all numbers are in bounds and that each table has an
empty slot. So the kernels terminate and stay within their arrays, whatever else is wrong.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import C_SHIFT, C_TABLE, C_WIDTH, C_WORDS
from stairs.kernels.accelerate import jit, u64
from stairs.kernels.byte_strings import B_FACTOR, B_SEED, BytesArena, find
from stairs.kernels.hashes import hash_bytes
from stairs.kernels.keys import find_slot
from stairs.memory.arena import Arena


@jit
def lost_key(arena: Arena, c: int) -> int:
    """Return a key id in the table of class c that a look-up of its words does not find, -1 for none. O(slots)."""
    base, words, width = arena.classes[c, C_TABLE], arena.classes[c, C_WORDS], arena.classes[c, C_WIDTH]
    for slot in range(np.int64(1) << (64 - arena.classes[c, C_SHIFT])):
        kid = arena.table[u64(base + 2 * slot + 1)]
        if kid >= 0 and find_slot(arena, c, arena.words, words + kid * width) != base + 2 * slot:
            return kid
    return -1


@jit
def lost_string(arena: BytesArena) -> int:
    """Return the id of a string in the table that a look-up of its bytes does not find, -1 for none. O(bytes)."""
    heap = np.int64(arena.heap.ctypes.data)
    for slot in range(arena.table.shape[0]):
        known = np.int64(arena.table[slot])
        if known >= 0:
            address, size = heap + arena.start[known], int(arena.size[known])
            code = hash_bytes(address, size, arena.meta[B_SEED], arena.meta[B_FACTOR])
            if arena.hashes[known] != code or find(arena, address, size, code) != slot:
                return int(known)
    return -1
