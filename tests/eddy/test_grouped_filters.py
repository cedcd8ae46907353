"""Grouped filters accept for each version what its own ranges accept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.filters.ranges import GREATEST, LEAST, ColumnRange
from eddy.queries.grouped_filters import GroupedFilters

ENDS = [LEAST - 1, LEAST, LEAST + 1, -3, 0, 2, 5, GREATEST - 1, GREATEST, GREATEST + 1]
VALUES = [LEAST, LEAST + 1, -4, -3, 0, 1, 2, 3, 5, GREATEST - 1, GREATEST]
TEXTS = ["", "a", "b", "c"]


@st.composite
def ranges(draw: Any) -> ColumnRange:
    if draw(st.booleans()):
        return ColumnRange("text", 0, 0, draw(st.sampled_from(TEXTS)))
    return ColumnRange(draw(st.sampled_from("xy")), draw(st.sampled_from(ENDS[1:])), draw(st.sampled_from(ENDS[:-1])))


@given(st.lists(st.lists(ranges(), max_size=3), min_size=1, max_size=140), st.integers(0, 1000), st.integers(0, 40))
def test_each_version_gets_the_rows_that_it_accepts(given: list[list[ColumnRange]], seed: int, n: int) -> None:
    chance = np.random.default_rng(seed)
    x: list[Any] = [int(one) for one in chance.choice(np.array(VALUES, object), n)]
    text = [None if one == "c" else one for one in chance.choice(TEXTS, n).tolist()]
    y = [None if one == 5 else one for one in x[::-1]]
    columns: dict[str, Any] = {
        "x": np.array(x, np.int64),
        "y": pa.array(y, pa.int64()),
        "text": pa.array(text, pa.large_string()),
    }

    def held(one: ColumnRange, row: int) -> bool:
        if one.text is not None:
            return text[row] == one.text
        value = x[row] if one.column == "x" else y[row]
        return value is not None and one.low <= value <= one.high

    wanted = [[row for row in range(n) if all(held(one, row) for one in own)] for own in given]
    filters = GroupedFilters(given)
    found = filters.share(n, columns.__getitem__)
    rows = {version: list(range(n)) if one is None else one.tolist() for version, one in found.items()}
    assert [rows.get(version, []) for version in range(len(given))] == wanted
    assert all(rows.values()) or not n
    union = filters.wanted(n, columns.__getitem__)
    assert (list(range(n)) if union is None else union.tolist()) == sorted({row for own in wanted for row in own})


@pytest.mark.parametrize("versions", [1, 63, 64, 65, 128])
def test_a_column_in_one_cell_is_asked_once(versions: int) -> None:
    filters = GroupedFilters([[ColumnRange("x", version, GREATEST)] for version in range(versions)])
    found = filters.share(3, lambda _: np.array([versions - 2] * 3, np.int64))
    assert found == dict.fromkeys(range(versions - 1))
    assert filters.wanted(3, lambda _: np.array([-1] * 3, np.int64)) is not None
