"""Live engines kept between processes: one file each, mapped by whoever works on it.

A process takes the engine out (`wake`), pushes, and leaves it (`keep`) under a token that says which state it is in.
Another process of the same host finds it there: its arrays lie in the mapped file and are not read, written or copied;
the Python objects around them come back from a small pickle. How it lies in the file: docs/live.md.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pickle
import platform
import weakref
from functools import cache
from importlib import metadata
from pathlib import Path
from types import TracebackType

import numpy as np

import jisc
import stairs
from eddy.live_file import MAGIC, Block, Header, LiveFile
from eddy.live_pickle import Pickler, Unpickler
from eddy.query import Query
from eddy.query_text import query_text
from eddy.runtime import Runtime
from stairs.errors import InputError, StateError

BOOT = Path("/proc/sys/kernel/random/boot_id")
_LIBRARIES = ("numpy", "pyarrow", "sortedcontainers")
_woken: weakref.WeakSet[Runtime] = weakref.WeakSet()
"""Runtimes whose memory lies in a file."""
_queries: weakref.WeakKeyDictionary[Query, bytes] = weakref.WeakKeyDictionary()


def _digest(*parts: bytes, size: int = 16) -> bytes:
    found = hashlib.blake2b(digest_size=size)
    for part in parts:
        found.update(len(part).to_bytes(8, "little") + part)
    return found.digest()


@cache
def _library() -> bytes:
    """Return a digest of what reads and writes engines: all sources of ours, and the libraries under them."""
    parts = [f"{name} {metadata.version(name)}".encode() for name in _LIBRARIES]
    parts.append(f"python {platform.python_version()} {platform.machine()}".encode())
    for place in (str(stairs.__file__), str(jisc.__file__), __file__):
        root = Path(place).parent
        parts += [path.read_bytes() for path in sorted(root.rglob("*.py")) if "spark" not in path.parts]
    return _digest(*parts)


@cache
def _boot() -> bytes | None:
    """Return what tells this run of the machine from others, None if it cannot be told."""
    try:
        return _digest(BOOT.read_bytes())
    except OSError:
        return None


def _query_digest(query: Query) -> bytes:
    known = _queries.get(query)
    if known is None:
        known = _queries[query] = _digest(json.dumps(query_text(query), sort_keys=True).encode())
    return known


class Arena:
    """A file that holds one live engine, for one process at a time.

        with Arena(path) as arena:
            if arena.held:
                runtime = arena.wake(before, query) or rebuilt()
                runtime.push(…)
                arena.keep(runtime, after)

    Entering takes an exclusive lock on the file, without waiting; `held` tells whether that went well. If not, nothing
    else may be asked of it. After `keep`, and after leaving, the runtime is of no use any more: its memory belongs to
    whoever wakes it next. Only on systems with memory maps and `flock`. Not thread-safe.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.held = False
        """Whether this process has the lock."""
        self._file: LiveFile | None = None
        self._runtime: Runtime | None = None

    def __enter__(self) -> Arena:
        self.held = False
        while not self.held:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # A file that was removed meanwhile, or replaced, is locked for nobody.
                self.held = self.path.exists() and os.path.samestat(os.fstat(handle), os.stat(self.path))
            except BlockingIOError:
                os.close(handle)
                return self
            except FileNotFoundError:
                pass
            if self.held:
                self._file = LiveFile(handle)
            else:
                os.close(handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            # The mapping has the file open as well, for as long as an array lies in it.
            fcntl.flock(self._file.handle, fcntl.LOCK_UN)
            os.close(self._file.handle)
        self._file, self._runtime, self.held = None, None, False

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._locked().handle).st_size

    def _locked(self) -> LiveFile:
        if self._file is None:
            raise StateError(f"{self.path} is not locked by this process: enter it, and look at `held`")
        return self._file

    def wake(self, token: bytes, query: Query) -> Runtime | None:
        """Return the engine that was kept under exactly this token, None if it is not here.

        It is not here when another token was given, when it was not left by `keep` to the end, when it is of another
        query or was left by another version of the libraries, or before the machine was started the last time. From
        here on the file is dirty: without `keep` nobody finds an engine in it. Costs some hundred Python objects,
        whatever the engine holds. Raises StateError without the lock.
        """
        file = self._locked()
        file.close()
        self._runtime = None
        header = file.header()
        if header is None or header != header._replace(
            boot=_boot() or b"", library=_library(), query=_query_digest(query), token=_digest(token, size=32)
        ):
            file.clear()
            return None
        file.spoil()
        index = os.pread(file.handle, header.index_bytes, header.index_start)
        n_blocks, n_buffers = np.frombuffer(index, np.int64, 2).tolist()
        places = np.frombuffer(index, np.int64, 2 * n_blocks, 16).reshape(-1, 2).tolist()
        buffers = np.frombuffer(index, np.int64, 3 * n_buffers, 16 + 16 * n_blocks).reshape(-1, 3).tolist()
        memory = file.open(header, sorted(Block(*place) for place in places))
        starts = [start for start, _ in places]
        data = index[16 + 16 * n_blocks + 24 * n_buffers :]
        self._runtime = runtime = Unpickler(data, memory, starts, buffers, query).load()
        _woken.add(runtime)
        return runtime

    def keep(self, runtime: Runtime, token: bytes) -> None:
        """Leave the engine here under this token, to be found until the next `wake`.

        Memory that lies in the file already stays; what was made since is copied. The runtime is of no use afterwards.
        Raises InputError for a policy that cannot be pickled, StateError in a push, without the lock, and for a runtime
        that was woken elsewhere, OSError when the disk is full; then there is no engine in the file.
        """
        file = self._locked()
        if runtime is not self._runtime and runtime in _woken:
            raise StateError(
                f"{self.path}: the runtime was woken from another file, or before this one was entered; keep it where"
                " it was woken, before leaving"
            )
        file.spoil()
        pickler = Pickler(file)
        try:
            data = pickler.dump(runtime)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise _refused(runtime, error) or error from error
        kept = sorted(pickler.kept)
        sizes = [memory.nbytes for _, memory in pickler.fresh]
        index_bytes = 16 + 16 * pickler.count + 24 * len(pickler.buffers) + len(data)
        old, new, end = file.lay_out(kept, [*sizes, index_bytes])
        places = [(0, 0)] * pickler.count
        for k in kept:
            places[pickler.kept[k]] = old[k], file.blocks[k].size
        for (number, memory), at in zip(pickler.fresh, new, strict=False):
            file.write(memory, at)
            places[number] = at, memory.nbytes
        counts = np.array([pickler.count, len(pickler.buffers)], np.int64).tobytes()
        tables = np.array(places, np.int64).tobytes() + np.array(pickler.buffers, np.int64).tobytes()
        file.write(counts + tables + data, new[-1])
        boot = _boot()
        file.seal(
            Header(
                MAGIC,
                1,
                boot or b"",
                _library(),
                _query_digest(runtime.query),
                _digest(token, size=32),
                new[-1],
                index_bytes,
                end,
            )
        )
        runtime.dismantle()
        file.close()
        self._runtime = None


def _refused(runtime: Runtime, error: Exception) -> InputError | None:
    """Return what to say if it is the policy that cannot be written."""
    try:
        Pickler(LiveFile(-1)).dump(runtime.policy_itself)
    except (pickle.PicklingError, TypeError, AttributeError):
        return InputError(
            f"policy {runtime.policy!r} cannot be kept between processes: {error}; define its class at the top of a"
            " module that every worker can import, and let it hold no functions, files or locks"
        )
    return None
