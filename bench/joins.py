"""`eddy bench joins`: comparisons, and left joins and set differences, compared with other ways to compute them.

theta      R.x < S.x, where one in a thousand tuples of the window matches; compared with a hand-written nested loop
band       R.x within a band around S.x, where one in a thousand tuples of the window matches; compared with the same
           runtime without bands (`stairs.bands`), whose scans compare all values, in blocks. Results are only counted,
           because building a hundred results for each arrival takes longer than finding them
interval   three streams on one key, each at most some ticks after the previous one; compared with a query whose streams
           have the windows that the intervals require, and which checks the intervals with `where`
left       two streams on one key within an interval; compared with the inner join of the same streams, which lacks the
           rows without a partner: the left join builds about a third more rows
difference the changelog of A - B - C on one key; compared with a hand-written loop
"""

from __future__ import annotations

from collections.abc import Iterator
from time import thread_time
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import eddy
from bench.harness.figure import NAMED, Figure, Point, Row, Say
from bench.harness.turns import Work, speed, take_turns
from bench.ways.difference_loop import DifferenceWindows, difference_loop
from bench.ways.theta_loop import theta_loop
from bench.workloads.sources import Order
from eddy import Query, Range, Rows, Stream
from stairs.bands import Sizes

VALUES = 1_000_000
"""Values of x are below this bound."""
PUSHED = 2_000
"""Rows of all streams in a push of a set difference."""
MATCHING = 0.0447
"""Part of the range by which R begins before the end of S; a share of MATCHING² / 2 of the pairs matches."""
TIMED = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("n", pa.int64())])
Push = tuple[Order, dict[str, pa.RecordBatch]]


class JoinWay(Protocol):
    """One way to join."""

    def take(self, pushes: list[Push]) -> tuple[float, int]:
        """Take pushes; return (CPU seconds, results)."""


class RuntimeWay:
    """A runtime."""

    def __init__(self, query: Query, **options: Any) -> None:
        self.runtime = eddy.Runtime(query, **options)

    def take(self, pushes: list[Push]) -> tuple[float, int]:
        """As of a JoinWay."""
        start, results = thread_time(), 0
        for order, batches in pushes:
            results += self.runtime.push(batches, order).num_rows
        return thread_time() - start, results


class CountWay(RuntimeWay):
    """A runtime that counts its results, with bands or without."""

    def __init__(self, query: Query, bands: bool) -> None:
        self.runtime = eddy.Runtime(query, count_only=True)
        if not bands:
            self.runtime._pipeline.join.modules.bands.sizes = Sizes(least=1 << 60)

    def take(self, pushes: list[Push]) -> tuple[float, int]:
        """As of a JoinWay."""
        before = self.runtime.metrics()["results"]
        seconds, _ = super().take(pushes)
        return seconds, self.runtime.metrics()["results"] - before


class HandLoop:
    """A loop written by hand over one column of some streams."""

    streams = ""
    column = ""

    def run(self, order: np.ndarray, values: np.ndarray) -> int:
        """Take a push, values in the order of arrival; return the number of results."""
        raise NotImplementedError

    def take(self, pushes: list[Push]) -> tuple[float, int]:
        """As of a JoinWay. The columns are arrays before the time begins."""
        arrays, results = [], 0
        for order, batches in pushes:
            values = np.empty(len(order), np.int64)
            for i, name in enumerate(self.streams):
                values[order == i] = batches[name][self.column]
            arrays.append((order, values))
        start = thread_time()
        for order, values in arrays:
            results += self.run(order, values)
        return thread_time() - start, results


class ThetaLoop(HandLoop):
    """The nested loop written by hand, with room for many more results than a push has."""

    streams, column = "RS", "x"

    def __init__(self, window: int) -> None:
        self.window = window
        self.held, self.next = np.zeros((2, 1 << window.bit_length()), np.int64), np.zeros(2, np.int64)
        self.ids = np.zeros((2, 1 << 20), np.int32)

    def run(self, order: np.ndarray, values: np.ndarray) -> int:
        """As of a HandLoop."""
        return theta_loop(order, values, self.window, self.held, self.next, self.ids)


class PartnersWay(RuntimeWay):
    """A runtime whose results count only if they have a partner."""

    def take(self, pushes: list[Push]) -> tuple[float, int]:
        """As of a JoinWay."""
        start, results = thread_time(), 0
        for order, batches in pushes:
            table = self.runtime.push(batches, order)
            results += table.num_rows - table["S.n"].null_count
        return thread_time() - start, results


class Theta:
    """R.x < S.x; values of R begin near the end of the values of S."""

    name, figure, other, on = "theta", "theta.vs_loop", "loop", "R.x < S.x"
    least = int(VALUES * (1 - MATCHING))
    """The least value of R."""

    def __init__(self, window: int) -> None:
        self.fill = 2 * window + 4_000
        self.rng = np.random.default_rng(1)
        schema = pa.schema([("x", pa.int64()), ("n", pa.int64())])
        query = Query([Stream(name, schema, Rows(window)) for name in "RS"], [self.on], select=["R.n", "S.n"])
        self.ways = self.ways_of(query, window)

    def ways_of(self, query: Query, window: int) -> dict[str, JoinWay]:
        """Return the two ways to join."""
        return {"eddy": RuntimeWay(query), self.other: ThetaLoop(window)}

    def pushes(self, rows: int) -> list[Push]:
        """Return the next pushes."""
        pushes = []
        for _ in range(0, rows, 2_000):
            order = self.rng.integers(0, 2, 2_000).astype(np.uint8)
            batches = {}
            for i, (name, least) in enumerate({"R": self.least, "S": 0}.items()):
                n = int((order == i).sum())
                batches[name] = pa.record_batch({"x": least + self.rng.integers(0, VALUES, n), "n": np.arange(n)})
            pushes.append((order, batches))
        return pushes


class Band(Theta):
    """R.x BETWEEN S.x - 500 AND S.x + 499, of a million values."""

    name, figure, other = "band", "band.vs_block_scan", "block_scan"
    on, least = "R.x between S.x - 500 and S.x + 499", 0

    def ways_of(self, query: Query, window: int) -> dict[str, JoinWay]:
        """Return the two ways to join."""
        return {"eddy": CountWay(query, bands=True), self.other: CountWay(query, bands=False)}


class Timed:
    """Streams on one key, one arrival a tick; `streams` are their names."""

    streams: str

    def __init__(self, window: int) -> None:
        self.fill, self.keys = 2 * window, window // 10
        self.rng, self.now = np.random.default_rng(1), 0

    def pushes(self, rows: int) -> list[Push]:
        """Return the next pushes."""
        pushes = []
        for _ in range(0, rows, 20_000):
            order = self.rng.integers(0, len(self.streams), 20_000).astype(np.uint8)
            times, batches = self.now + np.arange(20_000), {}
            for i, name in enumerate(self.streams):
                stream_times = times[order == i]
                columns = [
                    pa.array(column)
                    for column in (self.rng.integers(0, self.keys, len(stream_times)), stream_times, stream_times)
                ]
                batches[name] = pa.RecordBatch.from_arrays(columns, schema=TIMED)
            pushes.append((order, batches))
            self.now += 20_000
        return pushes


class Left(Timed):
    """S at most a window after R."""

    name, figure, other, streams = "left", "left.vs_inner", "inner", "RS"

    def __init__(self, window: int) -> None:
        super().__init__(window)
        self.keys = window // 2
        on = ["R.k = S.k", f"S.at between R.at and R.at + {window}"]
        r, s = (Stream(name, TIMED, time="at") for name in self.streams)
        left = Query([r], branches=[eddy.Branch([s], on, "left")], select=["R.n", "S.n"])
        self.ways: dict[str, JoinWay] = {
            "eddy": PartnersWay(left),
            self.other: PartnersWay(Query([r, s], on, select=["R.n", "S.n"])),
        }


class Interval(Timed):
    """Three streams; each of two intervals is half a window long."""

    name, figure, other, streams = "interval", "interval.vs_window_and_where", "where", "RST"

    def __init__(self, window: int) -> None:
        super().__init__(window)
        span, names = window // 2, self.streams
        equal, select = ["R.k = S.k", "S.k = T.k"], [f"{name}.n" for name in names]
        at = {name: pc.field(f"{name}.at") for name in names}
        where = (at["S"] >= at["R"]) & (at["S"] - at["R"] <= span) & (at["T"] >= at["S"]) & (at["T"] - at["S"] <= span)
        windows = (Range(2 * span), Range(span), Range(0))
        ranged = [Stream(name, TIMED, width, "at") for name, width in zip(names, windows, strict=True)]
        between = [f"S.at between R.at and R.at + {span}", f"T.at between S.at and S.at + {span}"]
        streams = [Stream(name, TIMED, time="at") for name in names]
        self.ways: dict[str, JoinWay] = {
            "eddy": RuntimeWay(Query(streams, equal + between, select=select)),
            self.other: RuntimeWay(Query(ranged, equal, select=select, where=where)),
        }


class DifferenceLoop(HandLoop):
    """The set difference written by hand."""

    streams, column = "ABC", "k"

    def __init__(self, window: int, keys: int) -> None:
        self.window, ring = window, 1 << (window + PUSHED).bit_length()
        self.windows = DifferenceWindows(
            keys=np.zeros((3, ring), np.int64),
            counts=np.zeros((3, keys), np.int64),
            lists=np.full((2, ring), -1, np.int64),
            first=np.full(keys, -1, np.int64),
            flips=np.zeros(ring, np.uint8),
            following=np.zeros(3, np.int64),
        )
        self.rows, self.signs = np.zeros(1 << 20, np.int64), np.zeros(1 << 20, np.uint8)

    def run(self, order: np.ndarray, values: np.ndarray) -> int:
        """As of a HandLoop."""
        return difference_loop(order, values, self.window, self.windows, self.rows, self.signs)


class DifferenceQuery:
    """A - B - C, of which about a third of A remains."""

    name, figure, other = "difference", "difference.vs_loop", "loop"

    def __init__(self, window: int) -> None:
        self.fill, self.keys = 4 * window, 2 * window
        self.rng = np.random.default_rng(1)
        self.schema = pa.schema([("k", pa.int64())])
        a, b, c = (Stream(name, self.schema, Rows(window)) for name in "ABC")
        branches = [eddy.Branch([stream], [f"A.k = {stream.name}.k"], "anti") for stream in (b, c)]
        self.ways: dict[str, JoinWay] = {
            "eddy": RuntimeWay(Query([a], branches=branches), output="changelog"),
            self.other: DifferenceLoop(window, self.keys),
        }

    def pushes(self, rows: int) -> list[Push]:
        """Return the next pushes."""
        pushes = []
        for _ in range(0, rows, PUSHED):
            order = self.rng.integers(0, 3, PUSHED).astype(np.uint8)
            batches = {
                name: pa.record_batch({"k": self.rng.integers(0, self.keys, int((order == i).sum()))})
                for i, name in enumerate("ABC")
            }
            pushes.append((order, batches))
        return pushes


WORKLOADS: dict[str, type[Theta] | type[Interval] | type[Left] | type[DifferenceQuery]] = {
    workload.name: workload for workload in (Theta, Band, Interval, Left, DifferenceQuery)
}


def points(full: bool) -> list[Point]:
    """Return a point for each workload."""
    return [
        {"workload": name, "window": 100_000 if full else 2_000, "rows": rows, "rounds": 7 if full else 2}
        for name, rows in (
            ("theta", 20_000),
            ("band", 40_000),
            ("interval", 200_000),
            ("left", 200_000),
            ("difference", 60_000),
        )
    ]


def measure(point: Point, say: Say) -> list[Row]:
    """Return the ratio of a workload, and its results per arrival."""
    workload = WORKLOADS[str(point["workload"])](point["window"])
    fill, rows = workload.pushes(workload.fill), point["rows"]
    for name, way in workload.ways.items():
        say(f"{workload.name}: filling the windows of {name}")
        way.take(fill)
    rounds = [workload.pushes(rows) for _ in range(point["rounds"] + 1)]
    counts: list[int] = []

    def work(way: JoinWay) -> Iterator[tuple[float, int]]:
        for pushes in rounds:
            seconds, results = way.take(pushes)
            counts.append(results)
            yield seconds, results

    works: dict[str, Work] = {name: work(way).__next__ for name, way in workload.ways.items()}
    taken = take_turns(workload.name, works, point["rounds"], say)
    return [
        {"figure": workload.figure, **speed(taken, "eddy", workload.other)},
        {"figure": f"{workload.name}.results_per_arrival", "value": counts[-1] / rows},
    ]


FIGURES = (
    Figure(
        "joins",
        "Comparisons of two streams. `theta` is R.x < S.x in windows of 100 000 rows, full, against a nested loop that "
        "a programmer would write for it; `band` is R.x between S.x - 500 and S.x + 499 in the same windows, with "
        "results counted, against the same runtime without sorted values; `interval` is three streams on one key with "
        "two intervals, against RANGE windows and the same conditions in `where`; `left` is a left join of two streams "
        "within an interval, against their inner join, which has a third fewer rows to build; `difference` is the "
        "changelog of A - B - C on one key, against a loop that a programmer would write for it. Ratios are speeds: "
        "above 1, the first is faster. CPU time of the thread.",
        points,
        measure,
        tables=(NAMED,),
        titles={
            "theta.vs_loop": "Scan of a theta join / nested loop by hand",
            "band.vs_block_scan": "Band join with sorted values / block scan",
            "interval.vs_window_and_where": "Intervals / windows and where",
            "left.vs_inner": "Left join / inner join of the same streams",
            "difference.vs_loop": "Set difference / loop by hand",
            "theta.results_per_arrival": "theta: results per arrival",
            "band.results_per_arrival": "band: results per arrival",
            "interval.results_per_arrival": "interval: results per arrival",
            "left.results_per_arrival": "left: results per arrival that have a partner",
            "difference.results_per_arrival": "difference: changes per arrival",
        },
        bars={
            "theta.vs_loop": "≥ 0.5",
            "band.vs_block_scan": "≥ 50",
            "interval.vs_window_and_where": "≥ 1",
            "left.vs_inner": "≥ 0.7",
        },
    ),
)
