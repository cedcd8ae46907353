"""The columns that one call of `Payload.gather` gathers for results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stairs.kernels.payload import P_STREAM

ColumnId = tuple[int, int]
"""A column: its stream, and its position among the kept columns of the stream."""


class Gathered(NamedTuple):
    """Columns, and where the kernel finds them.

    described   int64[rings, P_FIELDS], the rings of values, then those of validity
    widths      bytes of a value of each
    rings, nulls, logs   the columns
    places      streams by their position among the components of a result
    """

    described: npt.NDArray[np.int64]
    widths: list[int]
    rings: list[ColumnId]
    nulls: list[ColumnId]
    logs: list[ColumnId]
    places: dict[int, int]

    def part(self, streams: Sequence[int], columns: frozenset[ColumnId]) -> Gathered:
        """Return some columns of this, of results whose components are tuples of these streams."""
        places = {i: place for place, i in enumerate(streams)}
        kept = [row for row, one in enumerate([*self.rings, *self.nulls]) if one in columns]
        described = self.described[kept]
        described[:, P_STREAM] = [places[i] for i in described[:, P_STREAM].tolist()]
        rings, nulls, logs = ([one for one in own if one in columns] for own in (self.rings, self.nulls, self.logs))
        return Gathered(described, [self.widths[row] for row in kept], rings, nulls, logs, places)
