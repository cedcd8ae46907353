"""Windows of a join in hops: the rows of one stream in one partition, sorted by key and time.

A row with the key of a tuple joins the tuple if the event time of the row fits all components of the tuple, and if the
row precedes the head of the tuple in (event time, stream) or is of an earlier micro-batch. So a result is found once,
by its last row.

A batch join has all rows of a window before the first tuple probes, and the head is the newest component of a tuple. In
a streaming join a window grows from micro-batch to micro-batch: the window is a list of sorted runs, and the rows of
the current micro-batch are the last run. Runs are merged like the levels of a log-structured merge tree: the next run
is less than half as large. So a row is sorted about log2(rows of the window / rows of a micro-batch) times, and a probe
searches the same number of runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from eddy.placement.tuples import Ints
from eddy.spark.hops.kernels import find_runs, index_runs
from stairs.errors import CapacityError
from stairs.graph import FOREVER
from stairs.plain_types import taken
from stairs.seeds import seeds

BLOCK_ROWS = 1 << 18
"""Approximate number of matches in a block, unless a single tuple has more matches."""
Keys = Mapping[int, Ints]
"""Class -> the number of each key."""
Index = tuple[Ints, Ints, Ints, Ints, Ints]
"""Keys and times of sorted rows, and the hash table of their runs: slots, seeds, ends (`index_runs`)."""


class Bounds(NamedTuple):
    """Event times of tuples in ticks, int64[tuples] each.

    head     event time of the head
    newest   greatest event time of all components
    last     greatest event time that a further component may have, by the windows of the components so far
    """

    head: Ints
    newest: Ints
    last: Ints


class SortedWindow:
    """The rows of one stream in one partition, or some of them.

    stream  position of the stream
    rows    columns of the rows
    keys    by class the number of each row's key, int64[rows]
    times   event times in ticks, int64[rows]
    span    ticks of the window, FOREVER = without limit
    """

    def __init__(self, stream: int, rows: pa.RecordBatch, keys: Keys, times: Ints, span: int) -> None:
        self.stream, self.rows, self.keys, self.times, self.span = stream, rows, keys, times, span
        self._sorted: dict[int, tuple[Ints, Index]] = {}

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.times)

    @property
    def nbytes(self) -> int:
        """Bytes of rows, keys, times and indices."""
        indices = [array for order, index in self._sorted.values() for array in (order, *index)]
        arrays = [self.times, *self.keys.values(), *indices]
        return int(self.rows.nbytes) + sum(array.nbytes for array in arrays)

    def outlived(self, rows: Ints | None = None) -> Ints:
        """Return the greatest event time that rows may join, int64[rows]; FOREVER = without limit."""
        times = self.times if rows is None else self.times[rows]
        return times + self.span if self.span < FOREVER else np.full(len(times), FOREVER)

    def since(self, least: int) -> SortedWindow:
        """Return the rows with an event time of `least` or more."""
        keep = np.flatnonzero(self.times >= least)
        keys = {c: column[keep] for c, column in self.keys.items()}
        return SortedWindow(self.stream, taken(self.rows, keep), keys, self.times[keep], self.span)

    def merged(self, other: SortedWindow) -> SortedWindow:
        """Return the rows of both windows."""
        keys = {c: np.concatenate([column, other.keys[c]]) for c, column in self.keys.items()}
        rows, times = together([self.rows, other.rows], self.rows.schema), np.concatenate([self.times, other.times])
        return SortedWindow(self.stream, rows, keys, times, self.span)

    def matches(self, keys: Keys, bounds: Bounds | None, head: int | None) -> Iterator[WindowMatches]:
        """Yield the matches as (this window, tuples, rows), int64[matches] each, in blocks.

        keys    by class the keys of the tuples, with at least one class of the window
        bounds  event times of the tuples; None = event times are not compared
        head    stream of the heads, which rows must precede; None = all rows precede them

        Cost: a sort of the window by the first probe with a class; per tuple a look-up in a hash table, and two in the
        run of its key by bisection; the matches.
        """
        n = len(next(iter(keys.values())))
        if bounds is None:
            lows, highs = np.full(n, -FOREVER), np.full(n, FOREVER)
        else:
            lows = bounds.newest - self.span if self.span < FOREVER else np.full(n, -FOREVER)
            highs = bounds.last
            if head is not None:
                highs = np.minimum(highs, bounds.head if self.stream < head else bounds.head - 1)
        for left, right in self._probe(keys, lows, highs):
            yield self, left, right

    def _probe(self, keys: Keys, lows: Ints, highs: Ints) -> Iterator[tuple[Ints, Ints]]:
        common = sorted(self.keys.keys() & keys.keys())
        order, index = self._index(common[0])
        n = len(lows)
        first, counts = np.zeros(n, np.int64), np.zeros(n, np.int64)
        find_runs(*index, _plain(keys[common[0]]), _plain(lows), _plain(highs), first, counts)
        totals = np.cumsum(counts)
        begin = 0
        while begin < n:
            before = totals[begin - 1] if begin else 0
            end = max(begin + 1, int(np.searchsorted(totals, before + BLOCK_ROWS, "right")))
            repeats = counts[begin:end]
            left = np.repeat(np.arange(begin, end), repeats)
            right = order[np.arange(len(left)) - np.repeat(np.cumsum(repeats) - repeats - first[begin:end], repeats)]
            for c in common[1:]:
                same = keys[c][left] == self.keys[c][right]
                left, right = left[same], right[same]
            if len(left):
                yield left, right
            begin = end

    def _index(self, c: int) -> tuple[Ints, Index]:
        """Return the order by key and time for a class, and the index of the rows in this order."""
        if c not in self._sorted:
            order = np.lexsort((self.times, self.keys[c])).astype(np.int64, copy=False)
            by_key, by_time = self.keys[c][order], self.times[order]
            slots = np.full(1 << max(3, int(2 * len(order)).bit_length()), -1, np.int64)
            secret, ends = seeds(2), np.zeros(len(order), np.int64)
            if len(order):
                index_runs(by_key, slots, secret, ends)
            self._sorted[c] = order, (by_key, by_time, slots, secret, ends)
        return self._sorted[c]


WindowMatches = tuple[SortedWindow, Ints, Ints]
"""Rows of a window that join tuples: (window, numbers of the tuples, numbers of the rows)."""


class GrowingWindow:
    """The rows of one stream in one partition of a streaming join.

    fresh   the rows of the current micro-batch; earlier rows precede every head
    """

    def __init__(self, fresh: SortedWindow) -> None:
        self.stream = fresh.stream
        self.fresh = fresh
        self._runs: list[SortedWindow] = []

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.fresh) + sum(map(len, self._runs))

    @property
    def nbytes(self) -> int:
        """Bytes of all runs."""
        return sum(run.nbytes for run in (self.fresh, *self._runs))

    def parts(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows, in no particular order."""
        for run in (*self._runs, self.fresh):
            yield run.rows

    def grow(self, fresh: SortedWindow) -> None:
        """Take the rows of the next micro-batch; the rows of the last one become earlier rows."""
        self._settle()
        self.fresh = fresh

    def forget(self, least: int) -> None:
        """Drop earlier rows with an event time below `least`; some of these rows may stay temporarily."""
        kept = []
        for run in self._runs:
            dead = int(np.count_nonzero(run.times < least))
            if 2 * dead > len(run):
                run = run.since(least)
            if len(run):
                kept.append(run)
        self._runs = kept

    def matches(self, keys: Keys, bounds: Bounds | None, head: int | None) -> Iterator[WindowMatches]:
        """Yield matches; see `SortedWindow.matches`. `head` applies to the rows of the current micro-batch."""
        for run in self._runs:
            yield from run.matches(keys, bounds, None)
        if len(self.fresh):
            yield from self.fresh.matches(keys, bounds, head)

    def _settle(self) -> None:
        if len(self.fresh):
            self._runs.append(self.fresh)
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            last = self._runs.pop()
            self._runs[-1] = self._runs[-1].merged(last)


def together(parts: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows or tuples in one batch. Raises CapacityError if a column exceeds 2 GiB."""
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=schema)
    try:
        return pa.concat_batches(parts)
    except pa.ArrowInvalid as problem:
        rows, names = sum(map(len, parts)), ", ".join(schema.names)
        raise CapacityError(
            f"{rows:,} rows of a join in hops do not fit into columns of 2 GiB (columns {names}): use shorter windows,"
            ' more partitions, or placement="grid"'
        ) from problem


def _plain(numbers: Ints) -> Ints:
    """Return a writable array, because numba would compile a kernel again for read-only memory."""
    return np.require(numbers, np.int64, ["C", "W"])


def warmup() -> None:
    """Compile or load the kernels of this module."""
    zero = np.zeros(1, np.int64)
    window = SortedWindow(0, pa.record_batch({"k": zero}), {0: zero}, zero, FOREVER)
    list(window.matches({0: zero}, Bounds(zero, zero, zero), 1))
