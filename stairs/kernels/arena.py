"""Kernels on the arena as a whole: undo of a push, the hash table of a grown class, arrival numbers of results."""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    A_CLASS,
    A_COLUMN,
    A_OFFSET,
    C_FACTOR,
    C_FREE,
    C_FREE0,
    C_FREELIST,
    C_HEADS,
    C_LAST,
    C_NEXT,
    C_NEXT0,
    C_SECRET,
    C_SHIFT,
    C_STRIDE,
    M_MARKS,
    M_STARTED,
    S_ATTR0,
    S_ATTR1,
    S_BASE,
    S_LIFE,
    S_LO,
    S_MASK,
    S_NEXT,
    S_NUMBERS,
    S_RECS,
    S_WALKED,
    S_WIDTH,
)
from stairs.kernels.accelerate import jit, u64
from stairs.kernels.hashes import home
from stairs.kernels.keys import drop_key
from stairs.kernels.marks import clear_all
from stairs.kernels.presence import set_bits
from stairs.kernels.versions import undo_versions
from stairs.memory.arena import Arena


@jit
def undo(arena: Arena, before: np.ndarray, meta: np.ndarray, rows: np.ndarray) -> None:
    """Undo a push: unlink its tuples, newest first, which restores each head, and drop its keys.

    before   int64[streams, S_FIELDS], the descriptors of the streams when the push began
    meta     int64[M_FIELDS], the values when the push began
    rows     int64[streams], the rows of the push

    A second call changes nothing: after an exception the caller cannot know whether the first call ended.
    """
    streams, attrs, recs, classes = arena.streams, arena.attrs, arena.recs, arena.classes
    clear_all(arena)
    for i in range(streams.shape[0]):
        ring, mask, width = streams[i, S_RECS], streams[i, S_MASK], streams[i, S_WIDTH]
        first = before[i, S_NEXT]
        if streams[i, S_LIFE] > 0:
            undo_versions(arena, i, first, rows[i])
            first = streams[i, S_NEXT]
        for s in range(streams[i, S_NEXT] - 1, first - 1, -1):
            record = ring + (s & mask) * width
            for x in range(streams[i, S_ATTR0], streams[i, S_ATTR1]):
                at, c = record + attrs[x, A_OFFSET], attrs[x, A_CLASS]
                if recs[at + 1] < 0:
                    continue
                p = arena.classes[c, C_HEADS] + recs[at + 1] * arena.classes[c, C_STRIDE] + attrs[x, A_COLUMN]
                arena.heads[p] = recs[at]
        set_bits(arena, i, before[i, S_LO], streams[i, S_LO])
        for column in (S_NEXT, S_LO, S_WALKED):
            streams[i, column] = before[i, column]
    if arena.meta[M_STARTED] != 0:
        for c in range(classes.shape[0]):
            # Ids that were free before the push are still on the stack; a dropped id returns to its place.
            while classes[c, C_FREE] < classes[c, C_FREE0]:
                drop_key(arena, c, np.int64(arena.freed[classes[c, C_FREELIST] + classes[c, C_FREE]]))
            for kid in range(classes[c, C_NEXT0], classes[c, C_NEXT]):
                drop_key(arena, c, np.int64(kid))
    for field in range(meta.shape[0]):
        arena.meta[field] = meta[field]
    arena.meta[M_MARKS] = 0


@jit
def rehash(classes: np.ndarray, c: int, table: np.ndarray, before: np.ndarray) -> None:
    """Insert every key of an old table `before` of class c into a new, empty one.

    classes   the descriptors as they are with the new table

    Keys with equal homes may change their order.
    """
    shift, secret, factor = classes[c, C_SHIFT], classes[c, C_SECRET], classes[c, C_FACTOR]
    last = (np.int64(1) << (64 - shift)) - 1
    for old in range(0, before.shape[0], 2):
        if before[old + 1] >= 0:
            slot = home(before[old], shift, secret, factor, classes[c, C_LAST])
            while table[2 * slot + 1] >= 0:
                slot = (slot + 1) & last
            table[2 * slot] = before[old]
            table[2 * slot + 1] = before[old + 1]


@jit
def transpose(arena: Arena, ids: np.ndarray, numbers: np.ndarray) -> None:
    """Write the arrival numbers of results, one row per stream: ids int32[n * streams] -> numbers int64[streams, n]."""
    streams = arena.streams
    m, n = numbers.shape
    for j in range(m):
        base = streams[j, S_BASE]
        if streams[j, S_LIFE] > 0:
            for r in range(n):
                slot = np.int64(ids[u64(r * m + j)]) & streams[j, S_MASK]
                numbers[u64(j), u64(r)] = arena.values[u64(streams[j, S_NUMBERS] + slot)]
            continue
        for r in range(n):
            numbers[u64(j), u64(r)] = ids[u64(r * m + j)] + base
