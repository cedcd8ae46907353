"""The engine of a key group in a worker: live in its memory, or spilled to mapped files of the host.

A spilled engine is complete: windows, payload, plan, figures (`eddy.live.engine_file`). The worker maps the engine
again without a copy when its group has rows, and the kernel may write its pages to the disk and drop them at any time.
The engine of a hub has a file for each of its joins; its other parts are small and stay in the process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from contextlib import suppress

from eddy.live.engine_file import EngineFile
from eddy.query.query import Query
from eddy.routing.policies import Policy
from eddy.runtime import Runtime
from eddy.spark.streaming.worker.group_queries import GroupQueries

Engine = Runtime | GroupQueries
"""The engine of a key group, which joins its rows: one query, or the queries of a hub."""
ALONE = None
"""The owner of the one file of an engine that is a `Runtime`."""


class KeptEngine:
    """An engine with the token of the state that it is in.

    engine  None if the whole engine is in files
    files   owner of a runtime -> its file; the worker has locked the files of a live engine, which are its memory
    live    whether the engine can be used
    nbytes  bytes of the engine, in memory or when it was spilled;  spare  maximal bytes that `Runtime.trim` frees
    """

    def __init__(self, token: str, engine: Engine | None) -> None:
        self.token = token
        self.engine = engine
        self.files: dict[Hashable, EngineFile] = {}
        self.live = engine is not None
        self.nbytes = self.spare = 0
        self.count()

    @classmethod
    def spilled(cls, token: str, file: EngineFile) -> KeptEngine:
        """Return the engine in a file that another worker wrote."""
        new = cls(token, None)
        new.files[ALONE] = file
        with suppress(FileNotFoundError):
            new.nbytes = file.path.stat().st_size
        return new

    def count(self) -> None:
        """Count the bytes of a live engine. O(arrays)."""
        if self.engine is not None:
            self.nbytes, self.spare = self.engine.nbytes, self.engine.spare_bytes

    @property
    def parts(self) -> int:
        """The number of runtimes of the engine."""
        return len(self.engine.runtimes) if isinstance(self.engine, GroupQueries) else 1

    def spill(self, new_file: Callable[[int], EngineFile], name: str) -> bool:
        """Write the engine to files. If the disk is full or a file is in use, the engine is lost; return False.

        new_file  makes the file of a number
        name      secret part of the tokens of the files
        """
        engine = self.engine
        assert engine is not None
        runtimes = engine.runtimes if isinstance(engine, GroupQueries) else {ALONE: engine}
        for gone in [key for key in self.files if key not in runtimes]:
            _delete(self.files.pop(gone))
        self.live, done = False, False
        with suppress(OSError):
            for family, runtime in runtimes.items():
                if family not in self.files:
                    used = {file.path for file in self.files.values()}
                    numbered = (new_file(number) for number in range(len(used) + 1))
                    self.files[family] = next(file for file in numbered if file.path not in used).__enter__()
                if not self.files[family].locked:
                    break
                self.files[family].save(runtime, _token(self.token, name))
            else:
                done = True
        self.close()
        if not done:
            return False
        if isinstance(engine, GroupQueries):
            engine.release()
        else:
            self.engine = None
        return True

    def map(self, query: Query, policy: Callable[[], str | Policy | None], name: str) -> bool:
        """Map a spilled engine. If a file does not contain it, the engine is lost; return False.

        query   query of an engine that is a `Runtime`
        policy  returns the policy of another runtime
        """
        runtimes: dict[Hashable, Runtime] = {}
        done = False
        try:
            for family, file in self.files.items():
                family_query = query if family is ALONE else family.query  # type: ignore[attr-defined]
                if not file.__enter__().locked:
                    return False
                runtime = file.load(_token(self.token, name), family_query, policy())
                if runtime is None:
                    return False
                runtimes[family] = runtime
            done = True
        finally:
            if not done:
                self.close()
        if isinstance(self.engine, GroupQueries):
            self.engine.resume(runtimes)
        else:
            self.engine = runtimes[ALONE]
        self.live = True
        self.count()
        return True

    def close(self) -> None:
        """Release the files; the engine must not be used afterwards."""
        for file in self.files.values():
            file.__exit__(None, None, None)

    def delete(self) -> None:
        """Delete the files."""
        for file in self.files.values():
            _delete(file)
        self.files = {}

    @property
    def file_bytes(self) -> int:
        """Bytes of the engine's files."""
        total = 0
        for file in self.files.values():
            with suppress(FileNotFoundError):
                total += file.path.stat().st_size
        return total


def _delete(file: EngineFile) -> None:
    file.__exit__(None, None, None)
    file.path.unlink(missing_ok=True)


def _token(token: str, name: str) -> bytes:
    """Return the token of a file: a digest of the token of the state and of the engine options."""
    return hashlib.blake2b(f"{token} {name}".encode(), digest_size=16).digest()
