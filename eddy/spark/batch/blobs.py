"""Blobs: the form of rows in Spark's shuffle in a batch join.

A *blob* is up to 65 536 tuples (or 8 MB) of one stream that go to one partition, as one binary value: the body of an
Arrow record batch. Both sides know the schema. Spark then moves a few hundred values instead of ten million rows.

    part    int32   partition
    first   int64   position in arrival order (event time, or the `order_by` column) of the blob's first tuple
    stream  int32   position of the stream in the query
    blob    binary  the tuples, ascending in arrival order
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from eddy.spark.partitioning.pieces import GridPiece, Splitter
from eddy.spark.transports.base import RowTask

BLOB_SCHEMA = pa.schema([("part", pa.int32()), ("first", pa.int64()), ("stream", pa.int32()), ("blob", pa.binary())])
BLOB_COLUMNS = "part int, first bigint, stream int, blob binary"
BATCH_BYTES = 16 << 20
"""Bytes of blobs per Arrow batch given to Spark."""

Blob = tuple[int, int, int, pa.Buffer]


class SplitRows(RowTask):
    """Splits the rows of one stream into blobs: the map side of a batch join."""

    verb = "split"
    columns = BLOB_COLUMNS

    def __call__(self, stream: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return as_batches(self._blobs(stream, batches))

    def _blobs(self, stream: int, batches: Iterator[pa.RecordBatch]) -> Iterator[Blob]:
        splitter = Splitter(self.job, stream)
        for batch in batches:
            yield from blobs_of(stream, splitter.add(batch), splitter.offsets)
        yield from blobs_of(stream, splitter.finish(), splitter.offsets)


def unpack(batch: pa.RecordBatch, schemas: list[pa.Schema]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Yield (first, stream, tuples) for each blob of a batch, without copying the tuples."""
    firsts, streams, blobs = batch.column("first"), batch.column("stream"), batch.column("blob")
    for i in range(batch.num_rows):
        stream = streams[i].as_py()
        yield firsts[i].as_py(), stream, pa.ipc.read_record_batch(blobs[i].as_buffer(), schemas[stream])


def blobs_of(stream: int, pieces: Iterable[GridPiece], offsets: list[int]) -> Iterator[Blob]:
    """Yield a blob for each copy of each piece."""
    for piece in pieces:
        body = piece.tuples.serialize()
        for offset in offsets:
            yield piece.cell + offset, piece.first, stream, body


def as_batches(blobs: Iterable[Blob]) -> Iterator[pa.RecordBatch]:
    """Gather blobs into Arrow batches of about BATCH_BYTES with BLOB_SCHEMA."""
    waiting: list[Blob] = []
    waiting_bytes = 0
    for blob in blobs:
        waiting.append(blob)
        waiting_bytes += blob[3].size
        if waiting_bytes >= BATCH_BYTES:
            yield _batch(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield _batch(waiting)


def _batch(blobs: list[Blob]) -> pa.RecordBatch:
    part, first, stream, values = zip(*blobs, strict=True)
    # The batch is assembled from buffers, so that each value is copied once and stays aligned: all sizes are multiples
    # of 8.
    ends = np.zeros(len(blobs) + 1, np.int32)
    np.cumsum([value.size for value in values], out=ends[1:])
    blob = pa.Array.from_buffers(pa.binary(), len(blobs), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))])
    columns = [pa.array(part, pa.int32()), pa.array(first, pa.int64()), pa.array(stream, pa.int32()), blob]
    return pa.RecordBatch.from_arrays(columns, schema=BLOB_SCHEMA)
