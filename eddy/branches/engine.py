"""The parts of a running query with branches, and how a push happens in them in whole or not at all.

A push goes through the gate once. Every inner join takes the arrivals of its streams in and gives results; then the
nodes of the query follow these results and put out the rows (`eddy.branches.tree`). The two records of
`eddy.push.transaction` have their counterparts here: while there is only the undo record, the push is taken back in all
parts; with the commit record, which is set in one statement, it is completed in all parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from eddy.branches.shelf import Found, Int64s, Shelf, joined, rows_of
from eddy.branches.tree import Pushed, TreeNode
from eddy.engine import Engine, Options
from eddy.ingest.arrivals import Arrivals
from eddy.ingest.gate import Gate
from eddy.ingest.watermark import as_ticks, late_before
from eddy.push.push import computed
from eddy.push.records import CommitRecord, LastPush
from eddy.push.transaction import begin, finish, recover, roll_back
from eddy.query.branches import BranchedQuery
from eddy.query.numbers import at_least
from eddy.results.late_rows import LateRows
from eddy.results.results import Combinations, Results
from eddy.results.side_output import SideOutput
from eddy.routing.change import follow_router
from jisc.plan.tree import names_in, read_plan
from stairs.descriptors import DELETED, INSERTED, S_BASE, S_LO
from stairs.errors import CapacityError, InputError, PlanError
from stairs.graph import FOREVER, WindowKind
from stairs.kernels.rows import add_up
from stairs.ledger import Ledger

Path = tuple[int, ...]


class Clock(NamedTuple):
    """The time of a query: the greatest event time that arrived, and the watermark given last; None = none."""

    newest: int = -FOREVER
    given: int | None = None


class Commit(NamedTuple):
    """The engine after a push."""

    joins: dict[Path, CommitRecord]
    clock: Clock
    position: int
    results: int
    deleted: int
    pushes: int
    late: LateRows
    last: LastPush
    live: list[int]
    finished: bool


class BranchedEngine:
    """One running query with branches.

    joins   the engines of the inner joins, by the positions of their streams
    trees   the nodes of the query, from each core on
    shelf   the rows that results may need
    clock, live, finished   the time; per stream the oldest row in its window; whether the input has ended
    gate, late, output      admission, late rows, results
    n_results, n_deleted, pushes, position   counts since the start
    """

    def __init__(self, query: BranchedQuery, options: Options, bounded: bool) -> None:
        self.changelog = options.output == "changelog"
        if self.changelog:
            query = query.for_changelog()
        self.query, self.options, self.bounded = query, options, bounded
        plans = plans_in(query, options.plan)
        inner = replace(options, plan=None, store=None, count_only=False, ids_only=True, max_bytes=None)
        stores = _stores(query, options.store)
        self.joins: dict[Path, Engine] = {}
        for path, join in query.joins.items():
            own = replace(inner, plan=plans.get(path), store=stores[path], policy=_policy(options.policy))
            self.joins[path] = Engine(join, own)
        columns: list[dict[str, None]] = [{} for _ in query.streams]
        selected = () if options.count_only or options.ids_only else tuple(query.select.values())
        for name, column in query.where_columns + selected:
            columns[query.index(name)][column] = None
        self.columns = [list(own) for own in columns]
        self.shelf = Shelf(query, self.columns)
        self.trees = [TreeNode(node, self.shelf, self.changelog) for node in query.cores]
        self._check_ends()
        self.gate, self.late = Gate(query), SideOutput(query)
        self.output = Results(
            query,
            self.columns,
            changelog=self.changelog,
            count_only=options.count_only,
            ids_only=options.ids_only,
        )
        self.clock, self.live, self.finished = Clock(), [0] * len(query.streams), False
        self.n_results = self.n_deleted = self.pushes = self.position = 0
        self.max_bytes = checked_bound(options.max_bytes)
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
        return [one.ledger for tree in self.trees for one in tree.parts if one.ledger is not None]

    @property
    def watermark(self) -> int | None:
        """The watermark in ticks, or None before the first."""
        if self.clock.given is not None or not self.query.graph.timed:
            return self.clock.given
        return None if self.clock.newest == -FOREVER else self.clock.newest - self.query.graph.lateness

    @property
    def nbytes(self) -> int:
        """Bytes of all state."""
        counted = sum(ledger.nbytes for ledger in self.ledgers)
        parts = [one for tree in self.trees for one in tree.parts]
        counted += sum(deadlines.nbytes for one in parts for deadlines in one.deadlines.values())
        joins = sum(engine.nbytes for engine in self.joins.values())
        return joins + counted + self.shelf.nbytes + self.late.rows.nbytes

    # A push

    def push(self, pushed: Mapping[str, object], order: Any, watermark: int | None) -> pa.Table:
        """Take arrivals in and return their results; see `Runtime.push`."""
        if self.finished:
            raise InputError("the input has ended: finish() was called; start a new runtime for more rows")
        self.last = None
        watermark = as_ticks(watermark)
        timed = self.query.graph.timed
        oldest = late_before(watermark, self.clock.given, timed=timed, position=self.position)
        arrivals = self.gate.admit(pushed, order, self.clock.newest, oldest)
        arrivals.watermark = watermark
        newest = max(
            [self.clock.newest, *(int(ticks.max()) for ticks in arrivals.times if ticks is not None and len(ticks))]
        )
        return self._done(arrivals, Clock(newest, watermark), False)

    def finish(self) -> pa.Table:
        """End the input, and return the rows that this decides; see `Runtime.finish`."""
        empty = Arrivals([None] * len(self.live), np.zeros(0, np.uint8), [None] * len(self.live), {})
        return self._done(empty, self.clock, True)

    def _done(self, arrivals: Arrivals, clock: Clock, finished: bool) -> pa.Table:
        self.undo = ()
        commit = self._computed(arrivals, clock, finished)
        self.commit = commit
        self.complete()
        if commit.late.nbytes or arrivals.late:
            left = float("inf") if self.max_bytes is None else self.max_bytes - self.nbytes + self.late.rows.nbytes
            self.late.settle(arrivals.late, left, clock.given is not None)
        return commit.last.results

    def _computed(self, arrivals: Arrivals, clock: Clock, finished: bool) -> Commit:
        rows, graph = arrivals.rows, self.query.graph
        known = clock.newest > -FOREVER or clock.given is not None
        watermark = (clock.newest - graph.lateness if clock.given is None else clock.given) if known else None
        joins: dict[Path, CommitRecord] = {}
        found: dict[Path, Found] = {}
        # A changelog ends rows by the time of all streams. Otherwise, where rows come in order of event time, each join
        # follows its own streams: then it need not compare the times of what it finds.
        follows = not self.changelog and not graph.lateness and clock.given is None
        given = None if follows else -FOREVER if watermark is None else watermark
        for path, engine in {} if finished else self.joins.items():
            self._bound(engine)
            own = _part(arrivals, path, given if engine.query.graph.timed else None, engine.query.graph.timed)
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
            table = one.last.results
            signs = np.ones(table.num_rows, np.uint8)
            if self.changelog:
                signs = (table["op"].combine_chunks().to_numpy(zero_copy_only=False) == "+I").astype(np.uint8)
            found[path] = Found(rows_of(table, path, len(rows)), signs)
        for path in self.joins if finished else ():
            found[path] = Found(np.zeros((0, len(rows)), np.int64), np.zeros(0, np.uint8))
        following = self.shelf.following
        self.shelf.load(arrivals, self.lows, sum(len(ledger) for ledger in self.ledgers))
        counts = self.shelf.following
        live = self.live if finished else self._live(counts, watermark)
        alone = [
            (range(first, end), range(low, new_low))
            for first, end, low, new_low in zip(following, counts, self.live, live, strict=True)
        ]
        news = Pushed(found, alone, watermark, counts, finished)
        for tree in self.trees:
            tree.begin()
        put_out = joined([tree.follow(news) for tree in self.trees], len(rows))
        made = self.output.make(self._combinations(net(put_out) if self.changelog else put_out))
        position = self.position + len(arrivals.order)
        return Commit(
            joins,
            clock,
            position,
            self.n_results + made.inserted,
            self.n_deleted + made.deleted,
            self.pushes + 1,
            self.late.rows.with_added(arrivals.late),
            LastPush(position, made.table),
            live,
            finished,
        )

    def _combinations(self, found: Found) -> Combinations:
        rows = found.rows
        shown = [self.query.index(stream.name) for stream in self.query.shown]
        return Combinations(
            len(rows),
            np.where(found.signs == 1, INSERTED, DELETED).astype(np.uint8),
            int(np.count_nonzero(found.signs == 0)),
            lambda: self.shelf.gather(rows),
            lambda: np.ascontiguousarray(rows.T[shown]),
        )

    def _live(self, counts: list[int], watermark: int | None) -> list[int]:
        """Return the oldest row of each stream that is in its window after a push: what the inner joins say."""
        live = list(self.live)
        for path, engine in self.joins.items():
            lows = (engine.modules.streams[:, S_LO] + engine.modules.streams[:, S_BASE]).tolist()
            for i, low in zip(path, lows, strict=True):
                window = self.query.graph.windows[i]
                live[i] = max(counts[i] - window.size, 0) if window.kind == WindowKind.ROWS else low
        return live

    def _bound(self, engine: Engine) -> None:
        """Give an inner join what the rest leaves of `max_bytes`. Raises CapacityError if that is nothing."""
        if self.max_bytes is None:
            return
        rest = self.nbytes - engine.nbytes
        if rest >= self.max_bytes:
            raise CapacityError(
                f"ledgers, rows kept for branches and the other inner joins take {rest:,} bytes, max_bytes is"
                f" {self.max_bytes:,}: narrow the windows, select fewer columns, or raise max_bytes"
            )
        engine.set_bound(self.max_bytes - rest)

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
            before = engine.modules.streams if engine.modules._saved is None else engine.modules._saved[0]
            np.minimum.at(lows, list(path), before[:, S_LO] + before[:, S_BASE])
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
        self.clock, self.live, self.finished, self.position = (
            commit.clock,
            commit.live,
            commit.finished,
            commit.position,
        )
        self.n_results, self.n_deleted, self.pushes = commit.results, commit.deleted, commit.pushes
        self.late.rows, self.last = commit.late, commit.last
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
            self._unbound()
            self.undo = None

    def dismantle(self) -> None:
        """Release all memory now. The engine cannot be used then."""
        for engine in self.joins.values():
            engine.dismantle()
        vars(self).clear()


def checked_bound(max_bytes: Any) -> int | None:
    """Return a bound on bytes, None = none. Raises InputError for anything else."""
    found = None if max_bytes is None else at_least(1, max_bytes)
    if found is None and max_bytes is not None:
        raise InputError(f"max_bytes is a number of bytes, 1 or more, not {max_bytes!r}")
    return found


def plans_in(query: BranchedQuery, text: Any) -> dict[Path, str]:
    """Return the plans in a text by the streams of their join. Raises PlanError for one that is of no join."""
    plans: dict[Path, str] = {}
    if text is not None and not isinstance(text, str):
        raise PlanError(f"plan is text such as 'R S; (R S) T', not {text!r}")
    # A semicolon may be part of a name in quotes.
    for plan in [] if text is None else re.split(r';(?=(?:[^"]*"[^"]*")*[^"]*$)', text):
        path = join_of(query, plan)
        if path in plans:
            raise PlanError(f"plan {text!r} has two plans of one join: {plans[path]!r} and {plan.strip()!r}")
        plans[path] = plan.strip()
    return plans


def _stores(query: BranchedQuery, store: Any) -> dict[Path, list[str] | None]:
    """Return the states to store by their join: the smallest one that has their streams. Raises PlanError."""
    if store is None:
        return dict.fromkeys(query.joins)
    if isinstance(store, str) or not isinstance(store, Iterable):
        raise PlanError(f"store is a list of states such as ['R S'], not {store!r}")
    found: dict[Path, list[str] | None] = {path: [] for path in query.joins}
    for text in store:
        wanted = set(names_in(str(text)))
        paths = [path for path in query.joins if wanted < {query.graph.names[i] for i in path}]
        if not paths:
            raise PlanError(f"store: {text!r} is a state of no join in this query: each has some of the streams of one")
        own = found[min(paths, key=len)]
        assert own is not None
        own.append(text)
    return found


def _policy(policy: Any) -> Any:
    """Return a policy for one inner join: each has its own. Raises InputError for one that cannot be copied."""
    try:
        return deepcopy(policy)
    except TypeError as problem:
        raise InputError(
            f"policy {policy!r} cannot be copied ({problem}); in a query with branches each inner join needs its own"
        ) from problem


def join_of(query: BranchedQuery, plan: str) -> Path:
    """Return the path whose inner join a plan is of. Raises PlanError."""
    problems = []
    for path, join in query.joins.items():
        try:
            read_plan(plan, join.graph)
        except PlanError as problem:
            problems.append(problem)
        else:
            return path
    if len(problems) == 1:
        raise problems[0]
    known = "; ".join(" ".join(query.graph.names[i] for i in one) for one in query.joins)
    raise PlanError(
        f"{plan!r} is a plan of none of the joins of this query. It has one join for its core and one for each branch;"
        f" their streams are {known}"
    )


def _part(arrivals: Arrivals, path: Path, watermark: int | None, timed: bool) -> Arrivals:
    """Return the arrivals of the streams of a path, for their inner join."""
    place = np.full(256, 255, np.uint8)
    place[list(path)] = np.arange(len(path))
    order = place[arrivals.order]
    times = [arrivals.times[i] if timed else None for i in path]
    return Arrivals(
        [arrivals.batches[i] for i in path],
        np.ascontiguousarray(order[order != 255]),
        times,
        {},
        arrivals.sorted,
        watermark,
    )


def net(found: Found) -> Found:
    """Return the rows that a push ends and begins in all: those ended first, without what it both begins and ends."""
    rows, signs = found
    n = len(rows)
    if n < 2 or signs.all():
        return found
    totals = np.zeros(n, np.int64)
    add_up(rows, signs, np.full(1 << (2 * n - 1).bit_length(), -1, np.int64), totals)
    kept = np.r_[np.flatnonzero(totals < 0), np.flatnonzero(totals > 0)]
    return Found(rows[kept], (totals[kept] > 0).astype(np.uint8))
