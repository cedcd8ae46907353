"""A push, which takes arrivals and returns their results; and loading, which takes earlier arrivals without results.

A push has these steps: *admit* (validate, filter, order, split off late rows); in each join *open* (sweep dead keys,
enlarge rings), *load* (keys as words, payload into rings) and *walk* (one kernel call); *follow* (partners);
*materialise* (gather columns, `where`, projection); *aggregate* (groups); *rank* (the first rows of groups). Then the
push happens in one statement (`eddy.pipeline.pipeline`).
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter, thread_time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eddy.aggregates.groups import GroupsCommit
from eddy.aggregates.rings import BeyondLimit
from eddy.ingest.arrivals import Arrivals
from eddy.ingest.given_watermark import as_ticks, check_timed
from eddy.join.compaction import compact_tables
from eddy.join.join import Join, JoinCommit
from eddy.join.room import drop_state, make_room
from eddy.join.walk import open_push, take
from eddy.partners.partners import Partners
from eddy.partners.rows import PartnerRows, rows_of
from eddy.pipeline.grouped import by_rings, choose_way
from eddy.pipeline.pipeline import Pipeline, derived_inputs
from eddy.pipeline.records import Commit, LastPush, Prepared
from eddy.query.branch_nodes import Path
from eddy.results.modes import takes_back
from eddy.results.results import PushResults
from eddy.routing.plan_change import follow_router
from eddy.routing.schedule import schedule_of
from eddy.streams.key_columns import with_key_columns
from eddy.streams.table import Table
from stairs.descriptors import LOADING, M_MODE, S_BASE
from stairs.errors import CapacityError, InputError
from stairs.graph import WindowKind
from stairs.memory.arena import Int64s
from stairs.memory.spill import FullDiskError
from stairs.nearest import no_stream
from stairs.plain_types import to_plain

Batches = Mapping[str, object]


class _NoRoom(CapacityError):
    """The other parts of a pipeline leave no bytes for a join, so dropping states of this join would not help."""


def push(pipeline: Pipeline, batches: Batches, order: Any, watermark: int | None, atomic: bool = False) -> pa.Table:
    """Process arrivals and return their results; see `Runtime.push`."""
    if atomic and not (
        takes_back(pipeline.options.output) or any(isinstance(stream, Table) for stream in pipeline.query.streams)
    ):
        raise InputError("atomic is for a changelog, and no result of this runtime is taken back; leave it out")
    prepared = prepare(pipeline, batches, order, watermark, atomic=atomic)
    pipeline.settle(prepared)
    return prepared.results


def end(pipeline: Pipeline) -> pa.Table:
    """End the input, and return the results that only its end decides; see `Runtime.finish`."""
    if pipeline.finished:
        # Arrow cannot make empty arrays of every type.
        return pa.Table.from_batches([], schema=pipeline.output_schema)
    prepared = prepare(pipeline, {}, None, None, ends=True)
    pipeline.settle(prepared)
    return prepared.results


def _check_open(pipeline: Pipeline) -> None:
    """Raise InputError if the input has ended."""
    if pipeline.finished:
        raise InputError("the input has ended: finish() was called; start a new runtime for more rows")


def prepare(
    pipeline: Pipeline,
    batches: Batches,
    order: Any,
    watermark: int | None,
    ends: bool = False,
    atomic: bool = False,
    whole: bool = False,
) -> Prepared:
    """Compute a push, the last one if `ends`. Until the push is settled, `roll_back` undoes it after an exception.

    whole     only the answer after the push counts

    If memory is short, the queries of inputs drop stored states as well, one by one.
    """
    while True:
        try:
            return _prepared(pipeline, batches, order, watermark, ends, atomic, whole)
        except CapacityError:
            below = [join for source in pipeline.derived.values() for join in source.all_joins()]
            if pipeline.max_bytes is None or not below:
                raise
            pipeline.roll_back()
            if not any(map(drop_state, below)):
                pipeline.keep_within()
                raise


def _prepared(
    pipeline: Pipeline,
    batches: Batches,
    order: Any,
    watermark: int | None,
    ends: bool,
    atomic: bool,
    whole: bool,
) -> Prepared:
    """Compute a push as `prepare` does, with the states that there are."""
    _check_open(pipeline)
    began = perf_counter()
    pipeline.last = None
    watermark = as_ticks(watermark)
    check_timed(watermark, pipeline.clock is not None or (bool(pipeline.derived) and pipeline.has_clock))
    derived: dict[str, Prepared] = {}
    if pipeline.derived:
        # From here on, the queries of inputs have to be undone.
        pipeline.note()
        batches, derived = _derived(pipeline, batches, order, watermark, ends)
        watermark = None if pipeline.clock is None else watermark
        atomic = atomic or any(isinstance(stream, Table) for stream, _ in derived_inputs(pipeline.query))
    # The rows of a query with branches over tables are the difference of two answers.
    atomic = atomic or (pipeline.partners is not None and bool(pipeline.partners.tables))
    arrivals = pipeline.gate.admit(batches, order, pipeline.clock, watermark, atomic=atomic, whole=whole)
    arrivals.ends = ends
    prepared = _begun(pipeline, arrivals, began)
    return prepared._replace(commit=prepared.commit._replace(derived=derived)) if derived else prepared


def prepare_admitted(pipeline: Pipeline, arrivals: Arrivals) -> Prepared:
    """Compute a push of arrivals that another gate has admitted, as `prepare` does; the pipeline has only inner joins.

    The arrivals have event times, and a reading of the clock of all streams, if the pipeline has a clock.
    """
    _check_open(pipeline)
    began = perf_counter()
    pipeline.last = None
    return _begun(pipeline, pipeline.gate.take(arrivals), began)


def _begun(pipeline: Pipeline, arrivals: Arrivals, began: float) -> Prepared:
    """Compute a push of arrivals; `began` is when the call began."""
    choose_way(pipeline.join, arrivals)
    pipeline.begin()
    for join in pipeline.joins.values():
        if join.router.due:
            try:
                pipeline.share_bound(join)
            except CapacityError:
                continue  # without room no plan changes; rows that need room say so, and the end of input needs none
            follow_router(join)
            join.begin()
    return Prepared(arrivals, _computed(pipeline, arrivals), perf_counter() - began)


def _derived(
    pipeline: Pipeline, batches: Batches, order: Any, watermark: int | None, ends: bool
) -> tuple[Batches, dict[str, Prepared]]:
    """Prepare a push in the queries of inputs; return the rows for the query itself, and those pushes by input."""
    if order is not None:
        raise InputError(
            f"order is for queries without inputs that are queries ({', '.join(pipeline.derived)}): their rows arrive"
            " before all others; name time columns, or push one stream at a time"
        )
    if not isinstance(batches, Mapping):
        raise InputError(f"push takes a mapping from stream names to Arrow batches, not {type(batches).__name__}")
    if watermark is not None and len(types := pipeline.time_types) > 1:
        raise InputError(
            f"watermark={watermark}: the queries count event time as {' and '.join(sorted(types))}, so a number of"
            " ticks has no one meaning; give all time columns one type, or leave the watermark out"
        )
    names, mine = pipeline.names, dict[str, object]()
    below: dict[str, dict[str, object]] = {name: {} for name in pipeline.derived}
    places = {query_stream.name: query_stream.place for query_stream in pipeline.query.streams}
    for given, rows in batches.items():
        if given in below:
            raise InputError(f"{places[given]} has the rows of its query; push those of the streams that it reads")
        if given not in names:
            raise InputError(no_stream(given, names))
        for table, stream in names[given]:
            into = below[table] if table else mine
            if into.get(stream, rows) is not rows:
                raise InputError(
                    f"stream {stream} of {places[table]} is pushed twice, as {given!r} and under another name: push its"
                    f" rows as {table + '.' + stream!r}, and those of other streams under names of their own"
                )
            into[stream] = rows
    pushes: dict[str, Prepared] = {}
    for input_stream, _ in derived_inputs(pipeline.query):
        source = pipeline.derived[input_stream.name]
        mark = watermark if source.has_clock else None
        pushes[input_stream.name] = prepared = prepare(
            source, below[input_stream.name], None, mark, ends, whole=isinstance(input_stream, Table)
        )
        rows = prepared.results
        if not len(rows):
            continue
        if isinstance(input_stream, Table):
            rows = with_key_columns(rows, input_stream.keys)
        elif input_stream.time is not None:
            rows = _in_time(rows, input_stream.time)
        mine[input_stream.name] = rows
    return mine, pushes


def _in_time(rows: pa.Table, time: str) -> pa.Table:
    """Return rows in the order of event time, because a row that is older than the one before it may be late.

    The other columns decide between rows of one time: the order in which a query gives them is not defined.
    """
    names = [time, *(name for name in rows.schema.names if name != time)]
    plain = {name: to_plain(rows[name]) for name in names}
    nested = [name for name, column in plain.items() if pa.types.is_nested(column.type)]
    keys = pa.table({name: column for name, column in plain.items() if name not in nested})
    return rows.take(pc.sort_indices(keys, [(name, "ascending") for name in keys.schema.names]))


def _share_bound(pipeline: Pipeline, join: Join) -> None:
    try:
        pipeline.share_bound(join)
    except CapacityError as problem:
        raise _NoRoom(str(problem)) from None


def _computed(pipeline: Pipeline, arrivals: Arrivals, loading: bool = False) -> Commit:
    """Return the commit record of a push that was begun.

    If memory is short, states are dropped before the push fails with CapacityError. A failed attempt is undone. The
    next attempt adds no state within the push. After that, tables are compacted, then bands are dropped, then older
    states, one by one.
    """
    only_kept = compacted = False
    while True:
        try:
            return _attempt(pipeline, arrivals, only_kept, loading)
        except _NoRoom as problem:
            raise CapacityError(str(problem)) from None
        except FullDiskError:
            # To drop states frees no disk.
            raise
        except (CapacityError, BeyondLimit) as problem:
            join = pipeline.at_work
            changed = join.has_changed
            pipeline.roll_back_operators()
            if join.asleep:
                join.turn_rings(on=False, lost=True)
            elif changed and not only_kept:
                only_kept = True
            elif not compacted and compact_tables(join):
                compacted = True
            elif not join.modules.bands.drop() and not drop_state(join):
                pipeline.keep_within()
                if pipeline.partners is None or pipeline.max_bytes is None:
                    raise
                raise CapacityError(
                    f"join of {', '.join(join.query.graph.names)}: {problem}; the rest leaves it this much of"
                    f" max_bytes={pipeline.max_bytes:,}"
                ) from problem
            pipeline.begin()


def _attempt(pipeline: Pipeline, arrivals: Arrivals, only_kept: bool, loading: bool) -> Commit:
    """Return the record of a push; loading: earlier arrivals are loaded, and have no results."""
    groups = None
    if pipeline.partners is None:
        records, made, groups = _in_one_join(pipeline, arrivals, only_kept)
    else:
        records, made = _with_partners(pipeline, pipeline.partners, arrivals, only_kept, loading)
        if pipeline.groups is not None:
            table, groups = pipeline.groups.follow(made.table, arrivals.watermark, arrivals.ends)
            made = made._replace(table=table)
    failed = made.failed
    if groups is not None:
        failed, records = (*failed, *groups.failed), (*records, groups)
    if pipeline.tops is not None:
        table, first = pipeline.tops.follow(made.table, arrivals.ends)
        made, records = made._replace(table=table), (*records, first)
    new_failed = pipeline.failed.added(() if loading else failed)
    position = pipeline.position + len(arrivals.order)
    return Commit(
        records,
        position,
        pipeline.n_results + made.inserted,
        pipeline.n_deleted + made.deleted,
        pipeline.pushes + (not loading),
        pipeline.late.rows.with_added(arrivals.late),
        pipeline.failed.rows.with_added(new_failed),
        None if loading else LastPush(position, made.table),
        new_failed,
        _clock_after(pipeline, arrivals),
        arrivals.ends,
        newest=arrivals.newest,
    )


def _in_one_join(
    pipeline: Pipeline, arrivals: Arrivals, only_kept: bool
) -> tuple[tuple[Any, ...], PushResults, GroupsCommit | None]:
    """Return the record of the only join, its results, and the record of its groups."""
    join, groups = pipeline.join, pipeline.groups
    rings, taken, commit = join.rings, len(arrivals.order), None
    if not arrivals.ends:  # the end of the input brings no rows, so a bound that is too low now does not refuse it
        make_room(join, arrivals.rows)
    began = 0.0 if rings is None else thread_time()
    if rings is not None and groups is not None and rings.choice.on and taken:
        changes, n_results, table, commit = by_rings(join, groups, arrivals, only_kept)
        made = PushResults(0, 0, table)
    else:
        changes, made = take(join, arrivals, only_kept)
        n_results = made.inserted + made.deleted
        if groups is not None:
            table, commit = groups.follow(made.table, arrivals.watermark, arrivals.ends)
            made = made._replace(table=table)
    if rings is not None:
        rings.choice.note(taken, n_results, thread_time() - began)
    return (_join_commit(join, pipeline.position, changes, taken, made),), made, commit


def _with_partners(
    pipeline: Pipeline, partners: Partners, arrivals: Arrivals, only_kept: bool, loading: bool
) -> tuple[tuple[Any, ...], PushResults]:
    """Return the records of the joins and of the partners, and the results of the partners."""
    width = len(arrivals.rows)
    records: list[Any] = []
    matches, failed = dict[Path, PartnerRows](), list[pa.RecordBatch]()
    for path, join in pipeline.joins.items():
        pipeline.at_work = join
        mine = arrivals.of(path, join.query.graph.timed)
        if not arrivals.ends:
            _share_bound(pipeline, join)
            make_room(join, mine.rows)
        changes, given = take(join, mine, only_kept)
        records.append(_join_commit(join, join.position, changes, len(mine.order), given))
        matches[path] = rows_of(given.table, path, width)
        failed += given.failed
    rows, live = partners.follow(arrivals, matches)
    found_rows = partners.combinations(PartnerRows.none(width) if loading else rows, pipeline.output.changing)
    made = pipeline.output.make(found_rows, arrivals.rows)
    return (*records, live), made._replace(failed=(*failed, *made.failed))


def _join_commit(join: Join, position: int, changes: int, taken: int, made: PushResults) -> JoinCommit:
    return JoinCommit(
        position + taken,
        join.n_results + made.inserted,
        join.n_deleted + made.deleted,
        schedule_of(join.schedule[changes:]) if changes else join.schedule,
        taken,
        made.inserted,
    )


def _clock_after(pipeline: Pipeline, arrivals: Arrivals) -> Int64s | None:
    """Return the state of the clock after a push."""
    if pipeline.clock is None or arrivals.reading is None:
        return None
    return pipeline.clock.told(arrivals.reading) if arrivals.clock is None else arrivals.clock


# Loading


def load(pipeline: Pipeline, batches: Batches, watermark: int | None) -> None:
    """Load earlier arrivals; see `Runtime.load`."""
    _check_open(pipeline)
    if pipeline.position:
        raise InputError(f"{pipeline.position} rows have arrived already; load rows into a new runtime only")
    schedule = pipeline.join.schedule
    if schedule:
        raise InputError(f"transitions are scheduled, the first at {schedule[0].at}; load before scheduling any")
    if pipeline.groups is not None:
        raise InputError(
            "load: aggregates need the results of earlier rows, which load does not find; use snapshot and restore, or"
            " push the rows"
        )
    if pipeline.tops is not None:
        raise InputError(
            "load: top needs the results of earlier rows, which load does not find; use snapshot and restore, or push"
            " the rows"
        )
    if pipeline.derived:
        raise InputError(
            f"load: {next(iter(pipeline.derived))} has the rows of a query, which load does not find; use"
            " snapshot and restore, or push the rows"
        )
    watermark = as_ticks(watermark)
    check_timed(watermark, pipeline.clock is not None)
    (_load if pipeline.partners is None else _load_with_partners)(pipeline, batches, watermark)


def _load(pipeline: Pipeline, batches: Batches, watermark: int | None) -> None:
    """Insert earlier rows into the only join, without probes."""
    join = pipeline.join
    modules, strategy = join.modules, join.strategy
    arrivals, skipped = pipeline.gate.admit_past(batches, pipeline.clock, watermark)
    make_room(join, arrivals.rows)
    pipeline.begin(loading=True)
    modules.streams[:, S_BASE] += skipped
    open_push(join, arrivals)
    modules.meta[M_MODE] = LOADING
    modules.run(strategy.routes, arrivals.order, True, strategy.entries)
    modules.allowance.ask(0, "what was loaded")
    position = len(arrivals.order) + sum(skipped)
    commit = Commit(
        (JoinCommit(position, join.n_results, join.n_deleted, join.schedule),),
        position,
        pipeline.n_results,
        pipeline.n_deleted,
        pipeline.pushes,
        pipeline.late.rows,
        pipeline.failed.rows,
        clock=arrivals.clock,
        newest=arrivals.newest,
    )
    pipeline.load(commit)


def _load_with_partners(pipeline: Pipeline, batches: Batches, watermark: int | None) -> None:
    """Push earlier rows, and drop their results; the rows determine which rows had a partner."""
    graph = pipeline.query.graph
    counted = [name for name, window in zip(graph.names, graph.windows, strict=True) if window.kind == WindowKind.ROWS]
    if counted and not pipeline.query.unretracted:
        raise InputError(
            f"load: stream {counted[0]} has a Rows window. Which rows had a partner depends on the order of all"
            " arrivals; use snapshot and restore"
        )
    arrivals = pipeline.gate.admit(batches, None, pipeline.clock, watermark, past=True)
    arrivals.late = {}
    pipeline.begin()
    pipeline.settle(Prepared(arrivals, _computed(pipeline, arrivals, loading=True), 0.0))
