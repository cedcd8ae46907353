"""Repeated measurements of one thing as one figure and what it varied by."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from bench.harness.figure import Row


def spread(values: Sequence[float], name: str) -> Row:
    """Return the median as column `name`, the least and the most as `name`_low and `name`_high, and their number.

    >>> dict(spread([3.0, 1.0, 2.0], "seconds"))
    {'seconds': 2.0, 'seconds_low': 1.0, 'seconds_high': 3.0, 'repeats': 3}
    """
    return {
        name: float(median(values)),
        f"{name}_low": float(min(values)),
        f"{name}_high": float(max(values)),
        "repeats": len(values),
    }
