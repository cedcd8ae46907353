"""Legs of a join in hops: tuples join one window after the other in a partition, then move to the next leg's partition.

Columns of intermediate tuples: those of the streams joined so far that later steps or results need, as "stream
position.column"; and event times in ticks, if the join needs them:

    time     event time of the head
    newest   greatest event time of all components
    last     greatest event time that a further component may have, by the windows of the components so far
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from eddy.expressions.derived import given_columns
from eddy.ingest.keys import key_hash
from eddy.placement.keys import KeyNumbers, classes_of
from eddy.placement.tuples import Ints
from eddy.query.query import Query
from eddy.results.results import Combined, Place, Results
from eddy.spark.hops.windows import Bounds, Keys, SortedWindow, WindowMatches
from eddy.spark.partitioning.pieces import PIECE_ROWS, dealt
from stairs.graph import FOREVER
from stairs.plain_types import Column, taken

TIME, NEWEST, LAST = "time", "newest", "last"
"""Names of the columns with event times. The names of other columns have a dot."""
WHOLE, OPEN = (TIME,), (TIME, NEWEST, LAST)
"""Columns for tuples whose head is the newest component, and for tuples whose head came last but may be older."""


class TupleColumns:
    """The columns of intermediate tuples.

    times   the columns with event times: none, WHOLE or OPEN
    """

    def __init__(self, query: Query, times: Sequence[str]) -> None:
        self.query, self.times = query, tuple(times)
        self.classes = classes_of(query)
        self.kept = query.payload_columns(True)
        self._schemas: dict[tuple[int, ...], pa.Schema] = {}
        """Schemas that were made so far: each block of matches needs a schema."""

    def carrier(self, c: int, bound: tuple[int, ...]) -> int:
        """Return the first stream with a key in a class."""
        return next(i for i in bound if c in self.classes[i])

    def open(self, bound: tuple[int, ...]) -> list[int]:
        """Return the classes that these streams share with the streams that are not joined yet."""
        left = frozenset().union(*(classes for i, classes in enumerate(self.classes) if i not in bound))
        return sorted(left & frozenset().union(*(self.classes[i] for i in bound)))

    def schema(self, bound: tuple[int, ...]) -> pa.Schema:
        """Return the schema of tuples with components of these streams."""
        if bound not in self._schemas:
            self._schemas[bound] = self._schema(bound)
        return self._schemas[bound]

    def _schema(self, bound: tuple[int, ...]) -> pa.Schema:
        names = {(i, name): None for i in bound for name in self.kept[i]}
        for c in self.open(bound):
            i = self.carrier(c, bound)
            for component in self.query.classes[c].columns[self.query.graph.names[i]]:
                names.update(((i, name), None) for name in given_columns(component))
        fields = [pa.field(f"{i}.{name}", self.query.streams[i].schema.field(name).type) for i, name in names]
        return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in self.times)])

    def of_stream(self, rows: pa.RecordBatch, i: int) -> pa.RecordBatch:
        """Return the columns of one component under their own names."""
        prefix = f"{i}."
        names = [name for name in rows.schema.names if name.startswith(prefix)]
        return pa.RecordBatch.from_arrays(
            [rows.column(name) for name in names], names=[n[len(prefix) :] for n in names]
        )

    def headed(self, window: SortedWindow) -> pa.RecordBatch:
        """Return the rows of a window as tuples with these rows as heads."""
        schema, prefix, times = self.schema((window.stream,)), f"{window.stream}.", window.times
        given = {TIME: times, NEWEST: times, LAST: window.outlived()}
        columns = [pa.array(given[n]) if n in given else window.rows.column(n[len(prefix) :]) for n in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def bounds(self, tuples: pa.RecordBatch) -> Bounds | None:
        """Return the event times that the next component of tuples may have; None if any event time is possible."""
        if not self.times:
            return None
        time = np.asarray(tuples.column(TIME))
        if NEWEST not in self.times:
            return Bounds(time, time, np.full(len(time), FOREVER))
        return Bounds(time, np.asarray(tuples.column(NEWEST)), np.asarray(tuples.column(LAST)))

    def joined(
        self, tuples: pa.RecordBatch, bound: tuple[int, ...], left: Ints, window: SortedWindow, right: Ints
    ) -> pa.RecordBatch:
        """Return tuples joined with rows of a window."""
        schema, prefix = self.schema((*bound, window.stream)), f"{window.stream}."
        columns = []
        for name in schema.names:
            if name.startswith(prefix):
                columns.append(taken(window.rows.column(name[len(prefix) :]), right))
            elif name == NEWEST:
                columns.append(pa.array(np.maximum(np.asarray(tuples.column(name))[left], window.times[right])))
            elif name == LAST:
                columns.append(pa.array(np.minimum(np.asarray(tuples.column(name))[left], window.outlived(right))))
            else:
                columns.append(taken(tuples.column(name), left))
        return pa.RecordBatch.from_arrays(columns, schema=schema)


class ProbedWindow(Protocol):
    """A window in a partition that tuples probe."""

    @property
    def stream(self) -> int:
        """The position of its stream."""

    def __len__(self) -> int:
        """Return the number of its rows."""

    def matches(self, keys: Keys, bounds: Bounds | None, head: int | None) -> Iterator[WindowMatches]:
        """Yield matches in blocks; see `SortedWindow.matches`."""


class Legs:
    """The legs of one partition.

    heads_precede   whether only rows that precede the head join; otherwise all rows of the windows join
    """

    def __init__(self, columns: TupleColumns, numbers: KeyNumbers, heads_precede: bool) -> None:
        self.columns, self.numbers = columns, numbers
        self._heads_precede = heads_precede
        self._failed: list[pa.RecordBatch] = []
        self._results = Results(columns.query, columns.kept, changelog=False, count_only=False, ids_only=False)

    def window(self, stream: int, rows: pa.RecordBatch, times: Ints | None) -> SortedWindow:
        """Return rows of a stream as a window; `times` is None if event times are not needed."""
        span = self.columns.query.spans[stream]
        return SortedWindow(
            stream,
            rows,
            {c: self.key(stream, c, rows) for c in self.columns.classes[stream]},
            np.zeros(len(rows), np.int64) if times is None else times,
            FOREVER if span is None else span,
        )

    def key(self, i: int, c: int, rows: pa.RecordBatch) -> Ints:
        """Return the numbers of the keys of rows of a stream. Rows with a null key were left out before."""
        return self.numbers.numbers(i, c, rows, np.zeros(len(rows), np.uint8))

    def walk(
        self, head: int, bound: tuple[int, ...], tuples: pa.RecordBatch, windows: Sequence[ProbedWindow]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the tuples joined with all windows, one after the other, in blocks.

        bound   the streams that the tuples have joined, the head first
        """
        if not windows:
            yield tuples
            return
        if not all(len(probed) for probed in windows):
            return
        window, *later = windows
        for low in range(0, len(tuples), PIECE_ROWS):
            block, keys = tuples.slice(low, PIECE_ROWS), {}
            for c in self.columns.open(bound):
                if c in self.columns.classes[window.stream]:
                    i = self.columns.carrier(c, bound)
                    keys[c] = self.key(i, c, self.columns.of_stream(block, i))
            among = head if self._heads_precede else None
            for run, left, right in window.matches(keys, self.columns.bounds(block), among):
                joined = self.columns.joined(block, bound, left, run, right)
                yield from self.walk(head, (*bound, window.stream), joined, later)

    def take_failed(self) -> list[pa.RecordBatch]:
        """Return the combinations that failed since the last call (`eddy.results.failed_rows.FAILED`)."""
        failed, self._failed = self._failed, []
        return failed

    def results(self, tuples: pa.RecordBatch) -> pa.Table:
        """Return the results of combinations of all streams."""
        columns: dict[Place, Column] = {
            (i, k): tuples.column(f"{i}.{name}")
            for i, names in enumerate(self.columns.kept)
            for k, name in enumerate(names)
        }

        def numbers() -> Ints:
            raise NotImplementedError("a join in hops has no arrival numbers")

        made = self._results.make(Combined(len(tuples), lambda: columns, numbers))
        self._failed += made.failed
        return made.table

    def dealt(
        self, tuples: pa.RecordBatch, bound: tuple[int, ...], c: int, partitions: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield (partition, tuples) in pieces: intermediate tuples by their keys of a class."""
        i = self.columns.carrier(c, bound)
        return deal(self.columns.query, i, c, self.columns.of_stream(tuples, i), tuples, partitions)


def deal(
    query: Query, stream: int, c: int, keys: pa.RecordBatch, rows: pa.RecordBatch, partitions: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (partition, rows) in pieces, rows dealt by keys of a class.

    stream   whose columns `keys` has, one row for each of `rows`; it has a key in the class
    """
    return dealt(key_hash(query, c, query.graph.names[stream], keys)[0], rows, partitions)
