"""Timestamps with a zone as local times: their rounding, and local times as timestamps.

A clock that is turned forward omits some local times, its *gap*, and a clock that is turned back shows some local times
twice. The rules are the rules of PostgreSQL: a local time in a gap is read with the offset before the change, and a
local time that comes twice means the second moment. Hours and shorter units are rounded with the offset that the
timestamp has. Arrow's own rounding of a timestamp with a zone raises an error near each change of the clock.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_OF_DAYS = ("year", "quarter", "month", "week", "day")
"""The units of whole days."""


def floored(time: pc.Expression, kind: pa.DataType, unit: str) -> pc.Expression:
    """Return timestamps of a type rounded down to a unit of their local time."""
    if kind.tz is None:
        return pc.floor_temporal(time, unit=unit)
    local = pc.local_timestamp(time)
    down = pc.floor_temporal(local, unit=unit)
    if unit in _OF_DAYS:
        return instant(down, kind)
    ticks = pc.subtract(time.cast(pa.int64()), pc.subtract(local.cast(pa.int64()), down.cast(pa.int64())))
    return ticks.cast(kind)


def instant(local: pc.Expression, kind: pa.DataType) -> pc.Expression:
    """Return local times, of the unit of a type, as timestamps of that type, which has a zone."""
    # A local time in a gap becomes a moment before the change, and then gets the offset of that moment.
    near = pc.assume_timezone(local, kind.tz, ambiguous="latest", nonexistent="earliest")
    offset = pc.subtract(pc.local_timestamp(near).cast(pa.int64()), near.cast(pa.int64()))
    return pc.subtract(local.cast(pa.int64()), offset).cast(kind)


def local_date(time: pc.Expression, kind: pa.DataType) -> pc.Expression:
    """Return the local dates of timestamps of a type."""
    local = time if kind.tz is None else pc.local_timestamp(time)
    return pc.floor_temporal(local, unit="day").cast(pa.date32())
