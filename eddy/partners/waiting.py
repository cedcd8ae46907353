"""Rows that wait for the watermark, in sorted runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from eddy.partners.rows import Int64s, PartnerRows


class Run(NamedTuple):
    """Rows in the order of the watermark that they wait for.

    due   int64[n], ascending; rows with the same value are in the order in which they came
    came  int64[n], the position of the arrival with which each came
    rows  the rows
    """

    due: Int64s
    came: Int64s
    rows: PartnerRows

    def part(self, first: int, end: int) -> Run:
        """Return rows first .. end - 1."""
        rows = PartnerRows(self.rows.rows[first:end], self.rows.signs[first:end])
        return Run(self.due[first:end], self.came[first:end], rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(one.nbytes for one in (self.due, self.came, *self.rows))


Runs = tuple[Run, ...]


def merged_run(runs: Runs) -> Run:
    """Return the rows of some runs as one run. O(n log n)."""
    due, came = runs[0].due, runs[0].came
    rows, signs = runs[0].rows
    if len(runs) > 1:
        due, came = (np.concatenate(part) for part in zip(*((one.due, one.came) for one in runs), strict=True))
        rows, signs = (np.concatenate(part) for part in zip(*(one.rows for one in runs), strict=True))
    if (due[1:] >= due[:-1]).all():
        return Run(due, came, PartnerRows(rows, signs))
    order = np.argsort(due, kind="stable")
    return Run(due[order], came[order], PartnerRows(rows[order], signs[order]))


def with_run(runs: Runs, new: Run) -> Runs:
    """Return runs with a new one; its neighbours of similar size merge, so a row is copied O(log n) times."""
    found = [*runs, new]
    while len(found) > 1 and len(found[-2].due) <= 2 * len(found[-1].due):
        found[-2:] = [merged_run((found[-2], found[-1]))]
    return tuple(found)


def divided(runs: Runs, watermark: int) -> tuple[Runs, Runs]:
    """Return the rows whose watermark has been passed, and the others. O(runs)."""
    ready, rest = [], []
    for one in runs:
        n = int(np.searchsorted(one.due, watermark))
        if n:
            ready.append(one.part(0, n))
        if n < len(one.due):
            rest.append(one.part(n, len(one.due)))
    return tuple(ready), tuple(rest)
