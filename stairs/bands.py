"""The memory of bands: sorted copies of rings of values, for scans with bounds (`stairs.kernels.bands`).

Each ring of values has a row in the table of bands. A band gets memory when a scan first asks for it, so queries
without scans pay nothing. Bands are caches over the SteMs: they are no part of snapshots or live engines, and no undo
record has them. An undo resets a band that contains tuples of the push, or that dropped tuples which are live again.

A band without room in the allowance is done without: the scan looks at all tuples. Bands also give their memory back
before a push fails for lack of it. Then they rest for some pushes, so that a push is not repeated each time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stairs.descriptors import (
    B_AT,
    B_AT_ONCE,
    B_BATCH,
    B_COUNT,
    B_FIELDS,
    B_LEAST,
    B_LOW,
    B_MOST,
    B_REFUSED,
    B_SLOTS,
    B_TUPLES,
    B_UPTO,
    B_VALUES,
    B_WAITING,
    S_LO,
    S_NEXT,
)
from stairs.errors import CapacityError
from stairs.graph import JoinGraph
from stairs.kernels.bands import RUNS
from stairs.memory.allowance import Allowance
from stairs.memory.arena import Int32s, Int64s

PAUSE = 64
"""Pushes for which bands rest after there was no memory for them."""
BATCH = 1024
"""Tuples that are sorted in at once: as many as a chunk has."""
ENTRY_BYTES = 12
EMPTIED = [B_UPTO, B_LOW, *range(B_COUNT, B_COUNT + RUNS)]
"""Fields that are 0 in an empty band."""


class Sizes(NamedTuple):
    """The sizes of windows from which on bands are used, and the lengths of their runs.

    least    tuples of a window below which scanning all of it is cheaper
    waiting  new tuples that are looked at one by one before they are sorted in
    first    entries that the first run has at least, beyond which it is merged into the second
    """

    least: int = 512
    waiting: int = 128
    first: int = 1024


class Bands:
    """The bands of one engine.

    table     int64[rings of all streams, B_FIELDS], descriptors
    streams   the stream of each band
    resting   pushes until bands may ask for memory again

    Memory: O(slots of the rings that are scanned).
    """

    def __init__(self, graph: JoinGraph, allowance: Allowance) -> None:
        self._allowance = allowance
        self.streams = [i for i, rings in enumerate(graph.rings) for _ in range(rings)]
        self.table: Int64s = np.zeros((len(self.streams), B_FIELDS), np.int64)
        self.resting = 0
        self._memory: dict[int, tuple[Int64s, Int32s]] = {}
        self.sizes = Sizes()

    @property
    def sizes(self) -> Sizes:
        """The sizes; lengths of runs apply to bands that get memory later."""
        return self._sizes

    @sizes.setter
    def sizes(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self.table[:, [B_LEAST, B_WAITING]] = sizes.least, sizes.waiting

    @property
    def nbytes(self) -> int:
        """Bytes of all runs."""
        return sum(array.nbytes for memory in self._memory.values() for array in memory)

    def memory(self, b: int) -> tuple[Int64s, Int32s] | None:
        """Return the values and sequence numbers of a band, None if it has no memory."""
        return self._memory.get(b)

    def bytes_of(self, i: int) -> int:
        """Return the bytes of the runs of stream i."""
        return sum(array.nbytes for b, memory in self._memory.items() if self.streams[b] == i for array in memory)

    def require(self, b: int, slots: int) -> None:
        """Give a band memory for a ring of so many slots, unless it has it, or bands rest."""
        if self.table[b, B_SLOTS] < slots and not self.table[b, B_REFUSED]:
            self.make_room(b, slots)

    def make_room(self, b: int, slots: int) -> None:
        """Empty a band, and give it memory for a ring of so many slots if the allowance is not short."""
        self.release(b)
        batch = min(BATCH, slots)
        most = np.array([slots // 24 + self.sizes.first, slots // 4 + self.sizes.first])
        # After a merge, all entries of a run are live.
        ends = np.cumsum(np.minimum([most[0] + batch, most.sum() + batch, slots], slots))
        room = int(ends[-1]) + batch + batch // 2
        try:
            self._allowance.ask(room * ENTRY_BYTES, "a band for scans")
        except CapacityError:
            self.rest()
            return
        row = self.table[b].copy()
        values, tuples = np.empty(room, np.int64), np.empty(room, np.int32)
        row[[B_VALUES, B_TUPLES, B_SLOTS]] = values.ctypes.data, tuples.ctypes.data, slots
        row[B_AT : B_AT + RUNS] = 0, ends[0], ends[1]
        row[[B_BATCH, B_AT_ONCE]] = ends[2], batch
        row[B_MOST : B_MOST + RUNS - 1] = most
        # In this order, the table never has the address of freed memory, whatever exception comes in between.
        self._memory[b] = values, tuples
        self.table[b] = row

    def release(self, b: int) -> None:
        """Empty a band and free its memory."""
        self.table[b, [B_SLOTS, *EMPTIED]] = 0
        self._memory.pop(b, None)

    def drop(self) -> bool:
        """Free the memory of all bands for some pushes; return False if there was none."""
        if not self._memory:
            return False
        for b in list(self._memory):
            self.release(b)
        self.rest()
        return True

    def rest(self) -> None:
        """Let scans do without the bands that have no memory, for PAUSE pushes."""
        self.resting = PAUSE
        self.table[:, B_REFUSED] = 1

    def begin(self) -> None:
        """Follow the beginning of a push."""
        if self.resting:
            if self.resting == 1:
                self.table[:, B_REFUSED] = 0
            self.resting -= 1

    def reset(self) -> None:
        """Empty all bands: sequence numbers change."""
        self.table[:, EMPTIED] = 0

    def forget(self, streams: Int64s) -> None:
        """Follow an undo, which has restored the descriptors of streams."""
        if not self._memory:
            return
        descriptors = streams[self.streams]
        wrong = (self.table[:, B_UPTO] > descriptors[:, S_NEXT]) | (self.table[:, B_LOW] > descriptors[:, S_LO])
        self.table[np.ix_(wrong, EMPTIED)] = 0
