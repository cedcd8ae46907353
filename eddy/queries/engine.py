"""The public engine: streams, and any number of queries over them."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pyarrow as pa

from eddy.queries.family import Family, family_key
from eddy.queries.kept import Kept
from eddy.queries.query import RunningQuery
from eddy.queries.sharing import Sharing
from eddy.queries.sources import Sources, placed
from eddy.queries.version import Version
from eddy.query.branches import BranchedQuery
from eddy.query.numbers import whole
from eddy.query.query import Query
from eddy.query.stream import Stream
from stairs.errors import InputError, QueryError, StateError
from stairs.graph import FOREVER

HISTORY = pa.schema(
    [
        ("position", pa.int64()),
        ("query", pa.string()),
        ("version", pa.int32()),
        ("event", pa.string()),
        ("complete_from", pa.int64()),
    ]
)
"""Columns of `Engine.history`: where an element takes effect, the query and its newest version, the element, and the
position from which that version has all results."""


class Engine:
    """Streams, and queries over them that start, change and stop while rows arrive.

    streams   the streams of all queries, without filters. A window keeps rows of the stream for queries that start
              later, whether or not a query needs them; None: only what the running queries need
    lateness  as in a `Query`: how much older than the greatest event time of all streams a row may be. Later rows do
              not arrive; `late_counts` has their number
    share     whether queries over different join graphs share SteMs; False: more bytes, but no-good marks and stored
              states for each join graph (docs/guide/queries.md)
    options   of the runtimes, as in `Runtime`: strategy, policy, statistics

    The queries have streams of the same names, schemas and time columns, each with windows, filters and selected
    columns of its own, and no lateness. All see the same arrivals in the same order. Arrivals are numbered from 0 over
    all streams; the numbers are *positions*. Queries over the same streams with the same predicates share one join.
    One call at a time, those of its queries included: a call meanwhile raises StateError.

    Raises QueryError for streams that do not fit together.

    >>> from eddy import Engine, Query, Range, Stream
    >>> rows = pa.schema([("k", pa.int64()), ("at", pa.int64())])
    >>> engine = Engine([Stream("R", rows, time="at"), Stream("S", rows, time="at")])
    >>> windows = [Stream(name, rows, window=Range(10), time="at") for name in "RS"]
    >>> pairs = engine.start("pairs", Query(windows, ["R.k = S.k"], select={"k": "R.k"}))
    >>> engine.push({"R": [{"k": 1, "at": 0}], "S": [{"k": 1, "at": 5}]})["pairs"].to_pylist()
    [{'k': 1}]
    >>> pairs.stop()
    >>> pairs.state
    'stopped'
    """

    def __init__(
        self, streams: Sequence[Stream], *, lateness: int | timedelta = 0, share: bool = True, **options: Any
    ) -> None:
        wrong = sorted(set(options) - {"strategy", "policy", "statistics"})
        if wrong:
            raise InputError(
                f"Engine has no option {wrong[0]!r}; its options are share, strategy, policy and statistics"
            )
        self.sources = Sources(streams, lateness)
        self._options = options
        self._busy = threading.Lock()
        self._queries: dict[str, RunningQuery] = {}
        self._families: dict[Hashable, Family] = {}
        self._sharing = Sharing(self.sources, options, share)
        self._kept = [Kept() for _ in self.sources.streams]
        self._newest = [-FOREVER] * len(self.sources.streams)
        self._history: list[tuple[int, str, int, str, int]] = []
        self._late = dict.fromkeys(self.sources.graph.names, 0)
        self._broken = False
        self.position = 0
        """The number of arrivals so far."""

    @contextmanager
    def call(self) -> Iterator[None]:
        """Keep other calls out for the time of a block. Raises StateError during another call."""
        if not self._busy.acquire(blocking=False):
            raise StateError("the engine is at work in another call; wait until it has returned")
        try:
            if self._broken:
                raise StateError("an earlier push failed after some joins had taken it in; make a new engine")
            yield
        finally:
            self._busy.release()

    # Queries

    def start(self, name: str, query: Query, *, at: int | None = None, warm: bool = False) -> RunningQuery:
        """Start a query under a name.

        at    position of the arrival before which it takes effect; None: the next arrival
        warm  False, a fresh start: its results are those of rows from the position on. True, a warm start: results
              whose last component arrives from then on, with all rows that the engine has kept; `complete_from` of the
              returned query says from which position that is all

        Raises InputError for the name of a query that has not stopped, and a position that has passed; QueryError for a
        query that does not fit the streams, has branches or a lateness of its own.
        """
        with self.call():
            if name in self._queries and self._queries[name].state != "stopped":
                raise InputError(
                    f"query {name!r} is {self._queries[name].state}; stop or change it, or use another name"
                )
            position = self.checked_position(name, at)
            version = self.make(0, query, position, warm)
            self._queries[name] = RunningQuery(self, name, version)
            self.note(position, name, 0, "warm start" if warm else "fresh start", version.complete_from)
            return self._queries[name]

    @property
    def queries(self) -> dict[str, RunningQuery]:
        """The queries by name, the newest of each name, stopped ones included."""
        return dict(self._queries)

    def __getitem__(self, name: str) -> RunningQuery:
        if name not in self._queries:
            raise InputError(f"there is no query {name!r}; there are {', '.join(self._queries) or 'none'}")
        return self._queries[name]

    def history(self) -> pa.Table:
        """Return the control elements of all queries in the order in which they were given, as `HISTORY` describes."""
        rows = [dict(zip(HISTORY.names, one, strict=True)) for one in self._history]
        return pa.Table.from_pylist(rows, schema=HISTORY)

    def metrics(self) -> dict[str, Any]:
        """Return figures: bytes of the rows that are kept, of shared SteMs, and of each join with its queries."""
        joins = []
        for family in self._families.values():
            names = [one.name for one in self._queries.values() if any(v.family is family for v in one.live)]
            own = 0 if family.runtime is None else family.runtime.nbytes
            joins.append({"streams": family.names, "queries": names, "shared": family.shared, "bytes": own})
        kept = {name: one.nbytes() for name, one in zip(self.sources.graph.names, self._kept, strict=True)}
        shared = 0 if self._sharing.hub is None else self._sharing.hub.nbytes
        return {"position": self.position, "kept_bytes": kept, "shared_bytes": shared, "joins": joins}

    @property
    def late_counts(self) -> dict[str, int]:
        """The number of late rows of each stream."""
        return dict(self._late)

    # Pushes

    def push(self, batches: Mapping[str, object], order: object = None) -> dict[str, pa.Table]:
        """Take arrivals in; return the results of each query that runs or ends in this push, by its name.

        Arguments and order as in `Runtime.push`, with the streams numbered as in the engine. While a query changes, the
        results of its versions are in one table; columns that one of them lacks are null. Raises InputError for rows
        that do not fit the streams; nothing has changed then.
        """
        with self.call():
            return self._push(batches, order)

    def _push(self, batches: Mapping[str, object], order: object) -> dict[str, pa.Table]:
        greatest = max(self._newest)
        arrivals = self.sources.admit(batches, order, greatest)
        push = placed(arrivals, self.position, greatest)
        kept = dict(zip(self.sources.graph.names, self._kept, strict=True))
        tables = self._sharing.push(push, self._families.values(), kept, self._newest)
        found = {family: family.found(table) for family, table in tables.items()}
        self._broken = bool(found)
        for family in self._families.values():
            if family not in found:
                found[family] = family.push(push)
            self._broken = True  # until all joins have taken the push in
        counts = [own.count for own in self._kept]
        for i, own in enumerate(self._kept):
            own.add(push, i)
        self.position = push.end
        live = [one for one in self._queries.values() if one.live]
        results = {one.name: one.push(push, found, counts) for one in live}
        for i, times in enumerate(push.times):
            if times is not None:
                self._newest[i] = max(self._newest[i], int(times.max()))
        for i, rows in arrivals.late.items():
            self._late[self.sources.graph.names[i]] += rows.n_rows
        self._forget()
        self._broken = False
        return results

    def _forget(self) -> None:
        """Drop what no query needs any more: joins without versions, and rows."""
        live = {version for one in self._queries.values() for version in one.live}
        for key, family in list(self._families.items()):
            family.members = {version: query for version, query in family.members.items() if version in live}
            if not family.members:
                del self._families[key]
        watermark = max(self._newest) - self.sources.graph.lateness
        for i, stream in enumerate(self.sources.streams):
            windows = [
                family.windows[stream.name] for family in self._families.values() if stream.name in family.windows
            ]
            if stream.name in self.sources.windows:
                windows.append(self.sources.windows[stream.name])
            self._kept[i].trim(windows, watermark)

    # For the queries

    def checked_position(self, name: str, at: int | None) -> int:
        """Return the position of a control element; None is the next arrival. Raises InputError for one in the past."""
        position = self.position if at is None else whole(at)
        if position is None or position < self.position:
            raise InputError(
                f"query {name!r}: at={at!r} is no position to come; the next arrival is number {self.position}"
            )
        return position

    def make(self, number: int, query: Query, start: int | None, warm: bool) -> Version:
        """Return a version of a query that owns results from a position on, and have a family find them.

        Raises QueryError for a query that does not fit the streams.
        """
        self._check(query)
        key = family_key(query)
        family = self._families.get(key)
        new = family is None
        if family is None:
            family = Family(self.sources, query, self._options)
            self._sharing.offer(family, self._families.values())
        own = [self._kept[self.sources.index(name)] for name in family.names]
        kept_from = max(one.complete_from for one in own)
        version = Version(number, query, family, start, warm, 0)
        if family.join(version, query) or (warm and family.complete_from > kept_from):
            family.fill({name: one.table() for name, one in zip(family.names, own, strict=True)}, kept_from)
        elif new:
            family.complete_from = self.position
            if warm:
                family.fill({name: one.table() for name, one in zip(family.names, own, strict=True)}, kept_from)
        self._families[key] = family
        version.complete_from = family.complete_from if warm else (start or 0)
        return version

    def drain(self, version: Version, position: int) -> None:
        """Have a version drain from a position on."""
        version.drains(position, self.sources, self._newest, [own.count for own in self._kept])

    def note(self, position: int, name: str, version: int, event: str, complete_from: int) -> None:
        """Add an element to the history."""
        self._history.append((position, name, version, event, complete_from))

    def _check(self, query: Query) -> None:
        """Raise QueryError for a query that does not fit the streams."""
        if isinstance(query, BranchedQuery) or not isinstance(query, Query):
            raise QueryError(f"an engine runs queries without branches, not {query!r}; use a Runtime for this one")
        if query.lateness:
            raise QueryError(
                "lateness belongs to the engine, because all queries see the same arrivals: Engine(lateness=…)"
            )
        known = {stream.name: stream for stream in self.sources.streams}
        for stream in query.streams:
            own = known.get(stream.name)
            if own is None:
                raise QueryError(f"the engine has no stream {stream.name!r}; its streams are {', '.join(known)}")
            wrong = [field for field in stream.schema if field.name not in own.schema.names]
            wrong += [
                f for f in stream.schema if f.name in own.schema.names and own.schema.field(f.name).type != f.type
            ]
            if wrong:
                raise QueryError(
                    f"stream {stream.name!r}: the engine has no column {wrong[0].name!r} of type {wrong[0].type}; its"
                    f" columns are {', '.join(f'{f.name} {f.type}' for f in own.schema)}"
                )
            if stream.time is not None and stream.time != own.time:
                raise QueryError(
                    f"stream {stream.name!r}: its time column is {stream.time!r}, and that of the engine {own.time!r}"
                )
