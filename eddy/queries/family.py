"""A family: one join for all versions over the same join graph. The join finds results; each version takes its own."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from time import thread_time

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddy.filters.adaptive import AdaptiveFilter
from eddy.filters.conditions import Filter
from eddy.ingest.arrivals import keep_rows
from eddy.log import endless_told
from eddy.pipeline.push import prepare_admitted
from eddy.pipeline.records import Prepared
from eddy.queries.bound import EngineBound
from eddy.queries.combinations import PushedCombinations
from eddy.queries.grouped_filters import GroupedFilters
from eddy.queries.kept import Need
from eddy.queries.reader import Reader
from eddy.queries.sources import POSITION, EnginePush, Sources
from eddy.queries.version_shares import VersionShares
from eddy.query.query import Query
from eddy.runtime import Runtime
from eddy.streams.stream import Stream
from eddy.streams.windows import Rows
from jisc.plan.tree import Tree
from stairs.graph import FOREVER, Window, WindowKind


def family_key(query: Query) -> Hashable:
    """Return the key of a query's family; queries with equal keys may share one join.

    Such queries have the same streams and predicates. A window of rows counts the rows that the filter of its stream
    accepts, so they also have the same windows of rows, with the same filters of these streams.
    """
    rowed = tuple(
        (stream.name, stream.window.n, _Filter(stream.filter))
        for stream in sorted(query.streams, key=lambda stream: stream.name)
        if isinstance(stream.window, Rows) and stream.name in query.counted
    )
    classes = frozenset(tuple(sorted(attribute_class.columns.items())) for attribute_class in query.classes)
    return (
        frozenset(stream.name for stream in query.streams),
        classes,
        frozenset(comparison.canonical for comparison in query.comparisons),
        rowed,
        query.unretracted,
        query.graph.timed,
    )


@dataclass(frozen=True, eq=False)
class _Filter:
    """A filter that is equal to itself and, if it is an expression, to an equal expression.

    Texts of expressions are not compared, because they leave out long constants.
    """

    given: Filter | None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Filter):
            return NotImplemented
        mine, theirs = self.given, other.given
        return mine is theirs or (
            isinstance(mine, pc.Expression) and isinstance(theirs, pc.Expression) and mine.equals(theirs)
        )

    def __hash__(self) -> int:
        return hash(str(self.given)) if isinstance(self.given, pc.Expression) else id(self.given)


def _wider(window: Window, other: Window) -> bool:
    """Return whether `window` keeps more rows than `other`, of two windows that one family may have."""
    order = (WindowKind.ROWS, WindowKind.RANGE, WindowKind.UNBOUNDED)
    return (order.index(window.kind), window.size) > (order.index(other.kind), other.size)


class Family:
    """The join of one family of versions.

    Rows that no version accepts do not enter the join, so the join holds accepted rows only.

    runtime        the runtime of the join; None if the family is shared
    names          names of the streams, in the order of the engine
    windows        stream -> the widest window that a version has had for it
    complete_from  the position from which the windows are complete
    whole          whether filters have kept no row out since then
    oldest         a lower bound of the positions of all rows that the join has taken
    query          the query of the join; its results contain those of all versions
    shared         whether the family shares SteMs with others (`eddy.queries.sharing`), and has none of its own
    fresh          whether the join has taken no row yet
    seconds        CPU seconds of pushes
    tree           the plan with which the join begins; None stands for the default plan
    """

    def __init__(
        self, sources: Sources, query: Query, options: Mapping[str, object], bound: EngineBound | None = None
    ) -> None:
        self._sources = sources
        self.bound = bound or EngineBound()
        """The bound on bytes, which the family shares with the rest of the engine."""
        self._options = options
        self._on = query.on
        self.names = [name for name in sources.graph.names if name in {stream.name for stream in query.streams}]
        self._index = [sources.index(name) for name in self.names]
        self._streams = {stream.name: stream for stream in query.streams}
        self.windows = dict(zip((stream.name for stream in query.streams), query.graph.windows, strict=True))
        self._counting = {
            stream.name: AdaptiveFilter(stream.conditions, place=f"{stream.place}: its filter")
            for stream in query.streams
            if stream.conditions and stream.name in query.counted
        }
        self._counted = query.counted
        self.readers: list[Reader[Family]] = []
        self._entries: dict[str, GroupedFilters] | None = None
        self.runtime: Runtime | None = None
        self.shared, self.fresh = False, True
        self._divided: tuple[int, list[Reader[Family]], GroupedFilters | None] | None = None
        """How results were divided last: `oldest`, the versions and their filters; None if their bounds changed."""
        self._columns: set[str] = set()
        self.complete_from = 0
        self.whole = True
        self.oldest = 0
        self.seconds = 0.0
        self.tree: Tree | None = None
        self.query = self._made()

    @property
    def own_bytes(self) -> int:
        """Bytes of its runtime."""
        return 0 if self.runtime is None else self.runtime._pipeline.nbytes

    @property
    def timed(self) -> bool:
        """Whether event time ends windows."""
        return self._has(WindowKind.RANGE)

    def _has(self, kind: WindowKind) -> bool:
        """Return whether a window is of a kind."""
        return any(window.kind == kind for window in self.windows.values())

    def needs(self, name: str) -> list[Need]:
        """Return which rows of a stream the engine must keep for this family."""
        return [Need(self.windows[name], self._counting.get(name))] if name in self.windows else []

    def _made(self) -> Query:
        # Without a window of time, event times have no effect, so streams get no time column: loaded rows then keep
        # their order of arrival.
        streams = []
        for name, i in zip(self.names, self._index, strict=True):
            family_stream, source = self._streams[name], self._sources.streams[i]
            schema = source.schema.append(pa.field(POSITION, pa.int64(), False))
            kept = family_stream.filter if name in self._counted else None
            streams.append(Stream(name, schema, family_stream.window, source.time if self.timed else None, kept))
        select = [f"{stream.name}.{column}" for stream in streams for column in stream.schema.names]
        select = [text for text in select if text in self._columns or text.endswith(f".{POSITION}")]
        return Query(streams, self._on, select=select, late="count")

    # The versions

    def join(self, reader: Reader[Family]) -> bool:
        """Add a version; return whether the join lacks windows or columns for it, so that `fill` must be called.

        For the first version it always must.
        """
        query, streams, windows = reader.query, dict(self._streams), dict(self.windows)
        for stream, window in zip(query.streams, query.graph.windows, strict=True):
            if _wider(window, windows[stream.name]):
                streams[stream.name], windows[stream.name] = stream, window
        grown = windows != self.windows
        self._streams, self.windows = streams, windows
        columns = set(reader.read)
        if reader.windows() or (grown and self.readers):
            # Some version has a narrower window than the join, and checks the age of its rows by their event times.
            columns |= {f"{stream.name}.{stream.time}" for stream in self._streams.values()}
        grown = grown or not columns <= self._columns or not self.readers
        self._columns = self._columns | columns
        self.readers = [*self.readers, reader]
        self._entries = self._divided = None
        return grown

    def bounds_changed(self) -> None:
        """Take notice that versions may have other bounds than before, or have ended."""
        self._divided = None

    def forget_ended(self) -> None:
        """Remove the versions that have ended."""
        self.keep([reader for reader in self.readers if reader.version.ended is None])

    def keep(self, readers: list[Reader[Family]]) -> None:
        """Remove all versions except `readers`."""
        if len(readers) < len(self.readers):
            self.readers, self._entries, self._divided = readers, None, None

    @property
    def keeps_out(self) -> bool:
        """Whether filters keep rows out of the join."""
        return any(map(self._is_filtered, self.names))

    def _is_filtered(self, name: str) -> bool:
        """Return whether every version bounds columns of a stream by ranges, so that rows may be kept out."""
        return name not in self._counted and all(reader.ranges[name] for reader in self.readers)

    def _filters(self) -> dict[str, GroupedFilters]:
        """Return the grouped filters of arriving rows, for each filtered stream."""
        if self._entries is None:
            filtered = filter(self._is_filtered, self.names)
            self._entries = {
                name: GroupedFilters([reader.ranges[name] for reader in self.readers]) for name in filtered
            }
        return self._entries

    def fill(self, rows: Mapping[str, pa.RecordBatch | None], complete_from: int, watermark: int | None = None) -> None:
        """Begin anew with rows that arrived earlier.

        complete_from  the position from which `rows` are complete
        watermark      the watermark after these rows; None before the first watermark
        """
        query = self._made()
        # The watermark is that of the engine, which follows all streams and not only those of the family.
        watermark = None if not self.timed else -FOREVER if watermark is None else watermark
        self.oldest = 0 if rows else complete_from
        if self.shared:
            self.query, self.fresh, self.complete_from = query, not rows, complete_from
            return
        plan = None if self.tree is None else self.tree.text(query.graph.names)
        plan = plan if self.runtime is None else self.runtime.plan
        with endless_told():
            runtime = self.bound.cover(Runtime(query, plan, **self._options))  # type: ignore[arg-type]
        batches = [rows.get(name) for name in self.names]
        self.complete_from, self.whole = complete_from, True
        kept = keep_rows(batches, self._wanted(batches))
        given = {name: batch for name, batch in zip(self.names, kept, strict=True) if batch is not None}
        if given and self.timed and self._has(WindowKind.ROWS):
            # `load` takes rows by event time, but a window of rows counts them in their order of arrival.
            places = {name: np.asarray(batch.column(POSITION)) for name, batch in given.items()}
            number = np.repeat(
                [self.names.index(name) for name in given], [len(positions) for positions in places.values()]
            )
            order = number[np.argsort(np.concatenate([*places.values()]))]
            runtime.push(given, order, watermark=watermark)
            if plan not in (None, runtime.plan):
                runtime.transition(plan)  # the policy may have changed the plan in that push
        elif given:
            runtime.load(given, watermark=watermark)
        self.query, self.fresh, self.runtime = query, not given, runtime

    def released(self) -> None:
        """Drop the runtime of the family, because the shared SteMs have its rows."""
        self.runtime, self.fresh, self.whole, self.oldest = None, False, True, 0

    # Pushes

    def prepare(self, push: EnginePush) -> tuple[PushedCombinations, Prepared]:
        """Compute the results of a push that has not happened yet (`eddy.pipeline.push.prepare`)."""
        began = thread_time()
        arrivals = push.arrivals.of(self._index, self.timed)
        arrivals = arrivals.kept(self._wanted(arrivals.batches))
        assert self.runtime is not None
        self.fresh = False
        pipeline = self.runtime._pipeline
        with self.bound.at_work(lambda: pipeline.nbytes):
            prepared = prepare_admitted(pipeline, arrivals)
        combinations = self.combinations_of(prepared.results)
        self.seconds += thread_time() - began
        return combinations, prepared

    def push_rows(self, rows: Mapping[str, pa.RecordBatch], watermark: int | None) -> PushedCombinations:
        """Push rows with their positions, in order of event time, and return the results of the join.

        watermark   the watermark after the push, as in `Runtime.push`; without effect on windows without event time
        """
        batches = [rows.get(name) for name in self.names]
        batches = keep_rows(batches, self._wanted(batches))
        given = {name: batch for name, batch in zip(self.names, batches, strict=True) if batch is not None}
        assert self.runtime is not None
        self.fresh = False
        if self.timed:
            return self.combinations_of(self.runtime.push(given, watermark=watermark))
        counts = [0 if batch is None else len(batch) for batch in batches]
        return self.combinations_of(self.runtime.push(given, np.repeat(np.arange(len(counts)), counts)))

    def combinations_of(self, table: pa.Table) -> PushedCombinations:
        """Return the results of `query` in a push as combinations of rows."""
        return PushedCombinations(table, [self._sources.streams[i] for i in self._index], self._sources.time_type)

    def settle(self, prepared: Prepared) -> None:
        """Commit a prepared push. The call may be repeated."""
        assert self.runtime is not None
        self.runtime._pipeline.settle(prepared)

    def roll_back(self) -> None:
        """Undo a prepared push that was not committed."""
        if self.runtime is not None:
            self.runtime._pipeline.roll_back()
            self.runtime._pipeline.give_room_back()

    def _wanted(self, batches: list[pa.RecordBatch | None]) -> dict[int, npt.NDArray[np.int64]]:
        """Return, for each stream with rows that no version accepts, the numbers of its accepted rows."""
        keep = {}
        for k, name in enumerate(self.names):
            batch, filters = batches[k], self._filters().get(name)
            if batch is not None and filters is not None:
                columns = dict(zip((f"{name}.{column}" for column in batch.schema.names), batch.columns, strict=True))
                rows = filters.wanted(len(batch), columns.__getitem__)
                if rows is not None:
                    keep[k] = rows
                    self.whole = False
        return keep

    def shares(
        self, position: int, combinations: PushedCombinations, readers: Sequence[Reader[Family]] | None = None
    ) -> VersionShares:
        """Return the share of each version in the results of the join.

        position  the position of the first arrival that `combinations` covers
        readers    the versions that take a share; None stands for all versions
        """
        if not len(combinations):
            return VersionShares(combinations, {})
        running, filters = self._dividing(position, readers)
        if filters is None:
            return VersionShares(combinations, {})
        rows = {running[v]: share for v, share in filters.share(len(combinations), combinations.values).items()}
        faults = {}
        for reader, numbers in list(rows.items()):
            if reader.asks_more:
                rows[reader], faults[reader] = reader.accepted(
                    combinations, np.arange(len(combinations)) if numbers is None else numbers
                )
        return VersionShares(combinations, rows, faults)

    def _dividing(
        self, position: int, readers: Sequence[Reader[Family]] | None
    ) -> tuple[list[Reader[Family]], GroupedFilters | None]:
        """Return the versions that may have results from a position on, among `readers` or all, and their filters."""
        if readers is None and self._divided is not None and self._divided[0] == self.oldest:
            return self._divided[1:]
        running = [
            reader for reader in (self.readers if readers is None else readers) if reader.version.gives_from(position)
        ]
        ranges = [
            [*reader.bounds(), *reader.windows(), *chain.from_iterable(reader.ranges.values())] for reader in running
        ]
        filters = GroupedFilters(ranges) if ranges else None
        if readers is None:
            self._divided = self.oldest, running, filters
        return running, filters
