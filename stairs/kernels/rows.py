"""Kernels on rows of arrival numbers, int64[n, streams], in which -1 is an absent component."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.hashes import finish, stir

Int64s = npt.NDArray[np.int64]


@jit
def to_sequence_numbers(rows: Int64s, bases: Int64s, ids: npt.NDArray[np.int32], absent: npt.NDArray[np.bool_]) -> int:
    """Write rows - bases to ids, row by row, and 0 for absent components, which are marked; return their number."""
    n, m = rows.shape
    count = 0
    for x in range(n):
        for i in range(m):
            number = rows[u64(x), u64(i)]
            if number < 0:
                absent[u64(x), u64(i)] = True
                count += 1
            ids[u64(x * m + i)] = number - bases[u64(i)] if number >= 0 else 0
    return count


@jit
def to_places(rows: Int64s, i: int, kept: Int64s, dense: int, low: int) -> None:
    """Write low + the index in `kept` in place of each number of column i that is not negative.

    kept    int64[], ascending; the numbers of the column are among them
    dense   from this index on, the numbers are consecutive

    O(rows * log log numbers) if the others are spread evenly, and O(rows * log numbers) at most.
    """
    consecutive = kept[u64(dense)] if dense < kept.shape[0] else (1 << 63) - 1
    for x in range(rows.shape[0]):
        number = rows[u64(x), u64(i)]
        if number >= consecutive:
            rows[u64(x), u64(i)] = low + dense + number - consecutive
        elif number >= 0:
            rows[u64(x), u64(i)] = low + index_of(kept, number, dense)


@inlined
def index_of(kept: Int64s, number: int, stop: int) -> int:
    """Return the index of a number in kept[:stop], which is ascending."""
    first, last, halve = np.int64(0), np.int64(stop - 1), False
    while first < last:
        span = kept[u64(last)] - kept[u64(first)]
        # The shares of an interpolation can be as small as one number; halves bound the steps.
        share = 0.5 if halve else min(max((number - kept[u64(first)]) / span, 0.0), 1.0)
        at = first + np.int64(share * (last - first))
        if kept[u64(at)] < number:
            first = at + 1
        else:
            last = at
            if kept[u64(at)] == number:
                first = at
        halve = not halve
    return first


@inlined
def place_of(rows: Int64s, x: int, known: Int64s, table: Int64s, seeds: Int64s) -> int:
    """Return the place in `table` of the row of `known` that equals rows[x], or the free place where it would be."""
    m, mask, code = rows.shape[1], table.shape[0] - 1, u64(seeds[0])
    for i in range(m):
        code = stir(code, rows[u64(x), u64(i)], seeds[1])
    at = finish(code, seeds[0], seeds[1]) & mask
    while table[u64(at)] >= 0:
        same = True
        for i in range(m):
            same = same and known[u64(table[u64(at)]), u64(i)] == rows[u64(x), u64(i)]
        if same:
            break
        at = (at + 1) & mask
    return at


@jit
def add_up(rows: Int64s, signs: npt.NDArray[np.uint8], table: Int64s, seeds: Int64s, totals: Int64s) -> None:
    """Write for each row how often it begins minus how often it ends, to its first occurrence, and 0 to the others.

    table   -1, 2^n times, more than there are rows;  seeds int64[2] of its hash
    """
    for x in range(rows.shape[0]):
        at = place_of(rows, x, rows, table, seeds)
        if table[u64(at)] < 0:
            table[u64(at)] = x
        totals[u64(table[u64(at)])] += 1 if signs[u64(x)] else -1


@jit
def find_rows(known: Int64s, rows: Int64s, table: Int64s, seeds: Int64s, numbers: Int64s) -> None:
    """Write the number of the row of `known` that equals each row, -1 for none; rows of `known` differ.

    table, seeds   as in `add_up`, for the rows of `known`
    """
    for x in range(known.shape[0]):
        table[u64(place_of(known, x, known, table, seeds))] = x
    for x in range(rows.shape[0]):
        numbers[u64(x)] = table[u64(place_of(rows, x, known, table, seeds))]
