"""How fast one thing grows with another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the exponent b of y = a x^b, by least squares of the logarithms; two or more different x, all above 0.

    >>> round(slope([1, 10, 100], [3, 30, 300]), 6)
    1.0
    """
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
