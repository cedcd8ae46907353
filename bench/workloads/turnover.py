"""Arrivals that repeat, each time replacing every row of all windows.

Strategies are compared on them, since a measurement can continue with full windows where the last one ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bench.workloads.sources import WINDOW, Chunk, Keys, Order, one_key
from eddy import Query


@dataclass(frozen=True)
class Turnover:
    """Arrivals of every stream, at least one window of each.

    order   uint8[n], the stream of each arrival
    keys    int64[n], the one key column `k`, in arrival order

    From the second repetition on, each repetition gives the same results, since the windows start with the same rows.
    """

    name: str
    order: Order
    keys: Keys
    query: Query

    @cached_property
    def names(self) -> list[str]:
        """The streams, in the order of the query."""
        return [stream.name for stream in self.query.streams]

    @property
    def plan(self) -> str:
        """The left-deep plan in the order of the query."""
        return " ".join(self.names)

    @property
    def reversed_plan(self) -> str:
        """The left-deep plan in reverse order: with three streams or more it shares no state with `plan`."""
        return " ".join(self.names[::-1])

    @property
    def swapped_plan(self) -> str:
        """`plan` with the last two streams swapped: one state differs, the one just below the root."""
        return " ".join([*self.names[:-2], self.names[-1], self.names[-2]])

    def cut(self, arrivals: int, first: int = 0) -> Chunk:
        """Return the arrivals in pushes of `arrivals` each; `first`, if not 0, is the size of the first."""
        return Chunk(self.query, self.order, self.keys.reshape(-1, 1), arrivals, first)


def _shuffled(streams: int, each: int, rng: np.random.Generator) -> Order:
    order = np.repeat(np.arange(streams, dtype=np.uint8), each)
    rng.shuffle(order)
    return order


def uniform(window: int = WINDOW, rows: int = 10 * WINDOW, seed: int = 4) -> Turnover:
    """Return arrivals as in W1: four streams on one key, uniform in [0, window), `rows` of each stream."""
    rng = np.random.default_rng(seed)
    order = _shuffled(4, max(rows, window), rng)
    return Turnover("W1", order, rng.integers(0, window, len(order)), one_key(4, window))


def permutations(streams: int, window: int = WINDOW, seed: int = 5) -> Turnover:
    """Return arrivals as in W21: each stream repeats its own permutation of as many keys as its window has rows.

    With full windows, every arrival joins with one row of each other stream and gives one result.
    """
    rng = np.random.default_rng(seed)
    order = _shuffled(streams, window, rng)
    keys = np.empty(len(order), np.int64)
    for i in range(streams):
        keys[order == i] = rng.permutation(window)
    return Turnover(f"W{streams}", order, keys, one_key(streams, window))
