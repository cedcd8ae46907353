"""A flat array cut into segments, one per owner: one array serves any number of streams or classes.

A segment can have room beyond its elements, so that it grows in place: nothing is copied. The room takes addresses and
no memory, because the system gives memory page by page, when it is first written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

LEAST_RESERVED = 1 << 18
"""Bytes of a segment from which on it gets room to grow. The system may give memory in pages of 2 MiB."""


def copy_ring(new: npt.NDArray[Any], old: npt.NDArray[Any], low: int, following: int) -> None:
    """Copy elements low .. following - 1 from one ring to another; slot = number modulo slots, along axis 0.

    Both rings have a slot for each of them. In runs, because a copy element by element takes several times as long.
    """
    while low < following:
        n = min(following - low, len(old) - low % len(old), len(new) - low % len(new))
        new[low % len(new) : low % len(new) + n] = old[low % len(old) : low % len(old) + n]
        low += n


def widen_ring(ring: npt.NDArray[Any], slots: int, low: int, following: int) -> None:
    """Give elements low .. following - 1 of a ring that had `slots` slots their places among all slots of `ring`.

    Both numbers of slots are powers of two. Each element stays where it was as well, so the old ring remains intact; in
    a ring that fills for the first time, no element has another place.
    """
    while low < following:
        n = min(following - low, slots - low % slots)
        at, before = low % len(ring), low % slots
        if at != before:
            ring[at : at + n] = ring[before : before + n]
        low += n


def roomy(sizes: Sequence[int], rooms: Sequence[int], k: int, most: Sequence[int], itemsize: int) -> list[int]:
    """Return the rooms of segments of these sizes, when segment k outgrows the room that it had.

    most   the elements that each segment may need; it gets room for them if it is large. The others that are nearly as
           large get theirs at the same time, because a new array for each of them would be a copy of all.
    """
    widened = list(map(max, sizes, rooms))
    widened[k] = sizes[k]
    if sizes[k] * itemsize >= LEAST_RESERVED:
        for j, (size, room) in enumerate(zip(sizes, widened, strict=True)):
            if size == room and 4 * size * itemsize >= LEAST_RESERVED:
                widened[j] = max(size, most[j])
    return widened


def empty(n: int, most: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array of `most` elements that are not set, or of `n` if the system counts room as memory."""
    try:
        return np.empty(most, dtype)
    except MemoryError:
        return np.empty(n, dtype)


class Segments:
    """Consecutive segments of one flat array: segment k is `array[base[k] : base[k] + size[k]]`.

    room   elements of the array up to the next segment
    fill   the elements of a new segment

    Nothing is written beyond the sizes, except by the growth of a segment until it takes effect.
    """

    def __init__(
        self, dtype: npt.DTypeLike, sizes: Sequence[int], fill: int, rooms: Sequence[int] | None = None
    ) -> None:
        self._lay(np.dtype(dtype), sizes, fill, sizes if rooms is None else rooms)
        if fill:
            for k in range(len(self.size)):
                self.view(k)[:] = fill

    def _lay(self, dtype: np.dtype[Any], sizes: Sequence[int], fill: int, rooms: Sequence[int]) -> None:
        self.size, self.room, self.fill = list(sizes), list(rooms), fill
        self.base = self._bases()
        total = sum(self.room)
        self.array: npt.NDArray[Any] = np.empty(total, dtype) if fill else np.zeros(total, dtype)

    @classmethod
    def over(cls, array: npt.NDArray[Any], sizes: list[int], fill: int) -> Segments:
        """Return segments over an existing array, whose length is the sum of the sizes."""
        new = cls(array.dtype, [], fill)
        new.size, new.room, new.array = list(sizes), list(sizes), array
        new.base = new._bases()
        return new

    def _bases(self) -> list[int]:
        bases, total = [], 0
        for room in self.room:
            bases.append(total)
            total += room
        return bases

    @property
    def nbytes(self) -> int:
        """Bytes of all segments, without the room that they do not use."""
        return sum(self.size) * self.array.itemsize

    def view(self, k: int) -> npt.NDArray[Any]:
        """Return a view of segment k."""
        return self.array[self.base[k] : self.base[k] + self.size[k]]

    def dense(self) -> npt.NDArray[Any]:
        """Return all segments end to end: the array itself if no segment has more room than it uses, else a copy."""
        return self.array if self.room == self.size else np.concatenate([self.view(k) for k in range(len(self.size))])

    def copy(self) -> Segments:
        """Return a copy with the same rooms. O(all segments)."""
        return self._moved(self.size, self.room)

    def _moved(self, sizes: list[int], rooms: list[int]) -> Segments:
        """Return a copy of which each segment begins with the elements that fit; the rest is not set."""
        new = Segments(self.array.dtype, [], self.fill)
        try:
            new._lay(self.array.dtype, sizes, self.fill, rooms)
        except MemoryError:
            # Some systems count room as memory.
            new._lay(self.array.dtype, sizes, self.fill, sizes)
        for k in range(len(sizes)):
            n = min(self.size[k], sizes[k])
            new.view(k)[:n] = self.view(k)[:n]
        return new

    def grown(self, k: int, size: int, most: Sequence[int]) -> Segments:
        """Return segments of which segment k is longer; it begins with its elements, and the others are `fill`.

        O(new elements) if the segment has room, in the same array; else O(all segments), and large segments get room
        for the `most` elements that they may need. The original does not change, so a failed allocation loses nothing.
        """
        sizes = [*self.size[:k], size, *self.size[k + 1 :]]
        if size <= self.room[k]:
            new = Segments(self.array.dtype, [], self.fill)
            new.size, new.room, new.base, new.array = sizes, self.room, self.base, self.array
        else:
            new = self._moved(sizes, roomy(sizes, self.room, k, most, self.array.itemsize))
        if self.fill:
            new.view(k)[self.size[k] :] = self.fill
        return new

    def renewed(self, k: int, size: int) -> Segments:
        """Return a copy in which segment k has another size and contains only `fill`. O(all segments)."""
        none = [*self.size[:k], 0, *self.size[k + 1 :]]
        before = Segments(self.array.dtype, [], self.fill)
        before.size, before.room, before.base, before.array = none, self.room, self.base, self.array
        new = before._moved([*self.size[:k], size, *self.size[k + 1 :]], [*self.room[:k], size, *self.room[k + 1 :]])
        if self.fill:
            new.view(k)[:] = self.fill
        return new
