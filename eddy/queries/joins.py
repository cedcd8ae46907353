"""The joins that find the results of all versions, and the rows from which they begin.

A version takes its results from the join of its family (`eddy.queries.family`), or has a join of its own
(`eddy.queries.lone_join`). Families may share SteMs (`eddy.queries.sharing`).

An exception may come between any two statements. So a push has two steps. Before `settle` it has not happened, and
`roll_back` with an `AttributeSavepoint` of `parts` takes back what `prepare` has done. From `settle` on it has
happened: the caller repeats `settle` and `forget` until both are complete. The savepoint alone takes back a version
that `make` began, because the attributes of `parts` are replaced, and the lists and dicts in them are never modified.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from operator import is_not
from typing import Any, NamedTuple

import pyarrow as pa

from eddy.ingest.clock import Clock
from eddy.pipeline.records import Prepared
from eddy.queries.alone import Output, is_alone
from eddy.queries.bound import EngineBound
from eddy.queries.combinations import PushedCombinations, VersionRows
from eddy.queries.family import Family, family_key
from eddy.queries.grouping import Grouping
from eddy.queries.kept import KeptRows, KeptTable, KeptVersions, Need
from eddy.queries.lone_join import LoneJoin
from eddy.queries.reader import Reader
from eddy.queries.sharing import Sharing
from eddy.queries.sources import EnginePush, Sources
from eddy.queries.version import Version
from eddy.query.query import Query
from eddy.results.modes import UNORDERED
from eddy.routing.plan_change import ASKED_FOR, change_plan
from jisc.plan.tree import default_plan, read_plan
from stairs.errors import InputError
from stairs.graph import FOREVER


class Finds(NamedTuple):
    """The findings of the joins in a push that has not happened yet.

    combinations  family -> the combinations that its join found
    prepared      family with SteMs of its own -> its prepared push
    """

    combinations: dict[Family, PushedCombinations]
    prepared: dict[Family, Prepared]


class Joins:
    """The joins of the versions of all queries.

    sources  the streams of the engine
    options  options of the runtimes, as in `Runtime`
    share    whether families share SteMs
    clock    the clock of the engine; None without event times
    bound    the bound on bytes
    """

    def __init__(
        self, sources: Sources, options: Mapping[str, Any], share: bool, clock: Clock | None, bound: EngineBound
    ) -> None:
        self._sources, self._options, self._clock, self.bound = sources, options, clock, bound
        self._families: dict[Hashable, Family] = {}
        self.sharing = Sharing(sources, options, share, bound)
        """The SteMs that families share."""
        self.readers: dict[Version, Reader[Family]] = {}
        """Version -> the reader, which takes the version's results from those of its family."""
        self._grouped: tuple[object, list[Grouping]] = (None, [])
        self.alone: dict[Version, LoneJoin] = {}
        """Version without a family -> its own join."""
        self.kept = [_kept(sources, i) for i in range(len(sources.streams))]
        """The rows for later starts, for each stream."""
        self.beside = 0
        """Bytes of the rest of the engine: results that wait, and versions of tables."""
        self.paused: dict[str, dict[str, list[Need]]] = {}
        """Name of a paused query -> by stream, the rows that it needs to resume."""
        self._needed: tuple[tuple[object, ...], list[list[Need]]] = ((), [])
        """The joins and paused queries that need rows, and what they need, by stream."""

    @property
    def parts(self) -> list[object]:
        """The objects whose attributes are replaced when versions start, change and stop."""
        return [self, self.sharing, *self._families.values()]

    @property
    def families(self) -> list[Family]:
        """The joins of families."""
        return list(self._families.values())

    @property
    def groupings(self) -> list[Grouping]:
        """The groups of all versions."""
        # The readers are replaced, never modified.
        if self._grouped[0] is not self.readers:
            self._grouped = (
                self.readers,
                [reader.grouping for reader in self.readers.values() if reader.grouping is not None],
            )
        return self._grouped[1]

    def is_shared(self, version: Version) -> bool:
        """Return whether the results of a version are its rows among those of its family, and nothing else."""
        return version in self.readers and self.readers[version].grouping is None

    def bounds_changed(self) -> None:
        """Take notice that versions may have other bounds than before, or have ended."""
        for family in self._families.values():
            family.bounds_changed()

    # Versions

    def make(self, version: Version, output: Output, position: int) -> Version:
        """Make a join that finds the results of a new version, which owns them from its start on; return the version.

        position   that of the next arrival

        Raises QueryError for a query that does not fit the streams, and InputError for one that cannot start so.
        """
        query, start, warm = version.query, version.start, version.warm
        self._sources.check(query)
        self.count_bytes()
        if is_alone(query, output):
            lone = LoneJoin(version, output, self._sources, self._options, self.bound)
            self.serve_alone(lone)
            version.complete_from = self._kept_from(lone.names) if warm else (start or 0)
            self._check_room()
            return version
        new = family_key(query) not in self._families
        if version.ordered and query.aggregation is not None:
            raise InputError(UNORDERED)
        family, grown = self.serve(version)
        if new and not warm:
            with self.bound.at_work(lambda: family.own_bytes):
                family.fill({}, position)
        elif grown or (warm and (family.complete_from > self._kept_from(family.names) or not family.whole)):
            self._fill(family)
        version.complete_from = family.complete_from if warm else (start or 0)
        self._check_room()
        return version

    def keep_for(self, name: str, query: Query, output: Output) -> None:
        """Keep the rows with which a query can start warm while it is paused. Raises InputError if none can."""
        self.paused = {**self.paused, name: self.needs_to_resume(name, query, output)}

    def needs_to_resume(self, name: str, query: Query, output: Output) -> dict[str, list[Need]]:
        """Return by stream the rows that a query needs to start warm. Raises InputError for a query that cannot."""
        if output == "changelog":
            raise InputError(f"query {name!r}: a changelog has no pause, because rows leave its answer meanwhile")
        if is_alone(query, output):
            try:
                lone = LoneJoin(Version(0, query, None, True, 0), output, self._sources, self._options, self.bound)
            except InputError as problem:
                raise InputError(f"query {name!r} cannot pause, because it could not resume: {problem}") from None
            return {stream: lone.needs(stream) for stream in lone.names}
        family = Family(self._sources, query, self._options, self.bound)
        needs = {stream: family.needs(stream) for stream in family.names}
        counted = [stream for stream, asked in needs.items() if any(need.filter is not None for need in asked)]
        if counted:
            raise InputError(
                f"query {name!r} cannot pause: stream {counted[0]!r} has a Rows window and a filter, which would"
                " have to count its rows meanwhile; stop it and start it again, or give the stream a Range window"
            )
        return needs

    def serve(self, version: Version) -> tuple[Family, bool]:
        """Add a version to its family; return the family, and whether the family must be filled."""
        key = family_key(version.query)
        family = self._families.get(key) or Family(self._sources, version.query, self._options, self.bound)
        reader = Reader(version, family)
        self.readers = {**self.readers, version: reader}
        grown = family.join(reader)
        self.sharing.offer(family, self._families.values())
        self._families = {**self._families, key: family}
        return family, grown

    def serve_alone(self, lone: LoneJoin) -> None:
        """Make a join of its own for a version."""
        self.alone = {**self.alone, lone.version: lone}

    def resume(self) -> None:
        """Fill all families with the kept rows."""
        for family in self._families.values():
            self._fill(family)

    def _kept_from(self, names: Sequence[str]) -> int:
        """Return the position from which all rows of some streams are kept."""
        return max(self.kept[self._sources.index(name)].complete_from for name in names)

    def _fill(self, family: Family) -> None:
        """Fill a family anew with the kept rows."""
        rows = {name: self.kept[self._sources.index(name)].rows() for name in family.names}
        with self.bound.at_work(lambda: family.own_bytes):  # its new runtime takes the place of the one that it has
            family.fill(rows, self._kept_from(family.names), None if self._clock is None else self._clock.watermark)

    # Pushes

    def prepare(self, push: EnginePush) -> Finds:
        """Find what versions share in a push that has not happened; the caller then calls `settle` or `roll_back`."""
        self.count_bytes(push)
        kept = dict(zip(self._sources.graph.names, self.kept, strict=True))
        tables = self.sharing.prepare(push, self._families.values(), kept)
        combinations = {family: family.combinations_of(table) for family, table in tables.items()}
        prepared: dict[Family, Prepared] = {}
        for family in self._families.values():
            if family not in combinations:
                combinations[family], prepared[family] = family.prepare(push)
        return Finds(combinations, prepared)

    def count_bytes(self, push: EnginePush | None = None) -> None:
        """Count what the bound leaves before a push or a start. Raises CapacityError for rows that do not fit."""
        if self.bound.max_bytes is not None:
            batches = [] if push is None else push.batches
            self.bound.begin(self.nbytes + self.beside, sum(batch.nbytes for batch in batches if batch is not None))

    def _check_room(self) -> None:
        """Raise CapacityError if what a start has made is beyond the bound. O(joins) with a bound, O(1) without."""
        if self.bound.max_bytes is not None:
            self.bound.check(self.nbytes + self.beside, "the query")

    def prepare_alone(self, push: EnginePush) -> dict[Version, VersionRows]:
        """Compute what versions with joins of their own give in such a push, by the bounds that they have now."""
        return {version: lone.prepare(push, self.kept, self.alone) for version, lone in self.alone.items()}

    def settle(self, push: EnginePush, prepared: Mapping[Family, Prepared]) -> None:
        """Commit a prepared push. The call may be repeated."""
        self.sharing.settle()
        for family, prepared_push in prepared.items():
            family.settle(prepared_push)
        for grouping in self.groupings:
            grouping.settle()
        for lone in self.alone.values():
            lone.settle()
        for i, rows in enumerate(self.kept):
            rows.add(push, i)

    def roll_back(self) -> None:
        """Undo a prepared push that was not committed. The call may be repeated."""
        self.sharing.roll_back()
        for family in self._families.values():
            family.roll_back()
        for grouping in self.groupings:
            grouping.roll_back()
        for lone in self.alone.values():
            lone.roll_back()

    def forget_ended(self) -> None:
        """Drop versions that have ended, and joins without versions. It may be repeated. O(versions)."""
        self.readers = {version: reader for version, reader in self.readers.items() if version.ended is None}
        # A handover that is still to begin asks the versions that it replaces.
        asked = {old for version, lone in self.alone.items() if not lone.begun for old in version.replaces}
        self.alone = {v: lone for v, lone in self.alone.items() if v.ended is None or v in asked}
        for family in self._families.values():
            family.forget_ended()
        self._families = {key: family for key, family in self._families.items() if family.readers}

    def trim(self, watermark: int) -> None:
        """Drop the rows that no version needs any more. It may be repeated.

        watermark   no later row is older
        """
        # All three are replaced, never modified.
        needing = self._families, self.alone, self.paused
        if len(self._needed[0]) != len(needing) or any(map(is_not, self._needed[0], needing)):
            self._needed = needing, [self._needs(stream.name) for stream in self._sources.streams]
        for i, needs in enumerate(self._needed[1]):
            if i not in self._sources.versioned:
                self.kept[i].trim(needs, watermark)
        for versions in self.kept:
            if isinstance(versions, KeptVersions) and versions.is_long:
                oldest = (self.kept[i].oldest for i in range(len(self.kept)) if i not in self._sources.keyed)
                versions.forget(min(watermark, min(oldest, default=FOREVER)))

    def _needs(self, name: str) -> list[Need]:
        """Return which rows of a stream must be kept."""
        needs = [need for family in self._families.values() for need in family.needs(name)]
        needs += [need for lone in self.alone.values() for need in lone.needs(name)]
        needs += [need for by_stream in self.paused.values() for need in by_stream.get(name, ())]
        return needs + ([Need(self._sources.windows[name])] if name in self._sources.windows else [])

    def grouping_of(self, version: Version) -> Grouping | None:
        """Return the groups of a live version that takes results from a shared join, None without any."""
        reader = self.readers.get(version)
        return None if reader is None or version.ended is not None else reader.grouping

    def groups_of(self, version: Version) -> pa.Table:
        """Return the groups of a live version with aggregates as they are now."""
        if version in self.alone:
            return self.alone[version].runtime.groups()
        grouping = self.readers[version].grouping
        assert grouping is not None
        return grouping.now()

    # Plans

    def join_of(self, version: Version) -> Family | LoneJoin:
        """Return the join that finds the results of a live version."""
        return self.alone.get(version) or self.readers[version].family

    def plan_of(self, join: Family | LoneJoin) -> str:
        """Return the plan of a join as text."""
        if isinstance(join, LoneJoin):
            return join.runtime.plan
        shared = self.sharing.join(join)
        if shared is not None:
            return shared.strategy.tree.text(join.query.graph.names)
        if join.runtime is not None:
            return join.runtime.plan
        return (join.tree or default_plan(join.query.graph)).text(join.query.graph.names)

    def change_plan(self, join: Family | LoneJoin, plan: str, store: Iterable[str] | None) -> None:
        """Change the plan of a join.

        store   inner states to store, as in `Runtime.transition`; a join over shared SteMs has none

        Raises PlanError if `plan` is not a plan of the streams of the join, and InputError for states that it cannot
        have.
        """
        if join.runtime is not None:
            join.runtime.transition(plan, store=store)
            return
        assert isinstance(join, Family)
        if store is not None:
            raise InputError(
                "store: a join over shared SteMs has no stored states, and the first push decides whether SteMs are"
                " shared; leave store out, or make the engine with share=False"
            )
        shared = self.sharing.join(join)
        if shared is not None:
            change_plan(shared, read_plan(plan, join.query.graph), None, ASKED_FOR, False)
        else:  # the next push makes the join
            join.tree = read_plan(plan, join.query.graph)

    # Figures

    def figures(self, live: Mapping[str, Collection[Version]]) -> list[dict[str, Any]]:
        """Return figures of each join, as `Engine.metrics` describes them.

        live   by query its live versions
        """
        figures = []
        for family in self._families.values():
            sharing = {reader.version for reader in family.readers}
            figures.append(
                {
                    "streams": family.names,
                    "queries": [name for name, versions in live.items() if sharing.intersection(versions)],
                    "plan": self.plan_of(family),
                    "shared": family.shared,
                    "bytes": 0 if family.runtime is None else family.runtime.nbytes,
                    "seconds": self.sharing.seconds(family) + family.seconds,
                }
            )
        for version, alone in self.alone.items():
            figures.append(
                {
                    "streams": alone.names,
                    "queries": [name for name, versions in live.items() if version in versions],
                    "plan": alone.runtime.plan,
                    "shared": False,
                    "bytes": alone.runtime.nbytes,
                    "seconds": alone.seconds,
                }
            )
        return figures

    @property
    def shared_bytes(self) -> int:
        """Bytes of the SteMs that families share."""
        return self.sharing.nbytes

    @property
    def nbytes(self) -> int:
        """Bytes of all state: SteMs, stored states, groups, and the rows that are kept for later starts."""
        runtime_bytes = sum(family.runtime.nbytes for family in self._families.values() if family.runtime is not None)
        runtime_bytes += sum(lone.runtime.nbytes for lone in self.alone.values())
        groups, kept = sum(grouping.nbytes for grouping in self.groupings), sum(rows.nbytes() for rows in self.kept)
        return runtime_bytes + groups + self.shared_bytes + kept

    def check(self) -> None:
        """Raise StateError unless all invariants of all joins hold. O(state), for tests."""
        for family in self._families.values():
            if family.runtime is not None:
                family.runtime.check()
        for lone in self.alone.values():
            lone.runtime.check()
        if self.sharing.pool is not None:
            self.sharing.pool.check()


def _kept(sources: Sources, i: int) -> KeptRows:
    """Return the rows that are kept of an input, none yet."""
    if i in sources.versioned:
        assert sources.time_type is not None
        return KeptVersions(sources.versioned[i], sources.time_type)
    return KeptTable(sources.tables[i]) if i in sources.tables else KeptRows()
