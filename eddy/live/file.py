"""The file of a live engine: a header, and blocks of memory that are mapped and never copied while they stay.

    bytes 0 .. 4095   the header: whose engine it is, whether it may be used, where the index lies
    from 4096 on      blocks, each from a multiple of 64 on: arrays, buffers, and the index

A block stays where it is as long as the engine uses it. New ones go into gaps, or behind the last one. When gaps are
most of the file, the blocks are moved together; that is done while nobody works on them. Everything but the header may
be in any state while the header says *dirty*, which it does from the moment on in which the engine is taken out.
"""

from __future__ import annotations

import mmap
import os
import struct
from bisect import bisect_right
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MAGIC = b"eddyliv2"
HEADER_BYTES = 4096
ALIGNMENT = 64
"""Blocks start at multiples of it, and reach to the next one as far as their seal goes."""
SPARE = 1 << 20
"""Gaps of so many bytes are always fine."""
_HEADER = struct.Struct("<8sQ16s16s16s32s32sQQQQ32s32s")
_CLEAN = struct.Struct("<Q")
_CLEAN_AT = 8

PLACE_BYTES = 16
"""What the index takes for each block: start and length, int64."""

Memory = npt.NDArray[np.uint8]


def aligned(n: int) -> int:
    """Return the first multiple of 64 from n on."""
    return -(-n // ALIGNMENT) * ALIGNMENT


class Header(NamedTuple):
    """What the first bytes say.

    clean              1 = an engine lies here whole
    boot               of the machine, when it was left
    library, query     digests of what wrote it, and of its query
    token              digest of the caller's name for this state of the engine
    key                name of the key of the seals
    index_start, index_bytes   where the index lies
    n_blocks           how many blocks the index begins with
    end                the end of the last block, a multiple of ALIGNMENT
    index_seal, block_seal     of everything else here and the index, and of all blocks (`eddy.live.seal`)
    """

    magic: bytes
    clean: int
    boot: bytes
    library: bytes
    query: bytes
    token: bytes
    key: bytes
    index_start: int
    index_bytes: int
    n_blocks: int
    end: int
    index_seal: bytes = b""
    block_seal: bytes = b""

    @property
    def sealed(self) -> bytes:
        """What the index seal covers of the header."""
        return _HEADER.pack(*self._replace(clean=1, index_seal=b"", block_seal=b""))


class Block(NamedTuple):
    """A range of the file."""

    start: int
    size: int


class LiveFile:
    """One file, open and locked by this process; `memory` is where it is mapped, None = not."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.memory: mmap.mmap | None = None
        self.blocks: list[Block] = []
        """Those of the engine that was taken out, ascending."""
        self._starts: list[int] = []
        self._address = self._length = 0

    # The header

    def header(self) -> Header | None:
        """Return the header, None if there is none that was left whole."""
        read = os.pread(self.handle, _HEADER.size, 0)
        if len(read) < _HEADER.size:
            return None
        header = Header(*_HEADER.unpack(read))
        size = os.fstat(self.handle).st_size
        whole = (
            header.magic == MAGIC
            and header.clean == 1
            and HEADER_BYTES <= header.end <= size
            and header.end % ALIGNMENT == 0
            and header.index_start >= HEADER_BYTES
            and header.index_start + header.index_bytes <= header.end
            and header.n_blocks * PLACE_BYTES <= header.index_bytes
        )
        return header if whole else None

    def index(self, header: Header) -> bytes:
        """Return the index."""
        return os.pread(self.handle, header.index_bytes, header.index_start)

    def spoil(self) -> None:
        """Say that nothing here may be used."""
        os.pwrite(self.handle, _CLEAN.pack(0), _CLEAN_AT)

    def seal(self, header: Header) -> None:
        """Write the header, and then that all is well."""
        self._write(_HEADER.pack(*header._replace(clean=0)), 0)
        self._write(_CLEAN.pack(1), _CLEAN_AT)

    def clear(self) -> None:
        """Forget everything; the room is given back."""
        os.ftruncate(self.handle, 0)

    # Taking out

    def mapped(self, end: int) -> mmap.mmap:
        """Return the file up to `end` as memory."""
        return mmap.mmap(self.handle, end, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)

    def open(self, memory: mmap.mmap, blocks: list[Block]) -> None:
        """Go on with this mapping of the file; `blocks` are those of the engine, ascending."""
        if os.fstat(self.handle).st_size > len(memory):
            os.ftruncate(self.handle, len(memory))
        self.memory = memory
        self.blocks, self._starts = blocks, [block.start for block in blocks]
        self._address, self._length = address_of(np.frombuffer(memory, np.uint8)), len(memory)

    def place_of(self, address: int) -> tuple[int, int] | None:
        """Return the block in which an address lies, and how far from its start; None if it is in none."""
        at = address - self._address
        if not 0 <= at < self._length:
            return None
        k = bisect_right(self._starts, at) - 1
        return k, at - self._starts[k]

    def close(self) -> None:
        """Let go of the mapping; it goes when the last array in it does."""
        self.memory, self.blocks, self._starts, self._address, self._length = None, [], [], 0, 0

    # Putting back

    def lay_out(self, kept: list[int], sizes: list[int]) -> tuple[dict[int, int], list[int], int]:
        """Find places: keep blocks `kept` (by number, ascending), and make room for new ones of these sizes.

        Returns where each block kept lies, where each new one goes, and the end of the last one. Blocks may be moved:
        the engine must not be at work any more.
        """
        old = [self.blocks[k] for k in kept]
        used = sum(aligned(size) for size in [block.size for block in old] + sizes)
        places, end = _fit(old, sizes)
        if end > 2 * used + SPARE and self.memory is not None:
            at, moved = HEADER_BYTES, []
            for block in old:
                if block.start != at:
                    self.memory.move(at, block.start, block.size)
                moved.append(Block(at, block.size))
                at += aligned(block.size)
            old = moved
            places, end = _fit(old, sizes)
        return {k: block.start for k, block in zip(kept, old, strict=True)}, places, end

    def write(self, memory: memoryview | bytes, at: int) -> None:
        """Write a new block. Raises OSError when there is no room."""
        self._write(memory, at)

    def fill(self, end: int) -> None:
        """Let the file reach to `end`, with a page of its own for the last bytes."""
        size = os.fstat(self.handle).st_size
        if size < end:
            self._write(bytes(end - size), size)

    def _write(self, memory: memoryview | bytes, at: int) -> None:
        left = memoryview(memory).cast("B")
        while left:
            n = os.pwrite(self.handle, left, at)
            left, at = left[n:], at + n


def _fit(old: list[Block], sizes: list[int]) -> tuple[list[int], int]:
    """Put new blocks into the gaps between old ones, the largest first, or behind them; return where, and the end."""
    gaps, at = [], HEADER_BYTES
    for block in old:
        if block.start > at:
            gaps.append([at, block.start - at])
        at = aligned(block.start + block.size)
    places = [0] * len(sizes)
    for n in sorted(range(len(sizes)), key=lambda n: -sizes[n]):
        size = aligned(sizes[n])
        gap = next((gap for gap in gaps if gap[1] >= size), None)
        if gap is None:
            places[n], at = at, at + size
        else:
            places[n] = gap[0]
            gap[0], gap[1] = gap[0] + size, gap[1] - size
    ends = [place + size for place, size in zip(places, sizes, strict=True)]
    return places, aligned(max([HEADER_BYTES, *(block.start + block.size for block in old), *ends]))


def address_of(array: npt.NDArray[np.generic]) -> int:
    """Return the address of the first byte of an array."""
    found: int = array.__array_interface__["data"][0]
    return found
