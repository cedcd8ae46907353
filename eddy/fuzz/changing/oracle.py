"""Which results the queries of an engine give, by the definition of docs/guide/semantics.md, "Queries that change".

Each version of a query has a nested-loop join of its own over all rows that ever arrived (`eddy.fuzz.oracle`), and
takes the results that it owns by the positions of their components. Nothing is shared between versions and no row is
ever dropped. It imports nothing but that join.

    settle(p)   what happens before arrival p: stops, drains that are over, starts that waited for them, held results
    arrive(p)   the results whose last component is arrival p

Rows are dicts with the columns of their stream. A result is shown by its version and the rows of its components.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eddy.fuzz.oracle import Oracle, OracleClock, OracleQuery, OracleStream, Row


class OracleChange(NamedTuple):
    """A kind of change: what the old version does, and how the new one starts."""

    drains: bool = False
    at_result: bool = False
    waits: bool = False
    holds: bool = False
    warm: bool = False


KINDS: dict[str, OracleChange] = {
    "immediate": OracleChange(),
    "delayed-drain": OracleChange(drains=True, waits=True),
    "drain-query": OracleChange(drains=True, holds=True),
    "drain-stream": OracleChange(drains=True),
    "graceful": OracleChange(at_result=True),
    "graceful-drain": OracleChange(drains=True, at_result=True),
    "handover": OracleChange(warm=True),
}


class RefusedError(Exception):
    """The engine must refuse a control element."""


@dataclass(frozen=True)
class OracleResult:
    """A result: the number of its version, and the positions of its components in the order of the query's streams."""

    version: int
    places: tuple[int, ...]

    @property
    def first(self) -> int:
        """The position of the first component."""
        return min(self.places)

    @property
    def last(self) -> int:
        """The position of the last component, at which the result is complete."""
        return max(self.places)


class Arrived(NamedTuple):
    """A row that arrived: its stream, its columns, its event time if it has one, and the watermark with it."""

    stream: str
    row: Row
    time: Any
    watermark: Any


@dataclass(eq=False)
class OracleVersion:
    """A version of a query: its join, and the bounds on the positions of its results.

    start  position of its start, None while it waits for another version
    latest  position at which it is dropped if it waits until then, None if no element says so
    oldest  by stream the oldest row that the engine had kept for a warm start; without an entry all were
    ended  position from which it has no more results, None while it may have some
    """

    number: int
    query: OracleQuery
    start: int | None
    warm: bool = False
    stop: int | None = None
    drain: int | None = None
    ended: int | None = None
    latest: int | None = None
    oldest: dict[str, int] = field(default_factory=dict)
    join: Oracle = field(init=False)
    places: dict[str, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.join = Oracle(self.query)
        self.places = {stream.name: [] for stream in self.query.streams}

    def take(self, position: int, arrival: Arrived) -> list[OracleResult]:
        """Take an arrival; return the results that it completes and that the version owns."""
        stream = arrival.stream
        if stream not in self.places:
            return []
        outcome = self.join.arrive_at(stream, arrival.row, arrival.watermark)
        if outcome.fate != "arrived":
            return []
        self.places[stream].append(position)
        places = self.places.values()
        results = [
            OracleResult(self.number, tuple(at[n] for at, n in zip(places, result, strict=True)))
            for result in outcome.results
        ]
        return [result for result in results if self.owns(result)]

    def owns(self, result: OracleResult) -> bool:
        """Return whether a result of its query is a result of this version."""
        return (
            self.start is not None
            and (result.last if self.warm else result.first) >= self.start
            and (self.stop is None or result.last < self.stop)
            and (self.drain is None or result.first < self.drain)
            and (self.ended is None or result.last < self.ended)
        )

    def streams(self, name: str) -> list[OracleStream]:
        """Return the stream of a name in its query, if there is one."""
        return [stream for stream in self.query.streams if stream.name == name]

    def completes_more_than(self, most: int, stream: str, row: Row) -> bool:
        """Return whether a row that arrived now would complete many combinations."""
        return stream in self.places and self.join.completes_more_than(most, stream, row)


@dataclass
class _Succession:
    old: OracleVersion
    new: OracleVersion
    kind: OracleChange
    at: int


class OracleRunning:
    """A query: its versions, the changes under way, and the results that wait for the end of an old version."""

    def __init__(self, engine: EngineOracle, query: OracleQuery, start: int, warm: bool) -> None:
        self._engine = engine
        self.versions: list[OracleVersion] = []
        self._successions: list[_Succession] = []
        self._held: dict[OracleVersion, list[OracleResult]] = {}
        self.element = start
        self._add(query, start, warm)

    @property
    def live(self) -> list[OracleVersion]:
        """The versions that may still have results."""
        return [version for version in self.versions if version.ended is None]

    @property
    def state(self) -> str:
        """The value that `RunningQuery.state` must have."""
        live, now = (
            [version for version in self.live if version.start is not None or version.latest is None],
            self._engine.position,
        )
        if len(live) != 1:
            return "changing" if live else "stopped"
        if live[0].start is None or live[0].start > now:
            return "scheduled"
        return "draining" if live[0].drain is not None and live[0].drain <= now else "running"

    # Control elements

    def stop(self, how: str, position: int) -> None:
        """Stop all versions. Raises RefusedError."""
        self._check(position, self.live if how == "drain" else [])
        self._bound_starts(position)
        for version in self.live:
            if version.start is not None and version.start > position:
                version.ended = version.start = position
            elif how == "immediate":
                self._stop(version, position, at_once=not self._held)
            else:
                _drain(version, position)

    def change(self, query: OracleQuery, how: str, position: int) -> None:
        """Replace the newest version. Raises RefusedError."""
        kind = KINDS[how]
        starts = all(version.stop is not None and version.stop <= position for version in self.live)
        self._check(position, self.live if kind.drains and not starts else [])
        self._bound_starts(position)
        for version in self.live:
            if version.start is not None and version.start > position and version is not self.live[0]:
                version.ended = version.start = position
        olds = [] if starts else self.live
        new = self._add(query, None if kind.waits and not starts else position, kind.warm and not starts)
        for old in olds:
            self._successions.append(_Succession(old, new, kind, position))
            if not kind.at_result:
                self._end(self._successions[-1], position)

    def _bound_starts(self, position: int) -> None:
        """Have the versions that wait begin before a position or not at all."""
        for version in [version for version in self.live if version.start is None]:
            version.latest = position if version.latest is None else min(version.latest, position)
            if version.latest <= self._engine.position:
                version.ended = version.start = version.latest

    def _add(self, query: OracleQuery, start: int | None, warm: bool) -> OracleVersion:
        version = OracleVersion(len(self.versions), query, start, warm)
        for position, arrival in enumerate(self._engine.arrived):
            version.take(position, arrival)
        self.versions.append(version)
        return version

    def _check(self, position: int, draining: Sequence[OracleVersion]) -> None:
        if position < max(self._engine.position, self.element):
            raise RefusedError("the position has passed")
        if any(stream.window == "unbounded" for version in draining for stream in version.query.streams):
            raise RefusedError("the drain would never end")
        self.element = position

    def _end(self, link: _Succession, position: int) -> None:
        if link.kind.drains:
            _drain(link.old, position)
        else:
            self._stop(link.old, position)

    def _stop(self, version: OracleVersion, position: int, at_once: bool = True) -> None:
        version.stop = position if version.stop is None else min(version.stop, position)
        if at_once and version.stop <= self._engine.position and version.ended is None:
            version.ended = version.stop

    # Arrivals

    def settle(self, position: int) -> list[OracleResult]:
        """Do what happens before an arrival; return the held results that this lets go."""
        before, now = None, self._reached()
        while now != before:
            self._follow(position)
            before, now = now, self._reached()
        return self._let_go()

    def _reached(self) -> list[tuple[int | None, int | None]]:
        """Return where each version starts and has ended."""
        return [(version.start, version.ended) for version in self.versions]

    def _follow(self, position: int) -> None:
        """End and start versions before an arrival. What ends or starts may let another version do so."""
        for version in self.live:
            if version.stop is not None and version.stop <= position:
                version.ended = version.stop
            elif version.drain is not None and version.drain <= position and self._engine.drained(version, position):
                version.ended = position
        for new in self.versions:
            links = [link for link in self._successions if link.new is new]
            ends = [link.old.ended for link in links]
            begins = new.latest is None or all(self._had_ended(link.old, new.latest, position) for link in links)
            if links and all(self._had_ended(link.old, link.at, position) for link in links):
                new.start, new.warm = links[0].at, False
            elif new.start is None and None not in ends and begins:
                new.start = max(end for end in ends if end is not None)
            elif new.start is None and new.latest is not None and new.latest <= position:
                new.start = new.ended = new.latest

    def _had_ended(self, old: OracleVersion, at: int, now: int) -> bool:
        """Return whether an element at a position finds that a version has ended."""
        if old.ended is not None and old.ended < at:
            return True
        return old.drain is not None and old.drain < at <= now and self._engine.drained(old, at)

    def _let_go(self) -> list[OracleResult]:
        """Return the held results that need not wait any more."""
        return [given for version in self.versions if not self._waits(version) for given in self._held.pop(version, [])]

    def _waits(self, version: OracleVersion) -> bool:
        """Return whether the results of a version wait."""
        return any(link.kind.holds and link.new is version and link.old.ended is None for link in self._successions)

    def arrive(self, position: int, arrived: Arrived) -> list[OracleResult]:
        """Return the results that an arrival completes, those of older versions first, after those it lets go."""
        parts: list[list[OracleResult]] = []
        for version in reversed(self.versions):
            results = version.take(position, arrived)
            if results:
                for link in [link for link in self._successions if link.new is version and link.kind.at_result]:
                    self._end(link, position)
                    self._successions.remove(link)
            if not self._waits(version):
                parts.append(results)
            elif results:
                self._held.setdefault(version, []).extend(results)
        return self._let_go() + [result for part in reversed(parts) for result in part]


def _drain(version: OracleVersion, position: int) -> None:
    """Have a version drain; the earliest drain counts."""
    version.drain = position if version.drain is None else min(version.drain, position)


class EngineOracle:
    """The streams of an engine, by name with their own windows, and its queries.

    time      the column of event times, None without
    lateness, watermark, idle_after   as in an `OracleQuery`; late_of has the lateness of some streams
    """

    def __init__(
        self,
        streams: Mapping[str, tuple[str, int] | None],
        time: str | None = None,
        lateness: int = 0,
        watermark: str = "slowest",
        idle_after: int | None = None,
        late_of: Mapping[str, int] | None = None,
    ) -> None:
        self.streams, self._time = dict(streams), time
        self.clock = OracleClock({**dict.fromkeys(streams, lateness), **(late_of or {})}, watermark, idle_after)
        self.arrived: list[Arrived] = []
        self.late = dict.fromkeys(streams, 0)
        self.queries: dict[str, OracleRunning] = {}
        self.dropped = dict.fromkeys(streams, 0)
        """Stream -> the position from which its rows must have been kept."""

    @property
    def position(self) -> int:
        """The number of arrivals."""
        return len(self.arrived)

    def start(self, name: str, query: OracleQuery, position: int, warm: bool) -> None:
        """Start a query. Raises RefusedError."""
        if position < self.position or (name in self.queries and self.queries[name].live):
            raise RefusedError("the position has passed, or the name is in use")
        self.queries[name] = OracleRunning(self, query, position, warm)

    def change(self, name: str, query: OracleQuery, how: str, position: int) -> None:
        """Change a query. Raises RefusedError."""
        self.queries[name].change(query, how, position)

    def stop(self, name: str, how: str, position: int) -> None:
        """Stop a query. Raises RefusedError."""
        self.queries[name].stop(how, position)

    def push(self, rows: Sequence[tuple[str, Row]]) -> dict[str, list[OracleResult]]:
        """Take arrivals; return the results of each query that was live before, in their order."""
        given: dict[str, list[OracleResult]] = {name: [] for name, query in self.queries.items() if query.live}
        for stream, row in rows:
            time = None if self._time is None else row[self._time]
            if time is not None and self.clock.tick(stream, time):
                self.late[stream] += 1
                continue
            position = self.position
            for name in given:
                given[name] += self.queries[name].settle(position)
            self.arrived.append(Arrived(stream, row, time, self.clock.now))
            for name in given:
                given[name] += self.queries[name].arrive(position, self.arrived[-1])
        for name in given:
            given[name] += self.queries[name].settle(self.position)
        self._drop()
        return given

    def drained(self, version: OracleVersion, position: int) -> bool:
        """Return whether no result with a component before the drain of a version can come from a position on.

        For each stream with rows before the drain, the watermark has passed the end of the window of the newest of
        them, or as many rows as the window has came since. A row that a filter rejects has no place in a window of
        rows, nor has one before a fresh start, or one that was not kept for a warm one.
        """
        assert version.drain is not None
        arrived = self.arrived[:position]
        for stream in version.query.streams:
            counts = stream.window == "rows"
            oldest = 0
            if counts:
                oldest = version.oldest.get(stream.name, 0) if version.warm else version.start or 0
            arrivals = [
                (place, arrival)
                for place, arrival in enumerate(arrived)
                if arrival.stream == stream.name
                and place >= oldest
                and not (counts and stream.keep is not None and stream.keep(arrival.row) is not True)
            ]
            before = [arrival for place, arrival in arrivals if place < version.drain]
            if not before:
                continue
            if counts:
                if len(arrivals) - len(before) < stream.size:
                    return False
            else:
                watermark = arrived[-1].watermark
                if watermark is None or watermark <= max(arrival.time for arrival in before) + stream.size:
                    return False
        return True

    def kept_from(self, query: OracleQuery) -> int:
        """Return the position from which the rows of the streams of a query must have been kept."""
        return max(self.dropped[stream.name] for stream in query.streams)

    def _drop(self) -> None:
        """Note which rows no window of a stream or of a live version needs; those and older ones may be dropped."""
        versions = [version for query in self.queries.values() for version in query.live]
        for name, window in self.streams.items():
            needs = [] if window is None else [self._needs(name, *window)]
            for version in versions:
                needs += [
                    self._needs(name, stream.window, stream.size, stream.keep) for stream in version.streams(name)
                ]
            places = [p for p, arrival in enumerate(self.arrived) if arrival.stream == name]
            free = [p for p in places if not any(need(p) for need in needs)]
            self.dropped[name] = max(self.dropped[name], max(free) + 1 if free else 0)

    def _needs(
        self, name: str, kind: str, size: int, keep: Callable[[Row], bool | None] | None = None
    ) -> Callable[[int], bool]:
        """Return a function of a position in a stream: whether a window needs the row there."""
        if kind == "unbounded":
            return lambda place: True
        if kind == "rows":
            places = [
                p
                for p, arrival in enumerate(self.arrived)
                if arrival.stream == name and (keep is None or keep(arrival.row))
            ]
            newest = set(places[-size:])
            return lambda place: place in newest
        now = self.clock.now
        return lambda place: now is None or bool(self.arrived[place].time >= now - size)
