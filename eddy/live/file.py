"""Layout of the file of a live engine: a header, and blocks of mapped memory that stay in place.

    bytes 0 .. 4095   the header: identity of the engine, clean or dirty, place of the index
    from 4096 on      blocks, each at a multiple of 64: arrays, buffers of Arrow columns, and the index

A block stays in place as long as the engine uses it. New blocks go into gaps, or after the last block. When gaps make
up most of the file, the blocks are compacted, while no process uses the engine. The header is dirty from the load of an
engine to the end of its save; while it is dirty, the rest of the file may be in any state.
"""

from __future__ import annotations

import mmap
import os
import struct
from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from eddy.storage.codec import ALIGNMENT, PLACE_BYTES, Block, aligned

MAGIC = b"eddyliv4"
HEADER_BYTES = 4096
SPARE = 1 << 20
"""Gaps of up to this many bytes are never compacted."""
_HEADER = struct.Struct("<8sQ16s16s16s32s32sQQQQ32s32s")
_CLEAN = struct.Struct("<Q")
_CLEAN_AT = 8


class FileHeader(NamedTuple):
    """The fields of the header.

    clean              1 = the file has a whole engine
    boot               digest of the machine's boot during which the engine was saved
    library, query     digests of the code that saved it, and of its query
    token              digest of the caller's name for this state of the engine
    key                name of the key of the seals
    index_start, index_bytes   place of the index
    n_blocks           number of blocks, whose places begin the index
    end                end of the last block, a multiple of ALIGNMENT
    index_seal         seal of all other fields and the index (`eddy.storage.seal`)
    block_seal         seal of all blocks
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
        """The bytes of the header that the index seal covers."""
        return _HEADER.pack(*self._replace(clean=1, index_seal=b"", block_seal=b""))


class LiveFile:
    """An open file that this process has locked; `memory` is its mapping, None = not mapped."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.memory: mmap.mmap | None = None
        self.blocks: list[Block] = []
        """The blocks of the loaded engine, ascending."""
        self._starts: list[int] = []
        self._address = self._length = 0

    # The header

    def header(self) -> FileHeader | None:
        """Return the header, None if it is not that of a whole engine."""
        read = os.pread(self.handle, _HEADER.size, 0)
        if len(read) < _HEADER.size:
            return None
        header = FileHeader(*_HEADER.unpack(read))
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

    def index(self, header: FileHeader) -> bytes:
        """Return the index."""
        return os.pread(self.handle, header.index_bytes, header.index_start)

    def spoil(self) -> None:
        """Mark the file as dirty."""
        os.pwrite(self.handle, _CLEAN.pack(0), _CLEAN_AT)

    def seal(self, header: FileHeader) -> None:
        """Write the header, and then mark the file as clean."""
        self._write(_HEADER.pack(*header._replace(clean=0)), 0)
        self._write(_CLEAN.pack(1), _CLEAN_AT)

    def clear(self) -> None:
        """Truncate the file to nothing."""
        os.ftruncate(self.handle, 0)

    # Load

    def mapped(self, end: int) -> mmap.mmap:
        """Return the file up to `end` as memory."""
        return mmap.mmap(self.handle, end, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)

    def open(self, memory: mmap.mmap, blocks: list[Block]) -> None:
        """Use this mapping of the file; `blocks` are those of the engine, ascending."""
        if os.fstat(self.handle).st_size > len(memory):
            os.ftruncate(self.handle, len(memory))
        self.memory = memory
        self.blocks, self._starts = blocks, [block.start for block in blocks]
        self._address, self._length = np.frombuffer(memory, np.uint8).ctypes.data, len(memory)

    def place_of(self, address: int) -> tuple[int, int] | None:
        """Return the block in which an address lies and the offset in it; None for other memory. O(log blocks)."""
        at = address - self._address
        if not 0 <= at < self._length:
            return None
        k = bisect_right(self._starts, at) - 1
        return k, at - self._starts[k]

    def close(self) -> None:
        """Release the mapping; the system unmaps it when the last array over it is freed."""
        self.memory, self.blocks, self._starts, self._address, self._length = None, [], [], 0, 0

    # Save

    def lay_out(self, reused: list[int], sizes: list[int]) -> tuple[dict[int, int], list[int], int]:
        """Return the place of each reused block (`reused`, by number, ascending), of each new one, and the end of all.

        sizes   bytes of the new blocks

        Reused blocks may be moved, so the engine must not be used any more.
        """
        old = [self.blocks[k] for k in reused]
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
        return {k: block.start for k, block in zip(reused, old, strict=True)}, places, end

    def write(self, memory: memoryview | bytes, at: int) -> None:
        """Write a new block. Raises OSError if the disk is full."""
        self._write(memory, at)

    def fill(self, end: int) -> None:
        """Extend the file to `end` by writing zeros, so that the file system has allocated its pages."""
        size = os.fstat(self.handle).st_size
        if size < end:
            self._write(bytes(end - size), size)

    def _write(self, memory: memoryview | bytes, at: int) -> None:
        left = memoryview(memory).cast("B")
        while left:
            n = os.pwrite(self.handle, left, at)
            left, at = left[n:], at + n


def _fit(old: list[Block], sizes: list[int]) -> tuple[list[int], int]:
    """Return places for new blocks, and the end: in gaps between old ones, the largest first, or after them."""
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
