"""One query of an engine: its versions, the control elements that it gets, and the merger of what its versions find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from eddy.queries.changes import CHANGES, Change, How
from eddy.queries.family import Family, Found
from eddy.queries.version import Positions, Version
from eddy.query.query import Query
from stairs.errors import InputError, QueryError
from stairs.graph import WindowKind

if TYPE_CHECKING:
    from eddy.queries.engine import Engine
    from eddy.queries.sources import Push

State = Literal["scheduled", "running", "draining", "changing", "stopped"]
Stop = Literal["immediate", "drain"]


@dataclass(eq=False)
class _Succession:
    """A change that is under way: an old version, a new one, and the kind."""

    old: Version
    new: Version
    change: Change


class RunningQuery:
    """A query that an `Engine` runs; `Engine.start` returns it."""

    def __init__(self, engine: Engine, name: str, version: Version) -> None:
        self._engine = engine
        self.name = name
        self._versions = [version]
        self._successions: list[_Succession] = []
        self._held: dict[Version, list[pa.Table]] = {}
        self._last_element = version.start or 0

    def __repr__(self) -> str:
        return f"RunningQuery({self.name!r}, {self.state}, {self.query!r})"

    @property
    def query(self) -> Query:
        """The query of the newest version."""
        return self._versions[-1].query

    @property
    def live(self) -> list[Version]:
        """The versions that may still have results, oldest first."""
        return [one for one in self._versions if one.ended is None]

    @property
    def versions(self) -> list[Version]:
        """All versions, oldest first."""
        return list(self._versions)

    @property
    def state(self) -> State:
        """Where the query is in its life.

        "scheduled"  its start is to come          "running"   one version has results
        "draining"   its last results are to come  "changing"  a version replaces another one
        "stopped"    it has no more results
        """
        live, now = self.live, self._engine.position
        if not live:
            return "stopped"
        if len(live) > 1:
            return "changing"
        (one,) = live
        if one.start is None or one.start > now:
            return "scheduled"
        return "draining" if one.drain is not None and one.drain.at <= now else "running"

    @property
    def complete_from(self) -> int:
        """The position from which the newest version has all results.

        That of its start, unless it started warm on rows that were all kept: then the position of the first of them.
        """
        return self._versions[-1].complete_from

    # Control elements

    def stop(self, how: Stop = "immediate", at: int | None = None) -> None:
        """Stop the query at a position, by default now.

        how   "immediate": no result with a component at or after the position. "drain": all results with a component
              before it, and no others; the query then stops by itself, when no such result can come any more
        at    position of the arrival before which it takes effect; None: the next arrival

        Stops all versions of a change that is under way. A version that waits for its start does not start. Raises
        InputError for a position before one of an earlier element, and for a drain that can never end, because a stream
        has an UNBOUNDED window. Then nothing has changed.
        """
        if how not in ("immediate", "drain"):
            raise InputError(f"stop: how is 'immediate' or 'drain', not {how!r}")
        with self._engine.call():
            self._stop(how, self._element(at))

    def _stop(self, how: Stop, position: int) -> None:
        if how == "drain":
            for one in self.live:
                self._require_an_end(one.query, "the drain")
        for one in self.live:
            if one.start is None or one.start > position:
                one.ended = one.start = position
            elif how == "immediate":
                # Results that are held are given out with the next push.
                one.stops(position, -1 if self._held else self._engine.position)
            else:
                self._engine.drain(one, position)
        self._note(how + " stop", position)

    def change(self, query: Query, how: How = "handover", at: int | None = None) -> None:
        """Replace the query by another one, over the same streams of the engine or others of them.

        how   `eddy.queries.changes` lists the kinds; docs/guide/queries.md says what each guarantees
        at    position of the arrival before which it takes effect; None: the next arrival

        A change during a change replaces the newest version; the older ones stop or drain as the old version does.
        Raises InputError for an unknown kind, a position before one of an earlier element, a query that has stopped and
        a drain that can never end; QueryError for a query that does not fit the streams, or whose results cannot be in
        one table with those of the old one. Then nothing has changed.
        """
        if how not in CHANGES:
            raise InputError(f"change: how is one of {', '.join(map(repr, CHANGES))}, not {how!r}")
        with self._engine.call():
            self._change(query, how, at)

    def _change(self, query: Query, how: How, at: int | None) -> None:
        kind, live = CHANGES[how], self.live
        if not live:
            raise InputError(f"query {self.name!r} has stopped; start it again")
        position = self._element(at)
        if kind.drains:
            for one in live:
                self._require_an_end(one.query, f"{how!r}")
        try:
            pa.unify_schemas([*(one.query.output_schema for one in live), query.output_schema])
        except pa.ArrowException as problem:
            raise QueryError(
                f"query {self.name!r}: the results of the new version do not fit into one table with those of the old"
                f" one ({problem}); select the column under another name"
            ) from problem
        new = self._engine.make(len(self._versions), query, None if kind.waits else position, kind.warm)
        for one in live:
            if one.start is None or (one.start > position and one is not live[0]):
                one.ended = one.start = position  # it has not begun, and the new version takes its place
        for one in self.live:
            self._successions.append(_Succession(one, new, kind))
            if not kind.at_result:
                self._end(self._successions[-1], position)
        self._versions.append(new)
        self._note(f"{how} change", position)

    def _element(self, at: int | None) -> int:
        """Return the position of a control element, and note it. Raises InputError for one that cannot be."""
        position = self._engine.checked_position(self.name, at)
        if position < self._last_element:
            raise InputError(
                f"query {self.name!r}: an element at position {self._last_element} was given before; the next one comes"
                " at that position or later"
            )
        return position

    def _require_an_end(self, query: Query, what: str) -> None:
        endless = [
            stream.name
            for stream, window in zip(query.streams, query.graph.windows, strict=True)
            if window.kind == WindowKind.UNBOUNDED
        ]
        if endless:
            raise InputError(
                f"query {self.name!r}: {what} would never end, because stream {endless[0]!r} has an UNBOUNDED window;"
                " stop it with 'immediate', or change it with 'immediate', 'graceful' or 'handover'"
            )

    def _note(self, event: str, position: int) -> None:
        self._last_element = position
        self._engine.note(position, self.name, self._versions[-1].number, event, self.complete_from)

    # Its results

    def push(self, push: Push, found: Mapping[Family, Found]) -> pa.Table:
        """Return the results of a push, from what the families found in it."""
        for one in self.live:
            one.note(push)
        parts: dict[Version, tuple[pa.Table, Positions]] = {}
        owning = [one for one in self._versions if one.ended is None or one.ended > max(push.first, one.start or 0)]
        for one in reversed([one for one in owning if one.start is not None]):
            parts[one] = one.results(found[one.family])
            # The first result of a new version may decide when an old one ends, so new ones come first here.
            if len(parts[one][1]):
                for link in [link for link in self._successions if link.new is one and link.change.at_result]:
                    self._end(link, int(parts[one][1][0]))
                    link.old.note(push)
        for one in self._start_waiting():
            parts[one] = one.results(found[one.family])
        return self._merged(parts)

    def _start_waiting(self) -> list[Version]:
        """Start the versions whose predecessors have all ended, and return them."""
        started = []
        for new in {link.new: None for link in self._successions if link.change.waits and link.new.start is None}:
            ends = [link.old.ended for link in self._successions if link.new is new]
            if new.ended is None and None not in ends:
                new.start = new.complete_from = max(end for end in ends if end is not None)
                self._engine.note(new.start, self.name, new.number, "fresh start", new.start)
                started.append(new)
        return started

    def _end(self, link: _Succession, position: int) -> None:
        """Have the old version of a change stop or drain from a position on."""
        if link.change.drains:
            self._engine.drain(link.old, position)
        else:
            link.old.stops(position, self._engine.position)
        if link.change.at_result:
            self._successions.remove(link)

    def _merged(self, parts: Mapping[Version, tuple[pa.Table, Positions]]) -> pa.Table:
        """Return the results of all versions in the order in which they are given out.

        That is the order of their last components. Results of a version that is held wait until the old ones have
        ended, and come before the next arrival.
        """
        tables, keys = [], []
        for version in self._versions:
            release = self._release(version)
            if release is None:
                self._held.setdefault(version, []).append(parts[version][0])
                continue
            before = 2 * release - 1  # after the results of earlier arrivals, before those of this one
            for table in self._held.pop(version, []):
                tables.append(table)
                keys.append(np.full(table.num_rows, before))
            if version in parts:
                table, places = parts[version]
                tables.append(table)
                keys.append(np.maximum(2 * places, before))
        pending = {link.new for link in self._successions if link.old.ended is None}
        self._successions = [link for link in self._successions if link.new in pending]
        out = pa.concat_tables(tables or [self.query.output_schema.empty_table()], promote_options="default")
        return out.take(pa.array(np.argsort(np.concatenate(keys), kind="stable"))) if len(tables) > 1 else out

    def _release(self, version: Version) -> int | None:
        """Return the position from which the results of a version are given out, None if they wait."""
        ends = [link.old.ended for link in self._successions if link.new is version and link.change.holds]
        return None if None in ends else max((end for end in ends if end is not None), default=0)
