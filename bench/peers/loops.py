"""The hand-written loops: in numba, and in C if there is a compiler. Both write row ids and nothing else."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any

import numba
import numpy as np

from bench.limit_kernels import Tables, tables, w1_loop
from bench.loops import BITS
from bench.peers.loop_kernels import w1_range_loop
from bench.peers.turns import Peer
from bench.peers.works import ROWS, SPAN, STREAMS, Step, Work
from bench.workloads import WINDOW
from eddy import EddyError

SOURCE = Path(__file__).with_name("w1_loop.c")
LEAST_ROOM = 1 << 16
COMPILE_SECONDS = 60


class Loop:
    """Tables of a loop, and what its results mean."""

    def __init__(self, work: Work) -> None:
        streams = len(STREAMS)
        # About one result an arrival; the loops do not look whether there is room.
        room = max(4 * work.batch, LEAST_ROOM)
        self.kept: Tables = tables(streams, streams, streams, BITS, work.most_live, room)
        self.kept.ids.fill(0)
        self.times = np.zeros(self.kept.held.shape, np.int64)
        self.rows = work.windows == ROWS
        self.values = [np.flatnonzero(work.order == i) for i in range(streams)]

    def push(self, given: Any) -> int:
        order, keys, times = given
        if self.rows:
            return int(w1_loop(order, keys, WINDOW, BITS, self.kept))
        return int(w1_range_loop(order, keys, times, SPAN, BITS, self.kept, self.times))

    def count(self, results: int) -> int:
        return results

    def total(self, results: int) -> int:
        return sum(int(own[ids[:results]].sum()) for own, ids in zip(self.values, self.kept.ids, strict=True))


class _Tables(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("heads", "link", "held", "times", "nxt", "ids")),
        *((name, ctypes.c_int64) for name in ("mask", "ring", "room", "bits")),
    ]


class CLoop(Loop):
    """The loop in C over the same tables."""

    def __init__(self, work: Work, library: ctypes.CDLL) -> None:
        super().__init__(work)
        kept = self.kept
        ring = kept.link.shape[1]
        arrays = (kept.heads, kept.link, kept.held, self.times, kept.nxt, kept.ids)
        self.described = _Tables(*(array.ctypes.data for array in arrays), ring - 1, ring, kept.ids.shape[1], BITS)
        self.join = library.w1_rows if self.rows else library.w1_range
        self.join.restype = ctypes.c_int64
        self.width = WINDOW if self.rows else SPAN

    def push(self, given: Any) -> int:
        order, keys, times = given
        pointers = (ctypes.c_void_p(array.ctypes.data) for array in (order, keys, times))
        lengths = (ctypes.c_int64(len(order)), ctypes.c_int64(self.width))
        return int(self.join(*pointers, *lengths, ctypes.byref(self.described)))


def compiler() -> str | None:
    """Return the C compiler: `CC` of the environment, else `cc`; None if there is none."""
    return shutil.which(os.environ.get("CC", "cc"))


@cache
def compiled(cc: str) -> ctypes.CDLL:
    """Compile the loop for this processor and load it; the file is gone afterwards. Raises EddyError."""
    with tempfile.TemporaryDirectory(prefix="eddy-peers-") as folder:
        library = Path(folder) / "w1_loop.so"
        command = [cc, "-O3", "-march=native", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILE_SECONDS)
            return ctypes.CDLL(str(library))
        except subprocess.CalledProcessError as failed:
            raise EddyError(f"{cc} could not compile {SOURCE.name}: {failed.stderr.strip()}") from failed
        except (OSError, subprocess.TimeoutExpired) as failed:
            raise EddyError(f"{SOURCE.name} could not be compiled and loaded with {cc}: {failed}") from failed


def compiler_version(cc: str) -> str:
    """Return the first line of what the compiler says of itself."""
    said = subprocess.run([cc, "--version"], capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False)
    return said.stdout.partition("\n")[0] or cc


def _arrays(work: Work, step: Step) -> Any:
    return step.order, step.keys, step.times


NUMBA, C = "loop, numba", "loop, C"


def numba_peer() -> Peer:
    """Return the loop in numba."""
    return Peer(NUMBA, Loop, _arrays, numba.__version__)


def c_peer(cc: str) -> Peer:
    """Return the loop in C, compiled by this compiler. Raises EddyError."""
    return Peer(C, partial(CLoop, library=compiled(cc)), _arrays, compiler_version(cc))
