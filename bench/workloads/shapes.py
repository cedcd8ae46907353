"""Shapes: a query, and arrivals whose distribution changes from phase to phase.

    family    the shape of the join graph and the number of joins
    keys      distribution of the keys: uniform, Zipf, correlated, hot key
    change    change of the distribution over time (CHANGES)

A turnover is the number of arrivals that replace every row of all windows, on average. Each seed draws new arrivals.

Key columns are uniform, by Zipf's law, with a hot key, or correlated with another column of the same tuple. A value is
a *key*, 0 .. size - 1, with probability `hit`, and else a *miss*: a value that no other stream has. So `size` sets how
many tuples of a window a key finds, and `hit` how many tuples survive a join.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.workloads.sources import Order, batches
from eddy import Query, Rows, Stream

Int64s = npt.NDArray[np.int64]
Push = tuple[dict[str, pa.RecordBatch], Order]

STATIONARY, ABRUPT, SLOW_DRIFT = "stationary", "abrupt drift", "slow drift"
SLOW_OSCILLATION, FAST_OSCILLATION = "slow oscillation", "fast oscillation"
CHANGES = (STATIONARY, ABRUPT, SLOW_DRIFT, SLOW_OSCILLATION, FAST_OSCILLATION)
ORDERLESS = ("same-key", "star")
"""Families in which the order of joins has hardly any influence, so that a change of plan cannot gain time."""
MISSES = 1 << 12
"""Number of different misses of each column, which is small enough to keep key directories small."""


@dataclass(frozen=True)
class Draw:
    """The distribution of the values of one column.

    size    keys are 0 .. size - 1
    hit     share of values that are keys
    skew    exponent of Zipf's law over the keys, 0 = uniform
    hot     share of tuples, those with the greatest luck, that have key 0 in this column
    luck    "" = whether a value is a key is independent of the rest of the tuple; "a" = tuples lucky in column a
            are lucky here; "-a" = tuples lucky in a are unlucky here. The shares remain `hit` and `hot`, so that
            statistics of single columns do not show the correlation
    """

    size: int
    hit: float = 1.0
    skew: float = 0.0
    hot: float = 0.0
    luck: str = ""


def between(first: Draw, other: Draw, part: float) -> Draw:
    """Return a draw between two draws of the same luck, at a fraction `part` of the distance from the first.

    >>> between(Draw(10, hit=0.5), Draw(30, hit=1.0), 0.5)
    Draw(size=20, hit=0.75, skew=0.0, hot=0.0, luck='')
    """

    def mixed(near: float, far: float) -> float:
        return near + part * (far - near)

    return replace(
        first,
        size=round(mixed(first.size, other.size)),
        hit=mixed(first.hit, other.hit),
        skew=mixed(first.skew, other.skew),
        hot=mixed(first.hot, other.hot),
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
    drawn = []
    for name, draw in draws.items():
        luck = lucks[draw.luck.removeprefix("-") or name]
        if draw.luck.startswith("-"):
            luck = 1.0 - luck
        values = keys(draw, count, rng)
        values[luck < draw.hot] = 0
        missing = np.flatnonzero(luck >= draw.hit)
        # Streams have different misses: a miss of one stream is never a miss of another stream.
        values[missing] = ((stream + 1) << 32) + rng.integers(0, MISSES, len(missing))
        drawn.append(values)
    return drawn


@dataclass(frozen=True)
class Phase:
    """Arrivals that are all drawn alike.

    name        phases of the same name are drawn alike, and one plan is best for all of them
    arrivals    number of arrivals
    draws       "stream.column" -> the draw of its values
    rates       the share of each stream in the arrivals, up to a factor
    """

    name: str
    arrivals: int
    draws: Mapping[str, Draw]
    rates: tuple[float, ...]


@dataclass(frozen=True)
class ShapeArrivals:
    """The arrivals of a shape for one seed.

    order    uint8[n], the stream of each arrival
    keys     by stream: its columns, in order of arrival
    warm     arrivals that fill the windows, before the clock runs
    phases   (name, arrivals) of each later phase
    """

    query: Query
    order: Order
    keys: list[list[Int64s]]
    warm: int
    phases: list[tuple[str, int]]

    def pushes(self, size: int) -> list[tuple[str, Push]]:
        """Return the arrivals as pushes of limited size: (name of the phase, push); warm pushes have no name."""
        made = []
        at, taken = 0, [0] * len(self.keys)
        for name, arrivals in [("", self.warm), *self.phases]:
            end = at + arrivals
            while at < end:
                order = self.order[at : min(at + size, end)]
                at += len(order)
                ends = [t + n for t, n in zip(taken, np.bincount(order, minlength=len(taken)).tolist(), strict=True)]
                push_keys = [
                    [column[t:e] for column in keys] for keys, t, e in zip(self.keys, taken, ends, strict=True)
                ]
                made.append((name, (batches(self.query, push_keys), order)))
                taken = ends
        return made


@dataclass(frozen=True)
class WorkloadShape:
    """A query and the phases of its arrivals.

    streams   stream -> its columns, a letter each; columns of the same letter are joined
    windows   rows of each window, or one number for all windows
    push      arrivals of a push
    """

    name: str
    family: str
    keys: str
    change: str
    streams: Mapping[str, str]
    windows: int | tuple[int, ...]
    phases: tuple[Phase, ...]
    push: int = field(default=10_000, kw_only=True)

    @property
    def ordered(self) -> bool:
        """Whether the order of joins has an influence on the work."""
        return not self.family.startswith(ORDERLESS)

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of each window."""
        return (self.windows,) * len(self.streams) if isinstance(self.windows, int) else self.windows

    @property
    def arrivals(self) -> int:
        """Number of arrivals after the warm arrivals."""
        return sum(phase.arrivals for phase in self.phases)

    def turnover(self, phase: Phase) -> int:
        """Return the number of arrivals of a phase that replace every row of all windows, on average."""
        shares = np.array(phase.rates) / sum(phase.rates)
        return int(np.ceil((np.array(self.rows) / shares).max()))

    @cached_property
    def query(self) -> Query:
        """Each stream has int64 columns and a window of rows."""
        streams = [
            Stream(name, pa.schema([(letter, pa.int64()) for letter in letters]), window=Rows(rows))
            for (name, letters), rows in zip(self.streams.items(), self.rows, strict=True)
        ]
        predicates = []
        for letter in sorted(set("".join(self.streams.values()))):
            members = [name for name, letters in self.streams.items() if letter in letters]
            predicates += [f"{member}.{letter} = {other}.{letter}" for member, other in pairwise(members)]
        return Query(streams, predicates)

    def scaled(self, part: float) -> WorkloadShape:
        """Return the shape with phases of `part` the length, two pushes at least; or fewer phases if all are short."""
        if all(phase.arrivals <= self.push for phase in self.phases):
            names = len({phase.name for phase in self.phases})
            return replace(self, phases=self.phases[: max(round(len(self.phases) * part), 2 * names)])
        least = 2 * self.push
        phases = [replace(p, arrivals=max(round(p.arrivals * part), min(p.arrivals, least))) for p in self.phases]
        return replace(self, phases=tuple(phases))

    def draw(self, seed: int) -> ShapeArrivals:
        """Return the arrivals of a seed: the windows are filled with draws of the first phase, then come all phases."""
        rng = np.random.default_rng(seed)
        warm = np.repeat(np.arange(len(self.rows), dtype=np.uint8), self.rows)
        rng.shuffle(warm)
        orders = [warm]
        keys: list[list[list[Int64s]]] = [[] for _ in self.streams]
        self._draw_keys(self.phases[0], warm, keys, rng)
        for phase in self.phases:
            shares = np.array(phase.rates) / sum(phase.rates)
            orders.append(rng.choice(len(shares), phase.arrivals, p=shares).astype(np.uint8))
            self._draw_keys(phase, orders[-1], keys, rng)
        joined = [[np.concatenate(parts) for parts in zip(*chunks, strict=True)] for chunks in keys]
        phases = [(phase.name, phase.arrivals) for phase in self.phases]
        return ShapeArrivals(self.query, np.concatenate(orders), joined, len(warm), phases)

    def _draw_keys(self, phase: Phase, order: Order, keys: list[list[list[Int64s]]], rng: np.random.Generator) -> None:
        counts = np.bincount(order, minlength=len(self.streams)).tolist()
        for i, (name, letters) in enumerate(self.streams.items()):
            draws = {letter: phase.draws[f"{name}.{letter}"] for letter in letters}
            keys[i].append(columns(draws, i, counts[i], rng))
