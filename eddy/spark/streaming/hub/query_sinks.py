"""The sinks of all queries of a hub as one sink: a result file "pairs/part-….parquet" belongs to the query "pairs"."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from eddy.queries.version import Version
from eddy.spark.errors import SparkJoinError
from eddy.spark.groups.sink import GroupsSink, ManifestSink
from eddy.spark.streaming.hub.below import HubJoin
from eddy.spark.streaming.sinks import Sink
from eddy.spark.streaming.state.batch_names import batch_of
from eddy.spark.streaming.state.late_files import FAILED_GROUPS, GROUPED
from eddy.spark.streaming.state.locations import Locations
from stairs.graph import FOREVER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eddy.spark.streaming.state.manifest import Manifest


class QuerySinks(ManifestSink):
    """The sinks by query. Each sink has its own staging directory, owner mark and result directory.

    A query with aggregates or `top` has an operator before its sink (`GroupsSink`), which takes the joined rows.
    """

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
        self.locations: Locations | None = None
        """The directories of the job, None before it runs."""
        self.group_rows: Counter[str] = Counter()
        """Rows of groups by query since the start."""
        self._grouped: dict[str, tuple[GroupsSink, Version]] = {}
        """By query with an operator the operator, and the version that it serves."""
        self._publishing: str | None = None
        """The query whose sink is at work."""

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

    def serve(self, name: str, version: Version, below: HubJoin) -> None:
        """Serve a version of a query from now on; one with aggregates or `top` gets a new operator before the sink.

        below   the join below the query
        """
        with self._lock:
            self._grouped.pop(name, None)
            if not below.above:
                return
            assert self.locations is not None
            assert self._place is not None
            job, scratch = self._place
            place = f"{GROUPED}/{name}/{version.number}"
            after = version.complete_from if below.windows and version.complete_from != -FOREVER else None
            sink = self._sinks[name][0]
            grouped = GroupsSink(sink, version.query, self.locations, place=place, after=after, name=name)
            grouped.begin(below.results, f"{job}-{name}", scratch / "queries" / name)
            self._grouped[name] = grouped, version

    def _forget_ended(self, before_batch: int) -> None:
        """Remove the groups of versions that ended before a published batch; those that failed stay."""
        assert self.locations is not None
        running = {(name, str(v.number)) for name, (_, v) in self._grouped.items() if v.ended is None}
        for directory in (self.locations.root / GROUPED).glob("*/*"):
            if (directory.parent.name, directory.name) in running or not directory.is_dir():
                continue
            files = [path for path in directory.iterdir() if not path.name.endswith(FAILED_GROUPS)]
            batches = [batch for path in files if (batch := batch_of(path.name)) is not None]
            # The manifest without the version is durable, and so is the one after it.
            if batches and max(batches) + 1 < before_batch:
                for path in files:
                    path.unlink(missing_ok=True)
                if self.locations.store is not None:
                    there = self.locations.store.names(directory.relative_to(self.locations.root).as_posix())
                    self.locations.store.delete(name for name in there if not name.endswith(FAILED_GROUPS))
            with suppress(OSError):  # files of failed groups stay
                directory.rmdir()

    @property
    def _title(self) -> str:
        name = self._publishing
        return super()._title if name is None else f"{self._of(name)._title} of query {name!r}"

    def committed(self, manifest: Manifest) -> None:
        for grouped, version in self._grouped.values():
            assert version.start is not None
            grouped.follows(version.start, manifest.watermarks["engine"])

    def check(self, manifest: Manifest, published: bool) -> list[str]:
        """Return texts on files of groups that were restored.

        Raises StreamingStateError if groups are lost that the next batch needs.
        """
        self.committed(manifest)
        for name, (grouped, _) in self._grouped.items():
            results = [file.file.partition("/")[2] for file in manifest.results if file.file.startswith(f"{name}/")]
            grouped.check(manifest.batch, results, published)
        return [text for grouped, _ in self._grouped.values() for text in grouped.recoveries]

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
            return self._of(name)

    def _of(self, name: str) -> Sink:
        return self._grouped[name][0] if name in self._grouped else self._sinks[name][0]

    def given(self, name: str) -> Sink | None:
        """Return the sink that the program has given for a query, None without one."""
        with self._lock:
            return self._sinks[name][0] if name in self._sinks else None

    def has(self, name: str) -> bool:
        """Return whether a query has a sink."""
        with self._lock:
            return name in self._sinks

    def staging_of(self, name: str, batch: int) -> Path | None:
        """Return the directory for the results of a query; None if results are only counted."""
        sink = self.of(name)
        return sink.staging(batch) if sink.writes else None

    def publish(self, batch: int, files: Sequence[str], spark: SparkSession) -> None:
        by_query: dict[str, list[str]] = defaultdict(list)
        for file in files:
            name, _, path = file.partition("/")
            if name not in self.dropped:
                by_query[name].append(path)
        for name in sorted(self.serving | by_query.keys()):
            sink, self._publishing = self.of(name), name
            before = sink.n_rows if isinstance(sink, GroupsSink) else 0
            sink.publish(batch, by_query.get(name, []), spark)
            if isinstance(sink, GroupsSink):
                self.group_rows[name] += sink.n_rows - before
            self._publishing = None

    def clean(self, before_batch: int) -> None:
        with self._lock:
            sinks = [sink for name, (sink, _) in self._sinks.items() if name not in self._grouped]
            sinks += [grouped for grouped, _ in self._grouped.values()]
            self._forget_ended(before_batch)
        for sink in sinks:
            sink.clean(before_batch)
