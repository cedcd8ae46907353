"""What may be said of the times of strategies, computed from rows: ratios to the paper's, order, growth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from bench.harness.figure import Row, Scalar
from bench.harness.slope import slope
from bench.harness.words import listed

LEVEL = 0.05
"""Ratios nearer to 1 than this are called equal: repeated runs of one program differ by as much."""


def values(rows: Iterable[Row], column: str, by: str = "strategy", **where: Scalar) -> dict[str, float]:
    """Return a column by another, of the rows with these values. Rows without a number in it are left out."""
    return {
        str(row[by]): float(value)
        for row in rows
        if all(row.get(name) == wanted for name, wanted in where.items())
        and isinstance(value := row.get(column), int | float)
    }


def most(rows: Iterable[Row], column: str) -> float | None:
    """Return the largest number in a column, None = there is none."""
    return max((float(value) for row in rows if isinstance(value := row.get(column), int | float)), default=None)


def exponents(rows: Sequence[Row], x: str, y: str, by: str = "strategy") -> dict[str, float]:
    """Return for each curve the b of y = a·x^b that fits best in log-log. Curves of one point only are left out."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        at, value = row.get(x), row.get(y)
        if isinstance(at, int | float) and isinstance(value, int | float) and at > 0 and value > 0:
            curves.setdefault(str(row[by]), []).append((float(at), float(value)))
    found = {}
    for name, points in curves.items():
        if len({at for at, _ in points}) > 1:
            found[name] = slope(*zip(*points, strict=True))
    return found


def growth(rows: Sequence[Row], x: str, y: str, what: str, name: str, by: str = "strategy") -> list[str]:
    """Say how `what` grows with x, called `name`."""
    found = exponents(rows, x, y, by)
    if not found:
        return []
    return [f"{what} grows as {name} to the power of {listed([f'{b:.2f} ({one})' for one, b in found.items()])}."]


def ratios(seconds: Mapping[str, float], paper: Mapping[str, float]) -> str:
    """Say how long others take in terms of jisc, beside what the paper has. `seconds` has jisc."""
    own = seconds["jisc"]
    said = []
    for name, value in seconds.items():
        if name != "jisc":
            theirs = f" (the paper: {paper[name] / paper['jisc']:.2f})" if name in paper else ""
            said.append(f"{name} {value / own:.2f}{theirs}")
    return listed(said)


def order(seconds: Mapping[str, float], paper: Mapping[str, float]) -> str:
    """Say whether the paper's order holds among the strategies that both have; those within LEVEL may change places.

    What it says goes on after a word on where that is.
    """
    both = sorted((name for name in paper if name in seconds), key=lambda name: paper[name])
    here = sorted(both, key=lambda name: seconds[name])
    holds = all(seconds[one] <= (1 + LEVEL) * seconds[other] for one, other in pairwise(both))
    told = f"from the fastest on the paper has {listed(both)}"
    if here == both:
        return f"{told}; here it is the same order."
    if holds:
        return f"{told}; here they are equal within {LEVEL:.0%} where the order differs ({listed(here)})."
    return f"{told}; here it is {listed(here)}: the order does not reproduce."
