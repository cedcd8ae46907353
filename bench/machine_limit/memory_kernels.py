"""Loops that only access memory. Each returns its result, so that no access can be optimized away."""

from __future__ import annotations

import numpy as np

from stairs.kernels.accelerate import jit, u64


@jit
def chase(lines: np.ndarray, first: int, steps: int) -> int:
    """Go from cache line to cache line, each naming the next: one access at a time. Returns the line where it ends.

    lines int32[n, 16]; lines[k, 0] is the line after k.
    """
    at = np.int64(first)
    for _ in range(steps):
        at = np.int64(lines[u64(at), 0])
    return at


@jit
def scatter(lines: np.ndarray, shift: int, first: int, steps: int) -> int:
    """Add up `steps` random lines; no access depends on another, so the machine overlaps as many as it can.

    lines int32[2^(64 - shift), 16]. The k-th access goes to line mixed(first + k) >> shift; `mixed` is the finish of
    splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
    """
    total = np.int64(0)
    for k in range(steps):
        x = u64(first + k) * u64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> u64(30))) * u64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> u64(27))) * u64(0x94D049BB133111EB)
        total += np.int64(lines[(x ^ (x >> u64(31))) >> u64(shift), 0])
    return total


@jit
def sweep_over(words: np.ndarray, passes: int) -> int:
    """Add up int64[n] from front to end, `passes` times."""
    total = np.int64(0)
    for p in range(passes):
        for k in range(words.shape[0]):
            total += words[u64(k)] ^ p
    return total
