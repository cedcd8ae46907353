"""The scalar functions of the dialect, one entry each, and the kernel of Arrow that computes it.

docs/guide/sql.md has the table. A null argument makes the result null, except of COALESCE, GREATEST and LEAST.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from eddy.dialect.kinds import TIMES, family, name_of
from eddy.dialect.patterns import position, regular
from eddy.dialect.values import Value, converted, null, unified, widened
from eddy.query.key_types.times import UNITS

if TYPE_CHECKING:
    from eddy.dialect.scalars import Scalars

Parts = Sequence[exp.Expression]
Make = Callable[["Scalars", exp.Expression, Parts], Value]


class Call(NamedTuple):
    """A function: the least and the greatest number of arguments, None = any; and what makes its value."""

    least: int
    most: int | None
    make: Make


def call(scalars: Scalars, node: exp.Expression, name: str, given: Sequence[exp.Expression | None]) -> Value:
    """Return the value of a function. Raises SqlError for arguments that do not fit."""
    parts = [one for one in given if one is not None]
    own = CALLS[name]
    for part in parts:
        if isinstance(part, exp.Star | exp.Distinct):
            raise scalars.error(node, f"{name} takes no * and no DISTINCT")
    if len(parts) < own.least or (own.most is not None and len(parts) > own.most):
        wanted = str(own.least) if own.least == own.most else f"{own.least} to {own.most or 'any number of'}"
        raise scalars.error(node, f"{name} takes {wanted} arguments, and has {len(parts)}")
    return own.make(scalars, node, parts)


# Arguments that must be constants, since Arrow takes them as options


def _whole(scalars: Scalars, part: exp.Expression, what: str) -> int:
    sign, own = (-1, part.this) if isinstance(part, exp.Neg) else (1, part)
    if not isinstance(own, exp.Literal) or own.is_string or not str(own.this).isdigit():
        raise scalars.error(part, f"{what} must be a constant whole number, since Arrow takes it as an option")
    return sign * int(str(own.this))


def _constant(scalars: Scalars, part: exp.Expression, what: str) -> str:
    if not isinstance(part, exp.Literal) or not part.is_string:
        raise scalars.error(part, f"{what} must be a constant string, since Arrow takes it as an option")
    return str(part.this)


# Kinds of functions


def _float(make: Callable[[pc.Expression], pc.Expression]) -> Call:
    """A function of one number that gives a float."""

    def made(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
        (value,) = scalars.numbers(node, *parts)
        return Value(make(converted(widened(value), pa.float64()).arrow), pa.float64())

    return Call(1, 1, made)


def _kept(make: Callable[[pc.Expression], pc.Expression], whole: bool = False) -> Call:
    """A function of one number that keeps the type; `whole` = it leaves integers as they are."""

    def made(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
        value = widened(scalars.numbers(node, *parts)[0])
        if value.family == "null" or (whole and value.family == "integer"):
            return value
        return Value(make(value.arrow), value.kind)

    return Call(1, 1, made)


def _text(make: Callable[[pc.Expression], pc.Expression], kind: pa.DataType | None = None) -> Call:
    """A function of one text; its result is a text unless `kind` says otherwise."""

    def made(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
        value = scalars.text(node, parts[0])
        found = make(value.arrow)
        return Value(found, value.kind) if kind is None else Value(found.cast(kind), kind)

    return Call(1, 1, made)


def _part(make: Callable[[pc.Expression, str], pc.Expression], kind: pa.DataType) -> Call:
    """A function of a text and a constant part of it."""

    def made(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
        value = scalars.text(node, parts[0])
        return Value(make(value.arrow, _constant(scalars, parts[1], "the part to find")), kind)

    return Call(2, 2, made)


# Numbers


def _round(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    value = widened(scalars.numbers(node, parts[0])[0])
    digits = _whole(scalars, parts[1], "the number of digits") if len(parts) > 1 else 0
    if value.family == "null" or (value.family == "integer" and digits >= 0):
        return value
    if value.family == "decimal" and digits >= value.kind.scale:
        return value
    return Value(pc.round(value.arrow, ndigits=digits, round_mode="half_towards_infinity"), value.kind)


def _floor_or_ceil(make: Callable[[pc.Expression], pc.Expression]) -> Call:
    def made(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
        if len(parts) > 1:
            raise scalars.error(node, "FLOOR and CEIL take one number; write ROUND for digits")
        return _kept(make, whole=True).make(scalars, node, parts)

    return Call(1, 2, made)


def _power(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    values = [converted(widened(one), pa.float64()) for one in scalars.numbers(node, *parts)]
    return Value(pc.power(values[0].arrow, values[1].arrow), pa.float64())


def _mod(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    return scalars.value(exp.Mod(this=parts[0].copy(), expression=parts[1].copy()))


def _extreme(make: Callable[..., pc.Expression]) -> Call:
    """GREATEST and LEAST: nulls are left out, as in Spark and PostgreSQL."""

    def made(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
        values, kind = scalars.same(node, *parts)
        if family(kind) in ("boolean", "other", "binary"):
            raise scalars.error(node, f"GREATEST and LEAST are for numbers, strings and times, not {name_of(kind)}")
        if family(kind) == "null":
            return values[0]
        return Value(make(*(value.arrow for value in values), skip_nulls=True), kind)

    return Call(1, None, made)


# Texts


def _substring(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    value = scalars.text(node, parts[0])
    start = _whole(scalars, parts[1], "the start of SUBSTRING")
    length = _whole(scalars, parts[2], "the length of SUBSTRING") if len(parts) > 2 else None
    if start == 0:
        raise scalars.error(parts[1], "characters are counted from 1; a negative start counts from the end")
    if length is not None and length < 0:
        raise scalars.error(parts[2], "the length of SUBSTRING must not be negative")
    return Value(_slice(value.arrow, start, length), value.kind)


def _slice(text: pc.Expression, start: int, length: int | None) -> pc.Expression:
    if start > 0:
        stop = None if length is None else start - 1 + length
        return pc.utf8_slice_codeunits(text, start=start - 1, stop=stop)
    tail = pc.utf8_slice_codeunits(text, start=start, stop=None)
    return tail if length is None else pc.utf8_slice_codeunits(tail, start=0, stop=length)


def _left(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    value, count = scalars.text(node, parts[0]), _whole(scalars, parts[1], "the number of characters")
    if count < 0:
        raise scalars.error(parts[1], "the number of characters must not be negative")
    return Value(pc.utf8_slice_codeunits(value.arrow, start=0, stop=count), value.kind)


def _right(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    value, count = scalars.text(node, parts[0]), _whole(scalars, parts[1], "the number of characters")
    if count < 0:
        raise scalars.error(parts[1], "the number of characters must not be negative")
    if count == 0:
        return Value(pc.utf8_slice_codeunits(value.arrow, start=0, stop=0), value.kind)
    return Value(pc.utf8_slice_codeunits(value.arrow, start=-count, stop=None), value.kind)


def _trimmed(make: Callable[..., pc.Expression]) -> Call:
    def made(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
        value = scalars.text(node, parts[0])
        characters = _constant(scalars, parts[1], "the characters to trim") if len(parts) > 1 else " "
        return Value(make(value.arrow, characters=characters), value.kind)

    return Call(1, 2, made)


def _padded(make: Callable[..., pc.Expression]) -> Call:
    """LPAD and RPAD, which cut a text that is too long, as in SQL; Arrow's do not."""

    def made(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
        value, width = scalars.text(node, parts[0]), _whole(scalars, parts[1], "the width")
        padding = _constant(scalars, parts[2], "the padding") if len(parts) > 2 else " "
        if len(padding) != 1:
            raise scalars.error(parts[2], "the padding must be one character")
        if width < 0:
            raise scalars.error(parts[1], "the width must not be negative")
        cut = pc.utf8_slice_codeunits(value.arrow, start=0, stop=width)
        return Value(make(cut, width=width, padding=padding), value.kind)

    return Call(2, 3, made)


def _replace(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    value = scalars.text(node, parts[0])
    old, new = (_constant(scalars, part, "REPLACE: the text") for part in parts[1:])
    if not old:
        return value
    return Value(pc.replace_substring(value.arrow, old, new), value.kind)


def _repeat(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    value, count = scalars.text(node, parts[0]), _whole(scalars, parts[1], "the number of times")
    if count < 0:
        raise scalars.error(parts[1], "the number of times must not be negative")
    return Value(pc.binary_repeat(value.arrow, pc.scalar(count)), value.kind)


def _concat(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    return scalars.concatenated(node, list(parts))


def _regexp_like(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    return scalars.value(exp.RegexpLike(this=parts[0].copy(), expression=parts[1].copy()))


def _regexp_replace(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    value = scalars.text(node, parts[0])
    pattern, new = (_constant(scalars, part, "REGEXP_REPLACE: the pattern or text") for part in parts[1:])
    fault = regular(pattern)
    if fault is not None:
        raise scalars.error(parts[1], f"Arrow does not accept the regular expression: {fault}")
    return Value(pc.replace_substring_regex(value.arrow, pattern, new), value.kind)


def _regexp_extract(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    """The text of a group, or "" without a match, as in Spark."""
    value = scalars.text(node, parts[0])
    pattern = _constant(scalars, parts[1], "REGEXP_EXTRACT: the pattern")
    group = _whole(scalars, parts[2], "the number of the group") if len(parts) > 2 else 1
    fault = regular(pattern)
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        fault, groups = fault or str(error), 0
    if fault is not None:
        raise scalars.error(parts[1], f"this regular expression is not accepted: {fault}")
    if not 0 <= group <= groups:
        raise scalars.error(node, f"the pattern has {groups} groups, and group {group} is asked for")
    # Arrow extracts named groups only; this replaces the whole text by the group.
    whole = f"(?s)^.*?(?-s:{pattern}).*$" if group else f"(?s)^.*?((?-s:{pattern})).*$"
    found = pc.replace_substring_regex(value.arrow, whole, f"\\{group or 1}", max_replacements=1)
    empty = pc.scalar(pa.scalar("", value.kind))
    return Value(pc.if_else(pc.match_substring_regex(value.arrow, pattern), found, empty), value.kind)


# Choices


def _coalesce(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    values, kind = scalars.same(node, *parts)
    return Value(pc.coalesce(*(value.arrow for value in values)), kind)


def _nullif(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    equal = scalars.compared(node, parts[0], parts[1], exp.EQ)
    value = widened(scalars.value(parts[0]))
    return Value(pc.if_else(pc.coalesce(equal, pc.scalar(False)), null(value.kind), value.arrow), value.kind)


def _if(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    own = [one.copy() for one in parts]
    return scalars.value(exp.If(this=own[0], true=own[1], false=own[2] if len(own) > 2 else exp.Null()))


# Times

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


def _time(scalars: Scalars, node: exp.Expression, part: exp.Expression, what: str) -> Value:
    value = widened(scalars.value(part))
    if value.family not in TIMES:
        raise scalars.error(part, f"{what} needs a DATE or TIMESTAMP, and this is {name_of(value.kind)}")
    return value


def _extract(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    name = str(parts[0].this).upper()
    if name not in _FIELDS:
        raise scalars.error(node, f"EXTRACT({name} …) is not supported; there are {', '.join(_FIELDS)}")
    value = _time(scalars, node, parts[1], f"EXTRACT({name} …)")
    if value.family == "date" and name in _OF_DAYS:
        value = converted(value, pa.timestamp("s"))
    return Value(_FIELDS[name](value.arrow).cast(pa.int64()), pa.int64())


def _field(name: str) -> Call:
    def made(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
        return _extract(scalars, node, [exp.Literal.string(name), *parts])

    return Call(1, 1, made)


def _date_trunc(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    unit = _constant(scalars, parts[0], "the unit of DATE_TRUNC").lower()
    if unit not in UNITS_OF_TRUNC:
        raise scalars.error(node, f"{unit!r} is no unit of DATE_TRUNC; there are {', '.join(UNITS_OF_TRUNC)}")
    value = _time(scalars, node, parts[1], "DATE_TRUNC")
    if value.family == "date":
        value = converted(value, pa.timestamp("s"))
    return Value(pc.floor_temporal(value.arrow, unit=unit), value.kind)


_BETWEEN: dict[str, int] = {"SECOND": 1, "MINUTE": 60, "HOUR": 3_600, "DAY": 86_400, "WEEK": 604_800}


def _timestampdiff(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    """Whole units from one time to another, towards zero, as in Flink and Spark."""
    unit = str(parts[0].name).upper()
    if unit not in _BETWEEN:
        raise scalars.error(node, f"{unit} is no unit of TIMESTAMPDIFF; there are {', '.join(_BETWEEN)}")
    stamps = [_time(scalars, node, part, "TIMESTAMPDIFF") for part in parts[1:]]
    found = unified(stamps)
    if found is None:
        raise scalars.error(node, "TIMESTAMPDIFF needs two times with a zone, or two without one")
    if found[1] == pa.date32():
        found = unified([converted(one, pa.timestamp("s")) for one in stamps])
    assert found is not None
    (first, last), kind = found
    ticks = pc.subtract_checked(last.arrow.cast(pa.int64()), first.arrow.cast(pa.int64()))
    per_unit = _BETWEEN[unit] * 10 ** (3 * UNITS.index(kind.unit))
    return Value(pc.divide_checked(ticks, pc.scalar(per_unit)), pa.int64())


def _sign(scalars: Scalars, node: exp.Expression, parts: Parts) -> Value:
    value = widened(scalars.numbers(node, *parts)[0])
    return Value(pc.sign(value.arrow).cast(pa.int64()), pa.int64())


_LENGTH = _text(pc.utf8_length, pa.int64())
_COALESCE, _POWER, _IF = Call(1, None, _coalesce), Call(2, 2, _power), Call(2, 3, _if)
_STARTS = _part(lambda text, part: pc.starts_with(text, part), pa.bool_())
_ENDS = _part(lambda text, part: pc.ends_with(text, part), pa.bool_())
_STRPOS = _part(position, pa.int64())
_SUBSTRING = Call(2, 3, _substring)
_CEIL = _floor_or_ceil(pc.ceil)

CALLS: dict[str, Call] = {
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
    "UPPER": _text(pc.utf8_upper),
    "LOWER": _text(pc.utf8_lower),
    "REVERSE": _text(pc.utf8_reverse),
    "LENGTH": _LENGTH,
    "CHAR_LENGTH": _LENGTH,
    "CHARACTER_LENGTH": _LENGTH,
    "SUBSTRING": _SUBSTRING,
    "SUBSTR": _SUBSTRING,
    "LEFT": Call(2, 2, _left),
    "RIGHT": Call(2, 2, _right),
    "TRIM": _trimmed(pc.utf8_trim),
    "BTRIM": _trimmed(pc.utf8_trim),
    "LTRIM": _trimmed(pc.utf8_ltrim),
    "RTRIM": _trimmed(pc.utf8_rtrim),
    "LPAD": _padded(pc.utf8_lpad),
    "RPAD": _padded(pc.utf8_rpad),
    "REPLACE": Call(3, 3, _replace),
    "REPEAT": Call(2, 2, _repeat),
    "CONCAT": Call(1, None, _concat),
    "STARTS_WITH": _STARTS,
    "STARTSWITH": _STARTS,
    "ENDS_WITH": _ENDS,
    "ENDSWITH": _ENDS,
    "CONTAINS": _part(lambda text, part: pc.match_substring(text, part), pa.bool_()),
    "STRPOS": _STRPOS,
    "INSTR": _STRPOS,
    "REGEXP_LIKE": Call(2, 2, _regexp_like),
    "REGEXP_REPLACE": Call(3, 3, _regexp_replace),
    "REGEXP_EXTRACT": Call(2, 3, _regexp_extract),
    "COALESCE": _COALESCE,
    "IFNULL": Call(2, 2, _coalesce),
    "NVL": Call(2, 2, _coalesce),
    "NULLIF": Call(2, 2, _nullif),
    "IF": _IF,
    "IIF": _IF,
    "EXTRACT": Call(2, 2, _extract),
    **{name: _field(name) for name in _FIELDS if name != "DOY"},
    "DAYOFMONTH": _field("DAY"),
    "DAYOFYEAR": _field("DOY"),
    "WEEKOFYEAR": _field("WEEK"),
    "DATE_TRUNC": Call(2, 2, _date_trunc),
    "TIMESTAMPDIFF": Call(3, 3, _timestampdiff),
}
"""The functions by name."""
