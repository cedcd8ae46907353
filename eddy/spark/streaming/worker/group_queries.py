"""The engine of a key group in a hub: the joins of all versions of its queries.

The position of a row is its micro-batch. The driver decides on versions; this module only assigns results to them. A
join begins empty if all its versions start fresh with the micro-batch. Otherwise a join begins with the rows of the
log, and is loaded again whenever it has to grow. So the state of the engine depends only on the log and on the versions
in force, and not on its earlier states. Some versions have a join alone (`lone_group_join.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.queries.family import Family, family_key
from eddy.queries.reader import Reader
from eddy.queries.sources import POSITION, Sources, one_batch
from eddy.queries.version import Drain, Version
from eddy.query.query import Query
from eddy.runtime import Runtime
from eddy.spark.partitioning.engine import EngineOptions
from eddy.spark.streaming.worker.lone_group_join import Given, LoneGroupJoin, Rows, Times
from eddy.spark.streaming.worker.tasks import VersionTask


def in_one_batch(rows: pa.Table) -> pa.RecordBatch | None:
    """Return rows of a micro-batch in one batch, None without any. Raises InputError if a column exceeds 2 GiB."""
    return one_batch(rows, "make smaller micro-batches")


class VersionResults(NamedTuple):
    """Results of a version in one push.

    key     of the version
    first   the micro-batch of the first component of each result, None for a version with a join alone
    failed  the rows that fail (`eddy.results.failed_rows.FAILED`)
    """

    key: str
    results: pa.Table
    first: npt.NDArray[np.int64] | None
    failed: tuple[pa.RecordBatch, ...] = ()


class GroupQueries:
    """The joins of one key group, which several versions may share."""

    def __init__(self, sources: Sources, options: EngineOptions, times: Times) -> None:
        self._sources, self._options, self._times = sources, options, times
        self._families: dict[Hashable, Family] = {}
        self._readers: dict[str, Reader[Family]] = {}
        self._alone: dict[str, LoneGroupJoin] = {}
        """By version with a join alone, its join."""

    def adapt(
        self,
        versions: Sequence[tuple[VersionTask, Query]],
        batch: int,
        rows: Callable[[], Rows],
        watermark: int | None,
        queries: Mapping[str, Query],
    ) -> bool:
        """Change to exactly these versions before a micro-batch; return whether rows of the log were loaded.

        rows       returns all rows of the log before the micro-batch, with their positions
        watermark  watermark after these rows
        queries    queries by the keys of versions, also of those that are replaced
        """
        wanted = {task.key for task, _ in versions}
        self._alone = {key: join for key, join in self._alone.items() if key in wanted}
        for key in [key for key in self._readers if key not in wanted]:
            del self._readers[key]
        kept = set(self._readers.values())
        for family in self._families.values():
            family.keep([candidate for candidate in family.readers if candidate in kept])
        self._families = {key: family for key, family in self._families.items() if family.readers}
        grown: set[Family] = set()
        begun: list[VersionTask] = []
        for task, query in versions:
            if task.alone:
                if task.key not in self._alone:
                    self._alone[task.key] = LoneGroupJoin(task, query, self._options, self._times)
                    if task.wakes or task.start < batch:
                        begun.append(task)
                continue
            if task.key not in self._readers and self._take_in(task, query, batch):
                grown.add(self._readers[task.key].family)
            member = self._readers[task.key]
            member.version.drain = None if task.drain is None else Drain(task.drain)
            if member.family.complete_from > (0 if task.warm else task.start):
                grown.add(member.family)
        for family in self._families.values():
            family.bounds_changed()
        if grown or begun:
            logged = rows()
            for family in grown:
                family.fill(logged, 0, watermark)
            for task in begun:
                replaced = [
                    LoneGroupJoin(old, queries[old.key], self._options, self._times)
                    for old in (task.replaces if task.start == batch else ())
                ]
                self._alone[task.key].begin(logged, batch, watermark, replaced)
        return bool(grown or begun)

    def _take_in(self, task: VersionTask, query: Query, batch: int) -> bool:
        """Add a version to its join; return whether the join has grown."""
        key = family_key(query)
        family = self._families.get(key)
        if family is None:
            options = {"strategy": self._options.strategy, "policy": self._options.new_policy()}
            family = self._families[key] = Family(self._sources, query, options)
        member = self._readers[task.key] = Reader(Version(task.number, query, task.start, task.warm, 0), family)
        if family.join(member):
            if len(family.readers) > 1:
                return True
            family.fill({}, batch)
        return not family.whole and (task.warm or task.start < batch)

    def push(self, rows: Mapping[str, pa.Table], batch: int, watermark: int | None) -> Iterator[VersionResults]:
        """Insert rows of a micro-batch; yield the results of each version with results.

        watermark   event time below which no later row comes
        """
        position, keys = pa.scalar(batch, pa.int64()), {holder: key for key, holder in self._readers.items()}
        batches = {name: in_one_batch(table) for name, table in rows.items()}
        placed = {
            name: batch.append_column(POSITION, pa.repeat(position, len(batch)))
            for name, batch in batches.items()
            if batch is not None
        }
        for family in self._families.values():
            combinations = family.push_rows(placed, watermark)
            shares = family.shares(batch, combinations)
            for member in family.readers:
                chosen, failed = shares.rows(member), shares.failed(member)
                if len(chosen) or failed:
                    yield VersionResults(keys[member], shares.table(member), combinations.first[chosen], failed)
        for key, join in self._alone.items():
            if not join.changing:
                yield from _given(key, join.push(batches, watermark))

    @property
    def changing(self) -> bool:
        """Whether a version has a changelog."""
        return any(join.changing for join in self._alone.values())

    @property
    def waits(self) -> bool:
        """Whether rows wait for a version until the watermark has passed them."""
        return any(join.waits for join in self._alone.values())

    def pass_rows(self, waited: Rows, rows: Rows, before: int | None, after: int | None) -> Iterator[VersionResults]:
        """Insert the rows of a micro-batch that the watermark passes, for the versions with changelogs.

        waited   rows of the log that the watermark passes on its way from `before` to `after`
        rows     rows of the micro-batch
        """
        for key, join in self._alone.items():
            if join.changing:
                yield from _given(key, join.pass_rows(waited, rows, before, after))

    # The runtimes, which are spilled to files while all other state stays in the process

    @property
    def _joins(self) -> list[Family | LoneGroupJoin]:
        return [*self._families.values(), *self._alone.values()]

    @property
    def runtimes(self) -> dict[Hashable, Runtime]:
        """The runtime of each join."""
        return {join: join.runtime for join in self._joins if join.runtime is not None}

    def release(self) -> None:
        """Release all runtimes; `resume` must return them before the next use."""
        for join in self._joins:
            join.runtime = None

    def resume(self, runtimes: Mapping[Hashable, Runtime]) -> None:
        """Take the runtimes back."""
        for join in self._joins:
            join.runtime = runtimes.get(join)

    def trim(self) -> None:
        """Free the states that the next pushes can rebuild; see `Runtime.trim`."""
        for runtime in self._runtimes:
            runtime.trim()

    # Figures

    @property
    def _runtimes(self) -> list[Runtime]:
        return list(self.runtimes.values())

    @property
    def spare_bytes(self) -> int:
        """Maximal number of bytes that `trim` frees."""
        return sum(runtime.spare_bytes for runtime in self._runtimes)

    @property
    def nbytes(self) -> int:
        """Bytes of all joins."""
        return sum(runtime.nbytes for runtime in self._runtimes)

    @property
    def plan(self) -> str:
        """The plans of all joins."""
        return "; ".join(runtime.plan for runtime in self._runtimes)

    @property
    def changes(self) -> int:
        """Changes of plans and of stored states."""
        return sum(runtime.changes for runtime in self._runtimes)

    @property
    def reason(self) -> str | None:
        """The reason of the newest change, None without a change."""
        return next((text for runtime in self._runtimes if (text := runtime.reason) is not None), None)

    @property
    def due(self) -> int | None:
        """The event time that the watermark must pass before there are results without further rows, None without."""
        return min((join.due for join in self._alone.values() if join.due is not None), default=None)

    @property
    def late_counts(self) -> dict[str, int]:
        """Number of rows that a join treated as late, by stream: late rows were separated before the join, and the
        joins of a table have the same stale changes."""
        counts = dict.fromkeys(self._sources.graph.names, 0)
        for runtime in self._runtimes:
            for name, count in runtime.late_counts.items():
                counts[name] = max(counts[name], count)
        return counts


def _given(key: str, given: Given) -> Iterator[VersionResults]:
    results, failed = given
    if len(results) or failed:
        yield VersionResults(key, results, None, failed)
