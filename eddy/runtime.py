"""The runtime: the public face of a pipeline (`eddy.pipeline`). Every method delegates to the room of its noun."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from eddy.aggregates.groups import groups_now
from eddy.filters.figures import filter_lines, filter_table
from eddy.inspect.describe import described, group_lines, top_lines
from eddy.inspect.history import history_table
from eddy.inspect.metrics import metrics
from eddy.inspect.statistics import stats_table
from eddy.join.asked_transition import transition
from eddy.join.join import Join
from eddy.join.options import RuntimeOptions
from eddy.join.trim import spare_bytes, trim
from eddy.log import LOG, log_endless, refusals
from eddy.pipeline.pipeline import Pipeline
from eddy.pipeline.push import end, load, push
from eddy.pipeline.records import LastPush
from eddy.pipeline.turn import Turn, in_logged_turn, in_turn, settled
from eddy.query.query import Query
from eddy.routing.policies import Policy, PolicyName
from eddy.show.description import Description
from eddy.show.formats import FORMATS, Format, checked_format
from eddy.show.html import Timeline, as_html
from eddy.show.text import bytes_text
from eddy.show.times import time_seconds, time_text
from eddy.snapshot.parts import from_parts, to_parts
from eddy.snapshot.restore import Choices, restored
from eddy.snapshot.snapshot import read_snapshot, save_snapshot, snapshot_of
from eddy.storage.file_kind import SNAPSHOT
from eddy.uncopied import Uncopied
from jisc.strategies import StrategyName, Transition
from stairs.errors import InputError
from stairs.memory.spill import SpillDirectory
from stairs.stair import Stair
from stairs.stems import RENUMBER_AT
from stairs.storage.parts import Parts, Plain


def _directory(spill: str | PathLike[str] | SpillDirectory | None) -> SpillDirectory | None:
    """Return the directory for rows in files. Raises InputError for one that cannot be used."""
    if spill is None or isinstance(spill, SpillDirectory):
        return spill
    directory = SpillDirectory(spill)
    if directory.in_memory:
        LOG.warning("spill=%r lies in memory (tmpfs): name a directory on a disk", directory.path)
    return directory


class Runtime(Uncopied):
    """Runs one query over its streams.

    plan        a join tree such as "((R S) T) U"; None = left-deep, in query order as far as predicates connect
    policy      how the plan is chosen: a name in `eddy.routing.policies.POLICIES`, or your own policy object; None =
                "cost" under strategy "eddy", "fixed" under the other strategies
    strategy    how plans run and change: a name in `jisc.strategies.STRATEGIES`
    store       inner states of the plan to store from the start under strategy "eddy", by their streams: ["R S"]; under
                "moving-state" None stores all states, and the joins around a state that is left out are one join with
                more than two inputs
    max_bytes   bound on `nbytes` between two pushes. To stay within the bound, eddy drops late rows, then ring values
                and stored states, and frees the buffers of the last push; then it refuses a push. During a push, the
                memory of its input and results comes in addition. A bound below the empty state is refused
    decide_every  arrivals between two decisions of the policy; None = the time of decisions limits their number
    background  keys to promote after each push in each incomplete state, in addition to probed keys ("jisc", "eddy")
    output      "append": each result once; "changelog": an additional first column `op` is "+I" when the result
                appears and "-D" when one of its components leaves its window, unless `Query(expiry="final")`; "upsert":
                for joins of tables, for groups and for `top`, a changelog by key without the old rows of what is
                replaced: "+I", "+U", "-D"
    statistics  False = no statistics are kept, and the plan stays; `stats` then has counts only
    count_only  count results instead of building them: `push` returns column "count" with one row (in a changelog, "op"
                and "count", with one row for +I and one for -D)
    ids_only    results are row numbers: an int64 column per stream, the arrival number of the component in its stream
    bounded     the input ends, and `finish` will be called: left and anti branches may wait for partners until then,
                groups without windows for all results, and `top` for all rows
    ordered     results come in the order of their timestamps (docs/guide/semantics.md), also within one arrival, under
                each plan and strategy, for operators that read them as a stream. Not with `count_only`, branches or
                aggregates. Cost: a sort of the results of a push, about 100 ns a result
    purge       strategy "parallel-track": an old plan ends when no old tuple is in a window any longer ("exact"), or a
                window later, as in the paper ("paper"), which keeps a composite for a window after its youngest part
    spill       a directory on a disk for windows that are larger than memory: the columns of the rows of a stream go to
                a private file there once they take a megabyte, and `max_bytes` bounds the rest. Files vanish with the
                runtime, also after a kill; a full disk raises CapacityError, and the push has not happened. Or the
                attribute `spill` of another runtime. See docs/guide/windows.md for what stays in memory

    A query with branches has an inner join for its core and one for each branch, each with its own plan. `plan` is then
    the plan of one of these joins, or several plans separated by ";", as in "R S; (R S) T", and so is the attribute;
    `transition` changes the plan of the join whose streams it names, between two pushes; `history` and `stats` have a
    column `join`; `max_bytes` bounds the inner joins, given the bytes of the other parts: a push may exceed the bound
    by the rows and the ledgers that it adds for branches, and then the next push is refused.

    Only one call at a time may run: a call from a second thread, or from a function that the runtime calls, raises
    StateError and changes nothing. `snapshot` and `restore` make copies. Raises PlanError for a plan that does not fit
    the query, and InputError for an unknown option.

    >>> rows = pa.schema([("a", pa.int64())])
    >>> from eddy import Query, Stream
    >>> rt = Runtime(Query([Stream("R", rows), Stream("S", rows)], ["R.a = S.a"]))
    >>> rt.push({"R": pa.record_batch({"a": [1, 2]}), "S": pa.record_batch({"a": [2]})}, order=[0, 0, 1]).to_pylist()
    [{'R.a': 2, 'S.a': 2}]
    """

    _around: Runtime | None = None
    """The runtime of the query that reads the answer of this one as a table."""
    _no_copy = "a Runtime: make another with Runtime.restore(rt.snapshot(), query)"

    def __init__(
        self,
        query: Query,
        plan: str | None = None,
        *,
        policy: PolicyName | Policy | None = None,
        strategy: StrategyName = "eddy",
        store: Iterable[str] | None = None,
        max_bytes: int | None = None,
        decide_every: int | None = None,
        statistics: bool = True,
        background: int = 0,
        output: Literal["append", "changelog", "upsert"] = "append",
        count_only: bool = False,
        ids_only: bool = False,
        renumber_at: int = RENUMBER_AT,
        bounded: bool = False,
        ordered: bool = False,
        purge: Literal["exact", "paper"] = "exact",
        spill: str | PathLike[str] | SpillDirectory | None = None,
    ) -> None:
        options = RuntimeOptions(
            plan=plan,
            policy=policy,
            strategy=strategy,
            store=store,
            max_bytes=max_bytes,
            decide_every=decide_every,
            statistics=statistics,
            background=background,
            output=output,
            count_only=count_only,
            ids_only=ids_only,
            renumber_at=renumber_at,
            bounded=bounded,
            ordered=ordered,
            purge=purge,
            spill=_directory(spill),
        )
        self._run(query, Pipeline(query, options))

    @classmethod
    def _running(cls, query: Query, pipeline: Pipeline) -> Runtime:
        """Return a runtime that continues with a pipeline."""
        runtime = cls.__new__(cls)
        runtime._run(query, pipeline)
        return runtime

    def _run(self, query: Query, pipeline: Pipeline) -> None:
        options = pipeline.options
        self.query, self.count_only, self.ids_only = query, options.count_only, options.ids_only
        self.output: str = options.output
        self._turn = Turn()
        self._pipeline = pipeline
        if options.spill is not None:
            self._turn.end_in_copies(
                f"this runtime has rows in files (spill={options.spill.path!r}), which belong to the process that made"
                " it: make a runtime here with Runtime.restore, or start processes without a fork (spawn)"
            )
        self.output_schema = pipeline.output_schema
        """The schema of the tables that `push` returns."""
        if not options.bounded:
            log_endless("the query", query.endless)

    def _settle(self) -> None:
        """Complete or undo an interrupted call. Idempotent."""
        if self._around is not None:
            # A push happens in both queries, or in none.
            self._around._settle()
        elif self._pipeline.unsettled:
            self._pipeline.recover()
            self._pipeline.keep_within()

    @property
    def _unsettled(self) -> bool:
        return self._pipeline.unsettled if self._around is None else self._around._unsettled

    @property
    def derived(self) -> dict[str, Runtime]:
        """The runtimes of the queries whose rows are those of inputs of this query, by input.

        They have plans, figures, late and failed rows of their own. Their rows come with the pushes of this runtime.
        """
        runtimes = {}
        for name, pipeline in self._pipeline.derived.items():
            runtimes[name] = runtime = Runtime._running(pipeline.query, pipeline)
            runtime._around, runtime._turn = self, self._turn
        return runtimes

    def _check_outermost(self, call: str) -> None:
        if self._around is not None:
            raise InputError(
                f"{call}: the rows of this query are an input of another one; call {call} on the runtime of that query"
            )

    @property
    def _joins(self) -> list[Join]:
        """The inner joins: one join, or several joins in a query with branches."""
        return list(self._pipeline.joins.values())

    def _by_join(self, table_of: Callable[[Join], pa.Table]) -> pa.Table:
        """Return the tables of all inner joins as one table; with several joins, a column `join` distinguishes them."""
        if self._pipeline.partners is None:
            return table_of(self._pipeline.join)
        tables = []
        for join in self._joins:
            table = table_of(join)
            tables.append(table.add_column(0, "join", pa.array([join.title] * len(table), pa.string())))
        return pa.concat_tables(tables, promote_options="permissive")

    @property
    @settled
    def plan(self) -> str:
        """The running plan, or the newest of several, as text; ";" separates the plans of several joins."""
        return "; ".join(join.plan for join in self._joins)

    @property
    def strategy(self) -> str:
        """The name of the strategy."""
        return self._pipeline.join.strategy.name

    @property
    def policy(self) -> str:
        """The name of the policy."""
        return self._pipeline.join.router.policy.name

    @property
    @settled
    def position(self) -> int:
        """The number of arrivals so far; filtered and late rows do not count."""
        return self._pipeline.position

    @property
    @settled
    def pushes(self) -> int:
        """The number of pushes that happened in this object."""
        return self._pipeline.pushes

    @property
    def max_bytes(self) -> int | None:
        """The bound on bytes, None = no bound. It can be set between two pushes and holds from the next push on.

        Setting it raises InputError if the value is not a number of bytes or None.
        """
        return self._pipeline.max_bytes

    @max_bytes.setter
    @in_turn
    def max_bytes(self, max_bytes: int | None) -> None:
        self._check_outermost("max_bytes")
        self._pipeline.set_bound(max_bytes)

    @property
    @settled
    def stairs(self) -> list[Stair]:
        """The stored states, for inspection and tests."""
        return [stair for join in self._joins for stair in join.strategy.stairs]

    # Changing the plan

    @in_logged_turn
    def transition(
        self, plan: str, at: int | None = None, store: Iterable[str] | None = None, *, box: str | None = None
    ) -> Transition | None:
        """Change the plan now, or when arrival number `at` is next, which may be in the middle of a push.

        Subtrees of both plans do not change, under every strategy.

        store    inner states of the new plan to store under "eddy" and "moving-state", by their streams: ["R S"]; None
                 = the currently stored states that the new plan also has; under "moving-state" all states, unless
                 `store` was given before
        box      the subtree that changes, by its streams: "R S T", for a change now. None = the smallest subtree. Under
                 "parallel-track" both versions of the box run in parallel, and the rest is shared. A named box runs
                 twice as a whole; otherwise unchanged subtrees of the box are shared, too

        Arrivals are numbered from 0 over all streams (`position`). Returns the figures of the transition, or None if it
        is scheduled; `history` has them afterwards. No result is lost, added or repeated. Several transitions may be
        scheduled; those for one position happen in the order of the calls. A policy other than "fixed" may change the
        plan again later. Raises PlanError for a plan that does not fit the query, for a box that is no subtree of both
        plans or outside of which they differ, and for a strategy that cannot change its plan, InputError for a past
        position, and CapacityError if there is no memory for the states to store now (a scheduled transition leaves
        these states out instead). After an error nothing has changed. Cost: O(states), plus the work that the strategy
        does at once (see `jisc.strategies`).
        """
        if at is not None and self._pipeline.partners is not None:
            raise InputError(
                "at= is for queries without branches and as-of joins: here a transition happens at once, between two"
                " pushes"
            )
        done = transition(self._pipeline.join_of(plan), plan, at, store, box)
        if done is not None:
            self._pipeline.keep_within()
        return done

    @in_turn
    def set_policy(self, policy: PolicyName | Policy | None) -> None:
        """Change the policy between two pushes; see `policy` above. The plan stays until the new policy changes it.

        With several joins, those of branches and of inputs that are queries, each join follows a copy of the policy.
        The statistics of the streams stay; what the earlier policy has learnt is lost. Raises InputError for something
        that is no policy or, with several joins, cannot be copied. After an error nothing has changed.
        """
        self._pipeline.set_policy(policy)

    @in_turn
    def scheduled(self) -> list[tuple[int, str]]:
        """Return the scheduled transitions as (position, plan), in order."""
        names = self.query.graph.names
        return [(planned.at, planned.tree.text(names)) for planned in self._pipeline.join.schedule]

    @property
    @settled
    def changes(self) -> int:
        """The number of changes of plan and of stored states; `history` has a row for each."""
        return sum(join.strategy.history.count for join in self._joins)

    @property
    @settled
    def reason(self) -> str | None:
        """The reason of the newest change of each join, None without a change."""
        newest = [join.strategy.history.newest for join in self._joins]
        return "; ".join(change.reason for change in newest if change is not None) or None

    @in_turn
    def history(self) -> pa.Table:
        """Return all changes of plan and of stored states, oldest first: position, reason, cost and effect.

        `jisc.strategies.Transition` documents the columns.
        """
        return self._by_join(lambda join: history_table(join.strategy.history.transitions))

    # Pushing

    @in_logged_turn
    def push(
        self,
        batches: Mapping[str, object],
        order: Any = None,
        *,
        watermark: int | None = None,
        atomic: bool = False,
    ) -> pa.Table:
        """Process arrivals and return their results, those of earlier arrivals first.

        The order of the results of one arrival depends on plan, strategy and stored states, unless `ordered` is set.

        batches    rows by stream: a record batch or table; a DataFrame or anything else with the Arrow PyCapsule
                   interface; a sequence of dicts; or a dict of columns. Streams may be absent, batches empty; columns
                   not in the schema are ignored; columns of another width or unit are cast if no value changes. The
                   rows of the query of a table x have the names of its streams; "x.R" is R of this query alone
        order      int[rows of all streams], the stream of each arrival by its position in the query; None = by event
                   time, ties by position of the stream in the query, then by row
        watermark  a promise, in ticks of the common time type: no row of a later push is older. Rows of this push are
                   late if they are older than the watermark before it, and `Query.lateness` has no effect on them;
                   None = the watermark follows the rows
        atomic     the changelog is the difference between the answers before and after the push; of several changes of
                   one key of a table only the last one arrives, and changes arrive before rows

        Returns a table of `output_schema` (see `output`, `count_only`, `ids_only`). A table of few results is a slice
        of a block that about eight pushes share: it keeps the block in memory, and pickle writes the whole block, while
        Arrow's IPC writes the slice. Raises InputError for rows that do not fit the query and for a watermark that
        decreases; the state is then as before. After any other exception, for example one of a signal handler at any
        point, the push either is complete or had no effect: `pushes` and `last_push` report which. Cost: O(arrivals +
        chains walked + results).
        """
        self._check_outermost("push")
        return push(self._pipeline, batches, order, watermark, atomic)

    @in_logged_turn
    def finish(self) -> pa.Table:
        """End the input, and return the results that only its end decides, in order of event time.

        These are rows of left and anti branches that still waited for a partner, groups that were not returned before,
        and, with output "append", the answer of a query with `top`. In any other query no row waits, so the table is
        empty. A later push is refused, also by a runtime that is restored from a snapshot.
        """
        self._check_outermost("finish")
        return end(self._pipeline)

    @in_turn
    def groups(self) -> pa.Table:
        """Return the rows of all groups as they are now, of `Query.output_schema`; nothing changes.

        These are early results: the windows of event time that have not been returned, with the results so far. In a
        changelog: the current answer. Raises InputError for a query without aggregates. O(groups).
        """
        return groups_now(self._pipeline.groups)

    @in_turn
    def last_push(self) -> LastPush | None:
        """Return the last push that happened (the position after it, and its results), or None before the first.

        For a caller whose `push` was interrupted, by Ctrl-C for example: if `pushes` has increased, the push happened,
        and `last_push` has its results. If not, push the rows again. The results are kept until the next push.
        """
        return self._pipeline.last

    @in_turn
    def load(self, batches: Mapping[str, object], *, watermark: int | None = None) -> None:
        """Load rows that arrived earlier: they enter the windows without producing results.

        batches    all rows that arrived, by stream; rows that have left their windows are skipped, but counted
        watermark  the watermark after these rows; None = it follows from them

        Later pushes behave as if the rows had been pushed (by event time if all streams with rows have a time column,
        else in row order): the same results, arrival numbers and late rows. No row is late here. Counts of results
        start at 0. Stored states are completed as in `restore`. In a query with branches, rows that are older than the
        watermark by more than `Query.spans` may be left out, `Rows` windows are refused, and the cost is that of a
        push. Only allowed before the first arrival, and before a transition is scheduled. Raises InputError as `push`
        does, and CapacityError if there is no room; the state is then as before. Cost: O(rows); nothing is probed.
        """
        self._check_outermost("load")
        load(self._pipeline, batches, watermark)

    # Copies

    @in_turn
    def snapshot(self) -> bytes:
        """Return the live windows, the counters and the options as bytes from which `restore` resumes exactly.

        The runtime does not change. Two snapshots without a push between them are equal byte for byte. Raises
        SnapshotError for a payload that Arrow finds invalid. O(live tuples).
        """
        return snapshot_of(self._pipeline)

    @in_turn
    def save(self, path: str | PathLike[str]) -> None:
        """Write a snapshot to a file, from which `restore` resumes; the file is replaced as a whole or not at all.

        With `spill`, the rows pass through a private file, so windows larger than memory can be saved: their columns
        take the room of two copies on disks for a while. Raises as `snapshot` does, SnapshotError if the file cannot be
        written, and CapacityError if the disk of `spill` is full.
        """
        self._check_outermost("save")
        save_snapshot(self._pipeline, Path(path))

    @classmethod
    @refusals
    def restore(
        cls,
        data: bytes | str | PathLike[str],
        query: Query,
        plan: str | None = None,
        strategy: StrategyName | None = None,
        background: int | None = None,
        policy: PolicyName | Policy | None = None,
        spill: str | PathLike[str] | SpillDirectory | None = None,
    ) -> Runtime:
        """Return a runtime that resumes where a snapshot was taken. O(live tuples).

        data        the bytes that `snapshot` returned, in this process or another; or the path of a file that `save`
                    wrote
        query       the same query; docs/guide/snapshots.md lists what may differ in its text
        plan        another plan; None = the plan of the snapshot, the newest if several ran
        strategy    another strategy; None = that of the snapshot
        background  keys to promote after each push; None = as in the snapshot, if the strategy is the same
        policy      another policy; None = that of the snapshot, if the strategy is the same. A policy of your own has
                    to be given again: a snapshot holds its name only
        spill       a directory for rows, as in `Runtime`; a snapshot names none. The file at a path is then copied
                    there and not read into memory

        Results, arrival numbers, lateness, counts and scheduled transitions continue as without interruption. The
        counters of hops (probes, matches, walked) and the history start anew. A snapshot holds no stored states: "jisc"
        and "eddy" complete them just in time, other strategies before this call returns. Raises SnapshotError for data
        that are damaged, inconsistent or of another query, PlanError for a plan that does not fit or for scheduled
        transitions under a strategy that cannot change its plan, and InputError for an unknown strategy.
        """
        if not isinstance(query, Query):
            raise InputError(f"a snapshot is restored for an eddy.Query, not {type(query).__name__}")
        choices = Choices(plan, strategy, background, policy, _directory(spill))
        parts = read_snapshot(data, choices.spill) if isinstance(data, str | PathLike) else SNAPSHOT.unpack(data)
        return cls._running(query, restored(parts, query, choices))

    @in_turn
    def to_parts(self) -> Plain:
        """Return the whole state as plain parts, from which another process can resume (`eddy.live.engine_file`)."""
        return to_parts(self._pipeline)

    @classmethod
    def from_parts(cls, parts: Parts, query: Query, policy: str | Policy | None = None) -> Runtime:
        """Return the runtime that returned these parts, for the same query.

        policy   the policy of that runtime, if it is the caller's own; it resumes with its learnt state

        Raises StateError, PlanError, QueryError or InputError for parts that do not fit together.
        """
        return cls._running(query, from_parts(parts, query, policy))

    def dismantle(self) -> None:
        """Release all memory now, and not when reference cycles are collected. Later calls raise StateError."""
        self._check_outermost("dismantle")
        self._pipeline.dismantle()
        self._turn.end("this runtime was saved for another process and cannot be used here any more; load it there")

    # Inspection

    @in_turn
    def late(self) -> dict[str, pa.Table]:
        """Return the late rows kept since the last call, by stream, and remove them. Omits streams without late rows.

        eddy keeps the newest `Query.late_rows` rows of each stream with `late="keep"`, in order of arrival, and rows
        whose function raised.
        """
        return self._pipeline.late.take()

    @in_turn
    def last_late(self) -> dict[str, pa.Table] | None:
        """Return the rows that `late` has removed since the last push, or None if it has removed no rows.

        For a caller whose `late` was interrupted, by Ctrl-C for example: if this is None, nothing was removed, and
        `late` can be called again. The rows are kept until the next push that happens.
        """
        return self._pipeline.late.taken()

    @in_turn
    def failed(self) -> pa.Table:
        """Return the failed rows kept since the last call, with the columns kind, expression, reason, row; remove them.

        These are joined rows for which an expression of the query has no value (a division by zero, a CAST, a local
        time that does not exist), and groups of which a sum exceeds its type. Failed rows are left out of the results
        and do not affect other rows (docs/guide/semantics.md). eddy keeps the newest `Query.failed_rows` failed rows
        with `failed="keep"`, and rows whose function raised.
        """
        return self._pipeline.failed.table()

    @in_turn
    def last_failed(self) -> pa.Table | None:
        """Return the rows that `failed` has removed since the last push, None without removed rows; see `last_late`."""
        return self._pipeline.failed.last_table()

    @property
    def failed_count(self) -> int:
        """The number of failed rows since the start, kept or not."""
        return self._pipeline.failed.count

    @property
    @settled
    def late_counts(self) -> dict[str, int]:
        """The number of late rows of each stream since the start, kept or not."""
        return dict(zip(self.query.graph.names, self._pipeline.late.rows.counts, strict=True))

    @property
    @settled
    def watermark(self) -> int | None:
        """The watermark: older rows are late. In ticks of the common time type, or None before the first.

        The watermark follows the slowest stream (`Query.watermark`), less the lateness; or the caller gives it.
        """
        return self._pipeline.watermark

    @property
    @settled
    def due(self) -> int | None:
        """The event time that the watermark must pass before a waiting row is certain, None if no row waits.

        Rows of left and anti branches wait for a partner, and with output "append", rows of as-of joins for their
        versions; no other rows wait.
        """
        return self._pipeline.due

    @property
    @settled
    def nbytes(self) -> int:
        """Bytes of all state: SteMs, STAIRs, key directories, payload, kept late rows and buffers for results."""
        return self._pipeline.nbytes

    @property
    def spill(self) -> SpillDirectory | None:
        """The directory for rows in files, None = all rows are in memory."""
        return self._pipeline.options.spill

    @property
    @settled
    def file_bytes(self) -> int:
        """Bytes of the columns of rows in files of the directory `spill`, which `nbytes` does not count."""
        return self._pipeline.file_bytes

    @property
    @settled
    def spare_bytes(self) -> int:
        """Maximal number of bytes that `trim` frees: a part of `nbytes`."""
        return sum(map(spare_bytes, self._pipeline.all_joins()))

    @in_turn
    def trim(self) -> None:
        """Free memory that no row needs or that the next pushes can rebuild.

        The call frees states, ring values, bands, and buffers for input and results. The rings of rows grew with the
        greatest push; they shrink to twice the slots that the rows need. The room for keys stays. The queries of tables
        free their memory, too.
        The results of later pushes do not change. Stored states remain chosen and become empty; each key is completed
        at its next probe. Strategies that keep all states complete ("moving-state", "stairs", "eddy-stairs",
        "symmetric-hash") keep them. O(states), and O(state) if a ring shrinks.

        Raises CapacityError if the disk of `spill` has no room for the smaller rings beside the present ones.
        """
        for join in self._pipeline.all_joins():
            trim(join)

    @in_turn
    def metrics(self) -> dict[str, Any]:
        """Return counts since the start, in total and per state: arrivals, probes, results, expired, late, bytes, …"""
        return metrics(self._pipeline)

    @in_turn
    def stats(self) -> pa.Table:
        """Return figures of the data and of decisions: rows of kind stream, pair, chain (of three), hop and cost.

        `eddy.inspect.statistics.SCHEMA` documents the columns. The call changes nothing. Cost: it examines some hundred
        tuples of each window, for windows of any size.
        """
        return self._by_join(lambda join: stats_table(join.modules, join.strategy, join.router))

    @in_turn
    def explain(self, format: Format = "text") -> str:
        """Return the plan as a tree with live figures, then predictions, alternatives and stored states.

        format   "text"; "json": the same figures as `eddy.show.description` names them; "dot": the join graph and the
                 plan for Graphviz; "svg": both as a drawing

        Raises InputError for another format. Cost: that of trying the running plan once.
        """
        return FORMATS[checked_format(format)](self._description())

    def _description(self, predict: bool = True) -> Description:
        """Return the description of the runtime with its figures; `predict` adds predicted costs. Call it in turn."""
        pipeline = self._pipeline
        several = pipeline.partners is not None
        return Description(
            title="Runtime",
            query=repr(self.query),
            joins=tuple(
                described(pipeline, join, f"join of {join.title}" if several else "", predict) for join in self._joins
            ),
            arrivals=pipeline.position,
            results=pipeline.n_results,
            late=sum(pipeline.late.rows.counts),
            bytes=pipeline.nbytes,
            watermark=pipeline.watermark,
            watermark_time=time_text(pipeline.watermark, self.query.time_type),
            watermark_seconds=time_seconds(pipeline.watermark, self.query.time_type),
            waiting=None if pipeline.partners is None else pipeline.partners.waiting,
            groups=(*group_lines(pipeline.join, pipeline.groups), *top_lines(pipeline.tops)),
            filters=tuple(filter_lines(pipeline.filters)),
        )

    def _timelines(self) -> list[Timeline]:
        """Return the changes of each join. Call it in turn."""
        return [
            Timeline(history_table(join.strategy.history.transitions).to_pylist(), join.position, join.plan)
            for join in self._joins
        ]

    @in_turn
    def _repr_html_(self) -> str:
        return as_html(self._description(), self._timelines())

    def __repr__(self) -> str:
        name, streams = "Runtime", ", ".join(self.query.graph.names)
        if self._turn.ended:
            return f"{name} of {streams}, which cannot be used any more"
        return (
            f"{name} of {streams}\n"
            f"  plan {self.plan}, strategy {self.strategy}, policy {self.policy}, {self.changes:,} changes\n"
            f"  {self.position:,} arrivals, {self._pipeline.n_results:,} results,"
            f" {sum(self.late_counts.values()):,} late, state {bytes_text(self.nbytes)}"
        )

    @in_turn
    def filters(self) -> pa.Table:
        """Return figures of the filters since the start: a row per predicate, in the current order of evaluation.

        Column `where` is the name of a stream, or "results"; `AdaptiveFilter.stats` documents the others. Evaluations
        by failed pushes count, since they took time.
        """
        return filter_table(self._pipeline.filters)

    @in_turn
    def check(self) -> None:
        """Raise StateError unless all invariants of all state modules hold. O(state), for tests."""
        self._pipeline.check()
