"""The options on late and failed rows, and their validation. Which rows are late is decided in `eddy.ingest.clock`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Literal

import pyarrow as pa

from eddy.streams.event_time import Units
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


def checked_span(span: object, what: str) -> int | timedelta:
    """Return a lateness or an idle_after. Raises QueryError unless it is a span of 0 or more."""
    checked = span if isinstance(span, timedelta | Units) else whole(span)
    if checked is None:
        raise QueryError(f"{what} must be a timedelta or a whole number of ticks, not {span!r}")
    if (checked < timedelta(0)) if isinstance(checked, timedelta) else (checked < 0):
        raise QueryError(f"{what} {checked!r} is negative; give 0 or more")
    return checked


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
