"""The runtime: Arrow batches in, Arrow results out, state in between.

A push goes through five steps: *admit* (validate, filter, order, set late rows aside), *open* (sweep dead keys, make
room), *load* (keys as words, payload into rings), *walk* (one kernel call), *materialise* (gather columns, `where`,
projection). Only then is it committed; whatever fails before takes the push back, so that the state is as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from time import perf_counter, thread_time
from typing import Any

import pyarrow as pa
from sortedcontainers import SortedKeyList

from eddy.adaptive_filters import AdaptiveFilter
from eddy.arrivals import Arrivals, Gate
from eddy.bound import Bound
from eddy.explain import explain
from eddy.filter_figures import filter_lines, filter_table
from eddy.late_rows import LateRows
from eddy.loader import Loader
from eddy.metrics import metrics
from eddy.numbers import at_least, whole
from eddy.policies import Policy
from eddy.query import Query
from eddy.reasons import reason_lines
from eddy.results import Results
from eddy.router import Router, make_policy
from eddy.snapshot import Held, Snapshot, write
from eddy.statistics import stats_table
from eddy.transitions import Scheduled, history_table, make_strategy, no_choice, resolve, streams_text
from eddy.watermark import as_ticks, late_before
from jisc.plan import Tree, check_connected, default_plan, parse
from jisc.routes import Preference
from jisc.states import StateId
from jisc.strategies import Eddy, Transition
from jisc.strategies.base import COUNTERS, Saved, refuse
from stairs.errors import CapacityError, InputError, PlanError, StateError
from stairs.fields import LOADING, M_ARRIVALS, M_CHANGELOG, M_MODE, M_WATERMARK, S_BASE, S_LO
from stairs.modules import RENUMBER_AT, Modules
from stairs.payload import Payload
from stairs.stair import Stair

OUTPUTS = ("append", "changelog")
ATTACHED = frozenset({"_gate", "_loader", "_output", "output_schema"})
"""What follows from the query."""
NO_ROOM = "there was no room for the states"


class Runtime:
    """Runs one query over its streams.

    plan        a join tree such as "((R S) T) U"; None = left-deep in query order as far as predicates connect
    policy      how the plan is found, a name of `eddy.policies.POLICIES` or a policy of your own; None = "cost" under
                strategy "eddy", "fixed" under the others
    strategy    how plans run and change, a name of `jisc.strategies.STRATEGIES`
    store       inner states of the plan to store from the start under strategy "eddy", by their streams: ["R S"]
    max_bytes   bytes that windows, keys, payload and stored states may take in all; states are dropped to keep to it
    decide_every  arrivals from one decision of the policy to the next; None = as often as it is worth its time
    background  keys that are promoted after each push in each incomplete state, beside those probed ("jisc", "eddy")
    output      "append": each result once; "changelog": a first column `op` tells "+I", the result appears, from "-D",
                a component of it has left its window
    statistics  False = none are kept, and the plan stays; `stats` has counts only then
    count_only  results are counted, not built: `push` returns column "count", one row (in a changelog `op` and "count",
                a row for +I and one for -D)
    ids_only    results are row numbers: an int64 column per stream, the arrival number of the component in its stream

    Not thread-safe. Raises PlanError for a plan that does not fit the query, InputError for an unknown option.

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
        self._schedule: SortedKeyList = SortedKeyList(key=attrgetter("at"))
        """Transitions to come, at one position in the order in which they were asked for."""
        kept: list[dict[str, None]] = [{} for _ in query.streams]
        wanted = () if count_only or ids_only else tuple(query.select.values())
        for name, column in query.where_columns + wanted:
            kept[query.index(name)][column] = None
        self._kept = [list(columns) for columns in kept]
        """Per stream the columns that results or `where` need."""
        kinds = [[query.streams[i].type_of(column) for column in columns] for i, columns in enumerate(self._kept)]
        self._payload = Payload(kinds, self._modules.capacity, self._modules.allowance)
        self._bound = Bound(max_bytes, self._modules, self._payload)
        self._late = LateRows(graph.n_streams)
        self._results = 0
        self._deleted = 0
        self._attach()

    def _attach(self) -> None:
        """Make what follows from the query: the way in, and the way out."""
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
        return int(self._modules.meta[M_ARRIVALS])

    @property
    def stairs(self) -> list[Stair]:
        """The states that are stored, for looking in and for tests."""
        return self._strategy.stairs

    # Changing the plan

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
            if states is not None and isinstance(strategy, Eddy):
                done = strategy.change(tree, states, "asked for")
            else:
                done = strategy.transition(tree, "asked for")
            self._router.told()
            return done
        if position < self.position:
            raise InputError(
                f"at={position} is past: {self.position} arrivals were taken; leave `at` out for a change now"
            )
        self._schedule.add(Scheduled(position, tree, states))
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

    def history(self) -> pa.Table:
        """Return all changes of plan and of what is stored, oldest first: where and why, at what cost, to what effect.

        Columns are named as in `jisc.strategies.Transition`.
        """
        return history_table(self._strategy.transitions)

    # Pushing

    def push(
        self,
        batches: Mapping[str, pa.RecordBatch | pa.Table],
        order: Any = None,
        *,
        watermark: int | None = None,
    ) -> pa.Table:
        """Take arrivals in and return the results they complete, in the order of their last components.

        batches    rows by stream; absent streams and empty batches are fine; columns not in its schema are ignored
        order      int[rows of all streams]: the stream (its position in the query) of each arrival; None = by event
                   time, ties by stream order in the query, then by row
        watermark  a promise, in ticks of the common time type: no row of a later push is older. Rows older than that of
                   the push before are late; `Query.lateness` does nothing. With the first push that names one, all must

        Returns a table of `output_schema` (see output, count_only, ids_only). Raises InputError for rows that do not
        fit and for a watermark that goes back, with the state as it was. Cost: O(arrivals + chains walked + results).
        """
        began = perf_counter()
        watermark = as_ticks(watermark)
        oldest = self._late_before(watermark)
        arrivals = self._gate.admit(batches, order, int(self._modules.meta[M_WATERMARK]), oldest)
        arrivals.watermark = watermark
        if self._router.due:
            self._route()
        lean = False
        while True:
            saved: list[Saved] = []
            try:
                table, results = self._attempt(arrivals, saved, lean)
                break
            except CapacityError:
                # Stored states are no reason to fail: first those stored within the push are not, then those that were
                # there go one by one, and the push, which was taken back, is done again.
                if not isinstance(self._strategy, Eddy):
                    self._strategy.trim()
                    raise
                if saved and not lean:
                    lean = True
                elif not self._shed():
                    raise
        strategy = self._strategy
        self._late.add(arrivals.late)
        strategy.after_push(len(arrivals.order))
        strategy.note_push(results, len(arrivals.order), perf_counter() - began)
        return table

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
        modules, payload, strategy = self._modules, self._payload, self._strategy
        arrivals, skipped = self._gate.past(batches, watermark)
        self._make_way(arrivals.rows)
        modules.streams[:, S_BASE] += skipped
        try:
            self._open(arrivals)
            modules.meta[M_MODE] = LOADING
            modules.run(strategy.routes, arrivals.order, True, strategy.entries)
            modules.allowance.ask(0, "what was loaded")
        except BaseException:
            modules.undo()
            payload.undo()
            modules.streams[:, S_BASE] -= skipped
            strategy.undone()
            raise
        modules.commit()
        modules.meta[M_MODE] = strategy.mode
        modules.meta[M_ARRIVALS] += sum(skipped)
        # What was stored for empty windows is not what is stored for these.
        for cache in modules.caches:
            cache.forget()
        strategy.undone()

    def _late_before(self, watermark: int | None) -> int | None:
        return late_before(watermark, self._modules.given, timed=self.query.graph.timed, position=self.position)

    def _attempt(self, arrivals: Arrivals, saved: list[Saved], lean: bool) -> tuple[pa.Table, int]:
        """Take the arrivals in and commit; return the table and how many results it stands for. Or take them back.

        saved   gets what takes the strategy back, before the first change of plan in the push
        lean    whether such a change stores nothing that is not stored yet
        """
        strategy = self._strategy
        self._make_way(arrivals.rows)
        tables, counters = strategy.routes, strategy.routes.hops[:, COUNTERS].copy()
        try:
            count, happened = self._walk(arrivals, saved, lean)
            self._modules.allowance.ask(0, "what was pushed")
            made = self._output.make(count)
        except BaseException:
            self._modules.undo()
            self._payload.undo()
            if saved:
                strategy.restore(saved[0])
            else:
                tables.hops[:, COUNTERS] = counters
            strategy.undone()
            self._router.undone(bool(saved))
            raise
        self._modules.commit()
        del self._schedule[:happened]
        self._results += made.inserted
        self._deleted += made.deleted
        if self._payload.logged:
            self._payload.expire((self._modules.streams[:, S_LO] + self._modules.streams[:, S_BASE]).tolist())
        return made.table, made.inserted

    def _route(self, saved: list[Saved] | None = None, lean: bool = False) -> None:
        """Let the router look, and do what it decides; in a push, `saved` gets what takes the strategy back."""
        choice = self._router.look()
        if choice is None:
            return
        if saved is not None and not saved:
            saved.append(self._strategy.save())
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
        """Drop the stored state that pays least; False when there is none."""
        strategy = self._strategy
        if not isinstance(strategy, Eddy) or not strategy.states:
            return False
        least = self._router.least_worth()
        strategy.change(strategy.tree, strategy.stored - {least}, NO_ROOM)
        self._router.told()
        return True

    def _walk(self, arrivals: Arrivals, saved: list[Saved], lean: bool) -> tuple[int, int]:
        """Take the arrivals in; return the combinations found and how many scheduled transitions happened.

        See `_attempt` for `saved` and `lean`.
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
                if not saved:
                    saved.append(strategy.save())
                self._change(due[happened].tree, due[happened].store, "asked for", lean)
                router.told()
                happened += 1
            if done < end and router.due:
                self._route(saved, lean)
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
        if modules.capacity != payload.room:
            for i, room in enumerate(modules.capacity):
                if room != payload.room[i]:
                    payload.resize(i, room, int(modules.streams[i, S_LO]), modules.following[i])
        self._loader.load(arrivals)

    # Snapshots

    def snapshot(self) -> bytes:
        """Return the live windows, the counters and the options as bytes from which `restore` goes on exactly.

        Nothing in the runtime changes; without a push between, two snapshots are equal byte for byte. Raises
        SnapshotError while a push is under way. O(live tuples).
        """
        names = self.query.graph.names
        schedule = [(one.at, one.tree.text(names), self._texts(one.store)) for one in self._schedule]
        return write(self._held(), self._options(), schedule)

    @classmethod
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
        query       the same query; docs/snapshots.md says what may be written differently
        plan        another plan for it; None = the plan of the snapshot, the newest if several ran
        strategy    another strategy; None = that of the snapshot
        background  keys promoted after each push; None = as in the snapshot, if the strategy is the same
        policy      another policy; None = that of the snapshot, if the strategy is the same. One of your own has to be
                    given again: a snapshot has its name only

        Results, arrival numbers, lateness, counts and transitions to come go on as if nothing had happened; the counts
        of hops (probes, matches, walked) and the record of transitions start anew. States that are stored are not in a
        snapshot: "jisc" completes them just in time, the other strategies that have any before this returns. Raises
        SnapshotError for what is damaged or of another query, PlanError for a plan that does not fit, or transitions to
        come with a strategy that cannot change its plan, InputError for an unknown strategy.
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
        snapshot.fill(runtime._held())
        # What was stored for empty windows is not what is stored for these.
        runtime._modules.caches.clear()
        tree = runtime._strategy.tree
        runtime._strategy = make_strategy(
            options["strategy"], runtime._modules, tree, options["background"], options["store"]
        )
        runtime._bound = Bound(max_bytes, runtime._modules, runtime._payload)
        runtime._strategy.undone()
        runtime._router = runtime._router.with_strategy(runtime._strategy)
        runtime._schedule.update(to_come)
        runtime._results, runtime._deleted = snapshot.counts["results"], snapshot.counts["deleted"]
        runtime._late.counts = snapshot.counts["late"]
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

    def _held(self) -> Held:
        counts = {"results": self._results, "deleted": self._deleted, "late": list(self._late.counts)}
        return Held(self.query, self._modules, self._payload, self._kept, self._late.batches, counts)

    # Kept for another process (`eddy.live`)

    def __getstate__(self) -> dict[str, Any]:
        if self._modules.pushing:
            raise StateError("a push is under way; an engine is kept between two pushes")
        state = {name: value for name, value in vars(self).items() if name not in ATTACHED}
        state["learnt"] = {place: one.learnt() for place, one in self._filters().items()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        learnt = state.pop("learnt")
        vars(self).update(state)
        self._attach()
        for place, one in self._filters().items():
            one.resume(learnt[place])
        self._strategy.relocated()

    @property
    def policy_itself(self) -> Policy:
        """The policy as an object."""
        return self._router.policy

    def dismantle(self) -> None:
        """Let go of all memory now, not when cycles are collected some day. It is of no use afterwards."""
        self._strategy.dismantle()
        for part in (self._modules, self._payload, self._router.samples, self._router, self):
            vars(part).clear()

    # Looking in

    def late(self) -> dict[str, pa.Table]:
        """Return the late rows since the last call, by stream (streams without any left out), and forget them."""
        return self._late.take(self.query.graph.names)

    @property
    def nbytes(self) -> int:
        """Bytes of all state: SteMs, STAIRs, key directories, payload and the room for results."""
        return self._modules.nbytes + self._payload.nbytes + self._strategy.nbytes

    def metrics(self) -> dict[str, Any]:
        """Return counts since the start, in all and per state: arrivals, probes, results, expired, late, bytes, …"""
        return metrics(self._modules, self._strategy, self._payload, self._late.counts, self._results, self._deleted)

    def stats(self) -> pa.Table:
        """Return figures of data and decisions: a row for each stream, pair, chain of three, hop, and one in all.

        `eddy.statistics.SCHEMA` says what the columns mean; `kind` tells the rows apart. Nothing changes by looking.
        Cost: some hundred tuples of each window are looked at, however large it is.
        """
        return stats_table(self._modules, self._strategy, self._router)

    def explain(self) -> str:
        """Return the plan as a tree with live figures, and why it stands: predictions, alternatives, stored states."""
        lines = [explain(self.query, self._strategy, self.metrics())]
        lines += reason_lines(self._strategy, self._router, self._bound)
        return "\n".join([*lines, *filter_lines(self._filters())])

    def filters(self) -> pa.Table:
        """Return figures of the filters since the start, a row for each predicate in the order they are asked now.

        where is the name of a stream, or "results"; the other columns are those of `AdaptiveFilter.stats`. What a push
        that failed had evaluated is counted, as it took its time.
        """
        return filter_table(self._filters())

    def _filters(self) -> dict[str, AdaptiveFilter]:
        found = {self.query.streams[i].name: one for i, one in self._gate.filters.items()}
        return found if self._output.accepts is None else {**found, "results": self._output.accepts}

    def check(self) -> None:
        """Raise StateError unless all invariants of all state modules hold. O(state), for tests."""
        self._modules.check()
        self._strategy.check()
        if self._payload.room != self._modules.capacity:
            raise StateError(f"rings of payload {self._payload.room} and of records {self._modules.capacity} differ")
