"""Converts Python values to Arrow arrays without changing a value.

`pa.array(values, kind)` truncates values that do not fit: it turns 00.9 s into second 0, a datetime into its date, a
time in Tokyo into a time without a zone, 1.5 into 1, NaT into the year 1. So each family of types names the classes of
Python that it takes, and units and widths are checked by casts, which raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

Classes = tuple[type, ...]


class TypeFamily(NamedTuple):
    """Types of Arrow that take the same classes of Python."""

    holds: Callable[[pa.DataType], bool]
    classes: Classes
    barred: Classes  # subclasses of `classes` with another meaning
    words: str


_WHOLE = 1 << 53
"""All integers up to this bound are exact floats."""
# A bool is an int of Python, a timedelta64 an integer of NumPy, a datetime a date.
_NO_NUMBERS: Classes = (bool, np.timedelta64)
FAMILIES = (
    TypeFamily(pt.is_integer, (int, np.integer), _NO_NUMBERS, "integers"),
    TypeFamily(pt.is_floating, (float, int, np.floating, np.integer), _NO_NUMBERS, "numbers"),
    TypeFamily(pt.is_decimal, (Decimal, int), _NO_NUMBERS, "Decimals or integers"),
    TypeFamily(pt.is_boolean, (bool, np.bool_), (), "booleans"),
    TypeFamily(lambda kind: pt.is_string(kind) or pt.is_large_string(kind), (str,), (), "strings"),
    TypeFamily(
        lambda kind: pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind),
        (bytes, bytearray, memoryview),
        (),
        "bytes",
    ),
    # An integer is a number of ticks, as for Arrow: since the epoch, or of the span.
    TypeFamily(pt.is_timestamp, (datetime, np.datetime64, int), (bool,), "datetimes"),
    TypeFamily(pt.is_date32, (date, int), (datetime, bool), "dates"),
    TypeFamily(pt.is_date64, (date,), (datetime,), "dates"),
    TypeFamily(pt.is_time, (time,), (), "times"),
    TypeFamily(pt.is_duration, (timedelta, np.timedelta64, int), (bool,), "timedeltas"),
)


def array_of(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    """Return an array of a plain type that holds exactly the values given; None is null.

    Costs a few passes in Python over the values. Raises TypeError, ValueError, OverflowError or pa.ArrowException for
    a value that the type cannot hold as it is.
    """
    values = list(values)
    if set(map(type, values)) <= {type(None)}:
        return pa.nulls(len(values), kind)
    _check(values, kind)
    array = pa.array([_ticks(value, kind) for value in values] if _has_times(kind) else values, kind)
    if not pt.is_nested(kind) and _family(kind) is None and array.to_pylist() != values:
        raise TypeError(f"a value would change from {values[:3]} to {array[:3].to_pylist()}")
    return array


def cast_exactly(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Cast a plain column to another width or unit. Raises pa.ArrowInvalid for a value that would change."""
    if pt.is_null(column.type):
        return pa.nulls(len(column), wanted)
    converted = column.cast(wanted)
    if pt.is_floating(wanted) and wanted.bit_width < column.type.bit_width:
        # Arrow rounds floats without an error.
        same = pc.or_(pc.equal(converted.cast(column.type), column), pc.is_nan(column))
        if pc.any(pc.invert(same)).as_py():
            value = column[pc.index(same, False).as_py()]
            raise pa.ArrowInvalid(f"{value} would be rounded")
    return converted


def _family(kind: pa.DataType) -> TypeFamily | None:
    return next((family for family in FAMILIES if family.holds(kind)), None)


def _has_times(kind: pa.DataType) -> bool:
    """Return whether a type, or a part of it, is a type for which NumPy has a class of times."""
    parts = (kind.field(k).type for k in range(kind.num_fields))
    return pt.is_timestamp(kind) or pt.is_duration(kind) or any(map(_has_times, parts))


def _ticks(value: Any, kind: pa.DataType) -> Any:
    """Return a value with NumPy's times as ticks of the type: of those in arrays, Arrow ignores the unit."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return cast_exactly(pa.array([value]), kind).cast(pa.int64())[0].as_py()
    if value is None or not pt.is_nested(kind):
        return value
    if pt.is_struct(kind):
        return {part.name: _ticks(value.get(part.name), part.type) for part in kind}
    if pt.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(_ticks(key, kind.key_type), _ticks(item, kind.item_type)) for key, item in pairs]
    return [_ticks(element, kind.field(0).type) for element in value] if kind.num_fields == 1 else value


def _check(values: list[Any], kind: pa.DataType) -> None:
    """Raise the error of the first value that a type, or a part of a nested type, cannot hold as it is."""
    present = [value for value in values if value is not None]
    if pt.is_struct(kind):
        names = {part.name for part in kind}
        for row in present:
            if not isinstance(row, Mapping) or not names.issuperset(row):
                raise TypeError(f"{row!r} does not fit; give dicts with the keys {sorted(names)}")
        for part in kind:
            _check([row.get(part.name) for row in present], part.type)
    elif pt.is_map(kind):
        pairs = list(chain.from_iterable(row.items() if isinstance(row, Mapping) else row for row in present))
        _check([key for key, _ in pairs], kind.key_type)
        _check([item for _, item in pairs], kind.item_type)
    elif pt.is_nested(kind) and kind.num_fields == 1:
        strange = next((row for row in present if not isinstance(row, list | tuple | np.ndarray)), None)
        if strange is not None:
            raise TypeError(f"{strange!r} is of class {type(strange).__name__}; give lists")
        _check(list(chain.from_iterable(present)), kind.field(0).type)
    elif (family := _family(kind)) is not None:
        _check_classes(present, family)
        if pt.is_temporal(kind):
            _check_times(present, kind)
        elif pt.is_floating(kind):
            _check_floats(present, kind)


def _check_classes(present: list[Any], family: TypeFamily) -> None:
    for value_class in set(map(type, present)):
        if issubclass(value_class, family.classes) and not issubclass(value_class, family.barred):
            continue
        value = next(value for value in present if type(value) is value_class)
        raise TypeError(f"{value!r} is of class {value_class.__name__}; give {family.words}")


def _check_floats(present: list[Any], kind: pa.DataType) -> None:
    for value in present:
        # Arrow checks integers of Python, reads unsigned ones of NumPy as signed, and rounds long doubles.
        if isinstance(value, np.integer) and not -_WHOLE <= int(value) <= _WHOLE:
            raise OverflowError(f"{value!r} is beyond 2**53, and floats do not have all integers there")
        if isinstance(value, np.longdouble) and float(value) != value and value == value:
            raise ValueError(f"{value!r} would be rounded")
    if kind.bit_width < 64:
        cast_exactly(pa.array(present, pa.float64()), kind)


def _check_times(present: list[Any], kind: pa.DataType) -> None:
    """Check times of day, moments and spans: zone and unit."""
    zoned = pt.is_timestamp(kind) and kind.tz is not None
    present = [value for value in present if not isinstance(value, int)]
    for value in present:
        if value != value:
            raise ValueError(f"{value!r} is not a time; give None")
        # NumPy's datetimes have no zone, dates and spans neither.
        if pt.is_timestamp(kind) and getattr(value, "tzinfo", None) is not None and value.utcoffset() is None:
            raise ValueError(f"{value!r} has a time zone without an offset; convert it first")
        if (pt.is_timestamp(kind) or pt.is_time(kind)) and (getattr(value, "tzinfo", None) is not None) != zoned:
            problem = "has no time zone" if zoned else "has a time zone"
            raise ValueError(f"{value!r} {problem}, and the type has {'one' if zoned else 'none'}; convert it first")
    if pt.is_date(kind) or kind.unit == "ns" or any(isinstance(value, np.generic) for value in present):
        return
    for value in present:
        # pandas' times have nanoseconds, which Arrow's conversion ignores.
        if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
            raise ValueError(f"{value!r} has nanoseconds, and the type is in {kind.unit}; round it first")
    if pt.is_timestamp(kind):
        finest = pa.timestamp("us", kind.tz)
    else:
        finest = pa.time64("us") if pt.is_time(kind) else pa.duration("us")
    cast_exactly(pa.array(present, finest), kind)
