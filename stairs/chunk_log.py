"""One payload column of one stream, kept as Arrow arrays: for types whose values have no fixed width.

With a directory to spill to, an array that has grown large goes to a file, and is part of no longer array afterwards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stairs.memory.spill import SpillDirectory
from stairs.plain_types import TOO_LONG, Column, merged, packed, picked, require_room

SPILLED = 16
"""How many times as large as the least ring in a file an array in a file is: each array costs a step of a gather."""


class KeptArray(NamedTuple):
    """The values of adjacent arrivals, the first of which is `first`; `filed` = they lie in a file."""

    first: int
    values: pa.Array
    filed: bool = False


def _in_file(values: pa.Array, spill: SpillDirectory) -> pa.Array:
    """Return an array whose memory is the mapping of a new file."""
    batch = pa.record_batch([values], ["values"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    message = sink.getvalue()
    file = spill.file(message.size)
    file.write(0, np.frombuffer(message, np.uint8))
    return pa.ipc.open_stream(pa.py_buffer(file.array)).read_next_batch().column(0)


class ChunkLog:
    """Values of one column by arrival number, in the plain type `kind`: appended at the end, dropped from the front.

    chunks   in order, those in files first; O(log values) arrays in memory at any time
    """

    def __init__(self, kind: pa.DataType, spill: SpillDirectory | None = None) -> None:
        self.kind, self._spill = kind, spill
        self.chunks: list[KeptArray] = []

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays in memory."""
        return sum(chunk.values.nbytes for chunk in self.chunks if not chunk.filed)

    @property
    def file_bytes(self) -> int:
        """Bytes of all arrays in files."""
        return sum(chunk.values.nbytes for chunk in self.chunks if chunk.filed)

    def append(self, first: int, values: pa.Array) -> None:
        """Append the values of arrivals first, first + 1, …, in the plain type of the column. Raises CapacityError.

        Neighbours of similar size merge unless the result would be too long for one array: O(log n) copies per value.
        """
        chunks = [*self.chunks, KeptArray(first, values)]
        while len(chunks) > 1 and not chunks[-2].filed:
            before, last = chunks[-2:]
            # Arrays that are to become large enough for a file grow by bytes as well.
            grows = self._spill is not None and before.values.nbytes <= 2 * last.values.nbytes
            if len(before.values) > 2 * len(last.values) and not grows:
                break
            try:
                require_room(before.values.nbytes + last.values.nbytes)
                chunks[-2:] = [KeptArray(before.first, merged([before.values, last.values]))]
            except TOO_LONG:
                break
        if self._spill is not None:
            # Oldest first, so that those in files come first.
            for at, chunk in enumerate(chunks):
                if not chunk.filed:
                    if chunk.values.nbytes < SPILLED * self._spill.least:
                        break
                    chunks[at] = KeptArray(chunk.first, _in_file(chunk.values, self._spill), True)
        self.chunks = chunks

    def compact(self) -> None:
        """Copy each array in memory that is a part of a larger buffer, so that each owns exactly its memory."""
        self.chunks = [
            chunk
            if chunk.filed or chunk.values.get_total_buffer_size() <= chunk.values.nbytes
            else KeptArray(chunk.first, merged([chunk.values]))
            for chunk in self.chunks
        ]

    def drop_before(self, low: int) -> None:
        """Drop arrivals below `low` that fill a chunk, or most of one in memory."""
        keep = [chunk for chunk in self.chunks if chunk.first + len(chunk.values) > low]
        if keep and not keep[0].filed and low - keep[0].first > len(keep[0].values) // 2:
            # A slice would keep the memory of the whole chunk alive.
            keep[0] = KeptArray(low, merged([keep[0].values.slice(low - keep[0].first)]))
        self.chunks = keep

    def span(self, first: int, n: int) -> Column:
        """Return a copy of the values of arrivals first .. first + n - 1, which must be present."""
        parts = [
            chunk.slice(max(0, first - start), first + n - max(first, start))
            for start, chunk, _ in self.chunks
            if start < first + n and start + len(chunk) > first
        ]
        return packed(parts) if parts else pa.nulls(0, self.kind)

    def take(self, arrivals: npt.NDArray[np.int64]) -> Column:
        """Return the values of the arrivals, in their order; in several arrays if they do not fit in one."""
        parts = self._parts(arrivals)
        return parts[0] if len(parts) == 1 else pa.chunked_array(parts)

    def _parts(self, arrivals: npt.NDArray[np.int64]) -> list[pa.Array]:
        try:
            return [self._part(arrivals)]
        except TOO_LONG:
            if len(arrivals) < 2:
                raise
        half = len(arrivals) // 2
        return self._parts(arrivals[:half]) + self._parts(arrivals[half:])

    def _part(self, arrivals: npt.NDArray[np.int64]) -> pa.Array:
        if not len(arrivals):
            return pa.nulls(0, self.kind)
        if len(self.chunks) == 1:
            first, chunk, _ = self.chunks[0]
            values = picked(chunk, pa.array(arrivals - first))
            require_room(values.nbytes, len(values))
            return values
        firsts = np.array([chunk.first for chunk in self.chunks])
        place = np.searchsorted(firsts, arrivals, side="right") - 1
        order = np.argsort(place, kind="stable")
        parts, at, n_bytes = [], 0, 0
        for k, count in zip(*np.unique(place, return_counts=True), strict=True):
            first, chunk, _ = self.chunks[k]
            parts.append(picked(chunk, pa.array(arrivals[order[at : at + count]] - first)))
            at += count
            n_bytes += parts[-1].nbytes
            # Checked after each part, before further parts take memory.
            require_room(n_bytes, at)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return merged(parts).take(pa.array(back))
