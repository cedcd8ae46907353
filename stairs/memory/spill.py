"""Private files that hold what need not stay in memory: rows of windows that are larger than memory.

The system caches the pages of a file in memory that is free, and takes them back when others need it; so the newest
rows and those that are often read stay in memory, and the others cost a read of the disk. Rows are read through a
mapping and written with `pwrite`: a write of whole pages reads nothing first, and a full disk is an error of the call
and not the end of the process, as it would be for a write through the mapping.

A file has no name: it is gone when its owner is, also after a kill.
"""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
import weakref
from collections.abc import Iterable
from itertools import pairwise
from mmap import PAGESIZE
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stairs.errors import CapacityError, InputError

LEAST = 1 << 20
"""Bytes from which on rows go to a file: smaller windows stay in memory."""
PAGE = PAGESIZE
_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")
_PROT_READ, _MAP_SHARED, _RANDOM, _WILLNEED = 1, 1, 1, 3
"""Constants of `mmap` and `madvise`, which are the same on Linux and macOS."""
_COPIED = 1 << 22

_C = ctypes.CDLL(None, use_errno=True) if hasattr(os, "pwrite") else None
if _C is not None:
    _C.mmap.restype = ctypes.c_void_p
    _C.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    _C.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    _C.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def _mapped(descriptor: int, size: int) -> npt.NDArray[np.uint8]:
    """Return the bytes of a file for reading. Raises OSError.

    Python's own mapping keeps a descriptor for each, and texts of large windows lie in hundreds of files.
    """
    assert _C is not None
    address = _C.mmap(None, size, _PROT_READ, _MAP_SHARED, descriptor, 0)
    if address == ctypes.c_void_p(-1).value:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem))
    memory = (ctypes.c_uint8 * size).from_address(address)
    # Not at the exit of the process, when others may still read.
    weakref.finalize(memory, _C.munmap, address, size).atexit = False
    array = np.ctypeslib.as_array(memory)
    array.flags.writeable = False
    return array


def disk_reads() -> int:
    """Return how many pages this process has waited for so far."""
    # Not all systems have it; those that have not cannot spill.
    from resource import RUSAGE_SELF, getrusage

    return getrusage(RUSAGE_SELF).ru_majflt


class FullDiskError(CapacityError):
    """Error of a write that a disk does not take. To free memory does not help."""


class SpillDirectory:
    """A directory for private files.

    least   bytes from which on rows go to a file

    Raises InputError if no file can be made in it.
    """

    def __init__(self, path: str | os.PathLike[str], least: int = LEAST) -> None:
        if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str) or not os.fspath(path):
            raise InputError(f"spill is the path of a directory, not {path!r}")
        self.path, self.least = os.fspath(path), least
        if not hasattr(os, "pwrite"):
            raise InputError("spill: this system cannot write at a place of a file (pwrite); leave spill out")
        try:
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise InputError(
                f"spill={self.path!r}: no file can be made there ({why}); name an existing directory on a"
                " disk, in which this process may write"
            ) from error

    def __repr__(self) -> str:
        return f"SpillDirectory({self.path!r}, {self.least})"

    def file(self, size: int) -> SpillFile:
        """Return a new file of `size` bytes, all 0, which take no room on the disk until they are written."""
        try:
            with tempfile.TemporaryFile(dir=self.path, buffering=0) as made:
                return SpillFile(self, os.dup(made.fileno()), size)
        except OSError as error:
            raise self.full(size, error) from error

    def full(self, n_bytes: int, error: OSError) -> FullDiskError:
        """Return the error for bytes that the directory does not take."""
        room = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = (
            "free space there, or narrow the windows" if room else "check the directory and the limits of the process"
        )
        return FullDiskError(f"spill={self.path!r} does not take {n_bytes:,} more bytes ({error.strerror}): {remedy}")

    def kept(self, parts: Iterable[memoryview]) -> list[memoryview]:
        """Return copies of some parts, which come one after another, in a new file. Raises CapacityError."""
        file, ends = self.file(1), [0]
        for part in parts:
            file.write(ends[-1], np.frombuffer(part, np.uint8))
            ends.append(ends[-1] + part.nbytes)
        whole = file.grown(max(ends[-1], 1)).array.data
        return [whole[first:end] for first, end in pairwise(ends)]

    def copy_of(self, path: str | os.PathLike[str]) -> memoryview:
        """Return the bytes of a file, in a private copy that nobody else can change. Raises OSError, CapacityError."""
        with open(path, "rb") as source:
            size = os.fstat(source.fileno()).st_size
            copy, at = self.file(max(size, 1)), 0
            while piece := source.read(_COPIED):
                copy.write(at, np.frombuffer(piece, np.uint8))
                at += len(piece)
        return copy.grown(max(at, 1)).array.data[:at]

    @property
    def in_memory(self) -> bool:
        """Whether the directory lies in memory (tmpfs), where a spill saves nothing. False where that is unknown."""
        try:
            mounts = [line.split()[1:3] for line in os.fsdecode(Path("/proc/self/mounts").read_bytes()).splitlines()]
        except OSError:
            return False
        path, mount = os.path.realpath(self.path), ("", "")
        for at, kind in mounts:
            at = at.replace("\\040", " ")
            if len(at) >= len(mount[0]) and os.path.commonpath([at, path]) == at:
                mount = at, kind
        return mount[1] in _IN_MEMORY


class SpillFile:
    """A file and its mapping. `array` is uint8[size], which only `write` changes."""

    def __init__(self, directory: SpillDirectory, descriptor: int, size: int) -> None:
        self.directory, self.size, self._descriptor = directory, size, descriptor
        weakref.finalize(self, os.close, descriptor)
        os.ftruncate(descriptor, size)
        self.array = _mapped(descriptor, size)
        # Rows are read one by one, in no order: reading pages ahead would displace others.
        self._advise(_RANDOM, 0, size)

    def _advise(self, advice: int, first: int, size: int) -> None:
        assert _C is not None
        _C.madvise(self.array.ctypes.data + first, size, advice)

    def grown(self, size: int) -> SpillFile:
        """Return the same file with more bytes; earlier mappings of it stay as they are."""
        try:
            return SpillFile(self.directory, os.dup(self._descriptor), size)
        except OSError as error:
            raise self.directory.full(size - self.size, error) from error

    def write(self, at: int, values: npt.NDArray[np.uint8]) -> None:
        """Write bytes from offset `at` on. Raises CapacityError if the disk does not take them."""
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
            self._advise(_WILLNEED, first, min(last + PAGE, self.size) - first)
