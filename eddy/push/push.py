"""A push: arrivals in, results out. And loading: earlier arrivals in, without results.

A push has five steps: *admit* (validate, filter, order, split off late rows), *open* (sweep dead keys, make room),
*load* (keys as words, payload into rings), *walk* (one kernel call), *materialise* (gather columns, `where`,
projection). Then it commits in one statement (`eddy.push.transaction`).
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter, thread_time
from typing import Any, NamedTuple

import pyarrow as pa

from eddy.aggregates.rings import BeyondLimit
from eddy.ingest.arrivals import Arrivals
from eddy.ingest.watermark import as_ticks, check_timed
from eddy.join_engine import JoinEngine
from eddy.push.grouped import by_rings, choose_way, turn
from eddy.push.records import CommitRecord, LastPush
from eddy.push.room import drop_state, make_room
from eddy.push.transaction import begin, finish, recover, roll_back
from eddy.push.walk import open_push, walk
from eddy.results.ordered import put_in_order
from eddy.routing.change import follow_router
from eddy.routing.schedule import schedule_of
from stairs.clock_reading import ClockReading
from stairs.descriptors import LOADING, M_MODE, S_BASE
from stairs.errors import CapacityError, InputError
from stairs.memory.arena import Int64s

Pushed = Mapping[str, object]
NO_LOAD = (
    "load: aggregates need the results of earlier rows, which load does not find; use snapshot and restore, or push the"
    " rows"
)
"""The reason for which a runtime with aggregates refuses to load rows that arrived earlier."""


def push(engine: JoinEngine, batches: Pushed, order: Any, watermark: int | None) -> pa.Table:
    """Take arrivals in and return their results; see `Runtime.push`."""
    prepared = prepare(engine, batches, order, watermark)
    settle(engine, prepared)
    assert prepared.commit.last is not None
    return prepared.commit.last.results


def end(engine: JoinEngine) -> pa.Table:
    """End the input, and return the groups that only its end decides; see `Runtime.finish`."""
    if engine.finished:
        # Arrow cannot make empty arrays of every type.
        return pa.Table.from_batches([], schema=engine.output_schema)
    prepared = prepare(engine, {}, None, None, ends=True)
    settle(engine, prepared)
    assert prepared.commit.last is not None
    return prepared.commit.last.results


def check_open(finished: bool) -> None:
    """Raise InputError if the input has ended."""
    if finished:
        raise InputError("the input has ended: finish() was called; start a new runtime for more rows")


class Prepared(NamedTuple):
    """A push whose results are computed, and which has not happened yet: `settle` or `roll_back` follows.

    seconds   how long that took
    """

    arrivals: Arrivals
    commit: CommitRecord
    seconds: float


def prepare(
    engine: JoinEngine,
    batches: Pushed,
    order: Any,
    watermark: int | None,
    ends: bool = False,
    reading: ClockReading | None = None,
) -> Prepared:
    """Compute a push, the last one if `ends`. After an exception, until it is settled, `roll_back` takes it back.

    reading   what the clock of all streams says about the rows, if the engine has only some of them
    """
    check_open(engine.finished)
    began = perf_counter()
    engine.last = None
    watermark = as_ticks(watermark)
    check_timed(watermark, engine.clock is not None)
    arrivals = engine.gate.admit(batches, order, engine.clock if reading is None else reading, watermark)
    arrivals.ends = ends
    choose_way(engine, arrivals)
    begin(engine)
    if engine.router.due:
        follow_router(engine)
        begin(engine)
    commit = computed(engine, arrivals)
    return Prepared(arrivals, commit, perf_counter() - began)


def settle(engine: JoinEngine, prepared: Prepared) -> None:
    """Let a prepared push happen."""
    began = perf_counter()
    arrivals, commit, seconds = prepared
    engine.commit = commit
    finish(engine, commit)
    engine.strategy.history.note_push(commit.inserted, commit.arrivals, seconds + perf_counter() - began)
    engine.give_room_back()
    try:
        if commit.late.nbytes or arrivals.late:
            engine.late.settle(arrivals.late, engine.bound.left, arrivals.given)
    finally:
        if commit.failed.nbytes or commit.new_failed:
            engine.failed.settle(commit.new_failed, engine.bound.left - engine.late.rows.nbytes)


def computed(engine: JoinEngine, arrivals: Arrivals) -> CommitRecord:
    """Return the commit record of a push that was begun.

    If memory is short, states go before the push fails with CapacityError. A failed attempt is taken back. The next one
    adds no state within the push. After that, bands are dropped, then states that were there before, one by one.
    """
    history, only_kept = engine.strategy.history, False
    while True:
        changes = history.count
        try:
            make_room(engine, arrivals.rows)
            changes = history.count
            return _attempt(engine, arrivals, only_kept)
        except (CapacityError, BeyondLimit):
            changed = history.count > changes
            roll_back(engine)
            if engine.rings is not None and engine.rings.choice.on:
                turn(engine, on=False, lost=True)
            elif changed and not only_kept:
                only_kept = True
            elif not engine.modules.bands.drop() and not drop_state(engine):
                engine.keep_within()
                raise
            begin(engine)


def _attempt(engine: JoinEngine, arrivals: Arrivals, only_kept: bool) -> CommitRecord:
    rings, taken = engine.rings, len(arrivals.order)
    began = 0.0 if rings is None else thread_time()
    inserted = deleted = 0
    groups = None
    failed: tuple[pa.RecordBatch, ...] = ()
    if rings is not None and rings.choice.on and taken:
        changes, found, table, groups = by_rings(engine, arrivals, only_kept)
    else:
        changes = walk(engine, arrivals, only_kept)
        engine.modules.allowance.ask(0, "what was pushed")
        if engine.options.ordered:
            put_in_order(engine.modules, arrivals.order)
        made = engine.output.make(engine.found)
        table, inserted, deleted, failed = made.table, made.inserted, made.deleted, made.failed
        found = inserted + deleted
        if engine.groups is not None:
            table, groups = engine.groups.follow(table, arrivals.watermark, arrivals.ends)
    if rings is not None:
        rings.choice.note(taken, found, thread_time() - began)
    position = engine.position + taken
    if groups is not None:
        failed = (*failed, *groups.failed)
    new_failed = engine.failed.added(failed)
    return CommitRecord(
        position,
        engine.n_results + inserted,
        engine.n_deleted + deleted,
        schedule_of(engine.schedule[changes:]) if changes else engine.schedule,
        engine.late.rows.with_added(arrivals.late),
        engine.failed.rows.with_added(new_failed),
        LastPush(position, table),
        engine.pushes + 1,
        taken,
        inserted,
        None,
        groups,
        new_failed,
        _clock_after(engine, arrivals),
        arrivals.ends,
    )


def _clock_after(engine: JoinEngine, arrivals: Arrivals) -> Int64s | None:
    """Return the state of the clock after a push."""
    if engine.clock is None or arrivals.reading is None:
        return None
    return engine.clock.told(arrivals.reading) if arrivals.clock is None else arrivals.clock


def load(engine: JoinEngine, batches: Pushed, watermark: int | None) -> None:
    """Load earlier arrivals; see `Runtime.load`."""
    check_open(engine.finished)
    if engine.position:
        raise InputError(f"{engine.position} rows have arrived already; load rows into a new runtime only")
    if engine.schedule:
        raise InputError(f"transitions are scheduled, the first at {engine.schedule[0].at}; load before scheduling any")
    if engine.groups is not None:
        raise InputError(NO_LOAD)
    watermark = as_ticks(watermark)
    check_timed(watermark, engine.clock is not None)
    modules, strategy = engine.modules, engine.strategy
    arrivals, skipped = engine.gate.admit_past(batches, engine.clock, watermark)
    make_room(engine, arrivals.rows)
    begin(engine, loading=True)
    modules.streams[:, S_BASE] += skipped
    open_push(engine, arrivals)
    modules.meta[M_MODE] = LOADING
    modules.run(strategy.routes, arrivals.order, True, strategy.entries)
    modules.allowance.ask(0, "what was loaded")
    engine.commit = CommitRecord(
        len(arrivals.order) + sum(skipped),
        engine.n_results,
        engine.n_deleted,
        engine.schedule,
        engine.late.rows,
        engine.failed.rows,
        None,
        engine.pushes,
        clock=arrivals.clock,
    )
    recover(engine)
