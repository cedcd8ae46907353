"""Sets of positions in the logs of the splits, which represent the rows of a partition group in an engine.

A split numbers the rows of each group from 0 in the order in which they arrive. A set has one list of half-open
intervals per split, ascending and disjoint; in practice one interval, and two while a move is under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

ENDLESS = 1 << 62
"""An end beyond all positions."""

Interval = tuple[int, int]


class Positions:
    """A set of positions per split; treat it as immutable.

    >>> Positions([[(0, 3)], []]).with_interval(0, 3, 5)
    Positions([[(0, 5)], []])
    """

    __slots__ = ("intervals",)

    def __init__(self, intervals: Iterable[Iterable[Interval]]) -> None:
        self.intervals: tuple[tuple[Interval, ...], ...] = tuple(tuple(ranges) for ranges in intervals)

    @classmethod
    def none(cls, splits: int) -> Positions:
        """Return the empty set."""
        return cls([()] * splits)

    def __repr__(self) -> str:
        return f"Positions({[list(ranges) for ranges in self.intervals]})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Positions) and self.intervals == other.intervals

    def __hash__(self) -> int:
        return hash(self.intervals)

    def with_interval(self, split: int, start: int, end: int) -> Positions:
        """Return the set with the positions from `start` to before `end` of a split added. O(intervals)."""
        if start >= end:
            return self
        merged: list[Interval] = []
        for low, high in sorted([*self.intervals[split], (start, end)]):
            if merged and low <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], high))
            else:
                merged.append((low, high))
        return Positions([merged if i == split else ranges for i, ranges in enumerate(self.intervals)])

    def without(self, other: Positions) -> Positions:
        """Return the positions that `other` does not have. O(product of the numbers of intervals)."""
        left = []
        for ranges, others in zip(self.intervals, other.intervals, strict=True):
            pieces = list(ranges)
            for low, high in others:
                pieces = [
                    piece
                    for start, end in pieces
                    for piece in ((start, min(end, low)), (max(start, high), end))
                    if piece[0] < piece[1]
                ]
            left.append(pieces)
        return Positions(left)

    def covers(self, other: Positions) -> bool:
        """Return whether all positions of `other` are in the set."""
        return not any(other.without(self).intervals)

    def contain(self, split: int, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return bool[rows]: whether each position of a split is in the set."""
        inside = np.zeros(len(positions), np.bool_)
        for low, high in self.intervals[split]:
            inside |= (positions >= low) & (positions < high)
        return inside

    def contain_all(self, columns: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.bool_]:
        """Return bool[results]: whether all components of a result are in the set, given their positions by split."""
        inside = np.ones(len(columns[0]), np.bool_)
        for split, positions in enumerate(columns):
            inside &= self.contain(split, positions)
        return inside

    @property
    def rows(self) -> int:
        """The number of positions."""
        return sum(high - low for ranges in self.intervals for low, high in ranges)
