"""Kernels that keep the arena as a whole: undo of a push, a new hash table for a grown class."""

from __future__ import annotations

import numpy as np

from stairs.accelerate import jit, u64
from stairs.arena import Arena
from stairs.fields import (
    A_CLASS,
    A_COLUMN,
    A_OFFSET,
    C_HEADS,
    C_SHIFT,
    C_STRIDE,
    C_TABLE,
    S_ATTR0,
    S_ATTR1,
    S_BASE,
    S_MASK,
    S_NEXT,
    S_RECS,
    S_WIDTH,
)
from stairs.keys_kernels import spread


@jit
def undo(arena: Arena, before: np.ndarray) -> None:
    """Unlink the tuples of a push, newest first, so that each head is again what it was.

    before   int64[streams], the next sequence number of each stream when the push began
    """
    streams, attrs, recs = arena.streams, arena.attrs, arena.recs
    for i in range(streams.shape[0]):
        ring, mask, width = streams[i, S_RECS], streams[i, S_MASK], streams[i, S_WIDTH]
        for s in range(streams[i, S_NEXT] - 1, before[i] - 1, -1):
            record = ring + (s & mask) * width
            if recs[record + 1] < 0:
                continue
            for x in range(streams[i, S_ATTR0], streams[i, S_ATTR1]):
                at, c = record + attrs[x, A_OFFSET], attrs[x, A_CLASS]
                p = arena.classes[c, C_HEADS] + recs[at + 1] * arena.classes[c, C_STRIDE] + attrs[x, A_COLUMN]
                arena.heads[p] = recs[at]


@jit
def rehash(arena: Arena, c: int, before: np.ndarray) -> None:
    """Put every key of an old table of class c into its new, empty one. The slot order of equal homes may change."""
    table, base, shift = arena.table, arena.classes[c, C_TABLE], arena.classes[c, C_SHIFT]
    last = (np.int64(1) << (64 - shift)) - 1
    for old in range(0, before.shape[0], 2):
        if before[old + 1] >= 0:
            slot = spread(before[old], shift)
            while table[base + 2 * slot + 1] >= 0:
                slot = (slot + 1) & last
            table[base + 2 * slot] = before[old]
            table[base + 2 * slot + 1] = before[old + 1]


@jit
def transpose(ids: np.ndarray, streams: np.ndarray, numbers: np.ndarray) -> None:
    """Write the arrival numbers of results, a row a stream: ids int32[n * streams] -> numbers int64[streams, n]."""
    m, n = numbers.shape
    for j in range(m):
        base = streams[j, S_BASE]
        for r in range(n):
            numbers[u64(j), u64(r)] = ids[u64(r * m + j)] + base
