"""Ranges read out of expressions hold exactly where Arrow says that the expression does."""

from __future__ import annotations

import datetime as dt
import functools
import math
import operator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddy.filters.conditions import Predicate, mask_of
from eddy.filters.ranges import LEAST, codes, is_text, ranges_of

COMPARE = (operator.ge, operator.gt, operator.le, operator.lt, operator.eq, operator.ne)
MOMENTS = [dt.datetime(2026, 1, day, 12, tzinfo=dt.UTC) for day in range(1, 6)]
NAN = float("nan")
FLOATS = [float("-inf"), -1e30, -0.1, -0.0, 0.0, 0.1, 5.0, 1e30, float("inf"), NAN, math.copysign(NAN, -1.0)]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False]),
    "byte": (pa.int8(), [-128, -1, 0, 1, 127]),
    "long": (pa.int64(), [-(2**63), -(2**53) - 1, -1, 0, 1, 2**53 + 1, 2**63 - 1]),
    "huge": (pa.uint64(), [0, 1, 2**63 - 1, 2**63, 2**64 - 1]),
    "float": (pa.float32(), FLOATS),
    "double": (pa.float64(), FLOATS),
    "price": (
        pa.decimal128(12, 2),
        [Decimal(text) for text in ("-1.00", "0.00", "0.01", "0.10", "5.00", "9999999999.99")],
    ),
    "moment": (pa.timestamp("ns", "Europe/Berlin"), MOMENTS),
    "local": (pa.timestamp("us"), [moment.replace(tzinfo=None) for moment in MOMENTS]),
    "day": (pa.date32(), [moment.date() for moment in MOMENTS]),
    "text": (pa.string(), ["", "a", 'a"b', "a'b", "a and b", "(a or", "ab%", "b", "ä"]),
    "word": (pa.string(), ["", "a", "b"]),
    "x (y > 3)": (pa.int32(), [1, 3, 5]),
}
ROWS = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])
SCHEMA = ROWS.set(ROWS.get_field_index("word"), pa.field("word", pa.dictionary(pa.int8(), pa.string())))
"""The columns that a stream declares. Rows are decoded when they come."""
TYPED = ("moment", "price", "huge")
"""Columns whose constants have the same type: zone, scale or sign."""
PLAIN = sorted(set(COLUMNS) - {"x (y > 3)"})


def rows(seed: int, count: int = 60) -> pa.RecordBatch:
    chance = np.random.default_rng(seed)
    made = pa.record_batch(
        [pa.array([None, *(chance.choice(np.array(pool, object), count))], kind) for kind, pool in COLUMNS.values()],
        schema=ROWS,
    )
    return made.slice(seed)


def held(sets: Any, batch: pa.RecordBatch) -> list[bool]:
    """Return where sets hold."""
    mask = np.ones(len(batch), bool)
    for name, ranges in sets:
        column = batch.column(name)
        if is_text(column.type):
            places: list[Any] = [(b"", -1) if text is None else (text.encode(), 0) for text in column.to_pylist()]
        else:
            values, valid = codes(column)
            places = [int(code) if valid is None or valid[row] else LEAST - 1 for row, code in enumerate(values)]
        mask &= [any(low <= place < end for low, end in ranges) for place in places]
    return [bool(flag) for flag in mask]


def leaf(name: str, draw: Any) -> pc.Expression:
    """Return a condition on a column."""
    kind, pool = COLUMNS[name]
    field, pick = pc.field(name), draw(st.integers(0, 9))
    if pick == 0:
        return field.is_valid() if draw(st.booleans()) else field.is_null()
    if pick == 1 and name == "flag":
        return field
    if pick < 4:
        values = [*draw(st.lists(st.sampled_from(pool), min_size=1, max_size=30)), *[None][: draw(st.integers(0, 1))]]
        return field.isin(pa.array(values, kind))
    if pick < 6 and name in ("text", "word"):
        prefix = draw(st.sampled_from(["", "a", "a ", "ab%", "ä"]))
        return (
            pc.starts_with(field, prefix) if pick == 4 else pc.match_like(field, prefix + draw(st.sampled_from("%x")))
        )
    value = draw(st.sampled_from(pool))
    compare = draw(st.sampled_from(COMPARE))
    given = pa.scalar(value, kind) if name in TYPED or draw(st.booleans()) else value
    if draw(st.booleans()):
        return compare(pc.scalar(given), field)
    return compare(field, given)


@st.composite
def conditions(draw: Any) -> pc.Expression:
    """Draw a conjunction of conditions; each is on one column, most of them."""
    made = []
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(PLAIN))
        condition = leaf(name, draw)
        for _ in range(draw(st.integers(0, 3))):
            match draw(st.integers(0, 3)):
                case 0:
                    condition = ~condition
                case 1:
                    condition = condition & leaf(name, draw)
                case _:
                    condition = condition | leaf(
                        name if draw(st.integers(0, 9)) else draw(st.sampled_from(PLAIN)), draw
                    )
        made.append(condition)
    return functools.reduce(operator.and_, made)


@given(conditions(), st.integers(0, 3))
def test_ranges_hold_where_the_expression_does(expression: pc.Expression, seed: int) -> None:
    batch = rows(seed)
    ranges = ranges_of(Predicate(expression), SCHEMA)
    if ranges is not None:
        assert held(ranges, batch) == mask_of(Predicate(expression), batch, "test")[0].tolist()


@pytest.mark.parametrize("compare", COMPARE)
@pytest.mark.parametrize("name", sorted(set(PLAIN) - {"text"}))
def test_comparisons_with_constants_have_ranges(name: str, compare: Any) -> None:
    for value in COLUMNS[name][1]:
        if value != value or value == -(2**63):
            continue
        given = pa.scalar(value, COLUMNS[name][0]) if name in TYPED else value
        for expression in (compare(pc.field(name), given), compare(pc.scalar(given), pc.field(name))):
            ranges, batch = ranges_of(Predicate(expression), SCHEMA), rows(3)
            assert ranges is not None, expression
            assert held(ranges, batch) == mask_of(Predicate(expression), batch, "test")[0].tolist()


@pytest.mark.parametrize("text", COLUMNS["text"][1])
def test_conditions_on_texts_have_ranges(text: str) -> None:
    field = pc.field("text")
    for condition in (field == text, field > text, field.isin([text, "x"]), pc.starts_with(field, text)):
        ranges = ranges_of(Predicate(condition), SCHEMA)
        assert ranges is not None, condition
        batch = rows(1)
        assert held(ranges, batch) == mask_of(Predicate(condition), batch, "test")[0].tolist()


BYTE, LONG, TEXT = (pc.field(name) for name in ("byte", "long", "text"))


@pytest.mark.parametrize(
    "expression",
    [
        (BYTE > 3) | (BYTE < 1),
        ((BYTE > 3) & (BYTE != 7)) | (BYTE == 1),
        ~(BYTE > 3),
        BYTE.isin(list(range(100))),
        BYTE.isin([1, 2]) & LONG.isin(list(range(50))) & (TEXT == "(a or"),
        functools.reduce(operator.or_, [value == LONG for value in range(190)]),
        pc.match_like(TEXT, "a b%"),
        ~BYTE.isin([1, 2]),
        ~BYTE.isin([1, None]) | (BYTE == 1),
        BYTE.is_null() | (BYTE > 3),
        ~(BYTE.is_valid() & (BYTE > 0)),
        pc.field("huge").isin([1, 5]),
        pc.field("word").isin(["a", None]),
        ~pc.field("flag") & (pc.field("price") >= Decimal(5)),
    ],
    ids=str,
)
def test_conditions_on_one_column_have_ranges(expression: pc.Expression) -> None:
    ranges = ranges_of(Predicate(expression), SCHEMA)
    assert ranges is not None
    batch = rows(2)
    assert held(ranges, batch) == mask_of(Predicate(expression), batch, "test")[0].tolist()


@pytest.mark.parametrize(
    "expression",
    [
        (BYTE > 3) | (LONG < 1),
        ~((BYTE > 3) & (LONG < 1)),
        pc.field("double").isin([0.0]),
        BYTE > LONG,
        LONG > 0.5,
        pc.field("double") > 2**53 + 1,
        pc.field("double") > float("nan"),
        pc.field("price") > 0.5,
        pc.field("price") > 5,
        pc.match_like(TEXT, "a_%"),
        pc.starts_with(TEXT, "a", ignore_case=True),
        pc.add(BYTE, 1) > 3,
        pc.field("double").is_null(nan_is_null=True),
        pc.field("huge") > 5,
        pc.field("huge").isin([-1, 5]),
    ],
    ids=str,
)
def test_other_expressions_have_none(expression: pc.Expression) -> None:
    assert ranges_of(Predicate(expression), SCHEMA) is None


def test_constants_beyond_64_bits_have_none() -> None:
    value = pa.scalar(10**30, pa.decimal128(38, 0))
    assert ranges_of(Predicate(pc.field("a") > value), pa.schema([("a", value.type)])) is None


def test_a_function_has_no_ranges() -> None:
    assert ranges_of(Predicate(lambda batch: batch["byte"]), SCHEMA) is None


def test_names_that_look_like_expressions_are_read_right_or_not_at_all() -> None:
    batch = rows(1)
    for expression in (pc.field("x (y > 3)") > 2, (pc.field("x (y > 3)") > 2) & (pc.field("byte") < 3)):
        ranges = ranges_of(Predicate(expression), SCHEMA)
        if ranges is not None:
            assert held(ranges, batch) == mask_of(Predicate(expression), batch, "test")[0].tolist()
