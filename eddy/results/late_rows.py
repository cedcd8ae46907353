"""Rows that came too late to join anything: counted, and kept up to a bound until somebody takes them.

A `LateRows` never changes: what changes it gives another one, so that a push can prepare the next one while it may
still fail, and put it in place by one assignment.

    kept     per stream its late rows in chunks, oldest first: record batches with memory of their own

A chunk has memory of its own, so that a late row does not hold on to the batch it was pushed with. Pushes with few late
rows make small chunks; a new one is merged with those before it that are no larger, so there are O(log rows) small
ones, and each row is copied O(log rows) times. Chunks grow no further than CHUNK_ROWS and CHUNK_BYTES. Of the oldest
chunk of a stream, rows may be cut off without a copy; once half of it is gone, the rest is copied.

Invariants: counts[i] >= dropped[i] + rows[i] and dropped[i] >= taken[i]; rows and bytes are the sums over the chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from eddy.ingest.arrivals import TooLate
from eddy.snapshot.snapshot import from_stream, to_stream
from stairs.plain_types import declared, plain_schema, to_plain
from stairs.storage.parts import Parts, Plain

CHUNK_ROWS = 4096
CHUNK_BYTES = 1 << 16


class Chunk(NamedTuple):
    """Late rows of one stream.

    batch    the rows, in plain types (`stairs.plain_types`): encodings and views would hold on to what is shared
    n_bytes  of all the memory that they hold on to
    held     rows in that memory: those of the batch and those cut off
    """

    batch: pa.RecordBatch
    n_bytes: int
    held: int


class Kept(NamedTuple):
    """The late rows kept of one stream: chunks, oldest first, and the sums of their rows and bytes."""

    chunks: tuple[Chunk, ...] = ()
    rows: int = 0
    n_bytes: int = 0

    @classmethod
    def of(cls, chunks: Iterable[Chunk]) -> Kept:
        """Add them up."""
        listed = tuple(chunks)
        return cls(listed, sum(len(one.batch) for one in listed), sum(one.n_bytes for one in listed))

    def with_added(self, new: Iterable[Chunk]) -> Kept:
        """Return these and newer ones, merged where they are small."""
        chunks, rows, n_bytes = list(self.chunks), self.rows, self.n_bytes
        for chunk in new:
            rows += len(chunk.batch)
            while chunks and len(chunks[-1].batch) <= len(chunk.batch) and _fit(chunks[-1], chunk):
                n_bytes -= chunks[-1].n_bytes
                chunk = _chunk(pa.concat_batches([chunks.pop().batch, chunk.batch]))
            chunks.append(chunk)
            n_bytes += chunk.n_bytes
        return Kept(tuple(chunks), rows, n_bytes)

    def newest(self, most: int) -> Kept:
        """Return the newest rows, `most` or fewer."""
        excess = self.rows - most
        if excess <= 0:
            return self
        first, n_bytes = 0, self.n_bytes
        while excess and excess >= len(self.chunks[first].batch):
            excess -= len(self.chunks[first].batch)
            n_bytes -= self.chunks[first].n_bytes
            first += 1
        if not excess:
            return Kept(self.chunks[first:], most, n_bytes)
        old = self.chunks[first]
        rest = old.batch.slice(excess)
        cut = _chunk(_copied(rest)) if 2 * len(rest) <= old.held else old._replace(batch=rest)
        return Kept((cut, *self.chunks[first + 1 :]), most, n_bytes - old.n_bytes + cut.n_bytes)


class LateRows:
    """The late rows of each stream at one moment.

    kept     per stream, the rows that nobody has taken yet
    counts   per stream, how many there were since the start
    dropped  per stream, how many of them had to go before they were taken
    taken    per stream, how many had been dropped when rows were taken last
    nbytes   bytes of the rows kept
    """

    def __init__(
        self, kept: Sequence[Kept], counts: Sequence[int], dropped: Sequence[int], taken: Sequence[int]
    ) -> None:
        self.kept = tuple(kept)
        self.counts, self.dropped, self.taken = tuple(counts), tuple(dropped), tuple(taken)
        self.nbytes = sum(own.n_bytes for own in self.kept)

    @classmethod
    def none(cls, streams: int) -> LateRows:
        """Return what there is before the first late row."""
        nothing = (0,) * streams
        return cls([Kept()] * streams, nothing, nothing, nothing)

    @classmethod
    def restored(
        cls, batches: Sequence[Sequence[pa.RecordBatch]], counts: Sequence[int], dropped: Sequence[int]
    ) -> LateRows:
        """Return what a snapshot has, given the rows per stream; their memory is not held on to."""
        kept = [Kept.of(_own_memory(batch) for batch in own if len(batch)) for own in batches]
        return cls(kept, counts, dropped, dropped)

    @property
    def rows(self) -> tuple[int, ...]:
        """How many rows are kept of each stream."""
        return tuple(own.rows for own in self.kept)

    def with_added(self, late: Mapping[int, TooLate]) -> LateRows:
        """Return these and the late rows of a push, by stream. O(streams + chunks + rows of the push), amortised."""
        if not late:
            return self
        kept, counts = list(self.kept), list(self.counts)
        for i, one in late.items():
            counts[i] += one.n_rows
            if one.rows is not None:
                kept[i] = kept[i].with_added(_chunks(one.rows))
        return LateRows(kept, counts, self.dropped, self.taken)

    def within(self, rows: int, n_bytes: float) -> LateRows:
        """Return these without the oldest of those that are too many: more than so many of a stream, or bytes in all.

        To save bytes whole chunks go, each time of the stream that takes the most.
        """
        if self.nbytes <= n_bytes and all(own.rows <= rows for own in self.kept):
            return self
        kept = [own.newest(rows) for own in self.kept]
        left = sum(own.n_bytes for own in kept)
        while left > n_bytes and left:
            i, most = max(enumerate(kept), key=lambda own: own[1].n_bytes)
            kept[i] = most.newest(most.rows - len(most.chunks[0].batch))
            left += kept[i].n_bytes - most.n_bytes
        dropped = [
            already + before.rows - after.rows
            for already, before, after in zip(self.dropped, self.kept, kept, strict=True)
        ]
        return LateRows(kept, self.counts, dropped, self.taken)

    def without(self, streams: Iterable[int]) -> LateRows:
        """Return these after the rows of some streams were taken."""
        kept, taken = list(self.kept), list(self.taken)
        for i in streams:
            kept[i], taken[i] = Kept(), self.dropped[i]
        return LateRows(kept, self.counts, self.dropped, taken)

    def batches(self, i: int) -> list[pa.RecordBatch]:
        """Return the rows kept of a stream, in plain types."""
        return [chunk.batch for chunk in self.kept[i].chunks]

    def table(self, i: int, schema: pa.Schema) -> pa.Table:
        """Return the rows kept of a stream that has some, in the types that its schema declares."""
        return pa.concat_tables(
            [
                pa.Table.from_arrays(list(map(declared, batch.columns, schema.types)), schema=schema)
                for batch in self.batches(i)
            ]
        )

    # Kept for another process: rows are given away, so they must not lie in memory that others go on to write.

    def to_parts(self) -> Plain:
        """Return all that goes on."""
        batches = [self.batches(i) for i in range(len(self.kept))]
        return {
            "counts": list(self.counts),
            "dropped": list(self.dropped),
            "taken": list(self.taken),
            "batches": [np.frombuffer(to_stream(own) if own else b"", np.uint8) for own in batches],
        }

    @classmethod
    def from_parts(cls, parts: Parts, schemas: Sequence[pa.Schema]) -> LateRows:
        """Return the late rows of streams with these schemas that `to_parts` gave."""
        counts, dropped, taken = (parts.integers(name, len(schemas)) for name in ("counts", "dropped", "taken"))
        written = parts.arrays("batches", np.uint8, (-1,))
        parts.require(len(written) == len(schemas), f"batches of {len(written)} streams")
        batches = [from_stream(one.tobytes()) if len(one) else [] for one in written]
        for own, schema in zip(batches, schemas, strict=True):
            parts.require(all(batch.schema.equals(plain_schema(schema)) for batch in own), "rows of another schema")
        found = cls.restored(batches, counts, dropped)
        return cls(found.kept, counts, dropped, taken)


def _chunk(batch: pa.RecordBatch) -> Chunk:
    return Chunk(batch, batch.get_total_buffer_size(), len(batch))


def _chunks(rows: pa.RecordBatch) -> Iterable[Chunk]:
    """Cut rows into chunks."""
    step = max(1, min(CHUNK_ROWS, CHUNK_BYTES * len(rows) // max(rows.nbytes, 1)))
    for start in range(0, len(rows), step):
        yield _own_memory(rows.slice(start, step))


def _fit(one: Chunk, other: Chunk) -> bool:
    return len(one.batch) + len(other.batch) <= CHUNK_ROWS and one.n_bytes + other.n_bytes <= CHUNK_BYTES


def _own_memory(rows: pa.RecordBatch) -> Chunk:
    """Return rows as a chunk, in memory that nothing else needs."""
    columns = [to_plain(column) for column in rows.columns]
    return _chunk(_copied(pa.RecordBatch.from_arrays(columns, rows.schema.names)))


def _copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    # One batch alone would not be copied.
    return pa.concat_batches([batch, batch.slice(0, 0)])
