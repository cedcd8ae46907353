"""Types: the families that SQL knows, the wide type of each, and the common type of two.

Integers of all widths are computed as int64 and floats as float64, so a sum of small columns does not overflow.
Decimals keep their digits. A timestamp keeps its unit.
"""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pyarrow.types as pt

from eddy.streams.key_types.times import finest
from stairs.plain_types import plain

DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""The decimal digits of integers, by their bits."""
MOST_DIGITS = 38
"""Digits of a decimal."""


@cache
def family(kind: pa.DataType) -> str:
    """Return the family of a type, "other" for nested types and those without functions.

    >>> family(pa.dictionary(pa.int8(), pa.string()))
    'string'
    """
    kind = plain(kind)
    for name, test in _FAMILIES.items():
        if test(kind):
            return name
    return "other"


_FAMILIES = {
    "null": pt.is_null,
    "boolean": pt.is_boolean,
    "integer": pt.is_integer,
    "float": pt.is_floating,
    "decimal": pt.is_decimal,
    "string": lambda kind: pt.is_string(kind) or pt.is_large_string(kind),
    "binary": lambda kind: pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind),
    "date": pt.is_date,
    "time": pt.is_time,
    "timestamp": pt.is_timestamp,
    "interval": pt.is_duration,
}
NUMBERS = ("integer", "decimal", "float")
TIMES = ("date", "timestamp")


def wide(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values of a type are computed."""
    kind = plain(kind)
    kind_family = family(kind)
    if kind_family == "integer":
        return pa.int64()
    if kind_family == "float":
        return pa.float64()
    if kind_family == "decimal" and not pt.is_decimal256(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if kind_family == "date":
        return pa.date32()
    if kind_family == "binary" and pt.is_fixed_size_binary(kind):
        return pa.binary()
    return kind


def digits_of(kind: pa.DataType) -> int:
    """Return the decimal digits that values of an integer type may have."""
    return DIGITS[plain(kind).bit_width]


def as_decimal(kind: pa.DataType, digits: int) -> pa.DataType:
    """Return the decimal type of an integer or decimal type; integers have at most so many digits."""
    return kind if family(kind) == "decimal" else pa.decimal128(digits, 0)


def decimal(precision: int, scale: int) -> pa.DataType | None:
    """Return a decimal type, None if it would have too many digits."""
    return pa.decimal128(precision, scale) if max(precision, scale) <= MOST_DIGITS else None


def common(kinds: list[tuple[pa.DataType, int]]) -> pa.DataType | None:
    """Return the type in which values of several types are compared or chosen from, None if there is none.

    kinds   wide types, each with the digits of its integers
    """
    known = [(kind, digits) for kind, digits in kinds if family(kind) != "null"]
    if not known:
        return pa.null()
    types = [kind for kind, _ in known]
    families = {family(kind) for kind in types}
    if all(kind == types[0] for kind in types):
        return types[0]
    if families == {"integer", "decimal"} or families == {"decimal"}:
        decimals = [as_decimal(*pair) for pair in known]
        scale = max(kind.scale for kind in decimals)
        return decimal(max(kind.precision - kind.scale for kind in decimals) + scale, scale)
    if families <= set(NUMBERS):
        return pa.float64()
    if families == {"string"}:
        return pa.large_string()
    if families == {"binary"}:
        return pa.large_binary()
    if families <= set(TIMES):
        stamps = [kind for kind in types if family(kind) == "timestamp"]
        zones = {kind.tz is not None for kind in stamps}
        if len(zones) != 1 or ("date" in families and zones == {True}):
            return None
        return pa.timestamp(finest(stamps), stamps[0].tz)
    if families == {"interval"}:
        return pa.duration(finest(types))
    if families == {"time"}:
        return pa.time64("ns" if finest(types) == "ns" else "us")
    return None


NAMES = {
    "null": "NULL",
    "boolean": "BOOLEAN",
    "integer": "INTEGER",
    "float": "DOUBLE",
    "string": "STRING",
    "binary": "BINARY",
    "date": "DATE",
    "time": "TIME",
    "interval": "INTERVAL",
}


def name_of(kind: pa.DataType) -> str:
    """Return the name of a type in SQL.

    >>> name_of(pa.decimal128(10, 2))
    'DECIMAL(10, 2)'
    """
    kind_family = family(kind)
    if kind_family == "decimal":
        return f"DECIMAL({plain(kind).precision}, {plain(kind).scale})"
    if kind_family == "timestamp":
        return "TIMESTAMP" if plain(kind).tz is None else "TIMESTAMP WITH TIME ZONE"
    return NAMES.get(kind_family, str(kind))
