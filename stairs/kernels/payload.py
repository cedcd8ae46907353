"""Kernels that move payload columns, all columns in one call: into the rings for input, out of them for results."""

from __future__ import annotations

import numpy as np

from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.memory import peek8, peek16, peek32, peek64, poke8, poke16, poke32, poke64

# jobs[k]: a column to copy into a ring
J_SOURCE = 0  # address of its first value
J_TARGET = 1  # address of the ring
J_WIDTH = 2  # bytes of a value: 1, 2, 4, 8 or 16
J_FIRST = 3  # the first value goes to slot FIRST & MASK, the others to the following slots
J_MASK = 4  # slots of the ring - 1
J_ROWS = 5  # values to copy
J_FIELDS = 6

# columns[k]: a column to gather for results
P_STREAM = 0  # stream it belongs to
P_WIDTH = 1  # bytes of a value: 1, 2, 4, 8 or 16
P_RING = 2  # address of its ring
P_MASK = 3  # slots of the ring - 1
P_BEFORE = 4  # bytes of a value of each column before it
P_FIELDS = 5

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
def copy_in(jobs: np.ndarray) -> None:
    """Copy columns into rings: jobs int64[n, J_FIELDS]. A job has no more values than its ring has slots."""
    for k in range(jobs.shape[0]):
        n, width, mask = jobs[k, J_ROWS], jobs[k, J_WIDTH], jobs[k, J_MASK]
        slot, source, target = jobs[k, J_FIRST] & mask, jobs[k, J_SOURCE], jobs[k, J_TARGET]
        # One copy up to the end of the ring, and one from its start.
        before = min(n, mask + 1 - slot)
        copy_run(source, target + slot * width, width, before)
        copy_run(source + before * width, target, width, n - before)


@inlined
def gather_run(ring: int, out: int, width: int, mask: int, ids: np.ndarray, at: int, step: int, n: int) -> None:
    """Copy the values of n components with sequence numbers ids[at], ids[at + step], …"""
    if width == 8:
        for r in range(n):
            poke64(out + 8 * r, peek64(ring + 8 * (ids[u64(at + r * step)] & mask)))
    elif width == 16:
        for r in range(n):
            slot = ring + 16 * (ids[u64(at + r * step)] & mask)
            poke64(out + 16 * r, peek64(slot))
            poke64(out + 16 * r + 8, peek64(slot + 8))
    elif width == 4:
        for r in range(n):
            poke32(out + 4 * r, peek32(ring + 4 * (ids[u64(at + r * step)] & mask)))
    elif width == 2:
        for r in range(n):
            poke16(out + 2 * r, peek16(ring + 2 * (ids[u64(at + r * step)] & mask)))
    else:
        for r in range(n):
            poke8(out + r, peek8(ring + (ids[u64(at + r * step)] & mask)))


@jit
def gather(columns: np.ndarray, ids: np.ndarray, n_streams: int, n: int, out: int, room: int) -> None:
    """Copy the value of each component into the columns of the output.

    columns   int64[n_columns, P_FIELDS]
    ids       int32[n * n_streams], result by result
    out       address of the output: column after column, each with room for `room` values

    The kernel gathers all columns of a block of results before the next block, so it reads each id from memory once.
    """
    some = max(GATHERED // n_streams, 1)
    for first in range(0, n, some):
        count = min(some, n - first)
        for k in range(columns.shape[0]):
            j, width, mask = columns[k, P_STREAM], columns[k, P_WIDTH], columns[k, P_MASK]
            to = out + room * columns[k, P_BEFORE] + first * width
            gather_run(columns[k, P_RING], to, width, mask, ids, first * n_streams + j, n_streams, count)
