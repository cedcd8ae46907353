"""A window in a partition of a batch join in hops: all its rows are there before the first tuple probes.

Each of its rows that precedes a head in (event time, stream) and is young enough joins it. The head of a tuple is the
newest of its components, so the event time of the head alone says which rows these are: no older than the head's by
more than the span of the window, and no younger than it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from eddy.placement.tuples import Ints
from eddy.spark.batch.kernels import find_runs, index_runs
from stairs.graph import FOREVER

BLOCK_ROWS = 1 << 18
"""About so many matches are found at a time, unless a single tuple has more."""


class SortedWindow:
    """The rows of one stream in one partition.

    stream  its position
    rows    their columns
    keys    by class the number of each row's key, int64[rows]
    times   event times in ticks, int64[rows]
    span    ticks of the window, FOREVER = without limit
    """

    def __init__(self, stream: int, rows: pa.RecordBatch, keys: Mapping[int, Ints], times: Ints, span: int) -> None:
        self.stream, self.rows, self.keys, self.times, self.span = stream, rows, keys, times, span
        self._sorted: dict[int, tuple[Ints, Ints, Ints, Ints, Ints]] = {}

    def probe(self, keys: Mapping[int, Ints], times: Ints, head: int | None) -> Iterator[tuple[Ints, Ints]]:
        """Yield (tuples, rows) that join, int64[matches] each, in blocks.

        keys    by class the keys of the tuples, one class in common at least
        times   event times of their heads; all rows of the window precede them if `head` is None

        Cost: a sort of the window by the first probe with a class; per tuple a look-up in a hash table, and two in the
        run of its key by bisection; the matches.
        """
        common = sorted(self.keys.keys() & keys.keys())
        order, by_key, by_time, slots, ends = self._index(common[0])
        n = len(times)
        lows, highs = np.full(n, -FOREVER), np.full(n, FOREVER)
        if head is not None:
            highs = times if self.stream < head else times - 1
            if self.span < FOREVER:
                lows = times - self.span
        first, counts = np.zeros(n, np.int64), np.zeros(n, np.int64)
        find_runs(by_key, by_time, slots, ends, _plain(keys[common[0]]), _plain(lows), _plain(highs), first, counts)
        found = np.cumsum(counts)
        begin = 0
        while begin < n:
            before = found[begin - 1] if begin else 0
            end = max(begin + 1, int(np.searchsorted(found, before + BLOCK_ROWS, "right")))
            own = counts[begin:end]
            left = np.repeat(np.arange(begin, end), own)
            right = order[np.arange(len(left)) - np.repeat(np.cumsum(own) - own - first[begin:end], own)]
            for c in common[1:]:
                same = keys[c][left] == self.keys[c][right]
                left, right = left[same], right[same]
            if len(left):
                yield left, right
            begin = end

    def _index(self, c: int) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """Return (order by key and time, keys and times in this order, slots, ends) for a class."""
        if c not in self._sorted:
            order = np.lexsort((self.times, self.keys[c])).astype(np.int64, copy=False)
            by_key, by_time = self.keys[c][order], self.times[order]
            slots = np.full(1 << max(3, int(2 * len(order)).bit_length()), -1, np.int64)
            ends = np.zeros(len(order), np.int64)
            if len(order):
                index_runs(by_key, slots, ends)
            self._sorted[c] = order, by_key, by_time, slots, ends
        return self._sorted[c]


def _plain(numbers: Ints) -> Ints:
    """Return an array that can be written to: numba would compile a kernel once more for another kind of memory."""
    return np.require(numbers, np.int64, ["C", "W"])


def warmup() -> None:
    """Compile or load the kernels of this module."""
    one = np.zeros(1, np.int64)
    window = SortedWindow(0, pa.record_batch({"k": one}), {0: one}, one, FOREVER)
    list(window.probe({0: one}, one, 1))
