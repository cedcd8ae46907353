"""One payload column of one stream, kept as Arrow arrays: for types whose values have no fixed width."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stairs.plain_types import TOO_LONG, Column, merged, packed, picked, require_room


class ChunkLog:
    """Values of one column by arrival number, in the plain type `kind`: appended at the end, dropped from the front.

    chunks   (arrival number of the first value, array) in order; O(log values) arrays at any time
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.chunks: list[tuple[int, pa.Array]] = []

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(chunk.nbytes for _, chunk in self.chunks)

    def append(self, first: int, values: pa.Array) -> None:
        """Append the values of arrivals first, first + 1, …, in the plain type of the column.

        Neighbours of similar size merge unless the result would be too long for one array: O(log n) copies per value.
        """
        chunks = list(self.chunks)
        chunks.append((first, values))
        while len(chunks) > 1 and len(chunks[-2][1]) <= 2 * len(chunks[-1][1]):
            (start, left), (_, right) = chunks[-2:]
            try:
                require_room(left.nbytes + right.nbytes)
                chunks[-2:] = [(start, merged([left, right]))]
            except TOO_LONG:
                break
        self.chunks = chunks

    def compact(self) -> None:
        """Copy each array that is a part of a larger buffer, so that every array owns exactly its memory."""
        self.chunks = [
            (first, chunk if chunk.get_total_buffer_size() <= chunk.nbytes else merged([chunk]))
            for first, chunk in self.chunks
        ]

    def drop_before(self, low: int) -> None:
        """Drop arrivals below `low` that fill a chunk or most of one."""
        keep = [(first, chunk) for first, chunk in self.chunks if first + len(chunk) > low]
        if keep and low - keep[0][0] > len(keep[0][1]) // 2:
            first, chunk = keep[0]
            # A slice would keep the memory of the whole chunk alive.
            keep[0] = (low, merged([chunk.slice(low - first)]))
        self.chunks = keep

    def span(self, first: int, n: int) -> Column:
        """Return a copy of the values of arrivals first .. first + n - 1, which must be present."""
        parts = [
            chunk.slice(max(0, first - start), first + n - max(first, start))
            for start, chunk in self.chunks
            if start < first + n and start + len(chunk) > first
        ]
        return packed(parts) if parts else pa.nulls(0, self.kind)

    def take(self, arrivals: npt.NDArray[np.int64]) -> Column:
        """Return the values of the arrivals, in their order; in several arrays if they do not fit in one."""
        parts = self._parts(arrivals)
        return parts[0] if len(parts) == 1 else pa.chunked_array(parts)

    def _parts(self, arrivals: npt.NDArray[np.int64]) -> list[pa.Array]:
        try:
            return [self._one(arrivals)]
        except TOO_LONG:
            if len(arrivals) < 2:
                raise
        half = len(arrivals) // 2
        return self._parts(arrivals[:half]) + self._parts(arrivals[half:])

    def _one(self, arrivals: npt.NDArray[np.int64]) -> pa.Array:
        if not len(arrivals):
            return pa.nulls(0, self.kind)
        if len(self.chunks) == 1:
            first, chunk = self.chunks[0]
            values = picked(chunk, pa.array(arrivals - first))
            require_room(values.nbytes, len(values))
            return values
        firsts = np.array([first for first, _ in self.chunks])
        place = np.searchsorted(firsts, arrivals, side="right") - 1
        order = np.argsort(place, kind="stable")
        parts, at, n_bytes = [], 0, 0
        for k, count in zip(*np.unique(place, return_counts=True), strict=True):
            first, chunk = self.chunks[k]
            parts.append(picked(chunk, pa.array(arrivals[order[at : at + count]] - first)))
            at += count
            n_bytes += parts[-1].nbytes
            # Checked after each part, before further parts take memory.
            require_room(n_bytes, at)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return merged(parts).take(pa.array(back))
