"""The rows that a push begins and ends, as arrival numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stairs.descriptors import DELETED, INSERTED, UPDATED_FROM, UPDATED_TO
from stairs.kernels.rows import add_up, find_rows
from stairs.seeds import seeds

Int64s = npt.NDArray[np.int64]


class PartnerRows(NamedTuple):
    """The rows of a push: int64[n, streams] arrival numbers, -1 = none, and 1 or 0 for rows that begin or end."""

    rows: Int64s
    signs: npt.NDArray[np.uint8]

    def signed(self, sign: int) -> Int64s:
        """Return the rows that begin (1) or end (0)."""
        # `compress` and `take` copy rows ten times as fast as an index does.
        return self.rows.compress(self.signs == sign, axis=0)

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
        ops = table["op"].combine_chunks()
        signs[:] = np.asarray(pc.starts_with(ops, "+").cast(pa.uint8()))
    return PartnerRows(rows, signs)


def net(partner_rows: PartnerRows) -> PartnerRows:
    """Return the rows that a push ends, then the rows that it begins, without rows that it both begins and ends."""
    rows, signs = partner_rows
    if len(rows) < 2 or signs.all():
        return partner_rows
    totals = net_signs(partner_rows)
    kept: Int64s = np.r_[np.flatnonzero(totals < 0), np.flatnonzero(totals > 0)]
    return PartnerRows(rows.take(kept, axis=0), (totals[kept] > 0).astype(np.uint8))


def net_signs(partner_rows: PartnerRows) -> Int64s:
    """Return how often each row begins less how often it ends, at its first occurrence, and 0 at the others."""
    totals = np.zeros(len(partner_rows.rows), np.int64)
    add_up(partner_rows.rows, partner_rows.signs, _table(len(partner_rows.rows)), seeds(2), totals)
    return totals


def paired(
    partner_rows: PartnerRows, replaced: Mapping[int, tuple[int, Int64s]], versioned: Sequence[int] = ()
) -> tuple[Int64s, npt.NDArray[np.uint8]]:
    """Return net rows with their operations: those that end, pairs of a row and the one that replaces it, new ones.

    replaced   by table, the first arrival number of the push, and the version that each change ended, -1 = none
    versioned  the versioned tables, of which each row has one version at any time

    One row replaces another if changes have replaced some of its versions, and everything else is the same.
    """
    ended, begun = partner_rows.signed(0), partner_rows.signed(1)
    before, partners = begun.copy(), np.full(len(begun), -1, np.int64)
    for i, (first, versions) in replaced.items():
        new = np.flatnonzero(before[:, i] >= first)
        previous = versions[before[new, i] - first]
        before[new[previous >= 0], i] = previous[previous >= 0]
    known = ended
    if versioned:
        known, before[:, list(versioned)] = ended.copy(), -1
        known[:, list(versioned)] = -1
    if len(ended) == len(begun) and np.array_equal(known, before):
        # The usual case, a change of what many rows show: the rows follow each other in the order of the ones before.
        partners = np.arange(len(begun))
    elif len(ended):
        find_rows(known, before, _table(len(ended)), seeds(2), partners)
    follows = partners >= 0
    alone = np.ones(len(ended), bool)
    alone[partners[follows]] = False
    n, pairs = int(np.count_nonzero(alone)), int(np.count_nonzero(follows))
    signs = np.full(len(ended) + len(begun), INSERTED, np.uint8)
    signs[:n], signs[n : n + 2 * pairs : 2], signs[n + 1 : n + 2 * pairs : 2] = DELETED, UPDATED_FROM, UPDATED_TO
    both = np.stack([ended.take(partners[follows], axis=0), begun.compress(follows, axis=0)], axis=1).reshape(
        -1, partner_rows.rows.shape[1]
    )
    return np.concatenate([ended.compress(alone, axis=0), both, begun.compress(~follows, axis=0)]), signs


def _table(n: int) -> Int64s:
    """Return an empty hash table for n rows."""
    return np.full(1 << max(2 * n - 1, 1).bit_length(), -1, np.int64)
