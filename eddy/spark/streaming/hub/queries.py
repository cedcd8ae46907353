"""The queries of a hub on the driver: their versions before each micro-batch, and the rows that the log keeps for them.

The order of a micro-batch b:

    begin(b)    elements whose position is reached take effect; the versions with a start are in force
    tasks       join with these versions
    owned(b)    the first results of a new version, and the watermark after b, end old versions; the manifest of b saves
                the state

Between begin(b) and the manifest of b only the thread of the streaming query changes versions, and new elements wait. A
replay after a crash begins with the manifest of b - 1. So the replay makes the same decisions, as far as they follow
from the manifest and the watermarks.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from eddy.log import LOG
from eddy.queries.changes import CHANGES
from eddy.queries.drain import DrainByTime
from eddy.queries.lineage import require_ends
from eddy.queries.version import Version
from eddy.query.query import Query
from eddy.query.text import Text, query_text
from eddy.spark.errors import SparkJoinError, StreamingStateError
from eddy.spark.partitioning.engine import JoinOutput
from eddy.spark.streaming.driver.operator_works import Above
from eddy.spark.streaming.driver.watermarks import Watermarks
from eddy.spark.streaming.hub.below import HubJoin
from eddy.spark.streaming.hub.checks import check_columns, check_kind, check_query, check_stop, columns_of
from eddy.spark.streaming.hub.elements import ChangeElement, Element, Elements, StartElement
from eddy.spark.streaming.hub.lineage import HubLineage
from eddy.spark.streaming.hub.query_sinks import QuerySinks
from eddy.spark.streaming.hub.restart import restarted
from eddy.spark.streaming.hub.saved import check_saved, has_operator, saved_lineage
from eddy.spark.streaming.hub.sources import HubStreams
from eddy.spark.streaming.sinks import Sink
from eddy.spark.streaming.state.manifest import OutputFile
from eddy.spark.streaming.worker.tasks import VersionReport, VersionTask
from stairs.errors import EddyError, InputError
from stairs.graph import FOREVER
from stairs.storage.json_form import FormError

HISTORY = pa.schema([("batch", pa.int64()), ("query", pa.string()), ("version", pa.int32()), ("event", pa.string())])
"""Columns of `Hub.history`."""
Spans = tuple[int | None, ...]


class _RunningVersion(NamedTuple):
    """A version in force: its query, its key in messages to the workers, and its join."""

    lineage: HubLineage
    version: Version
    key: str
    below: HubJoin


class HubQueries:
    """All queries of a hub, and the host of their lineages. Positions are micro-batches.

    position  the newest micro-batch that has begun, or the first micro-batch of this start
    """

    def __init__(self, streams: HubStreams, sinks: QuerySinks) -> None:
        self.streams = streams
        self.sinks = sinks
        self.position = 0
        self.lock = threading.RLock()
        self.results: Counter[str] = Counter()
        """Number of results by query since the start."""
        self.drops_others = False
        """Whether queries of the checkpoint that are not started again are dropped."""
        self._next = 0
        self._lineages: dict[str, HubLineage] = {}
        self._elements = Elements()
        self._numbers: dict[str, int] = {}
        self._history: list[tuple[int, str, int, str]] = []
        self._noted: list[tuple[str, int, str]] = []
        self._greatest: Sequence[int | None] = (None,) * len(streams.keys)
        self._horizon: list[int | None] = [None] * len(streams.keys)
        self._running: list[_RunningVersion] = []
        self._made = 0
        self._keys: dict[Version, str] = {}
        self._texts: dict[Version, Text] = {}
        self._joins: dict[Version, HubJoin] = {}
        self._blobs: dict[str, bytes] = {}

    # Elements, in any thread

    def give(self, element: Element) -> None:
        """Take an element, which waits for its position. Raises InputError or QueryError for an impossible element."""
        with self.lock:
            if element.when.batch is not None and element.when.batch < self._next:
                raise InputError(
                    f"query {element.name!r}: at={element.when.batch} is no micro-batch to come; the next one is"
                    f" {self._next}"
                )
            self.check(element)
            self._elements.waiting.append(element)

    def check(self, element: Element) -> None:
        """Raise InputError or QueryError for an impossible element."""
        name = element.name
        lineage = self._lineages.get(name)
        live = lineage is not None and bool(lineage.live)
        newest = self._elements.newest_query(name)
        if isinstance(element, StartElement):
            check_query(self.streams, name, element.query, element.output, element.warm)
            if (live or newest is not None) and not self._elements.ends(name):
                raise InputError(f"query {name!r} runs, or is to start; change it, stop it, or use another name")
            return
        ends = not (live or newest is not None) or self._elements.ends(name)
        old = self.newest_query(name)
        if isinstance(element, ChangeElement):
            self.streams.check(name, element.query)
            below = HubJoin(name, element.query, self.output_of(name))
            check_columns(name, columns_of(HubJoin(name, old, self.output_of(name)).rows), below.rows)
            if (live or newest is not None) and not self._elements.ends(name, at_once=True):
                check_kind(name, element.how, old, below, self.streams.sources)
            if CHANGES[element.how].drains and not ends:
                require_ends(name, old, repr(element.how))
            return
        if ends:
            raise InputError(f"query {name!r} has stopped, or is to stop; change it, or start it again")
        if element.how == "drain":
            check_stop(name, old, HubJoin(name, old, self.output_of(name)))
            require_ends(name, old, "the drain")

    def newest_query(self, name: str) -> Query:
        """Return the query of the newest version of a name, waiting ones included. Raises InputError without one."""
        with self.lock:
            newest, lineage = self._elements.newest_query(name), self._lineages.get(name)
            if newest is not None:
                return newest
            if lineage is None:
                raise InputError(f"query {name!r} has not started")
            return lineage.query

    def output_of(self, name: str) -> JoinOutput:
        """Return the form of the results of the newest query of a name. Raises InputError without one."""
        with self.lock:
            output, lineage = self._elements.newest_output(name), self._lineages.get(name)
            if output is not None:
                return output
            if lineage is None:
                raise InputError(f"query {name!r} has not started")
            return lineage.output

    def sinks_to_start(self) -> list[tuple[str, Sink]]:
        """Return the queries that are to start, and their sinks."""
        with self.lock:
            return self._elements.sinks()

    def waiting(self, name: str) -> int:
        """Return the number of elements of a query that have not taken effect."""
        with self.lock:
            return sum(element.name == name for element in self._elements.waiting)

    def lineage(self, name: str) -> HubLineage | None:
        """Return the lineage of the newest query of a name, None before its start."""
        with self.lock:
            return self._lineages.get(name)

    def names(self) -> list[str]:
        """Return the names of all queries."""
        with self.lock:
            return list(dict.fromkeys([*self._lineages, *(element.name for element in self._elements.waiting)]))

    def rows(self) -> list[tuple[str, str, int, int, str]]:
        """Return name, state, newest version, results and text of each query that has begun."""
        with self.lock:
            return [
                (
                    lineage.name,
                    lineage.state,
                    lineage.versions[-1].number,
                    self.n_results(lineage.name),
                    repr(lineage.query),
                )
                for lineage in self._lineages.values()
            ]

    def n_results(self, name: str) -> int:
        """Return the number of results of a query since the start; of one with aggregates, of its groups."""
        return self.results[name]

    def lines(self) -> list[str]:
        """Return a line of text on each query."""
        with self.lock:
            lineages = [lineage for lineage in self._lineages.values() if lineage.live]
        return [
            f"query {lineage.name}: {lineage.state}, version {lineage.versions[-1].number}: {lineage.query!r}"
            for lineage in lineages
        ]

    def history(self) -> pa.Table:
        """Return the elements that took effect, and the ends of versions, since this start of the hub."""
        with self.lock:
            rows = [dict(zip(HISTORY.names, row, strict=True)) for row in self._history]
        return pa.Table.from_pylist(rows, schema=HISTORY)

    # A micro-batch, in the thread of the streaming query

    def begin(self, batch: int, before: Watermarks) -> None:
        """Apply the elements of a micro-batch; `before` has the watermarks before the micro-batch."""
        with self.lock:
            self.position, self._next, self._noted = batch, batch + 1, []
            self._greatest = before.greatest
            self._elements.take(batch, before.engine, self._apply)
            self._running = [
                _RunningVersion(lineage, version, self._keys[version], self._joins[version])
                for lineage in self._lineages.values()
                for version in lineage.live
                if version.start is not None
            ]
            self.sinks.serving = frozenset(running.lineage.name for running in self._running)

    def _apply(self, element: Element) -> None:
        name = element.name
        lineage = self._lineages.get(name)
        try:
            if isinstance(element, StartElement):
                if lineage is not None and lineage.live:
                    raise InputError(f"query {name!r} has not stopped yet")
                version = Version(self._numbers.get(name, 0), element.query, self.position, element.warm, 0)
                self.make(version, element.output)
                self.sinks.put(name, element.sink, self._joins[version].rows)
                self.sinks.dropped.discard(name)
                self._lineages[name] = HubLineage(self, name, version, element.output)
                usual = "warm start" if element.warm else "fresh start"
                self.note(self.position, name, version.number, element.event or usual, 0)
            elif lineage is None or (not lineage.live and not isinstance(element, ChangeElement)):
                raise InputError(f"query {name!r} has stopped")
            elif isinstance(element, ChangeElement):
                if lineage.live:
                    below = HubJoin(name, element.query, lineage.output)
                    check_kind(name, element.how, lineage.query, below, self.streams.sources)
                lineage.change_at(element.query, element.how, self.position)
            else:
                lineage.stop_at(element.how, self.position)
            self._numbers[name] = self._lineages[name].versions[-1].number + 1
        except EddyError as problem:
            # An earlier element, or the end of a drain, has made this element impossible after it was given.
            LOG.warning("hub: query %s: an element had no effect: %s", name, problem)
            self._history.append((self.position, name, self._numbers.get(name, 0), f"no effect: {problem}"))

    def versions(self, batch: int) -> tuple[VersionTask, ...]:
        """Return the versions in force, for the tasks."""
        with self.lock:
            stagings = self.sinks.stagings((running.lineage.name for running in self._running), batch)
            return tuple(
                self._task(
                    running.version,
                    staging=stagings[running.lineage.name],
                    splits=any(
                        link.old is running.version and link.change.at_result and link.change.drains
                        for link in running.lineage.successions
                    ),
                    query=running.lineage.name,
                    replaces=tuple(self._task(old) for old in self._replaced(running.version, batch)),
                )
                for running in self._running
            )

    def above(self, batch: int) -> Sequence[Above]:
        """Return the operators above the joins of the versions in force."""
        with self.lock:
            above = [running for running in self._running if running.below.above]
            stagings = self.sinks.stagings((running.lineage.name for running in above), batch)
            return [
                Above(
                    running.key,
                    f"{running.lineage.name}/{running.version.number}",
                    running.version.query,
                    stagings[running.lineage.name],
                    running.version.complete_from
                    if running.below.windows and running.version.complete_from != -FOREVER
                    else None,
                )
                for running in above
            ]

    def _task(self, version: Version, **more: Any) -> VersionTask:
        below = self._joins[version]
        return VersionTask(
            key=self._keys[version],
            number=version.number,
            start=version.start or 0,
            warm=version.warm,
            drain=None if version.drain is None else version.drain.at,
            alone=below.alone,
            output=below.output,
            wakes=below.alone and (version.warm or below.keyed),
            **{"staging": None, "splits": False, **more},
        )

    def _replaced(self, version: Version, batch: int) -> Iterator[Version]:
        """Yield the versions whose answers a changelog takes back with a micro-batch, with which it starts.

        One that was to start with the same micro-batch has given nothing: its own handover is still to be made.
        """
        if version.start == batch and self._joins[version].output == "changelog":
            for old in version.replaces:
                if old.start is not None and old.start < batch:
                    yield old
                else:
                    yield from self._replaced(old, batch)

    def blobs(self) -> dict[str, bytes]:
        """Return the queries in force as bytes, and those that they replace, by the keys of their versions."""
        with self.lock:
            replaced = (old for running in self._running for old in self._replaced(running.version, self.position))
            keys = [*(running.key for running in self._running), *(self._keys[old] for old in replaced)]
            return {key: self._blobs[key] for key in keys}

    def owned(
        self, batch: int, after: Watermarks, reports: Mapping[str, VersionReport]
    ) -> tuple[tuple[OutputFile, ...], dict[str, Any]]:
        """Return the result files of a micro-batch that count, and the state that its manifest saves.

        after    the watermarks after the micro-batch
        reports  key of a version -> its results
        """
        with self.lock:
            files = self._count(batch, reports)
            for lineage in {running.lineage.name: running.lineage for running in self._running}.values():
                self._end(lineage, batch + 1, after.engine)
            spans = self.spans()
            for i, span in enumerate(spans):
                if span is not None and after.engine is not None:
                    below, horizon = after.engine - span, self._horizon[i]
                    self._horizon[i] = below if horizon is None else max(below, horizon)
            return files, self._saved()

    def _count(self, batch: int, reports: Mapping[str, VersionReport]) -> tuple[OutputFile, ...]:
        """Return the files that count; the first result of a new version may end older ones with this micro-batch."""
        reported = {running: reports.get(running.key, VersionReport()) for running in self._running}
        stopped: set[Version] = set()
        drained: set[Version] = set()
        for running, report in reported.items():
            if report.rows + report.alone_rows:
                for link in running.lineage.successions:
                    if link.new is running.version and link.change.at_result:
                        (drained if link.change.drains else stopped).add(link.old)
                running.lineage.at_result(running.version, batch)
        files: list[OutputFile] = []
        for running, report in reported.items():
            if running.version in stopped:
                self._history.append((batch, running.lineage.name, running.version.number, "end"))
                continue
            counted = report.files if running.version in drained else [*report.files, *report.alone]
            files += [replace(file, file=f"{running.lineage.name}/{file.file}") for file in counted]
            results = report.rows + (0 if running.version in drained else report.alone_rows)
            self.results[running.lineage.name] += report.above_rows if running.below.above else results
        return tuple(files)

    def _end(self, lineage: HubLineage, position: int, watermark: int | None) -> None:
        """End the versions that have drained; start the versions that waited for them."""
        for version in lineage.live:
            drain, windows = version.drain, version.query.graph.windows
            if isinstance(drain, DrainByTime) and drain.over(watermark, windows):
                version.ended = position
                self._history.append((position, lineage.name, version.number, "end"))
        lineage.start_waiting()
        lineage.successions = [link for link in lineage.successions if link.old.ended is None]
        for version in lineage.versions:
            if version.ended is not None and version in self._keys:
                del self._blobs[self._keys.pop(version)], self._texts[version], self._joins[version]

    def _saved(self) -> dict[str, Any]:
        return {
            "lives": {
                name: saved_lineage(lineage, self._texts.__getitem__, self._joins.__getitem__)
                for name, lineage in self._lineages.items()
                if lineage.live
            },
            "ended": {
                running.lineage.name: columns_of(running.below.rows)
                for running in self._running
                if not running.lineage.live
            },
            "numbers": dict(self._numbers),
            "horizon": list(self._horizon),
            "elements": [list(noted) for noted in self._noted],
        }

    # The rows that the log keeps

    def spans(self) -> Spans:
        """Return per stream the ticks for which a query needs a row; None = for ever."""
        spans = list(self.streams.spans)
        names = self.streams.sources.graph.names
        for version in self._live():
            query = version.query
            # Rows of a query over one stream become results at once.
            wants = query.spans if len(query.streams) > 1 or self._joins[version].alone else [0]
            for stream, wanted in zip(query.streams, wants, strict=True):
                i = names.index(stream.name)
                span = spans[i]
                spans[i] = None if span is None or wanted is None else max(span, wanted)
        return tuple(spans)

    def bounds(self) -> frozenset[int]:
        """Return the micro-batches at which a version distinguishes earlier from later rows."""
        with self.lock:
            starts = {version.start for version in self._live() if not version.warm and version.start is not None}
            return frozenset(starts | {version.drain.at for version in self._live() if version.drain is not None})

    def _live(self) -> list[Version]:
        with self.lock:
            return [version for lineage in self._lineages.values() for version in lineage.live]

    # The host of lineages

    def make(self, version: Version, output: JoinOutput = "append") -> Version:
        """Return a new version of a query, with the event time from which a warm start has all rows."""
        below = HubJoin("", version.query, output)
        version.complete_from = -FOREVER
        if version.warm:
            streams = version.query.streams
            horizons = [self._horizon[self.streams.sources.index(stream.name)] for stream in streams]
            complete = [horizon for horizon in horizons if horizon is not None]
            version.complete_from = max(complete, default=-FOREVER)
        if below.windows:
            # The rows of earlier windows may have come before.
            before = [latest for latest in self._greatest if latest is not None]
            version.complete_from = max(before, default=-FOREVER)
        self._adopt(version, below)
        return version

    def _adopt(self, version: Version, below: HubJoin) -> None:
        from pyspark.serializers import CloudPickleSerializer

        self._made += 1
        self._keys[version] = key = f"{version.number}-{self._made}"
        self._texts[version] = query_text(version.query)
        self._joins[version] = below
        whole = version.query if below.above else None
        self._blobs[key] = CloudPickleSerializer().dumps((self.streams.served(below.query), whole))

    def drain(self, version: Version, position: int) -> None:
        """Let a version drain from a micro-batch on; an earlier drain takes precedence."""
        if version.drain is None:
            greatest = (self._greatest[self.streams.sources.index(stream.name)] for stream in version.query.streams)
            version.drain = DrainByTime(position, [-FOREVER if latest is None else latest for latest in greatest])

    def note(
        self, position: int, name: str, version: int, event: str, complete_from: int, *, by_itself: bool = False
    ) -> None:
        """Add an element to the history, and to the manifest of the micro-batch."""
        self._history.append((position, name, version, event))
        self._noted.append((name, version, event))

    # A restart

    def _check_unpublished(self, saved: Mapping[str, Any], batch: int, resumed: Collection[str]) -> None:
        """Raise SparkJoinError if results of a batch that is not published would come to the sink of another query.

        resumed   the queries of the checkpoint that continue
        """
        for name, entry in saved["lives"].items():
            replaced = name not in self.sinks.dropped and name not in resumed
            if replaced and (has_operator(entry) or self._newest_join(name).above):
                raise SparkJoinError(
                    f"query {name!r}: its results of batch {batch} are not published, and the groups need the query of"
                    " the checkpoint: start that query once more, and change it while the hub runs or at the next start"
                )
        for name, columns in saved["ended"].items():
            start = self._elements.newest_query(name)
            if start is None or name in self.sinks.dropped:
                continue
            below = self._newest_join(name)
            if below.above or [list(pair) for pair in columns_of(below.rows)] != columns:
                raise SparkJoinError(
                    f"query {name!r} of the checkpoint has ended with batch {batch}, whose results are not published:"
                    f" start it with its query and its sink once more, or drop it: Hub.drop({name!r})"
                )

    def _newest_join(self, name: str) -> HubJoin:
        return HubJoin(name, self.newest_query(name), self.output_of(name))

    def restore(self, saved: Mapping[str, Any], batch: int, published: bool) -> None:
        """Resume the queries of the manifest of a batch with the starts of this program.

        published   whether the results of the batch are published

        Raises StreamingStateError for saved queries that contradict themselves, and what `restarted` raises.
        """
        try:
            check_saved(saved, len(self.streams.keys), batch)
        except FormError as problem:
            raise StreamingStateError(f"the manifest of batch {batch} has queries that do not fit: {problem}") from None
        with self.lock:
            self.position = self._next = batch + 1
            self._horizon = list(saved["horizon"])
            self._numbers = dict(saved["numbers"])
            if self.drops_others:
                starts = {name for name, _ in self._elements.sinks()}
                others = (saved["lives"].keys() | saved["ended"].keys()) - starts
                for name in sorted(others - self.sinks.dropped):
                    LOG.warning("hub: query %s of the checkpoint is dropped, because it is not started again", name)
                self.sinks.dropped |= others
            wanted = {name: entry for name, entry in saved["lives"].items() if name not in self.sinks.dropped}
            elements = Elements(list(self._elements.waiting))
            lineages = list(restarted(self, wanted, elements, self.streams.sources))
            if not published:
                self._check_unpublished(saved, batch, {lineage.name for lineage in lineages})
            self._elements = elements  # an error before this line changes nothing, so the caller may try again
            for lineage in lineages:
                self._lineages[lineage.name] = lineage
                for version in lineage.live:
                    self._adopt(version, HubJoin(lineage.name, version.query, lineage.output))
            self.sinks.serving = frozenset(wanted)
