"""`eddy bench joins`: predicates that are no equalities, compared with other ways to get the same results.

theta      R.x < S.x, of which a tuple in a thousand of the window matches; a nested loop is written by hand
interval   three streams on one key, each at most some ticks after the one before it; the other way gives the streams
           the windows that the intervals require, and checks them with `where`
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import eddy
from bench.harness.figure import NAMED, Figure, Point, Row, Say
from bench.harness.turns import Work, speed, take_turns
from bench.ways.theta_loop import theta_loop
from bench.workloads.sources import Order
from eddy import Query, Range, Rows, Stream

VALUES = 1_000_000
"""Values of x are below."""
MATCHING = 0.0447
"""If the range of R begins this much before the end of that of S, a share of MATCHING² / 2 of the pairs matches."""
Push = tuple[Order, dict[str, pa.RecordBatch]]


class RuntimeWay:
    """A runtime that takes pushes."""

    def __init__(self, query: Query) -> None:
        self.runtime = eddy.Runtime(query)

    def take(self, pushes: list[Push]) -> tuple[float, int]:
        """Return (CPU seconds, results)."""
        start, found = thread_time(), 0
        for order, batches in pushes:
            found += self.runtime.push(batches, order).num_rows
        return thread_time() - start, found


class ThetaLoop:
    """The hand-written nested loop."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.held, self.next = np.zeros((2, 1 << window.bit_length()), np.int64), np.zeros(2, np.int64)
        self.ids = np.zeros((2, 1 << 20), np.int32)

    def take(self, pushes: list[Push]) -> tuple[float, int]:
        """Return (CPU seconds, results). Raises AssertionError if the results of a push did not fit."""
        arrays, found = [], 0
        for order, batches in pushes:
            values = np.empty(len(order), np.int64)
            for i, name in enumerate("RS"):
                values[order == i] = batches[name]["x"]
            arrays.append((order, values))
        start = thread_time()
        for order, values in arrays:
            own = theta_loop(order, values, self.window, self.held, self.next, self.ids)
            assert own < self.ids.shape[1]
            found += own
        return thread_time() - start, found


def theta_query(window: int) -> Query:
    """Return the join R.x < S.x."""
    schema = pa.schema([("x", pa.int64()), ("n", pa.int64())])
    return Query([Stream(name, schema, Rows(window)) for name in "RS"], ["R.x < S.x"], select=["R.n", "S.n"])


def theta_pushes(rng: np.random.Generator, rows: int, size: int) -> list[Push]:
    """Return pushes in which values of R begin near the end of those of S."""
    pushes = []
    for _ in range(0, rows, size):
        order = rng.integers(0, 2, size).astype(np.uint8)
        batches = {}
        for i, name in enumerate("RS"):
            n = int((order == i).sum())
            x = rng.integers(0, VALUES, n) + (int(VALUES * (1 - MATCHING)) if name == "R" else 0)
            batches[name] = pa.record_batch({"x": x, "n": np.arange(n)})
        pushes.append((order, batches))
    return pushes


TIMED = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("n", pa.int64())])
NAMES = ("R", "S", "T")


def interval_query(span: int) -> Query:
    """Return the join with intervals; windows follow from them."""
    on = ["R.k = S.k", "S.k = T.k", f"S.at between R.at and R.at + {span}", f"T.at between S.at and S.at + {span}"]
    return Query([Stream(name, TIMED, time="at") for name in NAMES], on, select=[f"{name}.n" for name in NAMES])


def windowed_query(span: int) -> Query:
    """Return the same join with windows, and the intervals in `where`."""
    windows = (Range(2 * span), Range(span), Range(0))
    at = {name: pc.field(f"{name}.at") for name in NAMES}
    where = (at["S"] >= at["R"]) & (at["S"] - at["R"] <= span) & (at["T"] >= at["S"]) & (at["T"] - at["S"] <= span)
    streams = [Stream(name, TIMED, window, "at") for name, window in zip(NAMES, windows, strict=True)]
    return Query(streams, ["R.k = S.k", "S.k = T.k"], select=[f"{name}.n" for name in NAMES], where=where)


def interval_pushes(rng: np.random.Generator, rows: int, size: int, keys: int, start: int) -> list[Push]:
    """Return pushes of one arrival a tick."""
    pushes = []
    for at in range(start, start + rows, size):
        order = rng.integers(0, 3, size).astype(np.uint8)
        times, batches = np.arange(at, at + size), {}
        for i, name in enumerate(NAMES):
            own = times[order == i]
            columns = [pa.array(column) for column in (rng.integers(0, keys, len(own)), own, own)]
            batches[name] = pa.RecordBatch.from_arrays(columns, schema=TIMED)
        pushes.append((order, batches))
    return pushes


def points(full: bool) -> list[Point]:
    """Return a point for each workload."""
    return [
        {"workload": "theta", "window": 100_000 if full else 2_000, "rows": 20_000, "rounds": 7 if full else 2},
        {"workload": "interval", "window": 100_000 if full else 2_000, "rows": 200_000, "rounds": 7 if full else 2},
    ]


def measure(point: Point, say: Say) -> list[Row]:
    """Return the ratio of a workload, and its results per arrival."""
    name, window, rows = point["workload"], point["window"], point["rows"]
    rng, found = np.random.default_rng(1), dict[str, int]()
    ways: dict[str, Any]
    following: Callable[[], list[Push]]
    if name == "theta":
        ways = {"eddy": RuntimeWay(theta_query(window)), "loop": ThetaLoop(window)}
        following = lambda: theta_pushes(rng, rows, 2_000)  # noqa: E731
        fill, figure, other = theta_pushes(rng, 2 * window + 4_000, 2_000), "theta.vs_loop", "loop"
    else:
        span, now = window // 2, [0]
        ways = {"eddy": RuntimeWay(interval_query(span)), "where": RuntimeWay(windowed_query(span))}

        def following() -> list[Push]:
            now[0] += rows
            return interval_pushes(rng, rows, 20_000, window // 10, now[0])

        fill, figure, other = following(), "interval.vs_window_and_where", "where"
    for way, own in ways.items():
        say(f"{name}: filling {way}")
        own.take(fill)
    turn: dict[str, list[Push]] = {}

    def work(way: str) -> tuple[float, int]:
        # The first way of a round draws the arrivals of all.
        if way == "eddy":
            turn["pushes"] = following()
        seconds, found[way] = ways[way].take(turn["pushes"])
        return seconds, found[way]

    works: dict[str, Work] = {way: (lambda way=way: work(way)) for way in ways}  # type: ignore[misc]
    taken = take_turns(name, works, point["rounds"], say)
    return [
        {"figure": figure, **speed(taken, "eddy", other)},
        {"figure": f"{name}.results_per_arrival", "value": found["eddy"] / rows},
    ]


FIGURES = (
    Figure(
        "joins",
        "Comparisons of two streams. `theta` is R.x < S.x in windows of 100 000 rows, full, against a nested loop that "
        "a programmer would write for it; `interval` is three streams on one key with two intervals, against RANGE "
        "windows and the same conditions in `where`. Ratios are speeds: above 1, the first is faster. CPU time of the "
        "thread.",
        points,
        measure,
        tables=(NAMED,),
        titles={
            "theta.vs_loop": "Scan of a theta join / nested loop by hand",
            "interval.vs_window_and_where": "Intervals / windows and where",
            "theta.results_per_arrival": "theta: results per arrival",
            "interval.results_per_arrival": "interval: results per arrival",
        },
        bars={"theta.vs_loop": "≥ 0.5", "interval.vs_window_and_where": "≥ 1"},
    ),
)
