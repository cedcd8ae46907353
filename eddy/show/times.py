"""Event times as text and as Unix time."""

from __future__ import annotations

import pyarrow as pa


def time_text(ticks: int | None, kind: pa.DataType | None) -> str | None:
    """Return ticks of a time type as text; None where they are no timestamp.

    >>> time_text(86_400, pa.timestamp("s"))
    '1970-01-02 00:00:00'
    """
    if ticks is None or kind is None or not pa.types.is_timestamp(kind):
        return None
    try:
        return str(pa.scalar(ticks, pa.int64()).cast(kind))
    except (pa.ArrowException, ValueError, OverflowError):
        return None  # there is no such date


def time_seconds(ticks: int | None, kind: pa.DataType | None) -> float | None:
    """Return ticks of a time type as Unix time; None where they are no timestamp.

    >>> time_seconds(1_500, pa.timestamp("ms"))
    1.5
    """
    if ticks is None or kind is None or not pa.types.is_timestamp(kind):
        return None
    return ticks / {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
