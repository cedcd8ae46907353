"""The parts of a running query with branches, and how a push happens in them in whole or not at all.

A push goes through the gate once. Every inner join takes the arrivals of its streams in and gives results; then the
nodes of the query follow these results and put out the rows (`eddy.branches.tree`). The two records of
`eddy.push.transaction` have their counterparts here: while there is only the undo record, the push is taken back in all
parts; with the commit record, which is set in one statement, it is completed in all parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from eddy.branches.options import plans_in, policy_copy, stores_in
from eddy.branches.records import Commit
from eddy.branches.rows import Found, Int64s, joined, net, rows_of
from eddy.branches.shelf import Shelf
from eddy.branches.tree import Pushed, TreeNode
from eddy.filters.adaptive import AdaptiveFilter
from eddy.ingest.arrivals import Arrivals
from eddy.ingest.gate import Gate
from eddy.ingest.watermark import as_ticks, check_timed
from eddy.join_engine import JoinEngine, Options, clock_of, filters_by_place, groups_of
from eddy.push.bound import checked_bound
from eddy.push.push import NO_LOAD, check_open, computed
from eddy.push.records import CommitRecord, LastPush
from eddy.push.transaction import begin, finish, recover, roll_back
from eddy.query.branch_nodes import Path
from eddy.query.branches import BranchedQuery
from eddy.results.failed_output import FailedOutput
from eddy.results.late_output import LateOutput
from eddy.results.results import PRESENT, Combined, Results
from eddy.routing.change import follow_router
from stairs.descriptors import DELETED, INSERTED
from stairs.errors import CapacityError, InputError
from stairs.graph import WindowKind
from stairs.ledger import Ledger
from stairs.memory.allowance import Allowance
from stairs.plain_types import Column


class BranchedEngine:
    """One running query with branches.

    joins   the engines of the inner joins, by the positions of their streams
    trees   the nodes of the query, from each core on
    shelf   the rows that results may need
    clock, live, finished   the clock, None without a RANGE window; per stream the oldest row in its window; whether the
            input has ended
    gate, late, failed, output   admission, late rows, failed rows, results
    n_results, n_deleted, pushes, position   counts since the start
    """

    def __init__(self, query: BranchedQuery, options: Options, bounded: bool) -> None:
        if options.ordered:
            raise InputError(
                "ordered is for queries without branches: rows without a partner come when the watermark or the end of"
                " the input decides them, not when a component arrives; leave it out, and sort the rows of a push"
            )
        self.changelog = options.output == "changelog"
        if self.changelog:
            query = query.for_changelog()
        self.query, self.options, self.bounded = query, options, bounded
        plans = plans_in(query, options.plan)
        inner = replace(options, plan=None, store=None, count_only=False, ids_only=True, max_bytes=None, bounded=False)
        stores = stores_in(query, options.store)
        self.joins: dict[Path, JoinEngine] = {}
        for path, join in query.joins.items():
            own = replace(inner, plan=plans.get(path), store=stores[path], policy=policy_copy(options.policy))
            self.joins[path] = JoinEngine(join, own)
        self.columns = query.payload_columns(not (options.count_only or options.ids_only))
        self.shelf = Shelf(query, self.columns)
        self.trees = [TreeNode(node, self.shelf, self.changelog) for node in query.cores]
        self._check_ends()
        self.gate, self.late, self.failed = Gate(query), LateOutput(query), FailedOutput(query)
        self.output = Results(
            query,
            self.columns,
            changelog=self.changelog,
            count_only=options.count_only,
            ids_only=options.ids_only,
        )
        self.groups = groups_of(query, options, bounded, Allowance())
        self.clock, self.live, self.finished = clock_of(query), [0] * len(query.streams), False
        self.n_results = self.n_deleted = self.pushes = self.position = 0
        self.max_bytes = checked_bound(options.max_bytes, self.nbytes)
        self.undo: tuple[int, ...] | None = None
        self.commit: Commit | None = None
        self.last: LastPush | None = None

    def _check_ends(self) -> None:
        if self.changelog or self.bounded:
            return
        for tree in self.trees:
            for node, branch in tree.waits_forever():
                core, other = (", ".join(self.query.streams[i].name for i in one.own) for one in (node, branch))
                raise InputError(
                    f"a row of {core} without a partner in {other} would never be known: no window of {core} ends, so a"
                    " partner may always come. Give the streams windows or intervals, use output='changelog', or, for"
                    " input that ends, Runtime(…, bounded=True) and finish()"
                )

    @property
    def ledgers(self) -> list[Ledger]:
        """The ledgers of all nodes."""
        return [one.ledger for one in self.nodes if one.ledger is not None]

    @property
    def nodes(self) -> list[TreeNode]:
        """All nodes with a ledger."""
        return [one for tree in self.trees for one in tree.parts if one.ledger is not None]

    @property
    def due(self) -> int | None:
        """See `Runtime.due`."""
        return min((at for tree in self.trees if (at := tree.due) is not None), default=None)

    def filters(self) -> dict[str, AdaptiveFilter]:
        """Return the filters by the name of their stream, that of results under "results"."""
        return filters_by_place(self.query, self.gate, self.output)

    @property
    def watermark(self) -> int | None:
        """The watermark in ticks, or None before the first."""
        return None if self.clock is None else self.clock.watermark

    @property
    def nbytes(self) -> int:
        """Bytes of all state."""
        own = sum(one.nbytes for one in self.joins.values()) + sum(one.nbytes for one in self.trees)
        own += 0 if self.groups is None else self.groups.nbytes
        return own + self.shelf.nbytes + self.late.rows.nbytes + self.failed.rows.nbytes

    @property
    def output_schema(self) -> pa.Schema:
        """The schema of the tables that a push returns."""
        return self.output.schema if self.groups is None else self.groups.schema

    # A push

    def push(self, pushed: Mapping[str, object], order: Any, watermark: int | None) -> pa.Table:
        """Take arrivals in and return their results; see `Runtime.push`."""
        arrivals, commit = self.prepare(pushed, order, watermark)
        self._happen(arrivals, commit)
        assert commit.last is not None
        return commit.last.results

    def prepare(self, pushed: Mapping[str, object], order: Any, watermark: int | None) -> tuple[Arrivals, Commit]:
        """Compute a push. It happens once `commit` is set to the record, for `complete`; `recover` takes it back."""
        check_open(self.finished)
        self.last = None
        watermark = as_ticks(watermark)
        check_timed(watermark, self.clock is not None)
        arrivals = self.gate.admit(pushed, order, self.clock, watermark)
        self.undo = ()
        return arrivals, self._computed(arrivals, False, False)

    def load(self, pushed: Mapping[str, object], watermark: int | None) -> None:
        """Take earlier arrivals in without their results; see `Runtime.load`."""
        graph = self.query.graph
        check_open(self.finished)
        if self.position:
            raise InputError(f"{self.position} rows have arrived already; load rows into a new runtime only")
        counted = [name for name, one in zip(graph.names, graph.windows, strict=True) if one.kind == WindowKind.ROWS]
        if counted:
            raise InputError(
                f"load: stream {counted[0]} has a Rows window. Which rows had a partner depends on the order of all"
                " arrivals; use snapshot and restore"
            )
        if self.groups is not None:
            raise InputError(NO_LOAD)
        watermark = as_ticks(watermark)
        check_timed(watermark, self.clock is not None)
        self._done(self.gate.admit(pushed, None, self.clock, watermark, past=True), False, loading=True)

    def finish(self) -> pa.Table:
        """End the input, and return the rows that this decides; see `Runtime.finish`."""
        none = [None] * len(self.live)
        empty = Arrivals([*none], [0] * len(none), np.zeros(0, np.uint8), [*none], {})
        commit = self._done(empty, True)
        assert commit.last is not None
        return commit.last.results

    def _done(self, arrivals: Arrivals, finished: bool, loading: bool = False) -> Commit:
        self.undo = ()
        commit = self._computed(arrivals, finished, loading)
        self._happen(arrivals, commit)
        return commit

    def _happen(self, arrivals: Arrivals, commit: Commit) -> None:
        self.commit = commit
        self.complete()
        self.give_room_back()
        try:
            if commit.late.nbytes or arrivals.late:
                self.late.settle(arrivals.late, self._left(), arrivals.given)
        finally:
            if commit.failed.nbytes or commit.new_failed:
                self.failed.settle(commit.new_failed, self._left() - self.late.rows.nbytes)

    def _left(self) -> float:
        """Return the bytes that are left for late and failed rows."""
        if self.max_bytes is None:
            return float("inf")
        return self.max_bytes - self.nbytes + self.late.rows.nbytes + self.failed.rows.nbytes

    def _computed(self, arrivals: Arrivals, finished: bool, loading: bool) -> Commit:
        rows, watermark = arrivals.rows, self.watermark if finished else arrivals.watermark
        joins: dict[Path, CommitRecord] = {}
        found = {path: Found.none(len(rows)) for path in self.joins}
        if not finished:
            joins, found = self._join(arrivals)
        following = self.shelf.following
        self.shelf.load(arrivals, self.lows, sum(len(ledger) for ledger in self.ledgers))
        counts = self.shelf.following
        live = self.live if finished else self._live(counts)
        alone = [
            (range(first, end), range(low, new_low))
            for first, end, low, new_low in zip(following, counts, self.live, live, strict=True)
        ]
        news = Pushed(found, alone, watermark, counts, finished)
        for tree in self.trees:
            tree.begin()
        put_out = joined([tree.follow(news) for tree in self.trees], len(rows))
        if loading:
            put_out = Found.none(len(rows))
        made = self.output.make(self._combinations(net(put_out) if self.changelog else put_out))
        table, groups = made.table, None
        # An inner join leaves its failed rows to the query.
        failed = [batch for one in joins.values() for new in one.new_failed.values() if (batch := new.rows) is not None]
        joins = {path: one._replace(failed=self.joins[path].failed.rows) for path, one in joins.items()}
        failed += made.failed
        if self.groups is not None:
            table, groups = self.groups.follow(table, watermark, finished)
            failed += groups.failed
        new_failed = self.failed.added(() if loading else failed)
        position = self.position + len(arrivals.order)
        return Commit(
            joins,
            arrivals.clock,
            position,
            self.n_results + made.inserted,
            self.n_deleted + made.deleted,
            self.pushes + (not loading),
            self.late.rows.with_added(arrivals.late),
            self.failed.rows.with_added(new_failed),
            None if loading else LastPush(position, table),
            live,
            finished,
            groups,
            new_failed,
        )

    def _join(self, arrivals: Arrivals) -> tuple[dict[Path, CommitRecord], dict[Path, Found]]:
        """Compute a push in every inner join; return what commits it there, and its results."""
        joins: dict[Path, CommitRecord] = {}
        found: dict[Path, Found] = {}
        for path, engine in self.joins.items():
            self._bound(engine)
            own = _part(arrivals, path, engine.query.graph.timed)
            begin(engine)
            if engine.router.due:
                follow_router(engine)
                begin(engine)
            try:
                joins[path] = one = computed(engine, own)
            except CapacityError as problem:
                if self.max_bytes is None:
                    raise
                names = ", ".join(engine.query.graph.names)
                raise CapacityError(
                    f"join of {names}: {problem}; the rest leaves it this much of max_bytes={self.max_bytes:,}"
                ) from problem
            assert one.last is not None
            found[path] = rows_of(one.last.results, path, len(arrivals.rows))
        return joins, found

    def _combinations(self, found: Found) -> Combined:
        rows = found.rows
        shown = [self.query.index(stream.name) for stream in self.query.shown]
        return Combined(
            len(rows),
            lambda: self._columns(rows),
            lambda: np.ascontiguousarray(rows.T[shown]),
            np.where(found.signs == 1, INSERTED, DELETED).astype(np.uint8),
            int(np.count_nonzero(found.signs == 0)),
        )

    def _columns(self, rows: Int64s) -> dict[tuple[int, int], Column]:
        """Return the columns of results, those included that say whether a component is there."""
        return self.shelf.gather(rows) | {(i, PRESENT): pa.array(rows[:, i] >= 0) for i in self.query.presences}

    def _live(self, counts: list[int]) -> list[int]:
        """Return the oldest row of each stream that is in its window after a push: what the inner joins say."""
        live = list(self.live)
        for path, engine in self.joins.items():
            for i, low in zip(path, engine.modules.oldest().tolist(), strict=True):
                window = self.query.graph.windows[i]
                live[i] = max(counts[i] - window.size, 0) if window.kind == WindowKind.ROWS else low
        return live

    def _bound(self, engine: JoinEngine) -> None:
        """Give an inner join what the rest leaves of `max_bytes`. Raises CapacityError if that is nothing."""
        if self.max_bytes is None:
            return
        rest = self.nbytes - engine.nbytes
        if rest + engine.least_bytes > self.max_bytes:
            raise CapacityError(
                f"ledgers, rows kept for branches and the other inner joins take {rest:,} bytes, max_bytes is"
                f" {self.max_bytes:,}: narrow the windows, select fewer columns, or raise max_bytes"
            )
        engine.set_bound(self.max_bytes - rest)

    def give_room_back(self) -> None:
        """Give the room of the last push back if the bound is exceeded with it, between two pushes."""
        if self.max_bytes is not None and self.nbytes > self.max_bytes:
            for engine in self.joins.values():
                engine.modules.release_scratch()

    def _unbound(self) -> None:
        """Leave the inner joins without a bound: the next push gives them another one."""
        if self.max_bytes is not None:
            for engine in self.joins.values():
                engine.set_bound(None)

    def lows(self) -> Int64s:
        """Return the oldest row of each stream that results may still need."""
        lows = np.array(self.shelf.following, np.int64)
        for path, engine in self.joins.items():
            # Rows that leave with the push at hand may be in its results.
            np.minimum.at(lows, list(path), engine.modules.oldest(before=True))
        for ledger in self.ledgers:
            ledger.lower(lows)
        return np.minimum(lows, self.live) if self.changelog else lows

    def complete(self) -> None:
        """Complete a push that has happened. It may be repeated."""
        commit = self.commit
        if commit is None:
            return
        for path, engine in self.joins.items():
            if engine.commit is not None:
                recover(engine)
            elif engine.undo is not None:
                engine.commit = one = commit.joins[path]
                finish(engine, one)
        for tree in self.trees:
            tree.commit()
        self.shelf.commit()
        if self.clock is not None and commit.clock is not None:
            self.clock.state = commit.clock
        self.live, self.finished, self.position = commit.live, commit.finished, commit.position
        self.n_results, self.n_deleted, self.pushes = commit.results, commit.deleted, commit.pushes
        self.late.rows, self.failed.rows, self.last = commit.late, commit.failed, commit.last
        if self.groups is not None and commit.groups is not None:
            self.groups.commit(commit.groups)
        self._unbound()
        self.undo = None
        self.commit = None

    def recover(self) -> None:
        """End what an exception interrupted: complete it if it has happened, else take it back."""
        if self.commit is not None:
            self.complete()
            return
        for engine in self.joins.values():
            # Also a change of plan that was asked for.
            roll_back(engine)
        if self.undo is not None:
            for tree in self.trees:
                tree.undo()
            self.shelf.undo()
            if self.groups is not None:
                self.groups.undo()
            self._unbound()
            self.undo = None

    def dismantle(self) -> None:
        """Release all memory now. The engine cannot be used then."""
        for engine in self.joins.values():
            engine.dismantle()
        # Some of these refer to themselves: they would keep their memory until reference cycles are collected.
        nodes = [one for tree in self.trees for one in tree.parts]
        for part in (*nodes, self.shelf.payload, self.shelf, self):
            vars(part).clear()


def _part(arrivals: Arrivals, path: Path, timed: bool) -> Arrivals:
    """Return the arrivals of the streams of a path, for their inner join."""
    order, reading = arrivals.order, arrivals.reading if timed else None
    if len(path) < len(arrivals.batches):
        place = np.full(256, 255, np.uint8)
        place[list(path)] = np.arange(len(path))
        order = place[order]
        places = np.flatnonzero(order != 255)
        order = np.ascontiguousarray(order[places])
        reading = None if reading is None else reading.of(places)
    times = [arrivals.times[i] if timed else None for i in path]
    return Arrivals(
        [arrivals.batches[i] for i in path],
        [arrivals.rows[i] for i in path],
        order,
        times,
        {},
        reading,
    )
