"""One query of an engine: the control elements that it gets, and the merger of what its versions find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from eddy.ingest.clock import Clock
from eddy.log import log_endless
from eddy.queries.alone import Output, check_change, check_drain
from eddy.queries.changes import CHANGES, How
from eddy.queries.combinations import PushedCombinations, VersionRows
from eddy.queries.family import Family
from eddy.queries.history import Event
from eddy.queries.joins import Joins
from eddy.queries.lineage import Lineage, State, Stop, Succession, VersionHost
from eddy.queries.lone_join import LoneJoin
from eddy.queries.sources import EnginePush, Sources
from eddy.queries.version import Version
from eddy.queries.version_shares import VersionShares
from eddy.query.query import Query
from eddy.results.failed_output import FailedOutput
from eddy.results.late_output import LateOutput
from eddy.results.side_rows import LateRows
from eddy.show.html import drawn
from eddy.show.planned import planned
from eddy.uncopied import Uncopied
from stairs.errors import InputError

Finding = Mapping[Family, tuple[PushedCombinations, VersionShares]]
"""Family -> the combinations of its join in a push, and the share of each version."""


class QueryHost(VersionHost, Protocol):
    """The part of an `Engine` that a query, a description and a snapshot need; the engine documents all of it."""

    sources: Sources
    clock: Clock | None
    options: dict[str, Any]
    share: bool
    joins: Joins
    newest: list[int]
    late_output: LateOutput

    @property
    def queries(self) -> dict[str, RunningQuery]:
        """The queries by name."""

    @property
    def late_counts(self) -> dict[str, int]:
        """The number of late rows of each stream."""

    @property
    def watermark(self) -> int | None:
        """The watermark in ticks."""

    @property
    def finished(self) -> bool:
        """Whether the input has ended."""

    @property
    def nbytes(self) -> int:
        """Bytes of all state."""

    def history(self) -> pa.Table:
        """Return the control elements of all queries."""

    def give(self, query: RunningQuery, element: Callable[[], None]) -> None:
        """Carry out a control element of a query, in whole or not at all."""

    def pause(self, query: RunningQuery, asked: Query, element: Callable[[], None]) -> None:
        """Carry out a control element that pauses a query."""

    def checked_position(self, name: str, at: int | None) -> int:
        """Return the position of a control element. Raises InputError for one in the past."""

    def make(self, version: Version, output: Output = "append") -> Version:
        """Return a new version of a query, with a join that finds its results."""

    def groups_of(self, query: RunningQuery) -> pa.Table:
        """Return the open windows of a query."""

    def failed_of(self, query: RunningQuery) -> pa.Table:
        """Return the failed rows of a query, and store none."""

    def change_plan(self, join: Family | LoneJoin, plan: str, store: Iterable[str] | None) -> None:
        """Run a join by another plan from now on."""

    def resume_at(
        self, position: int, newest: list[int], late: LateRows, history: Sequence[Event], finished: bool
    ) -> None:
        """Continue at a position."""

    def resume(self, queries: Sequence[RunningQuery]) -> None:
        """Continue with these queries."""


class RunningQuery(Lineage, Uncopied):
    """A query that an `Engine` runs; `Engine.start` returns it."""

    _no_copy = "a RunningQuery: it belongs to its Engine, whose snapshot has it"

    def __init__(self, engine: QueryHost, name: str, version: Version, output: Output = "append") -> None:
        super().__init__(engine, name, version)
        self._engine = engine
        self.output: Output = output
        """Whether each result comes once, "append", or a changelog."""
        self.ordered = version.ordered
        """Whether the results of one arrival have a defined order."""
        self._held: dict[Version, list[pa.Table]] = {}
        self.n_results = self.number = 0
        """The results so far, and its place among the queries that have started."""
        self.failures = FailedOutput(version.query)
        """The failed rows of all versions, which are treated as the newest query says."""

    def __repr__(self) -> str:
        return f"RunningQuery({self.name!r}, {self.state}, {self.n_results:,} results, {self.query!r})"

    def _repr_html_(self) -> str:
        title = f"query {self.name}: {self.state}, version {self.versions[-1].number}, {self.n_results:,} results"
        return drawn(title, repr(self.query), [planned(self.query)])

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
        self._engine.checked_position(self.name, at)  # also ends what an exception interrupted
        for version in self.live if how == "drain" else ():
            check_drain(self.name, version.query, "a drain")
        self._engine.give(self, lambda: self.stop_at(how, self._element(at)))

    def pause(self, at: int | None = None) -> None:
        """Stop the results of the query at a position, and keep the rows in its windows, so that it can resume.

        Results with a component at or after the position do not come, as after `stop`; meanwhile no join runs for the
        query. Raises InputError for a query that cannot start warm (docs/guide/queries.md), such as a changelog, and
        for one that has stopped; and as `stop`.
        """
        self._pause(at, "")

    def _pause(self, at: int | None, why: str) -> None:
        position = self._engine.checked_position(self.name, at)
        going_on = [version for version in self.live if version.stop is None or version.stop > position]
        if not going_on or any(version.drain is not None for version in going_on):
            state = "stops or drains by then" if self.live else f"is {self.state}"
            raise InputError(f"query {self.name!r} {state}; it has nothing to pause")
        self._engine.pause(self, self.query, lambda: self.pause_at(self._element(at), why))

    def resume(self, at: int | None = None) -> None:
        """Continue a query that was paused: results whose last component arrives from the position on.

        Their other components may have come before the pause or during it. Raises InputError for a query that is not
        paused, and as `stop`.
        """
        self._resume(at, "")

    def _resume(self, at: int | None, why: str) -> None:
        self._engine.checked_position(self.name, at)  # also ends what an exception interrupted
        if not self.paused:
            raise InputError(f"query {self.name!r} is {self.state}, not paused")
        self._engine.give(self, lambda: self.continue_at(self._element(at), why))

    def change(self, query: Query, how: How = "handover", at: int | None = None) -> None:
        """Replace the query by another one, over the same streams of the engine or others of them.

        how   `eddy.queries.changes` lists the kinds; docs/guide/queries.md says what each guarantees
        at    position of the arrival before which it takes effect; None: the next arrival

        A change during a change replaces the newest version; the older ones stop or drain as the old version does. A
        query that has stopped at the position starts there again, fresh. Raises InputError for an unknown kind, a
        position before one of an earlier element, a drain that can never end, and a stopped query that the engine has
        forgotten or whose name another one has; QueryError for a query that does not fit the streams, or whose results
        cannot be in one table with those of the old one. Then nothing has changed.
        """
        self._change(query, how, at, "")

    def _change(self, query: Query, how: How, at: int | None, why: str) -> None:
        if how not in CHANGES:
            raise InputError(f"change: how is one of {', '.join(map(repr, CHANGES))}, not {how!r}")
        position = self._engine.checked_position(self.name, at)
        if not self.live and self._engine.queries.get(self.name) is not self:
            raise InputError(
                f"query {self.name!r} has stopped, and the engine has forgotten it or has another one of this name"
            )
        for version in [live for live in self.live if live.stop is None or live.stop > position]:
            check_change(self.name, version.query, query, how, self.output, self._engine.sources)

        def element() -> None:
            self.change_at(query, how, self._element(at), why)
            self.failures.follow(query)

        self._engine.give(self, element)
        if not self._engine.options.get("bounded"):
            log_endless(f"query {self.name!r}", query.endless)

    def restart(self, at: int | None = None) -> None:
        """Start the query afresh: from the position on, its results are those of rows from there on.

        As `change` by the same query with how="immediate". A query that has stopped starts again; one that had stopped
        before a snapshot is not in the engine that is restored from it.
        """
        self.change(self.query, "immediate", at)

    def step(self, query: Query | None, how: How, direction: str) -> None:
        """Take a step of load shedding, before the next arrival; None is a pause. See `eddy.queries.shedding`."""
        why = f"step {direction}, "
        if query is None:
            self._pause(None, why)
        elif self.paused:
            self._resume(None, why)
        else:
            self._change(query, how, None, why)

    @property
    def overlaps(self) -> bool:
        """Whether a version runs beside another one, or waits for its end, because a change is under way."""
        now = self._engine.position
        return sum(version.start is None or version.start <= now for version in self.live) > 1

    @property
    def given_ahead(self) -> bool:
        """Whether an element is to take effect at a later arrival than the next one."""
        return self._last_element > self._engine.position

    def _made(self, number: int, query: Query, start: int | None, warm: bool) -> Version:
        version = Version(number, query, start, warm, 0, ordered=self.ordered)
        return self._engine.make(version, self.output)

    def _element(self, at: int | None) -> int:
        """Return the position of a control element. Raises InputError for one that cannot be."""
        position = self._engine.checked_position(self.name, at)
        if position < self._last_element:
            raise InputError(
                f"query {self.name!r}: an element at position {self._last_element} was given before; the next one comes"
                " at that position or later"
            )
        return position

    def _reached(self) -> int:
        # Results that are held are given out with the next push.
        return -1 if self._held else self._engine.position

    @property
    def state(self) -> State:
        """Where the query is in its life; see `eddy.queries.lineage`."""
        self._engine.position  # noqa: B018  # it ends what an exception interrupted
        return super().state

    def groups(self) -> pa.Table:
        """Return the open windows of a query with aggregates as they are now, oldest version first: early results.

        Raises InputError for a query without aggregates.
        """
        return self._engine.groups_of(self)

    def failed(self) -> pa.Table:
        """Return the failed rows of all versions kept since the last call, and remove them; see `Runtime.failed`.

        A stream's filter is asked for joined rows here, so these include rows of kind "filter".
        """
        return self._engine.failed_of(self)

    def last_failed(self) -> pa.Table | None:
        """Return the rows that `failed` removed since the last push, None if it removed none."""
        return self.failures.last_table()

    @property
    def failed_count(self) -> int:
        """The number of failed rows since the start, kept or not."""
        return self.failures.count

    @property
    def last_element(self) -> int:
        """The position of the newest control element."""
        return self._last_element

    @property
    def held_bytes(self) -> int:
        """Bytes of the results that wait."""
        return sum(table.nbytes for tables in self._held.values() for table in tables)

    @property
    def held(self) -> dict[Version, pa.Table]:
        """Version -> its results that wait until older versions have ended."""
        return {version: pa.concat_tables(tables) for version, tables in self._held.items() if tables}

    def resume_with(
        self,
        *,
        versions: Sequence[Version],
        successions: Sequence[Succession],
        held: Mapping[Version, pa.Table],
        last_element: int,
        n_results: int,
        failed: LateRows,
        paused: bool,
    ) -> None:
        """Continue where another one was."""
        self.paused = paused
        self.replace(versions, successions)
        self._held = {version: [table] for version, table in held.items()}
        self._last_element, self.n_results, self.failures.rows = last_element, n_results, failed

    # Its plan

    @property
    def plan(self) -> str:
        """The plan of the join of the newest version, as text. Raises InputError once the query has stopped."""
        return self._engine.joins.plan_of(self._join())

    def transition(self, plan: str, store: Iterable[str] | None = None) -> None:
        """Run the join of the newest version by another plan from now on, on live state; queries that share it follow.

        plan   as in `Runtime`, over the streams of the query, such as "(R S) T"
        store  as in `Runtime.transition`, for a join with SteMs of its own

        Results do not change. Raises InputError once the query has stopped and for states of a join that has none, and
        PlanError for a plan that is none.
        """
        self._engine.change_plan(self._join(), plan, store)

    def _join(self) -> Family | LoneJoin:
        self._engine.position  # noqa: B018  # it ends what an exception interrupted
        if not self.live:
            raise InputError(f"query {self.name!r} {'is paused' if self.paused else 'has stopped'}: it has no plan")
        return self._engine.joins.join_of(self.live[-1])

    # Its results

    def begin(self, push: EnginePush) -> None:
        """Take notice of a push, before its results."""
        for version in self.live:
            version.note(push)

    def decide(self, push: EnginePush, finds: Finding) -> dict[Version, VersionRows]:
        """Stop, drain and start the versions for which a push decides it; return what they get of shared joins.

        Joins of their own take the push afterwards, since the start of a version with such a join may be decided here.
        """
        readers, parts = self._engine.joins.readers, dict[Version, VersionRows]()
        # The first result of a new version may decide when an old one ends, so new ones come first here.
        for version in reversed(self._giving(push)):
            if version in readers:
                parts[version] = finds[readers[version].family][1].owned(readers[version], push)
                if len(parts[version].places):
                    self.at_result(version, int(parts[version].places[0]), lambda old: old.note(push))
        while started := self.start_waiting():
            for version in started:
                version.note(push)
                reader = readers.get(version)
                if parts.pop(version, None) is not None and reader is not None and reader.grouping is not None:
                    reader.grouping.roll_back()  # it has taken the push as one that starts warm
                if reader is not None and version.gives_from(push.first):
                    shares = reader.family.shares(push.first, finds[reader.family][0], [reader])
                    parts[version] = shares.owned(reader, push)
        return parts

    def results(
        self,
        push: EnginePush,
        finds: Finding,
        alone: Mapping[Version, VersionRows],
        decided: Mapping[Version, VersionRows] | None,
    ) -> tuple[pa.Table, list[pa.RecordBatch]]:
        """Return the results of a push, and rows of `FAILED`.

        alone    what versions with joins of their own give
        decided  what `decide` returned, None if no version changes
        """
        giving = self._giving(push)
        if decided is None:
            (version,) = giving
            if version in alone:
                return alone[version].table, list(alone[version].failed)
            reader = self._engine.joins.readers[version]
            shares = finds[reader.family][1]
            if reader.grouping is None:
                return shares.table(reader), list(shares.failed(reader))
            owned = shares.owned(reader, push)
            return owned.table, list(owned.failed)
        parts = {**decided, **{version: alone[version] for version in giving if version in alone}}
        failed = [batch for version in self._versions if version in parts for batch in parts[version].failed]
        return self._merged(parts), failed

    def _giving(self, push: EnginePush) -> list[Version]:
        """Return the versions that may have results in a push, oldest first."""
        return [version for version in self._versions if version.gives_from(push.first)]

    @property
    def rests(self) -> bool:
        """Whether a push without results of the query leaves it as it is: it has one version, which goes on."""
        return len(self.live) == 1 and not self.may_change and not self.failures.unread

    @property
    def may_change(self) -> bool:
        """Whether a push may change the versions of the query, or the results that wait."""
        return bool(self.successions or self._held) or any(
            version.stop is not None or version.drain for version in self.live
        )

    def _merged(self, parts: Mapping[Version, VersionRows]) -> pa.Table:
        """Return the results of all versions in the order in which they are given out.

        That is the order of their last components. Results of a version that is held wait until the old ones have
        ended, and come before the next arrival.
        """
        tables, keys, held = [], [], dict(self._held)
        for version in self._versions:
            release = self._release(version)
            if release is None:
                if version in parts and len(parts[version].table):
                    held[version] = [*held.get(version, []), parts[version].table]
                continue
            before = 2 * release - 1  # after the results of earlier arrivals, before those of this one
            for table in held.pop(version, []):
                tables.append(table)
                keys.append(np.full(table.num_rows, before))
            if version in parts:
                table, places, _ = parts[version]
                tables.append(table)
                keys.append(np.maximum(2 * places, before))
        self._held = held
        pending = {link.new for link in self.successions if link.old.ended is None}
        self.successions = [link for link in self.successions if link.new in pending]
        out = pa.concat_tables(tables or [self._schema.empty_table()], promote_options="default")
        return out.take(pa.array(np.argsort(np.concatenate(keys), kind="stable"))) if len(tables) > 1 else out

    @property
    def _schema(self) -> pa.Schema:
        """The columns of the results of the newest version."""
        lone_join = self._engine.joins.alone.get(self._versions[-1])
        return self.query.output_schema if lone_join is None else lone_join.output_schema

    def _release(self, version: Version) -> int | None:
        """Return the position from which the results of a version are given out, None if they wait."""
        ends = [link.old.ended for link in self.successions if link.new is version and link.change.holds]
        return None if None in ends else max((end for end in ends if end is not None), default=0)
