"""Which Arrow types can be equal, and the one type in which the values of an attribute class are compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.types as pt

from stairs.plain_types import plain

_UNITS = ("s", "ms", "us", "ns")


SECONDS = pa.decimal128(28, 9)
"""Exact seconds: in them timestamps (or durations) of different units are compared; no unit holds all their values."""


def _is_text(kind: pa.DataType) -> bool:
    return pt.is_string(kind) or pt.is_large_string(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    sized = pt.is_fixed_size_binary(kind) and not pt.is_decimal(kind)
    return pt.is_binary(kind) or pt.is_large_binary(kind) or sized


def _extension(kind: pa.DataType) -> pa.DataType | None:
    """Return the extension type of the values of a column, behind dictionaries and runs, None for another type."""
    while pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        kind = kind.value_type
    return kind if isinstance(kind, pa.BaseExtensionType) else None


def _finest(kinds: list[pa.DataType]) -> str:
    return _UNITS[max(_UNITS.index(kind.unit) for kind in kinds)]


def _one_unit(kinds: list[pa.DataType]) -> bool:
    return len({kind.unit for kind in kinds}) == 1


def _exact_number(kinds: list[pa.DataType]) -> pa.DataType | None:
    """Return a decimal type that holds every value of integers and decimals, None when 76 digits are not enough."""
    before = after = 0
    for kind in kinds:
        scale = kind.scale if pt.is_decimal(kind) else 0
        digits = kind.precision - scale if pt.is_decimal(kind) else 20 if pt.is_uint64(kind) else 19
        before, after = max(before, digits), max(after, scale)
    if before + after <= 38:
        return pa.decimal128(before + after, after)
    return pa.decimal256(before + after, after) if before + after <= 76 else None


def unified(types: Iterable[pa.DataType]) -> pa.DataType | None:
    """Return the type in which values of these types are compared exactly, None when they can't be equal.

    >>> unified([pa.int8(), pa.int64()])
    DataType(int64)
    >>> unified([pa.int64(), pa.string()]) is None
    True
    """
    given = list(types)
    extensions = [_extension(kind) for kind in given]
    if any(one != extensions[0] for one in extensions):
        # The same storage may stand for different values.
        return None
    kinds = [plain(kind) for kind in given]
    if all(pt.is_integer(kind) for kind in kinds):
        if all(pt.is_uint64(kind) for kind in kinds):
            return pa.uint64()
        return _exact_number(kinds) if any(pt.is_uint64(kind) for kind in kinds) else pa.int64()
    if all(pt.is_integer(kind) or pt.is_decimal(kind) for kind in kinds):
        return _exact_number(kinds)
    if all(pt.is_floating(kind) for kind in kinds):
        return pa.float64()
    if all(pt.is_boolean(kind) for kind in kinds):
        return pa.bool_()
    if all(_is_text(kind) for kind in kinds):
        return pa.large_string()
    if all(_is_bytes(kind) for kind in kinds):
        return pa.large_binary()
    if all(pt.is_date(kind) for kind in kinds):
        return pa.date32()
    if all(pt.is_timestamp(kind) for kind in kinds) and len({kind.tz is None for kind in kinds}) == 1:
        return pa.timestamp(kinds[0].unit, None if kinds[0].tz is None else "UTC") if _one_unit(kinds) else SECONDS
    if all(pt.is_duration(kind) for kind in kinds):
        return pa.duration(kinds[0].unit) if _one_unit(kinds) else SECONDS
    if all(pt.is_time(kind) for kind in kinds):
        # A day has less than 2^47 nanoseconds: the finest unit holds every value of the others.
        return pa.time64(_finest(kinds) if _finest(kinds) in ("us", "ns") else "us")
    return None


def unified_time(types: Iterable[pa.DataType]) -> pa.DataType | None:
    """Return the type in which event times are compared: integers, timestamps or dates; None for anything else."""
    kinds = [plain(kind) for kind in types]
    if all(pt.is_integer(kind) for kind in kinds):
        return pa.int64()
    kind = unified(kinds)
    if kind == SECONDS and all(pt.is_timestamp(one) for one in kinds):
        kind = pa.timestamp(_finest(kinds), None if kinds[0].tz is None else "UTC")
    if kind is None or not (pt.is_timestamp(kind) or pt.is_date(kind)):
        return None
    return kind


def ticks_per_second(kind: pa.DataType) -> int | None:
    """Return how many ticks of a timestamp type make a second, None for a type without a unit of time below the day."""
    return 10 ** (3 * _UNITS.index(kind.unit)) if pt.is_timestamp(kind) else None


def is_text(kind: pa.DataType) -> bool:
    """Whether values of a unified type are byte strings, which become words by interning."""
    return pt.is_large_string(kind) or pt.is_large_binary(kind)


def word_count(kind: pa.DataType) -> int:
    """Return the number of words a value of a unified type takes."""
    return kind.byte_width // 8 if pt.is_decimal(kind) else 1


def text_words(types: Sequence[pa.DataType]) -> tuple[int, ...]:
    """Return which words of a key with components of these types stand for byte strings."""
    found, at = [], 0
    for kind in types:
        if is_text(kind):
            found.append(at)
        at += word_count(kind)
    return tuple(found)
