"""The tasks of a batch join in hops: they deal the rows of streams to places, and join them with what was dealt before.

Blobs have the form of `blobs.py`. `first` is 0 for rows of streams and 1 for intermediate tuples, so that all windows
of a partition are there before a tuple probes. `stream` says which: stream + number of streams * class for rows dealt
by the keys of a class, the head for intermediate tuples.

Columns of intermediate tuples: those of the streams joined so far that later steps or results need, as "stream
position.column", and the event time of the head in ticks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from eddy.ingest.keys import key_hash
from eddy.placement.keys import KeyNumbers, classes_of
from eddy.placement.tuples import Ints
from eddy.query.query import Query
from eddy.results.results import Combinations, Place, Results
from eddy.spark.batch.blobs import BLOB_COLUMNS, Blob, as_batches, blobs_of
from eddy.spark.batch.hops import Hops, key_class
from eddy.spark.batch.windows import BLOCK_ROWS, SortedWindow
from eddy.spark.partitioning.engine import OUTPUT_ROWS, as_spark
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.kernels import find_cells, group_rows
from eddy.spark.partitioning.shares import Shares
from eddy.spark.partitioning.split import PIECE_BYTES, PIECE_ROWS, Splitter
from eddy.spark.transports.base import RowTask
from eddy.spark.types import spark_schema
from stairs.graph import FOREVER
from stairs.plain_types import Column, taken

TIME = "time"
"""The column of intermediate tuples with the event time of the head; names of other columns have a dot."""


def class_shares(job: Job, c: int) -> Shares:
    """Return the shares of the place where all partitions share the work by the keys of one class."""
    n = job.shares.partitions
    return replace(job.shares, counts=tuple(n if one == c else 1 for one in range(len(job.shares.counts))))


class DealRows(RowTask):
    """Deals the rows of streams to the places where a round needs them.

    dealt   by stream the classes by whose keys
    """

    verb = "deal"
    columns = BLOB_COLUMNS

    def __init__(self, job: Job, dealt: Mapping[int, tuple[int, ...]]) -> None:
        super().__init__(job)
        self.streams = tuple(dealt)
        self._dealt = dict(dealt)

    def __call__(self, stream: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return as_batches(self._blobs(stream, batches))

    def _blobs(self, stream: int, batches: Iterator[pa.RecordBatch]) -> Iterator[Blob]:
        # Windows are sorted where they are kept, so rows need not be sorted here.
        unsorted = replace(self.job, sequence=(None,) * len(self.job.sequence))
        splitters = {
            stream + len(self.job.inputs) * c: Splitter(replace(unsorted, shares=class_shares(self.job, c)), stream)
            for c in self._dealt[stream]
        }
        for batch in batches:
            for code, splitter in splitters.items():
                yield from blobs_of(code, splitter.add(batch), splitter.offsets)
        for code, splitter in splitters.items():
            yield from blobs_of(code, splitter.finish(), splitter.offsets)


class Columns:
    """The columns of intermediate tuples.

    `names(bound)` are those of tuples with components of these streams, `carrier(c, bound)` is the stream among them
    whose columns have the key of a class.
    """

    def __init__(self, query: Query, timed: bool) -> None:
        self.query, self._timed = query, timed
        self.classes = classes_of(query)
        self.kept = query.payload_columns(True)

    def carrier(self, c: int, bound: tuple[int, ...]) -> int:
        """Return the first stream with a key in a class."""
        return next(i for i in bound if c in self.classes[i])

    def open(self, bound: tuple[int, ...]) -> list[int]:
        """Return the classes that these streams share with those that are not joined yet."""
        left = frozenset().union(*(own for i, own in enumerate(self.classes) if i not in bound))
        return sorted(left & frozenset().union(*(self.classes[i] for i in bound)))

    def schema(self, bound: tuple[int, ...]) -> pa.Schema:
        """Return the schema of tuples with components of these streams."""
        names = {(i, name): None for i in bound for name in self.kept[i]}
        for c in self.open(bound):
            i = self.carrier(c, bound)
            for component in self.query.classes[c].columns[self.query.graph.names[i]]:
                names.update(((i, name), None) for name in component)
        fields = [pa.field(f"{i}.{name}", self.query.streams[i].schema.field(name).type) for i, name in names]
        return pa.schema([*fields, *([pa.field(TIME, pa.int64())] if self._timed else [])])

    def of_stream(self, rows: pa.RecordBatch, i: int) -> pa.RecordBatch:
        """Return the columns of one component under their own names."""
        prefix = f"{i}."
        own = [name for name in rows.schema.names if name.startswith(prefix)]
        return pa.RecordBatch.from_arrays([rows.column(name) for name in own], names=[n[len(prefix) :] for n in own])

    def headed(self, rows: pa.RecordBatch, i: int, times: Ints) -> pa.RecordBatch:
        """Return rows of a stream as tuples that it heads."""
        schema = self.schema((i,))
        columns = [pa.array(times) if n == TIME else rows.column(n[len(f"{i}.") :]) for n in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def joined(
        self, tuples: pa.RecordBatch, bound: tuple[int, ...], left: Ints, window: SortedWindow, right: Ints
    ) -> pa.RecordBatch:
        """Return tuples joined with rows of a window."""
        schema, prefix = self.schema((*bound, window.stream)), f"{window.stream}."
        columns = [
            taken(window.rows.column(n[len(prefix) :]), right)
            if n.startswith(prefix)
            else taken(tuples.column(n), left)
            for n in schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


class JoinRound:
    """The function that Spark runs on the blobs of one partition in one round.

    It yields blobs of intermediate tuples, in the last round the results.
    """

    def __init__(self, job: Job, hops: Hops, number: int) -> None:
        self._job, self._hops, self._number = job, hops, number
        # Spark shows this name in its plans.
        self.__name__ = f"eddy_hop[{number + 1} of {hops.rounds}]"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _Partition(self._job, self._hops, self._number).run(batches)


class _Partition:
    """One partition in one round."""

    def __init__(self, job: Job, hops: Hops, number: int) -> None:
        self._job, self._hops, self._number = job, hops, number
        self._columns = Columns(job.query, hops.timed)
        self._numbers = KeyNumbers(job.query)
        self._spans = [FOREVER if span is None else span for span in job.query.spans]
        self._parts: dict[int, list[pa.RecordBatch]] = {}
        self._windows: dict[tuple[int, int], SortedWindow] = {}
        self._output = spark_schema(job.query.output_schema)
        kept = self._columns.kept
        self._results = Results(job.query, kept, changelog=False, count_only=False, ids_only=False)
        self._waiting: dict[int, list[pa.RecordBatch]] = {}

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what the round gives for the blobs of the partition, ascending by `first`."""
        if self._number == self._hops.rounds - 1:
            for _, tuples in self._joined(batches):
                yield from self._made(tuples)
        else:
            yield from as_batches(self._shipped(batches))

    def _joined(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield (head, tuples) of what the legs of this round give, in blocks."""
        m = len(self._job.inputs)
        for batch in batches:
            firsts, codes, blobs = (batch.column(name) for name in ("first", "stream", "blob"))
            for k in range(batch.num_rows):
                code, body = codes[k].as_py(), blobs[k].as_buffer()
                if not firsts[k].as_py():
                    schema = self._job.query.streams[code % m].schema
                    self._parts.setdefault(code, []).append(pa.ipc.read_record_batch(body, schema))
                    continue
                bound = self._hops.bound(code, self._number)
                tuples = pa.ipc.read_record_batch(body, self._columns.schema(bound))
                yield from self._leg(code, bound, tuples)
        for head in self._hops.beginning(self._number):
            leg = self._hops.leg(head, self._number)
            window = self._window(head, key_class(leg.place)) if leg else None
            if window is not None and len(window.times):
                yield from self._leg(head, (head,), self._columns.headed(window.rows, head, window.times))

    def _leg(self, head: int, bound: tuple[int, ...], tuples: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        leg = self._hops.leg(head, self._number)
        assert leg is not None
        windows = [self._window(j, key_class(leg.place)) for j in leg.joins]
        if all(len(one.times) for one in windows):
            for found in self._walk(head, bound, tuples, windows):
                yield head, found

    def _walk(
        self, head: int, bound: tuple[int, ...], tuples: pa.RecordBatch, windows: Sequence[SortedWindow]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the tuples joined with all windows, one after the other, in blocks."""
        if not windows:
            yield tuples
            return
        window, *later = windows
        for low in range(0, len(tuples), PIECE_ROWS):
            block = tuples.slice(low, PIECE_ROWS)
            keys = {}
            for c in self._columns.open(bound):
                if c in window.keys:
                    i = self._columns.carrier(c, bound)
                    keys[c] = self._key(i, c, self._columns.of_stream(block, i))
            times = _ints(block.column(TIME)) if self._hops.timed else np.zeros(len(block), np.int64)
            for left, right in window.probe(keys, times, head if self._hops.timed else None):
                found = self._columns.joined(block, bound, left, window, right)
                yield from self._walk(head, (*bound, window.stream), found, later)

    def _window(self, stream: int, c: int) -> SortedWindow:
        """Return the window of a stream whose rows were dealt by the keys of a class."""
        if (stream, c) not in self._windows:
            parts = self._parts.pop(stream + len(self._job.inputs) * c, [])
            schema = self._job.query.streams[stream].schema
            rows = pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema=schema)
            times = self._job.positions(rows, stream) if self._hops.timed else None
            self._windows[stream, c] = SortedWindow(
                stream,
                rows,
                {one: self._key(stream, one, rows) for one in self._columns.classes[stream]},
                np.zeros(len(rows), np.int64) if times is None else times,
                self._spans[stream],
            )
        return self._windows[stream, c]

    def _key(self, i: int, c: int, rows: pa.RecordBatch) -> Ints:
        # Rows with a null key were left out when they were dealt.
        return self._numbers.numbers(i, c, rows, np.zeros(len(rows), np.uint8))

    def _made(self, tuples: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the results of combinations, in Spark's types."""
        columns: dict[Place, Column] = {
            (i, k): tuples.column(f"{i}.{name}")
            for i, names in enumerate(self._columns.kept)
            for k, name in enumerate(names)
        }

        def numbers() -> Ints:
            raise NotImplementedError("a batch join has no arrival numbers")

        found = Combinations(len(tuples), np.zeros(0, np.uint8), 0, lambda: columns, numbers)
        for batch in self._results.make(found).table.to_batches(max_chunksize=OUTPUT_ROWS):
            if batch.num_rows:
                yield as_spark(batch, self._output)

    def _shipped(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Blob]:
        """Yield the intermediate tuples as blobs for the next round."""
        for head, tuples in self._joined(batches):
            waiting = self._waiting.setdefault(head, [])
            waiting.append(tuples)
            if sum(map(len, waiting)) >= BLOCK_ROWS:
                yield from self._dealt(head)
        for head in sorted(self._waiting):
            yield from self._dealt(head)

    def _dealt(self, head: int) -> Iterator[Blob]:
        waiting = self._waiting.pop(head)
        rows = pa.concat_batches(waiting)
        leg, bound = self._hops.leg(head, self._number + 1), self._hops.bound(head, self._number + 1)
        assert leg is not None
        c = key_class(leg.place)
        i = self._columns.carrier(c, bound)
        query = self._job.query
        hashes, _ = key_hash(query, c, query.graph.names[i], self._columns.of_stream(rows, i))
        cells, starts = np.empty(len(rows), np.int32), np.zeros(self._hops.partitions + 1, np.int64)
        one, n = np.ones(1, np.int64), np.array([self._hops.partitions])
        find_cells(hashes[None, :], np.ones(len(rows), np.bool_), n, one, cells, starts)
        order = np.empty(len(rows), np.int64)
        group_rows(cells, np.arange(len(rows)), starts[:-1].copy(), order)
        dealt = taken(rows, order)
        step = max(1, min(PIECE_ROWS, PIECE_BYTES * len(rows) // max(1, dealt.nbytes)))
        for cell in np.flatnonzero(np.diff(starts)).tolist():
            for low in range(int(starts[cell]), int(starts[cell + 1]), step):
                piece = dealt.slice(low, min(step, int(starts[cell + 1]) - low))
                yield cell, 1, head, piece.serialize()


def _ints(column: pa.Array) -> Ints:
    return np.asarray(column)
