"""The grid of partitions: the partitions that a tuple goes to, given a share of the partitions per attribute class.

A result has exactly one value per attribute class, on which all its components agree. Let class c have a share s_c, and
let the partitions be the cells of a grid with s_0 * s_1 * … cells. A tuple has the coordinate `hash(value) mod s_c` for
every class in which its stream has a column; along the other classes the tuple is copied to all coordinates.

    chain R(a) S(a,b) T(b), shares a: 2, b: 3          b=0  b=1  b=2
        R, hash(a) mod 2 = 1: row a=1, three copies   a=0   .    .    .
        T, hash(b) mod 3 = 2: column b=2, two copies  a=1   R    R    RT
        S, both: one cell

All components of a result meet in the cell that its values determine, and in no other cell: for every class with a
share above 1, some stream is only at the coordinate of its value. So each result is produced exactly once. If one class
covers all streams, nothing is copied. A single share above 1 means one class as the key, with the other streams sent
everywhere.

The rows of a table may move along a class if its column is no part of the key of the table. Along such a class, the
table is copied, as a stream without a column in it. So each partition gets the change that takes a row away from it.

Shares are chosen for the fewest copies: the sum over streams of rows * product of the shares of the classes that the
stream lacks. Source: Afrati, Ullman, "Optimizing joins in a map-reduce environment", EDBT 2010, sec. 3, which solves
this over the reals; this module tries the factorizations of the number of partitions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddy.expressions.derived import given_columns
from eddy.streams.stream import Stream
from eddy.streams.table import Table

if TYPE_CHECKING:
    from eddy.query.query import Query

_TRIED = 20_000  # maximal number of factorizations; with more (very many classes) prime factors are assigned one by one


@dataclass(frozen=True)
class Shares:
    """A grid of partitions over the attribute classes of a query.

    streams  names, as in the query
    classes  one label per class, for messages
    counts   share per class; their product is the number of partitions
    has      per stream, the classes in which it has columns, ascending; of a table only those that its key determines
             (`settled`)
    weights  per stream, its expected size; only proportions matter
    """

    streams: tuple[str, ...]
    classes: tuple[str, ...]
    counts: tuple[int, ...]
    has: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return math.prod(self.counts)

    @property
    def strides(self) -> tuple[int, ...]:
        """Per class, the difference of partition numbers for one step along it."""
        steps = [1] * len(self.counts)
        for c in range(len(self.counts) - 2, -1, -1):
            steps[c] = steps[c + 1] * self.counts[c + 1]
        return tuple(steps)

    def routed(self, stream: int) -> tuple[int, ...]:
        """Return the classes whose hash decides where a tuple of `stream` goes: those it has, with a share above 1."""
        return tuple(c for c in self.has[stream] if self.counts[c] > 1)

    def copies(self, stream: int) -> int:
        """Return the number of partitions that each tuple of `stream` goes to."""
        return math.prod(s for c, s in enumerate(self.counts) if c not in self.has[stream])

    def offsets(self, stream: int) -> np.ndarray:
        """Return per copy of a tuple its partition minus the cell of its own classes: int32[copies]."""
        cells = np.zeros(1, np.int32)
        for c, share in enumerate(self.counts):
            if c not in self.has[stream]:
                cells = (cells[:, None] + np.arange(share, dtype=np.int32) * self.strides[c]).ravel()
        return cells

    def is_first(self, stream: int, cell: int) -> bool:
        """Return whether a tuple of `stream` in a cell is the first of its copies."""
        lacked = (c for c in range(len(self.counts)) if c not in self.has[stream])
        return all(cell // self.strides[c] % self.counts[c] == 0 for c in lacked)

    def volume(self) -> float:
        """Return the mean number of copies per tuple; 1.0 if nothing is replicated."""
        sent = sum(w * self.copies(i) for i, w in enumerate(self.weights))
        return sent / sum(self.weights)

    def describe(self) -> str:
        """Return a few lines of text on how the streams are partitioned."""
        n = self.partitions
        if n == 1:
            return "one partition: all streams meet in one engine"
        split = [c for c, s in enumerate(self.counts) if s > 1]
        replicated = [i for i in range(len(self.streams)) if self.copies(i) > 1]
        if not replicated:
            head = f"{n} partitions by key: {self.classes[split[0]]}" if len(split) == 1 else None
        elif len(split) == 1:
            head = f"{n} partitions by key: {self.classes[split[0]]}; streams without it are sent to all partitions"
        else:
            head = None
        grid = " x ".join(f"{self.counts[c]} shares of [{self.classes[c]}]" for c in split)
        lines = [head or f"{n} partitions, a hypercube: {grid}"]
        for i in replicated:
            by = ", ".join(self.classes[c] for c in self.routed(i)) or "nothing (it is sent to all)"
            lines.append(f"  {self.streams[i]}: {self.copies(i)} copies of each tuple, routed by {by}")
        if replicated:
            lines.append(f"  {self.volume():.2f} copies of a tuple on average; one partition produces each result")
        return "\n".join(lines)


def _label(columns: Mapping[str, Sequence[Sequence[str]]]) -> str:
    parts = []
    for stream, components in columns.items():
        named = [f"{stream}.{component[0]}" for component in components]
        parts.append(named[0] if len(named) == 1 else f"({', '.join(named)})")
    if len(parts) > 4:
        parts = [*parts[:3], f"… ({len(parts)} streams)"]
    return " = ".join(parts)


def _factorizations(n: int, places: int) -> Iterator[tuple[int, ...]]:
    if places == 1:
        yield (n,)
        return
    for first in range(1, n + 1):
        if n % first == 0:
            for rest in _factorizations(n // first, places - 1):
                yield (first, *rest)


def _primes(n: int) -> list[int]:
    primes, p = [], 2
    while n > 1:
        while n % p == 0:
            primes.append(p)
            n //= p
        p = p + 1 if p * p <= n else n
    return sorted(primes, reverse=True)


def _count(n: int, places: int) -> int:
    """Return the number of ordered factorizations of `n`: per prime with exponent e, C(e + places - 1, e)."""
    factors = _primes(n)
    return math.prod(math.comb(factors.count(p) + places - 1, places - 1) for p in set(factors))


def settled(stream: Stream, columns: Mapping[str, Sequence[Sequence[str]]]) -> bool:
    """Return whether a stream has a class, and all changes of one row have one value of it.

    columns   stream -> per component of the key its columns

    A change of a table moves its row to another value of a column that is no part of the key. A table without versions
    has one change of each key (`eddy.spark.changes`).
    """
    components = columns.get(stream.name)
    if components is None or not isinstance(stream, Table) or stream.version is None:
        return components is not None
    return all(set(given_columns(component)) <= set(stream.keys) for component in components)


def choose(query: Query, partitions: int, weights: Mapping[str, float] | None = None) -> Shares:
    """Return the grid of `partitions` cells, 1 or more, that copies the fewest tuples.

    weights   stream -> expected size; streams left out get the mean; None: equal sizes

    Among equal grids the grid that splits fewer classes is chosen, then the grid that splits the earlier class. Cost:
    up to 20 000 factorizations times streams.
    """
    names, classes = tuple(stream.name for stream in query.streams), query.partition_classes
    has = tuple(tuple(c for c, k in enumerate(classes) if settled(stream, k.columns)) for stream in query.streams)
    labels = tuple(_label(k.columns) for k in classes)
    given = weights or {}
    usual = sum(given.values()) / len(given) if given else 1.0
    rows = tuple(float(given.get(name, usual)) or 1.0 for name in names)

    def grid(counts: tuple[int, ...]) -> Shares:
        return Shares(names, labels, counts, has, rows)

    def cost(counts: tuple[int, ...]) -> tuple[float, int, tuple[int, ...]]:
        return grid(counts).volume(), sum(s > 1 for s in counts), tuple(-s for s in counts)

    places = len(classes)
    if places == 0 or partitions == 1:
        # A query over one stream has no class, so its rows cannot be split by key.
        return grid((1,) * places)
    if _count(partitions, places) <= _TRIED:
        return grid(min(_factorizations(partitions, places), key=cost))
    counts = (1,) * places
    for prime in _primes(partitions):
        counts = min((tuple(s * prime if i == c else s for i, s in enumerate(counts)) for c in range(places)), key=cost)
    return grid(counts)
