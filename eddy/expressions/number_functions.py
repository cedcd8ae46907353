"""Functions of numbers, and of the greatest and the least of several values."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from eddy.expressions.calls import Call, Operands, Parts, whole_number
from eddy.expressions.kinds import MOST_DIGITS, family, name_of
from eddy.expressions.values import Value, converted, widened


def _float(make: Callable[[pc.Expression], pc.Expression]) -> Call:
    """A function of one number that gives a float."""

    def made(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
        (value,) = operands.numbers(node, *parts)
        return Value(make(converted(widened(value), pa.float64()).arrow), pa.float64())

    return Call(1, 1, made)


def _kept(make: Callable[[pc.Expression], pc.Expression], whole: bool = False) -> Call:
    """A function of one number that keeps the type; `whole` = it leaves integers as they are."""

    def made(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
        value = widened(operands.numbers(node, *parts)[0])
        if value.family == "null" or (whole and value.family == "integer"):
            return value
        if whole:
            value = _with_room(value)
        return Value(make(value.arrow), value.kind)

    return Call(1, 1, made)


def _with_room(value: Value) -> Value:
    """Return a number with room for one more digit, which rounding may need."""
    if value.family != "decimal":
        return value
    return converted(value, pa.decimal128(min(value.kind.precision + 1, MOST_DIGITS), value.kind.scale))


def _round(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
    value = widened(operands.numbers(node, parts[0])[0])
    digits = whole_number(operands, parts[1], "the number of digits") if len(parts) > 1 else 0
    if value.family == "null" or (value.family == "integer" and digits >= 0):
        return value
    if value.family == "decimal" and digits >= value.kind.scale:
        return value
    value = _with_room(value)
    return Value(pc.round(value.arrow, ndigits=digits, round_mode="half_towards_infinity"), value.kind)


def _floor_or_ceil(make: Callable[[pc.Expression], pc.Expression]) -> Call:
    def made(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
        if len(parts) > 1:
            raise operands.error(node, "FLOOR and CEIL take one number; write ROUND for digits")
        return _kept(make, whole=True).make(operands, node, parts)

    return Call(1, 2, made)


def _power(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
    values = [converted(widened(number), pa.float64()) for number in operands.numbers(node, *parts)]
    return Value(pc.power(values[0].arrow, values[1].arrow), pa.float64())


def _mod(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
    return operands.value(exp.Mod(this=parts[0].copy(), expression=parts[1].copy()))


def _extreme(make: Callable[..., pc.Expression]) -> Call:
    """GREATEST and LEAST: nulls are left out, as in Spark and PostgreSQL."""

    def made(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
        values, kind = operands.same(node, *parts)
        if family(kind) in ("boolean", "other", "binary"):
            raise operands.error(node, f"GREATEST and LEAST are for numbers, strings and times, not {name_of(kind)}")
        if family(kind) == "null":
            return values[0]
        return Value(make(*(value.arrow for value in values), skip_nulls=True), kind)

    return Call(1, None, made)


def _sign(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
    value = widened(operands.numbers(node, *parts)[0])
    return Value(pc.sign(value.arrow).cast(pa.int64()), pa.int64())


_POWER, _CEIL = Call(2, 2, _power), _floor_or_ceil(pc.ceil)

NUMBER_FUNCTIONS = {
    "ABS": _kept(pc.abs_checked),
    "SIGN": Call(1, 1, _sign),
    "FLOOR": _floor_or_ceil(pc.floor),
    "CEIL": _CEIL,
    "CEILING": _CEIL,
    "ROUND": Call(1, 2, _round),
    "SQRT": _float(pc.sqrt),
    "EXP": _float(pc.exp),
    "LN": _float(pc.ln),
    "LOG2": _float(pc.log2),
    "LOG10": _float(pc.log10),
    "POWER": _POWER,
    "POW": _POWER,
    "MOD": Call(2, 2, _mod),
    "GREATEST": _extreme(pc.max_element_wise),
    "LEAST": _extreme(pc.min_element_wise),
}
"""The functions by name."""
