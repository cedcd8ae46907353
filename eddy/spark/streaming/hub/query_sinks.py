"""The sinks of all queries of a hub as one sink: a result file "pairs/part-….parquet" belongs to the query "pairs"."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from eddy.spark.errors import SparkJoinError
from eddy.spark.streaming.sinks import Sink
from eddy.storage.durable import WRITERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


class QuerySinks(Sink):
    """The sinks by query. Each sink has its own staging directory, owner mark and result directory."""

    writes = False  # as one sink; each version of a query has its own staging directory

    def __init__(self) -> None:
        self._sinks: dict[str, tuple[Sink, pa.Schema]] = {}
        self._ready: list[tuple[Sink, str, pa.Schema]] = []
        """The sinks that are prepared, each for the last query and schema: a sink has one schema."""
        self._later: list[tuple[str, Sink, pa.Schema]] = []
        """Sinks of starts that wait for the end of an earlier query of their name."""
        self._place: tuple[str, Path] | None = None
        self._lock = threading.Lock()
        self.serving: frozenset[str] = frozenset()
        """The queries of the newest micro-batch, which are published even without results."""
        self.dropped: set[str] = set()
        """The queries whose results are no longer needed."""
        self._at_work: str | None = None
        """The query whose sink is at work, or has failed."""

    def make_ready(self, name: str, sink: Sink, schema: pa.Schema, waiting: Iterable[tuple[str, Sink]]) -> None:
        """Prepare a sink if the sinks of the other queries are prepared. Raises what `Sink.prepare` raises.

        waiting   the queries that are to start, and their sinks

        A sink that serves an earlier query of the name now is prepared when that query has ended.
        """
        with self._lock:
            used = [*((other, given) for other, (given, _) in self._sinks.items()), *waiting]
            others = [other for other, given in used if given is sink and other != name]
            if others:
                raise SparkJoinError(f"query {name!r}: its sink is that of query {others[0]!r}; give each a sink")
            if self._place is None:
                if name in self._sinks:
                    self._later.append((name, sink, schema))
            elif name not in self._sinks or self._sinks[name][0] is not sink:
                self._prepare(name, sink, schema)

    def put(self, name: str, sink: Sink, schema: pa.Schema) -> None:
        """Set the sink of a query that starts, in place of the sink of an earlier query of this name."""
        with self._lock:
            if self._place is not None:
                self._prepare(name, sink, schema)
            self._sinks[name] = sink, schema

    @property
    def _title(self) -> str:
        name = self._at_work
        return super()._title if name is None else f"{self._sinks[name][0]._title} of query {name!r}"

    def _prepare(self, name: str, sink: Sink, schema: pa.Schema) -> None:
        assert self._place is not None
        if any(sink is ready and (name, schema) == (of, its) for ready, of, its in self._ready):
            return
        job, scratch = self._place
        directory = scratch / "queries" / name
        directory.mkdir(parents=True, exist_ok=True)
        sink.prepare(schema=schema, job=f"{job}-{name}", scratch=directory)
        self._ready = [entry for entry in self._ready if entry[0] is not sink] + [(sink, name, schema)]

    def prepare(self, *, schema: pa.Schema, job: str, scratch: Path) -> None:
        with self._lock:
            self._place, self._ready = (job, scratch), []
            for name, (sink, query_schema) in self._sinks.items():
                self._prepare(name, sink, query_schema)
            for name, sink, later_schema in self._later:
                if all(ready is not sink for ready, _, _ in self._ready):
                    self._prepare(name, sink, later_schema)

    def of(self, name: str) -> Sink:
        """Return the sink of a query. Raises SparkJoinError if the query has no sink."""
        with self._lock:
            if name not in self._sinks:
                raise SparkJoinError(
                    f"query {name!r} has results, and no sink since this start of the hub; start it again with its"
                    " sink, or drop it: Hub.drop(…)"
                )
            return self._sinks[name][0]

    def given(self, name: str) -> Sink | None:
        """Return the sink that the program has given for a query, None without one."""
        with self._lock:
            return self._sinks[name][0] if name in self._sinks else None

    def has(self, name: str) -> bool:
        """Return whether a query has a sink."""
        with self._lock:
            return name in self._sinks

    def stagings(self, names: Iterable[str], batch: int) -> dict[str, Path | None]:
        """Return by query the directory for its results; None if results are only counted."""

        def staging(name: str) -> Path | None:
            sink = self.of(name)
            return sink.staging(batch) if sink.writes else None

        return self._beside(dict.fromkeys(names), staging)

    def _beside(self, names: Iterable[str], call: Callable[[str], T]) -> dict[str, T]:
        """Return the value of a call for each query: side by side for sinks that allow it, one by one for the others.

        Raises the first error, by the order of the names, when all calls side by side have ended.
        """
        names, done = list(names), dict[str, T]()
        beside = [name for name in names if _is_beside(self.of(name))]
        with ThreadPoolExecutor(WRITERS) as pool:  # which starts no thread for nothing
            begun = {name: pool.submit(call, name) for name in beside if len(beside) > 1}
        for name in names:
            self._at_work = name
            done[name] = begun[name].result() if name in begun else call(name)
        self._at_work = None
        return done

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession) -> None:
        by_query: dict[str, list[str]] = defaultdict(list)
        for file in files:
            name, _, path = file.partition("/")
            if name not in self.dropped:
                by_query[name].append(path)
        wanted = sorted(self.serving | by_query.keys())
        self._beside(wanted, lambda name: self.of(name).publish(batch, by_query.get(name, []), spark))

    def clean(self, before_batch: int) -> None:
        with self._lock:
            sinks = [sink for sink, _ in self._sinks.values()]
        for sink in sinks:
            sink.clean(before_batch)
        # The next micro-batch then need not wait for the disk.
        self.stagings((name for name in self.serving if self.has(name) and _is_beside(self.of(name))), before_batch + 1)


def _is_beside(sink: Sink) -> bool:
    """Return whether the class of a sink itself says that the sink may work beside others."""
    return bool(vars(type(sink)).get("beside", False))
