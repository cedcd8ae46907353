"""The public engine: streams, and any number of queries over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.ingest.arrivals import Arrivals, NewVersions
from eddy.log import log_endless, refusals
from eddy.pipeline.records import Prepared
from eddy.pipeline.transaction import Transaction
from eddy.pipeline.turn import Turn, in_turn, settled
from eddy.queries.alone import Output
from eddy.queries.bound import EngineBound
from eddy.queries.changes import How
from eddy.queries.drain import drain_version
from eddy.queries.family import Family
from eddy.queries.history import ElementHistory, Event
from eddy.queries.joins import Joins
from eddy.queries.lone_join import LoneJoin
from eddy.queries.query import RunningQuery
from eddy.queries.restoring import restored
from eddy.queries.savepoint import AttributeSavepoint
from eddy.queries.shedding import Shedding
from eddy.queries.shown import engine_description, engine_timelines
from eddy.queries.snapshot import engine_snapshot
from eddy.queries.sources import EnginePush, Sources, placed
from eddy.queries.version import Version
from eddy.query.clock_rule import WatermarkOf
from eddy.query.query import Query
from eddy.results.failed_rows import FailedBatch
from eddy.results.late_output import LateOutput
from eddy.results.modes import check_output
from eddy.results.side_rows import LateRows
from eddy.routing.policies import Policy, PolicyName
from eddy.show.description import Description
from eddy.show.formats import FORMATS, Format, checked_format
from eddy.show.html import Timeline, as_html
from eddy.streams.late_options import LATE_ROWS, Late
from eddy.streams.numbers import whole
from eddy.streams.stream import Stream
from eddy.uncopied import Uncopied
from stairs.errors import InputError, SideOutputError
from stairs.graph import FOREVER


class LastEnginePush(NamedTuple):
    """A push that happened: the position after it, and its results by query."""

    position: int
    results: dict[str, pa.Table]


class _Done(NamedTuple):
    """A push that has happened: what each join has prepared, and the figures after it."""

    push: EnginePush
    prepared: dict[Family, Prepared]
    newest: list[int]
    clock: npt.NDArray[np.int64] | None
    late: LateRows
    last: LastEnginePush
    counts: dict[RunningQuery, int]
    failed: dict[RunningQuery, LateRows]
    versions: Mapping[int, NewVersions]
    ended: bool


_NOTHING = pa.table({})
"""Holds the place of the results of a query that each push visits."""
STOPPED = 1_000
"""Stopped queries that an engine knows by name at least; beyond twice as many, it forgets those that started first."""


def _check_switch(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InputError(f"{name} is True or False, not {value!r}")


class Engine(Uncopied, Transaction[_Done]):
    """Streams, and queries over them that start, change and stop while rows arrive.

    streams   the streams and tables of all queries, without filters. A window keeps rows of the stream for queries that
              start later, whether or not a query needs them; None: only what the running queries need. The rows of a
              table are kept: a query that starts sees them
    lateness, watermark, idle_after   as in a `Query`, over all streams of the engine. Late rows do not arrive
    late, late_rows   what comes of late rows, as in a `Query`; a stream may have a `late` of its own
    max_bytes  the bound on the bytes of all state, None = no bound: a push or a start that does not fit raises
              CapacityError, and the engine is as before. Snapshots keep it. O(joins) for each push
    share     whether queries over different join graphs share SteMs; False: more bytes, but no-good marks and stored
              states for each join graph (docs/guide/queries.md)
    options   of the runtimes, as in `Runtime`: strategy, policy, statistics, bounded

    The queries have streams of the same names, schemas and time columns, each with windows, filters and selected
    columns of its own, and no lateness. All see the same arrivals in the same order. Arrivals are numbered from 0 over
    all streams; the numbers are *positions*. Queries over the same streams with the same predicates share one join.
    One call at a time, those of its queries included: a call meanwhile raises StateError.

    Raises QueryError for streams that do not fit together.

    >>> from eddy import Engine, Query, Range, Stream
    >>> rows = pa.schema([("k", pa.int64()), ("at", pa.int64())])
    >>> engine = Engine([Stream("R", rows, time="at"), Stream("S", rows, time="at")])
    >>> windows = [Stream(name, rows, window=Range(10), time="at") for name in "RS"]
    >>> pairs = engine.start("pairs", Query(windows, ["R.k = S.k"], select={"k": "R.k"}))
    >>> engine.push({"R": [{"k": 1, "at": 0}], "S": [{"k": 1, "at": 5}]})["pairs"].to_pylist()
    [{'k': 1}]
    >>> pairs.stop()
    >>> pairs.state
    'stopped'
    """

    _no_copy = "an Engine: make another with Engine.restore(engine.snapshot(), streams, queries)"

    def __init__(
        self,
        streams: Sequence[Stream],
        *,
        lateness: int | timedelta = 0,
        watermark: WatermarkOf = "slowest",
        idle_after: int | timedelta | None = None,
        late: Late = "keep",
        late_rows: int = LATE_ROWS,
        max_bytes: int | None = None,
        **options: Any,
    ) -> None:
        share = bool(options.pop("share", True))
        wrong = sorted(set(options) - {"strategy", "policy", "statistics", "bounded"})
        if wrong:
            raise InputError(
                f"Engine has no option {wrong[0]!r}; its options are lateness, watermark, idle_after, late,"
                " late_rows, max_bytes, share, strategy, policy, statistics and bounded"
            )
        _check_switch("bounded", options.get("bounded", False))
        self.sources = Sources(streams, lateness, watermark, idle_after, alone=True, late=late, late_rows=late_rows)
        self.clock = self.sources.clock()
        """The clock of all streams, None without event times."""
        self.options = options
        """The options of the runtimes."""
        self.share = share
        self._turn = Turn("engine")
        self._queries: dict[str, RunningQuery] = {}
        self._running: dict[str, RunningQuery] = {}
        self._visited: dict[str, RunningQuery] = {}
        """The running queries that each push visits."""
        self._resting: dict[Version, RunningQuery] = {}
        """The other ones by their version: a push visits those of which it has results."""
        self._nothing: dict[str, pa.Table] = {}
        """The results of a push in which no query has any; those of visited queries have no meaning."""
        self._gone = False
        """Whether the joins may have versions that have ended."""
        self.joins = Joins(self.sources, options, share, self.clock, EngineBound(max_bytes))
        self.newest = [-FOREVER] * len(self.sources.streams)
        """Stream -> its greatest event time in ticks."""
        self._history = ElementHistory()
        self.late_output = LateOutput(self.sources, "engine", "Engine")
        """The late rows of all streams."""
        self._last: LastEnginePush | None = None
        self._undo: AttributeSavepoint | None = None
        self._commit: _Done | None = None
        self._position = self._started = 0
        self._finished = False
        self._shedding: Shedding | None = None

    @property
    def _unsettled(self) -> bool:
        """Whether a call is at work, or an exception interrupted one."""
        if self._is_open:
            return True
        # A push that was refused may have brought keys of versions.
        return any(table_versions.directory.fresh for table_versions in self.sources.versions.values())

    def _settle(self) -> None:
        self._recover()

    def _roll_back(self) -> None:
        for versions in self.sources.versions.values():
            versions.forget()
        if self._undo is not None:
            self.joins.roll_back()
            self._undo.restore()

    def _begin(self, *queries: RunningQuery) -> None:
        """Note what everything is now."""
        parts = [part for query in queries for version in query.versions for part in version.parts]
        failures = [query.failures for query in queries]
        self._undo = AttributeSavepoint([self, self._history, *self.joins.parts, *queries, *failures, *parts])

    @property
    @settled
    def position(self) -> int:
        """The number of arrivals so far."""
        return self._position

    @property
    def max_bytes(self) -> int | None:
        """The bound on the bytes of all state, None = no bound."""
        return self.joins.bound.max_bytes

    @property
    @settled
    def finished(self) -> bool:
        """Whether the input has ended: `finish` was called."""
        return self._finished

    # Queries

    @in_turn
    def start(
        self,
        name: str,
        query: Query,
        *,
        at: int | None = None,
        warm: bool = False,
        output: Output = "append",
        ordered: bool = False,
    ) -> RunningQuery:
        """Start a query under a name.

        at    position of the arrival before which it takes effect; None: the next arrival
        warm  False, a fresh start: its results are those of rows from the position on. True, a warm start: results
              whose last component arrives from then on, with all rows that the engine has kept; `complete_from` of the
              returned query says from which position that is all
        output  as in `Runtime`; changes keep it. A changelog, a query with branches or tables and some others have a
                join of their own, and not all changes (docs/guide/queries.md)
        ordered  as in `Runtime`: the results of each version come in the order of their timestamps, also those of one
                 arrival. Changes keep it

        Raises InputError for the name of a query that has not stopped, a position that has passed, a warm start that
        has no meaning, and an output mode or an order that the query cannot have; QueryError for a query that does not
        fit the streams, or has a lateness of its own; CapacityError for one that does not fit into `max_bytes`.
        """
        if name in self._queries and self._queries[name].state != "stopped":
            raise InputError(f"query {name!r} is {self._queries[name].state}; stop or change it, or use another name")
        check_output(output)
        _check_switch("ordered", ordered)
        position = self.checked_position(name, at)
        self._note_beside()
        self._begin()
        version = self.make(Version(0, query, position, warm, 0, ordered=ordered), output)
        started = RunningQuery(self, name, version, output)
        started.number = self._started
        self._started += 1
        self.note(position, name, 0, "warm start" if warm else "fresh start", version.complete_from)
        known = dict(self._queries)
        known.pop(name, None)
        known[name] = started
        if len(known) - len(self._running) > 2 * STOPPED:
            stopped = [other for other in known if other != name and known[other].state == "stopped"]
            for forgotten in stopped[: len(stopped) - STOPPED]:
                del known[forgotten]
        self._queries = known
        self._sort([started])
        self._undo = None
        self._keep_sides_within()
        if not self.options.get("bounded"):
            log_endless(f"query {name!r}", query.endless)
        return started

    @in_turn
    def give(self, query: RunningQuery, element: Callable[[], None]) -> None:
        """Carry out a control element of a query, in whole or not at all."""
        self._note_beside()
        self._begin(query)
        element()
        if not query.paused and self._queries.get(query.name) is query and query.name in self.joins.paused:
            self.joins.paused = {name: needs for name, needs in self.joins.paused.items() if name != query.name}
        # A version that has ended is asked nothing more: its conditions may be what made a push fail.
        self.joins.bounds_changed()
        self._gone = True
        self._sort([query])
        self._undo = None
        self._keep_sides_within()

    @in_turn
    def pause(self, query: RunningQuery, asked: Query, element: Callable[[], None]) -> None:
        """Carry out a control element that pauses a query, whose newest version asks for rows of `asked`."""
        self._begin(query)
        self.joins.keep_for(query.name, asked, query.output)
        element()
        self.joins.bounds_changed()
        self._gone = True
        self._sort([query])
        self._undo = None

    @in_turn
    def shed_load(
        self,
        deadline: float | timedelta | None,
        steps: Mapping[str, Sequence[Query | None]] | None = None,
        *,
        how: How = "handover",
        patience: int = 3,
        calm: int = 10,
    ) -> None:
        """Run cheaper versions of queries while pushes take longer than a deadline, and the full ones otherwise.

        deadline  a timedelta, or seconds, that a push may take; None ends it, and the queries stay as they are
        steps     by query its versions, the full one first, then cheaper ones: narrower windows, a sample of the keys,
                  fewer columns; None as the last one: a pause. The query runs one of them. The first query of the
                  mapping gives way first, and is restored last
        how       the kind of change between two versions, with its guarantees
        patience  as many late pushes one after the other lead to a step down
        calm      as many pushes that would have been in time at the version above, with a fifth to spare, lead to a
                  step up; twice as many after each step up that had to be taken back soon, up to 16 times as many

        The engine steps after a push, between two arrivals; `history()` has each step, `metrics()["shedding"]` the
        deadline and the steps. A step that the engine refuses is logged, and tried again later. A query that its user
        changes to another version, or pauses, is left alone. A snapshot has no steps: call `shed_load` after
        `Engine.restore`. Raises InputError for steps that can never be taken, and QueryError for versions that do not
        fit the streams.
        """
        if deadline is None:
            if steps is not None:
                raise InputError("shed_load: without a deadline there are no steps; leave them out, or give a deadline")
            self._shedding = None
            return
        shedding = Shedding(self._queries, self.sources, deadline, steps, how, patience, calm)
        for ladder in shedding.ladders:
            *_, lowest, last = ladder.steps
            if last is None and lowest is not None:
                self.joins.needs_to_resume(ladder.name, lowest, self._queries[ladder.name].output)
        self._shedding = shedding

    def _sort(self, queries: Sequence[RunningQuery]) -> None:
        """Note which of these queries run on, and which of those each push visits. O(all queries); O(1) for none."""
        if not queries:
            return
        running, visited = dict(self._running), dict(self._visited)
        resting, nothing = dict(self._resting), dict(self._nothing)
        for query in queries:
            for version in query.versions:
                resting.pop(version, None)
            if self._queries.get(query.name) is not query:
                continue  # another query has taken its name
            visited.pop(query.name, None)
            if not query.live or running.get(query.name) is not query:
                running.pop(query.name, None)
                nothing.pop(query.name, None)
            if not query.live:
                continue
            running[query.name] = query
            if query.rests and self.joins.is_shared(query.live[0]):
                resting[query.live[0]] = query
                nothing[query.name] = self.joins.readers[query.live[0]].nothing
            else:
                visited[query.name] = query
                nothing.setdefault(query.name, _NOTHING)
        # In one statement: an exception comes before it or after it.
        vars(self).update(_running=running, _visited=visited, _resting=resting, _nothing=nothing)

    @property
    @settled
    def queries(self) -> dict[str, RunningQuery]:
        """The queries by name, the newest of each name, the last stopped ones (`STOPPED` or more) included."""
        return dict(self._queries)

    def __getitem__(self, name: str) -> RunningQuery:
        self.position  # noqa: B018  # it ends what an exception interrupted
        if name not in self._queries:
            raise InputError(f"there is no query {name!r}; there are {', '.join(self._queries) or 'none'}")
        return self._queries[name]

    @settled
    def history(self) -> pa.Table:
        """Return the control elements of all queries in the order in which they were given, the last 10,000 or more.

        `eddy.queries.history.HISTORY` describes the columns.
        """
        return self._history.table()

    @settled
    def metrics(self) -> dict[str, Any]:
        """Return figures of the engine as JSON values.

        position      arrivals so far
        kept_bytes    by stream, the rows for later starts
        late          by stream, late rows so far; `late_dropped` of all streams were dropped before `late` took them
        shared_bytes  SteMs that several joins share
        joins         of each join: `streams`, `queries`, `plan`, `shared`, `bytes` of SteMs of its own, and the
                      `seconds` of its pushes until results were shared out
        queries       by name: `state`, `results` and `failed` rows so far, and the `filter_seconds` of conditions that
                      are asked for this query alone
        shedding      the `deadline`, the `seconds` of the last push and the `step_seconds` of the last step, and by
                      query the number of its step (`shed_load`), None where it is left alone; None without a deadline
        """
        readers = self.joins.readers
        queries = {
            name: {
                "state": query.state,
                "results": query.n_results,
                "failed": query.failed_count,
                "filter_seconds": sum(readers[version].seconds for version in query.live if version in readers),
            }
            for name, query in self._queries.items()
        }
        kept = {name: rows.nbytes() for name, rows in zip(self.sources.graph.names, self.joins.kept, strict=True)}
        return {
            "position": self.position,
            "kept_bytes": kept,
            "late": self.late_counts,
            "late_dropped": sum(self.late_output.rows.dropped),
            "shared_bytes": self.joins.shared_bytes,
            "joins": self.joins.figures({query.name: query.live for query in self._running.values()}),
            "queries": queries,
            "shedding": None if self._shedding is None else self._shedding.figures(self._queries),
        }

    @property
    @settled
    def late_counts(self) -> dict[str, int]:
        """The number of late rows of each stream."""
        return dict(zip(self.sources.graph.names, self.late_output.rows.counts, strict=True))

    @in_turn
    def late(self) -> dict[str, pa.Table]:
        """Return the late rows kept since the last call, by stream, and remove them; as `Runtime.late`."""
        return self.late_output.take()

    @in_turn
    def last_late(self) -> dict[str, pa.Table] | None:
        """Return the rows that `late` has removed since the last push, or None if it has removed no rows."""
        return self.late_output.taken()

    @property
    @settled
    def watermark(self) -> int | None:
        """The watermark in ticks: older rows are late. None before the first, and without event times."""
        return None if self.clock is None else self.clock.watermark

    @property
    @settled
    def nbytes(self) -> int:
        """Bytes of all state: SteMs, stored states, groups, failed rows, and rows that are kept for later starts."""
        sides = sum(query.failures.rows.nbytes for query in self._queries.values()) + self.late_output.rows.nbytes
        return self.joins.nbytes + self._beside() + sides

    def _beside(self) -> int:
        """Return the bytes of results that wait and of versions of tables. Late and failed rows make room for all."""
        held = sum(query.held_bytes for query in self._queries.values())
        return held + sum(versions.nbytes for versions in self.sources.versions.values())

    def _keep_sides_within(self) -> None:
        """Drop late and failed rows that leave no room for what has started."""
        if self.max_bytes is not None:
            for output in (self.late_output, *(query.failures for query in self._queries.values())):
                output.keep_within(self._left(output.rows.nbytes))

    def _left(self, taken: int) -> float:
        """Return the bytes that are left for rows of a side output, which has `taken` bytes."""
        return float("inf") if self.max_bytes is None else self.max_bytes - self.nbytes + taken

    def _settle_late(self, admitted: Arrivals) -> None:
        self.late_output.settle(admitted.late, self._left(self.late_output.rows.nbytes), admitted.given)

    @in_turn
    def explain(self, format: Format = "text") -> str:
        """Return the queries, then of each join its plan with live figures; `format` as in `Runtime.explain`.

        The bytes of SteMs that several joins share belong to none of them: `metrics` has them.
        """
        return FORMATS[checked_format(format)](self._description())

    def _description(self, predict: bool = True) -> Description:
        return engine_description(self, predict)

    def _timelines(self) -> list[Timeline]:
        return engine_timelines(self)

    @in_turn
    def _repr_html_(self) -> str:
        return as_html(self._description(), self._timelines())

    def __repr__(self) -> str:
        lines = [f"Engine of {', '.join(self.sources.graph.names)}: {self.position:,} arrivals"]
        lines += [
            f"  {run.name}: {run.state}, {run.n_results:,} results, {run.query!r}" for run in self.queries.values()
        ]
        return "\n".join(lines)

    # Pushes

    def push(
        self,
        batches: Mapping[str, object],
        order: object = None,
        *,
        watermark: int | None = None,
        atomic: bool = False,
    ) -> dict[str, pa.Table]:
        """Take arrivals in; return the results of each query that runs or ends in this push, by its name.

        Arguments and order as in `Runtime.push`, with the streams numbered as in the engine. watermark: the one after
        the push, in ticks, in place of that which follows from the rows; then rows below the one before it are late.
        `push({}, watermark=…)` lets event time pass without rows. atomic: of several changes of one key of a table the
        last one arrives, and queries over tables give the difference that the push makes.
        While a query changes, the results of its versions are in one table; columns that one of them lacks are null.
        Joined rows and groups for which an expression of a query has no value are left out; `RunningQuery.failed`
        returns them. Raises InputError for rows that do not fit the streams, and for a function of a query that fails.
        After any exception the push has happened in whole or not at all: `position` and `last_push` report which.
        """
        before, began = self.position, perf_counter()
        try:
            results = self._push(batches, order, watermark, atomic)
        except SideOutputError:  # the push has happened
            self._note_push(perf_counter() - began, before)
            raise
        self._note_push(perf_counter() - began, before)
        return results

    def _note_push(self, seconds: float, before: int) -> None:
        if self._shedding is not None:
            self._shedding.note(self._queries, seconds, self._position - before)

    @in_turn
    def _push(
        self, batches: Mapping[str, object], order: object, watermark: int | None, atomic: bool
    ) -> dict[str, pa.Table]:
        if self._finished:
            raise InputError("the input has ended: finish() was called; make a new engine for more rows")
        return self._take(self.sources.admit(batches, order, self.clock, watermark, atomic))

    @in_turn
    def finish(self) -> dict[str, pa.Table]:
        """End the input; return the results of each query that only its end decides, by its name.

        These are open windows of groups, rows of branches that still waited for a partner, and results that waited for
        the end of a drain. Then all queries have stopped, and later pushes and starts are refused. A second call
        returns no query.
        """
        if self._finished:
            return {}
        admitted = self.sources.admit({}, None, self.clock)
        admitted.ends = True
        return self._take(admitted)

    def _take(self, admitted: Arrivals) -> dict[str, pa.Table]:
        """Take arrivals in, the last ones if the input ends with them; see `push`."""
        if self._gone:
            self._forget_ended()  # now: it is asked nothing more, and leaves room for this push
        self._note_beside()
        push = placed(admitted, self._position, max(self.newest), self.sources)
        running = (self._running if push.ends else self._visited).values()
        # In the order of their starts, which a restored engine has as well.
        visited = sorted((query for query in running if query.live), key=lambda query: query.number)
        changing = [query for query in visited if query.may_change or push.ends]
        self._begin(*changing, *(self._paused if push.ends else ()))
        combinations, prepared = self.joins.prepare(push)
        self._position = push.end
        for running_query in visited:
            running_query.begin(push)
        if changing:
            self.joins.bounds_changed()
        finds = {family: (matches, family.shares(push.first, matches)) for family, matches in combinations.items()}
        decided = {query: query.decide(push, finds) for query in changing}
        alone = self.joins.prepare_alone(push)
        made = {query: query.results(push, finds, alone, decided.get(query)) for query in visited}
        for _, shares in finds.values():
            for reader in shares.readers:
                if (resting := self._resting.get(reader.version)) is not None:
                    made[resting] = shares.table(reader), list(shares.failed(reader))
        results = {**self._nothing, **{query.name: table for query, (table, _) in made.items()}}
        if push.ends:
            self._finished = True
            for running_query in dict.fromkeys([*changing, *self._paused]):
                running_query.finish(push.end)
            self.joins.paused = {}
        new_failed = {query: query.failures.added(batches) for query, (_, batches) in made.items()}
        failed = {query: query.failures.rows.with_added(new) for query, new in new_failed.items()}
        newest = [
            before if times is None or not len(times) else max(before, int(times.max()))
            for before, times in zip(self.newest, push.times, strict=True)
        ]
        late = self.late_output.rows.with_added(admitted.late)
        counts = {query: query.n_results + results[query.name].num_rows for query in made}
        done = _Done(
            push,
            prepared,
            newest,
            admitted.clock,
            late,
            LastEnginePush(push.end, results),
            counts,
            failed,
            admitted.newest,
            bool(changing) or self._gone,
        )
        self._happen(done)
        with ExitStack() as after:
            if late.nbytes or admitted.late:
                after.callback(self._settle_late, admitted)
            for running_query, new in reversed(new_failed.items()):
                if new or running_query.failures.rows.nbytes:
                    after.callback(self._settle_failed, running_query, new)
        return results

    def _settle_failed(self, query: RunningQuery, new: Mapping[int, FailedBatch]) -> None:
        query.failures.settle(new, self._left(query.failures.rows.nbytes))

    def _complete(self, done: _Done, again: bool) -> None:
        self.joins.settle(done.push, done.prepared)
        for i, new in done.versions.items():
            self.sources.versions[i].settle(new, again)
        for running_query, count in done.counts.items():
            running_query.n_results = count
            running_query.failures.rows = done.failed[running_query]
        self.newest, self.late_output.rows, self._last = done.newest, done.late, done.last
        if self.clock is not None and done.clock is not None:
            self.clock.state = done.clock
        self._sort(
            [
                query
                for query in done.counts
                if self._visited.get(query.name) is query or query.failures.unread or done.push.ends
            ]
        )
        if done.ended:
            self._forget_ended()
        else:
            self._trim()
        self._gone = False

    def _note_beside(self) -> None:
        if self.max_bytes is not None:
            self.joins.beside = self._beside()

    @property
    def _paused(self) -> list[RunningQuery]:
        return [self._queries[name] for name in self.joins.paused]

    def _forget_ended(self) -> None:
        self.joins.forget_ended()
        self.joins.bounds_changed()
        self._trim()

    def _trim(self) -> None:
        watermark = None if self.clock is None else self.clock.watermark
        self.joins.trim(-FOREVER if watermark is None else watermark)

    @in_turn
    def last_push(self) -> LastEnginePush | None:
        """Return the last push that happened, the position after it and its results, or None before the first.

        For a caller whose `push` was interrupted, by Ctrl-C for example: if `position` has increased (`watermark`, for
        a push without rows; or `finished` is true, for `finish`), the push happened, and these are its results. If not,
        push the rows again. The results are kept until the next push.
        """
        return self._last

    @in_turn
    def check(self) -> None:
        """Raise StateError unless all invariants of all joins hold. O(state), for tests."""
        self.joins.check()

    # Copies

    @in_turn
    def snapshot(self) -> bytes:
        """Return rows, queries, versions and changes under way as bytes from which `restore` resumes exactly.

        The engine does not change. Two snapshots without a call between them are equal byte for byte. Raises
        SnapshotError for rows that Arrow finds invalid. O(rows kept).
        """
        return engine_snapshot(self)

    @classmethod
    @refusals
    def restore(
        cls,
        data: bytes,
        streams: Sequence[Stream],
        queries: Mapping[str, Query | Sequence[Query]],
        *,
        policy: PolicyName | Policy | None = None,
        max_bytes: int | None = None,
        late: Late = "keep",
        late_rows: int = LATE_ROWS,
    ) -> Engine:
        """Return an engine that resumes where a snapshot was taken. O(rows kept).

        data     the bytes that `snapshot` returned, in this process or another
        streams  the same streams
        queries  by name the queries that have not stopped, compared as by `Runtime.restore`; of a query that changes,
                 those of all its versions in a list
        policy   another policy; None = that of the snapshot. A policy of your own has to be given again
        max_bytes  another bound on bytes; None = that of the snapshot
        late, late_rows   as in `Engine`; late rows that nobody has collected are in the snapshot

        Results, positions, control elements to come, late rows and counts continue as without interruption; so do
        plans. Figures of time start anew, and stopped queries are in the history only. Rows that only an ended query
        needed are given up, so later warm starts may reach less far back. Raises SnapshotError for data that are
        damaged, inconsistent or of other streams or queries, and QueryError for streams that do not fit together.
        """
        return restored(cls, data, streams, queries, policy, max_bytes, late=late, late_rows=late_rows)

    def resume_at(
        self, position: int, newest: list[int], late: LateRows, history: Sequence[Event], finished: bool
    ) -> None:
        """Continue at a position, given the greatest event times, the late rows and the history before.

        finished   whether the input has ended
        """
        self._position, self.newest, self._finished = position, newest, finished
        self.late_output.rows = late
        self._history.resume(history)

    def resume(self, queries: Sequence[RunningQuery]) -> None:
        """Continue with these queries, whose live versions are served, on the rows that are kept."""
        self._queries, self._started, self._gone = {query.name: query for query in queries}, len(queries), True
        for number, query in enumerate(queries):
            query.number = number
        self.joins.resume()
        self.joins.bound.check(self.joins.nbytes + self._beside(), "the state of the snapshot")
        self._sort(queries)

    # For the queries

    @in_turn
    def groups_of(self, query: RunningQuery) -> pa.Table:
        """Return the open windows of a query; see `RunningQuery.groups`."""
        if any(version.query.aggregation is None for version in query.live or query.versions[-1:]):
            raise InputError(f"query {query.name!r}: groups() is for queries with aggregates; this one has joined rows")
        tables = [self.joins.groups_of(version) for version in query.live] or [query.query.output_schema.empty_table()]
        return pa.concat_tables(tables, promote_options="default")

    @in_turn
    def failed_of(self, query: RunningQuery) -> pa.Table:
        """Return the failed rows of a query, and store none; see `RunningQuery.failed`."""
        return query.failures.table()

    @in_turn
    def change_plan(self, join: Family | LoneJoin, plan: str, store: Iterable[str] | None) -> None:
        """Run a join by another plan from now on; see `RunningQuery.transition`."""
        self._begin()
        self.joins.change_plan(join, plan, store)
        self._undo = None

    def checked_position(self, name: str, at: int | None) -> int:
        """Return the position of a control element; None is the next arrival. Raises InputError for one in the past."""
        if self.finished:
            raise InputError(
                f"query {name!r}: the input has ended: finish() was called; make a new engine for more rows"
            )
        position = self.position if at is None else whole(at)
        if position is None or position < self.position:
            raise InputError(
                f"query {name!r}: at={at!r} is no position to come; the next arrival is number {self.position}"
            )
        return position

    def make(self, version: Version, output: Output = "append") -> Version:
        """Return a new version of a query, with a join that finds its results; see `Joins.make`."""
        return self.joins.make(version, output, self.position)

    def drain(self, version: Version, position: int) -> None:
        """Have a version drain from a position on."""
        drain_version(version, position, self.sources, self.newest, self.joins.kept)

    def note(
        self, position: int, name: str, version: int, event: str, complete_from: int, *, by_itself: bool = False
    ) -> None:
        """Add an element to the history, or what followed by itself from earlier ones."""
        entry = Event(position, name, version, event, complete_from)
        if by_itself:
            self._history.add_follower(entry)
        else:
            self._history.add(entry)
