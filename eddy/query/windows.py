"""Windows of a stream: which of its tuples can still be part of a result."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from eddy.query.numbers import whole
from stairs.errors import QueryError


@dataclass(frozen=True)
class Rows:
    """The `n` newest tuples of the stream."""

    n: int

    def __post_init__(self) -> None:
        n = whole(self.n)
        if n is None or not 1 <= n < 1 << 30:
            raise QueryError(
                f"Rows({self.n!r}): a window of rows takes a whole number from 1 to 2^30 - 1; use Unbounded() to keep"
                " all rows"
            )
        # The way to set a field of a frozen class.
        object.__setattr__(self, "n", n)

    def __str__(self) -> str:
        return f"ROWS {self.n}"


@dataclass(frozen=True)
class Range:
    """The tuples at most `d` older than the youngest component of the result; `d` itself is included.

    `d` is a timedelta, or a whole number in units of the stream's time column.
    """

    d: int | timedelta

    def __post_init__(self) -> None:
        if not isinstance(self.d, timedelta):
            d = whole(self.d)
            if d is None:
                raise QueryError(
                    f"Range({self.d!r}): a span is a timedelta or a whole number in units of the time column"
                )
            object.__setattr__(self, "d", d)
        if (self.d < timedelta(0)) if isinstance(self.d, timedelta) else (self.d < 0):
            raise QueryError(f"Range({self.d!r}): a span is not negative")

    def __str__(self) -> str:
        return f"RANGE {self.d}"


@dataclass(frozen=True)
class Unbounded:
    """All tuples ever. Memory grows with the stream."""

    def __str__(self) -> str:
        return "UNBOUNDED"


Window = Rows | Range | Unbounded
