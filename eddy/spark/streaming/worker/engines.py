"""The engines of a Python worker, which stay in its memory from micro-batch to micro-batch.

Spark reuses its Python workers, but a task may get any of them. So the work follows the engines: each task says which
engines its worker has, and the driver answers with the work (`driver/distribution.py`).

An engine has the token of the state it is in. It is used only for a task that wants exactly this token, so an engine
that is ahead, because the micro-batch failed elsewhere, or behind, because another worker took its place, is dropped.
An engine that fails is dropped as well: the log has everything.

An engine that moves to another worker of the same host goes through a file (`eddy.live.engine_file`).
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from eddy.live.engine_file import EngineFile
from eddy.queries.sources import Sources
from eddy.query.query import Query
from eddy.query.stream import Stream
from eddy.runtime import Runtime
from eddy.spark.partitioning.job import Job
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.worker.group_queries import GroupQueries
from eddy.spark.transports.inputs import Input

PATIENCE_S = 5.0
"""How long a worker waits for an engine that another worker of the host hands over, before it loads the log."""
_PAUSE_S = 0.001


@dataclass(frozen=True)
class Start:
    """One start of a join, as its workers know it.

    name      unique to the start
    job       the job, its locations, and the files of each stream if the workers read them; pickled once, because
              unpickling in each micro-batch would take milliseconds
    key       secret of the start
    one_host  whether all workers are on the driver's host
    """

    name: str
    job: bytes = field(repr=False)
    key: bytes = field(repr=False)
    one_host: bool


@dataclass(frozen=True)
class Holding:
    """The engines of a worker at the start of its task.

    host        name of its host
    partitions  the partitions that it joined last
    engines     key group -> token of the engine's state
    queries     keys of the versions of queries of a hub that the worker knows
    """

    host: str
    partitions: tuple[int, ...]
    engines: dict[int, str]
    queries: frozenset[str] = frozenset()


Engine = Runtime | GroupQueries
"""The engine of a key group, which joins its rows: one query, or the queries of a hub."""


@dataclass
class _Kept:
    """An engine; `file` is the file in whose memory it lies, None if it lies in the memory of the process."""

    token: str
    runtime: Engine
    file: EngineFile | None


class Engines:
    """The engines of one start in this process."""

    def __init__(self, start: Start) -> None:
        from pyspark.serializers import CloudPickleSerializer  # what Spark sends to its workers, Spark reads

        self.job: Job
        self.locations: Locations
        self.inputs: tuple[Input, ...]
        self.job, self.locations, self.inputs = CloudPickleSerializer().loads(start.job)
        self.one_host = start.one_host
        self.partitions: tuple[int, ...] = ()
        self.queries: dict[str, Query] = {}
        """Key of a version of a query of a hub -> the query."""
        self._key = start.key
        self._kept: dict[int, _Kept] = {}

    @cached_property
    def sources(self) -> Sources:
        """The streams of a hub."""
        return Sources([Stream(one.name, one.schema, time=one.time) for one in self.job.query.streams], 0)

    def holding(self) -> Holding:
        """Return the engines of the process."""
        engines = {group: one.token for group, one in self._kept.items()}
        return Holding(socket.gethostname(), self.partitions, engines, frozenset(self.queries))

    def learn(self, queries: Mapping[str, bytes], wanted: Iterable[str]) -> None:
        """Take queries that the driver has sent, and forget those that are not wanted any more."""
        if queries:
            from pyspark.serializers import CloudPickleSerializer

            self.queries.update({key: CloudPickleSerializer().loads(data) for key, data in queries.items()})
        self.queries = {key: self.queries[key] for key in wanted}

    def drop(self, groups: Iterable[int] | None = None) -> None:
        """Drop the engines of some key groups, or all."""
        for group in list(self._kept) if groups is None else groups:
            kept = self._kept.pop(group, None)
            if kept is not None and kept.file is not None:
                kept.file.__exit__(None, None, None)

    def hand_over(self, groups: Iterable[int]) -> None:
        """Put engines into files, from which another worker of the host takes them."""
        for group in groups:
            kept = self._kept.pop(group)
            assert isinstance(kept.runtime, Runtime)
            file = kept.file or self._file(group).__enter__()
            try:
                # Without a lock or room on the disk, the other worker loads the log.
                with contextlib.suppress(OSError):
                    if file.locked:
                        file.save(kept.runtime, self._file_token(kept.token))
            finally:
                file.__exit__(None, None, None)

    @contextlib.contextmanager
    def lent(self, group: int, before: str | None, after: str, handed: bool) -> Iterator[Lent]:
        """Lend the engine of a key group to the body, which leads it from state `before` to `after`.

        handed  another worker of the host hands it over

        `Lent.runtime` is None if the engine is not here; the body then sets a new one. The engine is kept if the body
        ends without an error.
        """
        if group in self._kept and self._kept[group].token != before:
            self.drop([group])
        if group not in self._kept and handed and before is not None:
            self._take_over(group, before)
        kept = self._kept.get(group)
        lent = Lent(None if kept is None else kept.runtime)
        try:
            yield lent
        except BaseException:
            self.drop([group])
            raise
        assert lent.runtime is not None
        self._kept[group] = _Kept(after, lent.runtime, None if kept is None else kept.file)

    def _take_over(self, group: int, token: str) -> None:
        """Take an engine from its file, if it comes."""
        until = time.monotonic() + PATIENCE_S
        while group not in self._kept and time.monotonic() < until:
            file = self._file(group).__enter__()
            runtime = None
            if file.locked:
                runtime = file.load(self._file_token(token), self.job.query, self.job.options.new_policy())
            if runtime is not None:
                self._kept[group] = _Kept(token, runtime, file)
            else:
                file.__exit__(None, None, None)
                time.sleep(_PAUSE_S)

    def _file(self, group: int) -> EngineFile:
        return EngineFile(self.locations.engine_file(group), self._key)

    def _file_token(self, token: str) -> bytes:
        """Return the token of a file: a digest of that of the state and of the engine options."""
        return hashlib.blake2b(f"{token} {self.job.options.text}".encode(), digest_size=16).digest()


@dataclass
class Lent:
    """An engine in use."""

    runtime: Engine | None


_engines: dict[str, Engines] = {}
"""The engines of the newest start in this process."""


def engines_of(start: Start) -> Engines:
    """Return the engines of a start in this process. Those of other starts are dropped: no task will want them."""
    found = _engines.get(start.name)
    if found is None:
        for other in _engines.values():
            other.drop()
        _engines.clear()
        found = _engines[start.name] = Engines(start)
    return found
