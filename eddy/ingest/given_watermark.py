"""Watermarks that the caller passes to each push, and their validation."""

from __future__ import annotations

from eddy.streams.numbers import whole
from stairs.errors import InputError
from stairs.graph import FOREVER


def as_ticks(watermark: object) -> int | None:
    """Return a watermark as an int, None for None. Raises InputError for any other type."""
    ticks = None if watermark is None else whole(watermark)
    if ticks is None and watermark is not None:
        raise InputError(f"watermark must be a whole number of ticks of the event times, not {watermark!r}")
    return ticks


def check_given(watermark: int, before: int) -> None:
    """Raise InputError for a watermark that is out of range, or below the one before it (-FOREVER = none)."""
    if not -FOREVER <= watermark <= FOREVER:
        raise InputError(f"watermark={watermark}: event times must lie within ±2^61 ticks")
    if watermark < before:
        raise InputError(f"watermark={watermark} is below {before}, the watermark so far: a watermark never decreases")


def check_timed(watermark: int | None, timed: bool) -> None:
    """Raise InputError for a watermark where no stream has a Range window."""
    if watermark is not None and not timed:
        raise InputError(f"watermark={watermark}: no stream has a Range window that it could expire; leave it out")
