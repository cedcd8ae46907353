"""The rings of one stream: the values of its columns of fixed width, slot = sequence number & mask as in the arena.

A ring has a slot of some bytes for each tuple. Once a column has had a null, it has a second ring of one byte, 1 = the
value is valid. Rings lie in memory (`MemoryRings`) or, from some size on, in a file (`FileRings`).

    in memory, ring by ring      a a a a …   b b b b …        what one call copies from a batch, column by column
    in a file, slot by slot      a b v v .   a b v v . …      a row of results reads one page, not one for each column

Rings never change their size: a method returns other rings, which may share the memory, so that the change takes effect
in one statement of the caller.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from stairs.kernels.payload import spread
from stairs.memory.segments import LEAST_RESERVED, widen_ring
from stairs.memory.spill import PAGE, SpillDirectory, SpillFile

Values = npt.NDArray[np.uint8]
Written = Mapping[int, tuple[Values, Values | None]]
"""By ring: the values as uint8[n, width], and a byte for each, 1 = valid; None = all are."""
TOGETHER = 1 << 22
"""Bytes that are copied to a file at a time."""


STAGED = 1 << 18
"""Bytes of rows that are put together before they are written: they stay in a cache meanwhile."""


def aligned(n: int) -> int:
    """Return the least multiple of 64 that is at least `n`: columns and rings begin at cache lines."""
    return (n + 63) // 64 * 64


def make_rings(
    widths: Mapping[int, int],
    nulls: Sequence[int],
    room: int,
    most: int | None = None,
    spill: SpillDirectory | None = None,
) -> ColumnRings:
    """Return rings of zeros, which are valid.

    widths   by ring, the bytes of a value
    nulls    the rings that have a ring of validity
    room     slots, a power of two
    most     slots that the stream may need: large rings in memory can grow up to them in place
    """
    if spill is not None and is_large(widths, room, spill):
        return FileRings(widths, nulls, room, spill.file(room * row_bytes(widths)))
    held = room
    if most is not None and room * max(widths.values(), default=0) >= LEAST_RESERVED:
        held = max(room, most)
    return _roomy(widths, nulls, room, held)


def _roomy(widths: Mapping[int, int], nulls: Sequence[int], room: int, held: int) -> MemoryRings:
    """Return rings in memory with room for `held` slots, or for `room` on a system that counts room as memory."""
    try:
        return MemoryRings(widths, nulls, room, held)
    except MemoryError:
        return MemoryRings(widths, nulls, room, room)


def is_large(widths: Mapping[int, int], room: int, spill: SpillDirectory) -> bool:
    """Return whether rings are large enough for a file."""
    return bool(widths) and room * sum(widths.values()) >= spill.least


def ring_bytes(widths: Mapping[int, int], nulls: Sequence[int], room: int) -> int:
    """Return the bytes of `MemoryRings` of `room` slots."""
    return sum(aligned(room * width) for width in widths.values()) + aligned(room) * len(nulls)


def row_bytes(widths: Mapping[int, int]) -> int:
    """Return the bytes of a slot of `FileRings`: the values and a byte for each, so that values are aligned."""
    unit = min(max(widths.values(), default=1), 8)
    return max(-(-(sum(widths.values()) + len(widths)) // unit) * unit, 1)


class ColumnRings(ABC):
    """The rings of one stream.

    widths, nulls, room   as in `make_rings`
    values, valid   by ring, uint8[room, width] and uint8[room, 1]: for reading
    nbytes, file_bytes   bytes in memory and in files
    """

    values: dict[int, Values]
    valid: dict[int, Values]
    nbytes: int
    file_bytes: int

    def __init__(self, widths: Mapping[int, int], nulls: Sequence[int], room: int) -> None:
        self.widths, self.nulls, self.room = widths, list(nulls), room

    @abstractmethod
    def with_nulls(self, k: int) -> ColumnRings:
        """Return rings with the same values, of which ring k can have nulls."""

    @abstractmethod
    def grown(self, room: int, most: int) -> ColumnRings | None:
        """Return these rings with more slots in the same memory, each value in its slot; None if that cannot be."""

    @abstractmethod
    def widen(self, room: int, low: int, following: int) -> None:
        """Give the values of tuples low .. following - 1 of rings of `room` slots their places among all slots."""

    @abstractmethod
    def put(self, slot: int, written: Written) -> None:
        """Write all values of n tuples to slots slot, slot + 1, …, from the end of the rings to their start."""

    @abstractmethod
    def append(self, k: int, slot: int, values: Values, valid: Values | None) -> None:
        """Write the values of ring k of n tuples, as `put` does, once those of the other rings have come, in order."""

    def in_file(self, room: int, spill: SpillDirectory | None) -> bool:
        """Return whether these rings lie in a file once they have `room` slots. Those in a file stay in one."""
        return spill is not None and (self.file_bytes > 0 or is_large(self.widths, room, spill))

    def resized(self, room: int, low: int, following: int, most: int, spill: SpillDirectory | None) -> ColumnRings:
        """Return rings of `room` slots with the values of tuples low .. following - 1. O(slots)."""
        # Rings in memory may have room to grow, and become too large for memory.
        stays = room > self.room and bool(self.file_bytes) == self.in_file(room, spill)
        new = self.grown(room, most) if stays else None
        if new is None:
            new = self._other(room, most if room > self.room else None, spill)
            new.take(self, low, following)
        else:
            new.widen(self.room, low, following)
        return new

    def take(self, other: ColumnRings, low: int, following: int) -> None:
        """Copy the values of tuples low .. following - 1 of other rings."""
        some = max(TOGETHER // row_bytes(self.widths), 1)
        while low < following:
            slot = low & (other.room - 1)
            n = min(following - low, other.room - slot, some)
            self.put(low & (self.room - 1), other.read(slice(slot, slot + n)))
            low += n

    def read(self, slots: slice | npt.NDArray[np.int64]) -> Written:
        """Return the values in some slots."""
        return {k: (ring[slots], self.valid[k][slots] if k in self.valid else None) for k, ring in self.values.items()}

    def reordered(self, alive: npt.NDArray[np.int64], first: int, spill: SpillDirectory | None) -> ColumnRings:
        """Return rings of as many slots in which tuples `alive` are tuples first, first + 1, …. O(slots)."""
        new = self._other(self.room, None, spill)
        some, mask = max(TOGETHER // row_bytes(self.widths), 1), self.room - 1
        for at in range(0, len(alive), some):
            new.put((first + at) & mask, self.read(alive[at : at + some] & mask))
        return new

    def _other(self, room: int, most: int | None, spill: SpillDirectory | None) -> ColumnRings:
        if spill is not None and self.in_file(room, spill):
            return FileRings(self.widths, self.nulls, room, spill.file(room * row_bytes(self.widths)))
        return make_rings(self.widths, self.nulls, room, most, None)

    def in_memory(self) -> MemoryRings:
        """Return these rings in memory without room to grow, themselves if they are."""
        new = MemoryRings(self.widths, self.nulls, self.room, self.room)
        new.take(self, 0, self.room)
        return new


class MemoryRings(ColumnRings):
    """Rings in one block of memory, with room for `held` slots each.

    block   the memory, or None for new memory
    """

    file_bytes = 0

    def __init__(
        self, widths: Mapping[int, int], nulls: Sequence[int], room: int, held: int, block: Values | None = None
    ) -> None:
        super().__init__(widths, nulls, room)
        self.held = held
        sizes = [*widths.values(), *(1 for _ in nulls)]
        self.nbytes = ring_bytes(widths, nulls, room)
        starts = [0, *accumulate(aligned(held * width) for width in sizes)]
        self.block = np.zeros(starts[-1], np.uint8) if block is None else block
        views = [
            self.block[at : at + room * width].reshape(-1, width) for at, width in zip(starts, sizes, strict=False)
        ]
        self.values = dict(zip(widths, views, strict=False))
        self.valid = dict(zip(nulls, views[len(widths) :], strict=True))
        if block is None:
            for ring in self.valid.values():
                ring[:] = 1

    def with_nulls(self, k: int) -> ColumnRings:
        """See `ColumnRings`."""
        new = _roomy(self.widths, [*self.nulls, k], self.room, self.held)
        new.take(self, 0, self.room)
        return new

    def grown(self, room: int, most: int) -> ColumnRings | None:
        """See `ColumnRings`."""
        return MemoryRings(self.widths, self.nulls, room, self.held, self.block) if room <= self.held else None

    def widen(self, room: int, low: int, following: int) -> None:
        """See `ColumnRings`."""
        for ring in (*self.values.values(), *self.valid.values()):
            widen_ring(ring, room, low, following)

    def put(self, slot: int, written: Written) -> None:
        """See `ColumnRings`."""
        for k, (values, valid) in written.items():
            self.append(k, slot, values, valid)

    def append(self, k: int, slot: int, values: Values, valid: Values | None) -> None:
        """See `ColumnRings`."""
        before = min(len(values), self.room - slot)
        ring = self.values[k]
        ring[slot : slot + before], ring[: len(values) - before] = values[:before], values[before:]
        if k in self.valid:
            ring = self.valid[k]
            if valid is None:
                ring[slot : slot + before] = ring[: len(values) - before] = 1
            else:
                ring[slot : slot + before], ring[: len(values) - before] = valid[:before], valid[before:]

    def in_memory(self) -> MemoryRings:
        """See `ColumnRings`."""
        return self if self.held == self.room else super().in_memory()


def _spread(values: Values, out: int, stride: int) -> None:
    """Copy values, or bytes of validity, to an address and `stride` bytes further on each."""
    spread(values.ctypes.data, values.strides[0], out, stride, values.shape[1], len(values))


class FileRings(ColumnRings):
    """Rings in a file. Each ring has a byte of validity from the start."""

    nbytes = 0

    def __init__(self, widths: Mapping[int, int], nulls: Sequence[int], room: int, file: SpillFile) -> None:
        super().__init__(widths, nulls, room)
        self._file, self._row = file, row_bytes(widths)
        self.file_bytes = room * self._row
        # Wide values first, so that each is aligned to its width, and the bytes of validity last.
        order = sorted(widths, key=lambda k: -widths[k])
        self._starts = dict(zip(order, accumulate((widths[k] for k in order), initial=0), strict=False))
        self._flags = {k: sum(widths.values()) + n for n, k in enumerate(order)}
        self.values = {k: self._view(file.array, self._starts[k], width) for k, width in widths.items()}
        self.valid = {k: self._view(file.array, self._flags[k], 1) for k in nulls}
        self._unwritten: dict[int, tuple[Values, Values | None]] = {}

    def _view(self, rows: Values, at: int, width: int) -> Values:
        return rows.reshape(-1, self._row)[:, at : at + width]

    def with_nulls(self, k: int) -> ColumnRings:
        """See `ColumnRings`."""
        new = FileRings(self.widths, [*self.nulls, k], self.room, self._file)
        new._unwritten = dict(self._unwritten)
        return new

    def grown(self, room: int, most: int) -> ColumnRings | None:
        """See `ColumnRings`."""
        return FileRings(self.widths, self.nulls, room, self._file.grown(room * self._row))

    def widen(self, room: int, low: int, following: int) -> None:
        """See `ColumnRings`."""
        some = max(TOGETHER // self._row, 1)
        while low < following:
            at, before = low & (self.room - 1), low & (room - 1)
            n = min(following - low, room - before, some)
            if at != before:
                self._file.write(at * self._row, self._file.array[before * self._row : (before + n) * self._row])
            low += n

    def put(self, slot: int, written: Written) -> None:
        """See `ColumnRings`."""
        n = len(next(iter(written.values()))[0]) if written else 0
        some = min(max(STAGED // self._row, 1), n)
        rows, flags = np.zeros((some, self._row), np.uint8), sum(self.widths.values())
        rows[:, flags:] = 1
        at = 0
        while at < n:
            size = min(n - at, self.room - slot, some)
            out = rows.ctypes.data
            for k, (values, valid) in written.items():
                _spread(values[at : at + size], out + self._starts[k], self._row)
                if valid is not None:
                    _spread(valid[at : at + size], out + self._flags[k], self._row)
            self._file.write(slot * self._row, rows[:size])
            if any(valid is not None for _, valid in written.values()):
                rows[:, flags:] = 1
            at, slot = at + size, (slot + size) & (self.room - 1)

    def append(self, k: int, slot: int, values: Values, valid: Values | None) -> None:
        """See `ColumnRings`."""
        if k == next(iter(self.widths)):
            # An exception may have come before the last ring of earlier tuples.
            self._unwritten = {}
        self._unwritten[k] = values, valid
        if len(self._unwritten) == len(self.widths):
            written, self._unwritten = self._unwritten, {}
            self.put(slot, written)

    def fetch(self, ids: npt.NDArray[np.int32]) -> None:
        """Ask the system to read the rows of some tuples, all at once."""
        starts = (ids & np.int32(self.room - 1)).astype(np.int64) * self._row
        self._file.fetch(np.unique(np.concatenate([starts, starts + self._row - 1]) // PAGE))
