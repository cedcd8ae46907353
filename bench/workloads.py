"""Workloads: seeded arrivals and the queries over them.

W1   four streams on one key, keys uniform in [0, 10 000), ROWS 10 000: about one result an arrival
W2   the chain R(a) S(a, b) T(b, c) U(c), attributes uniform in [0, 10 000), ROWS 10 000: about one result an arrival
W21  21 streams on one key, each key exactly once in every window of 10 000 rows: every arrival joins all the way

Strategies are compared on arrivals that come again and again (`Turnover`), so that a measurement goes on where the last
one ended, with full windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy import Query, Rows, Stream

Order = npt.NDArray[np.uint8]
Keys = npt.NDArray[np.int64]

WINDOW = 10_000


@dataclass(frozen=True)
class Workload:
    """Arrivals of a query.

    order     uint8[n], the stream of each arrival
    warm      how many arrivals come before the clock runs: they fill the windows and bring all memory to its size
    keys      int64[n, words], in arrival order: the key columns of its stream, 0 beyond them
    query     each stream has its key columns and a value column `v`; results carry the keys once and all values
    """

    name: str
    order: Order
    keys: Keys
    query: Query
    warm: int

    @property
    def timed(self) -> int:
        """Arrivals while the clock runs."""
        return len(self.order) - self.warm

    def pushes(self, arrivals: int) -> list[tuple[dict[str, pa.RecordBatch], Order]]:
        """Return the arrivals as pushes of so many each: (rows by stream, order)."""
        made = []
        schemas = [stream.schema for stream in self.query.streams]
        values = np.arange(len(self.order))
        for start in range(0, len(self.order), arrivals):
            order = self.order[start : start + arrivals]
            rows = {}
            for i, stream in enumerate(self.query.streams):
                own = np.flatnonzero(order == i) + start
                columns = [pa.array(self.keys[own, k]) for k in range(len(schemas[i]) - 1)]
                rows[stream.name] = pa.RecordBatch.from_arrays([*columns, pa.array(values[own])], schema=schemas[i])
            made.append((rows, order))
        return made


def _schema(*keys: str) -> pa.Schema:
    return pa.schema([(name, pa.int64()) for name in (*keys, "v")])


def w1(arrivals: int = 1_000_000, seed: int = 1) -> Workload:
    """Return W1 with so many arrivals after the warm ones."""
    warm = 200_000
    arrivals += warm
    rng = np.random.default_rng(seed)
    streams = [Stream(name, _schema("k"), window=Rows(WINDOW)) for name in "RSTU"]
    query = Query(streams, ["R.k = S.k", "S.k = T.k", "T.k = U.k"], select=["R.k", "R.v", "S.v", "T.v", "U.v"])
    order = rng.integers(0, 4, arrivals).astype(np.uint8)
    return Workload("W1", order, rng.integers(0, 10_000, (arrivals, 1)), query, warm)


def w2(arrivals: int = 1_000_000, seed: int = 2) -> Workload:
    """Return W2 with so many arrivals after the warm ones."""
    warm = 200_000
    arrivals += warm
    rng = np.random.default_rng(seed)
    columns = {"R": ("a",), "S": ("a", "b"), "T": ("b", "c"), "U": ("c",)}
    streams = [Stream(name, _schema(*keys), window=Rows(WINDOW)) for name, keys in columns.items()]
    query = Query(
        streams,
        ["R.a = S.a", "S.b = T.b", "T.c = U.c"],
        select=["S.a", "S.b", "T.c", "R.v", "S.v", "T.v", "U.v"],
    )
    order = rng.integers(0, 4, arrivals).astype(np.uint8)
    return Workload("W2", order, rng.integers(0, 10_000, (arrivals, 2)), query, warm)


def w21(arrivals: int = 2_000_000, seed: int = 3) -> Workload:
    """Return W21 with so many arrivals after the warm ones: each stream repeats its own permutation of the keys."""
    warm = 400_000
    arrivals += warm
    rng = np.random.default_rng(seed)
    names = [f"S{i:02}" for i in range(21)]
    streams = [Stream(name, _schema("k"), window=Rows(WINDOW)) for name in names]
    query = Query(
        streams,
        [f"S00.k = {name}.k" for name in names[1:]],
        select=["S00.k", *(f"{name}.v" for name in names)],
    )
    order = rng.integers(0, 21, arrivals).astype(np.uint8)
    keys = np.empty((arrivals, 1), np.int64)
    for i in range(21):
        own = np.flatnonzero(order == i)
        keys[own, 0] = rng.permutation(WINDOW)[np.arange(len(own)) % WINDOW]
    return Workload("W21", order, keys, query, warm)


@dataclass(frozen=True)
class Turnover:
    """Arrivals that may come again and again, each time replacing every row of all windows.

    order   uint8[n], the stream of each arrival; every stream comes at least a window often
    keys    int64[n], the one key column `k`, in arrival order

    From the second time on, each time gives the same results: what is in the windows when it begins is the same.
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
        """The left-deep plan from the other end: of three streams or more it shares no state with `plan`."""
        return " ".join(self.names[::-1])

    @property
    def swapped_plan(self) -> str:
        """`plan` with the last two streams swapped: one state differs, the one just below the root."""
        return " ".join([*self.names[:-2], self.names[-1], self.names[-2]])

    def columns(self, arrivals: int, first: int = 0) -> list[tuple[Order, list[Keys]]]:
        """Return the arrivals as pushes of so many each: (order, keys by stream); the first may have another size."""
        made = []
        starts = [*([0] if first else []), *range(first, len(self.order), arrivals)]
        for start, end in zip(starts, [*starts[1:], len(self.order)], strict=True):
            order, keys = self.order[start:end], self.keys[start:end]
            made.append((order, [keys[order == i] for i in range(len(self.names))]))
        return made

    def pushes(self, arrivals: int, first: int = 0) -> list[tuple[dict[str, pa.RecordBatch], Order]]:
        """Return the arrivals as pushes of so many each: (rows by stream, order); the first may have another size."""
        schema = pa.schema([("k", pa.int64())])
        return [
            (
                {
                    name: pa.RecordBatch.from_arrays([pa.array(own)], schema=schema)
                    for name, own in zip(self.names, columns, strict=True)
                },
                order,
            )
            for order, columns in self.columns(arrivals, first)
        ]


def _one_key(names: Sequence[str], window: int) -> Query:
    schema = pa.schema([("k", pa.int64())])
    streams = [Stream(name, schema, window=Rows(window)) for name in names]
    return Query(streams, [f"{names[0]}.k = {name}.k" for name in names[1:]], select=[f"{names[0]}.k"])


def _shuffled(streams: int, each: int, rng: np.random.Generator) -> Order:
    order = np.repeat(np.arange(streams, dtype=np.uint8), each)
    rng.shuffle(order)
    return order


def uniform(window: int = WINDOW, rows: int = 10 * WINDOW, seed: int = 4) -> Turnover:
    """Return arrivals as in W1: four streams on one key, uniform in [0, window), `rows` of each stream."""
    rng = np.random.default_rng(seed)
    order = _shuffled(4, max(rows, window), rng)
    return Turnover("W1", order, rng.integers(0, window, len(order)), _one_key("RSTU", window))


def permutations(streams: int, window: int = WINDOW, seed: int = 5) -> Turnover:
    """Return arrivals as in W21: each stream repeats its own permutation of as many keys as its window has rows.

    So once windows are full, every arrival joins with one row of each other stream, and gives one result.
    """
    rng = np.random.default_rng(seed)
    order = _shuffled(streams, window, rng)
    keys = np.empty(len(order), np.int64)
    for i in range(streams):
        keys[order == i] = rng.permutation(window)
    return Turnover(f"W{streams}", order, keys, _one_key([f"S{i:03}" for i in range(streams)], window))
