"""Spans of event time in words, for messages."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa

from eddy.streams.event_time import ticks_per_second

_UNITS = (
    (86_400 * 10**9, "day"),
    (3_600 * 10**9, "hour"),
    (60 * 10**9, "minute"),
    (10**9, "second"),
    (10**6, "millisecond"),
    (10**3, "microsecond"),
    (1, "nanosecond"),
)
_MINUTE = 2
"""From this unit up, the text has the next smaller unit as well."""


def _nanoseconds(ticks: int, kind: pa.DataType) -> int | None:
    """Return ticks of a time type in nanoseconds, None for integers."""
    if pa.types.is_date(kind):
        return ticks * _UNITS[0][0]
    per_second = ticks_per_second(kind)
    return None if per_second is None else ticks * (10**9 // per_second)


def span_text(ticks: int, kind: pa.DataType) -> str:
    """Return a span of event time in words, in its one or two largest units.

    >>> span_text(93_000_000, pa.timestamp("us")), span_text(1_500, pa.timestamp("ms")), span_text(7, pa.int64())
    ('1 minute 33 seconds', '1.5 seconds', '7 ticks')
    """
    left = _nanoseconds(ticks, kind)
    if left is None:
        return _counted(f"{ticks:,}", "tick")
    k = next((k for k, (size, _) in enumerate(_UNITS) if left >= size), len(_UNITS) - 1)
    size, unit = _UNITS[k]
    if k > _MINUTE:
        return _counted(f"{left / size:.3f}".rstrip("0").rstrip("."), unit)
    text = _counted(f"{left // size:,}", unit)
    smaller, smaller_unit = _UNITS[k + 1]
    rest = left % size // smaller
    return f"{text} {_counted(str(rest), smaller_unit)}" if rest else text


def _counted(number: str, unit: str) -> str:
    return f"{number} {unit}{'' if number == '1' else 's'}"


def lateness_text(ticks: int, kind: pa.DataType) -> str:
    """Return the argument of `Query` for a lateness of at least this many ticks.

    >>> lateness_text(7_000, pa.timestamp("ms")), lateness_text(7, pa.int64())
    ('lateness=timedelta(seconds=7)', 'lateness=7')
    """
    nanoseconds = _nanoseconds(ticks, kind)
    if nanoseconds is not None:
        try:
            return f"lateness={timedelta(microseconds=-(-nanoseconds // 1000))!r}".replace("datetime.", "")
        except OverflowError:
            pass
    return f"lateness={ticks}"
