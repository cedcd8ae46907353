"""Intervals between event times, and the windows of streams that follow from them.

Comparisons and equalities of event times bound the difference of two event times of a result: they are difference
constraints. A chain of constraints bounds the difference of its ends by their sum, and the tightest bound is that of
the shortest path. A tuple must be kept as long as another component may be younger by this bound. Source: Cormen,
Leiserson, Rivest, Stein, Introduction to Algorithms, "Difference constraints and shortest paths".
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.expressions.parser import WrittenComparison
from eddy.query.comparisons import ColumnComparison
from eddy.query.predicates import AttributeClass
from eddy.streams.event_time import span_of, ticks
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from eddy.streams.windows import Range, Unbounded
from stairs.errors import QueryError
from stairs.graph import FOREVER

NONE = 2 * FOREVER
"""No bound."""

Bound = tuple[int, int, int]
"""(i, j, ticks): the event time of stream j is at most this number of ticks after that of stream i."""


def closure(n_streams: int, bounds: Sequence[Bound]) -> npt.NDArray[np.int64] | None:
    """Return by how much the event time of each stream j can exceed that of each stream i: int64[i, j].

    NONE = by any amount. The result is None if the bounds contradict each other. O(streams^3).
    """
    most = np.full((n_streams, n_streams), NONE, np.int64)
    np.fill_diagonal(most, 0)
    for i, j, size in bounds:
        most[i, j] = min(most[i, j], size)
    for k in range(n_streams):
        first, other = most[:, k : k + 1], most[k : k + 1, :]
        # NONE stays NONE, also with a negative bound. A sum of two bounds fits an int64.
        through = np.where((first >= NONE) | (other >= NONE), NONE, np.maximum(first + other, -NONE))
        np.minimum(most, through, out=most)
        if (np.diagonal(most) < 0).any():
            return None
    return most


def check_time_columns(streams: Sequence[Stream], written: Sequence[WrittenComparison]) -> None:
    """Raise QueryError if a predicate adds a span of time to a column of a stream without time column and window.

    Such a predicate is meant as an interval; without a time column it bounds no event times, and every row is kept.
    """
    by_name = {stream.name: stream for stream in streams}
    for comparison in written:
        if not (comparison.left.amount.is_span or comparison.right.amount.is_span):
            continue
        for name, column in (comparison.left.column, comparison.right.column):
            stream = by_name.get(name)
            if stream is not None and stream.time is None and stream.window is None:
                raise QueryError(
                    f"predicate {comparison.text!r}: stream {name} names no time column, so the"
                    " predicate bounds no window and"
                    f" all rows are kept; if {column!r} has its event times, give the stream time={column!r}, else a"
                    " window, such as window=Unbounded()"
                )


def kept(most: npt.NDArray[np.int64]) -> list[int | None]:
    """Return for each stream how many ticks older than the watermark a tuple of a result may be; None = any number."""
    longest = most.max(axis=1).tolist()
    return [None if ticks >= NONE else int(ticks) for ticks in longest]


def warn_caller(text: str) -> None:
    """Warn with the line outside of this package that made the call."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("eddy."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


class Intervals:
    """The *intervals* of a query, which are comparisons and equalities of event times, and the windows that follow.

    comparisons  the ones among them
    equal        the equalities: for each, the positions of the streams whose event times are equal
    derived      name of a stream without a window of its own, in a query with intervals -> the ticks of its window
    """

    def __init__(
        self,
        streams: Sequence[Stream],
        classes: Sequence[AttributeClass],
        comparisons: Sequence[ColumnComparison],
        time_type: pa.DataType | None,
    ) -> None:
        self._streams, self._classes, self._time_type = streams, classes, time_type
        self._index = {stream.name: i for i, stream in enumerate(streams)}
        times = {(stream.name, stream.time) for stream in streams}
        self.comparisons = [
            comparison for comparison in comparisons if times.issuperset(comparison.columns) and not comparison.differs
        ]
        self.equal = [group for group in self._equalities() if len(group) > 1]
        self.derived: dict[str, int] = {}

    def with_windows(self, what: str = "query") -> tuple[Stream, ...]:
        """Return the streams, each with its own window, or else with the window that the intervals require.

        what   the join, for a warning

        Raises QueryError if the intervals contradict each other, or would keep a stream forever. Warns if the windows
        contradict them.
        """
        if not self.comparisons and not self.equal:
            return tuple(s if s.window is not None else replace(s, window=Unbounded()) for s in self._streams)
        texts = " AND ".join([*map(str, self.comparisons), *map(self._equality, self.equal)])
        most = self.most()
        if most is None:
            raise QueryError(f"no event times fulfil all of {texts}; correct one of the bounds")
        if closure(len(self._streams), [*self._bounds(), *self._window_bounds()]) is None:
            windows = ", ".join(f"{s.name} [{s.window}]" for s in self._streams if isinstance(s.window, Range))
            warn_caller(
                f"the {what} never has a result: the windows {windows} contradict {texts}; leave the windows out, and"
                " each stream is kept as long as the intervals require"
            )
        # The row of a table has no event time, and bounds nothing.
        timed = [i for i, stream in enumerate(self._streams) if not isinstance(stream, Table)]
        sizes = kept(most[:, timed])
        return tuple(self._with_window(s, size, texts) for s, size in zip(self._streams, sizes, strict=True))

    def most(self) -> npt.NDArray[np.int64] | None:
        """Return by how much the event time of each stream can exceed that of each other one (`closure`)."""
        return closure(len(self._streams), [*self._bounds()])

    def _with_window(self, stream: Stream, size: int | None, texts: str) -> Stream:
        if stream.window is not None:
            return stream
        if size is None:
            raise QueryError(
                f"stream {stream.name} would be kept forever: no chain of intervals bounds how much younger every other"
                f" component may be than its own (there is {texts}); add an interval, give the stream a window, or"
                " write window=Unbounded()"
            )
        assert self._time_type is not None
        assert stream.time is not None
        self.derived[stream.name] = size
        return replace(stream, window=Range(span_of(size, self._time_type, stream.type_of(stream.time))))

    def _bounds(self) -> Iterator[Bound]:
        """Yield the difference constraints of intervals, and of equalities between event times."""
        for comparison in self.comparisons:
            left, right = self._index[comparison.left[0]], self._index[comparison.right[0]]
            if comparison.high is not None:
                yield right, left, int(comparison.high)
            if comparison.low is not None:
                yield left, right, -int(comparison.low)
        for group in self.equal:
            yield from ((i, j, 0) for i in group for j in group)

    def _equalities(self) -> Iterator[tuple[int, ...]]:
        """Yield for each component of a key the streams whose event time it is."""
        for c in self._classes:
            for k in range(len(c.types)):
                yield tuple(
                    i for i, s in enumerate(self._streams) if s.name in c.columns and s.time in c.columns[s.name][k]
                )

    def _equality(self, equal: Sequence[int]) -> str:
        return " = ".join(f"{self._streams[i].name}.{self._streams[i].time}" for i in equal)

    def _window_bounds(self) -> Iterator[Bound]:
        """Yield the difference constraints of RANGE windows."""
        for i, stream in enumerate(self._streams):
            if isinstance(stream.window, Range):
                assert self._time_type is not None
                assert stream.time is not None
                what = f"stream {stream.name}, window"
                size = ticks(stream.window.d, self._time_type, stream.type_of(stream.time), what)
                yield from ((i, j, size) for j in range(len(self._streams)))
