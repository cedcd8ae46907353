"""Rows that wait for the watermark, in sorted runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from eddy.partners.rows import Int64s, PartnerRows
from eddy.partners.version_kernels import affected_rows

Hashes = npt.NDArray[np.uint64]


class KeyIndex(NamedTuple):
    """The rows of a run in the order of the keys and times by which they look for versions of one table.

    hashes  uint64[n], of the keys, ascending
    times   int64[n], ascending for each hash
    rows    int64[n], the number of each row in the run when it was made
    """

    hashes: Hashes
    times: Int64s
    rows: Int64s

    @classmethod
    def of(cls, hashes: Hashes, times: Int64s) -> KeyIndex:
        """Return an index of rows with these keys and times. O(n log n)."""
        order = np.lexsort((times, hashes))
        return cls(hashes[order], times[order], order)

    def between(self, first: int, end: int) -> tuple[Hashes, Int64s]:
        """Return the hashes and the times of rows first .. end - 1, in their order."""
        kept = (self.rows >= first) & (self.rows < end)
        hashes, times, places = (
            np.empty(end - first, np.uint64),
            np.empty(end - first, np.int64),
            self.rows[kept] - first,
        )
        hashes[places], times[places] = self.hashes[kept], self.times[kept]
        return hashes, times

    def affected(self, wanted: Hashes, spans: Int64s) -> Int64s:
        """Return the rows with these keys and times (`affected_rows`), some of them more than once."""
        rows = np.empty(len(wanted), np.int64)
        while True:
            n = affected_rows(self.hashes, self.times, self.rows, wanted, spans, rows)
            if n <= len(rows):
                return rows[:n]
            rows = np.empty(n, np.int64)


class Run(NamedTuple):
    """Rows in the order of the watermark that they wait for.

    due    int64[n], ascending; rows with the same value are in the order in which they came
    came   int64[n], the position of the arrival with which each came
    rows   the rows
    keys   for each table whose versions may still change, the index of the run; none in append output
    first  the number of the first row in these indexes
    """

    due: Int64s
    came: Int64s
    rows: PartnerRows
    keys: tuple[KeyIndex, ...] = ()
    first: int = 0

    def part(self, first: int, end: int) -> Run:
        """Return rows first .. end - 1. Indexes stay as they are until half of their rows have gone."""
        rows = PartnerRows(self.rows.rows[first:end], self.rows.signs[first:end])
        part = Run(self.due[first:end], self.came[first:end], rows, self.keys, self.first + first)
        if self.keys and 2 * len(part.due) < len(self.keys[0].rows):
            return part._replace(keys=tuple(KeyIndex.of(*pair) for pair in part.asked()), first=0)
        return part

    def chosen(self, numbers: Int64s) -> Run:
        """Return the rows with these numbers, ascending."""
        rows = PartnerRows(self.rows.rows.take(numbers, axis=0), self.rows.signs[numbers])
        keys = tuple(KeyIndex.of(hashes[numbers], times[numbers]) for hashes, times in self.asked())
        return Run(self.due[numbers], self.came[numbers], rows, keys)

    def asked(self) -> list[tuple[Hashes, Int64s]]:
        """Return the hashes of the keys of the rows, and the times, for each table of `keys`."""
        return [index.between(self.first, self.first + len(self.due)) for index in self.keys]

    def affected(self, wanted: Sequence[tuple[Hashes, Int64s]]) -> Int64s:
        """Return the numbers of the rows that new versions may concern, ascending.

        wanted  for each table of `keys`, the arguments of `KeyIndex.affected`
        """
        parts = [index.affected(*arguments) for index, arguments in zip(self.keys, wanted, strict=True)]
        numbers = np.unique(np.concatenate(parts)) - self.first
        return numbers[(numbers >= 0) & (numbers < len(self.due))]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = (self.due, self.came, *self.rows, *(array for index in self.keys for array in index))
        return sum(array.nbytes for array in arrays)


Runs = tuple[Run, ...]


def merged_run(runs: Runs) -> Run:
    """Return the rows of some runs as one run. O(n log n)."""
    if len(runs) == 1 and (runs[0].due[1:] >= runs[0].due[:-1]).all():
        return runs[0]
    due, came = (np.concatenate(part) for part in zip(*((run.due, run.came) for run in runs), strict=True))
    rows, signs = (np.concatenate(part) for part in zip(*(run.rows for run in runs), strict=True))
    order = np.argsort(due, kind="stable")
    keys = []
    for parts in zip(*(run.asked() for run in runs), strict=True):
        hashes, times = (np.concatenate(part)[order] for part in zip(*parts, strict=True))
        keys.append(KeyIndex.of(hashes, times))
    return Run(due[order], came[order], PartnerRows(rows.take(order, axis=0), signs[order]), tuple(keys))


def with_run(runs: Runs, new: Run) -> Runs:
    """Return runs with a new one; its neighbours of similar size merge, so a row is copied O(log n) times."""
    merged = [*runs, new]
    while len(merged) > 1 and len(merged[-2].due) <= 2 * len(merged[-1].due):
        merged[-2:] = [merged_run((merged[-2], merged[-1]))]
    return tuple(merged)


def divided(runs: Runs, watermark: int) -> tuple[Runs, Runs]:
    """Return the rows whose watermark has been passed, and the others. O(runs)."""
    ready, rest = [], []
    for run in runs:
        n = int(np.searchsorted(run.due, watermark))
        if n:
            ready.append(run._replace(keys=()).part(0, n))
        if n < len(run.due):
            rest.append(run.part(n, len(run.due)))
    return tuple(ready), tuple(rest)
