"""Key columns drawn at random: uniform, Zipf, with a hot key, and correlated with another column of the same tuple.

A value is a *key*, 0 .. size - 1, with probability `hit`, and else a *miss*: a value that no other stream has. So
`size` sets how many tuples of a window a key finds, and `hit` how many tuples survive a join.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

MISSES = 1 << 12
"""Different values that miss, of each column: few enough that key directories stay small."""


@dataclass(frozen=True)
class Draw:
    """The distribution of the values of one column.

    size    keys are 0 .. size - 1
    hit     share of values that are keys
    skew    exponent of Zipf's law over the keys, 0 = uniform
    hot     share of tuples, the luckiest, that have key 0 in this column
    luck    "" = whether a value is a key is independent of the rest of the tuple; "a" = tuples lucky in column a
            are lucky here; "-a" = tuples lucky in a are unlucky here. Shares stay as `hit` and `hot` say, so that
            statistics of single columns show nothing
    """

    size: int
    hit: float = 1.0
    skew: float = 0.0
    hot: float = 0.0
    luck: str = ""


def between(one: Draw, other: Draw, part: float) -> Draw:
    """Return a draw that lies `part` of the way from one to another, which has the same luck.

    >>> between(Draw(10, hit=0.5), Draw(30, hit=1.0), 0.5)
    Draw(size=20, hit=0.75, skew=0.0, hot=0.0, luck='')
    """

    def mixed(near: float, far: float) -> float:
        return near + part * (far - near)

    return replace(
        one,
        size=round(mixed(one.size, other.size)),
        hit=mixed(one.hit, other.hit),
        skew=mixed(one.skew, other.skew),
        hot=mixed(one.hot, other.hot),
    )


def keys(draw: Draw, count: int, rng: np.random.Generator) -> Int64s:
    """Return `count` keys, uniform or by Zipf's law. O(count log size)."""
    if not draw.skew:
        return rng.integers(0, draw.size, count)
    weights = np.arange(1, draw.size + 1, dtype=np.float64) ** -draw.skew
    below = np.cumsum(weights / weights.sum())
    ranks = np.minimum(np.searchsorted(below, rng.random(count)), draw.size - 1)
    return ranks.astype(np.int64)


def columns(draws: Mapping[str, Draw], stream: int, count: int, rng: np.random.Generator) -> list[Int64s]:
    """Return `count` tuples of a stream as columns, in the order of `draws`."""
    lucks = {name: rng.random(count) for name in draws}
    found = []
    for name, draw in draws.items():
        luck = lucks[draw.luck.removeprefix("-") or name]
        if draw.luck.startswith("-"):
            luck = 1.0 - luck
        values = keys(draw, count, rng)
        values[luck < draw.hot] = 0
        missing = np.flatnonzero(luck >= draw.hit)
        # Streams miss apart from each other: a miss of one is never a miss of the other.
        values[missing] = ((stream + 1) << 32) + rng.integers(0, MISSES, len(missing))
        found.append(values)
    return found
