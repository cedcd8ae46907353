"""Kernels of grouped filters: sets of versions are rows of bits, and a version is a bit.

bits    int64[cells, words], the versions that accept the values of each cell of each column
cells   int64[rows, columns], the cell of each value, as a row of `bits`
always  int64[words], the versions that no column rules out
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.bits import lowest_bit

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@jit
def set_bits(bits: Int64s, versions: Int64s, first: Int64s, end: Int64s) -> None:
    """Set the bit of versions[x] in the cells from first[x] to before end[x]. O(bits set)."""
    for x in range(versions.shape[0]):
        word, bit = versions[x] >> 6, np.int64(1) << (versions[x] & 63)
        for cell in range(first[x], end[x]):
            bits[u64(cell), u64(word)] |= bit


@inlined
def compared(data: Bytes, at: int, end: int, other: Bytes, begin: int, stop: int) -> int:
    """Return -1, 0 or 1, as one text is before, equal to or after another one, byte by byte."""
    for k in range(min(end - at, stop - begin)):
        mine, theirs = data[u64(at + k)], other[u64(begin + k)]
        if mine != theirs:
            return -1 if mine < theirs else 1
    longer = (end - at) - (stop - begin)
    return -1 if longer < 0 else 1 if longer > 0 else 0


@jit
def text_codes(
    offsets: Int64s, data: Bytes, known_offsets: Int64s, known: Bytes, places: Int64s, codes: Int64s
) -> None:
    """Write the code of each text: places[2 * n + 1] for known text n, places[2 * n] for those just before it.

    offsets, known_offsets   int64[texts + 1], where each text begins in `data` and in `known`, whose texts ascend
    places                   int64[2 * known texts + 1]

    O(rows * log(known texts)) comparisons.
    """
    for row in range(codes.shape[0]):
        at, end = offsets[u64(row)], offsets[u64(row + 1)]
        low, high, same = np.int64(0), np.int64(known_offsets.shape[0] - 1), np.int64(0)
        while low < high:
            middle = (low + high) >> 1
            order = compared(data, at, end, known, known_offsets[u64(middle)], known_offsets[u64(middle + 1)])
            if order > 0:
                low = middle + 1
            else:
                high = middle
                if order == 0:
                    low, same = middle, np.int64(1)
        codes[u64(row)] = places[u64(2 * low + same)]


@inlined
def acceptors(cells: Int64s, bits: Int64s, always: Int64s, row: int, word: int) -> int:
    """Return the versions of a word that accept a row, as bits."""
    accepting = always[u64(word)]
    for k in range(cells.shape[1]):
        accepting &= bits[u64(cells[u64(row), u64(k)]), u64(word)]
    return accepting


@jit
def share(cells: Int64s, bits: Int64s, always: Int64s, counts: Int64s, rows: Int64s) -> None:
    """Add to counts how many rows each version accepts; write these rows if there is room for any.

    counts  int64[versions], where the rows of each version begin if rows are written, else 0; the ends afterwards
    rows    int64[…], the numbers of the rows that a version accepts, ascending, version by version; or empty

    O(rows * words * columns + rows accepted).
    """
    writes = rows.shape[0] > 0
    for row in range(cells.shape[0]):
        for word in range(always.shape[0]):
            left = acceptors(cells, bits, always, row, word)
            while left != 0:
                version = u64((word << 6) + lowest_bit(left))
                left &= left - 1
                if writes:
                    rows[u64(counts[version])] = row
                counts[version] += 1


@jit
def accepted_by_any(cells: Int64s, bits: Int64s, always: Int64s, wanted: npt.NDArray[np.bool_]) -> int:
    """Write for each row whether a version accepts it; return how many rows there are of these."""
    count = 0
    for row in range(cells.shape[0]):
        wanted[u64(row)] = False
        for word in range(always.shape[0]):
            if acceptors(cells, bits, always, row, word) != 0:
                wanted[u64(row)] = True
                count += 1
                break
    return count
