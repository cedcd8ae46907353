"""Kernels that assign the rows of a batch to cells of the grid. The caller provides all output arrays."""

from __future__ import annotations

import numpy as np

from stairs.kernels.accelerate import jit


@jit
def find_cells(
    hashes: np.ndarray, keep: np.ndarray, shares: np.ndarray, strides: np.ndarray, cells: np.ndarray, starts: np.ndarray
) -> None:
    """Write the cell of each row, -1 where `keep` is false, and where each cell begins once the rows are sorted by
    cell.

    hashes uint64[k, n], keep bool[n], shares and strides int64[k]; cells int32[n], starts int64[n_cells + 1] zeros.
    """
    for i in range(keep.size):
        if not keep[i]:
            cells[i] = -1
            continue
        cell = np.int64(0)
        for c in range(shares.size):
            # Mixed again and read from the high end: hash tables take their slots from the same hash, and the rows of
            # one partition must not all fall on the same slots.
            h = hashes[c, i]
            h ^= h >> np.uint64(32)
            h *= np.uint64(0x9E3779B97F4A7C15)
            coordinate = ((h >> np.uint64(32)) * np.uint64(shares[c])) >> np.uint64(32)
            cell += np.int64(coordinate) * strides[c]
        cells[i] = cell
        starts[cell + 1] += 1
    for cell in range(starts.size - 1):
        starts[cell + 1] += starts[cell]


@jit
def group_rows(cells: np.ndarray, order: np.ndarray, fill: np.ndarray, rows: np.ndarray) -> None:
    """Write the rows sorted by cell, in the sequence of `order` within a cell, without those of cell -1.

    cells int32[n], order int64[n] (a permutation of the rows), fill int64[n_cells] where each cell begins (moved to
    where it ends); rows int64[kept].
    """
    for i in range(order.size):
        row = order[i]
        cell = cells[row]
        if cell >= 0:
            rows[fill[cell]] = row
            fill[cell] += 1
