"""A running query: its operators, and the one transaction over all of them.

    rows -> gate -> joins -> partners -> groups -> tops -> output -> table
            admit   n-way    left, semi,           first
            order   adaptive anti, full            rows
            late

A query without branches has one join and no partners; a query without aggregates has no groups, one without `top` no
tops. Joins, partners, groups and tops are operators with one contract (`eddy.pipeline.operator`). A push happens in all
operators, or in none (`eddy.pipeline.push` computes the push), whatever exception comes between two statements. The
pipeline has two records, as in a database log:

    undo     set first. While it is the only record, the push has not happened: `roll_back` undoes the push
    commit   set in one statement when all results are computed. From then on the push has happened: `_complete` settles
             all operators, and the push is never undone

`roll_back` and `_complete` consist of steps that may be repeated, and clear the records last. So after an exception
within either method, the next call runs the method again from its start (`recover`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any
from weakref import ref

import pyarrow as pa

from eddy.aggregates.groups import Groups, Sized
from eddy.aggregates.rings import rings_of
from eddy.filters.adaptive import AdaptiveFilter
from eddy.ingest.clock import clock_of
from eddy.ingest.gate import Gate
from eddy.join.bound import checked_bound
from eddy.join.join import Join
from eddy.join.options import RuntimeOptions
from eddy.partners.partners import Partners
from eddy.pipeline.by_join import join_of, own_policy, plans_in, stores_in
from eddy.pipeline.operator import Operator
from eddy.pipeline.records import Commit, LastPush, Prepared
from eddy.pipeline.transaction import Transaction
from eddy.query.branch_nodes import Path
from eddy.query.query import Query
from eddy.query.result_key import result_key
from eddy.results.failed_output import FailedOutput
from eddy.results.late_output import LateOutput
from eddy.results.modes import UNORDERED, takes_back
from eddy.results.results import Results
from eddy.routing.policies import Policy, PolicyName
from eddy.routing.router import make_policy
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from eddy.tops.tops import Tops
from stairs.errors import CapacityError, InputError
from stairs.memory.allowance import Allowance


class Pipeline(Transaction[Commit]):
    """One running query. Raises PlanError and InputError for options that do not fit the query.

    by_join   options of each join that differ from `options`, when a pipeline is made again

    joins     the inner joins, by the positions of their streams in the query
    join      the first inner join: the only one of a query without branches
    at_work   the join that has taken the arrivals last, or takes them now
    partners  the operator that returns the rows of a query with branches, else None
    gate, clock   admission; the clock of a query with a RANGE window, None without such a window
    output    the object that makes results from the rows of the joins, or of the partners
    groups    the groups of a query with aggregates, else None
    tops      the first rows of groups of a query with `top`, else None
    operators the joins, the partners, the groups and the tops, in the order in which changes flow
    late, failed   late rows, failed rows
    max_bytes      the bound on bytes, None = no bound
    position, n_results, n_deleted, pushes   counts since the start; `pushes` counts those of this object
    finished       whether the input has ended
    derived   by input, the pipeline of the query whose rows it has
    beside    what shares the bound with the pipeline: the rest of the pipeline of which it is an input
    last           the last push
    """

    def __init__(
        self, query: Query, options: RuntimeOptions, by_join: Mapping[Path, Mapping[str, Any]] | None = None
    ) -> None:
        if not isinstance(query, Query):
            raise InputError(f"a Runtime runs an eddy.Query, not {type(query).__name__}")
        changelog = takes_back(options.output)
        if query.tables_changing and not changelog:
            raise InputError(
                f"table {query.tables_changing[0]} changes, so results are taken back: pass output='changelog'"
            )
        if query.looks_up and changelog and not query.unretracted:
            raise InputError(
                f"table {query.looks_up[0]}: a row that looked it up is never taken back, also when it leaves a window;"
                " use output='append', or a single stream without a window"
            )
        _check_times(query)
        query = query.for_changelog() if changelog else query
        if options.output == "upsert":
            result_key(query)
            for name in ("count_only", "ids_only"):
                if getattr(options, name):
                    raise InputError(f"{name} shows no key, by which output='upsert' gives rows; leave one of them out")
        if query.tables_changing and options.ordered:
            raise InputError(f"ordered is for streams, and {query.tables_changing[0]} is a table; leave it out")
        self.options = options
        self.partners: Partners | None = None
        self.joins: dict[Path, Join]
        if query.tree is not None:
            if options.ordered:
                raise InputError(
                    "ordered is for queries without branches and as-of joins: rows come when the watermark or the end"
                    " of the input decides them, not when a component arrives; leave it out, and sort the rows of a"
                    " push"
                )
            self.joins = _inner_joins(query, options, by_join)
            columns = query.payload_columns(not (options.count_only or options.ids_only))
            allowance = Allowance()
            self.partners = Partners(query, self.joins, columns, changelog, allowance, options.spill)
            if not (changelog or options.bounded):
                self.partners.check_ends()
            self.output = Results(
                query,
                columns,
                changelog=changelog,
                count_only=options.count_only,
                ids_only=options.ids_only,
                upsert=options.output == "upsert" and query.aggregation is None and query.ranking is None,
            )
        else:
            path = tuple(range(len(query.streams)))
            only = Join(query, options if by_join is None else replace(options, **by_join[path]))
            self.joins, self.output, allowance = {path: only}, only.output, only.modules.allowance
        self.query = query
        self._list = list(self.joins.values())
        self.join = self.at_work = self._list[0]
        self.groups = _groups_of(query, options, allowance)
        self.tops = _tops_of(query, options, self.output if self.groups is None else self.groups, allowance)
        if self.groups is not None and self.partners is None:
            self.join.rings = rings_of(self.groups, self.join.modules, self.join.payload, self.join.columns)
            self.groups.rings = self.join.rings
        self.operators: list[Operator] = [*self._list]
        self.operators += [operator for operator in (self.partners, self.groups, self.tops) if operator is not None]
        self.beside: list[Sized] = []
        self.derived: dict[str, Pipeline] = {}
        for stream, source in derived_inputs(query):
            self.adopt(stream.name, Pipeline(source, self._options_of(stream, source)))
        self.gate, self.clock = Gate(query, allowance), clock_of(query)
        versions = list(self.gate.versions.values())
        if versions:
            allowance.parts.append(lambda: sum(table_versions.nbytes for table_versions in versions))
        self._allowance, mine = allowance, ref(self)
        if self.partners is not None:
            # Several joins, each with an allowance of its own: all that follows them asks beside all of them.
            allowance.parts[:] = [lambda: 0 if (pipeline := mine()) is None else pipeline.state_bytes]
        self.late, self.failed = LateOutput(query), FailedOutput(query)
        self.set_bound(options.max_bytes, self.join.used if self.partners is None else self.nbytes)
        self.position = self.n_results = self.n_deleted = self.pushes = 0
        self.finished = False
        self._undo: bool | None = None
        self._commit: Commit | None = None
        self.last: LastPush | None = None

    def _options_of(self, stream: Stream, source: Query) -> RuntimeOptions:
        """Return the options of the query of an input: those of the runtime, with plans of its own."""
        options = replace(self.options, plan=None, store=None, count_only=False, ids_only=False, ordered=False)
        # The outer pipeline bounds all of them together.
        options = replace(options, max_bytes=None)
        options = replace(options, policy=own_policy(source, options.policy, copied=True))
        if isinstance(stream, Table):
            return replace(options, output="upsert", bounded=False)
        return replace(options, output="append")

    @property
    def names(self) -> dict[str, list[tuple[str, str]]]:
        """The names under which rows are pushed, and whose rows they are: ("", R), or ("x", R) in the query of table x.

        Rows that are pushed as R are those of all streams R; rows that are pushed as "x.R" those of the query of x.
        """
        names = {stream.name: [("", stream.name)] for stream in self.query.streams if stream.name not in self.derived}
        for name, source in self.derived.items():
            for given in source.names:
                for each in (given, f"{name}.{given}"):
                    names.setdefault(each, []).append((name, given))
        return names

    def all_joins(self) -> Iterator[Join]:
        """Yield the joins of the query, and of the queries of its tables."""
        yield from self._list
        for source in self.derived.values():
            yield from source.all_joins()

    @property
    def has_clock(self) -> bool:
        """Whether the query, or that of one of its tables, has a watermark."""
        return self.clock is not None or any(source.has_clock for source in self.derived.values())

    @property
    def time_types(self) -> set[str]:
        """The types in which the query, and those of its inputs, count event time, as far as they have watermarks."""
        mine = set() if self.clock is None else {str(self.query.time_type)}
        return mine.union(*(source.time_types for source in self.derived.values()))

    @property
    def watermark(self) -> int | None:
        """The watermark in ticks, or None before the first; see `Runtime.watermark`."""
        return None if self.clock is None else self.clock.watermark

    @property
    def due(self) -> int | None:
        """See `Runtime.due`."""
        return None if self.partners is None else self.partners.due

    @property
    def nbytes(self) -> int:
        """Bytes of all state; see `Runtime.nbytes`."""
        derived = sum(source.nbytes for source in self.derived.values())
        operator_bytes = sum(operator.nbytes for operator in self.operators) + sum(
            table_versions.nbytes for table_versions in self.gate.versions.values()
        )
        return operator_bytes + derived + self.late.rows.nbytes + self.failed.rows.nbytes

    @property
    def file_bytes(self) -> int:
        """Bytes of the columns of rows in files; see `Runtime.file_bytes`."""
        rows = [join.payload for join in self._list]
        if self.partners is not None:
            rows.append(self.partners.row_store.payload)
        return sum(payload.file_bytes for payload in rows) + sum(source.file_bytes for source in self.derived.values())

    @property
    def output_schema(self) -> pa.Schema:
        """The schema of the tables that a push returns."""
        if self.tops is not None:
            return self.tops.schema
        return self.output.schema if self.groups is None else self.groups.schema

    @property
    def filters(self) -> dict[str, AdaptiveFilter]:
        """The filters by the name of their stream; the filter of results under "results", of several joins by title."""
        filters = {self.query.streams[i].name: stream_filter for i, stream_filter in self.gate.filters.items()}
        accepting = {"results": self.output.accepts}
        if self.partners is not None:
            accepting.update({f"join of {join.title}": join.output.accepts for join in self._list})
        return filters | {place: accepts for place, accepts in accepting.items() if accepts is not None}

    def join_of(self, plan: str) -> Join:
        """Return the join whose streams a plan names. Raises PlanError."""
        return self.join if self.partners is None else self.joins[join_of(self.query, plan)]

    def set_policy(self, policy: PolicyName | Policy | None) -> None:
        """Change the policy of all joins, each with a copy of its own. Raises InputError, and then changes nothing."""
        joins = list(self.all_joins())
        policies = [own_policy(self.query, policy, copied=len(joins) > 1) for _ in joins]
        made = [make_policy(join_policy, join.strategy) for join_policy, join in zip(policies, joins, strict=True)]
        for join, new_policy in zip(joins, made, strict=True):
            join.router.follow(new_policy)

    def present_options(self) -> dict[str, Any]:
        """Return the options of the pipeline as JSON values; each join has its own options (`Join.present_options`)."""
        return {
            "max_bytes": self.max_bytes,
            "output": self.options.output,
            "count_only": self.options.count_only,
            "ids_only": self.options.ids_only,
            "bounded": self.options.bounded,
            "ordered": self.options.ordered,
        }

    # The bound on bytes

    def set_bound(self, max_bytes: int | None, least: int = 1) -> None:
        """Bound the bytes of the pipeline. Raises InputError for a value that `checked_bound` refuses."""
        self.max_bytes = checked_bound(max_bytes, least)
        if self.partners is None:
            others = [operator for operator in (self.groups, self.tops) if operator is not None]
            self.join.set_bound(self.max_bytes, [*others, *self.gate.versions.values(), *self._sharing()])
        else:
            self._allowance.limit = float("inf") if self.max_bytes is None else float(self.max_bytes)
        for source in self.derived.values():
            source.set_bound(self.max_bytes)

    def adopt(self, name: str, source: Pipeline) -> None:
        """Take a pipeline as that of the query of an input. It shares the bound with all other parts."""
        self.derived[name] = source
        rest, below = _Rest(ref(self), ref(source)), ref(source)
        source.beside = [rest]
        if source.partners is None:
            source.join.modules.allowance.parts.append(lambda: rest.nbytes)
        if self.partners is None:
            self.join.modules.allowance.parts.append(lambda: 0 if (pipeline := below()) is None else pipeline.nbytes)

    def _sharing(self) -> list[Sized]:
        """Return what shares the bound with the operators: the pipelines below, and the rest of the one above."""
        return [*self.derived.values(), *self.beside]

    @property
    def used(self) -> int:
        """Bytes of all that shares the bound."""
        return self.nbytes + sum(part.nbytes for part in self.beside)

    @property
    def state_bytes(self) -> int:
        """Bytes of all that shares the bound, without the buffers of a push in partners."""
        return self.used - (0 if self.partners is None else self.partners.buffer_bytes)

    def share_bound(self, join: Join) -> None:
        """Give one of several joins the rest of `max_bytes`. Raises CapacityError if no bytes are left."""
        if self.max_bytes is None or self.partners is None:
            return
        rest = self.used - join.nbytes
        if rest + join.least_bytes > self.max_bytes:
            raise CapacityError(
                f"ledgers, rows kept for branches and the other joins take {rest:,} bytes, max_bytes is"
                f" {self.max_bytes:,}: narrow the windows, select fewer columns, or raise max_bytes"
            )
        join.set_bound(self.max_bytes - rest)

    def _unshare_bound(self) -> None:
        """Remove the bounds of several joins: the next push gives them new bounds."""
        if self.max_bytes is not None and self.partners is not None:
            for join in self._list:
                join.set_bound(None)

    def give_room_back(self) -> None:
        """Free the buffers of the last push if the bound is exceeded with them, between two pushes."""
        if self.max_bytes is not None and self.used > self.max_bytes:
            for join in self.all_joins():
                join.modules.release_scratch()
            for ledger in [] if self.partners is None else self.partners.ledgers:
                ledger.release_buffers()

    def keep_within(self) -> None:
        """Keep within the bound: free the buffers of the last push, and drop late and failed rows."""
        if self.max_bytes is not None:
            self.give_room_back()
            self.late.keep_within(self._left())
            self.failed.keep_within(self._left() - self.late.rows.nbytes)

    def _left(self) -> float:
        """Return the bytes that are left for late and failed rows."""
        if self.max_bytes is None:
            return float("inf")
        return self.max_bytes - self.used + self.late.rows.nbytes + self.failed.rows.nbytes

    # The transaction

    @property
    def unsettled(self) -> bool:
        """Whether a call is at work, or an exception interrupted one."""
        # A change of plan between two pushes affects only its join.
        if self._is_open or self.join.undo is not None:
            return True
        if self.derived and any(source.unsettled for source in self.derived.values()):
            return True
        if any(table_versions.directory.fresh for table_versions in self.gate.versions.values()):
            return True
        return self.partners is not None and any(join.undo is not None for join in self._list)

    def note(self) -> None:
        """Note that a push is running, before it begins in the operators: it begins in the queries of inputs."""
        self._undo = True

    def begin(self, loading: bool = False) -> None:
        """Note the state of all operators, which an exception from here on restores."""
        self._undo = True
        for operator in self.operators:
            operator.begin(loading)

    def settle(self, prepared: Prepared) -> None:
        """Let a prepared push happen, if it has not happened. Idempotent."""
        if self._commit is not None:
            self.recover()
            return
        if not self._undo:
            return
        began = perf_counter()
        arrivals, commit, seconds = prepared
        self._happen(commit)
        if self.partners is None:
            record = commit.operators[0]
            self.join.strategy.history.note_push(record.inserted, record.arrivals, seconds + perf_counter() - began)
        if self.max_bytes is not None:
            self.give_room_back()
        try:
            if commit.late.nbytes or arrivals.late:
                self.late.settle(arrivals.late, self._left(), arrivals.given)
        finally:
            if commit.failed.nbytes or commit.new_failed:
                self.failed.settle(commit.new_failed, self._left() - self.late.rows.nbytes)

    def _complete(self, commit: Commit, again: bool) -> None:
        for operator, record in zip(self.operators, commit.operators, strict=True):
            operator.settle(record, again)
        for name, prepared in commit.derived.items():
            self.derived[name].settle(prepared)
        for i, new in commit.newest.items():
            self.gate.versions[i].settle(new, again)
        self.position, self.n_results, self.n_deleted = commit.position, commit.results, commit.deleted
        self.late.rows, self.failed.rows = commit.late, commit.failed
        self.last, self.pushes, self.finished = commit.last, commit.pushes, commit.finished
        if self.clock is not None and commit.clock is not None:
            self.clock.state = commit.clock
        if self.max_bytes is not None:
            self._unshare_bound()

    def roll_back(self) -> None:
        """Restore the state of all operators at `begin`, and that of the queries of tables. Idempotent."""
        for source in self.derived.values():
            source.roll_back()
        for versions in self.gate.versions.values():
            versions.forget()
        self.roll_back_operators()

    _roll_back = roll_back

    def recover(self) -> None:
        """Complete an interrupted push if it has happened, else undo it."""
        self._recover()

    def load(self, commit: Commit) -> None:
        """Let earlier arrivals be loaded, as after an interrupted push: stored states, which miss them, start empty."""
        self._happen(commit, again=True)

    def roll_back_operators(self) -> None:
        """Restore the state of all operators at `begin`. Idempotent."""
        # This also runs without a push, because a change of plan may be running.
        for operator in reversed(self.operators):
            operator.roll_back()
        if self._undo:
            self._unshare_bound()
            self._undo = None

    # Inspection

    def check(self) -> None:
        """Raise StateError unless all invariants of all operators hold. O(state), for tests."""
        for operator in self.operators:
            operator.check()
        for versions in self.gate.versions.values():
            versions.check()
        for source in self.derived.values():
            source.check()

    def dismantle(self) -> None:
        """Release all memory now. The pipeline cannot be used then."""
        for operator in self.operators:
            operator.dismantle()
        for source in self.derived.values():
            source.dismantle()
        vars(self).clear()


class _Rest:
    """All parts of a pipeline, and what it shares a bound with, but for the pipeline of one input.

    It keeps neither of them: a runtime that is dropped frees its state at once, and not when cycles are collected.
    """

    def __init__(self, whole: ref[Pipeline], source: ref[Pipeline]) -> None:
        self._whole, self._source = whole, source

    @property
    def nbytes(self) -> int:
        """Bytes of these parts."""
        whole, source = self._whole(), self._source()
        return 0 if whole is None or source is None else whole.used - source.nbytes


def derived_inputs(query: Query) -> list[tuple[Stream, Query]]:
    """Return the inputs whose rows are those of queries, each with its query."""
    inputs = []
    for stream in query.streams:
        if isinstance(stream.source, Query):
            inputs.append((stream, stream.source))
    return inputs


def _check_times(query: Query) -> None:
    """Raise InputError unless the order of the rows of a query that is an input, among those of others, is known."""
    streams = [stream for stream in query.streams if not isinstance(stream, Table)]
    below = [stream.name for stream in streams if stream.source is not None]
    untimed = [stream.place for stream in streams if stream.time is None]
    if below and untimed and len(streams) > 1:
        raise InputError(
            f"{untimed[0]} has no time column, and rows of {below[0]} come with the pushes of the streams that its"
            " query reads, in the order of event times; name its time column with time=…"
        )


def _inner_joins(
    query: Query, options: RuntimeOptions, by_join: Mapping[Path, Mapping[str, Any]] | None
) -> dict[Path, Join]:
    """Return the joins of a query with branches. They return row numbers, from which the partners make rows."""
    if by_join is None:
        plans, stores = plans_in(query, options.plan), stores_in(query, options.store)
        by_join = {
            path: {"plan": plans.get(path), "store": stores[path], "policy": own_policy(query, options.policy)}
            for path in query.inner_joins()
        }
    inner = replace(options, plan=None, store=None, count_only=False, ids_only=True, max_bytes=None, bounded=False)
    if takes_back(options.output):
        # What is above the joins reads all changes, whatever is put out.
        inner = replace(inner, output="changelog")
    return {
        path: Join(inner_query, replace(inner, **by_join[path])) for path, inner_query in query.inner_joins().items()
    }


def _groups_of(query: Query, options: RuntimeOptions, allowance: Allowance) -> Groups | None:
    """Return the groups of a query, None for a query without aggregates. Raises InputError."""
    if query.aggregation is None:
        return None
    for name in ("count_only", "ids_only"):
        if getattr(options, name):
            raise InputError(f"{name} is for the results of a join, and this query has aggregates: leave it out")
    if options.ordered:
        raise InputError(UNORDERED)
    # The first rows of groups follow from all changes of groups, whatever is put out.
    output = "changelog" if query.ranking is not None and takes_back(options.output) else options.output
    groups = Groups(query, output, options.bounded, allowance)
    allowance.parts.append(lambda: groups.nbytes)
    return groups


def _tops_of(query: Query, options: RuntimeOptions, before: Results | Groups, allowance: Allowance) -> Tops | None:
    """Return the first rows of the groups of a query, None for a query without `top`. Raises InputError."""
    if query.ranking is None:
        return None
    for name in ("count_only", "ids_only", "ordered"):
        if getattr(options, name):
            raise InputError(f"{name} is for all results of a join, and this query has top: leave it out")
    tops = Tops(query, options.output, options.bounded, before.schema, before.changelog, allowance)
    allowance.parts.append(lambda: tops.nbytes)
    return tops
