"""Grouped filters accept for each version what its own ranges accept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.filters.ranges import GREATEST, LEAST, NULL, NULL_TEXT, ColumnSet, both, either, outside, within
from eddy.queries.grouped_filters import GroupedFilters

ENDS = [LEAST - 1, LEAST, LEAST + 1, -3, 0, 2, 5, GREATEST - 1, GREATEST, GREATEST + 1]
VALUES = [LEAST, LEAST + 1, -4, -3, 0, 1, 2, 3, 5, GREATEST - 1, GREATEST]
TEXTS = ["", "a", "aa", "b", "bä", "ä"]
TEXT_ENDS = [(text.encode(), after) for text in [*TEXTS, "ab"] for after in (0, 1)] + [(b"\xff", 0)]


_NULL, _NULL_TEXT = (st.sampled_from(((), (), null)) for null in (NULL, NULL_TEXT))


@st.composite
def sets(draw: Any) -> ColumnSet:
    if draw(st.booleans()):
        pairs = draw(st.lists(st.tuples(st.sampled_from(TEXT_ENDS), st.sampled_from(TEXT_ENDS)), max_size=3))
        return ColumnSet("text", either(tuple(pair for pair in pairs if pair[0] < pair[1]), draw(_NULL_TEXT)))
    pairs = draw(st.lists(st.tuples(st.sampled_from(ENDS[1:]), st.sampled_from(ENDS[:-1])), max_size=3))
    return ColumnSet(draw(st.sampled_from("xy")), either(draw(_NULL), *(within(*pair) for pair in pairs)))


def inside(position: Any, ranges: Any) -> bool:
    return any(low <= position < end for low, end in ranges)


@given(st.lists(st.lists(sets(), max_size=3), min_size=1, max_size=140), st.integers(0, 1000), st.integers(0, 40))
def test_each_version_gets_the_rows_that_it_accepts(given: list[list[ColumnSet]], seed: int, n: int) -> None:
    chance = np.random.default_rng(seed)
    x: list[Any] = [int(number) for number in chance.choice(np.array(VALUES, object), n)]
    text = [None if word == "b" else word for word in chance.choice(TEXTS, n).tolist()]
    y = [None if number == 5 else number for number in x[::-1]]
    columns: dict[str, Any] = {
        "x": np.array(x, np.int64),
        "y": pa.array(y, pa.int64()),
        # As a slice of a longer array.
        "text": pa.array(["z", *text], pa.large_string() if seed % 2 else pa.string())[1:],
    }

    def held(column_set: ColumnSet, row: int) -> bool:
        value = {"x": x, "y": y, "text": text}[column_set.column][row]
        if value is None:
            value = (b"", -1) if column_set.column == "text" else LEAST - 1
        return inside((value.encode(), 0) if isinstance(value, str) else value, column_set.ranges)

    wanted = [
        [row for row in range(n) if all(held(column_set, row) for column_set in column_sets)] for column_sets in given
    ]
    filters = GroupedFilters(given)
    shares = filters.share(n, columns.__getitem__)
    rows = {version: list(range(n)) if accepted is None else accepted.tolist() for version, accepted in shares.items()}
    assert [rows.get(version, []) for version in range(len(given))] == wanted
    assert all(rows.values()) or not n
    union = filters.wanted(n, columns.__getitem__)
    assert (list(range(n)) if union is None else union.tolist()) == sorted(
        {row for accepted in wanted for row in accepted}
    )


@given(st.data())
def test_sets_of_ranges_are_sets(data: Any) -> None:
    pairs = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=4)
    ranges, other = (either(tuple(p for p in data.draw(pairs) if p[0] < p[1])) for _ in range(2))
    for combined, holds in (
        (both(ranges, other), lambda v: inside(v, ranges) and inside(v, other)),
        (either(ranges, other), lambda v: inside(v, ranges) or inside(v, other)),
        (outside(ranges, ((0, 10),)), lambda v: not inside(v, ranges)),
    ):
        assert [inside(value, combined) for value in range(10)] == [holds(value) for value in range(10)]
        ends = [end for pair in combined for end in pair]
        assert ends == sorted(ends)
        assert all(low < end for low, end in combined)


@pytest.mark.parametrize("versions", [1, 63, 64, 65, 128])
def test_a_column_in_one_cell_is_asked_once(versions: int) -> None:
    filters = GroupedFilters([[ColumnSet("x", within(version, GREATEST))] for version in range(versions)])
    shares = filters.share(3, lambda _: np.array([versions - 2] * 3, np.int64))
    assert shares == dict.fromkeys(range(versions - 1))
    assert filters.wanted(3, lambda _: np.array([-1] * 3, np.int64)) is not None
