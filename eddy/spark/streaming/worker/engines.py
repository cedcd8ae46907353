"""The engines of a Python worker, which stay in its memory from micro-batch to micro-batch.

Spark reuses its Python workers, but a task may get any of them. So the driver distributes the work by the engines: each
task reports the engines of its worker, and the driver answers with the work (`driver/distribution.py`).

An engine has the token of its state. A worker uses an engine only for a task that requires exactly this token, and
drops any other engine. An engine may be newer than the state, if the micro-batch failed in another task, or older, if
another worker has joined the group since. A worker also drops an engine that fails, because the log has all rows.

An engine that moves to another worker of the same host is written to a file (`eddy.live.engine_file`). An engine is
also written to a file if the worker spills it, because the worker's engines take more than its share of the memory of
the host (`eviction.py`). A group with rows is joined even if its engine does not fit into the share. So between two
groups the engines take at most the share, and while a group is joined, its engine may take more.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.live.engine_file import EngineFile
from eddy.queries.sources import Sources
from eddy.query.query import Query
from eddy.runtime import Runtime
from eddy.spark.partitioning.job import Job
from eddy.spark.streaming.state.locations import Locations
from eddy.spark.streaming.worker.eviction import Uses, evictions
from eddy.spark.streaming.worker.kept_engine import Engine, KeptEngine
from eddy.spark.streaming.worker.node import WorkerNode
from eddy.spark.streaming.worker.operator_files import HeldPart, QueryAbove
from eddy.spark.streaming.worker.tasks import LIVE, MAPPED, MemoryReport, NodeCopy, PolicyTask
from eddy.spark.transports.inputs import StreamInput
from eddy.streams.keyed import KeyedInput
from eddy.streams.stream import Stream

PATIENCE_S = 5.0
"""Longest wait of a worker for an engine from another worker of the host. After this time it loads the log."""
_PAUSE_S = 0.001


@dataclass(frozen=True)
class JoinStart:
    """The data of one start of a join that its workers need.

    name      unique to the start
    job       the job, its locations, the files of each stream if the workers read them, and the query with aggregates
              or `top` above the join; pickled once, because unpickling in each micro-batch would take milliseconds
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
    partitions  the partitions that the worker joined last
    engines     key group -> token of the engine's state
    queries     keys of the versions of queries of a hub that the worker knows
    nbytes      bytes of the engines, in memory or spilled
    copies      copy of a window on a node of a join in hops -> its token
    policy      number of the policy that replaced that of the options, 0 = none has
    parts       key of a query -> the parts of its operator, with the tokens of their states
    scratch     directory of the files in which the worker passes engines on
    """

    host: str
    partitions: tuple[int, ...]
    engines: dict[int, str]
    queries: frozenset[str] = frozenset()
    nbytes: int = 0
    copies: Mapping[NodeCopy, str] = field(default_factory=dict)
    policy: int = 0
    parts: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    scratch: str = ""


class Engines:
    """The engines of one start in this process."""

    def __init__(self, start: JoinStart) -> None:
        from pyspark.serializers import CloudPickleSerializer  # Spark both writes and reads these bytes

        self.job: Job
        self.locations: Locations
        self.inputs: tuple[StreamInput, ...]
        self.job, self.locations, self.inputs, grouped = CloudPickleSerializer().loads(start.job)
        self.one_host = start.one_host
        self.partitions: tuple[int, ...] = ()
        self.queries: dict[str, Query] = {}
        """Key of a version of a query of a hub -> the join below the query."""
        self._above: dict[str, QueryAbove | None] = {"": None if grouped is None else QueryAbove(grouped)}
        """Key of a query -> the query, if it has aggregates or `top`."""
        self.nodes: dict[int, WorkerNode] = {}
        """The nodes of a join in hops."""
        self.parts: dict[str, dict[int, HeldPart]] = {}
        """By key of a query the parts of the operator above its join."""
        self._key = start.key
        self._policy = 0
        """The number of the policy that replaced that of the options, 0 = none has."""
        self._kept: dict[int, KeptEngine] = {}
        self._uses = Uses()
        self._batch = 0
        self._share: int | None = None
        self._due: set[int] = set()
        self._report = MemoryReport(socket.gethostname())

    @cached_property
    def sources(self) -> Sources:
        """The streams and tables of a hub."""
        inputs = [
            stream if isinstance(stream, KeyedInput) else Stream(stream.name, stream.schema, time=stream.time)
            for stream in self.job.query.streams
        ]
        return Sources(inputs, alone=True)

    def event_times(self, rows: pa.RecordBatch, stream: str) -> npt.NDArray[np.int64]:
        """Return the event times of rows of a stream of a hub in ticks."""
        times = self.job.positions(rows, self.job.query.index(stream))
        assert times is not None  # each stream of a hub has a time column
        return times

    def holding(self) -> Holding:
        """Return the engines of the process."""
        engines = {group: engine.token for group, engine in self._kept.items()}
        nbytes = sum(engine.nbytes for engine in self._kept.values())
        copies = {
            (number, *copy): held.token for number, node in self.nodes.items() for copy, held in node.copies.items()
        }
        parts = {key: {number: part.token for number, part in held.items()} for key, held in self.parts.items()}
        return Holding(
            socket.gethostname(),
            self.partitions,
            engines,
            frozenset(self.queries),
            nbytes,
            copies,
            self._policy,
            parts,
            str(self.locations.engines),
        )

    def above(self, key: str) -> QueryAbove:
        """Return the query with aggregates or `top` above a join."""
        above = self._above[key]
        assert above is not None
        return above

    def learn(self, queries: Mapping[str, bytes], wanted: Iterable[str]) -> None:
        """Take queries that the driver has sent, and drop the queries that are no longer needed."""
        if queries:
            from pyspark.serializers import CloudPickleSerializer

            for key, data in queries.items():
                self.queries[key], above = CloudPickleSerializer().loads(data)
                self._above[key] = None if above is None else QueryAbove(above)
        keys = frozenset(wanted)
        self.queries = {key: self.queries[key] for key in keys}
        self._above = {key: self._above[key] for key in {"", *keys}}
        self.parts = {key: held for key, held in self.parts.items() if key in self._above}

    def follow_policy(self, asked: PolicyTask | None) -> None:
        """Take a policy that the driver has sent: live engines follow copies, spilled ones are loaded from the log."""
        if asked is None:
            return
        from pyspark.serializers import CloudPickleSerializer

        options = replace(self.job.options, policy=CloudPickleSerializer().loads(asked.data))
        self.job, self._policy = replace(self.job, options=options), asked.number
        for group, kept in list(self._kept.items()):
            if kept.live and isinstance(kept.engine, Runtime):
                kept.engine.set_policy(options.new_policy())
            else:
                self.drop([group])

    @property
    def _name(self) -> str:
        """The part of the tokens of files that tells engines of other options, and of an earlier policy, apart."""
        return f"{self.job.options.text}, policy number {self._policy}"

    def drop(self, groups: Iterable[int] | None = None) -> None:
        """Drop the engines of some key groups, or all."""
        for group in list(self._kept) if groups is None else groups:
            kept = self._kept.pop(group, None)
            if kept is not None:
                kept.delete()

    def hand_over(self, groups: Iterable[int]) -> None:
        """Write engines to files, from which another worker of the host takes them."""
        for group in groups:
            kept = self._kept.pop(group)
            if kept.live:
                # Without a lock or space on the disk, the other worker loads the log.
                kept.spill(partial(self._file, group), self._name)

    def close(self) -> None:
        """Release all engines; a later start of the join may use the same files."""
        for kept in self._kept.values():
            kept.close()
        self._kept = {}

    # The bound on memory

    def begin(self, batch: int, share: int | None, groups: Iterable[int]) -> None:
        """Begin a micro-batch: evict engines until the rest fits into the share, and reset the figures.

        share   bytes for the engines of this worker, None = no bound
        groups  the key groups to be joined
        """
        self._batch, self._share, self._due = batch, share, set(groups)
        self._report = MemoryReport(socket.gethostname(), share)
        self._fit()
        self._report.peak = self.nbytes

    def report(self) -> MemoryReport:
        """Return the figures of the micro-batch."""
        spilled = [engine for engine in self._kept.values() if not engine.live]
        self._report.nbytes, self._report.live = self.nbytes, len(self._kept) - len(spilled)
        self._report.nbytes += sum(node.nbytes for node in self.nodes.values())
        self._report.peak = max(self._report.peak, self._report.nbytes)
        self._report.spilled_bytes, self._report.spilled = sum(engine.file_bytes for engine in spilled), len(spilled)
        return self._report

    @property
    def nbytes(self) -> int:
        """Bytes of the live engines."""
        return sum(engine.nbytes for engine in self._kept.values() if engine.live)

    def is_live(self, group: int) -> bool:
        """Return whether the engine of a key group is in memory."""
        return group in self._kept and self._kept[group].live

    def _fit(self, more: int = 0) -> None:
        """Evict until the live engines, and `more` bytes, fit into the share."""
        if self._share is None or self.nbytes + more <= self._share:
            return
        rates = {group: self._uses.rate(group, self._batch) for group in self._kept}
        for group, trims in evictions(self._kept, rates, self._due):
            kept = self._kept[group]
            if trims:
                assert kept.engine is not None
                kept.engine.trim()
                kept.count()
                self._report.trims += 1
            elif kept.spill(partial(self._file, group), self._name):
                self._report.spills += 1
            else:
                self.drop([group])
                self._report.drops += 1
            if self.nbytes + more <= self._share:
                return

    # An engine in use

    @contextlib.contextmanager
    def loan(self, group: int, before: str | None, after: str, handed: bool) -> Iterator[Loan]:
        """Lend the engine of a key group to the body, which changes its state from `before` to `after`.

        handed  whether another worker of the host passes the engine on

        `Loan.runtime` is None if this worker does not have the engine; the body then sets a new one. The engine is kept
        if the body ends without an error.
        """
        self._due.discard(group)
        kept = self._kept.get(group)
        if kept is not None and kept.token != before:
            self.drop([group])
            kept = None
        source = LIVE
        if kept is not None and not kept.live:
            source = MAPPED
            kept = kept if self._map(group, kept) else None
        elif kept is None and before is not None:
            source = LIVE if handed else MAPPED
            kept = self._taken_over(group, before, PATIENCE_S if handed else 0.0)
        loan = Loan(None if kept is None else kept.engine, source)
        try:
            yield loan
        except BaseException:
            self.drop([group])
            raise
        assert loan.runtime is not None
        if kept is None:
            kept = KeptEngine(after, loan.runtime)
        kept.token = after
        kept.count()
        self._kept[group] = kept
        self._uses.note(group, self._batch)
        self._report.peak = max(self._report.peak, self.nbytes)
        self._fit()

    def _map(self, group: int, kept: KeptEngine) -> bool:
        """Map a spilled engine; return False, and drop the engine, if its files do not contain it."""
        self._fit(kept.nbytes)
        if kept.map(self.job.query, self.job.options.new_policy, self._name):
            self._kept[group] = kept
            return True
        self._kept.pop(group, None)
        return False

    def _taken_over(self, group: int, token: str, patience: float) -> KeptEngine | None:
        """Return an engine from a file of another worker, if the file exists or appears within `patience` seconds."""
        until = time.monotonic() + patience
        while True:
            if patience or self.locations.has_engine_file(group):
                kept = KeptEngine.spilled(token, self._file(group))
                if self._map(group, kept):
                    return kept
            if time.monotonic() >= until:
                return None
            time.sleep(_PAUSE_S)

    def _file(self, group: int, part: int = 0) -> EngineFile:
        return EngineFile(self.locations.engine_file(group, part), self._key)


@dataclass
class Loan:
    """An engine in use, and its source."""

    runtime: Engine | None
    source: str = LIVE


_engines: dict[str, Engines] = {}
"""The engines of the newest start in this process."""


def engines_of(start: JoinStart) -> Engines:
    """Return the engines of a start in this process. Drop those of other starts, which no task will need."""
    engines = _engines.get(start.name)
    if engines is None:
        for other in _engines.values():
            other.close()
        _engines.clear()
        engines = _engines[start.name] = Engines(start)
        engines.locations.delete_old_engines()
    return engines
