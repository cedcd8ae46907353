"""Whole numbers in arguments: ints, numpy integers, anything with `__index__` except booleans."""

from __future__ import annotations

import operator
from typing import Any


def whole(value: Any) -> int | None:
    """Return a whole number as an int; None for anything else, also for a boolean.

    >>> import numpy as np
    >>> whole(np.int64(3)), whole(True), whole(3.0)
    (3, None, None)
    """
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def at_least(least: int, value: Any) -> int | None:
    """Return a whole number of `least` or more as an int, None for anything else."""
    number = whole(value)
    return None if number is None or number < least else number
