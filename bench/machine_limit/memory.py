"""What an access to memory costs at a size of what is accessed."""

from __future__ import annotations

from dataclasses import dataclass
from time import thread_time

import numpy as np
import numpy.typing as npt

from bench.machine_limit.memory_kernels import chase, scatter, sweep_over
from bench.measure import without_gc

LINE = 64
"""Bytes of a cache line."""
LEAST = 4096


def powers_of_two(n_bytes: float) -> int:
    """Return the power of two nearest to so many bytes, by ratio, and at least LEAST."""
    return max(LEAST, 1 << round(np.log2(max(n_bytes, 1))))


def cycle(lines: int, seed: int) -> npt.NDArray[np.int32]:
    """Return int32[lines, 16] in which column 0 leads through all lines in one random cycle."""
    path = np.random.default_rng(seed).permutation(lines).astype(np.int32)
    made = np.zeros((lines, LINE // 4), np.int32)
    made[path, 0] = np.roll(path, -1)
    return made


@dataclass(frozen=True)
class Costs:
    """Nanoseconds at one size of working set, a list entry for each round.

    dependent    an access to a random line that has to end before the next can begin
    independent  an access to a random line, many of them under way
    sequential   a line read in order
    """

    dependent: list[float]
    independent: list[float]
    sequential: list[float]


def costs(n_bytes: int, rounds: int, accesses: int, seed: int = 1) -> Costs:
    """Measure accesses to n_bytes (a power of two >= 4096) of memory, `accesses` of each kind a round.

    The memory comes from NumPy as the engine's does, so pages are of the size that it gets. A first round, which brings
    what fits into the caches, is not counted; each round goes on where the one before ended.
    """
    lines = cycle(n_bytes // LINE, seed)
    words = lines.reshape(-1).view(np.int64)
    shift = 64 - (len(lines).bit_length() - 1)
    passes = max(1, accesses // len(lines))
    found = Costs([], [], [])
    at = 0
    with without_gc():
        for number in range(rounds + 1):
            start = thread_time()
            at = chase(lines, at, accesses)
            one = thread_time()
            scatter(lines, shift, number * accesses, accesses)
            two = thread_time()
            sweep_over(words, passes)
            three = thread_time()
            if number:
                found.dependent.append(1e9 * (one - start) / accesses)
                found.independent.append(1e9 * (two - one) / accesses)
                found.sequential.append(1e9 * (three - two) / (passes * len(lines)))
    return found
