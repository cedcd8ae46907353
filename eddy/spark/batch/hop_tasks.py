"""The tasks of a batch join in hops: they send the rows of streams to places, and join intermediate tuples with them.

Blobs have the form of `blobs.py`. `first` is 0 for rows of streams and 1 for intermediate tuples, so that all windows
of a partition arrive before a tuple probes. `stream` identifies the content: stream + number of streams * class for
rows that are partitioned by the keys of a class, the head for intermediate tuples, whose columns `hops/legs.py`
describes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from eddy.placement.keys import KeyNumbers
from eddy.placement.shares import Shares
from eddy.spark.batch.blobs import BLOB_COLUMNS, Blob, as_batches, blobs_of
from eddy.spark.hops.hops import Hops, key_class
from eddy.spark.hops.legs import WHOLE, Legs, TupleColumns
from eddy.spark.hops.windows import BLOCK_ROWS, SortedWindow, together
from eddy.spark.partitioning.engine import OUTPUT_ROWS, as_spark
from eddy.spark.partitioning.failed import refuse_failed
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.pieces import Splitter
from eddy.spark.transports.base import RowTask
from eddy.spark.types import spark_schema


def class_shares(job: Job, c: int) -> Shares:
    """Return the shares of the place where all partitions share the work by the keys of one class."""
    n = job.shares.partitions
    return replace(job.shares, counts=tuple(n if other == c else 1 for other in range(len(job.shares.counts))))


class DealRows(RowTask):
    """Sends the rows of streams to the places where a round needs them.

    dealt   by stream the classes by whose keys its rows are partitioned
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
        # The partition that keeps a window sorts it, so rows need not be sorted here.
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


class JoinRound:
    """The function that Spark runs on the blobs of one partition in one round.

    The function yields blobs of intermediate tuples, and in the last round the results.
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
        self._columns = TupleColumns(job.query, WHOLE if hops.timed else ())
        self._legs = Legs(self._columns, KeyNumbers(job.query), hops.timed)
        self._parts: dict[int, list[pa.RecordBatch]] = {}
        self._windows: dict[tuple[int, int], SortedWindow] = {}
        self._output = spark_schema(job.query.output_schema)
        self._waiting: dict[int, list[pa.RecordBatch]] = {}

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the tuples or results of the round for the blobs of the partition, ascending by `first`."""
        if self._number == self._hops.rounds - 1:
            for _, tuples in self._joined(batches):
                yield from self._made(tuples)
        else:
            yield from as_batches(self._shipped(batches))

    def _joined(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the output of the legs of this round as (head, tuples), in blocks."""
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
            if window is not None and len(window):
                yield from self._leg(head, (head,), self._columns.headed(window))

    def _leg(self, head: int, bound: tuple[int, ...], tuples: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        leg = self._hops.leg(head, self._number)
        assert leg is not None
        windows = [self._window(j, key_class(leg.place)) for j in leg.joins]
        for joined in self._legs.walk(head, bound, tuples, windows):
            yield head, joined

    def _window(self, stream: int, c: int) -> SortedWindow:
        """Return the window of a stream whose rows were partitioned by the keys of a class."""
        if (stream, c) not in self._windows:
            parts = self._parts.pop(stream + len(self._job.inputs) * c, [])
            schema = self._job.query.streams[stream].schema
            rows = together(parts, schema)
            times = self._job.positions(rows, stream) if self._hops.timed else None
            self._windows[stream, c] = self._legs.window(stream, rows, times)
        return self._windows[stream, c]

    def _made(self, tuples: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the results of combinations, in Spark's types."""
        results = self._legs.results(tuples)
        refuse_failed(self._job.query, self._legs.take_failed())
        for batch in results.to_batches(max_chunksize=OUTPUT_ROWS):
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
        leg, bound = self._hops.leg(head, self._number + 1), self._hops.bound(head, self._number + 1)
        assert leg is not None
        rows = together(self._waiting.pop(head), self._columns.schema(bound))
        for cell, piece in self._legs.dealt(rows, bound, key_class(leg.place), self._hops.partitions):
            yield cell, 1, head, piece.serialize()
