"""Compare a changelog with the expected changes; `eddy.fuzz.tables.script` copies this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eddy.fuzz.compare import compare_rows

Change = tuple[Any, ...]
"""A row of a changelog: its operation, then its values."""


def pairs_of(rows: Sequence[Change]) -> list[tuple[Change, ...]]:
    """Return rows with both members of a pair as one."""
    pairs: list[tuple[Change, ...]] = []
    for row in rows:
        if row[0] == "+U" and pairs and len(pairs[-1]) == 1 and pairs[-1][0][0] == "-U":
            pairs[-1] = pairs[-1][0], row
        else:
            pairs.append((row,))
    return pairs


def compare_changes(rows: Sequence[Change], groups: Sequence[Sequence[Change]], key: Sequence[int] | None) -> None:
    """Raise AssertionError unless these are the rows of the groups; pairs are adjacent.

    key   of rows by key: the numbers of the columns that a deleted row is known by
    """
    if key is not None:
        by_key = [(row[0], *(row[1 + k] for k in key)) if row[0] == "-D" else row for row in rows]
        compare_rows(by_key, groups)
        return
    compare_rows(pairs_of(rows), [pairs_of(group) for group in groups])
