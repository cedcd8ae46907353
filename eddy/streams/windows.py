"""Windows of a stream: the tuples that can still be part of a result."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from eddy.streams.event_time import Units
from eddy.streams.numbers import whole
from stairs.errors import QueryError


@dataclass(frozen=True)
class Rows:
    """A window of the `n` newest tuples of the stream.

    >>> Rows(1000)
    Rows(n=1000)
    """

    n: int

    def __post_init__(self) -> None:
        n = whole(self.n)
        if n is None or not 1 <= n < 1 << 30:
            raise QueryError(
                f"Rows({self.n!r}): the size of a window must be a whole number from 1 to 2^30 - 1; use Unbounded() for"
                " a window of all rows"
            )
        # A frozen class can set a field in this way only.
        object.__setattr__(self, "n", n)

    def __str__(self) -> str:
        return f"ROWS {self.n}"


@dataclass(frozen=True)
class Range:
    """A window of the tuples that are at most `d` older than the newest tuple of the result, `d` included.

    `d` is a timedelta, or a whole number in units of a time column of integers or dates.

    >>> Range(timedelta(minutes=5)) == Range(timedelta(seconds=300))
    True
    """

    d: int | timedelta

    def __post_init__(self) -> None:
        if not isinstance(self.d, timedelta | Units):
            d = whole(self.d)
            if d is None:
                raise QueryError(
                    f"Range({self.d!r}): a span is a timedelta, such as timedelta(seconds=10); for a time column of"
                    " integers or dates, a whole number of its units"
                )
            object.__setattr__(self, "d", d)
        if (self.d < timedelta(0)) if isinstance(self.d, timedelta) else (self.d < 0):
            raise QueryError(f"Range({self.d!r}): a span must not be negative")

    def __str__(self) -> str:
        return f"RANGE {self.d}"


@dataclass(frozen=True)
class Unbounded:
    """A window of all tuples. The memory of the state grows with the stream."""

    def __str__(self) -> str:
        return "UNBOUNDED"


Window = Rows | Range | Unbounded
