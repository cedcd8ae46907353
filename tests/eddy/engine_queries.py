"""Queries that start, change and stop, and their reference: a nested loop over all rows.

A result has a first and a last position, and the table of `eddy/queries/version.py` says which version owns it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import pyarrow as pa
import pyarrow.compute as pc

import eddy

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("x", pa.int64())])
NAMES = ("R", "S", "T")
WINDOWS = (
    {"R": 6, "S": 9, "T": 4},
    {"R": 12, "S": 9},
    {"R": -4, "S": -6, "T": -5},
    {"S": -7, "T": 8},
)
"""Windows of queries: spans of time, or minus a number of rows."""


@dataclass(frozen=True)
class ReferenceRow:
    position: int
    k: int
    t: int
    x: int


@dataclass(frozen=True)
class ReferenceQuery:
    """A query in the terms of the reference: windows by stream (a span of time, or minus a number of rows), and the
    least x of its rows of R."""

    windows: dict[str, int]
    least: int | None = None

    def query(self) -> eddy.Query:
        streams = []
        for name, size in self.windows.items():
            window = eddy.Range(size) if size >= 0 else eddy.Rows(-size)
            keep = pc.field("x") >= self.least if name == "R" and self.least is not None else None
            streams.append(eddy.Stream(name, SCHEMA, window=window, time="t", filter=keep))
        names = list(self.windows)
        on = [f"{previous}.k = {other}.k" for previous, other in pairwise(names)]
        return eddy.Query(streams, on, select={name: f"{name}.x" for name in names})


Result = tuple[int, int, tuple[int, ...]]
"""The first and the last position of the components, and their values of x, which are the positions."""


def all_results(asked: ReferenceQuery, rows: dict[str, list[ReferenceRow]]) -> list[Result]:
    """Return all results of a query that always ran, by the definition."""
    results = []
    kept = {
        name: [row for row in rows[name] if name != "R" or asked.least is None or row.x >= asked.least]
        for name in asked.windows
    }
    for parts in product(*kept.values()):
        if len({row.k for row in parts}) > 1:
            continue
        last, newest = max(row.position for row in parts), max(row.t for row in parts)
        if all(
            _in_window(size, kept[name], row, last, newest)
            for (name, size), row in zip(asked.windows.items(), parts, strict=True)
        ):
            results.append((min(row.position for row in parts), last, tuple(row.x for row in parts)))
    return sorted(results, key=lambda result: result[1])


def _in_window(size: int, stream: list[ReferenceRow], row: ReferenceRow, last: int, newest: int) -> bool:
    if size >= 0:
        return newest - row.t <= size
    return sum(row.position < other.position <= last for other in stream) < -size


def drained(asked: ReferenceQuery, rows: dict[str, list[ReferenceRow]], at: int) -> int | None:
    """Return the first position from which no row can be part of a result with a component before `at`."""
    everything = sorted((row for stream_rows in rows.values() for row in stream_rows), key=lambda row: row.position)
    for position in range(at, len(everything) + 1):
        came = [[row.t for row in stream_rows if row.position < position] for stream_rows in rows.values()]
        watermark, over = min(max(times, default=-1) for times in came), True
        for name, size in asked.windows.items():
            before = [row for row in rows[name] if row.position < at]
            since = [row for row in rows[name] if at <= row.position < position]
            if before:
                over &= watermark > max(row.t for row in before) + size if size >= 0 else len(since) >= -size
        if over:
            return position
    return None


class DrawnEngineRun:
    """An engine, and the rows that it got, drawn from a seed."""

    def __init__(self, seed: int, **how: object) -> None:
        self.chance = random.Random(seed)
        streams = [eddy.Stream(name, SCHEMA, time="t") for name in NAMES]
        self.engine = eddy.Engine(streams, **how)  # type: ignore[arg-type]
        self.rows: dict[str, list[ReferenceRow]] = {name: [] for name in NAMES}
        self.results: dict[str, list[tuple[int, ...]]] = {}

    def push(self, count: int) -> None:
        order, batches = [], {name: [] for name in NAMES}  # type: ignore[var-annotated]
        for position in range(self.engine.position, self.engine.position + count):
            i = self.chance.randrange(3)
            row = ReferenceRow(position, self.chance.randrange(3), position // 2, position)
            self.rows[NAMES[i]].append(row)
            batches[NAMES[i]].append({"k": row.k, "t": row.t, "x": row.x})
            order.append(i)
        for name, table in self.engine.push(batches, order).items():
            self.results.setdefault(name, []).extend(tuple(row.values()) for row in table.to_pylist())

    def check(self, name: str, expected: Sequence[Result], in_order: bool = True) -> None:
        """Compare results with those of the reference, in the order of their last components."""
        results = self.results.get(name, [])
        assert sorted(results, key=str) == sorted((result[2] for result in expected), key=str)
        if in_order:
            lasts = [max(x for x in result if x is not None) for result in results]
            assert lasts == sorted(lasts)
