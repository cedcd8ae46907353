"""Kernels of snapshots: they number keys by first appearance, and load keys and tuples into empty modules."""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    A_CLASS,
    A_COLUMN,
    A_OFFSET,
    A_STREAM,
    C_CROWDED,
    C_HEADS,
    C_STRIDE,
    C_WIDTH,
    S_LIFE,
    S_MASK,
    S_RECS,
    S_WIDTH,
)
from stairs.kernels.accelerate import jit, u64
from stairs.kernels.keys import adopt, find_counted, spare_of
from stairs.kernels.versions import ALIVE, link_version, set_life
from stairs.memory.arena import Arena


@jit
def number(ids: np.ndarray, numbers: np.ndarray, order: np.ndarray, count: int) -> int:
    """Replace ids by numbers in order of first appearance, negative ids by -1; return the count of numbers now.

    ids       int64[n], replaced in place
    numbers   int64[ids], the number of each id, -1 = none yet
    order     int64[ids], the id of each number
    count     the count of numbers before
    """
    for k in range(ids.shape[0]):
        old_id = ids[u64(k)]
        if old_id < 0:
            ids[u64(k)] = -1
            continue
        given = numbers[u64(old_id)]
        if given < 0:
            given = np.int64(count)
            numbers[u64(old_id)] = given
            order[u64(count)] = old_id
            count += 1
        ids[u64(k)] = given
    return count


@jit
def adopt_keys(arena: Arena, c: int, words: np.ndarray, start: int) -> int:
    """Assign ids 0, 1, … to keys, words int64[n * width], in a directory that has the first `start` of them alone.

    Return the number of keys adopted. A result below n means that the next key is a duplicate or has no room, or that
    the keys crowd (C_CROWDED) and another call goes on from there.
    """
    width, spare = arena.classes[c, C_WIDTH], spare_of(arena, c)
    for k in range(start, words.shape[0] // width):
        p, spare = find_counted(arena, c, words, k * width, spare)
        if arena.table[u64(p + 1)] >= 0 or adopt(arena, c, words, k * width, p) != k:
            return k
        if spare < 0:
            arena.classes[c, C_CROWDED] = 1
            return k + 1
    return words.shape[0] // width


@jit
def insert_tuples(arena: Arena, x: int, kids: np.ndarray) -> None:
    """Insert tuples 0, 1, … into the index of an empty SteM on attribute row x: kids int64[n], -1 = cannot join."""
    attrs, streams, heads, recs = arena.attrs, arena.streams, arena.heads, arena.recs
    i, c, column = attrs[x, A_STREAM], attrs[x, A_CLASS], attrs[x, A_COLUMN]
    first, mask, width = streams[i, S_RECS] + attrs[x, A_OFFSET], streams[i, S_MASK], streams[i, S_WIDTH]
    rows, stride = arena.classes[c, C_HEADS] + column, arena.classes[c, C_STRIDE]
    for s in range(kids.shape[0]):
        kid = kids[u64(s)]
        at = first + (s & mask) * width
        recs[u64(at + 1)] = kid
        if streams[i, S_LIFE] > 0:
            set_life(arena, i, s, ALIVE)
            link_version(arena, i, x, s)
        elif kid >= 0:
            p = rows + kid * stride
            recs[u64(at)] = heads[u64(p)]
            heads[u64(p)] = s
