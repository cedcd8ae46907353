"""Event times: the types that a time column may have, and the one type of all event times of a query."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from eddy.streams.key_types import unified
from eddy.streams.key_types.times import SECONDS, UNITS, finest
from stairs.errors import QueryError
from stairs.graph import FOREVER
from stairs.plain_types import plain

MOST_SECONDS = 10**9 * 86_400 - 1
"""The seconds of the longest timedelta."""


class Units(int):
    """A span in units of a time type that eddy itself has computed, so that the unit is known."""


def unified_time(types: Iterable[pa.DataType]) -> pa.DataType | None:
    """Return the type in which event times are compared: integers, timestamps or dates; None for any other types."""
    kinds = [plain(kind) for kind in types]
    if all(pt.is_integer(kind) for kind in kinds):
        return pa.int64()
    kind = unified(kinds)
    if kind == SECONDS and all(pt.is_timestamp(time_type) for time_type in kinds):
        kind = pa.timestamp(finest(kinds), None if kinds[0].tz is None else "UTC")
    if kind is None or not (pt.is_timestamp(kind) or pt.is_date(kind)):
        return None
    return kind


def ticks_per_second(kind: pa.DataType) -> int | None:
    """Return the ticks of a timestamp type in a second, None for a type without a unit shorter than a day.

    An encoding counts as the type that it encodes.
    """
    kind = plain(kind)
    return 10 ** (3 * UNITS.index(kind.unit)) if pt.is_timestamp(kind) else None


def in_words(count: int, kind: pa.DataType) -> str:
    """Return a number of ticks in a form for users: a date and time, or the number itself.

    >>> in_words(-1, pa.timestamp("ms"))
    '1969-12-31T23:59:59.999'
    """
    kind = plain(kind)
    if pt.is_timestamp(kind):
        return str(np.datetime64(count, kind.unit))
    return f"{np.timedelta64(count, kind.unit)}" if pt.is_duration(kind) else str(count)


def reach(kind: pa.DataType) -> str:
    """Return the range of event times and compared values of a type, and a remedy for values beyond the range.

    >>> reach(pa.timestamp("ns"))
    'between 1896-12-06 and 2043-01-25 (±2^61 ns); declare the columns as timestamp[us], or filter such rows out'
    """
    kind = plain(kind)
    if not pt.is_timestamp(kind):
        return f"within ±2^61 of {kind}; filter such rows out"
    low, high = (str(np.datetime64(count, kind.unit)).partition("T")[0] for count in (-FOREVER, FOREVER))
    wider = UNITS[max(UNITS.index(kind.unit) - 1, 0)]
    return (
        f"between {low} and {high} (±2^61 {kind.unit}); declare the columns as timestamp[{wider}], or filter such rows"
        " out"
    )


def ticks(span: int | timedelta, common: pa.DataType, column_type: pa.DataType | None, what: str) -> int:
    """Return a span in ticks of the common time type.

    span         a timedelta; or a whole number in units of `column_type`, unless that is a type of timestamps
    column_type  the type of a time column, None = the common time type
    what         the name of the span in errors

    Raises QueryError for a number where event times are timestamps, except 0, and for a span that is not a whole number
    of ticks from 0 to 2^61.
    """
    per_second = ticks_per_second(common)
    if isinstance(span, timedelta):
        seconds = Fraction(span // timedelta(microseconds=1), 1_000_000)
        if getattr(span, "nanoseconds", 0):
            # A timedelta of pandas.
            seconds += Fraction(span.nanoseconds, 10**9)  # type: ignore[attr-defined]
        if pa.types.is_date(common):
            exact = seconds / 86_400
        elif per_second is None:
            raise QueryError(f"{what}: {span} is a timedelta, but event times are integers; give a whole number")
        else:
            exact = seconds * per_second
    else:
        own_per_second = ticks_per_second(column_type) if column_type is not None else None
        if per_second is not None and span and not isinstance(span, Units):
            raise QueryError(
                f"{what}: the number {span} has no unit, and event times are {common}. Give a timedelta:"
                f" timedelta(seconds={span}), if seconds are meant"
            )
        exact = Fraction(span)
        if per_second is not None and own_per_second is not None:
            exact *= Fraction(per_second, own_per_second)
    if exact.denominator != 1 or not 0 <= exact <= FOREVER:
        raise QueryError(
            f"{what}: {span} is not a whole number of ticks from 0 to 2^61 of the time type {common}; use a finer"
            " time type or another span"
        )
    return int(exact)


def span_of(count: int, common: pa.DataType, column_type: pa.DataType) -> Units | timedelta:
    """Return ticks of the common time type as a span of a time column, rounded up to its units; at most `FOREVER`.

    The span is a timedelta if the column has timestamps of microseconds or coarser units.
    """
    per_second, own_per_second = ticks_per_second(common), ticks_per_second(column_type)
    if per_second is None or own_per_second is None:
        return Units(count)
    units = min(-(-count * own_per_second // per_second), FOREVER * own_per_second // per_second)
    if own_per_second > 10**6 or units > MOST_SECONDS * own_per_second:
        return Units(units)
    return timedelta(microseconds=units * 10**6 // own_per_second)
