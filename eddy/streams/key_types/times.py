"""Key types of dates, timestamps, durations and times of day.

Timestamps (and durations) of one unit are compared in this unit. No unit holds all values of the others, so different
units are compared as decimal seconds, whose words are those of numbers.
"""

from __future__ import annotations

from fractions import Fraction

import pyarrow as pa
import pyarrow.types as pt

from eddy.streams.key_types.base import KeyType

UNITS = ("s", "ms", "us", "ns")
SECONDS = pa.decimal128(28, 9)
"""Exact seconds, which hold every timestamp and duration of every unit."""
DAY = 86_400
"""The seconds of a day."""


def units_per(kind: pa.DataType) -> Fraction | None:
    """Return the units of a comparable type in a second of time, None for a type that is no time."""
    if pt.is_timestamp(kind) or pt.is_duration(kind) or pt.is_time64(kind):
        return Fraction(10 ** (3 * UNITS.index(kind.unit)))
    return Fraction(1, DAY) if pt.is_date(kind) else None


def finest(kinds: list[pa.DataType]) -> str:
    """Return the finest unit of some types with a unit."""
    return UNITS[max(UNITS.index(kind.unit) for kind in kinds)]


def _one_unit(kinds: list[pa.DataType]) -> bool:
    return len({kind.unit for kind in kinds}) == 1


def _exact_seconds(column: pa.Array) -> pa.Array:
    """Return timestamps or durations as exact decimal seconds."""
    scale = UNITS.index(column.type.unit) * 3
    ticks = column.cast(pa.int64()).cast(pa.decimal128(19, 0))
    # The same digits with the decimal point in another place.
    moved = pa.Array.from_buffers(
        pa.decimal128(19 + scale, scale), len(ticks), ticks.buffers(), ticks.null_count, ticks.offset
    )
    return moved.cast(SECONDS)


class Dates(KeyType):
    """Dates, as days."""

    names = "dates"

    def covers(self, kind: pa.DataType) -> bool:
        return pt.is_date(kind)

    def unified(self, kinds: list[pa.DataType]) -> pa.DataType | None:
        return pa.date32()


class Timestamps(KeyType):
    """Timestamps, either all with a time zone or all without one."""

    names = "timestamps"

    def covers(self, kind: pa.DataType) -> bool:
        return pt.is_timestamp(kind)

    def unified(self, kinds: list[pa.DataType]) -> pa.DataType | None:
        zoned = {kind.tz is not None for kind in kinds}
        if len(zoned) > 1:
            return None
        return pa.timestamp(kinds[0].unit, "UTC" if True in zoned else None) if _one_unit(kinds) else SECONDS

    def cast(self, column: pa.Array, kind: pa.DataType) -> pa.Array:
        if kind == SECONDS:
            return _exact_seconds(column)
        if kind.tz is not None:
            column = column.cast(pa.timestamp(kind.unit, column.type.tz))
        return column.cast(kind)


class Durations(KeyType):
    """Durations."""

    names = "durations"

    def covers(self, kind: pa.DataType) -> bool:
        return pt.is_duration(kind)

    def unified(self, kinds: list[pa.DataType]) -> pa.DataType | None:
        return pa.duration(kinds[0].unit) if _one_unit(kinds) else SECONDS

    def cast(self, column: pa.Array, kind: pa.DataType) -> pa.Array:
        return _exact_seconds(column) if kind == SECONDS else column.cast(kind)


class TimesOfDay(KeyType):
    """Times of day, in the finest unit: a day has less than 2^47 nanoseconds, so each unit holds the coarser ones."""

    names = "times of day"

    def covers(self, kind: pa.DataType) -> bool:
        return pt.is_time(kind)

    def unified(self, kinds: list[pa.DataType]) -> pa.DataType | None:
        return pa.time64("ns" if finest(kinds) == "ns" else "us")
