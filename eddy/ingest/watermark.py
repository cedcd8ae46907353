"""Watermarks that the caller passes to each push, and their validation."""

from __future__ import annotations

from eddy.query.numbers import whole
from stairs.errors import InputError
from stairs.graph import FOREVER


def as_ticks(watermark: object) -> int | None:
    """Return a watermark as an int, None for None. Raises InputError for any other type."""
    ticks = None if watermark is None else whole(watermark)
    if ticks is None and watermark is not None:
        raise InputError(f"watermark must be a whole number of ticks of the event times, not {watermark!r}")
    return ticks


def late_before(watermark: int | None, given: int | None, *, timed: bool, position: int) -> int | None:
    """Return the event time below which rows of a push are late; None = it follows from the rows.

    watermark  the watermark of this push, None = not passed
    given      the watermark passed last, None = none so far
    timed      whether a stream has a Range window
    position   arrivals so far

    Raises InputError for a watermark that decreases or is out of range, and if only some pushes have one.
    """
    if watermark is None:
        if given is not None:
            raise InputError(
                f"this push has no watermark, an earlier one had watermark={given}: pass one with each push, the same"
                " one if it has not advanced"
            )
        return None
    if not timed:
        raise InputError(f"watermark={watermark}: no stream has a Range window that it could expire; leave it out")
    if not -FOREVER <= watermark <= FOREVER:
        raise InputError(f"watermark={watermark}: event times must lie within ±2^61 ticks")
    if given is None and position:
        raise InputError(f"watermark={watermark} after {position} arrivals without one: pass it from the first push on")
    if given is not None and watermark < given:
        raise InputError(f"watermark={watermark} is below {given}, passed before: a watermark never decreases")
    return -FOREVER if given is None else given
