"""Windows of groups: the intervals of event time over which results are aggregated. They are aligned to the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from eddy.streams.numbers import whole
from stairs.errors import QueryError

Span = int | timedelta


def _check(window: GroupWindow, spans: dict[str, Span]) -> None:
    """Raise QueryError unless the spans are positive, and the names of columns are strings."""
    name = type(window).__name__
    for what, span in spans.items():
        number = span if isinstance(span, timedelta) else whole(span)
        if number is None:
            raise QueryError(
                f"{name}: {what} must be a timedelta or a whole number of ticks of the event times, not {span!r}"
            )
        if (number <= timedelta(0)) if isinstance(number, timedelta) else (number <= 0):
            raise QueryError(f"{name}: {what} must be greater than 0, not {span!r}")
        # A frozen class can set a field only in this way.
        object.__setattr__(window, what, number)
    if window.time is not None and not isinstance(window.time, str):
        raise QueryError(f"{name}: time must be the event time of a stream, such as 'orders.at', not {window.time!r}")
    for what in ("start", "end"):
        column = getattr(window, what)
        if column is not None and (not isinstance(column, str) or not column):
            raise QueryError(f"{name}: {what} must be the name of an output column or None, not {column!r}")


@dataclass(frozen=True)
class Tumbling:
    """Windows of one size that follow each other: [k * size, (k + 1) * size) for every whole k.

    size        a timedelta, or ticks of integer event times
    time        event time of a result: None = the greatest of its components; "stream.column" = that of this stream's
                component; the column must be the time column of the stream
    start, end  names of the output columns that have the bounds of the window, the end excluded; None = no column

    >>> Tumbling(60)
    Tumbling(size=60, time=None, start='window_start', end='window_end')
    """

    size: Span
    time: str | None = None
    start: str | None = "window_start"
    end: str | None = "window_end"

    def __post_init__(self) -> None:
        _check(self, {"size": self.size})


@dataclass(frozen=True)
class Hopping:
    """Windows of one size that begin at intervals of `hop`: [k * hop, k * hop + size) for every whole k.

    size, hop         timedeltas, or ticks of integer event times; a hop beyond the size leaves gaps
    time, start, end  as in `Tumbling`

    >>> Hopping(60, 20).hop
    20
    """

    size: Span
    hop: Span
    time: str | None = None
    start: str | None = "window_start"
    end: str | None = "window_end"

    def __post_init__(self) -> None:
        _check(self, {"size": self.size, "hop": self.hop})


@dataclass(frozen=True)
class Session:
    """Windows that end when no result of the group comes for `gap`: [first event time, last event time + gap).

    gap               a timedelta, or ticks of integer event times. Two results of a group whose event times differ by
                      less than the gap are in one session
    time, start, end  as in `Tumbling`

    >>> Session(30).gap
    30
    """

    gap: Span
    time: str | None = None
    start: str | None = "window_start"
    end: str | None = "window_end"

    def __post_init__(self) -> None:
        _check(self, {"gap": self.gap})


GroupWindow = Tumbling | Hopping | Session
