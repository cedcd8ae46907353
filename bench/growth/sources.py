"""Arrivals without an end, drawn by seed, and the queries they are for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.workloads import Keys, Order
from eddy import Query, Rows, Stream

VALUE = "v"
"""The column of a stream that is no key."""


def names_of(streams: int) -> list[str]:
    """Return names for so many streams."""
    return [f"S{i:03}" for i in range(streams)]


def one_key(streams: int, window: int, values: bool = False) -> Query:
    """Return the join of streams on one key `k`, ROWS `window` each.

    values   each stream has a column `v` as well, and results carry all of them beside the key; else the key alone
    """
    names = names_of(streams)
    schema = pa.schema([(name, pa.int64()) for name in ("k", *([VALUE] if values else []))])
    select = [f"{names[0]}.k", *(f"{name}.{VALUE}" for name in names if values)]
    return Query(
        [Stream(name, schema, window=Rows(window)) for name in names],
        [f"{names[0]}.k = {name}.k" for name in names[1:]],
        select=select,
    )


@dataclass(frozen=True)
class Chunk:
    """Arrivals that are timed together, cut into pushes.

    order   uint8[n], the stream of each arrival
    keys    int64[n, words], the key columns of its stream, 0 or anything beyond them
    push    arrivals of a push; the last may have fewer
    """

    query: Query
    order: Order
    keys: Keys
    push: int

    @cached_property
    def raw(self) -> list[tuple[Order, Keys]]:
        """The pushes as (order, keys)."""
        starts = range(0, len(self.order), self.push)
        return [(self.order[k : k + self.push], self.keys[k : k + self.push]) for k in starts]

    @cached_property
    def columns(self) -> list[tuple[Order, list[list[npt.NDArray[np.int64]]]]]:
        """The pushes as (order, per stream its key columns)."""
        graph = self.query.graph
        made = []
        for order, keys in self.raw:
            own = [keys[order == i] for i in range(graph.n_streams)]
            counts = [len(graph.attributes[i]) for i in range(graph.n_streams)]
            made.append(
                (order, [[np.ascontiguousarray(o[:, k]) for k in range(n)] for o, n in zip(own, counts, strict=True)])
            )
        return made

    @cached_property
    def arrow(self) -> list[tuple[dict[str, pa.RecordBatch], Order]]:
        """The pushes as (rows by stream, order). Values are the places of the arrivals in the push."""
        made = []
        for order, keys in self.raw:
            rows = {}
            for i, stream in enumerate(self.query.streams):
                own = np.flatnonzero(order == i)
                plain = [name for name in stream.schema.names if name != VALUE]
                arrays: list[Any] = [pa.array(keys[own, k]) for k in range(len(plain))]
                if len(plain) < len(stream.schema):
                    arrays.append(pa.array(own))
                rows[stream.name] = pa.RecordBatch.from_arrays(arrays, schema=stream.schema)
            made.append((rows, order))
        return made


class Source(Protocol):
    """Gives arrivals, each time the next ones."""

    query: Query

    def draw(self, n: int, push: int) -> Chunk:
        """Return the next n arrivals in pushes of so many."""


class Drawn:
    """Streams in random order with keys drawn one by one.

    keys    they are in [0, keys)
    skew    key k is as likely as (k + 1)^-skew: 0 = all the same
    words   key columns that are drawn, each by itself
    """

    def __init__(self, query: Query, keys: int, seed: int, skew: float = 0.0, words: int = 1) -> None:
        self.query, self.keys, self.words = query, keys, words
        self.rng = np.random.default_rng(seed)
        self._sums: npt.NDArray[np.float64] | None = None
        if skew:
            self._sums = np.cumsum(np.arange(1, keys + 1) ** -skew)

    def draw(self, n: int, push: int) -> Chunk:
        """Return the next n arrivals in pushes of so many."""
        order = self.rng.integers(0, self.query.graph.n_streams, n, dtype=np.uint8)
        if self._sums is None:
            return Chunk(self.query, order, self.rng.integers(0, self.keys, (n, self.words)), push)
        drawn = self._sums.searchsorted(self.rng.random((n, self.words)) * self._sums[-1], side="right")
        return Chunk(self.query, order, drawn.astype(np.int64), push)


class Permuted:
    """Streams in random order, each repeating its own permutation of `keys` keys: with windows of as many rows, every
    arrival meets one row of each other stream."""

    def __init__(self, query: Query, keys: int, seed: int) -> None:
        self.query = query
        self.rng = np.random.default_rng(seed)
        self._keys = [self.rng.permutation(keys) for _ in range(query.graph.n_streams)]
        self._next = [0] * len(self._keys)

    def draw(self, n: int, push: int) -> Chunk:
        """Return the next n arrivals in pushes of so many."""
        order = self.rng.integers(0, len(self._keys), n, dtype=np.uint8)
        keys = np.empty((n, 1), np.int64)
        for i, own in enumerate(self._keys):
            at = np.flatnonzero(order == i)
            keys[at, 0] = own[(self._next[i] + np.arange(len(at))) % len(own)]
            self._next[i] = (self._next[i] + len(at)) % len(own)
        return Chunk(self.query, order, keys, push)


def filling(windows: Sequence[int], push: int) -> int:
    """Return how many arrivals fill all windows, in random order of streams, and bring buffers of pushes to their size.

    A fifth more than there are rows, and what a stream may lag behind by chance: five standard deviations.
    """
    streams, most = len(windows), max(windows)
    return int(1.2 * streams * most + 5 * streams * most**0.5) + 2 * push
