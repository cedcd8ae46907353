"""Watermarks that the caller gives: what each push must and must not name."""

from __future__ import annotations

from eddy.query.numbers import whole
from stairs.errors import InputError
from stairs.graph import FOREVER


def as_ticks(watermark: object) -> int | None:
    """Return a watermark as an int, None for none. Raises InputError for what is no whole number."""
    ticks = None if watermark is None else whole(watermark)
    if ticks is None and watermark is not None:
        raise InputError(f"watermark is a whole number of ticks of the event times, not {watermark!r}")
    return ticks


def late_before(watermark: int | None, given: int | None, *, timed: bool, position: int) -> int | None:
    """Return the time before which rows of a push are late; None = it follows from the rows.

    watermark  what is named with the push, None = nothing
    given      what was named last, None = nothing so far
    timed      whether a stream has a Range window
    position   arrivals taken so far

    Raises InputError for a watermark that goes back or cannot be, and for one that is missing or comes too late.
    """
    if watermark is None:
        if given is not None:
            raise InputError(
                f"a push without a watermark after one with watermark={given}: name one with each push, the same"
                " again if nothing is known"
            )
        return None
    if not timed:
        raise InputError(f"watermark={watermark}: no stream has a Range window to forget by; leave it out")
    if not -FOREVER <= watermark <= FOREVER:
        raise InputError(f"watermark={watermark}: times lie within ±2^61 ticks")
    if given is None and position:
        raise InputError(f"watermark={watermark} after {position} arrivals without one: give it from the first push on")
    if given is not None and watermark < given:
        raise InputError(f"watermark={watermark} is older than {given}, given before: it never goes back")
    return -FOREVER if given is None else given
