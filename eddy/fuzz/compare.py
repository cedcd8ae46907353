"""Compare a table of results with the expected rows. `eddy.fuzz.script` copies `compare` into the scripts it writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

Group = Sequence[tuple[Any, ...]]
"""Rows of results that may come in any order within the group."""


def compare(table: pa.Table, groups: Sequence[Group]) -> None:
    """Raise AssertionError unless the table has exactly the rows of the groups, in the order of the groups."""
    compare_rows(list(zip(*(column.to_pylist() for column in table.columns), strict=True)), groups)


def compare_rows(got: Sequence[tuple[Any, ...]], groups: Sequence[Group]) -> None:
    """Raise AssertionError unless these are exactly the rows of the groups, in the order of the groups."""
    wanted = [row for group in groups for row in group]
    missing, extra = Counter(wanted) - Counter(got), Counter(got) - Counter(wanted)
    if missing or extra:
        raise AssertionError(f"missing rows {list(missing.elements())}, extra rows {list(extra.elements())}")
    at = 0
    for group in groups:
        if Counter(got[at : at + len(group)]) != Counter(group):
            raise AssertionError(f"rows come in another order: {got}, not {wanted}")
        at += len(group)
