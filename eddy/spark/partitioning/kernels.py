"""Kernels that assign the rows of a batch to cells of the grid. The caller provides all output arrays."""

from __future__ import annotations

import numpy as np

from stairs.kernels.accelerate import inlined, jit


@inlined
def scaled(h: np.uint64, share: np.int64) -> np.uint64:
    """Return a hash times a share: the coordinate in the upper 32 bits, the following bits in the lower 32 bits."""
    # Mixed again and read from the high end: hash tables take their slots from the same hash, and the rows of one
    # partition must not all fall on the same slots.
    h ^= h >> np.uint64(32)
    h *= np.uint64(0x9E3779B97F4A7C15)
    return (h >> np.uint64(32)) * np.uint64(share)


@jit
def find_cells(
    hashes: np.ndarray, keep: np.ndarray, shares: np.ndarray, strides: np.ndarray, cells: np.ndarray, starts: np.ndarray
) -> None:
    """Write the cell of each row, -1 where `keep` is false, and the start of each cell among the rows sorted by cell.

    hashes uint64[k, n], keep bool[n], shares and strides int64[k]; cells int32[n], starts int64[n_cells + 1] zeros.
    """
    for i in range(keep.size):
        if not keep[i]:
            cells[i] = -1
            continue
        cell = np.int64(0)
        for c in range(shares.size):
            cell += np.int64(scaled(hashes[c, i], shares[c]) >> np.uint64(32)) * strides[c]
        cells[i] = cell
        starts[cell + 1] += 1
    for cell in range(starts.size - 1):
        starts[cell + 1] += starts[cell]


@jit
def refine_cells(
    hashes: np.ndarray, shares: np.ndarray, roots: np.ndarray, nodes: np.ndarray, cells: np.ndarray, starts: np.ndarray
) -> None:
    """Replace the cell of each row by its key group, and write the start of each group among the sorted rows.

    hashes and shares as in `find_cells`; roots int64[n_cells], nodes int64[k, 4] (`SplitTree.tables`); cells int32[n],
    starts int64[n_groups + 1] zeros.
    """
    for i in range(cells.size):
        if cells[i] < 0:
            continue
        at = roots[cells[i]]
        while at >= 0:
            c = nodes[at, 0]
            bit = (scaled(hashes[c, i], shares[c]) >> np.uint64(nodes[at, 1])) & np.uint64(1)
            at = nodes[at, 2 + np.int64(bit)]
        group = -1 - at
        cells[i] = group
        starts[group + 1] += 1
    for group in range(starts.size - 1):
        starts[group + 1] += starts[group]


@jit
def keep_branch(hashes: np.ndarray, share: int, shift: int, bits: int, keep: np.ndarray) -> None:
    """Clear `keep` of the rows whose fraction along a class does not begin with some bits.

    hashes uint64[n], share of the class, shift 32 minus the number of bits; keep bool[n].
    """
    for i in range(keep.size):
        fraction = scaled(hashes[i], share) & np.uint64(0xFFFFFFFF)
        keep[i] &= (fraction >> np.uint64(shift)) == np.uint64(bits)


@jit
def group_rows(cells: np.ndarray, order: np.ndarray, fill: np.ndarray, rows: np.ndarray) -> None:
    """Write the rows sorted by cell, in the sequence of `order` within a cell, without those of cell -1.

    cells int32[n], order int64[n] (a permutation of the rows), fill int64[n_cells] the start of each cell (replaced by
    its end); rows int64[kept].
    """
    for i in range(order.size):
        row = order[i]
        cell = cells[row]
        if cell >= 0:
            rows[fill[cell]] = row
            fill[cell] += 1
