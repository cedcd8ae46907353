"""Seeds of hash tables: secret numbers that each directory draws for itself.

No result, no order of results, no figure and no snapshot depends on them. The file of a live engine has those of its
directories. A process that forks leaves its directories to the child, seeds included; new ones draw from the system.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

SOURCE: Callable[[int], bytes] = os.urandom
"""Returns so many random bytes. A test may replace it by one that repeats itself."""
BITS = 64


def seeds(n: int) -> npt.NDArray[np.int64]:
    """Return n odd random numbers, int64[n]."""
    return np.frombuffer(SOURCE(8 * n), np.int64) | 1


def spacing() -> int:
    """Return an odd random factor by which the multiples of 1 lie almost evenly modulo 2^64, as an int64.

    Its quotient by 2^64 has a continued fraction of ones and twos alone, drawn at random. So no fraction with a small
    denominator is near it, and the least distance of the first n multiples is more than 1 / (4 n) of the range (Slater,
    "Gaps and steps for the sequence nθ mod 1", 1967). Knuth's golden ratio, all ones, is best; one digit in eight is a
    two, so that there are some 2^23 factors that are nearly as good.
    """
    first, second, third = (int.from_bytes(SOURCE(BITS // 8), "little") for _ in range(3))
    digits = first & second & third
    above, left, below, right = 1, 0, 0, 1
    for k in range(BITS):
        digit = 1 + (digits >> k & 1)
        above, left = left, digit * left + above
        below, right = right, digit * right + below
    factor = (left << BITS) // right | 1
    return factor - (1 << BITS) if factor >= 1 << (BITS - 1) else factor
