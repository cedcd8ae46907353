"""Functions of dates and timestamps."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from eddy.expressions.calls import Call, Operands, Parts, constant_text
from eddy.expressions.kinds import TIMES, name_of
from eddy.expressions.local_times import floored
from eddy.expressions.values import Value, converted, unified, widened
from eddy.streams.key_types.times import UNITS

_FIELDS: dict[str, Callable[[pc.Expression], pc.Expression]] = {
    "YEAR": pc.year,
    "QUARTER": pc.quarter,
    "MONTH": pc.month,
    "WEEK": pc.iso_week,
    "DAY": pc.day,
    "DOY": pc.day_of_year,
    "HOUR": pc.hour,
    "MINUTE": pc.minute,
    "SECOND": pc.second,
}
_OF_DAYS = ("HOUR", "MINUTE", "SECOND")
UNITS_OF_TRUNC = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond")


def _time(operands: Operands, node: exp.Expression, part: exp.Expression, what: str) -> Value:
    value = widened(operands.value(part))
    if value.family not in TIMES:
        raise operands.error(part, f"{what} needs a DATE or TIMESTAMP, and this is {name_of(value.kind)}")
    return value


def _extract(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
    name = str(parts[0].this).upper()
    if name not in _FIELDS:
        raise operands.error(node, f"EXTRACT({name} …) is not supported; there are {', '.join(_FIELDS)}")
    value = _time(operands, node, parts[1], f"EXTRACT({name} …)")
    if value.family == "date" and name in _OF_DAYS:
        value = converted(value, pa.timestamp("s"))
    return Value(_FIELDS[name](value.arrow).cast(pa.int64()), pa.int64())


def _field(name: str) -> Call:
    def made(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
        return _extract(operands, node, [exp.Literal.string(name), *parts])

    return Call(1, 1, made)


def _date_trunc(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
    unit = constant_text(operands, parts[0], "the unit of DATE_TRUNC").lower()
    if unit not in UNITS_OF_TRUNC:
        raise operands.error(node, f"{unit!r} is no unit of DATE_TRUNC; there are {', '.join(UNITS_OF_TRUNC)}")
    value = _time(operands, node, parts[1], "DATE_TRUNC")
    if value.family == "date":
        value = converted(value, pa.timestamp("s"))
    return Value(floored(value.arrow, value.kind, unit), value.kind)


def _tumble(end: bool) -> Call:
    """TUMBLE_START and TUMBLE_END of a time: multiples of the size, counted from 1970."""

    def made(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
        value, size = widened(operands.value(parts[0])), operands.value(parts[1])
        if value.family == "timestamp" and size.family == "interval":
            common = unified([Value(pc.scalar(0), pa.duration(value.kind.unit)), size])
            assert common is not None
            kind = pa.timestamp(common[1].unit, value.kind.tz)
            span = int(size.literal * 10 ** (3 * UNITS.index(kind.unit)))
        elif value.family == "integer" and size.family == "integer" and size.literal:
            kind, span = pa.int64(), size.literal
        else:
            raise operands.error(node, "TUMBLE_START takes a time and a constant size, such as INTERVAL '10' MINUTE")
        if span <= 0:
            raise operands.error(parts[1], "the size of a window must be greater than 0")
        ticks, size_ticks = value.arrow.cast(kind).cast(pa.int64()), pc.scalar(pa.scalar(span, pa.int64()))
        # Towards zero, so times before 1970 are moved by a window.
        rest = pc.subtract_checked(ticks, pc.multiply_checked(pc.divide_checked(ticks, size_ticks), size_ticks))
        zero = pc.scalar(pa.scalar(0, pa.int64()))
        rest = pc.if_else(pc.less(rest, zero), pc.add_checked(rest, size_ticks), rest)
        start = pc.subtract_checked(ticks, rest)
        return Value((pc.add_checked(start, size_ticks) if end else start).cast(kind), kind)

    return Call(2, 2, made)


_BETWEEN: dict[str, int] = {"SECOND": 1, "MINUTE": 60, "HOUR": 3_600, "DAY": 86_400, "WEEK": 604_800}


def _timestampdiff(operands: Operands, node: exp.Expression, parts: Parts) -> Value:
    """Whole units from one time to another, towards zero, as in Flink and Spark."""
    unit = str(parts[0].name).upper()
    if unit not in _BETWEEN:
        raise operands.error(node, f"{unit} is no unit of TIMESTAMPDIFF; there are {', '.join(_BETWEEN)}")
    stamps = [_time(operands, node, part, "TIMESTAMPDIFF") for part in parts[1:]]
    common = unified(stamps)
    if common is None:
        raise operands.error(node, "TIMESTAMPDIFF needs two times with a zone, or two without one")
    if common[1] == pa.date32():
        common = unified([converted(stamp, pa.timestamp("s")) for stamp in stamps])
    assert common is not None
    (first, last), kind = common
    ticks = pc.subtract_checked(last.arrow.cast(pa.int64()), first.arrow.cast(pa.int64()))
    per_unit = _BETWEEN[unit] * 10 ** (3 * UNITS.index(kind.unit))
    return Value(pc.divide_checked(ticks, pc.scalar(per_unit)), pa.int64())


TIME_FUNCTIONS = {
    "EXTRACT": Call(2, 2, _extract),
    **{name: _field(name) for name in _FIELDS if name != "DOY"},
    "DAYOFMONTH": _field("DAY"),
    "DAYOFYEAR": _field("DOY"),
    "WEEKOFYEAR": _field("WEEK"),
    "DATE_TRUNC": Call(2, 2, _date_trunc),
    "TUMBLE_START": _tumble(False),
    "TUMBLE_END": _tumble(True),
    "TIMESTAMPDIFF": Call(3, 3, _timestampdiff),
}
"""The functions by name."""
