"""Arrivals, drawn by seed, and the queries over them: endless arrivals, and a repeated turnover of the windows.

W1   four streams on one key, keys uniform, ROWS windows of as many rows as there are keys: about one result an arrival
W1R  W1 with event times, one tick an arrival, RANGE windows of about as many rows, and lateness
W2   the chain R(a) S(a, b) T(b, c) U(c), attributes uniform, the same ROWS windows: about one result an arrival
W21  21 streams on one key, each key exactly once in every window: every arrival has one result

new_keys   W1 with 10⁶ keys: nearly every arrival brings a key that no window has
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy import Query, Range, Rows, Stream

Order = npt.NDArray[np.uint8]
Keys = npt.NDArray[np.int64]
Columns = list[list[Keys]]
"""Key columns: by stream, then by column, in order of arrival."""
Pushes = list[tuple[dict[str, pa.RecordBatch], Order]]

WINDOW = 10_000
MANY_KEYS = 1_000_000
"""Keys of new_keys."""
LATENESS = 1_000
"""Ticks of lateness of W1R."""
VALUE, TIME = "v", "at"
"""The payload column of a stream, and its event time."""


def _schema(*keys: str, values: bool = True, timed: bool = False) -> pa.Schema:
    return pa.schema([(name, pa.int64()) for name in (*keys, *([VALUE] if values else []), *([TIME] if timed else []))])


def one_key(streams: int, window: int, values: bool = False) -> Query:
    """Return the join of streams on one key `k`, ROWS `window` each; results carry the key, and all `v` if `values`."""
    names = [f"S{i:03}" for i in range(streams)]
    return Query(
        [Stream(name, _schema("k", values=values), window=Rows(window)) for name in names],
        [f"{names[0]}.k = {name}.k" for name in names[1:]],
        select=[f"{names[0]}.k", *(f"{name}.{VALUE}" for name in names if values)],
    )


def timed_one_key(streams: int, window: int) -> Query:
    """Return the join of `one_key` with values, with RANGE windows of about `window` rows, and with lateness."""
    rows = one_key(streams, window, values=True)
    schema, span = _schema("k", timed=True), Range(streams * window)
    return Query(
        [Stream(stream.name, schema, window=span, time=TIME) for stream in rows.streams],
        [f"{rows.streams[0].name}.k = {stream.name}.k" for stream in rows.streams[1:]],
        select=list(rows.select),
        lateness=LATENESS,
    )


def chain(window: int) -> Query:
    """Return the join of W2."""
    columns = {"R": "a", "S": "ab", "T": "bc", "U": "c"}
    return Query(
        [Stream(name, _schema(*keys), window=Rows(window)) for name, keys in columns.items()],
        ["R.a = S.a", "S.b = T.b", "T.c = U.c"],
        select=["S.a", "S.b", "T.c", "R.v", "S.v", "T.v", "U.v"],
    )


def batches(query: Query, columns: Columns) -> dict[str, pa.RecordBatch]:
    """Return rows by stream; `columns` are those of each schema."""
    pairs = zip(query.streams, columns, strict=True)
    return {s.name: pa.RecordBatch.from_arrays([pa.array(column) for column in c], schema=s.schema) for s, c in pairs}


@dataclass(frozen=True)
class ArrivalChunk:
    """Arrivals that are timed together, cut into pushes.

    order   uint8[n], the stream of each arrival
    keys    int64[n, words], the key columns of its stream; further columns are ignored
    push    arrivals of a push; the last push may have fewer
    first   arrivals of the first push, if not 0
    start   event time of the first arrival, if the query has event times: each arrival is one tick later
    """

    query: Query
    order: Order
    keys: Keys
    push: int
    first: int = 0
    start: int = 0

    @cached_property
    def raw(self) -> list[tuple[Order, Keys]]:
        """The pushes as (order, keys)."""
        edges = [0, *range(self.first or self.push, len(self.order), self.push), len(self.order)]
        return [(self.order[low:high], self.keys[low:high]) for low, high in pairwise(edges)]

    @cached_property
    def columns(self) -> list[tuple[Order, Columns]]:
        """The pushes as (order, key columns)."""
        counts = list(enumerate(map(len, self.query.graph.attributes)))
        return [(order, [[keys[order == i, k] for k in range(n)] for i, n in counts]) for order, keys in self.raw]

    @property
    def timed(self) -> bool:
        """Whether the query has event times."""
        return TIME in self.query.streams[0].schema.names

    @cached_property
    def times(self) -> list[Keys]:
        """Event times by push, in order of arrival."""
        ends = np.cumsum([len(order) for order, _ in self.raw])
        return np.split(np.arange(self.start, self.start + len(self.order)), ends[:-1])

    @cached_property
    def arrow(self) -> Pushes:
        """The pushes as (rows by stream, order). A value is the position of the arrival in its push."""
        names = [stream.schema.names for stream in self.query.streams]
        made = []
        for (order, keys), times in zip(self.columns, self.times, strict=True):
            places = [np.flatnonzero(order == i) for i in range(len(names))]
            values = [[place] if VALUE in has else [] for place, has in zip(places, names, strict=True)]
            ticks = [[times[place]] if TIME in has else [] for place, has in zip(places, names, strict=True)]
            rows = [[*key, *value, *tick] for key, value, tick in zip(keys, values, ticks, strict=True)]
            made.append((batches(self.query, rows), order))
        return made


class ArrivalSource(Protocol):
    """Endless arrivals."""

    query: Query

    def draw(self, n: int, push: int) -> ArrivalChunk:
        """Return the next n arrivals in pushes of `push`."""


class RandomSource:
    """Streams in random order, each key drawn independently.

    keys    keys are in [0, keys)
    skew    key k is as likely as (k + 1)^-skew; 0 = uniform
    words   key columns drawn
    """

    def __init__(self, query: Query, keys: int, seed: int, skew: float = 0.0, words: int = 1) -> None:
        self.query, self.keys, self.words, self.drawn = query, keys, words, 0
        self.rng = np.random.default_rng(seed)
        self._sums = np.cumsum(np.arange(1, keys + 1) ** -skew) if skew else None

    def draw(self, n: int, push: int) -> ArrivalChunk:
        """Return the next n arrivals in pushes of `push`."""
        order = self.rng.integers(0, self.query.graph.n_streams, n, dtype=np.uint8)
        if self._sums is None:
            keys = self.rng.integers(0, self.keys, (n, self.words))
        else:
            keys = self._sums.searchsorted(self.rng.random((n, self.words)) * self._sums[-1], side="right")
        start, self.drawn = self.drawn, self.drawn + n
        return ArrivalChunk(self.query, order, keys.astype(np.int64), push, start=start)


class Permuted:
    """Streams in random order, each repeating its own permutation of `keys` keys.

    With windows of as many rows, every arrival meets one row of each other stream.
    """

    def __init__(self, query: Query, keys: int, seed: int) -> None:
        self.query = query
        self.rng = np.random.default_rng(seed)
        self._keys = [self.rng.permutation(keys) for _ in range(query.graph.n_streams)]
        self._next = [0] * len(self._keys)

    def draw(self, n: int, push: int) -> ArrivalChunk:
        """Return the next n arrivals in pushes of `push`."""
        order = self.rng.integers(0, len(self._keys), n, dtype=np.uint8)
        keys = np.empty((n, 1), np.int64)
        for i, stream_keys in enumerate(self._keys):
            at = np.flatnonzero(order == i)
            keys[at, 0] = stream_keys[(self._next[i] + np.arange(len(at))) % len(stream_keys)]
            self._next[i] = (self._next[i] + len(at)) % len(stream_keys)
        return ArrivalChunk(self.query, order, keys, push)


def workload(name: str, window: int = WINDOW, seed: int = 1) -> ArrivalSource:
    """Return the arrivals of a workload by its name (see the module); results carry all values."""
    if name == "W1":
        return RandomSource(one_key(4, window, values=True), window, seed)
    if name == "W1R":
        return RandomSource(timed_one_key(4, window), window, seed)
    if name == "new_keys":
        return RandomSource(one_key(4, window, values=True), MANY_KEYS, seed)
    if name == "W2":
        return RandomSource(chain(window), window, seed, words=2)
    return Permuted(one_key(21, window, values=True), window, seed)


def filling(windows: Sequence[int], push: int) -> int:
    """Return the number of arrivals, in random order of streams, that fill all windows and bring buffers to their size.

    This is a fifth more than the rows, plus five standard deviations of the lag of a stream.
    """
    streams, most = len(windows), max(windows)
    return int(1.2 * streams * most + 5 * streams * most**0.5) + 2 * push


@dataclass(frozen=True)
class Turnover:
    """Arrivals of every stream, at least one window of each, which repeat: each time they replace all rows of windows.

    Strategies are compared on such arrivals, since a measurement can continue with the full windows of the last one.

    order   uint8[n], the stream of each arrival
    keys    int64[n], the one key column `k`, in arrival order

    From the second repetition on, each repetition has the same results, since the windows start with the same rows.
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

    def from_a_result(self) -> Turnover:
        """Return the same arrivals in a circle, beginning with the first arrival whose key all streams have.

        With full windows that arrival has a result. Raises ValueError if no key is in all streams.
        """
        key_sets = [frozenset(self.keys[self.order == i].tolist()) for i in range(len(self.names))]
        common = np.flatnonzero(np.isin(self.keys, list(frozenset.intersection(*key_sets))))
        if not len(common):
            raise ValueError(f"no key is in all {len(key_sets)} streams")
        return replace(self, order=np.roll(self.order, -common[0]), keys=np.roll(self.keys, -common[0]))

    def cut(self, arrivals: int, first: int = 0) -> ArrivalChunk:
        """Return the arrivals in pushes of `arrivals` each; `first`, if not 0, is the size of the first."""
        return ArrivalChunk(self.query, self.order, self.keys.reshape(-1, 1), arrivals, first)


def _shuffled(streams: int, each: int, rng: np.random.Generator) -> Order:
    order = np.repeat(np.arange(streams, dtype=np.uint8), each)
    rng.shuffle(order)
    return order


def uniform(window: int = WINDOW, rows: int = 10 * WINDOW, seed: int = 4, streams: int = 4) -> Turnover:
    """Return arrivals as in W1: streams on one key, uniform in [0, window), `rows` or a window of each stream."""
    rng = np.random.default_rng(seed)
    order = _shuffled(streams, max(rows, window), rng)
    return Turnover("W1", order, rng.integers(0, window, len(order)), one_key(streams, window))


def permutations(streams: int, window: int = WINDOW, seed: int = 5) -> Turnover:
    """Return arrivals as in W21: each stream repeats its own permutation of as many keys as its window has rows.

    With full windows, every arrival joins with one row of each other stream and has one result.
    """
    rng = np.random.default_rng(seed)
    order = _shuffled(streams, window, rng)
    keys = np.empty(len(order), np.int64)
    for i in range(streams):
        keys[order == i] = rng.permutation(window)
    return Turnover(f"W{streams}", order, keys, one_key(streams, window))
