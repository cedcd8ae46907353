"""Values of scalar expressions: an Arrow expression with its type, and the conversions between types."""

from __future__ import annotations

import decimal
import math
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from eddy.expressions.kinds import DIGITS, MOST_DIGITS, as_decimal, common, digits_of, family, wide
from eddy.expressions.kinds import decimal as decimal_type
from eddy.expressions.local_times import floored, local_date
from eddy.streams.key_types.times import UNITS

FLOOR_UNITS = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}


class Value(NamedTuple):
    """The value of a scalar expression.

    arrow    the expression
    kind     its type
    digits   the most digits of integers
    literal  the Python value of a constant, None for others and NULL
    """

    arrow: pc.Expression
    kind: pa.DataType
    digits: int = DIGITS[64]
    literal: Any = None

    @property
    def family(self) -> str:
        """The family of its type."""
        return family(self.kind)


def of_column(name: str, kind: pa.DataType) -> Value:
    """Return the value of a column."""
    digits = digits_of(kind) if family(kind) == "integer" else DIGITS[64]
    return Value(pc.field(name), kind, digits)


def constant(value: Any, kind: pa.DataType, digits: int = DIGITS[64]) -> Value:
    """Return a constant."""
    return Value(pc.scalar(pa.scalar(value, kind)), kind, digits, value)


def null(kind: pa.DataType) -> pc.Expression:
    """Return NULL of a type."""
    return pc.scalar(pa.scalar(None, kind))


def number(text: str) -> Value | None:
    """Return the number in a text: an integer, a decimal, or with an exponent a float; None for no number."""
    try:
        if "e" in text.lower():
            return _float(text)
        exact = decimal.Decimal(text)
    except (ValueError, decimal.InvalidOperation):
        return None
    _, digits, exponent = exact.as_tuple()
    scale = max(0, -int(exponent))
    if scale == 0 and -(1 << 63) <= exact < 1 << 63:
        return constant(int(exact), pa.int64(), max(len(digits), 1))
    kind = decimal_type(max(len(digits), scale, 1), scale)
    return _float(text) if kind is None else constant(exact, kind)


def _float(text: str) -> Value | None:
    parsed = float(text)
    return None if math.isinf(parsed) else constant(parsed, pa.float64())


def converted(value: Value, kind: pa.DataType) -> Value:
    """Return a value in a type to which its own type can be widened without loss."""
    if value.kind == kind:
        return value
    if value.family == "null":
        return Value(null(kind), kind)
    if isinstance(value.literal, decimal.Decimal) and family(kind) == "float":
        # The conversion of Arrow may give a neighbour of the nearest float.
        return constant(float(value.literal), kind)
    if value.family == "integer" and family(kind) == "decimal":
        # Arrow requires room for all digits of the integer's type.
        return Value(value.arrow.cast(pa.int64()).cast(_roomy(kind)).cast(kind), kind)
    if value.family == "date" and family(kind) == "timestamp":
        return Value(value.arrow.cast(pa.date32()).cast(kind), kind, literal=value.literal)
    return Value(value.arrow.cast(kind), kind, value.digits, value.literal)


def _roomy(kind: pa.DataType) -> pa.DataType:
    return pa.decimal128(min(MOST_DIGITS, max(kind.precision, DIGITS[64] + kind.scale)), kind.scale)


def widened(value: Value) -> Value:
    """Return a value in the type in which its family is computed."""
    return converted(value, wide(value.kind))


def unified(values: list[Value]) -> tuple[list[Value], pa.DataType] | None:
    """Return values in their common type, and the type; None if there is none."""
    wide_values = [widened(value) for value in values]
    kind = common([(value.kind, value.digits) for value in wide_values])
    return None if kind is None else ([converted(value, kind) for value in wide_values], kind)


def arithmetic(values: list[Value]) -> list[Value]:
    """Return numbers in one family: integers, decimals or floats."""
    wide_values = [widened(value) for value in values]
    families = {value.family for value in wide_values} - {"null"}
    if "float" in families:
        return [converted(value, pa.float64()) for value in wide_values]
    if "decimal" in families:
        return [converted(v, as_decimal(v.kind, v.digits)) if v.family != "null" else v for v in wide_values]
    return [converted(value, pa.int64()) for value in wide_values]


# Explicit conversions


def cast(value: Value, kind: pa.DataType) -> Value | None:
    """Return CAST(value AS kind), None if the types exclude it. Evaluation fails for values that do not fit.

    A fraction is cut off if the type is an integer, and rounded, half away from zero, if it is a decimal.
    """
    source, target = value.family, family(kind)
    if source == "null":
        return Value(null(kind), kind)
    arrow, source_kind = value.arrow, value.kind
    if source == target == "timestamp":
        return _to_unit(value, kind)
    if (source, target) in _PLAIN_CASTS or source == target != "decimal":
        return Value(
            arrow.cast(wide(source_kind)).cast(kind), kind, literal=value.literal if source == target else None
        )
    if target == "integer" and source in ("float", "decimal"):
        return Value(pc.trunc(arrow.cast(wide(source_kind))).cast(pa.int64()).cast(kind), kind)
    if source == "integer" and target == "decimal":
        return converted(value, kind)
    if source == target == "decimal":
        room = pa.decimal128(min(source_kind.precision + 1, MOST_DIGITS), source_kind.scale)
        rounded = pc.round(arrow.cast(room), ndigits=kind.scale, round_mode="half_towards_infinity")
        return Value((rounded if kind.scale < source_kind.scale else arrow).cast(kind), kind)
    if source == "string" and target in ("integer", "float", "decimal", "boolean", "date", "timestamp"):
        trimmed = pc.utf8_trim(arrow.cast(wide(source_kind)), characters=" ")
        if target == "date":
            return Value(trimmed.cast(pa.timestamp("s")).cast(pa.date32()), pa.date32())
        return Value(trimmed.cast(kind), kind)
    if source == "boolean" and target == "integer":
        return Value(arrow.cast(kind), kind)
    if source == "integer" and target == "boolean":
        return Value(pc.not_equal(arrow, pc.scalar(pa.scalar(0, source_kind))), kind)
    if source == "date" and target == "timestamp" and kind.tz is None:
        return converted(value, kind)
    if source == "timestamp" and target == "date":
        return Value(local_date(arrow, source_kind), pa.date32())
    return None


_PLAIN_CASTS = {
    ("integer", "float"),
    ("decimal", "float"),
    ("float", "decimal"),
    ("integer", "string"),
    ("decimal", "string"),
    ("boolean", "string"),
    ("date", "string"),
    ("timestamp", "string"),
}


def _to_unit(value: Value, kind: pa.DataType) -> Value | None:
    if (value.kind.tz is None) != (kind.tz is None):
        return None
    arrow = value.arrow
    if UNITS.index(kind.unit) < UNITS.index(value.kind.unit):
        arrow = floored(arrow, value.kind, FLOOR_UNITS[kind.unit])
    return Value(arrow.cast(kind), kind)


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are strings."""
    return bool(pt.is_string(kind) or pt.is_large_string(kind))
