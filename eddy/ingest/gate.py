"""The gate: from a user's push to arrivals, by validation, filters, order and lateness. It does not touch the state.

The common case (every row arrives, the order is given, no event times) costs a few Arrow calls per stream and no copy.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from eddy.filters.adaptive import AdaptiveFilter
from eddy.ingest.arrivals import (
    Arrivals,
    Deletes,
    LateBatch,
    NewVersions,
    Order,
    Rows,
    Times,
    counts,
    keep_rows,
    kept_places,
)
from eddy.ingest.changes import DELETES, UPSERTS, ChangeReader, TableChanges, newest, spread
from eddy.ingest.clock import Clock, Ticked
from eddy.ingest.envelopes import EnvelopeReader
from eddy.ingest.event_times import EventTimes
from eddy.ingest.kernels import merge_by_time
from eddy.ingest.newest_versions import NewestVersions
from eddy.ingest.soundness import loose_columns
from eddy.ingest.tables import checked_rows
from eddy.ingest.validation import checked_order
from eddy.query.query import Query
from eddy.streams.keyed import KeyedInput
from eddy.streams.stream import no_input
from eddy.streams.table import Table
from stairs.errors import InputError
from stairs.graph import FOREVER, WindowKind
from stairs.memory.allowance import Allowance
from stairs.plain_types import taken

MERGED_ONE_BY_ONE = 12
"""Maximal number of streams that a kernel merges by comparing their next times; more streams are sorted."""
_FLAG = "\0delete"
"""The column that says which changes of a versioned table are deletes."""
_MAPPINGS = dict, Mapping
"""Most mappings are dicts, and the test for `Mapping` takes longer."""


class Gate:
    """Admits the pushes of one query. It has no state but that of its adaptive filters, and versions of tables.

    allowance   that for the keys of versions
    """

    def __init__(self, query: Query, allowance: Allowance | None = None) -> None:
        self.query = query
        self.names = query.graph.names
        self._places = [stream.place for stream in query.streams]
        self.ranged = query.graph.timed
        self.filters = {
            i: AdaptiveFilter(stream.conditions, place=f"{stream.place}: its filter")
            for i, stream in enumerate(query.streams)
            if stream.conditions
        }
        """The filters, by position of their stream."""
        self._untimed: list[Times | None] = [None] * len(self.names)
        self._index = {name: i for i, name in enumerate(self.names)}
        self._schemas = [stream.schema for stream in query.streams]
        self._loose = [loose_columns(schema) for schema in self._schemas]
        self.changes = {
            i: change_reader(stream) for i, stream in enumerate(query.streams) if isinstance(stream, KeyedInput)
        }
        """What reads the changes of each table, by its position."""
        self._timeless = [i for i, stream in enumerate(query.streams) if isinstance(stream, Table)]
        """The tables whose changes have no event time."""
        self.versions = {
            i: NewestVersions(stream, allowance)
            for i, stream in enumerate(query.streams)
            if isinstance(stream, Table) and stream.version is not None
        }
        """The newest versions of the keys of tables that have versions, by position. Only a commit changes them."""
        self._clocked = [i for i in range(len(query.streams)) if i not in self._timeless]
        """The inputs of which the clock knows, in its order."""
        self._place = np.full(256, len(query.streams), np.uint8)
        self._place[self._clocked] = np.arange(len(self._clocked))
        self._event_times = EventTimes(query.streams, query.time_type)
        self._seen: Rows = np.zeros(256, np.int64)
        """Room to count the arrivals of each stream."""

    def admit(
        self,
        pushed: Mapping[str, object],
        order: object,
        clock: Clock | None,
        given: int | None = None,
        past: bool = False,
        atomic: bool = False,
        whole: bool = False,
    ) -> Arrivals:
        """Return the arrivals of a push. Raises InputError for rows, an order or a watermark that do not fit the query.

        clock      the clock that decides which rows are late; None in a query without a RANGE window
        given      the watermark that the caller gives with the push, None = none
        past       the rows arrived earlier: none is late, and without event times, the rows of one stream may follow
                   those of another
        atomic     the results are the difference between two answers: of several changes of one key the last one
                   arrives, and changes arrive before rows
        whole      only the answer after the push counts, which no order of the rows of different streams changes. So
                   does an atomic push
        """
        if self.changes:
            return self._admit_changes(pushed, order, clock, given, past, atomic, whole)
        batches, rows = self._batches(pushed)
        sequence = None if order is None else checked_order(order, rows, self._places, self._seen)
        if self.filters:
            # Filters come first: a rejected row never arrives, so its event time may be null.
            keep = self._accepted(batches)
            if keep and sequence is not None:
                places = np.flatnonzero(kept_places(sequence, batches, keep))
                sequence = sequence[places]
            batches = keep_rows(batches, keep)
            rows = counts(batches)
        times = self._untimed
        if sequence is None:
            batches, sequence, by_time = self._in_order(batches, past or atomic or whole)
            if self.ranged:
                times = by_time
        elif self.ranged:
            times = self._event_times.read(batches).by_stream
        if clock is None:
            return Arrivals(batches, rows, sequence, times, {}, atomic=atomic)
        keep, late = dict[int, Rows](), dict[int, LateBatch]()
        ticked = clock.tick(sequence, times, given, past)
        if len(ticked.late):
            keep, late = self._late(batches, times, ticked)
        timing = ticked.reading, ticked.state, given is not None
        return Arrivals(batches, rows, sequence, times, late, *timing, atomic=atomic).kept(keep)

    def take(self, arrivals: Arrivals) -> Arrivals:
        """Return those arrivals that the filters accept, of arrivals that another gate has admitted for these streams.

        None of them is late. In a query without a RANGE window, they have no event times.
        """
        return arrivals.kept(self._accepted(arrivals.batches)) if self.filters else arrivals

    def _admit_changes(
        self,
        pushed: Mapping[str, object],
        order: object,
        clock: Clock | None,
        given: int | None,
        past: bool,
        atomic: bool,
        whole: bool,
    ) -> Arrivals:
        """Return the arrivals of a push of a query with tables, as `admit` does.

        Without an order, the changes of tables arrive before the rows of streams. Changes have no event time: they pass
        the clock by, and the watermark with a change is that of the row before it. The changes of versioned tables have
        event times, as rows of streams.
        """
        batches, rows, changed = self._changed(pushed)
        fresh, stale = self._fresh(batches, changed)
        if atomic:
            changed = {
                i: newest(changes, self.changes[i].table.keys) if i in self._timeless else changes
                for i, changes in changed.items()
            }
            batches = [changed[i].batch if i in changed and batch else batch for i, batch in enumerate(batches)]
        sequence = None if order is None else spread(checked_order(order, rows, self._places, self._seen), changed)
        keep = self._accepted([None if i in self.changes else batch for i, batch in enumerate(batches)])
        if keep and sequence is not None:
            sequence = sequence[np.flatnonzero(kept_places(sequence, batches, keep))]
        batches = keep_rows(batches, keep)
        deletes = self._deletes(batches, changed)
        for i in deletes.keys() - self._timeless:
            # Rows with event times are sorted, and some are late: what says which are deletes goes with them.
            batches[i] = _flagged(batches[i], deletes.pop(i))
        if sequence is None:
            any_order = past or atomic or whole
            tables = [i for i in self._timeless if batches[i] is not None]
            first = np.repeat(np.array(tables, np.uint8), [len(batches[i] or ()) for i in tables])
            others, then, _ = self._in_order(
                [None if i in tables else batch for i, batch in enumerate(batches)], any_order
            )
            batches = [batches[i] if i in tables else batch for i, batch in enumerate(others)]
            sequence = np.concatenate([first, then])
        elif atomic:
            of_streams = np.isin(sequence, self._timeless, invert=True)
            sequence = np.concatenate([sequence[~of_streams], sequence[of_streams]])
        if clock is None:
            rows = counts(batches)
            return Arrivals(batches, rows, sequence, self._untimed, stale, deletes=deletes, atomic=atomic, newest=fresh)
        dated = [None if i in self._timeless else batch for i, batch in enumerate(batches)]
        times = self._event_times.read(dated).by_stream
        of_streams = self._place[sequence] < len(batches)
        ticked = self._ticked(clock, sequence[of_streams], times, given, past)
        reading, late, keep = ticked.reading, stale, {}
        marks = np.append(reading.before, reading.marks)[np.cumsum(of_streams)]
        reading = reading._replace(marks=marks)
        if len(ticked.late):
            because = np.zeros(len(batches), np.int64)
            because[self._clocked] = ticked.because
            keep, late_batches = self._late(batches, times, ticked._replace(because=because))
            late = stale | {
                i: late_batch._replace(rows=self._shown_late(i, late_batch.rows))
                for i, late_batch in late_batches.items()
            }
        arrivals = Arrivals(
            batches,
            counts(batches),
            sequence,
            times,
            late,
            reading,
            ticked.state,
            given is not None,
            deletes=deletes,
            atomic=atomic,
            newest=fresh,
        ).kept(keep)
        for i in changed:
            batch = arrivals.batches[i]
            if batch is not None and i in self._timeless:
                arrivals.times[i] = np.full(len(batch), -FOREVER)
            else:
                arrivals.batches[i], gone = _unflagged(batch)
                if gone is not None:
                    deletes[i] = gone
        return arrivals

    def _ticked(
        self, clock: Clock, sequence: Order, times: list[Times | None], given: int | None, past: bool
    ) -> Ticked:
        """Return the clock after arrivals with event times; `times` has those of all inputs."""
        return clock.tick(self._place[sequence], [times[i] for i in self._clocked], given, past)

    def _fresh(
        self, batches: list[pa.RecordBatch | None], changed: dict[int, TableChanges]
    ) -> tuple[dict[int, NewVersions], dict[int, LateBatch]]:
        """Leave stale changes out of a push; return its versions, and the stale changes, by table."""
        fresh, stale = dict[int, NewVersions](), dict[int, LateBatch]()
        for i, versions in self.versions.items():
            if i not in changed or not len(changed[i].batch):
                continue
            # A rejected row is a delete: of both, the tombstone ends.
            given = changed[i]
            given = given._replace(deletes=self._rejected(i, given.batch, given.deletes))
            changed[i], old, fresh[i] = versions.take(given)
            batches[i] = changed[i].batch if len(changed[i].batch) else None
            if old is not None:
                wanted = self.query.late_by_stream[i] != "count"
                rows = self._shown(i, old.batch, old.deletes) if wanted else None
                stale[i] = LateBatch(rows, len(old.batch), 0)
        return fresh, stale

    def _shown_late(self, i: int, batch: pa.RecordBatch | None) -> pa.RecordBatch | None:
        """Return late rows of stream i with the columns that their side output has."""
        batch, gone = _unflagged(batch)
        return None if batch is None else self._shown(i, batch, gone)

    def _shown(self, i: int, batch: pa.RecordBatch, gone: Deletes | None) -> pa.RecordBatch:
        """Return rows or changes of stream i, and which of them are deletes, as the columns of their side output."""
        schema = self.query.streams[i].late_schema
        if len(schema) == len(batch.schema):
            return batch
        ops = np.where(np.zeros(len(batch), bool) if gone is None else gone, DELETES[0], UPSERTS[0])
        return pa.RecordBatch.from_arrays([*batch.columns, pa.array(ops, pa.string())], schema=schema)

    def _deletes(self, batches: list[pa.RecordBatch | None], changed: Mapping[int, TableChanges]) -> dict[int, Deletes]:
        """Return by table which of its changes are deletes, for tables that have some."""
        by_table = {
            i: changes.deletes if i in self.versions else self._rejected(i, batch, changes.deletes)
            for i, changes in changed.items()
            if (batch := batches[i])
        }
        return {i: deletes for i, deletes in by_table.items() if deletes is not None}

    def _rejected(self, i: int, batch: pa.RecordBatch, deletes: Deletes | None) -> Deletes | None:
        """Return which changes of table i are deletes, those among them whose row the filter rejects."""
        accepts = self.filters.get(i)
        if accepts is None:
            return deletes
        upserts = np.arange(len(batch)) if deletes is None else np.flatnonzero(~deletes)
        accepted = accepts.accepted(taken(batch, upserts)) if len(upserts) else upserts
        if len(accepted) == len(upserts):
            return deletes
        gone = np.ones(len(batch), bool)
        gone[upserts[accepted]] = False
        return gone

    def _changed(
        self, pushed: Mapping[str, object]
    ) -> tuple[list[pa.RecordBatch | None], list[int], dict[int, TableChanges]]:
        """Return the rows by stream, the numbers of rows that were pushed, and the changes by table."""
        _check_mapping(pushed)
        read = {i: self.changes[i].read(pushed[self.names[i]]) for i in self.changes if self.names[i] in pushed}
        batches, rows = self._batches(
            {name: given for name, given in pushed.items() if self._index.get(name) not in read}
        )
        changed = {i: changes for i, changes in read.items() if changes.pushed}
        for i, changes in changed.items():
            batches[i], rows[i] = changes.batch if changes.batch.num_rows else None, changes.pushed
        return batches, rows, changed

    def _batches(self, pushed: Mapping[str, object]) -> tuple[list[pa.RecordBatch | None], list[int]]:
        """Return the rows by stream, None for no rows, and their numbers."""
        _check_mapping(pushed)
        batches: list[pa.RecordBatch | None] = [None] * len(self.names)
        counts = [0] * len(self.names)
        for name, rows in pushed.items():
            i = self._index.get(name)
            if i is None:
                raise InputError(no_input(name, self.query.streams))
            batch = checked_rows(rows, self._schemas[i], self._places[i], self._loose[i])
            if n := batch.num_rows:
                batches[i], counts[i] = batch, n
        return batches, counts

    def admit_past(
        self, pushed: Mapping[str, object], clock: Clock | None, given: int | None
    ) -> tuple[Arrivals, list[int]]:
        """Return the rows of an earlier push that are still in their windows, and per stream the number of other rows.

        clock      the clock of a query with a RANGE window
        given      the watermark after these rows; None = the watermark follows from them

        Each stream is in order of event time if all streams with rows have event times, and in row order if not. The
        streams follow each other, because rows that probe nothing need no common order. The changes of a table keep
        their order, and none is skipped. No row is late. Raises InputError as `admit` does.
        """
        (batches, _, changed), times = self._changed(pushed), self._untimed
        fresh, _ = self._fresh(batches, changed)
        deletes = self._deletes(batches, changed)
        tables = {i: batches[i] for i in changed}
        batches = [None if i in tables else batch for i, batch in enumerate(batches)]
        if self.filters:
            batches = keep_rows(batches, self._accepted(batches))
        streams, graph = self.query.streams, self.query.graph
        reading, state = None, None
        if clock is not None:
            batches, sequence, times = self._by_time(batches)
            reading, state = self._ticked(clock, sequence, times, given, past=True)[:2]
        elif all(batch is None or stream.time is not None for batch, stream in zip(batches, streams, strict=True)):
            batches, times = self._sorted(batches)
        skipped = [0] * len(batches)
        for i, (batch, ticks, window) in enumerate(zip(batches, times, graph.windows, strict=True)):
            if batch is None:
                continue
            if window.kind == WindowKind.ROWS:
                skipped[i] = max(len(batch) - window.size, 0)
            elif window.kind == WindowKind.RANGE:
                assert ticks is not None
                assert reading is not None
                skipped[i] = int(np.searchsorted(ticks, reading.after - window.size))
        kept = [
            batch.slice(n) if batch is not None and n < len(batch) else None
            for batch, n in zip(batches, skipped, strict=True)
        ]
        on_time = self._untimed
        if self.ranged:
            on_time = [None if ticks is None else ticks[n:] for ticks, n in zip(times, skipped, strict=True)]
        for i, batch in tables.items():
            kept[i] = batch
            if clock is not None and batch is not None:
                on_time[i] = np.full(len(batch), -FOREVER)
        rows = counts(kept)
        order = np.repeat(np.arange(len(kept), dtype=np.uint8), rows)
        if reading is not None:
            reading = reading._replace(marks=np.full(len(order), reading.after))
        return Arrivals(kept, rows, order, on_time, {}, reading, state, deletes=deletes, newest=fresh), skipped

    def _sorted(self, batches: list[pa.RecordBatch | None]) -> tuple[list[pa.RecordBatch | None], list[Times | None]]:
        """Return each stream's rows and event times, ordered by (event time, row)."""
        pushed_times = self._event_times.read(batches)
        if pushed_times.rising.all():
            return batches, pushed_times.by_stream
        batches, sorted_times = list(batches), pushed_times.by_stream
        for i in np.flatnonzero(pushed_times.rising == 0).tolist():
            batch, times = batches[i], sorted_times[i]
            assert batch is not None
            assert times is not None
            rows = np.argsort(times, kind="stable")
            batches[i], sorted_times[i] = taken(batch, rows), times[rows]
        return batches, sorted_times

    def _in_order(
        self, batches: list[pa.RecordBatch | None], any_order: bool
    ) -> tuple[list[pa.RecordBatch | None], Order, list[Times | None]]:
        """Return rows, order of arrival and event times of a push without a given order.

        any_order   without event times, the rows of one stream may follow those of another
        """
        present = [i for i, batch in enumerate(batches) if batch is not None]
        if (any_order or len(present) == 1) and any(self.query.streams[i].time is None for i in present):
            order = np.concatenate([np.full(len(batches[i] or ()), i, np.uint8) for i in present])
            return batches, order, self._untimed
        return self._by_time(batches)

    def _by_time(
        self, batches: list[pa.RecordBatch | None]
    ) -> tuple[list[pa.RecordBatch | None], Order, list[Times | None]]:
        """Return rows, order of arrival and event times, ordered by (event time, stream, row)."""
        for i, batch in enumerate(batches):
            if batch is not None and self.query.streams[i].time is None:
                raise InputError(
                    f"{self._places[i]} has no time column, so the order of its rows among those of other streams"
                    " is unknown; name its time column with Stream(…, time=…), push one stream at a time or pass order="
                )
        sorted_batches, sorted_times = self._sorted(batches)
        present = [i for i, times in enumerate(sorted_times) if times is not None]
        if not present:
            return sorted_batches, np.zeros(0, np.uint8), sorted_times
        merged = np.concatenate([ticks for ticks in sorted_times if ticks is not None])
        counts = np.array([len(ticks) for ticks in sorted_times if ticks is not None], np.int64)
        streams = np.array(present, np.uint8)
        if len(present) > MERGED_ONE_BY_ONE:
            order = np.repeat(streams, counts)[np.argsort(merged, kind="stable")]
        else:
            nth, ends = np.empty(len(merged), np.uint8), np.cumsum(counts)
            merge_by_time(merged, ends - counts, ends, np.empty(len(present), np.int64), nth)
            order = streams[nth]
        return sorted_batches, order, sorted_times

    def _accepted(self, batches: list[pa.RecordBatch | None]) -> dict[int, Rows]:
        """Return the numbers of the rows that the filters accept, for the streams that have other rows."""
        keep = {}
        for i, accepts in self.filters.items():
            batch = batches[i]
            if batch is not None:
                rows = accepts.accepted(batch)
                if len(rows) < len(batch):
                    keep[i] = rows
        return keep

    def _late(
        self, batches: list[pa.RecordBatch | None], times: list[Times | None], ticked: Ticked
    ) -> tuple[dict[int, Rows], dict[int, LateBatch]]:
        """Return the rows of a push that are not late, and the late rows of each stream with late rows."""
        keep, late, first = {}, {}, 0
        for i, (batch, ticks) in enumerate(zip(batches, times, strict=True)):
            if batch is None or ticks is None:
                continue
            is_late = ticked.late[first : first + len(ticks)]
            first += len(ticks)
            if is_late.any():
                keep[i], rows = np.flatnonzero(is_late == 0), np.flatnonzero(is_late)
                wanted = self.query.late_by_stream[i] != "count"
                behind = int(ticked.because[i]) - int(ticks[rows[0]])
                late[i] = LateBatch(taken(batch, rows) if wanted else None, len(rows), behind)
        return keep, late


def _flagged(batch: pa.RecordBatch | None, deletes: Deletes) -> pa.RecordBatch:
    """Return changes with a column that says which of them are deletes."""
    assert batch is not None
    columns, names = [*batch.columns, pa.array(deletes)], [*batch.schema.names, _FLAG]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _unflagged(batch: pa.RecordBatch | None) -> tuple[pa.RecordBatch | None, Deletes | None]:
    """Return rows without that column if they have it, and which of them are deletes."""
    if batch is None or batch.schema.names[-1] != _FLAG:
        return batch, None
    flags = np.asarray(batch.columns[-1].cast(pa.uint8())).astype(bool)
    return batch.select(batch.schema.names[:-1]), flags


def change_reader(table: KeyedInput) -> ChangeReader:
    """Return what reads the changes of a table, in the form in which they are pushed."""
    return EnvelopeReader(table) if table.ops == "debezium" else ChangeReader(table)


def _check_mapping(pushed: object) -> None:
    """Raise InputError unless what is pushed is a mapping."""
    if not isinstance(pushed, _MAPPINGS):
        raise InputError(f"push takes a mapping from names of streams or tables to rows, not {type(pushed).__name__}")
