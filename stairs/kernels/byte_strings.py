"""Kernels of the directory of byte strings: intern, release, compaction of the heap."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stairs.kernels.accelerate import bundled, inlined, jit, u64
from stairs.kernels.hashes import hash_bytes
from stairs.kernels.memory import peek8, peek64

B_NEXT = 0  # ids assigned so far
B_FREE = 1  # ids on the stack of free ones
B_HEAP = 2  # bytes of the heap in use, dead ones included
B_DEAD = 3  # dead bytes among them
B_SEED = 4  # seeds of the hash
B_FACTOR = 5
B_FRESH = 6  # ids assigned since the last `settle`
B_FIELDS = 7

DONE = 0
NEED_IDS = 1
NEED_HEAP = 2


@bundled
class BytesArena(NamedTuple):
    """Arrays of one directory of byte strings.

    heap    uint8[]        the strings, concatenated
    start   int64[ids]     position of each string in the heap;  size int32[ids] its length, -1 = free
    hashes  int64[ids]     hash of each string
    users   int32[ids]     number of interned keys that contain it; 0 = free or fresh
    table   int32[slots]   ids, open addressing, -1 = empty
    freed   int32[ids]     stack of free ids
    fresh   int32[ids]     ids that the open push assigned
    meta    int64[B_FIELDS]
    """

    heap: npt.NDArray[np.uint8]
    start: npt.NDArray[np.int64]
    size: npt.NDArray[np.int32]
    hashes: npt.NDArray[np.int64]
    users: npt.NDArray[np.int32]
    table: npt.NDArray[np.int32]
    freed: npt.NDArray[np.int32]
    fresh: npt.NDArray[np.int32]
    meta: npt.NDArray[np.int64]


@inlined
def same_bytes(left: int, right: int, size: int) -> bool:
    """Return whether `size` bytes at two addresses are equal."""
    k = np.int64(0)
    while k + 8 <= size and peek64(left + k) == peek64(right + k):
        k += 8
    if size >= 8:
        return k + 8 > size and peek64(left + size - 8) == peek64(right + size - 8)
    while k < size and peek8(left + k) == peek8(right + k):
        k += 1
    return k == size


@inlined
def find(arena: BytesArena, address: int, size: int, code: int) -> int:
    """Return the slot of the string of `size` bytes at an address, or the empty slot for its insertion."""
    mask, heap = arena.table.shape[0] - 1, np.int64(arena.heap.ctypes.data)
    slot = code & mask
    while True:
        known = np.int64(arena.table[u64(slot)])
        if known < 0:
            return slot
        if arena.hashes[u64(known)] == code and arena.size[u64(known)] == size:
            if same_bytes(heap + arena.start[u64(known)], address, size):
                return slot
        slot = (slot + 1) & mask


@jit
def intern(
    arena: BytesArena, offsets: np.ndarray, text: np.ndarray, dead: np.ndarray, ids: np.ndarray, done: np.ndarray
) -> int:
    """Write the id of each row's string from row done[0] on, with new ids for new strings; rows marked dead get 0.

    offsets int64[n + 1], text uint8[], dead uint8[n], ids int64[n], done int64[1]. If room runs short, done[0] is the
    row with which the next call resumes. The caller allocates `done` for each batch, so that an exception in one batch
    cannot affect the next.
    """
    meta, address = arena.meta, np.int64(text.ctypes.data)
    for r in range(done[0], ids.shape[0]):
        if dead[r] != 0:
            ids[r] = 0
            continue
        first, last = offsets[r], offsets[r + 1]
        code = hash_bytes(address + first, last - first, meta[B_SEED], meta[B_FACTOR])
        slot = find(arena, address + first, last - first, code)
        known = np.int64(arena.table[slot])
        if known < 0:
            done[0] = r
            if meta[B_FREE] == 0 and meta[B_NEXT] == arena.start.shape[0]:
                return NEED_IDS
            if meta[B_HEAP] + last - first > arena.heap.shape[0]:
                return NEED_HEAP
            if meta[B_FREE] > 0:
                meta[B_FREE] -= 1
                known = np.int64(arena.freed[meta[B_FREE]])
            else:
                known = meta[B_NEXT]
                meta[B_NEXT] += 1
            arena.start[known] = meta[B_HEAP]
            arena.size[known] = last - first
            arena.hashes[known] = code
            arena.users[known] = 0
            for k in range(last - first):
                arena.heap[meta[B_HEAP] + k] = text[first + k]
            meta[B_HEAP] += last - first
            arena.table[slot] = known
            arena.fresh[meta[B_FRESH]] = known
            meta[B_FRESH] += 1
        ids[r] = known
    return DONE


@inlined
def forget(arena: BytesArena, known: int) -> None:
    """Remove a string from the table, close the gap, and free its id and its bytes."""
    table, mask = arena.table, arena.table.shape[0] - 1
    gap = arena.hashes[known] & mask
    while table[gap] != known:
        gap = (gap + 1) & mask
    slot = gap
    while True:
        slot = (slot + 1) & mask
        if table[slot] < 0:
            break
        if ((slot - arena.hashes[table[slot]]) & mask) >= ((slot - gap) & mask):
            table[gap] = table[slot]
            gap = slot
    table[gap] = -1
    arena.meta[B_DEAD] += arena.size[known]
    arena.size[known] = -1
    arena.freed[arena.meta[B_FREE]] = known
    arena.meta[B_FREE] += 1


@jit
def settle(arena: BytesArena, used: np.ndarray) -> None:
    """End a push: add a user for each id in `used` (words of the keys it added), forget fresh strings without one."""
    for k in range(used.shape[0]):
        arena.users[used[k]] += 1
    for k in range(arena.meta[B_FRESH]):
        if arena.users[arena.fresh[k]] == 0:
            forget(arena, np.int64(arena.fresh[k]))
    arena.meta[B_FRESH] = 0


@jit
def release(arena: BytesArena, unused: np.ndarray) -> None:
    """Subtract a user for each id in `unused` (words of dead keys), and forget strings without a user."""
    for k in range(unused.shape[0]):
        known = unused[k]
        arena.users[known] -= 1
        if arena.users[known] == 0:
            forget(arena, known)


@jit
def recount(arena: BytesArena, used: np.ndarray) -> None:
    """Recount the users of all strings: one for each id in `used` (words of all keys in use); forget the others."""
    for known in range(arena.meta[B_NEXT]):
        arena.users[known] = 0
    for k in range(used.shape[0]):
        arena.users[used[k]] += 1
    for known in range(arena.meta[B_NEXT]):
        if arena.size[known] >= 0 and arena.users[known] == 0:
            forget(arena, np.int64(known))
    arena.meta[B_FRESH] = 0


@jit
def compact(arena: BytesArena, heap: np.ndarray) -> None:
    """Copy the live strings to another heap, without gaps."""
    at = np.int64(0)
    for known in range(arena.meta[B_NEXT]):
        if arena.size[known] >= 0:
            for k in range(arena.size[known]):
                heap[at + k] = arena.heap[arena.start[known] + k]
            arena.start[known] = at
            at += arena.size[known]
    arena.meta[B_HEAP] = at
    arena.meta[B_DEAD] = 0


@jit
def copy_strings(arena: BytesArena, ids: np.ndarray, offsets: np.ndarray, text: np.ndarray) -> None:
    """Copy the strings of ids int64[n] to text uint8[]: string k to position offsets[k], int64[n + 1]."""
    for k in range(ids.shape[0]):
        at, start = offsets[u64(k)], arena.start[u64(ids[u64(k)])]
        for b in range(offsets[u64(k + 1)] - at):
            text[u64(at + b)] = arena.heap[u64(start + b)]


@jit
def rebuild(arena: BytesArena) -> None:
    """Insert all strings into an empty table."""
    mask = arena.table.shape[0] - 1
    for known in range(arena.meta[B_NEXT]):
        if arena.size[known] >= 0:
            slot = arena.hashes[known] & mask
            while arena.table[slot] >= 0:
                slot = (slot + 1) & mask
            arena.table[slot] = known
