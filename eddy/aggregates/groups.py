"""The operator above a join: its input is the results of a push, its output the rows of groups.

    windows    output="append" with `Query.group_window`: each group of each window once, when the window is due
    changelog  output="changelog": a group's row changes with the results in the live windows
    end        output="append" without windows: the groups of all results, when the input has ended

A push changes the state and records how to take the change back (`roll_back`); the output of a push is final after
`settle`. Calls of both methods may be repeated. The operator reads results only and is independent of plans and
strategies.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eddy.aggregates.layout import InputRows, Weighted
from eddy.aggregates.merging import merged_change
from eddy.aggregates.state import AggregationState, GroupChange
from eddy.aggregates.storage import contents, fill
from eddy.aggregates.times import event_times
from eddy.aggregates.windows import NEVER, Due, buckets_of
from eddy.aggregates.words import Mask
from eddy.filters.adaptive import AdaptiveFilter
from eddy.filters.conditions import evaluated
from eddy.filters.faults import FAILURES, Fault, Faults, others, reasons
from eddy.query.query import Query
from eddy.results.failed_rows import failed_batch
from eddy.results.modes import takes_back
from eddy.results.results import OP, SIGNS, accepted_rows
from eddy.streams.key_columns import hidden
from stairs.descriptors import DELETED, INSERTED, UPDATED_FROM, UPDATED_TO
from stairs.errors import InputError
from stairs.graph import FOREVER
from stairs.memory.allowance import Allowance
from stairs.plain_types import Column, taken
from stairs.storage.parts import Parts, Plain

Int64s = npt.NDArray[np.int64]


class WindowProgress(NamedTuple):
    """The progress of the windows of a query.

    limit     windows that end at this time or before have been given; -NEVER = none
    next      no window that has results ends earlier, of those that have not been given
    finished  whether the input has ended
    """

    limit: int = -NEVER
    next: int = NEVER
    finished: bool = False


class GroupsCommit(NamedTuple):
    """The outcome of a push: the progress after it, the keys of groups that are closed, and rows of `FAILED`."""

    progress: WindowProgress
    closed: Int64s
    failed: tuple[pa.RecordBatch, ...] = ()


class WindowsGiven(NamedTuple):
    """The windows of a push.

    ends     int64[rows], the end of the window of each row that was returned
    newest   the greatest end of a window, also of those that `having` rejects; -NEVER = there was none
    failed   the windows that failed, by their end
    """

    ends: Int64s
    newest: int
    failed: tuple[tuple[int, pa.RecordBatch], ...] = ()


class Made(NamedTuple):
    """Rows of groups: those that are put out, their numbers among all, and the faults of others, among `whole`."""

    table: pa.Table
    kept: Int64s
    faults: Faults
    whole: pa.Table


class Sized(Protocol):
    """A state with a size."""

    @property
    def nbytes(self) -> int:
        """Bytes of it."""


def _window_wanted(query: Query) -> str:
    """Return how to give a query windows, in the words in which it was written."""
    if query.group_texts is None:
        return "give the query a group_window"
    by = query.group_texts[1]
    rounded = re.search(r"(?:DATE_TRUNC\('(\w+)', ([\w.]+)\)|CAST\(([\w.]+) AS (DATE)\))", by)
    unit, time = ("minute", "a.at") if rounded is None else (rounded[1] or "day", rounded[2] or rounded[3])
    if unit.lower() not in ("second", "minute", "hour"):
        unit = "day"
    shown = f"GROUP BY {by}" if by else "a SELECT with aggregates"
    tumble = f"TUMBLE({time}, INTERVAL '1' {unit.upper()})"
    return f"{shown} has no window that ends; write GROUP BY {tumble} for windows of time"


class Groups:
    """The groups of one runtime.

    output     the output mode, of `eddy.results.modes`
    bounded    whether the input ends: `Runtime.finish` will be called
    allowance  is asked before the state grows
    lasting    whether the results are never taken back, None = as the query says

    Raises InputError for output that a query cannot have.
    """

    def __init__(
        self, query: Query, output: str, bounded: bool, allowance: Allowance, lasting: bool | None = None
    ) -> None:
        aggregation = query.aggregation
        assert aggregation is not None
        changelog = takes_back(output)
        self.query, self.aggregation, self.changelog, self.upsert = query, aggregation, changelog, output == "upsert"
        window = aggregation.window
        if changelog and window is not None:
            raise InputError(
                "a changelog of windows of event time does not exist: output='append' gives each window once, when the"
                " watermark has passed it, and Runtime.groups() gives early results; a changelog without group_window"
                " aggregates over the live windows"
            )
        if not changelog and not bounded:
            if window is None:
                raise InputError(
                    f"these aggregates are never final: {_window_wanted(query)}, use output='changelog', or, for input"
                    " that ends, bounded=True and finish()"
                )
            if window.slack is None:
                raise InputError(
                    "group_window: results with any event time may come, because the stream whose time counts has no"
                    " Range window or interval, or a row may wait for a partner without end; give it one, or, for input"
                    " that ends, use bounded=True and finish()"
                )
        self.window = window
        self.buckets = None if window is None else buckets_of(window)
        retracts = changelog and not (query.lasting if lasting is None else lasting)
        self.state = AggregationState(aggregation, retracts, window is not None, allowance)
        self.progress = WindowProgress()
        self._having = (
            AdaptiveFilter(aggregation.conditions, place="having", rows="groups") if aggregation.conditions else None
        )
        self._always = not aggregation.keys and window is None
        """Whether the one group also exists without results, as in SQL."""
        self._change: GroupChange | None = None
        self._owned: Callable[[Int64s], Mask] | None = None
        self._given = WindowsGiven(np.zeros(0, np.int64), -NEVER)
        self.rings: Sized | None = None
        """Ring values that may serve the groups."""
        rows = query.group_rows
        schema = aggregation.schema if rows is None else rows.schema
        if changelog and OP in schema.names:
            raise InputError(
                f"an output column of groups is named {OP!r}, which is the column of a changelog that has +I or -D;"
                " give it another name"
            )
        self.schema = schema.insert(0, pa.field(OP, pa.string(), False)) if changelog else schema
        """The schema of the tables."""

    @property
    def nbytes(self) -> int:
        """Bytes of the state, and of ring values."""
        return self.state.nbytes + (0 if self.rings is None else self.rings.nbytes)

    # A push

    def follow(self, table: pa.Table, watermark: int | None, finished: bool) -> tuple[pa.Table, GroupsCommit]:
        """Take the results of a push; return the rows of groups, and what `settle` needs.

        table      joined rows, with the column `op` if there is one
        watermark  after the push
        finished   whether the input has ended
        """
        rows, failed = self._rows(table)
        buckets = None
        progress = self.progress._replace(finished=finished)
        if self.buckets is not None:
            assert rows.times is not None
            times = rows.times[0]
            covered = self.buckets.covered(times)
            if covered is not None and not covered.all():
                kept = np.flatnonzero(covered)
                rows, times = rows.taken(kept), times[kept]
            buckets = self.buckets.of(times)
            if len(times):
                progress = progress._replace(next=min(progress.next, self.buckets.next_end(times)))
        # The end of the input changes nothing in a changelog: without a push the changelog has no rows.
        always = self._always and not (self.changelog and finished and not len(table))
        change = self.state.change(rows, self.state.keys(rows, buckets), always)
        carried, done = self._carried(change, progress, watermark)
        return carried, done._replace(failed=(*failed, *done.failed)) if failed else done

    def follow_weighted(self, rows: Weighted, finished: bool) -> tuple[pa.Table, GroupsCommit]:
        """Process rows that each stand for many results; see `follow`. Not for windows of event time."""
        change = self.state.weighted_change(rows, self.state.words_of(rows.columns, rows.size), self._always)
        return self._carried(change, self.progress._replace(finished=finished), None)

    def follow_groups(self, other: Groups, watermark: int | None) -> tuple[pa.Table, GroupsCommit]:
        """Take the groups of other results; see `follow`. Not where results are taken back."""
        change = merged_change(self.state, other.state, self._always)
        return self._carried(change, self._with(other), watermark)

    def gather(self, other: Groups) -> None:
        """Take the groups of other results for good, without rows of groups. Not where results are taken back."""
        self.state.write(merged_change(self.state, other.state, False))
        self.progress = self._with(other)

    def _with(self, other: Groups) -> WindowProgress:
        return self.progress._replace(next=min(self.progress.next, other.progress.next))

    def _carried(
        self, change: GroupChange, progress: WindowProgress, watermark: int | None
    ) -> tuple[pa.Table, GroupsCommit]:
        """Carry a change out; return the rows of groups, and what `settle` needs."""
        self._change = change
        self.state.write(change)
        none = np.zeros((0, self.state.words), np.int64)
        if self.changelog:
            changes, failed = self._changes(change)
            return changes, GroupsCommit(progress, none, failed)
        if self.buckets is not None:
            return self._windows(progress, watermark)
        if not progress.finished:
            return self._empty(), GroupsCommit(progress, none)
        made = self._made(*self._all())
        closed = self.state.groups.keys[self.state.groups.slots]
        return made.table, GroupsCommit(progress, closed, _failed(made, made.faults))

    def follow_windows(
        self, table: pa.Table, watermark: int | None, ends: bool, owned: Callable[[Int64s], Mask]
    ) -> tuple[pa.Table, WindowsGiven, GroupsCommit]:
        """Take the results of a push as `follow` does, and return the rows of windows that are owned.

        owned   tells by their starts which windows those are
        """
        self._owned, self._given = owned, WindowsGiven(np.zeros(0, np.int64), -NEVER)
        table, done = self.follow(table, watermark, ends)
        return table, self._given, done

    def give_only(self, owned: Callable[[Int64s], Mask]) -> None:
        """Return only rows of windows that are owned from now on; `owned` tells by their starts which these are."""
        self._owned = owned

    def open_until(self, begin: int, limit: int) -> int | None:
        """Return the limit at which all windows that start at `begin` or before have been given; None = no one knows.

        limit   the one of the push that is open; only a session that has begun has an end that is not known yet
        """
        assert self.buckets is not None
        return self.buckets.open_until(self.state.groups.keys[self.state.groups.slots], begin, limit)

    def begin(self, loading: bool = False) -> None:
        """Note the state. This method has nothing to do, because a push notes each change itself."""

    def settle(self, commit: GroupsCommit, again: bool = False) -> None:
        """Commit a push. The call may be repeated."""
        self._change = None
        if len(commit.closed):
            self.state.remove(commit.closed)
        self.progress = commit.progress
        self.state.tidy()

    def roll_back(self) -> None:
        """Take the open push back; do nothing if no push is open. The call may be repeated."""
        if self._change is not None:
            self.state.write(self._change, back=True)
            self._change = None

    def now(self, owned: Callable[[Int64s], Mask] | None = None) -> pa.Table:
        """Return the rows of all groups as they are: early results of open windows, or the answer of a changelog.

        Groups that fail are left out.

        owned   tells by their starts which windows are wanted; None = all
        """
        if self.buckets is None:
            return self._made(*self._all()).table
        slots = self.state.groups.slots
        due = self.buckets.due(self.state.groups.keys[slots], self.progress.limit, NEVER)
        if owned is not None:
            due = due.only(owned(due.starts))
        return self._made(*self._window_rows(slots, due)).table

    # Inputs

    def _rows(self, table: pa.Table) -> tuple[InputRows, list[pa.RecordBatch]]:
        """Return the inputs of joined rows, and failed rows: those that come and on which an argument fails."""
        signs = np.ones(len(table), np.int64)
        if OP in table.schema.names and table.schema.names[0] == OP:
            deleted = pc.is_in(table.column(0), SIGNS.take(pa.array([DELETED, UPDATED_FROM])))
            signs[np.asarray(deleted.cast(pa.uint8()).combine_chunks()).view(np.bool_)] = -1
            table = table.remove_column(0)
        failed: list[pa.RecordBatch] = []
        try:
            columns = self._inputs(table)
        except FAILURES:
            faults = self._argument_faults(table)
            if not faults:
                raise
            came = {row: fault for row, fault in faults.items() if signs[row] > 0}
            failed = failed_batch(came, dict(zip(table.column_names, table.columns, strict=True)))
            kept = others(faults, len(table))
            table, signs = _taken(table, kept), signs[kept]
            columns = self._inputs(table)
        times = None
        if self.aggregation.times:
            assert self.query.time_type is not None
            times = event_times([table.column(name) for name in self.aggregation.times], self.query.time_type)
        return InputRows(signs, columns, times, self.state.layout.types, self.state.texts), failed

    def _inputs(self, table: pa.Table) -> list[Column]:
        """Return the inputs of joined rows. Raises an error of Arrow."""
        return [
            table.column(argument.name) if argument.expression is None else evaluated(argument.expression, table)
            for argument in self.aggregation.inputs
        ]

    def _argument_faults(self, table: pa.Table) -> Faults:
        """Return the joined rows on which an argument fails."""
        faults, keys = Faults(), {number for _, number in self.aggregation.keys}
        for number, argument in enumerate(self.aggregation.inputs):
            if argument.expression is not None:
                kind = "group_by" if number in keys else "aggregate"
                for row, reason in reasons(partial(evaluated, argument.expression), table).items():
                    faults.setdefault(row, Fault(kind, str(argument.expression), reason))
        return dict(sorted(faults.items()))

    # Rows of groups

    def _empty(self) -> pa.Table:
        # Arrow cannot make empty arrays of every type.
        return pa.Table.from_batches([], schema=self.schema)

    def _all(self) -> tuple[Int64s, Int64s]:
        """Return the keys and cells of all groups, without windows."""
        state = self.state
        slots = state.groups.slots
        if self._always and not len(slots):
            return np.zeros((1, state.words), np.int64), np.zeros((1, state.layout.fields), np.int64)
        return state.groups.keys[slots], state.groups.cells[slots]

    def _table(self, keys: Int64s, cells: Int64s, bounds: tuple[Int64s, Int64s] | None) -> tuple[pa.Table, Faults]:
        """Return the rows of groups, and those of which a sum exceeds its type."""
        arrays: list[Column] = list(self.state.key_columns(keys))
        if bounds is not None:
            assert self.aggregation.group_window is not None
            assert self.query.time_type is not None
            kind = self.query.time_type
            window = self.aggregation.group_window
            for name, ticks in zip((window.start, window.end), bounds, strict=True):
                if name is not None:
                    number = pa.int32() if kind.bit_width == 32 else pa.int64()
                    arrays.append(pa.array(ticks, number).view(kind))
        functions, faults = self.state.function_columns(cells)
        return pa.Table.from_arrays([*arrays, *functions], schema=self.aggregation.schema), faults

    def _made(self, keys: Int64s, cells: Int64s, bounds: tuple[Int64s, Int64s] | None = None) -> Made:
        """Return the rows of groups that `having` accepts, with the columns that `select` names."""
        whole, faults = self._table(keys, cells, bounds)
        table, kept = whole, np.arange(len(whole))
        if faults:
            kept = others(faults, len(whole))
            table = _taken(whole, kept)
        if self._having is not None and len(table):
            accepted, failing = accepted_rows(self._having, table, "having")
            faults.update((int(kept[row]), fault) for row, fault in failing.items())
            table, kept = _taken(table, accepted), kept[accepted]
        chosen = self.query.group_rows
        if chosen is not None:
            n = len(table)
            table, failing = chosen.of(table)
            if failing:
                faults.update((int(kept[row]), fault) for row, fault in failing.items())
                kept = kept[others(failing, n)]
        return Made(table, kept, dict(sorted(faults.items())), whole)

    def _changes(self, change: GroupChange) -> tuple[pa.Table, tuple[pa.RecordBatch, ...]]:
        """Return the changelog of a push: rows that have ended, then rows that have begun; and groups that fail now.

        A group that failed before the push and still fails was output as failed before.
        """
        equal = change.was & change.stays
        equal[equal] = self.state.same(change.old[equal], change.new[equal])
        failing, made, rows = set[int](), list[Made](), list[Int64s]()
        failed: tuple[pa.RecordBatch, ...] = ()
        for cells, there, sign in ((change.old, change.was, DELETED), (change.new, change.stays, INSERTED)):
            chosen = np.flatnonzero(there & ~equal)
            made.append(self._made(change.keys[chosen], cells[chosen]))
            rows.append(chosen[made[-1].kept])
            if sign == DELETED:
                failing = {int(chosen[row]) for row in made[-1].faults}
            else:
                new = {row: fault for row, fault in made[-1].faults.items() if int(chosen[row]) not in failing}
                failed = _failed(made[-1], new)
        tables, signs = (
            [side.table for side in made],
            [np.full(len(numbers), k, np.uint8) for numbers, k in zip(rows, (DELETED, INSERTED), strict=True)],
        )
        if self.upsert:
            signs[1][np.isin(rows[1], rows[0])] = UPDATED_TO
            ended = np.flatnonzero(np.isin(rows[0], rows[1], invert=True))
            tables[0], signs[0] = _taken(tables[0], ended), signs[0][ended]
        parts = [
            table.add_column(0, self.schema.field(0), SIGNS.take(pa.array(codes)))
            for table, codes in zip(tables, signs, strict=True)
        ]
        return pa.concat_tables(parts), failed

    def _windows(self, progress: WindowProgress, watermark: int | None) -> tuple[pa.Table, GroupsCommit]:
        """Return the windows that are due, and what `settle` needs."""
        state = self.state
        assert self.buckets is not None
        limit = self.advanced(progress, watermark).limit
        none = np.zeros((0, state.words), np.int64)
        if progress.next > limit:
            return self._empty(), GroupsCommit(progress._replace(limit=limit), none)
        slots = state.groups.slots
        keys = state.groups.keys[slots]
        due = self.buckets.due(keys, progress.limit, limit)
        kept = due if self._owned is None else due.only(self._owned(due.starts))
        rows = self._window_rows(slots, kept)
        made, ends = self._made(*rows), rows[2][1]
        failed = tuple((int(ends[row]), *_failed(made, {row: fault})) for row, fault in made.faults.items())
        self._given = WindowsGiven(ends[made.kept], int(kept.ends.max()) if len(kept.ends) else -NEVER, failed)
        done = GroupsCommit(
            progress._replace(limit=limit, next=due.next), keys[due.closed], tuple(b for _, b in failed)
        )
        return made.table, done

    def advanced(self, progress: WindowProgress, watermark: int | None) -> WindowProgress:
        """Return the progress with the limit that follows from a watermark, or from the end of the input."""
        if self.window is None:
            return progress
        if progress.finished:
            return progress._replace(limit=NEVER)
        if watermark is None or self.window.slack is None:
            return progress
        return progress._replace(limit=max(progress.limit, watermark - self.window.slack))

    def _window_rows(self, slots: Int64s, due: Due) -> tuple[Int64s, Int64s, tuple[Int64s, Int64s]]:
        """Return keys, cells and bounds of windows over the buckets in some slots, in order of their begins."""
        state, n = self.state, len(due.starts)
        bucket_slots = np.ascontiguousarray(slots[due.buckets])
        stored = [values.of(bucket_slots) for values in state.values]
        cells = state.layout.merged(state.groups.cells[bucket_slots], due.windows, n, stored, state.texts)
        order = np.argsort(due.starts, kind="stable")
        keys = state.groups.keys[slots[due.rows]][order]
        return keys, cells[order], (due.starts[order], due.ends[order])

    # Their form elsewhere

    def to_parts(self) -> Plain:
        """Return all from which `load_parts` resumes."""
        return {"finished": self.progress.finished, **contents(self.state)}

    def load_parts(self, parts: Parts, watermark: int | None) -> None:
        """Fill new groups, given the watermark of the runtime. They cannot be used if the parts do not fit."""
        fill(self.state, self._always, parts)
        progress = self.advanced(WindowProgress(finished=parts.flag("finished")), watermark)
        if self.buckets is not None:
            keys = self.state.groups.keys[self.state.groups.slots]
            times = keys[:, -1]
            fits = bool((np.abs(times) <= FOREVER).all()) and np.array_equal(self.buckets.of(times), times)
            covered = self.buckets.covered(times) if fits else None
            whole = fits and (covered is None or bool(covered.all()))
            parts.require(whole, "groups: a bucket of time is none of the window")
            due = self.buckets.due(keys, progress.limit, progress.limit)
            parts.require(not len(due.closed), "groups: a window was not given that is due")
            progress = progress._replace(next=due.next)
        self.progress = progress

    def check(self) -> None:
        """Raise StateError unless all invariants of the state hold. O(state), for tests."""
        self.state.check()

    def dismantle(self) -> None:
        """Release all memory immediately. The groups cannot be used afterwards."""
        vars(self).clear()


def groups_now(groups: Groups | None) -> pa.Table:
    """Return the groups of a runtime as they are; see `Runtime.groups`. Raises InputError if there are none."""
    if groups is None:
        raise InputError("groups() is for queries with aggregates; this one has the results of a join")
    names = [name for name in groups.schema.names if not hidden(name) and name != OP]
    return groups.now().select(names)


def _taken(table: pa.Table, numbers: Int64s) -> pa.Table:
    """Return rows of a table of any types, by ascending numbers."""
    return pa.Table.from_arrays([taken(column, numbers) for column in table.columns], schema=table.schema)


def _failed(made: Made, faults: Faults) -> tuple[pa.RecordBatch, ...]:
    """Return the rows of `FAILED` of some groups, none without faults."""
    return tuple(failed_batch(faults, dict(zip(made.whole.column_names, made.whole.columns, strict=True))))
