"""The loop for W1: in numba, and in C (w1_loop.c), compiled for the run if there is a compiler."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from time import thread_time

import numpy as np
import numpy.typing as npt

from bench.ways.loop_kernels import tables, w1_loop
from bench.workloads.sources import ArrivalChunk, Keys, Order
from eddy import EddyError, StateError

SOURCE = Path(__file__).with_name("w1_loop.c")
COMPILE_SECONDS = 60
STREAMS = 4


def compiler() -> str | None:
    """Return the C compiler: `CC` of the environment, else `cc`; None if neither is installed."""
    return shutil.which(os.environ.get("CC", "cc"))


@cache
def compiled(cc: str) -> ctypes.CDLL:
    """Compile the loop for this processor and load it; the file is removed. Raises EddyError."""
    with tempfile.TemporaryDirectory(prefix="eddy-bench-") as folder:
        library = Path(folder) / "w1_loop.so"
        command = [cc, "-O3", "-march=native", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILE_SECONDS)
            loaded = ctypes.CDLL(str(library))
        except subprocess.CalledProcessError as failed:
            raise EddyError(f"{cc} could not compile {SOURCE.name}: {failed.stderr.strip()}") from failed
        except (OSError, subprocess.TimeoutExpired) as failed:
            raise EddyError(f"{SOURCE.name} could not be compiled and loaded with {cc}: {failed}") from failed
    loaded.w1.restype = ctypes.c_int64
    return loaded


def compiler_version(cc: str) -> str:
    """Return the first line that the compiler prints for --version."""
    said = subprocess.run([cc, "--version"], capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False)
    return said.stdout.partition("\n")[0] or cc


class _Tables(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("heads", "link", "held", "times", "nxt", "ids", "pairs", "out")),
        *((name, ctypes.c_int64) for name in ("mask", "ring", "room", "bits")),
    ]


class Loop:
    """The loop in numba, over its own tables.

    width      rows of a window, or its length in ticks
    most_live  maximal number of rows in a window
    room       maximal number of results of a push, which the loop does not check
    """

    def __init__(self, width: int, bits: int, most_live: int, room: int) -> None:
        self.width, self.bits, self.room = width, bits, room
        self.kept = tables(STREAMS, STREAMS, STREAMS, bits, most_live, room)
        self.kept.ids.fill(0)
        self.times = np.zeros(self.kept.held.shape, np.int64)

    def push(
        self, order: Order, keys: Keys, times: Keys | None = None, values: npt.NDArray[np.int64] | None = None
    ) -> int:
        """Join arrivals and return the number of results, as row ids in `kept.ids`; without times by rows."""
        return int(w1_loop(order, keys, times, self.width, self.bits, self.kept, self.times))


class CLoop(Loop):
    """The loop in C."""

    def __init__(self, cc: str, width: int, bits: int, most_live: int, room: int) -> None:
        super().__init__(width, bits, most_live, room)
        kept, ring = self.kept, self.kept.link.shape[1]
        self.pairs, self.out = np.zeros((STREAMS, ring, 2), np.int64), np.full((STREAMS + 1, room), -1, np.int64)
        arrays = (kept.heads, kept.link, kept.held, self.times, kept.nxt, kept.ids, self.pairs, self.out)
        self._tables = _Tables(*(array.ctypes.data for array in arrays), ring - 1, ring, room, bits)
        self._join = compiled(cc).w1

    def push(
        self, order: Order, keys: Keys, times: Keys | None = None, values: npt.NDArray[np.int64] | None = None
    ) -> int:
        """Join arrivals and return the number of results, as row ids in `kept.ids`; with values, in `out`."""
        arrays = (order, keys, times, values)
        pointers = (None if array is None else ctypes.c_void_p(array.ctypes.data) for array in arrays)
        lengths = (ctypes.c_int64(len(order)), ctypes.c_int64(self.width))
        return int(self._join(*pointers, *lengths, ctypes.byref(self._tables)))


class PayloadLoop(CLoop):
    """The loop as a way to do W1 that also moves the payload: keys and values in, keys and all values out."""

    def take(self, chunk: ArrivalChunk, known: Sequence[int] | None) -> tuple[float, list[int]]:
        """Take the arrivals; return CPU seconds and the number of results of each push.

        Raises StateError if the buffer is too small for the results.
        """
        if known is None or max(known) > self.room:
            raise StateError(f"the loop has room for {self.room} results of a push, which are {known}")
        pushes = [(order, keys.reshape(-1).copy(), np.arange(len(order))) for order, keys in chunk.raw]
        counts = []
        start = thread_time()
        for order, keys, values in pushes:
            counts.append(self.push(order, keys, None, values))
        return thread_time() - start, counts
