"""Live engines kept between processes: one file each, mapped by whoever works on it.

A process takes the engine out (`load`), pushes, and leaves it (`save`) under a token that says which state it is in.
Another process of the same host finds it there: its arrays lie in the mapped file and are not copied; everything else
comes back from JSON. A seal under a secret key covers all of it. How it lies in the file: docs/internals/live.md.
"""

from __future__ import annotations

import fcntl
import hashlib
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
from eddy.live.file import ALIGNMENT, HEADER_BYTES, MAGIC, PLACE_BYTES, Block, Header, LiveFile
from eddy.live.parts import Mapped, Writer
from eddy.live.seal import Seal
from eddy.query.query import Query
from eddy.query.text import query_text
from eddy.routing.policies import POLICIES, Policy
from eddy.runtime import Runtime
from stairs.errors import EddyError, InputError, StateError
from stairs.memory.arena import Int64s
from stairs.storage.parts import Parts
from stairs.storage.private import check_directory, open_private

LOG = logging.getLogger(__name__)

WRONG_SEAL = "the seal of its {} does not fit: the file is damaged, or was written without the key"
BOOT = Path("/proc/sys/kernel/random/boot_id")
_LIBRARIES = ("numpy", "pyarrow", "sortedcontainers")
_loaded: weakref.WeakSet[Runtime] = weakref.WeakSet()
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


class EngineFile:
    """A file that holds one live engine, for one process at a time.

        with EngineFile(path, key) as live:
            if live.held:
                runtime = live.load(before, query) or rebuilt()
                runtime.push(…)
                live.save(runtime, after)

    key   secret bytes, the same in all processes that share the file, 16 or more (`secrets.token_bytes(32)`). Do not
          keep them where the file is.

    Entering the context tries to take an exclusive lock on the file, without waiting; `locked` says whether it
    succeeded. Without the lock every other call raises StateError. Entering raises InputError for a link, and if
    another user owns the directory or the file or may write to either. After `save`, and after the context is left,
    the runtime cannot be used: its memory belongs to the next process that loads it. Needs memory maps and `flock`.
    Not thread-safe.
    """

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
                # A file that was removed meanwhile, or replaced, is locked for nobody.
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
            # The mapping has the file open as well, for as long as an array lies in it.
            fcntl.flock(self._file.handle, fcntl.LOCK_UN)
            os.close(self._file.handle)
        self._file, self._runtime, self.locked = None, None, False

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._locked_file().handle).st_size

    def _locked_file(self) -> LiveFile:
        if self._file is None:
            raise StateError(f"{self.path} is not locked by this process: enter it, and look at `locked`")
        return self._file

    def load(self, token: bytes, query: Query, policy: str | Policy | None = None) -> Runtime | None:
        """Return the engine that was kept under exactly this token, None if it is not here.

        policy   the policy it was made with if that is an object of yours; it resumes what it had learnt, if it can
                 (`eddy.routing.policies`), and starts as it is handed in if not

        It is not here when another token or key was given, when it was not left by `save` to the end, when it is of
        another query or was left by another version of the libraries, or before the machine was started the last time;
        and, with a warning in the log, when its seal does not fit, because the file is damaged or was written without
        the key. From here on the file is dirty: without `save` nobody finds an engine in it. Reads every byte once;
        nothing is copied. Raises StateError without the lock, InputError for a policy of yours that is not handed in.
        """
        file = self._locked_file()
        file.close()
        self._runtime = None
        header = file.header()
        if header is None or header != header._replace(
            boot=_boot() or b"",
            library=_library(),
            query=_query_digest(query),
            token=_digest(token, size=32),
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
                f"the engine in {self.path} has policy {unknown!r}, which is yours: hand it to load(policy=…)"
            )
        self._runtime = runtime
        _loaded.add(runtime)
        return runtime

    def _read(self, file: LiveFile, header: Header) -> Parts:
        """Return the parts of the engine. Raises StateError if a seal does not fit."""
        index = file.index(header)
        if not compare_digest(self._seal.of_index(header.sealed, index), header.index_seal):
            raise StateError(WRONG_SEAL.format("header and index"))
        places = np.frombuffer(index, np.int64, 2 * header.n_blocks).reshape(-1, 2)
        _check_places(places, header.end)
        memory = file.mapped(header.end)
        if not compare_digest(self._block_seal(memory, header.index_seal, places), header.block_seal):
            raise StateError(WRONG_SEAL.format("memory"))
        try:
            values = json.loads(index[places.nbytes :])
        except ValueError as fault:
            raise StateError(f"the index cannot be read: {fault}") from fault
        blocks = [Block(*place) for place in places.tolist()]
        file.open(memory, sorted(blocks))
        return Parts(values, Mapped(memory, blocks), "the engine")

    def _block_seal(self, memory: mmap.mmap, index_seal: bytes, places: Int64s) -> bytes:
        whole = places.copy()
        whole[:, 1] = -(-whole[:, 1] // ALIGNMENT) * ALIGNMENT
        return self._seal.of_blocks(index_seal, np.frombuffer(memory, np.uint8), whole)

    def save(self, runtime: Runtime, token: bytes) -> None:
        """Leave the engine here under this token, to be found until the next `load`.

        Memory that lies in the file already stays; what was made since is copied, and every byte is read once for the
        seal. The runtime is of no use afterwards. Raises InputError for a policy whose `learnt()` is not JSON,
        StateError in a push, without the lock, and for a runtime that was loaded elsewhere, OSError when the disk is
        full; then there is no engine in the file.
        """
        file = self._locked_file()
        if runtime is not self._runtime and runtime in _loaded:
            raise StateError(
                f"{self.path}: the runtime was loaded from another file, or before this one was entered; keep it where"
                " it was loaded, before leaving"
            )
        file.spoil()
        writer = Writer(file)
        text = json.dumps(writer.written(runtime.to_parts()), separators=(",", ":")).encode()
        kept = sorted(writer.kept)
        sizes = [memory.nbytes for _, memory in writer.fresh]
        index_bytes = PLACE_BYTES * writer.count + len(text)
        old, new, end = file.lay_out(kept, [*sizes, index_bytes])
        places = np.zeros((writer.count, 2), np.int64)
        for k in kept:
            places[writer.kept[k]] = old[k], file.blocks[k].size
        for (number, memory), at in zip(writer.fresh, new, strict=False):
            file.write(memory, at)
            places[number] = at, memory.nbytes
        index = places.tobytes() + text
        file.write(index, new[-1])
        file.fill(end)
        header = Header(
            MAGIC,
            1,
            _boot() or b"",
            _library(),
            _query_digest(runtime.query),
            _digest(token, size=32),
            self._seal.name,
            new[-1],
            index_bytes,
            writer.count,
            end,
        )
        index_seal = self._seal.of_index(header.sealed, index)
        block_seal = self._block_seal(file.mapped(end), index_seal, places)
        file.seal(header._replace(index_seal=index_seal, block_seal=block_seal))
        runtime.dismantle()
        file.close()
        self._runtime = None


def _check_places(places: Int64s, end: int) -> None:
    """Raise StateError unless blocks lie in the file, from multiples of ALIGNMENT on, and do not overlap."""
    starts, sizes = places[np.argsort(places[:, 0])].T
    ends = starts + -(-sizes // ALIGNMENT) * ALIGNMENT
    inside = (starts >= HEADER_BYTES) & (starts % ALIGNMENT == 0) & (sizes > 0) & (sizes <= end) & (ends <= end)
    if not inside.all() or (starts[1:] < ends[:-1]).any():
        raise StateError(f"blocks lie at {places.tolist()} in a file of {end} bytes")
