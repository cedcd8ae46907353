"""Live engines: runtimes that processes of one host hand to each other, each in a file that they map in turn.

A process loads the engine, pushes, and saves it under a token that names the state it is in. The next process that
loads this token maps the file: the arrays of the engine lie in it and are not copied, everything else is read from
JSON. A seal under a secret key covers the whole file. Layout of the file: docs/internals/live.md.
"""

from __future__ import annotations

import fcntl
import json
import logging
import mmap
import os
import platform
import weakref
from functools import cache
from hmac import compare_digest
from importlib import metadata
from pathlib import Path
from types import TracebackType

import numpy as np

import jisc
import stairs
from eddy.live.file import HEADER_BYTES, MAGIC, FileHeader, LiveFile
from eddy.query.query import Query
from eddy.query.text import query_text
from eddy.routing.policies import POLICIES, Policy
from eddy.runtime import Runtime
from eddy.storage.codec import ALIGNMENT, Blocks, Encoded, places_in, values_in
from eddy.storage.seal import Seal, digest
from eddy.uncopied import Uncopied
from stairs.errors import EddyError, InputError, StateError
from stairs.memory.arena import Int64s
from stairs.storage.json_form import FormError
from stairs.storage.parts import Parts
from stairs.storage.private import check_directory, open_private

LOG = logging.getLogger(__name__)

WRONG_SEAL = "the seal of its {} is wrong: the file is damaged, or was written without the key"
BOOT = Path("/proc/sys/kernel/random/boot_id")
_LIBRARIES = ("numpy", "pyarrow", "sortedcontainers")
_loaded: weakref.WeakSet[Runtime] = weakref.WeakSet()
"""Runtimes whose memory lies in a mapped file."""
_queries: weakref.WeakKeyDictionary[Query, bytes] = weakref.WeakKeyDictionary()


def _sources() -> list[Path]:
    """Return the files whose code makes or changes the state of an engine: all of these packages but `eddy.spark`."""
    roots = [Path(str(stairs.__file__)).parent, Path(str(jisc.__file__)).parent, Path(__file__).parents[1]]
    return [
        path for root in roots for path in sorted(root.rglob("*.py")) if "spark" not in path.relative_to(root).parts
    ]


@cache
def _library() -> bytes:
    """Return a digest of the code that reads and writes engines: the sources and the versions of the libraries."""
    parts = [f"{name} {metadata.version(name)}".encode() for name in _LIBRARIES]
    parts.append(f"python {platform.python_version()} {platform.machine()}".encode())
    parts += [path.read_bytes() for path in _sources()]
    return digest(*(len(part).to_bytes(8, "little") + part for part in parts))


@cache
def _boot() -> bytes | None:
    """Return a digest that identifies the current boot of the machine, None if the system does not identify it."""
    try:
        return digest(BOOT.read_bytes())
    except OSError:
        return None


def _query_digest(query: Query) -> bytes:
    known = _queries.get(query)
    if known is None:
        known = _queries[query] = digest(json.dumps(query_text(query), sort_keys=True).encode())
    return known


class EngineFile(Uncopied):
    """The file of one live engine, used by one process at a time.

        with EngineFile(path, key) as live:
            if live.locked:
                runtime = live.load(before, query) or rebuilt()
                runtime.push(…)
                live.save(runtime, after)

    key   16 or more secret bytes, the same in all processes that share the file (`secrets.token_bytes(32)`). Do not
          store them next to the file.

    Entering the context tries to take an exclusive lock on the file, without waiting; `locked` says whether it
    succeeded. Without the lock every other call raises StateError. Entering raises InputError for a link, and if
    another user owns the directory or the file or may write to either. After `save`, and after the context is left,
    the runtime cannot be used: its memory belongs to the next process that loads it. Needs memory maps and `flock`.
    Not thread-safe.
    """

    _no_copy = "an EngineFile: it has an open file; open it again"

    def __init__(self, path: Path, key: bytes) -> None:
        self.path = Path(path).absolute()
        self._seal = Seal(key)
        self.locked = False
        """Whether this process has the lock."""
        self._file: LiveFile | None = None
        self._runtime: Runtime | None = None

    def __enter__(self) -> EngineFile:
        self.locked = False
        check_directory(self.path.parent)
        while not self.locked:
            handle = open_private(self.path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The lock is void if another process has removed or replaced the file meanwhile.
                self.locked = self.path.exists() and os.path.samestat(os.fstat(handle), os.lstat(self.path))
            except BlockingIOError:
                os.close(handle)
                return self
            except FileNotFoundError:
                pass
            if self.locked:
                self._file = LiveFile(handle)
            else:
                os.close(handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            # Closing alone would not release the lock: the mapping keeps the file open as long as an array lies in it.
            fcntl.flock(self._file.handle, fcntl.LOCK_UN)
            os.close(self._file.handle)
        self._file, self._runtime, self.locked = None, None, False

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._locked_file().handle).st_size

    def _locked_file(self) -> LiveFile:
        if self._file is None:
            raise StateError(f"{self.path} is not locked by this process: enter the context, and check `locked`")
        return self._file

    def load(self, token: bytes, query: Query, policy: str | Policy | None = None) -> Runtime | None:
        """Return the engine that was saved under this token, None if the file has no such engine. O(bytes), no copy.

        policy   the policy of the engine, if it is an object of your own class. The engine passes it what it had
                 learnt, if the class supports that (`eddy.routing.policies`)

        The result is None if the engine was saved under another token or key, for another query, by another version of
        the libraries or before the last boot, or if `save` did not complete. It is None, with a warning in the log, if
        a seal is wrong because the file is damaged or was written without the key. The call marks the file as dirty:
        no process finds an engine in it until the next `save`. Raises StateError without the lock, InputError if the
        policy is of your own class and `policy` is missing.
        """
        file = self._locked_file()
        file.close()
        self._runtime = None
        header = file.header()
        if header is None or header != header._replace(
            boot=_boot() or b"",
            library=_library(),
            query=_query_digest(query),
            token=digest(token, size=32),
            key=self._seal.name,
        ):
            file.clear()
            return None
        unknown = None
        try:
            parts = self._read(file, header)
            if policy is None and parts.text("policy") not in POLICIES:
                unknown = parts.text("policy")
            else:
                file.spoil()
                runtime = Runtime.from_parts(parts, query, policy)
        except EddyError as fault:
            LOG.warning("%s: no engine is loaded: %s", self.path, fault)
            file.close()
            file.clear()
            return None
        if unknown is not None:
            file.close()
            raise InputError(
                f"the engine in {self.path} has policy {unknown!r}, which is not built in: pass it to load(policy=…)"
            )
        self._runtime = runtime
        _loaded.add(runtime)
        return runtime

    def _read(self, file: LiveFile, header: FileHeader) -> Parts:
        """Return the parts of the engine. Raises StateError if a seal is wrong."""
        index = file.index(header)
        if not compare_digest(self._seal.of_index(header.sealed, index), header.index_seal):
            raise StateError(WRONG_SEAL.format("header and index"))
        try:
            places = places_in(index, header.n_blocks, HEADER_BYTES, header.end)
            memory = file.mapped(header.end)
            if not compare_digest(self._block_seal(memory, header.index_seal, places), header.block_seal):
                raise StateError(WRONG_SEAL.format("memory"))
            values = values_in(index, header.n_blocks, infinite=True)
        except FormError as fault:
            raise StateError(f"the index cannot be read: {fault}") from fault
        arrays = Blocks(memoryview(memory), places)
        file.open(memory, sorted(arrays.blocks))
        return Parts(values, arrays, "the engine")

    def _block_seal(self, memory: mmap.mmap, index_seal: bytes, places: Int64s) -> bytes:
        whole = places.copy()
        whole[:, 1] += -whole[:, 1] % ALIGNMENT
        return self._seal.of_blocks(index_seal, np.frombuffer(memory, np.uint8), whole)

    def save(self, runtime: Runtime, token: bytes) -> None:
        """Save the engine under this token, until the next `load`. O(bytes).

        Arrays that already lie in the file stay in place; arrays made since are copied; every byte is read once for the
        seal. The runtime cannot be used afterwards. Raises InputError for a policy whose `learnt()` is not JSON,
        StateError during a push, without the lock, and for a runtime that was loaded from another file, OSError if the
        disk is full. After an error the file has no engine.
        """
        file = self._locked_file()
        if runtime is not self._runtime and runtime in _loaded:
            raise StateError(
                f"{self.path}: the runtime was loaded from another file, or before this context was entered; save it in"
                " the context in which it was loaded"
            )
        file.spoil()
        encoded = Encoded(runtime.to_parts(), file.place_of)
        reused = sorted(encoded.reused)
        sizes = [memory.nbytes for _, memory in encoded.fresh]
        places = np.zeros((encoded.count, 2), np.int64)
        index_bytes = places.nbytes + len(encoded.text)
        old, new, end = file.lay_out(reused, [*sizes, index_bytes])
        for k in reused:
            places[encoded.reused[k]] = old[k], file.blocks[k].size
        for (number, memory), at in zip(encoded.fresh, new, strict=False):
            file.write(memory, at)
            places[number] = at, memory.nbytes
        index = encoded.index(places)
        file.write(index, new[-1])
        file.fill(end)
        header = FileHeader(
            MAGIC,
            1,
            _boot() or b"",
            _library(),
            _query_digest(runtime.query),
            digest(token, size=32),
            self._seal.name,
            new[-1],
            index_bytes,
            encoded.count,
            end,
        )
        index_seal = self._seal.of_index(header.sealed, index)
        block_seal = self._block_seal(file.mapped(end), index_seal, places)
        file.seal(header._replace(index_seal=index_seal, block_seal=block_seal))
        runtime.dismantle()
        file.close()
        self._runtime = None
