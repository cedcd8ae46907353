"""Operators on numbers and on times.

Integers are computed as int64, floats as float64, decimals exactly; an overflow is an error. Division by zero is null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from eddy.expressions.calls import Operands
from eddy.expressions.grammar import printed, shown
from eddy.expressions.kinds import TIMES, family, name_of
from eddy.expressions.values import Value, arithmetic, converted, null, unified, widened


def _plus_or_minus(operands: Operands, node: exp.Binary) -> Value:
    left, right = operands.value(node.left), operands.value(node.right)
    kinds = {left.family, right.family}
    if kinds & {"interval", *TIMES}:
        return _shifted(operands, node, left, right)
    operands.numbers(node, node.left, node.right)
    term, other = arithmetic([left, right])
    _check_digits(operands, node, term, other)
    make = pc.add_checked if isinstance(node, exp.Add) else pc.subtract_checked
    return _computed(make, term, other)


def _shifted(operands: Operands, node: exp.Binary, left: Value, right: Value) -> Value:
    """A time plus or minus an interval, or the interval between two times."""
    plus = isinstance(node, exp.Add)
    make = pc.add_checked if plus else pc.subtract_checked
    if plus and left.family == "interval":
        left, right = right, left
    kinds = (left.family, right.family)
    if kinds == ("interval", "interval"):
        common = unified([left, right])
        assert common is not None
        (left, right), kind = common
        return Value(_ticks(make, left, right, kind), kind)
    if kinds == ("date", "interval"):
        seconds = right.literal
        if seconds is None or seconds % 86_400:
            left = converted(widened(left), pa.timestamp(right.kind.unit))
            return Value(_ticks(make, left, right, left.kind), left.kind)
        shifted = _ticks(
            make, converted(left, pa.timestamp("s")), converted(right, pa.duration("s")), pa.timestamp("s")
        )
        return Value(shifted.cast(pa.date32()), pa.date32())
    if kinds == ("timestamp", "interval"):
        common = unified([Value(left.arrow.cast(pa.duration(left.kind.unit)), pa.duration(left.kind.unit)), right])
        assert common is not None
        unit = common[1].unit
        kind = pa.timestamp(unit, left.kind.tz)
        return Value(_ticks(make, converted(left, kind), common[0][1], kind), kind)
    if not plus and set(kinds) <= set(TIMES):
        common = unified([left, right])
        if common is not None:
            (left, right), kind = common
            if family(kind) == "date":
                days = pc.subtract(left.arrow.cast(pa.int32()), right.arrow.cast(pa.int32())).cast(pa.int64())
                return Value(days, pa.int64())
            return Value(_ticks(make, left, right, pa.duration(kind.unit)), pa.duration(kind.unit))
    listed = f"{printed(node.left)} is {name_of(left.kind)}, {printed(node.right)} is {name_of(right.kind)}"
    what = "added" if plus else "subtracted"
    raise operands.error(
        node, f"these cannot be {what}: {listed}; write a time + INTERVAL '30' MINUTE, or a time - a time"
    )


def _times(operands: Operands, node: exp.Mul) -> Value:
    left, right = operands.value(node.left), operands.value(node.right)
    if {left.family, right.family} == {"interval", "integer"}:
        factor, other = (left, right) if left.family == "interval" else (right, left)
        # The kernel for durations is not checked.
        whole = pc.multiply_checked(factor.arrow.cast(pa.int64()), widened(other).arrow)
        return Value(whole.cast(factor.kind), factor.kind)
    operands.numbers(node, node.left, node.right)
    factor, other = arithmetic([left, right])
    _check_digits(operands, node, factor, other)
    return _computed(pc.multiply_checked, factor, other)


def _computed(make: Callable[..., pc.Expression], number: Value, other: Value) -> Value:
    """Apply an operator of Arrow to numbers of one family."""
    if "null" in (number.family, other.family):
        kind = other.kind if number.family == "null" else number.kind
        return Value(null(kind), kind)
    if number.family == "decimal":
        p1, s1, p2, s2 = number.kind.precision, number.kind.scale, other.kind.precision, other.kind.scale
        if make is pc.multiply_checked:
            kind = pa.decimal128(p1 + p2 + 1, s1 + s2)
        else:
            kind = pa.decimal128(max(p1 - s1, p2 - s2) + max(s1, s2) + 1, max(s1, s2))
        return Value(make(number.arrow, other.arrow), kind)
    return Value(make(number.arrow, other.arrow), number.kind)


def _check_digits(operands: Operands, node: exp.Expression, number: Value, other: Value) -> None:
    if number.family != "decimal" or other.family != "decimal":
        return
    (p1, s1), (p2, s2) = ((value.kind.precision, value.kind.scale) for value in (number, other))
    total = p1 + p2 + 1 if isinstance(node, exp.Mul) else max(p1 - s1, p2 - s2) + max(s1, s2) + 1
    if total > 38:
        raise operands.error(
            node, f"the result may have {total} digits, and a DECIMAL has 38: CAST an operand to fewer"
        )


def _divided(operands: Operands, node: exp.Div) -> Value:
    values = operands.numbers(node, node.left, node.right)
    dividend, other = (converted(widened(value), pa.float64()) for value in values)
    return Value(pc.divide(dividend.arrow, _nonzero(other)), pa.float64())


def _whole_division(operands: Operands, node: exp.Binary) -> Value:
    """DIV and %, both towards zero."""
    values = operands.numbers(node, node.left, node.right)
    for part, value in zip((node.left, node.right), values, strict=True):
        if value.family not in ("integer", "null"):
            raise operands.error(part, f"{shown(node)} is for integers, and {printed(part)} is {name_of(value.kind)}")
    dividend, other = (converted(widened(value), pa.int64()) for value in values)
    quotient = pc.divide_checked(dividend.arrow, _nonzero(other))
    if isinstance(node, exp.Mod):
        return Value(pc.subtract_checked(dividend.arrow, pc.multiply_checked(quotient, other.arrow)), pa.int64())
    return Value(quotient, pa.int64())


def _negated(operands: Operands, node: exp.Neg) -> Value:
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        return operands.number(node, f"-{node.this.this}")
    value = widened(operands.value(node.this))
    if value.family == "interval":
        return Value(pc.negate_checked(value.arrow.cast(pa.int64())).cast(value.kind), value.kind)
    (value,) = map(widened, operands.numbers(node, node.this))
    return value if value.family == "null" else Value(pc.negate_checked(value.arrow), value.kind)


def _ticks(make: Callable[..., pc.Expression], time: Value, other: Value, kind: pa.DataType) -> pc.Expression:
    """Apply a checked operator to times of one unit. Arrow's own kernels for times also check what null slots hold."""
    return make(time.arrow.cast(pa.int64()), other.arrow.cast(pa.int64())).cast(kind)


def _nonzero(value: Value) -> pc.Expression:
    zero = pc.scalar(pa.scalar(0, value.kind))
    return pc.if_else(pc.equal(value.arrow, zero), null(value.kind), value.arrow)


ARITHMETIC: dict[type, Callable[[Operands, Any], Value]] = {
    exp.Add: _plus_or_minus,
    exp.Sub: _plus_or_minus,
    exp.Mul: _times,
    exp.Div: _divided,
    exp.IntDiv: _whole_division,
    exp.Mod: _whole_division,
    exp.Neg: _negated,
}
"""Kind of tree -> the function that makes its value."""
