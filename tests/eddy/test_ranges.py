"""Ranges read out of expressions hold exactly where Arrow says that the expression does."""

from __future__ import annotations

import datetime as dt
import operator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.filters.conditions import Predicate, mask_of
from eddy.filters.ranges import ColumnRange, codes, ranges_of

COMPARE = (operator.ge, operator.gt, operator.le, operator.lt, operator.eq)
MOMENTS = [dt.datetime(2026, 1, day, 12, tzinfo=dt.UTC) for day in range(1, 6)]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "byte": (pa.int8(), [-128, -1, 0, 1, 127]),
    "long": (pa.int64(), [-(2**63), -(2**53) - 1, -1, 0, 1, 2**53 + 1, 2**63 - 1]),
    "double": (pa.float64(), [float("-inf"), -1e300, -0.1, -0.0, 0.0, 0.1, 5.0, 1e300, float("inf"), float("nan")]),
    "moment": (pa.timestamp("ns", "Europe/Berlin"), MOMENTS),
    "local": (pa.timestamp("us"), [one.replace(tzinfo=None) for one in MOMENTS]),
    "day": (pa.date32(), [one.date() for one in MOMENTS]),
    "text": (pa.string(), ["", "a", 'a"b', "a'b", "a and b", "ä"]),
    "x (y > 3)": (pa.int32(), [1, 3, 5]),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])


def rows(seed: int, count: int = 60) -> pa.RecordBatch:
    chance = np.random.default_rng(seed)
    return pa.record_batch(
        [pa.array([None, *(chance.choice(np.array(pool, object), count))], kind) for kind, pool in COLUMNS.values()],
        schema=SCHEMA,
    )


def held(ranges: Any, batch: pa.RecordBatch) -> np.ndarray:
    """Return where ranges hold."""
    found = np.ones(len(batch), bool)
    for one in ranges:
        column = batch.column(one.column)
        if one.text is not None:
            found &= np.array([value == one.text for value in column.to_pylist()])
            continue
        values, valid = codes(column)
        found &= [one.low <= int(value) <= one.high for value in values]
        found &= True if valid is None else valid
    return found


@st.composite
def comparisons(draw: Any) -> tuple[str, pc.Expression]:
    name = draw(st.sampled_from(sorted(set(COLUMNS) - {"x (y > 3)"})))
    kind, pool = COLUMNS[name]
    value = draw(st.sampled_from(pool))
    compare = operator.eq if name == "text" else draw(st.sampled_from(COMPARE))
    given = pa.scalar(value, kind) if name == "moment" or draw(st.booleans()) else value
    if draw(st.booleans()):
        return name, compare(pc.scalar(given), pc.field(name))
    return name, compare(pc.field(name), given)


@given(st.lists(comparisons(), min_size=1, max_size=4), st.integers(0, 3))
def test_ranges_hold_where_the_expression_does(drawn: list[tuple[str, pc.Expression]], seed: int) -> None:
    expression = drawn[0][1]
    for _, one in drawn[1:]:
        expression = expression & one
    batch = rows(seed)
    found = ranges_of(Predicate(expression), SCHEMA)
    if found is not None:
        wanted = mask_of(Predicate(expression), batch, "test")[0]
        assert held(found, batch).tolist() == wanted.tolist()


@pytest.mark.parametrize("compare", COMPARE)
@pytest.mark.parametrize("name", sorted(set(COLUMNS) - {"x (y > 3)", "text"}))
def test_comparisons_with_constants_have_ranges(name: str, compare: Any) -> None:
    for value in COLUMNS[name][1]:
        if value != value or value == -(2**63):
            continue
        given = pa.scalar(value, COLUMNS[name][0]) if name == "moment" else value  # zones must be the same
        for expression in (compare(pc.field(name), given), compare(pc.scalar(given), pc.field(name))):
            assert ranges_of(Predicate(expression), SCHEMA) is not None, expression


@pytest.mark.parametrize("text", COLUMNS["text"][1])
def test_texts_are_compared_for_equality(text: str) -> None:
    assert ranges_of(Predicate(pc.field("text") == text), SCHEMA) == [ColumnRange("text", 0, 0, text)]


@pytest.mark.parametrize(
    "expression",
    [
        pc.field("byte") != 3,
        (pc.field("byte") > 3) | (pc.field("byte") < 1),
        ~(pc.field("byte") > 3),
        pc.field("byte").isin([1, 2]),
        pc.field("byte") > pc.field("long"),
        pc.field("long") > 0.5,
        pc.field("double") > 2**53 + 1,
        pc.field("text") > "a",
        pc.field("double") > float("nan"),
        pc.add(pc.field("byte"), 1) > 3,
        pc.field("byte").is_valid(),
    ],
    ids=str,
)
def test_other_expressions_have_none(expression: pc.Expression) -> None:
    assert ranges_of(Predicate(expression), SCHEMA) is None


@pytest.mark.parametrize("value", [pa.scalar(10**30, pa.decimal128(38, 0)), pa.scalar(2**64 - 1, pa.uint64())], ids=str)
def test_constants_beyond_64_bits_have_none(value: pa.Scalar) -> None:
    assert ranges_of(Predicate(pc.field("a") > value), pa.schema([("a", value.type)])) is None


def test_a_function_has_no_ranges() -> None:
    assert ranges_of(Predicate(lambda batch: batch["byte"]), SCHEMA) is None


def test_names_that_look_like_expressions_are_read_right_or_not_at_all() -> None:
    batch = rows(1)
    for expression in (pc.field("x (y > 3)") > 2, (pc.field("x (y > 3)") > 2) & (pc.field("byte") < 3)):
        found = ranges_of(Predicate(expression), SCHEMA)
        if found is not None:
            assert held(found, batch).tolist() == mask_of(Predicate(expression), batch, "test")[0].tolist()
