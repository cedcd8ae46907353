"""The lineage of one query: its versions, and what starts, stops and changes of the query make of them.

A lineage decides which versions there are and how far each one goes. It finds no results: in an `Engine`, a
`RunningQuery` gives out what its versions own; on Spark, the driver keeps the lineages, and the tasks apply the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import pyarrow as pa

from eddy.queries.changes import CHANGES, ChangeKind, How
from eddy.queries.version import Version
from eddy.query.query import Query
from stairs.errors import InputError, QueryError
from stairs.graph import WindowKind

State = Literal["scheduled", "running", "draining", "changing", "paused", "stopped"]
Stop = Literal["immediate", "drain"]


def require_ends(name: str, query: Query, what: str) -> None:
    """Raise InputError unless the windows of a query let a drain end."""
    if query.aggregation is not None:
        return  # the watermark passes windows of groups
    for stream, window in zip(query.streams, query.graph.windows, strict=True):
        if window.kind == WindowKind.UNBOUNDED:
            raise InputError(
                f"query {name!r}: {what} would never end, because stream {stream.name!r} has an UNBOUNDED window; stop"
                " it with 'immediate', or change it with 'immediate', 'graceful' or 'handover'"
            )


def require_one_table(name: str, queries: Sequence[Query]) -> None:
    """Raise QueryError unless the results of old versions and of the last, new one fit into one table."""
    try:
        pa.unify_schemas([query.output_schema for query in queries])
    except pa.ArrowException as problem:
        raise QueryError(
            f"query {name!r}: the results of the new version do not fit into one table with those of the old one"
            f" ({problem}); select the column under another name"
        ) from problem


class VersionHost(Protocol):
    """The engine that runs the versions of many lineages.

    position  the position of the next arrival
    """

    @property
    def position(self) -> int: ...

    def make(self, version: Version) -> Version:
        """Return a new version of a query, ready to run. Raises QueryError if it does not fit the streams."""

    def drain(self, version: Version, position: int) -> None:
        """Begin to drain a version at a position."""

    def note(
        self, position: int, name: str, version: int, event: str, complete_from: int, *, by_itself: bool = False
    ) -> None:
        """Add an element to the history; `by_itself` marks an event that follows from earlier elements."""


@dataclass(eq=False)
class Succession:
    """A change that is under way: an old version, a new one, the kind, and the position."""

    old: Version
    new: Version
    how: How
    at: int

    @property
    def change(self) -> ChangeKind:
        """The kind as its properties."""
        return CHANGES[self.how]


class Lineage:
    """The versions of a query, and its unfinished changes. Positions of elements never go back.

    An element may be given ahead of its position. Its effect depends on the state at its position: whether a waiting
    version has begun, and whether the query has ended (`start_waiting`).
    """

    def __init__(self, host: VersionHost, name: str, version: Version) -> None:
        self.host = host
        self.name = name
        self.successions: list[Succession] = []
        self._versions = [version]
        self.paused = False
        """Whether it has been stopped by a pause: its rows are kept, and it may resume."""
        self._last_element = version.start or 0

    def replace(self, versions: Sequence[Version], successions: Sequence[Succession]) -> None:
        """Replace the versions, oldest first and at least one, and the unfinished changes."""
        self._versions, self.successions = list(versions), list(successions)

    @property
    def query(self) -> Query:
        """The query of the newest version."""
        return self._versions[-1].query

    @property
    def live(self) -> list[Version]:
        """The versions that may still have results, oldest first."""
        return [version for version in self._versions if version.ended is None]

    @property
    def versions(self) -> list[Version]:
        """All versions, oldest first."""
        return list(self._versions)

    @property
    def state(self) -> State:
        """The state of the query.

        "scheduled"  the start is still to come      "running"   one version has results
        "draining"   the last results are to come    "changing"  a version replaces another one
        "paused"     it may resume                   "stopped"   no more results can come
        """
        now = self.host.position
        live = [version for version in self.live if version.start is not None or self._latest_start(version) is None]
        if not live:
            return "paused" if self.paused else "stopped"
        if len(live) > 1:
            return "changing"
        (only,) = live
        if only.start is None or only.start > now:
            return "scheduled"
        return "draining" if only.drain is not None and only.drain.at <= now else "running"

    @property
    def complete_from(self) -> int:
        """The position from which the newest version has all results.

        That of its start, unless it started warm on rows that were all kept: then the position of the first of them.
        """
        return self._versions[-1].complete_from

    # Control elements at positions that are not past

    def stop_at(self, how: Stop, position: int, event: str = "") -> None:
        """Stop all versions at a position. Raises InputError for a drain that can never end.

        event   its name in the history, if that is not the one of the stop
        """
        if how == "drain":
            for version in self.live:
                require_ends(self.name, version.query, "the drain")
        self._drop_unbegun(position)
        for version in self.live:
            if version.start is not None and version.start > position:
                version.ended = version.start = position
            elif how == "immediate":
                version.stops(position, self._reached())
            else:
                self.host.drain(version, position)
        self.paused = False
        self._note(event or how + " stop", position)

    def pause_at(self, position: int, why: str = "") -> None:
        """Stop all versions at a position, until `continue_at`. The caller keeps the rows of their windows.

        why   as in `change_at`
        """
        self.stop_at("immediate", position, why + "pause")
        self.paused = True

    def continue_at(self, position: int, why: str = "") -> None:
        """Start the newest version again at a position, warm; `why` as in `change_at`."""
        self._versions = [*self._versions, self._made(self._versions[-1].number + 1, self.query, position, True)]
        self.paused = False
        self._note(why + "resume", position)

    def change_at(self, query: Query, how: How, position: int, why: str = "") -> None:
        """Replace the newest version at a position; older ones stop or drain as the kind says.

        why   precedes the element in the history

        Where all versions have stopped before the position, the new one starts there, fresh. Raises InputError for a
        drain that can never end; QueryError for a query that does not fit the streams, or whose results cannot be in
        one table with those of the old one. Then nothing has changed.
        """
        kind, live = CHANGES[how], self.live
        starts = all(version.stop is not None and version.stop <= position for version in live)
        if kind.drains and not starts:
            for version in live:
                require_ends(self.name, version.query, repr(how))
        require_one_table(self.name, [*(version.query for version in live), query])
        number = self._versions[-1].number + 1
        warm = kind.warm and (self.paused or not starts)
        new = self._made(number, query, None if kind.waits and not starts else position, warm)
        going_on = (version for version in live if version.stop is None or version.stop > position)
        new.replaces = tuple(going_on) if warm else ()
        self._drop_unbegun(position)
        for older in live:
            if older.start is not None and older.start > position and older is not live[0]:
                older.ended = older.start = position  # it has not begun, and the new version takes its place
        for old in () if starts else self.live:
            link = Succession(old, new, how, position)
            self.successions = [*self.successions, link]
            if not kind.at_result:
                self.end(link, position)
        self._versions, self.paused = [*self._versions, new], False
        self._note(f"{why}{how} change", position)
        if starts and not warm and (kind.waits or kind.warm):
            self._note_start(new)

    def _note_start(self, version: Version) -> None:
        """Add to the history that a version starts by itself, after an element that did not start it."""
        assert version.start is not None
        self.host.note(version.start, self.name, version.number, "fresh start", version.start, by_itself=True)

    def finish(self, position: int) -> None:
        """End all versions at the end of the input."""
        for version in self.live:
            version.ended = position if version.start is None else max(version.start, position)
        self.paused = False
        self._note("end of the input", position)

    def _drop_unbegun(self, position: int) -> None:
        """Drop the versions that have not begun at the position of an element, if it is that of the next arrival."""
        if position <= self.host.position:
            for version in self.live:
                if version.start is None:
                    version.ended = version.start = position

    def _latest_start(self, version: Version) -> int | None:
        """Return the position at which an element drops a version that has not begun, None if none is to come."""
        bounds = [version.stop, None if version.drain is None else version.drain.at]
        bounds += [link.at for link in self.successions if link.old is version]
        return min((bound for bound in bounds if bound is not None), default=None)

    def _made(self, number: int, query: Query, start: int | None, warm: bool) -> Version:
        """Return a version of the query; see `VersionHost.make`."""
        return self.host.make(Version(number, query, start, warm, 0))

    def _note(self, event: str, position: int) -> None:
        self._last_element = position
        self.host.note(position, self.name, self._versions[-1].number, event, self.complete_from)

    def _reached(self) -> int:
        """Return the position up to which a stop ends a version at once."""
        return self.host.position

    # As time goes on

    def at_result(self, new: Version, position: int, note: Callable[[Version], None] = lambda version: None) -> None:
        """Stop or drain the versions that wait for the first result of a new one, which came at a position.

        note   is called with each of them, to find out whether it has ended
        """
        for link in [link for link in self.successions if link.new is new and link.change.at_result]:
            self.end(link, position)
            note(link.old)

    def start_waiting(self) -> list[Version]:
        """Start the versions whose predecessors have all ended, and return them.

        Drops a version that has not begun where an element given ahead stops or replaces it. Starts the version of a
        change that finds that the query has ended at the position of the change.
        """
        started = []
        for new in {link.new: None for link in self.successions}:
            links = [link for link in self.successions if link.new is new]
            ends, latest = [link.old.ended for link in links], self._latest_start(new)
            known = [end for end in ends if end is not None]
            if new.start is not None and not new.warm:
                continue
            if len(known) == len(ends) and all(link.old.ended_before(link.at) for link in links):
                new.start = new.complete_from = links[0].at
                new.warm, new.replaces = False, ()
                self.successions = [link for link in self.successions if link.new is not new]
                self._note_start(new)
                started.append(new)
            elif new.start is not None or not links[0].change.waits:
                continue
            elif len(known) == len(ends) and (latest is None or all(link.old.ended_before(latest) for link in links)):
                new.start = new.complete_from = max(known)
                self._note_start(new)
                started.append(new)
            elif latest is not None and latest <= self.host.position:
                new.ended = new.start = latest
        return started

    def end(self, link: Succession, position: int) -> None:
        """Stop or drain the old version of a change at a position."""
        # A handover lets windows that have begun end: the new version has not seen them whole.
        groups = link.old.query.aggregation
        if link.change.drains or (link.change.warm and groups is not None and groups.window is not None):
            self.host.drain(link.old, position)
        else:
            link.old.stops(position, self.host.position)
        # A version that has not begun may still be dropped at the position of the change.
        if link.change.at_result and link.old.start is not None:
            self.successions = [other for other in self.successions if other is not link]
