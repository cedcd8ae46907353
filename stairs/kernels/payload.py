"""Kernels that move payload columns, all columns in one call: into the rings for input, out of them for results."""

from __future__ import annotations

import numpy as np

from stairs.descriptors import J_FIRST, J_WORDS
from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.memory import (
    ARROW_BUFFERS,
    ARROW_CHILDREN,
    ARROW_NULLS,
    ARROW_OFFSET,
    ARROW_RELEASE,
    ARROW_WORDS,
    peek8,
    peek16,
    peek32,
    peek64,
    peek_int64,
    poke8,
    poke16,
    poke32,
    poke64,
    release,
)

# copies[k]: a column of pushed rows whose values stay as they are
I_STREAM = 0
I_COLUMN = 1  # its position in the batch
I_WIDTH = 2  # bytes of a value: 1, 2, 4, 8 or 16
I_RING = 3  # address of its ring, 0 = it is a key
I_PLACE = 4  # slots of the ring - 1; of a key, the words of a row before it in the input of its stream
I_LEFT = 5  # output: 1 = it has a null, so it was not copied
I_FIELDS = 6

# batches[i]: the rows of a stream, an ArrowArray with a child for each column; a released one = there are none
G_FIELDS = ARROW_WORDS

# columns[k]: a column to gather for results
P_STREAM = 0  # stream it belongs to
P_WIDTH = 1  # bytes of a value: 1, 2, 4, 8 or 16
P_RING = 2  # address of its ring
P_MASK = 3  # slots of the ring - 1
P_STRIDE = 4  # bytes from a slot of its ring to the next
P_BEFORE = 5  # bytes of a value of each column before it
P_FIELDS = 6

GATHERED = 4096
"""Ids of results that are gathered together: 16 KiB, which fit in a first-level cache."""


@inlined
def copy_run(source: int, target: int, width: int, n: int) -> None:
    """Copy n adjacent values of `width` bytes."""
    if width >= 8:
        for r in range(n * (width >> 3)):
            poke64(target + 8 * r, peek64(source + 8 * r))
    elif width == 4:
        for r in range(n):
            poke32(target + 4 * r, peek32(source + 4 * r))
    elif width == 2:
        for r in range(n):
            poke16(target + 2 * r, peek16(source + 2 * r))
    else:
        for r in range(n):
            poke8(target + r, peek8(source + r))


@jit
def release_all(batches: np.ndarray) -> None:
    """Release the batches of a push: int64[streams, G_FIELDS]. It may be repeated."""
    for i in range(batches.shape[0]):
        batch = np.int64(batches.ctypes.data) + 8 * G_FIELDS * i
        if peek_int64(batch + ARROW_RELEASE) != 0:
            release(batch)


@jit
def copy_batches(copies: np.ndarray, batches: np.ndarray, rows: np.ndarray) -> int:
    """Copy columns of a push into rings and input, and release its batches; return the number of columns left out.

    A column with a null is left out (I_LEFT). copies int64[columns, I_FIELDS], batches int64[streams, G_FIELDS]; rows
    as of an Opening: values go to the slots from FIRST & mask of a ring on, or to the words.
    """
    left = 0
    for k in range(copies.shape[0]):
        i, width, ring = copies[k, I_STREAM], copies[k, I_WIDTH], copies[k, I_RING]
        batch = np.int64(batches.ctypes.data) + 8 * G_FIELDS * i
        copies[k, I_LEFT] = 0
        if peek_int64(batch + ARROW_RELEASE) == 0:
            continue
        column, n = peek_int64(peek_int64(batch + ARROW_CHILDREN) + 8 * copies[k, I_COLUMN]), peek_int64(batch)
        buffers = peek_int64(column + ARROW_BUFFERS)
        # The number of nulls may be unknown, -1.
        if peek_int64(column + ARROW_NULLS) != 0 and peek_int64(buffers) != 0:
            copies[k, I_LEFT] = 1
            left += 1
            continue
        source = peek_int64(buffers + 8) + width * peek_int64(column + ARROW_OFFSET)
        if ring == 0:
            copy_run(source, rows[J_WORDS, i] + 8 * n * copies[k, I_PLACE], width, n)
            continue
        # One copy up to the end of the ring, and one from its start. It has a slot for each row.
        mask = copies[k, I_PLACE]
        slot = rows[J_FIRST, i] & mask
        before = min(n, mask + 1 - slot)
        copy_run(source, ring + slot * width, width, before)
        copy_run(source + before * width, ring, width, n - before)
    release_all(batches)
    return left


@jit
def spread(source: int, step: int, out: int, stride: int, width: int, n: int) -> None:
    """Copy n values of `width` bytes, `step` bytes apart, to places that are `stride` bytes apart."""
    if width == 8:
        for r in range(n):
            poke64(out + stride * r, peek64(source + step * r))
    elif width == 16:
        for r in range(n):
            poke64(out + stride * r, peek64(source + step * r))
            poke64(out + stride * r + 8, peek64(source + step * r + 8))
    elif width == 4:
        for r in range(n):
            poke32(out + stride * r, peek32(source + step * r))
    elif width == 2:
        for r in range(n):
            poke16(out + stride * r, peek16(source + step * r))
    else:
        for r in range(n):
            poke8(out + stride * r, peek8(source + step * r))


@inlined
def gather_run(
    ring: int, stride: int, out: int, width: int, mask: int, ids: np.ndarray, at: int, step: int, n: int
) -> None:
    """Copy the values of n components with sequence numbers ids[at], ids[at + step], …"""
    if width == 8:
        for r in range(n):
            poke64(out + 8 * r, peek64(ring + stride * (ids[u64(at + r * step)] & mask)))
    elif width == 16:
        for r in range(n):
            slot = ring + stride * (ids[u64(at + r * step)] & mask)
            poke64(out + 16 * r, peek64(slot))
            poke64(out + 16 * r + 8, peek64(slot + 8))
    elif width == 4:
        for r in range(n):
            poke32(out + 4 * r, peek32(ring + stride * (ids[u64(at + r * step)] & mask)))
    elif width == 2:
        for r in range(n):
            poke16(out + 2 * r, peek16(ring + stride * (ids[u64(at + r * step)] & mask)))
    else:
        for r in range(n):
            poke8(out + r, peek8(ring + stride * (ids[u64(at + r * step)] & mask)))


@jit
def gather(columns: np.ndarray, ids: np.ndarray, n_streams: int, n: int, out: int, room: int, at: int) -> None:
    """Copy the value of each component into the columns of the output.

    columns   int64[n_columns, P_FIELDS]
    ids       int32[n * n_streams], result by result
    out       address of the output: column after column, each with room for `room` values
    at        the row of the output for the first result

    The kernel gathers all columns of a block of results before the next block, so it reads each id from memory once.
    """
    some = max(GATHERED // n_streams, 1)
    for first in range(0, n, some):
        count = min(some, n - first)
        for k in range(columns.shape[0]):
            j, width, mask = columns[k, P_STREAM], columns[k, P_WIDTH], columns[k, P_MASK]
            to = out + room * columns[k, P_BEFORE] + (at + first) * width
            at_ids = first * n_streams + j
            gather_run(columns[k, P_RING], columns[k, P_STRIDE], to, width, mask, ids, at_ids, n_streams, count)
