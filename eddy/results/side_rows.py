"""Late or failed rows of a side output: counted, and stored up to a bound until the caller collects them.

A `LateRows` is immutable: each change returns a new object. So a push can prepare the next object while it may still
fail, and commit the object by one assignment.

    stored   per stream its late rows in chunks, oldest first: record batches that own their memory

A chunk owns its memory, so that a late row does not keep the batch alive that it was pushed with. Pushes with few late
rows make small chunks. A new chunk is merged with the chunks before it that are no larger; so there are O(log rows)
small chunks, and each row is copied O(log rows) times. Chunks do not grow beyond CHUNK_ROWS and CHUNK_BYTES. Rows of
the oldest chunk of a stream are dropped without a copy until half of it is gone; then the rest is copied.

Invariants: counts[i] >= dropped[i] + rows[i] and dropped[i] >= reported[i]; rows and bytes are the sums over the
chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from eddy.storage.arrow_bytes import write_rows
from stairs.plain_types import declared, plain_schema, to_plain
from stairs.storage.parts import Parts, Plain

CHUNK_ROWS = 4096
CHUNK_BYTES = 1 << 16


class StreamRows(NamedTuple):
    """Late rows of one stream.

    batch      the rows, in plain types (`stairs.plain_types`): encodings and views would keep shared memory alive
    n_bytes    bytes of the memory that the batch keeps alive
    allocated  rows in that memory: rows of the batch and rows dropped before it
    """

    batch: pa.RecordBatch
    n_bytes: int
    allocated: int


class Chunks(NamedTuple):
    """The stored late rows of one stream: chunks, oldest first, and the sums of their rows and bytes."""

    chunks: tuple[StreamRows, ...] = ()
    rows: int = 0
    n_bytes: int = 0

    @classmethod
    def of(cls, chunks: Iterable[StreamRows]) -> Chunks:
        """Return these chunks with their sums."""
        listed = tuple(chunks)
        return cls(listed, sum(len(chunk.batch) for chunk in listed), sum(chunk.n_bytes for chunk in listed))

    def with_added(self, new: Iterable[StreamRows]) -> Chunks:
        """Return these chunks and newer ones, small ones merged."""
        chunks, rows, n_bytes = list(self.chunks), self.rows, self.n_bytes
        for chunk in new:
            rows += len(chunk.batch)
            while chunks and len(chunks[-1].batch) <= len(chunk.batch) and _fit(chunks[-1], chunk):
                n_bytes -= chunks[-1].n_bytes
                chunk = _chunk(pa.concat_batches([chunks.pop().batch, chunk.batch]))
            chunks.append(chunk)
            n_bytes += chunk.n_bytes
        return Chunks(tuple(chunks), rows, n_bytes)

    def newest(self, most: int) -> Chunks:
        """Return the newest `most` rows."""
        excess = self.rows - most
        if excess <= 0:
            return self
        first, n_bytes = 0, self.n_bytes
        while excess and excess >= len(self.chunks[first].batch):
            excess -= len(self.chunks[first].batch)
            n_bytes -= self.chunks[first].n_bytes
            first += 1
        if not excess:
            return Chunks(self.chunks[first:], most, n_bytes)
        old = self.chunks[first]
        rest = old.batch.slice(excess)
        cut = _chunk(_copied(rest)) if 2 * len(rest) <= old.allocated else old._replace(batch=rest)
        return Chunks((cut, *self.chunks[first + 1 :]), most, n_bytes - old.n_bytes + cut.n_bytes)

    def table(self, schema: pa.Schema) -> pa.Table:
        """Return the rows, of which there are some, in the types that their stream declares."""
        return pa.concat_tables(
            [
                pa.Table.from_arrays(list(map(declared, chunk.batch.columns, schema.types)), schema=schema)
                for chunk in self.chunks
            ]
        )


class Added(Protocol):
    """The rows of one stream in one push: their number, and the rows, None if they are only counted."""

    @property
    def rows(self) -> pa.RecordBatch | None: ...

    @property
    def n_rows(self) -> int: ...


class LateRows:
    """The late rows of each stream at one moment, or failed rows as the rows of a single stream.

    stored    per stream, the rows not collected yet
    counts    per stream, the number of late rows since the start
    dropped   per stream, the number of late rows that were dropped before they were collected
    reported  per stream, the value of `dropped` when rows were collected last
    taken     per stream, the rows that were collected since the last push, None without collected rows
    nbytes    bytes of the stored rows
    """

    def __init__(
        self,
        stored: Sequence[Chunks],
        counts: Sequence[int],
        dropped: Sequence[int],
        reported: Sequence[int],
        taken: tuple[Chunks, ...] | None = None,
    ) -> None:
        self.stored, self.taken = tuple(stored), taken
        self.counts, self.dropped, self.reported = tuple(counts), tuple(dropped), tuple(reported)
        self.nbytes = sum(chunks.n_bytes for chunks in self.stored)

    @classmethod
    def none(cls, streams: int) -> LateRows:
        """Return the state before the first late row."""
        nothing = (0,) * streams
        return cls([Chunks()] * streams, nothing, nothing, nothing)

    @property
    def rows(self) -> tuple[int, ...]:
        """The number of stored rows of each stream."""
        return tuple(chunks.rows for chunks in self.stored)

    def with_added(self, late: Mapping[int, Added]) -> LateRows:
        """Return the state after the late rows of a push. O(streams + chunks + rows of the push), amortised."""
        if not late and self.taken is None:
            return self
        stored, counts = list(self.stored), list(self.counts)
        for i, batch in late.items():
            counts[i] += batch.n_rows
            if batch.rows is not None:
                stored[i] = stored[i].with_added(_chunks(batch.rows))
        return LateRows(stored, counts, self.dropped, self.reported)

    def within(self, rows: int, n_bytes: float) -> LateRows:
        """Return the state with at most `rows` rows of each stream and `n_bytes` bytes in all; the oldest are dropped.

        To save bytes, whole chunks are dropped, always from the stream that takes the most bytes.
        """
        if self.nbytes <= n_bytes and all(chunks.rows <= rows for chunks in self.stored):
            return self
        stored = [chunks.newest(rows) for chunks in self.stored]
        left = sum(chunks.n_bytes for chunks in stored)
        while left > n_bytes and left:
            i, most = max(enumerate(stored), key=lambda numbered: numbered[1].n_bytes)
            stored[i] = most.newest(most.rows - len(most.chunks[0].batch))
            left += stored[i].n_bytes - most.n_bytes
        dropped = [
            already + before.rows - after.rows
            for already, before, after in zip(self.dropped, self.stored, stored, strict=True)
        ]
        return LateRows(stored, self.counts, dropped, self.reported, self.taken)

    def collected(self) -> LateRows:
        """Return the state after all rows were collected."""
        return LateRows([Chunks()] * len(self.stored), self.counts, self.dropped, self.dropped, self.stored)

    def without(self, streams: Iterable[int]) -> LateRows:
        """Return the state after functions took the rows of some streams."""
        stored, reported = list(self.stored), list(self.reported)
        for i in streams:
            stored[i], reported[i] = Chunks(), self.dropped[i]
        return LateRows(stored, self.counts, self.dropped, reported, self.taken)

    def batches(self, i: int) -> list[pa.RecordBatch]:
        """Return the stored rows of a stream, in plain types."""
        return [chunk.batch for chunk in self.stored[i].chunks]

    # Plain parts. The rows are copied, because users get them, and an engine rewrites its own memory.

    def to_parts(self) -> Plain:
        """Return the state as plain parts. Raises StateError for rows that Arrow finds invalid."""
        streams = []
        for stored, count, dropped, reported in zip(self.stored, self.counts, self.dropped, self.reported, strict=True):
            batches = [chunk.batch for chunk in stored.chunks]
            rows = write_rows(batches[0].schema, [batch.columns for batch in batches], "late rows") if batches else []
            streams.append({"count": count, "dropped": dropped, "reported": reported, "rows": rows})
        return {"streams": streams}

    @classmethod
    def from_parts(cls, parts: Parts, schemas: Sequence[pa.Schema]) -> LateRows:
        """Return the state that `to_parts` returned, for streams with these schemas, with the rows copied."""
        streams = parts.items("streams", len(schemas))
        counts = [stream.integer("count") for stream in streams]
        dropped = [stream.integer("dropped", high=count) for stream, count in zip(streams, counts, strict=True)]
        reported = [stream.integer("reported", high=most) for stream, most in zip(streams, dropped, strict=True)]
        stored = [
            Chunks.of(_own_memory(batch) for batch in stream.batches("rows", plain_schema(schema), count) if len(batch))
            for stream, schema, count in zip(streams, schemas, counts, strict=True)
        ]
        return cls(stored, counts, dropped, reported)


def _chunk(batch: pa.RecordBatch) -> StreamRows:
    return StreamRows(batch, batch.get_total_buffer_size(), len(batch))


def _chunks(rows: pa.RecordBatch) -> Iterable[StreamRows]:
    """Yield rows cut into chunks."""
    step = max(1, min(CHUNK_ROWS, CHUNK_BYTES * len(rows) // max(rows.nbytes, 1)))
    for start in range(0, len(rows), step):
        yield _own_memory(rows.slice(start, step))


def _fit(chunk: StreamRows, other: StreamRows) -> bool:
    return len(chunk.batch) + len(other.batch) <= CHUNK_ROWS and chunk.n_bytes + other.n_bytes <= CHUNK_BYTES


def _own_memory(rows: pa.RecordBatch) -> StreamRows:
    """Return a copy of rows as a chunk."""
    columns = [to_plain(column) for column in rows.columns]
    return _chunk(_copied(pa.RecordBatch.from_arrays(columns, rows.schema.names)))


def _copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    # Arrow would not copy a single batch.
    return pa.concat_batches([batch, batch.slice(0, 0)])
