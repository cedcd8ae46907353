"""Families of comparable key types, with one plain Python value for each value they can hold.

The oracle compares with `==`, so all types of a family share one kind of plain value: int for integers, Decimal for
decimals, nanoseconds for timestamps, clock times and durations, days for dates, str and bytes. `to_arrow` makes an
array of any type of the family out of such values and `to_plain` reads one back; `holds` returns whether a type can
hold a value exactly.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
MS_PER_DAY = 86_400_000
S, MS, US = UNIT_NS["s"], UNIT_NS["ms"], UNIT_NS["us"]


@dataclass(frozen=True)
class KeyTypeFamily:
    """Types that may stand on both sides of an equality, and values to draw from, the plain ones first."""

    name: str
    types: tuple[pa.DataType, ...]
    values: tuple[Any, ...]

    def domain(self, kind: pa.DataType, values: Sequence[Any]) -> list[Any]:
        """Return those of `values` that `kind` holds exactly."""
        return [value for value in values if holds(kind, value)]


FAMILIES = {
    family.name: family
    for family in (
        KeyTypeFamily(
            "signed",
            (
                *(pa.int64(), pa.int32(), pa.int16(), pa.int8(), pa.uint8(), pa.uint16(), pa.uint32()),
                *(pa.run_end_encoded(pa.int32(), pa.int64()), pa.dictionary(pa.int16(), pa.int64())),
            ),
            (0, 1, 2, 3, -1, 127, -128, 255, 256, 2**31 - 1, -(2**31), 2**32 - 1, 2**32, 2**63 - 1, -(2**63)),
        ),
        KeyTypeFamily(
            "unsigned",
            (pa.uint64(), pa.uint32(), pa.uint16(), pa.uint8()),
            (0, 1, 2, 3, 255, 2**32, 2**63 - 1, 2**63, 2**64 - 1),
        ),
        KeyTypeFamily(
            "float",
            (pa.float64(), pa.float32(), pa.float16(), pa.run_end_encoded(pa.int64(), pa.float32())),
            (0.0, -0.0, 1.0, math.nan, -1.5, 0.1, math.inf, -math.inf, 2.0**-149, 1e300),
        ),
        KeyTypeFamily(
            "number",
            (
                *(pa.int64(), pa.uint64(), pa.decimal128(6, 2), pa.int8(), pa.decimal128(20, 4), pa.decimal256(40, 1)),
                *(pa.decimal32(6, 2), pa.decimal64(12, 1), pa.dictionary(pa.int8(), pa.decimal128(20, 4))),
            ),
            (0, 1, 2, -1, Decimal("1.5"), Decimal("0.01"), 2**63 - 1, 2**63, 2**64 - 1, -(2**63), Decimal(10) ** 15),
        ),
        KeyTypeFamily("bool", (pa.bool_(), pa.dictionary(pa.int8(), pa.bool_())), (False, True)),
        KeyTypeFamily(
            "string",
            (
                pa.string(),
                pa.large_string(),
                pa.dictionary(pa.int8(), pa.string()),
                pa.dictionary(pa.int32(), pa.string()),
                pa.string_view(),
                pa.run_end_encoded(pa.int16(), pa.string()),
                pa.dictionary(pa.uint8(), pa.string_view()),
                pa.run_end_encoded(pa.int32(), pa.dictionary(pa.int32(), pa.large_string())),
            ),
            ("a", "b", "", "a ", "ab", "a\0", "é", "e\u0301", "a long value, past any inline length", "𝄞"),
        ),
        KeyTypeFamily(
            "binary",
            (pa.binary(), pa.large_binary(), pa.binary(1), pa.binary_view(), pa.dictionary(pa.int8(), pa.binary(1))),
            (b"a", b"b", b"", b"\0", b"\0\0", b"\xff", b"a longer value, past any inline length"),
        ),
        KeyTypeFamily(
            "date",
            (pa.date32(), pa.date64()),
            (0, 1, -1, 11_323, 2_932_896, -719_162),  # 2001-01-01 and the ends of the calendar among them
        ),
        KeyTypeFamily(
            "timestamp",
            (
                *(pa.timestamp("us"), pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("ns")),
                *(pa.run_end_encoded(pa.int32(), pa.timestamp("us")), pa.dictionary(pa.int16(), pa.timestamp("ns"))),
            ),
            (0, S, 2 * S, MS, US, 1, -S, -1, S + 1, 2**63 - 1, 253402300799 * S),
        ),
        KeyTypeFamily(
            "clock time",
            (pa.time64("us"), pa.time32("s"), pa.time32("ms"), pa.time64("ns")),
            (0, S, 2 * S, MS, US, 1, 24 * 3600 * S - 1),
        ),
        KeyTypeFamily(
            "elapsed",
            (pa.duration("us"), pa.duration("s"), pa.duration("ms"), pa.duration("ns")),
            (0, S, -S, MS, US, 1, 2**63 - 1, 253402300799 * S),
        ),
        KeyTypeFamily(
            "zoned timestamp",
            (pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC"), pa.timestamp("us", "America/New_York")),
            (0, S, US, 1, -1),
        ),
        KeyTypeFamily(
            "extension", (pa.uuid(), pa.dictionary(pa.int32(), pa.uuid())), (b"a" * 16, b"b" * 16, bytes(16))
        ),
        KeyTypeFamily(
            "decimal",
            (pa.decimal128(6, 2), pa.decimal128(9, 0), pa.decimal128(20, 4)),
            (
                Decimal(0),
                Decimal(1),
                Decimal("1.5"),
                Decimal("-1.5"),
                Decimal("0.01"),
                Decimal("0.0001"),
                Decimal(999999999),
            ),
        ),
    )
}


def behind(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values behind dictionaries, runs and extensions."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return behind(kind.value_type)
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def is_ticks(kind: pa.DataType) -> bool:
    """Return whether a type counts in a unit of time below the day."""
    return pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind)


def holds(kind: pa.DataType, value: Any) -> bool:
    """Return whether a type can hold a plain value exactly."""
    kind = behind(kind)
    if value is None:
        return True
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        return bool(limits.min <= value <= limits.max) and value == int(value)
    if pa.types.is_float32(kind) or pa.types.is_float16(kind):
        narrow = np.float32 if pa.types.is_float32(kind) else np.float16
        with np.errstate(over="ignore"):
            return math.isnan(value) or float(narrow(value)) == value
    if is_ticks(kind):
        ticks, rest = divmod(value, UNIT_NS[kind.unit])
        return rest == 0 and -(2**63) <= ticks < 2**63
    if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind):
        return len(value) == kind.byte_width
    if pa.types.is_decimal(kind):
        scaled = Decimal(value).scaleb(kind.scale)
        return scaled == scaled.to_integral_value() and abs(scaled) < 10**kind.precision
    return True


def to_arrow(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return an array of a type, made of plain values that the type holds exactly."""
    if is_ticks(kind):
        ticks = [None if value is None else value // UNIT_NS[kind.unit] for value in values]
        return pa.array(ticks, pa.int32() if pa.types.is_time32(kind) else pa.int64()).cast(kind)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        exact = int if pa.types.is_integer(kind) else Decimal
        return pa.array([None if value is None else exact(value) for value in values], kind)
    if pa.types.is_date(kind):
        factor = MS_PER_DAY if kind == pa.date64() else 1
        count = pa.int64() if kind == pa.date64() else pa.int32()
        return pa.array([None if value is None else value * factor for value in values], count).cast(kind)
    if pa.types.is_dictionary(kind):
        distinct = {repr(value): value for value in values if value is not None}
        numbers = {text: number for number, text in enumerate(distinct)}
        indices = pa.array([None if value is None else numbers[repr(value)] for value in values], kind.index_type)
        kept = to_arrow(list(distinct.values()), kind.value_type)
        return pa.DictionaryArray.from_arrays(indices, kept, ordered=kind.ordered)
    if pa.types.is_run_end_encoded(kind):
        runs = [(k, value) for k, value in enumerate(values, 1) if k == len(values) or repr(values[k]) != repr(value)]
        ends = pa.array([k for k, _ in runs], kind.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, to_arrow([value for _, value in runs], kind.value_type))
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, to_arrow(values, kind.storage_type))
    if pa.types.is_union(kind):
        # A union of a number and a string.
        codes = pa.array([int(isinstance(value, str)) for value in values], pa.int8())
        parts = [[value if isinstance(value, python_type) else None for value in values] for python_type in (int, str)]
        children = [pa.array(part, kind.field(k).type) for k, part in enumerate(parts)]
        return pa.UnionArray.from_sparse(codes, children, [field.name for field in kind])
    if pa.types.is_struct(kind):
        parts = [to_arrow([None if row is None else row[field.name] for row in values], field.type) for field in kind]
        return pa.StructArray.from_arrays(
            parts, fields=list(kind), mask=pa.array([row is None for row in values], pa.bool_())
        )
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        ends = [0, *accumulate(len(row or ()) for row in values)]
        parts, starts = (
            to_arrow([entry for row in values for entry in row or ()], kind.value_type),
            pa.array(ends, pa.int32()),
        )
        missing = pa.array([row is None for row in values], pa.bool_())
        if pa.types.is_list(kind):
            return pa.ListArray.from_arrays(starts, parts, kind, mask=missing)
        lengths = pa.array([len(row or ()) for row in values], pa.int32())
        return pa.ListViewArray.from_arrays(starts[:-1], lengths, parts, kind, mask=missing)
    if pa.types.is_float16(kind):
        return pa.array([None if value is None else np.float16(value) for value in values], kind)
    return pa.array(values, kind)


def to_plain(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the plain values of an array of any type of the families, or of any payload."""
    kind = column.type
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in to_plain(chunk)]
    if pa.types.is_dictionary(kind):
        values = [*to_plain(column.dictionary), None]
        return [values[-1 if index is None else index] for index in column.indices.to_pylist()]
    if pa.types.is_run_end_encoded(kind):
        values, ends = to_plain(column.values), column.run_ends.to_pylist()
        rows = range(column.offset, column.offset + len(column))
        return [values[bisect_right(ends, row)] for row in rows]
    if isinstance(kind, pa.BaseExtensionType):
        return to_plain(column.storage)
    if is_ticks(kind):
        ticks = column.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64()).to_pylist()
        return [None if tick is None else tick * UNIT_NS[kind.unit] for tick in ticks]
    if pa.types.is_date(kind):
        days = column.cast(pa.date32()).cast(pa.int32())
        return list(days.to_pylist())
    return list(column.to_pylist())


def to_text(value: Any) -> str:
    """Return a value in a form in which NaN equals NaN and -0.0 differs from 0.0: for comparing rows, not keys."""
    if isinstance(value, Decimal):
        return str(int(value)) if value == int(value) else str(value.normalize())
    return repr(value)
