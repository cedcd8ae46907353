"""Join graphs of the usual shapes, as the pairs of streams that equalities connect. Tests and fuzzer draw from them."""

from __future__ import annotations

from itertools import combinations

SHAPES = ("chain", "star", "cycle", "clique", "snowflake")


def edges(shape: str, n: int) -> list[tuple[int, int]]:
    """Return the edges of a join graph over streams 0 to n - 1.

    >>> edges("snowflake", 6)
    [(0, 1), (0, 2), (1, 3), (2, 4), (1, 5)]
    """
    if shape == "star":
        return [(0, k) for k in range(1, n)]
    if shape == "clique":
        return list(combinations(range(n), 2))
    if shape == "snowflake":
        return [(0 if k < 3 else 1 + (k - 3) % 2, k) for k in range(1, n)]
    chain = [(k, k + 1) for k in range(n - 1)]
    return [*chain, (n - 1, 0)] if shape == "cycle" and n > 2 else chain
