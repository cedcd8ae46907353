"""The rows that a push begins and ends, as arrival numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stairs.kernels.rows import add_up
from stairs.seeds import seeds

Int64s = npt.NDArray[np.int64]


class PartnerRows(NamedTuple):
    """The rows of a push: int64[n, streams] arrival numbers, -1 = none, and 1 or 0 for rows that begin or end."""

    rows: Int64s
    signs: npt.NDArray[np.uint8]

    @classmethod
    def none(cls, m: int) -> PartnerRows:
        """Return no rows of m streams."""
        return cls(np.zeros((0, m), np.int64), np.zeros(0, np.uint8))


def joined(parts: list[PartnerRows], m: int) -> PartnerRows:
    """Return the rows of several sources."""
    if len(parts) == 1:
        return parts[0]
    rows, signs = zip(PartnerRows.none(m), *parts, strict=True)
    return PartnerRows(np.concatenate(rows), np.concatenate(signs))


def rows_of(table: pa.Table, path: tuple[int, ...], m: int) -> PartnerRows:
    """Return the results of an inner join with ids, as rows of the whole query with m streams."""
    rows, signs = np.full((table.num_rows, m), -1, np.int64), np.ones(table.num_rows, np.uint8)
    for i, column in zip(path, table.columns[-len(path) :], strict=True):
        rows[:, i] = column.to_numpy()
    if table.num_columns > len(path):
        signs[:] = table["op"].combine_chunks().to_numpy(zero_copy_only=False) == "+I"
    return PartnerRows(rows, signs)


def net(found: PartnerRows) -> PartnerRows:
    """Return the rows that a push ends, then the rows that it begins, without rows that it both begins and ends."""
    rows, signs = found
    n = len(rows)
    if n < 2 or signs.all():
        return found
    totals = np.zeros(n, np.int64)
    add_up(rows, signs, np.full(1 << (2 * n - 1).bit_length(), -1, np.int64), seeds(2), totals)
    kept = np.r_[np.flatnonzero(totals < 0), np.flatnonzero(totals > 0)]
    return PartnerRows(rows[kept], (totals[kept] > 0).astype(np.uint8))
