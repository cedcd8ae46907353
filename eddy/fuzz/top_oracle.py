"""The first rows of groups by definition: all rows are sorted anew. It imports nothing of ours.

Written from "First rows of groups" in `docs/guide/semantics.md`. A row is a mapping from column names to plain Python
values; its number says when it arrived. Values of one column are of one kind.

>>> rows = {(0,): {"k": 1, "x": 5}, (1,): {"k": 1, "x": None}, (2,): {"k": 1, "x": 7}, (3,): {"k": 2, "x": 0}}
>>> first_rows(rows, ["k"], [OracleOrder("x", descending=True)], 2)
{(1,): [(2,), (0,)], (2,): [(3,)]}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any

Row = Mapping[str, Any]
Number = tuple[Any, ...]
"""The arrival numbers of the components of a row, which identify it and decide between rows of equal order."""


@dataclass(frozen=True)
class OracleOrder:
    """A column of an order."""

    column: str
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class OracleTop:
    """The first n rows of each group."""

    n: int
    by: tuple[str, ...]
    order: tuple[OracleOrder, ...]

    def of(self, rows: Mapping[Number, Row]) -> dict[tuple[Any, ...], list[Number]]:
        """Return the numbers of the first rows of each group, in order."""
        return first_rows(rows, self.by, self.order, self.n)


def first_rows(
    rows: Mapping[Number, Row], by: Sequence[str], order: Sequence[OracleOrder], n: int
) -> dict[tuple[Any, ...], list[Number]]:
    """Return the numbers of the first n rows of each group by its key, in order."""
    groups: dict[tuple[Any, ...], list[Number]] = {}
    for number, row in rows.items():
        groups.setdefault(tuple(_unified(row[column]) for column in by), []).append(number)

    def compared(left: Number, right: Number) -> int:
        for sort_key in order:
            sign = _compared(rows[left][sort_key.column], rows[right][sort_key.column], sort_key)
            if sign:
                return sign
        return -1 if left < right else 1

    return {key: sorted(numbers, key=cmp_to_key(compared))[:n] for key, numbers in groups.items()}


def _compared(left: Any, right: Any, sort_key: OracleOrder) -> int:
    if left is None or right is None:
        if left is None and right is None:
            return 0
        return -1 if (left is None) == sort_key.nulls_first else 1
    sign = _values_compared(left, right)
    return -sign if sort_key.descending else sign


def _values_compared(left: Any, right: Any) -> int:
    """Return -1, 0 or 1; NaN is greater than all numbers, and equal to itself."""
    odd = left != left, right != right
    if any(odd):
        return 0 if all(odd) else 1 if odd[0] else -1
    return -1 if left < right else int(left > right)


def _unified(value: Any) -> Any:
    """Return a value such that Python's `==` says which values are in one group."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value


def changes(
    before: Mapping[tuple[Any, ...], Sequence[Number]], after: Mapping[tuple[Any, ...], Sequence[Number]], paired: bool
) -> list[tuple[Number | None, Number | None, int]]:
    """Return the difference of two answers: the row that was there, the row that is there, the place from 0 on.

    paired   whether the rows at one place of a group are one row before and after; else the place is 0
    """
    difference = list[tuple[Number | None, Number | None, int]]()
    for key in {**before, **after}:
        had, has = before.get(key, ()), after.get(key, ())
        if paired:
            for place in range(max(len(had), len(has))):
                old = had[place] if place < len(had) else None
                new = has[place] if place < len(has) else None
                if old != new:
                    difference.append((old, new, place))
        else:
            difference += [(old, None, 0) for old in had if old not in has]
            difference += [(None, new, 0) for new in has if new not in had]
    return difference
