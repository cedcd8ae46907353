"""Queries and rows for tests of placement: chains without a common key, streams with one, and drawn rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from eddy import Query, Range, Runtime, Stream

Batches = dict[str, dict[str, list[Any]]]


def chain(m: int, window: int | None = 20, text: bool = False) -> Query:
    """Return R(a) S(a,b) T(b,c) …: neighbours share a column."""
    kind = pa.string() if text else pa.int64()
    streams, on = [], []
    for i in range(m):
        keys = [f"k{c}" for c in (i - 1, i) if 0 <= c < m - 1]
        schema = pa.schema([*((key, kind) for key in keys), ("t", pa.int64()), ("n", pa.int64())])
        streams.append(Stream(f"S{i}", schema, window=None if window is None else Range(window), time="t"))
        if i:
            on.append(f"S{i - 1}.k{i - 1} = S{i}.k{i - 1}")
    return Query(streams, on, select=[f"S{i}.n" for i in range(m)], lateness=5 if window is not None else 0)


def star(m: int, window: int | None = 20) -> Query:
    """Return a join of all streams on one key."""
    schema = pa.schema([("k0", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])
    streams = [Stream(f"S{i}", schema, window=None if window is None else Range(window), time="t") for i in range(m)]
    return Query(streams, [f"S0.k0 = S{i}.k0" for i in range(1, m)], select=[f"S{i}.n" for i in range(m)])


def rows(query: Query, epochs: int, each: int, keys: int, seed: int, text: bool = False) -> list[Batches]:
    """Return rows of each epoch: about `each` rows per stream, some late, some with a null key."""
    draw, n, drawn = random.Random(seed), 0, []
    for epoch in range(epochs):
        batch: Batches = {}
        for stream in query.streams:
            made: dict[str, list[Any]] = {name: [] for name in stream.schema.names}
            for _ in range(draw.randrange(2 * each + 1)):
                n += 1
                for name in made:
                    if name == "t":
                        made[name].append(10 * epoch + draw.randrange(-3, 10))
                    elif name == "n":
                        made[name].append(n)
                    else:
                        key: Any = draw.randrange(keys) if draw.random() > 0.05 else None
                        made[name].append(f"key {key}" if text and key is not None else key)
            batch[stream.name] = made
        drawn.append(batch)
    return drawn


def batches(query: Query, given: Mapping[str, Mapping[str, list[Any]]]) -> dict[str, pa.RecordBatch]:
    return {s.name: pa.record_batch(dict(given[s.name]), schema=s.schema) for s in query.streams}


def results(tables: Iterable[pa.Table]) -> Counter[tuple[Any, ...]]:
    counts: Counter[tuple[Any, ...]] = Counter()
    for table in tables:
        counts.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return counts


def expected(query: Query, epochs: Sequence[Batches]) -> Counter[tuple[Any, ...]]:
    """Return the results of one engine over the same pushes."""
    runtime = Runtime(query)
    return results(runtime.push(batches(query, epoch)) for epoch in epochs)
