"""Kernels on rows of arrival numbers, int64[n, streams], in which -1 is an absent component."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stairs.kernels.accelerate import jit, u64
from stairs.kernels.hashes import finish, stir

Int64s = npt.NDArray[np.int64]


@jit
def to_sequence_numbers(rows: Int64s, bases: Int64s, ids: npt.NDArray[np.int32], absent: npt.NDArray[np.bool_]) -> int:
    """Write rows - bases to ids, row by row, and 0 for absent components, which are marked; return their number."""
    n, m = rows.shape
    found = 0
    for x in range(n):
        for i in range(m):
            number = rows[u64(x), u64(i)]
            if number < 0:
                absent[u64(x), u64(i)] = True
                found += 1
            ids[u64(x * m + i)] = number - bases[u64(i)] if number >= 0 else 0
    return found


@jit
def add_up(rows: Int64s, signs: npt.NDArray[np.uint8], table: Int64s, seeds: Int64s, totals: Int64s) -> None:
    """Write for each row how often it begins minus how often it ends, to its first occurrence, and 0 to the others.

    table   -1, 2^n times, more than there are rows;  seeds int64[2] of its hash
    """
    n, m = rows.shape
    mask = table.shape[0] - 1
    for x in range(n):
        code = u64(seeds[0])
        for i in range(m):
            code = stir(code, rows[u64(x), u64(i)], seeds[1])
        at = finish(code, seeds[0], seeds[1]) & mask
        while True:
            first = table[u64(at)]
            if first < 0:
                table[u64(at)] = first = x
            same = True
            for i in range(m):
                same = same and rows[u64(first), u64(i)] == rows[u64(x), u64(i)]
            if same:
                totals[u64(first)] += 1 if signs[u64(x)] else -1
                break
            at = (at + 1) & mask
