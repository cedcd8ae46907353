"""Private files that hold what need not stay in memory: rows of windows that are larger than memory.

The system caches the pages of a file in memory that is free, and takes them back when others need it; so the newest
rows and those that are often read stay in memory, and the others cost a read of the disk. Rows are read through a
mapping and written with `pwrite`: a write of whole pages reads nothing first, and a full disk is an error of the call
and not the end of the process, as it would be for a write through the mapping.

A file has no name: it is gone when its owner is, also after a kill.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from mmap import ACCESS_READ, MADV_RANDOM, MADV_WILLNEED, PAGESIZE, mmap
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stairs.errors import CapacityError, InputError, StateError

LEAST = 1 << 20
"""Bytes from which on rows go to a file: smaller windows stay in memory."""
PAGE = PAGESIZE
_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")


def disk_reads() -> int:
    """Return how many pages this process has waited for so far."""
    # Not all systems have it; those that have not cannot spill.
    from resource import RUSAGE_SELF, getrusage

    return getrusage(RUSAGE_SELF).ru_majflt


class SpillDirectory:
    """A directory for the private files of one owner, and the process to which they belong.

    least   bytes from which on rows go to a file

    Raises InputError if no file can be made in it.
    """

    def __init__(self, path: str | os.PathLike[str], least: int = LEAST) -> None:
        self.path, self.least, self._process = os.fspath(path), least, os.getpid()
        if not hasattr(os, "pwrite"):
            raise InputError("spill: this system cannot write at a place of a file (pwrite); leave spill out")
        try:
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise InputError(
                f"spill={self.path!r}: no file can be made there ({error.strerror}); name an existing directory on a"
                " disk, in which this process may write"
            ) from error

    def __repr__(self) -> str:
        return f"SpillDirectory({self.path!r}, {self.least})"

    def file(self, size: int) -> SpillFile:
        """Return a new file of `size` bytes, all 0, which take no room on the disk until they are written."""
        self.require_process()
        try:
            with tempfile.TemporaryFile(dir=self.path, buffering=0) as made:
                return SpillFile(self, os.dup(made.fileno()), size)
        except OSError as error:
            raise self.full(size, error) from error

    def full(self, n_bytes: int, error: OSError) -> CapacityError:
        """Return the error for bytes that the directory does not take."""
        return CapacityError(
            f"spill={self.path!r} does not take {n_bytes:,} more bytes ({error.strerror}): free space there, or narrow"
            " the windows"
        )

    def require_process(self) -> None:
        """Raise StateError in another process than the owner's: both would write to one file after a fork."""
        if os.getpid() != self._process:
            raise StateError(
                f"a runtime with spill={self.path!r} belongs to process {self._process}, and this is a copy of it after"
                " a fork: make a runtime here with Runtime.restore(snapshot, query)"
            )

    @property
    def in_memory(self) -> bool:
        """Whether the directory lies in memory (tmpfs), where a spill saves nothing. False where that is unknown."""
        try:
            mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
        except OSError:
            return False
        path, found = os.path.realpath(self.path), ("", "")
        for at, kind in mounts:
            at = at.replace("\\040", " ")
            if len(at) >= len(found[0]) and os.path.commonpath([at, path]) == at:
                found = at, kind
        return found[1] in _IN_MEMORY


class SpillFile:
    """A file and its mapping. `array` is uint8[size], which only `write` changes."""

    def __init__(self, directory: SpillDirectory, descriptor: int, size: int) -> None:
        self.directory, self.size, self._descriptor = directory, size, descriptor
        weakref.finalize(self, os.close, descriptor)
        os.ftruncate(descriptor, size)
        self._map = mmap(descriptor, size, access=ACCESS_READ)
        # Rows are read one by one, in no order: reading pages ahead would displace others.
        self._map.madvise(MADV_RANDOM)
        self.array: npt.NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)

    def grown(self, size: int) -> SpillFile:
        """Return the same file with more bytes; earlier mappings of it stay as they are."""
        try:
            return SpillFile(self.directory, os.dup(self._descriptor), size)
        except OSError as error:
            raise self.directory.full(size - self.size, error) from error

    def write(self, at: int, values: npt.NDArray[np.uint8]) -> None:
        """Write bytes from offset `at` on. Raises CapacityError if the disk does not take them."""
        self.directory.require_process()
        left = np.ascontiguousarray(values).reshape(-1).data
        try:
            while left:
                written = os.pwrite(self._descriptor, left, at)
                left, at = left[written:], at + written
        except OSError as error:
            raise self.directory.full(values.nbytes, error) from error

    def fetch(self, pages: npt.NDArray[np.int64]) -> None:
        """Ask the system to read pages, all at once: a disk reads many in little more time than one.

        pages   ascending numbers of pages of PAGE bytes
        """
        if not len(pages):
            return
        ends = np.flatnonzero(np.diff(pages) > 1)
        firsts = pages[np.append(0, ends + 1)]
        lasts = pages[np.append(ends, len(pages) - 1)]
        for first, last in zip((firsts * PAGE).tolist(), (lasts * PAGE).tolist(), strict=True):
            self._map.madvise(MADV_WILLNEED, first, min(last + PAGE, self.size) - first)
