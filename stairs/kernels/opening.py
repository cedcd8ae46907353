"""The begin of a push: room is made sure of, the input laid out, and one pass gives the keys of all rows their ids."""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    A_CLASS,
    A_COLUMN,
    A_DEAD,
    A_INPUT,
    A_OFFSET,
    A_STREAM,
    C_CAPACITY,
    C_CROWDED,
    C_DEBT,
    C_FACTOR,
    C_FREE,
    C_FREE0,
    C_FREELIST,
    C_HEADS,
    C_LAST,
    C_MAY_PASS,
    C_NEXT,
    C_NEXT0,
    C_SECRET,
    C_SHIFT,
    C_STRIDE,
    C_TABLE,
    C_WIDTH,
    C_WORDS,
    DONE,
    J_DEAD,
    J_FIRST,
    J_ROWS,
    J_WORDS,
    LOADING,
    M_APART,
    M_BEHIND,
    M_CHANGELOG,
    M_INTERN_ATTR,
    M_INTERN_ROW,
    M_LAGS,
    M_MODE,
    M_NEED,
    M_OF_PUSH,
    M_SHORT,
    M_STARTED,
    NEED_HASH,
    NEED_INPUT,
    NEED_KEYS,
    NEED_NUMBERS,
    NEED_RING,
    S_ATTR0,
    S_ATTR1,
    S_KEY,
    S_LO,
    S_MASK,
    S_NEXT,
    S_RECS,
    S_VALUES,
    S_WIDTH,
    VIRTUAL,
)
from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.by_address import opened
from stairs.kernels.hashes import home
from stairs.kernels.keys import (
    AHEAD,
    adopt,
    find_counted,
    is_far,
    spare_of,
    sweep,
)
from stairs.kernels.memory import prefetch
from stairs.kernels.versions import DELETE, open_versions
from stairs.memory.arena import Arena, Batch, Input, Opening


@jit
def begin_push(arena_at: int, input_at: int, opening_at: int, renumber_at: int) -> int:
    """Lay out the input of a push, words and marks, stream by stream, and save what an undo needs; return the status.

    The caller has set the rows of each stream (J_ROWS). It makes the room that a status asks for and calls again; until
    the status is DONE, nothing has changed that the next call does not set again. In Python, this took as long as the
    arrivals of a small push.

    renumber_at   the greatest sequence number
    """
    arena, given, opening = opened(Arena, arena_at, ()), opened(Input, input_at, ()), opened(Opening, opening_at, ())
    streams, classes, attrs, meta, rows = arena.streams, arena.classes, arena.attrs, arena.meta, opening.rows
    m, apart = streams.shape[0], meta[M_APART]
    for i in range(m):
        if streams[i, S_NEXT] + rows[J_ROWS, i] > renumber_at:
            return NEED_NUMBERS
    words, marks = np.int64(0), np.int64(0)
    for i in range(m):
        n, first = rows[J_ROWS, i], streams[i, S_NEXT]
        if n > 0 and first - streams[i, S_LO] + n > streams[i, S_MASK] + 1:
            meta[M_NEED] = i
            return NEED_RING
        rows[J_FIRST, i], rows[J_DEAD, i] = first, marks
        rows[J_WORDS, i] = np.int64(given.words.ctypes.data) + 8 * words
        for x in range(streams[i, S_ATTR0], streams[i, S_ATTR1]):
            attrs[u64(x), A_INPUT] = words
            attrs[u64(x), A_DEAD] = marks
            words += n * classes[attrs[u64(x), A_CLASS], C_WIDTH]
            marks += n * apart
        marks += n * (1 - apart)
        if streams[i, S_KEY] >= 0:
            # A null in another key leaves the primary key of a version alive.
            attrs[u64(streams[i, S_KEY]), A_DEAD] = marks
            marks += n
    if words > given.words.shape[0] or marks > given.dead.shape[0]:
        opening.need[0], opening.need[1] = words, marks
        return NEED_INPUT
    for mark in range(marks):
        given.dead[u64(mark)] = 0
    for field in range(M_OF_PUSH):
        meta[field] = 0
    for i in range(m):
        for field in range(streams.shape[1]):
            opening.streams[i, field] = streams[i, field]
    for field in range(meta.shape[0]):
        opening.meta[field] = meta[field]
    return DONE


@jit
def write_times(arena_at: int, opening_at: int, times: np.ndarray) -> None:
    """Write the event times of the rows of a push to ring 0 of their streams.

    times   int64[rows], stream after stream
    """
    arena, opening = opened(Arena, arena_at, ()), opened(Opening, opening_at, ())
    streams, values, rows, r = arena.streams, arena.values, opening.rows, np.int64(0)
    for i in range(streams.shape[0]):
        ring, mask, first = streams[i, S_VALUES], streams[i, S_MASK], rows[J_FIRST, i]
        for s in range(first, first + rows[J_ROWS, i]):
            values[u64(ring + (s & mask))] = times[u64(r)]
            r += 1


@inlined
def start(arena: Arena) -> None:
    """Sweep dead keys, and record the ids in use."""
    classes = arena.classes
    sweep(arena)
    for c in range(classes.shape[0]):
        classes[c, C_NEXT0] = classes[c, C_NEXT]
        classes[c, C_FREE0] = classes[c, C_FREE]
    arena.meta[M_STARTED] = 1


@inlined
def null_of(arena: Arena, x: int) -> int:
    """Return the key id of a null in attribute x: negative; with M_APART, another one in each attribute of a class.

    That of a delete (`stairs.kernels.versions`) is the number before.
    """
    return -1 - arena.attrs[x, A_COLUMN] * arena.meta[M_APART]


@inlined
def intern_words(arena: Arena, batch: Batch, x: int, start: int, rows: int) -> int:
    """Do the work of `intern_keys` for keys of one word, with the descriptors of stream and class in registers."""
    streams, classes, recs, table, words = arena.streams, arena.classes, arena.recs, arena.table, arena.words
    i, c = arena.attrs[x, A_STREAM], arena.attrs[x, A_CLASS]
    source, dead, null = arena.attrs[x, A_INPUT], arena.attrs[x, A_DEAD], null_of(arena, x)
    ring, mask, width = streams[i, S_RECS] + arena.attrs[x, A_OFFSET] + 1, streams[i, S_MASK], streams[i, S_WIDTH]
    base, shift, words_at = classes[c, C_TABLE], classes[c, C_SHIFT], classes[c, C_WORDS]
    secret, factor, final = classes[c, C_SECRET], classes[c, C_FACTOR], classes[c, C_LAST]
    spare, more = spare_of(arena, c), classes[c, C_MAY_PASS]
    last = (np.int64(1) << (64 - shift)) - 1
    heads, stride = classes[c, C_HEADS], classes[c, C_STRIDE]
    stack, free = classes[c, C_FREELIST], classes[c, C_FREE]
    following, room = classes[c, C_NEXT], classes[c, C_CAPACITY]
    first, far, r = streams[i, S_NEXT], is_far(arena, c), np.int64(start)
    while r < rows:
        if far and r + AHEAD < rows:
            ahead = home(batch.input[u64(source + r + AHEAD)], shift, secret, factor, final)
            prefetch(np.int64(table.ctypes.data) + 8 * (base + 2 * ahead))
        kid = null - (batch.dead[u64(dead + r)] == DELETE)
        if batch.dead[u64(dead + r)] == 0:
            word = batch.input[u64(source + r)]
            slot = home(word, shift, secret, factor, final)
            p = base + 2 * slot
            kid = table[u64(p + 1)]
            if kid >= 0 and table[u64(p)] != word:
                while kid >= 0 and table[u64(p)] != word:
                    spare -= 1
                    slot = (slot + 1) & last
                    p = base + 2 * slot
                    kid = table[u64(p + 1)]
                if spare + more * (r - start) < 0:
                    classes[c, C_CROWDED] = 1
                    rows = r + 1
            if kid < 0:
                if free > 0:
                    free -= 1
                    kid = np.int64(arena.freed[u64(stack + free)])
                elif following < room:
                    kid = following
                    following += 1
                else:
                    break
                table[u64(p)] = word
                table[u64(p + 1)] = kid
                words[u64(words_at + kid)] = word
                arena.heads[u64(heads + kid * stride)] = -1
        recs[u64(ring + ((first + r) & mask) * width)] = kid
        r += 1
    classes[c, C_DEBT] += 2 * (classes[c, C_FREE] - free + following - classes[c, C_NEXT])
    classes[c, C_FREE], classes[c, C_NEXT] = free, following
    return r


@inlined
def intern_keys(arena: Arena, batch: Batch, x: int, start: int, rows: int) -> int:
    """Write the key ids of rows start .. rows - 1, by attribute x, into their future records.

    Return `rows`, or the row whose key has no room for an id, or the row after the one by which the keys were found to
    crowd (C_CROWDED).
    """
    streams, recs = arena.streams, arena.recs
    i, c = arena.attrs[x, A_STREAM], arena.attrs[x, A_CLASS]
    source, dead = arena.attrs[x, A_INPUT], arena.attrs[x, A_DEAD]
    ring, mask, width = streams[i, S_RECS] + arena.attrs[x, A_OFFSET] + 1, streams[i, S_MASK], streams[i, S_WIDTH]
    spare = spare_of(arena, c)
    for r in range(start, rows):
        kid = null_of(arena, x) - (batch.dead[u64(dead + r)] == DELETE)
        if batch.dead[u64(dead + r)] == 0:
            at = source + r * arena.classes[c, C_WIDTH]
            p, spare = find_counted(arena, c, batch.input, at, spare)
            kid = arena.table[u64(p + 1)]
            if kid < 0:
                kid = adopt(arena, c, batch.input, at, p)
                if kid < 0:
                    return r
        recs[u64(ring + ((streams[i, S_NEXT] + r) & mask) * width)] = kid
        if spare < 0:
            arena.classes[c, C_CROWDED] = 1
            return np.int64(r + 1)
    return np.int64(rows)


@inlined
def intern_batch(arena: Arena, batch: Batch, rows: np.ndarray) -> int:
    """Write the key ids of all rows of the push into their future records. A later call resumes where this one stopped.

    In a separate pass, the look-ups of neighbouring rows do not wait for each other. `Modules.begin` made room in the
    rings for all rows in addition to the live windows.
    """
    attrs, meta = arena.attrs, arena.meta
    while meta[M_INTERN_ATTR] < attrs.shape[0]:
        x = meta[M_INTERN_ATTR]
        i, c = attrs[x, A_STREAM], attrs[x, A_CLASS]
        if arena.classes[c, C_WIDTH] == 1:
            r = intern_words(arena, batch, x, meta[M_INTERN_ROW], rows[i])
        else:
            r = intern_keys(arena, batch, x, meta[M_INTERN_ROW], rows[i])
        crowded = arena.classes[c, C_CROWDED] != 0
        if r < rows[i] or crowded:
            meta[M_INTERN_ROW] = r
            meta[M_NEED] = c
            return NEED_HASH if crowded else NEED_KEYS
        if arena.streams[u64(i), S_KEY] == x:
            open_versions(arena, i, rows[i])
        meta[M_INTERN_ATTR] = x + 1
        meta[M_INTERN_ROW] = 0
    return DONE


@inlined
def open_push(arena: Arena, batch: Batch, rows: np.ndarray) -> int:
    """Begin a push, or resume it where it needed room; return the status.

    rows    int64[streams], rows of the push per stream
    """
    arena.meta[M_SHORT] = 0
    arena.meta[M_NEED] = 0
    if arena.meta[M_STARTED] == 0:
        start(arena)
    return intern_batch(arena, batch, rows)


@inlined
def is_strict(arena: Arena) -> bool:
    """Return whether the event times of all components of a result have to be compared.

    They need not be where no tuple is older than one before it and each probe leaves out what is too old for its
    arrival. Some walks leave out only what has left its window, so the watermark must not lag behind the arrivals.
    """
    meta = arena.meta
    by_windows = meta[M_CHANGELOG] != 0 or (meta[M_MODE] != VIRTUAL and meta[M_MODE] != LOADING)
    return meta[M_BEHIND] > 0 or (by_windows and meta[M_LAGS] != 0)
