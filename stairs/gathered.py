"""The columns that one call of `Payload.gather` gathers for results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stairs.kernels.payload import P_BEFORE, P_STREAM, P_WIDTH

ColumnId = tuple[int, int]
"""A column: its stream, and its position among the kept columns of the stream."""


def laid_out(described: npt.NDArray[np.int64]) -> list[int]:
    """Set where the kernel puts each column, one after another; return the bytes of a row before each, and of a row."""
    before = [0, *accumulate(described[:, P_WIDTH].tolist())]
    described[:, P_BEFORE] = before[:-1]
    return before


class Gathered(NamedTuple):
    """Columns, and where the kernel finds them.

    described   int64[rings, P_FIELDS], the rings of values, then those of validity
    before      bytes of a row before each of them, and of a row
    rings, nulls, logs   the columns
    places      streams by their position among the components of a result
    """

    described: npt.NDArray[np.int64]
    before: list[int]
    rings: list[ColumnId]
    nulls: list[ColumnId]
    logs: list[ColumnId]
    places: dict[int, int]

    def part(self, streams: Sequence[int], columns: frozenset[ColumnId]) -> Gathered:
        """Return some columns of this, of results whose components are tuples of these streams."""
        places = {i: place for place, i in enumerate(streams)}
        described = self.described[
            [row for row, column_id in enumerate([*self.rings, *self.nulls]) if column_id in columns]
        ]
        described[:, P_STREAM] = [places[i] for i in described[:, P_STREAM].tolist()]
        rings, nulls, logs = (
            [column_id for column_id in column_ids if column_id in columns]
            for column_ids in (self.rings, self.nulls, self.logs)
        )
        return Gathered(described, laid_out(described), rings, nulls, logs, places)
