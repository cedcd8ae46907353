"""The runtime: Arrow batches in, Arrow results out, state in between.

A push goes through five steps: *admit* (validate, filter, order, set late rows aside), *open* (sweep dead keys, make
room), *load* (keys as words, payload into rings), *walk* (one kernel call), *materialise* (gather columns, `where`,
projection). Only then does it happen, in one statement: `_happened` is set. Whatever fails before that takes the
push back. What is left to do after that is done even if an exception comes, if need be by the next call (`_settle`).
Both ways can be gone again from their beginning, so an exception may come between any two statements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from time import perf_counter, thread_time
from typing import Any

import pyarrow as pa
from sortedcontainers import SortedKeyList

from eddy.filters.adaptive import AdaptiveFilter
from eddy.filters.figures import filter_lines, filter_table
from eddy.ingest.arrivals import Arrivals
from eddy.ingest.gate import Gate
from eddy.ingest.loader import Loader
from eddy.ingest.watermark import as_ticks, late_before
from eddy.inspect.explain import explain
from eddy.inspect.metrics import metrics
from eddy.inspect.reasons import reason_lines
from eddy.inspect.statistics import stats_table
from eddy.log import plan_changes, refusals
from eddy.push.bound import Bound
from eddy.push.transaction import Happened, LastPush, Pending
from eddy.push.turn import Turn, in_turn, refuse_copy
from eddy.query.numbers import at_least, whole
from eddy.query.query import Query
from eddy.results.late_rows import LateRows
from eddy.results.results import Results
from eddy.results.side_output import SideOutput
from eddy.routing.policies import POLICIES, Policy
from eddy.routing.router import Router, make_policy
from eddy.routing.transitions import Scheduled, history_table, make_strategy, no_choice, resolve, streams_text
from eddy.routing.view import tables_of
from eddy.snapshot.header import OUTPUTS
from eddy.snapshot.snapshot import RuntimeState, Snapshot, write
from jisc.plan.routes import Preference
from jisc.plan.states import StateId
from jisc.plan.tree import Tree, check_connected, default_plan, parse
from jisc.strategies import Eddy, Transition
from jisc.strategies.base import read_states, refuse
from stairs.descriptors import LOADING, M_ARRIVALS, M_CHANGELOG, M_MODE, M_WATERMARK, S_BASE, S_LO, S_NEXT
from stairs.errors import CapacityError, EddyError, InputError, PlanError, SnapshotError, StateError
from stairs.graph import FOREVER
from stairs.modules import Modules
from stairs.payload import Payload
from stairs.stair import Stair
from stairs.stems import RENUMBER_AT
from stairs.storage.parts import Parts, Plain

OPTIONS = ("plan", "strategy", "statistics", "background", "output", "count_only", "ids_only", "renumber_at")
"""What a runtime is made with that is kept for another process as it is."""
NO_ROOM = "there was no room for the states"


def _sorted(schedule: Iterable[Scheduled]) -> SortedKeyList:
    return SortedKeyList(schedule, key=attrgetter("at"))


class Runtime:
    """Runs one query over its streams.

    plan        a join tree such as "((R S) T) U"; None = left-deep in query order as far as predicates connect
    policy      how the plan is found, a name of `eddy.routing.policies.POLICIES` or a policy of your own; None = "cost"
                under strategy "eddy", "fixed" under the others
    strategy    how plans run and change, a name of `jisc.strategies.STRATEGIES`
    store       inner states of the plan to store from the start under strategy "eddy", by their streams: ["R S"]
    max_bytes   bytes that windows, keys, payload, stored states and late rows may take in all; late rows, then states
                are dropped to keep to it
    decide_every  arrivals from one decision of the policy to the next; None = as often as it is worth its time
    background  keys that are promoted after each push in each incomplete state, beside those probed ("jisc", "eddy")
    output      "append": each result once; "changelog": a first column `op` tells "+I", the result appears, from "-D",
                a component of it has left its window
    statistics  False = none are kept, and the plan stays; `stats` has counts only then
    count_only  results are counted, not built: `push` returns column "count", one row (in a changelog `op` and "count",
                a row for +I and one for -D)
    ids_only    results are row numbers: an int64 column per stream, the arrival number of the component in its stream

    One call at a time: a call from a second thread, or from a function that the runtime calls, raises StateError and
    changes nothing. `snapshot` and `restore` make copies. Raises PlanError for a plan that does not fit the query,
    InputError for an unknown option.

    >>> rows = pa.schema([("a", pa.int64())])
    >>> from eddy import Query, Stream
    >>> rt = Runtime(Query([Stream("R", rows), Stream("S", rows)], ["R.a = S.a"]))
    >>> rt.push({"R": pa.record_batch({"a": [1, 2]}), "S": pa.record_batch({"a": [2]})}, order=[0, 0, 1]).to_pylist()
    [{'R.a': 2, 'S.a': 2}]
    """

    def __init__(
        self,
        query: Query,
        plan: str | None = None,
        *,
        policy: str | Policy | None = None,
        strategy: str = "eddy",
        store: Iterable[str] | None = None,
        max_bytes: int | None = None,
        decide_every: int | None = None,
        statistics: bool = True,
        background: int = 0,
        output: str = "append",
        count_only: bool = False,
        ids_only: bool = False,
        renumber_at: int = RENUMBER_AT,
    ) -> None:
        if not isinstance(query, Query):
            raise InputError(f"a Runtime runs an eddy.Query, not {type(query).__name__}")
        if count_only and ids_only:
            raise InputError("count_only and ids_only exclude each other: leave one out")
        if output not in OUTPUTS:
            raise InputError(f"output is one of {', '.join(map(repr, OUTPUTS))}, not {output!r}")
        self.query = query
        self.count_only = count_only
        self.ids_only = ids_only
        self.output = output
        graph = query.graph
        tree = self._checked_plan(plan)
        most = at_least(1, renumber_at)
        if most is None:
            raise InputError(f"renumber_at is a sequence number, 1 or more, not {renumber_at!r}")
        self._modules = Modules(graph, most)
        self._modules.meta[M_CHANGELOG] = output == "changelog"
        self._background = whole(background)
        self._strategy = make_strategy(strategy, self._modules, tree, background, store)
        self._router = Router(
            self._modules, self._strategy, make_policy(policy, self._strategy), decide_every, statistics
        )
        self._schedule = _sorted(())
        """Transitions to come, at one position in the order in which they were asked for; replaced, never changed."""
        kept: list[dict[str, None]] = [{} for _ in query.streams]
        wanted = () if count_only or ids_only else tuple(query.select.values())
        for name, column in query.where_columns + wanted:
            kept[query.index(name)][column] = None
        self._kept = [list(columns) for columns in kept]
        """Per stream the columns that results or `where` need."""
        kinds = [[query.streams[i].type_of(column) for column in columns] for i, columns in enumerate(self._kept)]
        self._payload = Payload(kinds, self._modules.capacity, self._modules.allowance)
        self._bound = Bound(max_bytes, self._modules, self._payload)
        self._late = SideOutput(query)
        self._results = 0
        self._deleted = 0
        self.pushes = 0
        """Pushes that happened, in this object."""
        self._turn = Turn()
        self._pending: Pending | None = None
        """What takes back what is under way; None = nothing is."""
        self._happened: Happened | None = None
        """What has happened and is not finished."""
        self._last: LastPush | None = None
        self._gate = Gate(self.query)
        self._loader = Loader(self.query, self._kept, self._modules, self._payload)
        self._output = Results(
            self.query,
            self._kept,
            self._modules,
            self._payload,
            changelog=self.output == "changelog",
            count_only=self.count_only,
            ids_only=self.ids_only,
        )
        self.output_schema = self._output.schema
        """The schema of what `push` returns."""

    def _checked_plan(self, plan: str | None, given: bool = False) -> Tree:
        graph = self.query.graph
        if plan is None and not given:
            return default_plan(graph)
        if not isinstance(plan, str):
            raise PlanError(f"a plan is text like '((R S) T) U', not {plan!r}")
        tree = parse(plan, graph.names)
        check_connected(tree, graph)
        return tree

    @property
    def plan(self) -> str:
        """The plan that runs, as text; while several run, the newest."""
        return self._strategy.tree.text(self.query.graph.names)

    @property
    def strategy(self) -> str:
        """The name of the strategy."""
        return self._strategy.name

    @property
    def policy(self) -> str:
        """The name of the policy."""
        return self._router.policy.name

    @property
    def position(self) -> int:
        """Arrivals taken so far: filtered and late rows are none."""
        happened = self._happened
        return int(self._modules.meta[M_ARRIVALS]) if happened is None else happened.position

    @property
    def max_bytes(self) -> int | None:
        """The bound on bytes, None = there is none. It may be set between two pushes, and holds from the next one on.

        Setting it raises InputError for what is no number of bytes.
        """
        return self._bound.max_bytes

    @max_bytes.setter
    @in_turn
    def max_bytes(self, max_bytes: int | None) -> None:
        self._bound = Bound(max_bytes, self._modules, self._payload)

    @property
    def stairs(self) -> list[Stair]:
        """The states that are stored, for looking in and for tests."""
        return self._strategy.stairs

    # Changing the plan

    @refusals
    @plan_changes
    @in_turn
    def transition(self, plan: str, at: int | None = None, store: Iterable[str] | None = None) -> Transition | None:
        """Change the plan: now, or when arrival number `at` is next, which may be in the middle of a push.

        store    the inner states of the plan to store under strategy "eddy", by their streams: ["R S", "R S T"];
                 None = those stored now that it has as well

        Arrivals are numbered from 0 over all streams (`position`). Returns the figures of the transition, None when it
        is yet to come; `history` has them afterwards. No result is lost, added or repeated. Several may be scheduled;
        at one position they happen in the order asked for. Raises PlanError for a plan that does not fit or a strategy
        that cannot change it, InputError for a position that is past, CapacityError when there is no room for what is
        to be stored now (later, in a push, it is left out instead); then nothing has changed. A policy other than
        "fixed" may go over to yet another plan later. Cost: O(states) and what the strategy does at once (see
        `jisc.strategies`).
        """
        tree = self._checked_plan(plan, given=True)
        if not self._strategy.changes:
            raise refuse(self._strategy.name)
        if store is not None and not isinstance(self._strategy, Eddy):
            raise no_choice(self.strategy)
        states = None if store is None else resolve(tree, self.query.graph, store)
        position = self.position if at is None else whole(at)
        if position is None:
            raise InputError(f"at is the number of an arrival, not {at!r}")
        if position == self.position:
            strategy = self._strategy
            self._begin()
            try:
                if states is not None and isinstance(strategy, Eddy):
                    done = strategy.change(tree, states, "asked for")
                else:
                    done = strategy.transition(tree, "asked for")
            except EddyError:
                # The strategy has refused, and stands as it stood.
                self._pending = None
                raise
            self._router.told()
            self._pending = None
            self._late.keep_within(self._bound.left)
            return done
        if position < self.position:
            raise InputError(
                f"at={position} is past: {self.position} arrivals were taken; leave `at` out for a change now"
            )
        self._schedule = _sorted([*self._schedule, Scheduled(position, tree, states)])
        return None

    def _change(
        self,
        tree: Tree,
        store: frozenset[StateId] | None,
        reason: str,
        lean: bool,
        prefer: Preference | None = None,
    ) -> None:
        """Change the plan; states that there is no room for are left out, when `lean` all that are not there yet."""
        strategy = self._strategy
        if not isinstance(strategy, Eddy):
            strategy.transition(tree, reason)
            return
        wanted = strategy.stored if store is None else store
        kept = wanted & strategy.stored
        if not lean or kept == wanted:
            try:
                strategy.change(tree, wanted, reason, prefer)
                return
            except CapacityError:
                if kept == wanted:
                    raise
        strategy.change(tree, kept, f"{reason}; {NO_ROOM}", prefer)

    @in_turn
    def scheduled(self) -> list[tuple[int, str]]:
        """Return the transitions to come: (position, plan), in order."""
        return [(one.at, one.tree.text(self.query.graph.names)) for one in self._schedule]

    @property
    def changes(self) -> int:
        """How many changes of plan and of what is stored there were; `history` has a row for each."""
        return self._strategy.happened

    @property
    def reason(self) -> str | None:
        """Why the newest of them was made, None when there was none."""
        newest = self._strategy.newest
        return None if newest is None else newest.reason

    @in_turn
    def history(self) -> pa.Table:
        """Return all changes of plan and of what is stored, oldest first: where and why, at what cost, to what effect.

        Columns are named as in `jisc.strategies.Transition`.
        """
        return history_table(self._strategy.transitions)

    # Pushing

    @refusals
    @plan_changes
    @in_turn
    def push(
        self,
        batches: Mapping[str, pa.RecordBatch | pa.Table],
        order: Any = None,
        *,
        watermark: int | None = None,
    ) -> pa.Table:
        """Take arrivals in and return the results they complete, those of earlier arrivals first.

        The order of the results of one arrival is not promised: it depends on plan, strategy and stored states.

        batches    rows by stream; absent streams and empty batches are fine; columns not in its schema are ignored
        order      int[rows of all streams]: the stream (its position in the query) of each arrival; None = by event
                   time, ties by stream order in the query, then by row
        watermark  a promise, in ticks of the common time type: no row of a later push is older. Rows older than that of
                   the push before are late; `Query.lateness` does nothing. With the first push that names one, all must

        Returns a table of `output_schema` (see output, count_only, ids_only). Raises InputError for rows that do not
        fit and for a watermark that goes back, with the state as it was. Whatever else is raised, an exception of a
        signal handler at any point for example, the push did not happen or it happened in whole: `pushes` and
        `last_push` tell. Cost: O(arrivals + chains walked + results).
        """
        began = perf_counter()
        self._last = None
        watermark = as_ticks(watermark)
        oldest = self._late_before(watermark)
        arrivals = self._gate.admit(batches, order, int(self._modules.meta[M_WATERMARK]), oldest)
        arrivals.watermark = watermark
        self._begin()
        if self._router.due:
            self._route()
            self._begin()
        lean = False
        while True:
            changes = self._strategy.happened
            try:
                self._make_way(arrivals.rows)
                changes = self._strategy.happened
                happened = self._attempt(arrivals, lean)
                break
            except CapacityError:
                # Stored states are no reason to fail: first those stored within the push are not, then those that were
                # there go one by one, and the push, which is taken back, is done again.
                changed = self._strategy.happened > changes
                self._take_back()
                if changed and not lean:
                    lean = True
                elif not self._shed():
                    raise
                self._begin()
        self._happened = happened
        self._finish(happened)
        self._strategy.note_push(happened.inserted, happened.arrivals, perf_counter() - began)
        if happened.late.nbytes or arrivals.late:
            self._late.settle(arrivals.late, self._bound.left, watermark is not None)
        assert happened.last is not None
        return happened.last.results

    @in_turn
    def last_push(self) -> LastPush | None:
        """Return the position after the last push that happened, and its results; None if there is none.

        For a caller that was interrupted in `push`, by Ctrl-C for example, and did not get its results: if `pushes` has
        risen, the push happened and these are its results. If not, push the rows again. The results are kept until the
        next call of `push`.
        """
        return self._last

    @in_turn
    def load(self, batches: Mapping[str, pa.RecordBatch | pa.Table], *, watermark: int | None = None) -> None:
        """Take rows in that arrived before: they have their places in the windows, and no result is told of them.

        batches    all rows that arrived, by stream; those already out of their windows are passed over, and counted
        watermark  the one given with the last push of them, if pushes are to go on with one; None = none was given

        Pushes go on as if the rows had been pushed, by event time where all streams with rows have a time column, else
        in row order: the same results, arrival numbers by that order, the same rows late. No row is late here. Counts
        of results begin at 0; stored states are completed as `restore` does it. Only before the first arrival, and
        before transitions are scheduled. Raises InputError as `push` does, CapacityError when there is no room, with
        the state as it was. Cost: O(rows), with nothing probed.
        """
        if self.position:
            raise InputError(f"{self.position} arrivals were taken; rows are loaded into a runtime that has taken none")
        if self._schedule:
            raise InputError(f"transitions are scheduled, the first at {self._schedule[0].at}; load before that")
        watermark = as_ticks(watermark)
        self._late_before(watermark)
        modules, strategy = self._modules, self._strategy
        arrivals, skipped = self._gate.admit_past(batches, watermark)
        self._make_way(arrivals.rows)
        self._begin(loading=True)
        modules.streams[:, S_BASE] += skipped
        self._open(arrivals)
        modules.meta[M_MODE] = LOADING
        modules.run(strategy.routes, arrivals.order, True, strategy.entries)
        modules.allowance.ask(0, "what was loaded")
        self._happened = Happened(
            len(arrivals.order) + sum(skipped),
            self._results,
            self._deleted,
            self._schedule,
            self._late.rows,
            None,
            self.pushes,
        )
        self._settle()

    def _late_before(self, watermark: int | None) -> int | None:
        return late_before(watermark, self._modules.given, timed=self.query.graph.timed, position=self.position)

    # What takes several steps happens in whole or not at all

    def _begin(self, loading: bool = False) -> None:
        """Note what takes the runtime back to where it stands: from here on an exception does that."""
        self._pending = Pending(self._strategy.save(), self._strategy.happened, loading)

    def _finish(self, happened: Happened) -> None:
        """Do what is left to do of a push that has happened. It may be done again from the beginning."""
        modules, payload = self._modules, self._payload
        modules.commit()
        payload.commit()
        modules.meta[M_ARRIVALS] = happened.position
        self._results, self._deleted = happened.results, happened.deleted
        self._schedule, self._late.rows = happened.schedule, happened.late
        self._last, self.pushes = happened.last, happened.pushes
        if payload.logged:
            payload.expire((modules.streams[:, S_LO] + modules.streams[:, S_BASE]).tolist())
        if happened.saved is None:
            self._strategy.after_push(happened.arrivals)
        else:
            self._strategy.restore(happened.saved)
            self._strategy.undone()
        # Last of all: until then an exception leads back here.
        self._pending = None
        self._happened = None

    def _take_back(self) -> None:
        """Bring the runtime back to where it stood at `_begin`. It may be done again from the beginning."""
        pending, modules = self._pending, self._modules
        if pending is None:
            return
        changed = self._strategy.happened > pending.changes
        self._strategy.abandon()
        modules.undo()
        self._payload.undo()
        if pending.loading:
            modules.streams[:, S_BASE] = 0
        self._fit_payload()
        self._strategy.restore(pending.saved)
        self._strategy.undone()
        self._router.undone(changed)
        self._pending = None

    def _settle(self) -> None:
        """End what an exception cut off: do the rest of what has happened, else take it back."""
        if self._happened is None:
            self._take_back()
            return
        # Nobody knows how far its states have come.
        self._strategy.abandon()
        if self._happened.saved is None:
            self._happened = self._happened._replace(saved=self._strategy.standing())
        self._fit_payload()
        self._finish(self._happened)

    # The steps of a push

    def _attempt(self, arrivals: Arrivals, lean: bool) -> Happened:
        """Take the arrivals in; return what becomes of the runtime with them, for `_finish`.

        lean   whether a change of plan within the push stores nothing that is not stored yet
        """
        count, changes = self._walk(arrivals, lean)
        self._modules.allowance.ask(0, "what was pushed")
        made = self._output.make(count)
        taken = len(arrivals.order)
        position = self.position + taken
        return Happened(
            position,
            self._results + made.inserted,
            self._deleted + made.deleted,
            _sorted(self._schedule[changes:]) if changes else self._schedule,
            self._late.rows.with_added(arrivals.late),
            LastPush(position, made.table),
            self.pushes + 1,
            taken,
            made.inserted,
        )

    def _route(self, lean: bool = False) -> None:
        """Let the router look, and do what it decides."""
        choice = self._router.look()
        if choice is not None:
            self._change(choice.tree, choice.store, f"{self.policy}: {choice.reason}", lean, choice.prefer)

    def _make_way(self, rows: Sequence[int]) -> None:
        """Keep the states to what a push of rows[i] rows of stream i leaves for them. Raises CapacityError."""
        self._router.room = room = self._bound.room(rows)
        if self._bound.max_bytes is None:
            return
        while self._strategy.nbytes > room:
            if not self._shed():
                raise CapacityError(
                    f"the states of strategy {self.strategy!r} take {self._strategy.nbytes:,} bytes, {room:,.0f} are"
                    " left for them: narrow the windows, allow more, or use strategy 'eddy', which can do without"
                )

    def _shed(self) -> bool:
        """Drop the stored state that pays least; False when there is none. What it drops stays dropped."""
        strategy = self._strategy
        if not isinstance(strategy, Eddy) or not strategy.states:
            return False
        self._begin()
        least = self._router.least_worth()
        strategy.change(strategy.tree, strategy.stored - {least}, NO_ROOM)
        self._router.told()
        self._begin()
        return True

    def _walk(self, arrivals: Arrivals, lean: bool) -> tuple[int, int]:
        """Take the arrivals in; return the combinations found and how many scheduled transitions happened.

        See `_attempt` for `lean`.
        """
        modules, strategy, router = self._modules, self._strategy, self._router
        self._open(arrivals)
        counted, first, end = self._output.counted, self.position, len(arrivals.order)
        if not end:
            # The watermark alone may end results.
            named = arrivals.watermark is not None
            return modules.run(strategy.routes, arrivals.order, counted, strategy.entries) if named else 0, 0
        due = self._schedule[: self._schedule.bisect_key_right(first + end)]
        done = happened = count = 0
        while done < end or happened < len(due):
            stop = min(done + router.stretch(end - done), due[happened].at - first if happened < len(due) else end)
            if stop > done:
                began = thread_time()
                count = modules.run(strategy.routes, arrivals.order, counted, strategy.entries, stop)
                router.note(stop - done, thread_time() - began)
                done = stop
            while happened < len(due) and due[happened].at - first == done:
                self._change(due[happened].tree, due[happened].store, "asked for", lean)
                router.told()
                happened += 1
            if done < end and router.due:
                self._route(lean)
        return count, happened

    def _open(self, arrivals: Arrivals) -> None:
        """Open a push of these arrivals and put their rows where the kernel reads them."""
        modules, payload = self._modules, self._payload
        payload.begin()
        modules.begin(arrivals.rows)
        if arrivals.watermark is not None:
            modules.give(arrivals.watermark, arrivals.by_time)
        if not len(arrivals.order):
            return
        self._fit_payload()
        self._loader.load(arrivals)

    def _fit_payload(self) -> None:
        """Let the rings of payload have as many slots as those of records."""
        modules, payload = self._modules, self._payload
        if modules.capacity != payload.room:
            for i, room in enumerate(modules.capacity):
                if room != payload.room[i]:
                    payload.resize(i, room, int(modules.streams[i, S_LO]), int(modules.streams[i, S_NEXT]))

    # Snapshots

    @in_turn
    def snapshot(self) -> bytes:
        """Return the live windows, the counters and the options as bytes from which `restore` goes on exactly.

        Nothing in the runtime changes; without a push between, two snapshots are equal byte for byte. Raises
        SnapshotError for a payload that Arrow finds invalid. O(live tuples).
        """
        names = self.query.graph.names
        schedule = [(one.at, one.tree.text(names), self._texts(one.store)) for one in self._schedule]
        return write(self._held(), self._options(), schedule)

    @classmethod
    @refusals
    def restore(
        cls,
        data: bytes,
        query: Query,
        plan: str | None = None,
        strategy: str | None = None,
        background: int | None = None,
        policy: str | Policy | None = None,
    ) -> Runtime:
        """Return a runtime that goes on where the one that gave the snapshot stood. O(live tuples).

        data        what `snapshot` returned, in this process or another
        query       the same query; docs/guide/snapshots.md says what may be written differently
        plan        another plan for it; None = the plan of the snapshot, the newest if several ran
        strategy    another strategy; None = that of the snapshot
        background  keys promoted after each push; None = as in the snapshot, if the strategy is the same
        policy      another policy; None = that of the snapshot, if the strategy is the same. One of your own has to be
                    given again: a snapshot has its name only

        Results, arrival numbers, lateness, counts and transitions to come go on as if nothing had happened; the counts
        of hops (probes, matches, walked) and the record of transitions start anew. States that are stored are not in a
        snapshot: "jisc" completes them just in time, the other strategies that have any before this returns. Raises
        SnapshotError for what is damaged, contradicts itself or is of another query, PlanError for a plan that does not
        fit, or transitions to come with a strategy that cannot change its plan, InputError for an unknown strategy.
        """
        if not isinstance(query, Query):
            raise InputError(f"a snapshot is restored for an eddy.Query, not {type(query).__name__}")
        snapshot = Snapshot(data, query)
        options = snapshot.options
        if strategy is not None and strategy != options["strategy"]:
            options["strategy"], options["background"], options["store"] = strategy, 0, None
            # Another strategy has a default of its own.
            options["policy"] = None
        if plan is not None:
            options["plan"] = plan
            options["store"] = None if options["store"] is None else ()
        if policy is not None:
            options["policy"] = policy
        elif options["policy"] is not None and options["policy"] not in POLICIES:
            raise SnapshotError(
                f"the snapshot was taken under policy {options['policy']!r}, which is none of {', '.join(POLICIES)}:"
                " give it to restore again, policy=…, or another one"
            )
        if background is not None:
            options["background"] = background
        # What was within the bound need not ask again while it is laid out anew.
        max_bytes, options["max_bytes"] = options["max_bytes"], None
        runtime = cls(query, **options)
        to_come = []
        for at, text, chosen in snapshot.schedule:
            tree = runtime._checked_plan(text)
            to_come.append(Scheduled(at, tree, None if chosen is None else resolve(tree, query.graph, chosen)))
        if to_come and not runtime._strategy.changes:
            raise PlanError(
                f"the snapshot has {len(to_come)} transitions to come, the first at arrival {to_come[0].at}, and"
                f" strategy {runtime.strategy!r} keeps its plan; restore with another strategy"
            )
        held = runtime._held()
        snapshot.fill(held)
        counts = snapshot.counts
        runtime._late.rows = LateRows.restored(held.late, counts["late"], counts["late_dropped"])
        # What was stored for empty windows is not what is stored for these.
        runtime._modules.caches.clear()
        tree = runtime._strategy.tree
        runtime._strategy = make_strategy(
            options["strategy"], runtime._modules, tree, options["background"], options["store"]
        )
        runtime._bound = Bound(max_bytes, runtime._modules, runtime._payload)
        runtime._strategy.undone()
        runtime._router = runtime._router.with_strategy(runtime._strategy)
        runtime._schedule = _sorted(to_come)
        runtime._results, runtime._deleted = counts["results"], counts["deleted"]
        return runtime

    def _options(self) -> dict[str, Any]:
        """Return the arguments that make this runtime again, as JSON can say them; they go into snapshots."""
        return {
            "plan": self.plan,
            "policy": self.policy,
            "strategy": self.strategy,
            "store": self._texts(self._strategy.stored) if isinstance(self._strategy, Eddy) else None,
            "max_bytes": self._bound.max_bytes,
            "decide_every": self._router.every,
            "statistics": self._router.sampling,
            "background": self._background,
            "output": self.output,
            "count_only": self.count_only,
            "ids_only": self.ids_only,
            "renumber_at": self._modules.renumber_at,
        }

    def _texts(self, store: Iterable[StateId] | None) -> list[str] | None:
        return None if store is None else sorted(streams_text(state, self.query.graph) for state in store)

    def _held(self) -> RuntimeState:
        late = self._late.rows
        counts = {
            "results": self._results,
            "deleted": self._deleted,
            "late": list(late.counts),
            "late_dropped": list(late.dropped),
        }
        batches = [late.batches(i) for i in range(len(self.query.streams))]
        return RuntimeState(self.query, self._modules, self._payload, self._kept, batches, counts)

    # Kept for another process (`eddy.live.engine_file`)

    __reduce_ex__ = refuse_copy

    @in_turn
    def to_parts(self) -> Plain:
        """Return all that goes on, as plain parts (`stairs.storage.parts`)."""
        options = self._options()
        return {
            **{name: options[name] for name in OPTIONS},
            "max_bytes": self._bound.max_bytes,
            "decide_every": self._router.every,
            "policy": self.policy,
            "modules": self._modules.to_parts(),
            "payload": self._payload.to_parts(),
            "running": self._strategy.to_parts(),
            "router": self._router.to_parts(),
            "late": self._late.rows.to_parts(),
            "counts": [self._results, self._deleted],
            "schedule": [
                {"at": one.at, "plan": one.tree.text(self.query.graph.names), "store": one.store and list(one.store)}
                for one in self._schedule
            ],
            "filters": {place: one.to_parts() for place, one in self._filters().items()},
        }

    @classmethod
    def from_parts(cls, parts: Parts, query: Query, policy: str | Policy | None = None) -> Runtime:
        """Return the runtime that gave these parts, for the same query.

        policy   the policy it had, if that is one of the caller's own; it resumes what it had learnt

        Raises StateError, PlanError, QueryError or InputError for parts that do not fit together.
        """
        runtime = cls(
            query,
            parts.text("plan"),
            policy=parts.text("policy") if policy is None else policy,
            strategy=parts.text("strategy"),
            statistics=parts.flag("statistics"),
            background=parts.integer("background"),
            decide_every=parts.optional("decide_every"),
            output=parts.text("output"),
            count_only=parts.flag("count_only"),
            ids_only=parts.flag("ids_only"),
            renumber_at=parts.integer("renumber_at"),
        )
        parts.require(runtime.policy == parts.text("policy"), f"policy {runtime.policy!r} in place of its own")
        runtime._resume(parts)
        return runtime

    def _resume(self, parts: Parts) -> None:
        graph, strategy, router = self.query.graph, self._strategy, self._router
        # Tables of plans that were tried are kept in the process, for all engines of a query.
        router.tables = tables = tables_of(graph)
        strategy.masks = tables.masks
        self._modules.load_parts(parts.part("modules"))
        self._payload.load_parts(parts.part("payload"), self._modules.capacity)
        strategy.load_parts(parts.part("running"))
        router.load_parts(parts.part("router"))
        self._late.rows = LateRows.from_parts(parts.part("late"), [stream.schema for stream in self.query.streams])
        self._results, self._deleted = parts.integers("counts", 2)
        schedule = []
        for one in parts.items("schedule"):
            tree = self._checked_plan(one.text("plan"))
            store = None if one.plain("store") is None else frozenset(read_states(one, "store", graph))
            schedule.append(Scheduled(one.integer("at", self.position), tree, store))
        self._schedule = _sorted(schedule)
        filters, kept = self._filters(), parts.part("filters")
        for place, own in filters.items():
            own.load_parts(kept.part(place))
        self._bound = Bound(parts.optional("max_bytes"), self._modules, self._payload)

    def dismantle(self) -> None:
        """Let go of all memory now, not when cycles are collected some day. Every later call raises StateError."""
        turn = self._turn
        self._strategy.dismantle()
        for part in (self._modules, self._payload, self._router.samples, self._router, self):
            vars(part).clear()
        self._turn = turn
        turn.end("this runtime was saved for another process, and is of no use here any more; load it there")

    # Looking in

    @in_turn
    def late(self) -> dict[str, pa.Table]:
        """Return the late rows kept since the last call, by stream (streams without any left out), and forget them.

        They are those that `Query.late` says to keep, the newest `Query.late_rows` of each stream, in order of arrival;
        and those whose function raised.
        """
        return self._late.take()

    @property
    def late_counts(self) -> dict[str, int]:
        """How many rows of each stream were late since the start, whatever became of them."""
        return dict(zip(self.query.graph.names, self._late.rows.counts, strict=True))

    @property
    def watermark(self) -> int | None:
        """The watermark: rows older than it are late. In ticks of the common time type; None = there is none yet.

        The greatest event time that arrived less `Query.lateness`, or the one given with the last push.
        """
        if self._modules.given is not None or not self.query.graph.timed:
            return self._modules.given
        greatest = int(self._modules.meta[M_WATERMARK])
        return None if greatest == -FOREVER else greatest - self.query.graph.lateness

    @property
    def nbytes(self) -> int:
        """Bytes of all state: SteMs, STAIRs, key directories, payload, late rows kept and the room for results."""
        return self._modules.nbytes + self._payload.nbytes + self._strategy.nbytes + self._late.rows.nbytes

    @in_turn
    def metrics(self) -> dict[str, Any]:
        """Return counts since the start, in all and per state: arrivals, probes, results, expired, late, bytes, …"""
        return self._metrics()

    def _metrics(self) -> dict[str, Any]:
        return metrics(self._modules, self._strategy, self._payload, self._late.rows, self._results, self._deleted)

    @in_turn
    def stats(self) -> pa.Table:
        """Return figures of data and decisions: a row for each stream, pair, chain of three, hop, and one in all.

        `eddy.inspect.statistics.SCHEMA` says what the columns mean; `kind` tells the rows apart. The call changes
        nothing. Cost: some hundred tuples of each window are looked at, however large it is.
        """
        return stats_table(self._modules, self._strategy, self._router)

    @in_turn
    def explain(self) -> str:
        """Return the plan as a tree with live figures, and why it stands: predictions, alternatives, stored states."""
        lines = [explain(self.query, self._strategy, self._metrics())]
        lines += reason_lines(self._strategy, self._router, self._bound)
        return "\n".join([*lines, *filter_lines(self._filters())])

    @in_turn
    def filters(self) -> pa.Table:
        """Return figures of the filters since the start, a row for each predicate in the order they are asked now.

        where is the name of a stream, or "results"; the other columns are those of `AdaptiveFilter.stats`. What a push
        that failed had evaluated is counted, as it took its time.
        """
        return filter_table(self._filters())

    def _filters(self) -> dict[str, AdaptiveFilter]:
        found = {self.query.streams[i].name: one for i, one in self._gate.filters.items()}
        return found if self._output.accepts is None else {**found, "results": self._output.accepts}

    @in_turn
    def check(self) -> None:
        """Raise StateError unless all invariants of all state modules hold. O(state), for tests."""
        self._modules.check()
        self._strategy.check()
        if self._payload.room != self._modules.capacity:
            raise StateError(f"rings of payload {self._payload.room} and of records {self._modules.capacity} differ")
