"""Ranges of values, read out of expressions that compare columns with constants.

    (pc.field("x") >= 5) & (pc.field("x") < 9)      5 <= x <= 8
    pc.field("price") > 0.1                         the code of 0.1, plus 1 <= the code of price
    pc.field("symbol") == "EDY"                     symbol is "EDY"

A column of integers, doubles, dates or timestamps becomes *codes*: int64 in the order of the values, so that every
comparison with a constant is a range with both ends closed. Texts have no codes; they are compared for equality only.

Arrow gives the constants of an expression as text only. So the module reads an expression from its text, makes the
expression again, and compares the result with the original. An expression of any other form has no ranges, and Arrow
evaluates the expression.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from eddy.filters.conditions import Predicate
from eddy.filters.faults import FAILURES

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
EXACT = 1 << 53
"""Whole numbers up to this one are doubles without loss."""
Codes = npt.NDArray[np.int64]
_LEAF = re.compile(r"\((.+?) (>=|<=|==|>|<) (.+)\)", re.DOTALL)
_COMPARE: dict[str, Callable[[Any, Any], pc.Expression]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_TURNED = {">=": "<=", "<=": ">=", "==": "==", ">": "<", "<": ">"}


class ColumnRange(NamedTuple):
    """A condition on one column: the code of the value is from low to high, or a text is equal to a constant."""

    column: str
    low: int
    high: int
    text: str | None = None


def ranges_of(condition: Predicate, schema: pa.Schema) -> list[ColumnRange] | None:
    """Return the ranges that hold together exactly where a condition does; None for a condition of another form.

    >>> [(r.low, r.high) for r in ranges_of(Predicate(pc.field("a") > 3), pa.schema([("a", pa.int8())]))]
    [(4, 9223372036854775807)]
    """
    if not isinstance(condition.function, pc.Expression):
        return None
    text = str(condition.function)
    for literal in (_natural, _of_column):
        found: list[ColumnRange] = []
        made = _read(text, schema, literal, found)
        if made is not None and made.equals(condition.function):
            return found
    return None


def codes(column: pa.Array) -> tuple[Codes, npt.NDArray[np.bool_] | None]:
    """Return the codes of a column, int64[rows], and whether each row has a code; None if all rows have codes."""
    valid = None if not column.null_count else np.asarray(column.is_valid())
    kind = column.type
    if pt.is_floating(kind):
        values = np.asarray(column.fill_null(0.0)) + 0.0  # -0.0 is equal to 0.0
        unordered = np.isnan(values)
        if unordered.any():
            valid = ~unordered if valid is None else valid & ~unordered
        bits = values.view(np.int64)
        return np.where(bits < 0, bits ^ GREATEST, bits), valid
    if not pt.is_integer(kind):
        column = column.view(pa.int32() if pt.is_date32(kind) else pa.int64())
    return np.asarray(column.fill_null(0)).astype(np.int64, copy=False), valid


# Reading


def _read(text: str, schema: pa.Schema, literal: _Literal, found: list[ColumnRange]) -> pc.Expression | None:
    """Return the expression with this text, and add its ranges; None if the expression has no ranges."""
    if text.startswith("(("):
        for left, right in _halves(text):
            one = _read(left, schema, literal, found)
            other = None if one is None else _read(right, schema, literal, found)
            return None if other is None else one & other
        return None
    match = _LEAF.fullmatch(text)
    if match is None:
        return None
    name, op, constant = match.groups()
    turned = name not in schema.names
    if turned:
        name, constant = constant, name
    if schema.names.count(name) != 1:
        return None
    kind = schema.field(name).type
    value = literal(constant, kind)
    bound = None if value is None else _range(name, kind, _TURNED[op] if turned else op, value)
    if value is None or bound is None:
        return None
    found.append(bound)
    sides = (pc.scalar(value), pc.field(name)) if turned else (pc.field(name), pc.scalar(value))
    return _COMPARE[op](*sides)


def _halves(text: str) -> Iterator[tuple[str, str]]:
    """Yield the two sides of "(left and right)", if the text has this form."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 1 and letter == ")" and text.startswith(" and ", at + 1):
            yield text[1 : at + 1], text[at + 6 : -1]
            return


_Literal = Callable[[str, pa.DataType], pa.Scalar | None]


def _natural(text: str, kind: pa.DataType) -> pa.Scalar | None:
    """Return a constant as Arrow makes the constant of a Python value; `kind` is the type of the column."""
    try:
        if pt.is_timestamp(kind):
            return pa.scalar(text.removesuffix("Z")).cast(pa.timestamp("us")).cast(pa.timestamp("us", _zone(text)))
        if pt.is_date32(kind):
            return pa.scalar(text).cast(kind)
        value = json.loads(text)
        return pa.scalar(value) if type(value) in (int, float, str) else None
    except (ValueError, OverflowError, *FAILURES):
        return None


def _of_column(text: str, kind: pa.DataType) -> pa.Scalar | None:
    """Return a constant that has the type of the column."""
    try:
        value = pa.scalar(json.loads(text) if text.startswith('"') else text.removesuffix("Z"))
        if pt.is_timestamp(kind) and kind.tz is not None:
            return value.cast(pa.timestamp(kind.unit)).cast(kind)
        return value.cast(kind)
    except (ValueError, *FAILURES):
        return None


def _zone(text: str) -> str | None:
    return "UTC" if text.endswith("Z") else None


def _range(name: str, kind: pa.DataType, op: str, value: pa.Scalar) -> ColumnRange | None:
    """Return the values of a column for which a comparison holds; None if they have no codes."""
    if pt.is_string(kind) or pt.is_large_string(kind):
        same = op == "==" and (pt.is_string(value.type) or pt.is_large_string(value.type))
        return ColumnRange(name, 0, 0, value.as_py()) if same else None
    code = _code(value, kind)
    if code is None:
        return None
    low = code if op in (">=", "==") else code + 1 if op == ">" else LEAST
    high = code if op in ("<=", "==") else code - 1 if op == "<" else GREATEST
    return ColumnRange(name, low, high)


def _code(value: pa.Scalar, kind: pa.DataType) -> int | None:
    """Return the code of a constant in a column; None where Arrow might compare the constant in another way."""
    if pt.is_float64(kind):
        given = value.as_py()
        if type(given) not in (int, float) or given != given or (type(given) is int and abs(given) > EXACT):
            return None
        return int(codes(pa.array([given], pa.float64()))[0][0])
    if pt.is_integer(kind) and not pt.is_uint64(kind):
        return value.as_py() if pt.is_integer(value.type) else None
    if pt.is_date32(kind) or pt.is_timestamp(kind):
        try:
            return int(value.cast(kind).value)
        except FAILURES:
            return None
    return None
