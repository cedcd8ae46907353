"""The work all peers do: W1 with windows of rows, and W1 with windows of time.

Four streams R, S, T, U of (k, ts, v), all int64, joined on k. Arrivals come from a stream drawn uniformly, with a key
drawn uniformly from 10 000; v is the number of the arrival and ts that number + 1, since Spark takes a row of the tick
0 for late. A result has the key and the four values.

ROWS    the newest 10 000 rows of each stream
RANGE   the rows at most 40 000 ticks older than the youngest of the result, which are about as many
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from bench.workloads import WINDOW, Keys, Order
from eddy import Query, Range, Rows, Stream

STREAMS = ("R", "S", "T", "U")
KEYS = 10_000
SPAN = len(STREAMS) * WINDOW
ROWS, RANGE = "ROWS", "RANGE"
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("v", pa.int64())])


@dataclass(frozen=True)
class Step:
    """Some arrivals in a row.

    start   the number of the first, and how many came before
    order   uint8[n], the stream of each
    keys    int64[n]
    """

    start: int
    order: Order
    keys: Keys

    @property
    def times(self) -> npt.NDArray[np.int64]:
        """int64[n], the tick of each."""
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
            own = np.flatnonzero(self.order == i)
            columns = (self.keys[own], self.times[own], own + self.start)
            made[name] = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=SCHEMA)
        return made


@dataclass(frozen=True)
class Work:
    """W1 as steps of `batch` arrivals.

    windows  ROWS or RANGE
    warm     arrivals before those that are timed, at least as many as fill the windows
    timed    arrivals after them
    """

    windows: str
    warm: int
    timed: int
    batch: int
    seed: int

    def __post_init__(self) -> None:
        if self.warm % self.batch:
            raise ValueError(f"{self.warm} arrivals before the clock are no whole number of steps of {self.batch}")

    @property
    def arrivals(self) -> int:
        """All arrivals."""
        return self.warm + self.timed

    @cached_property
    def order(self) -> Order:
        """uint8[arrivals], the stream of each."""
        return self._drawn[0]

    @cached_property
    def keys(self) -> Keys:
        """int64[arrivals]."""
        return self._drawn[1]

    @cached_property
    def _drawn(self) -> tuple[Order, Keys]:
        # As `bench.workloads.w1` draws them: seed 1 gives the same arrivals.
        rng = np.random.default_rng(self.seed)
        order = rng.integers(0, len(STREAMS), self.arrivals).astype(np.uint8)
        return order, rng.integers(0, KEYS, self.arrivals)

    @cached_property
    def steps(self) -> list[Step]:
        """The arrivals, `batch` at a time; the last step may have fewer."""
        return [
            Step(start, self.order[start : start + self.batch], self.keys[start : start + self.batch])
            for start in range(0, self.arrivals, self.batch)
        ]

    @cached_property
    def query(self) -> Query:
        """The join as a query of eddy."""
        if self.windows == ROWS:
            streams = [Stream(name, SCHEMA, window=Rows(WINDOW)) for name in STREAMS]
        else:
            streams = [Stream(name, SCHEMA, window=Range(SPAN), time="ts") for name in STREAMS]
        return Query(
            streams, ["R.k = S.k", "S.k = T.k", "T.k = U.k"], select=["R.k", *(f"{name}.v" for name in STREAMS)]
        )

    @cached_property
    def most_live(self) -> int:
        """The most rows that a window ever has."""
        if self.windows == ROWS:
            return WINDOW
        most = 0
        for i in range(len(STREAMS)):
            came = np.cumsum(self.order == i)
            gone = np.concatenate((np.zeros(SPAN + 1, np.int64), came))[: len(came)]
            most = max(most, int((came - gone).max()))
        return most

    def write(self, file: Path, arrivals: int) -> None:
        """Write the first so many arrivals to a CSV file, a line `stream,k,ts,v` each."""
        numbers = np.arange(arrivals)
        names = pa.array(STREAMS).take(pa.array(self.order[:arrivals]))
        columns = [pa.array(column) for column in (self.keys[:arrivals], numbers + 1, numbers)]
        table = pa.table([names, *columns], names=["source", *SCHEMA.names])
        pa.csv.write_csv(table, file, pa.csv.WriteOptions(include_header=False, quoting_style="none"))
