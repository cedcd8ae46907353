"""Event times: the types that a time column may have, and the one type of all event times of a query."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.types as pt

from eddy.query.key_types import unified
from eddy.query.key_types.times import SECONDS, UNITS, finest
from stairs.plain_types import plain


def unified_time(types: Iterable[pa.DataType]) -> pa.DataType | None:
    """Return the type in which event times are compared: integers, timestamps or dates; None for any other types."""
    kinds = [plain(kind) for kind in types]
    if all(pt.is_integer(kind) for kind in kinds):
        return pa.int64()
    kind = unified(kinds)
    if kind == SECONDS and all(pt.is_timestamp(one) for one in kinds):
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
