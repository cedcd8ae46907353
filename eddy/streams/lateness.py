"""The treatment of late rows, and spans of event time in words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Literal

import pyarrow as pa

from eddy.streams.event_time import Units, ticks_per_second
from eddy.streams.numbers import at_least, whole
from stairs.errors import QueryError

Late = Literal["keep", "count"] | Callable[[str, pa.Table], object]
"""The treatment of late rows.

"keep"      stored until `Runtime.late()` returns them
"count"     only counted
a function  called with the name of the stream and the late rows, after the push has committed
"""

LATE_ROWS = 100_000
"""Default bound on the stored late rows of each stream, and on the stored failed rows."""

Failed = Literal["keep", "count"] | Callable[[pa.Table], object]
"""The treatment of rows and groups for which an expression has no value.

"keep"      stored until `Runtime.failed()` returns them
"count"     only counted
a function  called with the failed rows, a table of the columns `eddy.results.failed_rows.FAILED`, after the push has
            committed
"""

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


def checked_span(span: object, what: str) -> int | timedelta:
    """Return a lateness or an idle_after. Raises QueryError unless it is a span of 0 or more."""
    found = span if isinstance(span, timedelta | Units) else whole(span)
    if found is None:
        raise QueryError(f"{what} must be a timedelta or a whole number of ticks, not {span!r}")
    if (found < timedelta(0)) if isinstance(found, timedelta) else (found < 0):
        raise QueryError(f"{what} {found!r} is negative; give 0 or more")
    return found


def check_late(late: object, place: str) -> None:
    """Raise QueryError unless `late` is a treatment of late rows; `place` begins the message."""
    if not callable(late) and late not in ("keep", "count"):
        raise QueryError(
            f"{place}late must be 'keep', 'count' or a function of a stream's name and a table of rows, not {late!r}"
        )


def check_failed(failed: object) -> None:
    """Raise QueryError unless `failed` is a treatment of failed rows."""
    if not callable(failed) and failed not in ("keep", "count"):
        raise QueryError(f"failed must be 'keep', 'count' or a function of a table of rows, not {failed!r}")


def checked_bound_of_rows(rows: object, option: str) -> int:
    """Return a bound on stored rows as an int. Raises QueryError unless it is a whole number of 1 or more."""
    most = at_least(1, rows)
    if most is None:
        name = option.removesuffix("_rows")
        of = " of a stream" if name == "late" else ""
        raise QueryError(
            f"{option}, the bound on the stored {name} rows{of}, must be 1 or more, not {rows!r}; to store none, use"
            f" {name}='count'"
        )
    return most


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
