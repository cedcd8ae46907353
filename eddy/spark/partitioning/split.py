"""Cuts the rows of one stream into blobs: the map side of both transports.

A *blob* is up to 64 k tuples (or 8 MB) of one stream that go to one partition, as one binary value (the body of an
Arrow record batch; the schema is known on both sides). Spark then moves a few hundred values where it would have
moved ten million rows.

    part    int32   partition
    first   int64   position in arrival order (event time, or the sequence column) of the blob's first tuple
    stream  int32   position of the stream in the query
    blob    binary  the tuples, ascending in arrival order

A splitter gathers a *run* of about a million rows, sorts it by arrival order if it is not sorted, deals it to the
partitions and cuts each partition's part into blobs. So blobs are sorted inside and, out of one run, one after the
other: the reduce side (`merge.py`) merges runs like an external sort, and holds about one blob per run and stream.

Invariants: a tuple is in one blob per cell its stream is copied to, or in none if its key is null and no `ROWS`
window counts it; the result does not depend on how the input was cut into batches, apart from the cutting into blobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from eddy.filters.adaptive import AdaptiveFilter
from eddy.ingest.keys import key_hash
from eddy.spark.errors import SparkJoinError
from eddy.spark.partitioning.job import Job
from eddy.spark.partitioning.kernels import find_cells, group_rows
from stairs.plain_types import TOO_LONG, to_plain

BLOB_SCHEMA = pa.schema([("part", pa.int32()), ("first", pa.int64()), ("stream", pa.int32()), ("blob", pa.binary())])
BLOB_ROWS = 65_536
BLOB_BYTES = 8 << 20
RUN_ROWS = 1 << 20
RUN_BYTES = 64 << 20
_YIELD_BYTES = 16 << 20  # of blobs per Arrow batch handed to Spark

_Blob = tuple[int, int, int, pa.Buffer]


@dataclass(frozen=True)
class Piece:
    """Tuples of one run that go to one cell of the grid, and to the cells at each of the stream's offsets from it.

    first, last  positions in arrival order of the first and last tuple, 0 without an order
    """

    cell: int
    tuples: pa.RecordBatch
    first: int
    last: int


def conform(batch: pa.RecordBatch, schema: pa.Schema, stream: str) -> pa.RecordBatch:
    """Return the columns of `schema`, by name and with its types. Casts only without loss, else SparkJoinError."""
    columns = []
    for field in schema:
        column = batch.column(field.name)
        if column.type != field.type:
            try:
                column = to_plain(column)
                column = column if column.type == field.type else column.cast(field.type)
            except TOO_LONG as problem:
                raise SparkJoinError(
                    f"stream {stream!r}, column {field.name!r}: a value of type {column.type} does not fit "
                    f"{field.type}, the type "
                    f"the query gives it ({problem}); declare a wider type or convert the column before the join"
                ) from problem
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class Splitter:
    """Deals the rows of one stream to partitions. Feed it with `add`, end with `finish`; both give pieces."""

    def __init__(self, job: Job, stream: int) -> None:
        self._job = job
        self._stream = stream
        self._name = job.query.streams[stream].name
        self._input = job.inputs[stream]
        self._kept = job.query.streams[stream].schema.names
        conditions = job.filters[stream]
        place = f"stream {self._name}: its filter"
        self._filter = AdaptiveFilter(conditions, place=place) if conditions else None
        shares = job.shares
        self._routed = shares.routed(stream)
        self._shares = np.array([shares.counts[c] for c in self._routed], np.int64)
        self._strides = np.array([shares.strides[c] for c in self._routed], np.int64)
        self.offsets = [int(offset) for offset in shares.offsets(stream)]
        """What to add to the cell of a piece to get the partition of each of its copies."""
        # A null key joins nothing, but its row takes a place in a ROWS window.
        self._drops_null = not job.keeps_null_keys
        self._classes = shares.has[stream] if self._drops_null else self._routed
        self.span: tuple[int, int] | None = None
        """Least and greatest place in the order of arrival so far, null keys too; None without rows or order."""
        self._run: list[pa.RecordBatch] = []
        self._run_rows = 0
        self._run_bytes = 0

    def add(self, batch: pa.RecordBatch) -> list[Piece]:
        """Take rows (any columns; those of the job are picked by name); return pieces once a run is full."""
        batch = conform(batch, self._input, self._name)
        if batch.num_rows:
            self._run.append(batch)
            self._run_rows += batch.num_rows
            self._run_bytes += batch.nbytes
        if self._run_rows < RUN_ROWS and self._run_bytes < RUN_BYTES:
            return []
        return self.finish()

    def finish(self) -> list[Piece]:
        """Return the pieces of the rows not yet given out."""
        if not self._run:
            return []
        run = pa.concat_batches(self._run)
        self._run, self._run_rows, self._run_bytes = [], 0, 0
        if self._filter is not None:
            run = self._filter.filter(run)
            if not run.num_rows:
                return []
        return self._cut(run.select(self._kept))

    def blobs(self, pieces: Iterable[Piece]) -> list[_Blob]:
        """Return the blobs of pieces, a blob for each copy."""
        blobs: list[_Blob] = []
        for piece in pieces:
            body = piece.tuples.serialize()
            blobs += [(piece.cell + offset, piece.first, self._stream, body) for offset in self.offsets]
        return blobs

    def _cut(self, run: pa.RecordBatch) -> list[Piece]:
        positions = self._job.positions(run, self._stream)
        if positions is not None:
            low, high = int(positions.min()), int(positions.max())
            self.span = (low, high) if self.span is None else (min(low, self.span[0]), max(high, self.span[1]))
        order = np.arange(run.num_rows, dtype=np.int64)
        # Read-only memory would be another type to the kernel, compiled once more.
        if positions is not None and (positions[1:] < positions[:-1]).any():
            order = np.argsort(positions, kind="stable").astype(np.int64, copy=False)
        cells, starts = self._cells(run)
        rows = np.empty(starts[-1], np.int64)
        group_rows(cells, order, starts[:-1].copy(), rows)
        dealt = run.take(pa.array(rows))
        # Wide tuples make shorter blobs: one must fit the memory of whoever holds one per run, and never 2 GB.
        step = max(1, min(BLOB_ROWS, BLOB_BYTES * dealt.num_rows // max(1, dealt.nbytes)))
        pieces: list[Piece] = []
        for cell in np.flatnonzero(np.diff(starts)):
            begin, end = int(starts[cell]), int(starts[cell + 1])
            for low in range(begin, end, step):
                high = min(low + step, end)
                first, last = (0, 0) if positions is None else positions[rows[[low, high - 1]]].tolist()
                pieces.append(Piece(int(cell), dealt.slice(low, high - low), first, last))
        return pieces

    def _cells(self, run: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        """Cell of each row, -1 for one that goes nowhere; where each cell begins among the rows sorted by cell."""
        hashes = np.empty((len(self._routed), run.num_rows), np.uint64)
        keep = np.ones(run.num_rows, np.bool_)
        for c in self._classes:
            class_hashes, valid = key_hash(self._job.query, c, self._name, run)
            if c in self._routed:
                hashes[self._routed.index(c)] = class_hashes
            if self._drops_null:
                keep &= valid
        cells = np.empty(run.num_rows, np.int32)
        starts = np.zeros(self._job.shares.partitions + 1, np.int64)
        find_cells(hashes, keep, self._shares, self._strides, cells, starts)
        return cells, starts


def as_batches(blobs: Iterator[list[_Blob]]) -> Iterator[pa.RecordBatch]:
    """Gather blobs into Arrow batches of about 16 MB with BLOB_SCHEMA."""
    waiting: list[_Blob] = []
    waiting_bytes = 0
    for some in blobs:
        for blob in some:
            waiting.append(blob)
            waiting_bytes += blob[3].size
            if waiting_bytes >= _YIELD_BYTES:
                yield _batch(waiting)
                waiting, waiting_bytes = [], 0
    if waiting:
        yield _batch(waiting)


def _batch(blobs: list[_Blob]) -> pa.RecordBatch:
    part, first, stream, values = zip(*blobs, strict=True)
    # Put together by hand: the values are copied once, and stay aligned to 8 bytes, as their sizes are multiples of 8.
    ends = np.zeros(len(blobs) + 1, np.int32)
    np.cumsum([value.size for value in values], out=ends[1:])
    blob = pa.Array.from_buffers(pa.binary(), len(blobs), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))])
    columns = [pa.array(part, pa.int32()), pa.array(first, pa.int64()), pa.array(stream, pa.int32()), blob]
    return pa.RecordBatch.from_arrays(columns, schema=BLOB_SCHEMA)


def unpack(batch: pa.RecordBatch, schemas: list[pa.Schema]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Yield (first, stream, tuples) of a batch of blobs, without copying the tuples."""
    firsts, streams, blobs = batch.column("first"), batch.column("stream"), batch.column("blob")
    for i in range(batch.num_rows):
        stream = streams[i].as_py()
        yield firsts[i].as_py(), stream, pa.ipc.read_record_batch(blobs[i].as_buffer(), schemas[stream])


def warmup() -> None:
    """Compile or load the kernels of this module."""
    one, cells, starts = np.ones(1, np.int64), np.empty(2, np.int32), np.zeros(2, np.int64)
    find_cells(np.zeros((1, 2), np.uint64), np.ones(2, np.bool_), one, one, cells, starts)
    group_rows(cells, np.arange(2, dtype=np.int64), starts[:-1].copy(), np.empty(2, np.int64))
