"""The work of all peers: W1 with windows of rows and of time; and the interface of the peers of this process.

Four streams R, S, T, U of (k, ts, v), all int64, joined on k. The stream of an arrival is uniform, and its key is
uniform in 10 000; v is the number of the arrival and ts is v + 1, since Spark treats a row of tick 0 as late. A result
has the key and the four values.

ROWS    the newest 10 000 rows of each stream
RANGE   the rows at most 40 000 ticks older than the youngest row of the result, about 10 000 of each stream
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

from bench.harness.turns import without_gc
from bench.workloads.sources import WINDOW, Keys, Order
from eddy import InputError, Query, Range, Rows, Stream

STREAMS = ("R", "S", "T", "U")
KEYS = 10_000
SPAN = len(STREAMS) * WINDOW
ROWS, RANGE = "ROWS", "RANGE"
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("v", pa.int64())])


@dataclass(frozen=True)
class WorkStep:
    """Consecutive arrivals: the number of the first, their streams (uint8[n]), their keys (int64[n])."""

    start: int
    order: Order
    keys: Keys

    @property
    def times(self) -> Keys:
        """int64[n], the tick of each arrival."""
        return np.arange(self.start, self.start + len(self.order)) + 1

    @property
    def following(self) -> int:
        """The tick of the first arrival after these."""
        return self.start + len(self.order) + 1

    @cached_property
    def batches(self) -> dict[str, pa.RecordBatch]:
        """The rows of each stream."""
        made = {}
        for i, name in enumerate(STREAMS):
            positions = np.flatnonzero(self.order == i)
            columns = (self.keys[positions], self.times[positions], positions + self.start)
            made[name] = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=SCHEMA)
        return made


@dataclass
class PeerWork:
    """Arrivals: `warm` of them fill the windows, `timed` come after them, `batch` in a step.

    order, keys   uint8 and int64[arrivals], the stream and the key of each arrival
    """

    windows: str
    warm: int
    timed: int
    batch: int
    seed: int

    def __post_init__(self) -> None:
        if self.warm % self.batch:
            raise InputError(f"{self.warm} arrivals before the clock are no whole number of steps of {self.batch}")
        self.arrivals, rng = self.warm + self.timed, np.random.default_rng(self.seed)
        self.order = rng.integers(0, len(STREAMS), self.arrivals).astype(np.uint8)
        self.keys = rng.integers(0, KEYS, self.arrivals)

    @cached_property
    def steps(self) -> list[WorkStep]:
        """The arrivals, `batch` at a time; the last step may have fewer."""
        starts = range(0, self.arrivals, self.batch)
        return [WorkStep(k, self.order[k : k + self.batch], self.keys[k : k + self.batch]) for k in starts]

    @cached_property
    def query(self) -> Query:
        """The join as a query of eddy."""
        options: dict[str, Any] = {"window": Rows(WINDOW)}
        if self.windows == RANGE:
            options = {"window": Range(SPAN), "time": "ts"}
        streams = [Stream(name, SCHEMA, **options) for name in STREAMS]
        select = ["R.k", *(f"{name}.v" for name in STREAMS)]
        return Query(streams, ["R.k = S.k", "S.k = T.k", "T.k = U.k"], select=select)

    @cached_property
    def most_live(self) -> int:
        """The largest number of rows in a window."""
        if self.windows == ROWS:
            return WINDOW
        most = 0
        for i in range(len(STREAMS)):
            came = np.cumsum(self.order == i)
            gone = np.concatenate((np.zeros(SPAN + 1, np.int64), came))[: len(came)]
            most = max(most, int((came - gone).max()))
        return most

    def write(self, file: Path, arrivals: int) -> None:
        """Write the first arrivals to a CSV file, one line `stream,k,ts,v` each."""
        numbers = np.arange(arrivals)
        names = pa.array(STREAMS).take(pa.array(self.order[:arrivals]))
        columns = [pa.array(column) for column in (self.keys[:arrivals], numbers + 1, numbers)]
        table = pa.table([names, *columns], names=["source", *SCHEMA.names])
        pa.csv.write_csv(table, file, pa.csv.WriteOptions(include_header=False, quoting_style="none"))


WALL = "wall"
CLOCKS: dict[str, Callable[[], float]] = {"CPU, thread": thread_time, "CPU, process": process_time, WALL: perf_counter}
"""The clocks of peers: of the thread that calls, of the process for one worker thread, wall time for more."""


class PeerEngine:
    """An engine with the windows of the work, empty at first."""

    @staticmethod
    def prepare(step: WorkStep) -> Any:
        """Return a step in the form in which the engine takes it."""
        return step.batches, step.order

    def push(self, given: Any) -> Any:
        """Take a prepared step and return its results, or their number."""
        raise NotImplementedError

    def count(self, results: Any) -> int:
        """Return the number of results."""
        return results if isinstance(results, int) else len(results)

    def total(self, results: Any) -> int | None:
        """Return the sum of all values in the results, or None if they have no values."""
        return None


def total_of(results: pa.Table) -> int:
    """Return the sum of the columns after the first, which is the key."""
    return sum(pa.compute.sum(column).as_py() or 0 for column in results.columns[1:])


@dataclass(frozen=True)
class Peer:
    """A way to do the work in this process.

    start    returns an engine for a work; neither this nor the preparation of steps is timed
    clock    one of CLOCKS
    windows  the works that it can do
    """

    name: str
    start: Callable[[PeerWork], PeerEngine]
    version: str
    clock: str = "CPU, thread"
    threads: int = 1
    windows: tuple[str, ...] = (ROWS, RANGE)


def results_of(peer: Peer, work: PeerWork) -> tuple[int, int | None]:
    """Return the number of results of all arrivals and the sum of all their values, without timing."""
    engine = peer.start(work)
    results, totals = 0, []
    for step in work.steps:
        table = engine.push(engine.prepare(step))
        results += engine.count(table)
        totals.append(engine.total(table))
    return results, None if None in totals else sum(total or 0 for total in totals)


class PeerTurn:
    """Repeated runs of one peer over one work; each run begins with empty windows, and is timed when they are full."""

    def __init__(self, peer: Peer, work: PeerWork) -> None:
        self.peer, self.work = peer, work
        prepare = peer.start(work).prepare
        self.given = [prepare(step) for step in work.steps]
        self.wall = 0.0
        """Wall seconds of the last run, for a comparison with a peer that has no other clock."""

    def run(self) -> tuple[float, int]:
        """Return the seconds and the results of the timed arrivals."""
        clock = CLOCKS[self.peer.clock]
        engine = self.peer.start(self.work)
        warm = self.work.warm // self.work.batch
        results = 0
        with without_gc():
            for given in self.given[:warm]:
                engine.count(engine.push(given))
            start, on_wall = clock(), perf_counter()
            for given in self.given[warm:]:
                results += engine.count(engine.push(given))
            taken, self.wall = clock() - start, perf_counter() - on_wall
        return taken, results
