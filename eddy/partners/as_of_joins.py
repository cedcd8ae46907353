"""The as-of joins of a query: rows get the versions of tables, at their event times or at their arrival.

A row that gets a version at an event time waits until the watermark has passed it. In a changelog it comes at once, and
waits for versions that take it over. The versions of a table that is looked up at the arrival of a row begin at the
positions of its changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.ingest.arrivals import Arrivals, Order
from eddy.partners.row_store import RowStore
from eddy.partners.rows import Int64s, PartnerRows, joined, net_signs
from eddy.partners.version_log import VersionLog
from eddy.partners.waiting import Hashes, KeyIndex, Run, Runs, divided, merged_run, with_run
from eddy.query.as_of import AsOfJoin
from eddy.query.query import Query
from stairs.errors import StateError
from stairs.graph import FOREVER
from stairs.plain_types import Column
from stairs.storage.parts import Parts, Plain

Bools = npt.NDArray[np.bool_]
NEVER_WAITS = -2 * FOREVER
"""The watermark that a row without an event time waits for."""
LEAST = 64
"""Versions below which no log is compacted."""


class AsOfJoins:
    """All as-of joins of a query, which extend each row together.

    row_store  the rows of the streams
    logs       the versions of each table, in the order of `Query.as_of_joins`
    runs       the rows that wait
    at_once    whether rows come at once, and change while they wait
    """

    def __init__(self, query: Query, row_store: RowStore, columns: list[list[str]], at_once: bool) -> None:
        self.query, self.row_store, self.at_once = query, row_store, at_once
        self.joins: tuple[AsOfJoin, ...] = query.as_of_joins
        self.logs = [VersionLog(query, join, columns[join.table]) for join in self.joins]
        self.runs: Runs = ()
        self.watermark = -FOREVER
        """The watermark after the last push, -FOREVER before the first one."""
        self._after: tuple[Runs, int] | None = None

    @property
    def waiting(self) -> int:
        """The number of rows that wait."""
        return sum(len(run.due) for run in self.runs)

    @property
    def due(self) -> int | None:
        """The event time that the watermark must pass before a row can be output; None if none waits for that."""
        return None if self.at_once else min((int(run.due[0]) for run in self.runs), default=None)

    @property
    def nbytes(self) -> int:
        """Bytes of the versions and of the rows that wait."""
        return sum(log.nbytes for log in self.logs) + sum(run.nbytes for run in self.runs)

    def lower(self, lows: Int64s) -> None:
        """Lower lows[i] to the oldest row of stream i that waits. O(rows that wait)."""
        for run in self.runs:
            rows = np.where(run.rows.rows < 0, np.iinfo(np.int64).max, run.rows.rows)
            np.minimum(lows, rows.min(axis=0), out=lows)

    def release(self) -> None:
        """Forget the rows that ended while they waited, between two pushes of a changelog. O(rows that wait)."""
        if self.at_once and self.runs:
            run = merged_run(self.runs)
            kept = np.flatnonzero(net_signs(run.rows) > 0)
            self.runs = (run.chosen(kept),) if len(kept) else ()

    # A push

    def follow(
        self, arrivals: Arrivals, partner_rows: PartnerRows, firsts: list[int], lows: Callable[[], Int64s]
    ) -> PartnerRows:
        """Take the versions and the rows of a push; return the rows whose versions are certain now.

        partner_rows  rows that begin and end, without versions
        firsts  the arrival number of the first arrival of each stream in the push
        lows    returns the oldest row of each stream that results may still need
        """
        wanted = []
        for k, join in enumerate(self.joins):
            batch = arrivals.batches[join.table]
            if batch is None:
                wanted.append((np.zeros(0, np.uint64), np.zeros((0, 2), np.int64)))
                continue
            # If the push fails, rows that are as old as the watermark before it may come after it.
            self._make_room(k, len(batch), lows, sum(firsts))
            spans = self._append(k, join, batch, arrivals, firsts)
            hashes = self.logs[k].hashes_of_versions(batch) if self.at_once else np.zeros(0, np.uint64)
            wanted.append((hashes, spans))
        changed = self._changed(
            [versions for versions, join in zip(wanted, self.joins, strict=True) if join.at is not None]
        )
        runs, new = self.runs, None
        if len(partner_rows.rows):
            new = self._run(partner_rows, self._came(partner_rows.rows, arrivals.order, firsts))
            runs = with_run(runs, new)
        watermark = -FOREVER if arrivals.watermark is None else arrivals.watermark
        ready, rest = divided(runs, 2 * FOREVER if arrivals.ends else watermark)
        self._after = rest, watermark
        width = len(self.query.streams)
        if self.at_once:
            return joined([*changed, *([] if new is None else [self._extended(new.came, new.rows)])], width)
        if not ready:
            return PartnerRows.none(width)
        run = merged_run(ready)
        return self._extended(run.came, run.rows)

    def _run(self, partner_rows: PartnerRows, came: Int64s) -> Run:
        """Return rows, which came at these positions, as a run."""
        keys = [
            KeyIndex.of(
                log.hashes_of_rows(self._probing(join, partner_rows.rows)), self._times(join.at, partner_rows.rows)
            )
            for log, join in zip(self.logs, self.joins, strict=True)
            if self.at_once and join.at is not None
        ]
        return merged_run((Run(self._due(partner_rows.rows), came, partner_rows, tuple(keys)),))

    def _changed(self, wanted: list[tuple[Hashes, Int64s]]) -> list[PartnerRows]:
        """Return the rows that came in earlier pushes and lose their versions, and the same rows with new ones.

        wanted  for each versioned table, the hashes of the keys and the spans of the new versions
        """
        if not self.at_once or not any(len(hashes) for hashes, _ in wanted):
            return []
        came, parts = [], []
        for run in self.runs:
            numbers = run.affected(wanted)
            came.append(run.came[numbers])
            parts.append(PartnerRows(run.rows.rows.take(numbers, axis=0), run.rows.signs[numbers]))
        affected = joined(parts, len(self.query.streams))
        # A row that ended while it waited has no versions any more.
        kept = np.flatnonzero(net_signs(affected) > 0)
        rows, positions = (
            affected.rows.take(kept, axis=0),
            np.concatenate([*came, np.zeros(0, np.int64)])[kept].astype(np.int64),
        )
        before, had = self._versions(rows, positions, [log.settled for log in self.logs])
        after, has = self._versions(rows, positions)
        differs = (before != after).any(axis=1)
        lost, gained = before.compress(differs & had, axis=0), after.compress(differs & has, axis=0)
        return [
            PartnerRows(lost, np.zeros(len(lost), np.uint8)),
            PartnerRows(gained, np.ones(len(gained), np.uint8)),
        ]

    def settle(self) -> None:
        """Keep what a push changed. Idempotent."""
        for log in self.logs:
            log.settle()
        if self._after is not None:
            self.runs, self.watermark = self._after
            self._after = None

    def undo(self) -> None:
        """Undo the open push. Idempotent."""
        self._after = None
        for log in self.logs:
            log.cut()

    def _make_room(self, k: int, more: int, lows: Callable[[], Int64s], position: int) -> None:
        """Compact a log that has no room for versions, if half of its versions are not needed any more."""
        log = self.logs[k]
        if log.n + more <= log.room or log.n < LEAST:
            return
        limit = self._limit(k, lows(), position)
        if 2 * log.needed(limit) <= log.n:
            self.logs[k] = log.compacted(limit)

    def _limit(self, k: int, lows: Int64s, position: int) -> int:
        """Return the least time, or position, at which a row may still ask for a version of join k.

        position   the number of arrivals before the push that is open, or before the next one

        O(rows in the row store).
        """
        at = self.joins[k].at
        if at is None:
            return min((int(run.came.min()) for run in self.runs), default=position)
        kept = self.row_store.times(at, np.arange(int(lows[at]), self.row_store.following[at]))
        return int(kept.min(initial=self.watermark))

    def _append(self, k: int, join: AsOfJoin, batch: pa.RecordBatch, arrivals: Arrivals, firsts: list[int]) -> Int64s:
        """Append the versions of a push, and return what `VersionLog.append` does."""
        times, deletes = arrivals.times[join.table], arrivals.deletes.get(join.table)
        if join.at is None:
            times = sum(firsts) + np.flatnonzero(arrivals.order == join.table)
        assert times is not None
        gone = np.zeros(len(batch), np.uint8) if deletes is None else deletes.astype(np.uint8)
        columns: list[Column] = [batch.column(name) for name in self.logs[k].columns]
        return self.logs[k].append(columns, times, gone, firsts[join.table] + np.arange(len(batch)))

    def _came(self, rows: Int64s, order: Order, firsts: list[int]) -> Int64s:
        """Return the positions of the last components of rows to arrive, which arrived in this push."""
        came = np.full(len(rows), -1, np.int64)
        for i, first in enumerate(firsts):
            places = np.flatnonzero(order == i)
            if len(places):
                there = rows[:, i] >= first
                came[there] = np.maximum(came[there], places[rows[there, i] - first])
        return sum(firsts) + came

    def _times(self, stream: int, rows: Int64s) -> Int64s:
        """Return the event times of the components of a stream; NEVER_WAITS for rows without one."""
        numbers = rows[:, stream]
        return np.where(numbers < 0, NEVER_WAITS, self.row_store.times(stream, np.maximum(numbers, 0)))

    def _due(self, rows: Int64s) -> Int64s:
        """Return the event time that the watermark must pass before the versions of rows are certain."""
        due = np.full(len(rows), NEVER_WAITS, np.int64)
        for join in self.joins:
            if join.at is None:
                continue
            times = self._times(join.at, rows)
            np.maximum(due, np.where(times == NEVER_WAITS, times, times + join.ahead), out=due)
        return due

    def _extended(self, came: Int64s, partner_rows: PartnerRows) -> PartnerRows:
        """Return rows with their versions, without those that lack one."""
        rows, kept = self._versions(partner_rows.rows, came)
        return (
            PartnerRows(rows, partner_rows.signs)
            if kept.all()
            else PartnerRows(rows.compress(kept, axis=0), partner_rows.signs[kept])
        )

    def _versions(self, rows: Int64s, came: Int64s, ends: Sequence[int | None] = ()) -> tuple[Int64s, Bools]:
        """Return rows with their versions, and whether they lack none that they need.

        ends  the number of versions of each log that count; all, if it is empty
        """
        rows, kept = rows.copy(), np.ones(len(rows), bool)
        for log, join, end in zip(self.logs, self.joins, ends or repeat(None), strict=False):
            times = came if join.at is None else self._times(join.at, rows)
            order = np.arange(len(rows))
            if (times[1:] < times[:-1]).any():
                order = np.argsort(times, kind="stable")
            rows[order, join.table] = log.find(self._probing(join, rows.take(order, axis=0)), times[order], end)
            if not join.left:
                kept &= rows[:, join.table] >= 0
        return rows, kept

    def _probing(self, join: AsOfJoin, rows: Int64s) -> Mapping[int, pa.RecordBatch]:
        """Return the columns that the keys of rows are made of, by stream."""
        return {
            stream: self.row_store.column_batch(stream, columns, rows[:, stream])
            for stream, columns in join.probing().items()
        }

    def columns(self, rows: Int64s) -> dict[tuple[int, int], Column]:
        """Return the columns of the versions of rows, by (stream, column)."""
        columns: dict[tuple[int, int], Column] = {}
        for log, join in zip(self.logs, self.joins, strict=True):
            columns |= {(join.table, k): column for k, column in enumerate(log.gather(rows[:, join.table]))}
        return columns

    def numbered(self, rows: Int64s) -> Int64s:
        """Return rows with the arrival numbers of their versions."""
        rows = rows.copy()
        for log, join in zip(self.logs, self.joins, strict=True):
            rows[:, join.table] = log.numbers(rows[:, join.table])
        return rows

    # Parts for another process

    def to_parts(self, lows: Int64s) -> Plain:
        """Return all parts from which `load_parts` resumes, without versions that no row can get.

        lows  the oldest row of each stream that results may still need
        """
        width = len(self.query.streams)
        none: Int64s = np.zeros(0, np.int64)
        run = merged_run(self.runs) if self.runs else Run(none, none, PartnerRows.none(width))
        came, (rows, signs) = run.came, run.rows
        position = sum(self.row_store.following)
        logs = [log.compacted(self._limit(k, lows, position)).to_parts() for k, log in enumerate(self.logs)]
        return {"logs": logs, "waiting": rows, "signs": signs, "came": came}

    def load_parts(self, parts: Parts, watermark: int | None) -> None:
        """Resume from the parts of the same joins; the row store has the rows. Raises StateError for others."""
        self.watermark = -FOREVER if watermark is None else watermark
        for part, log, join in zip(parts.items("logs", len(self.logs)), self.logs, self.joins, strict=True):
            log.load_parts(part, self.row_store.following[join.table])
        rows = parts.array("waiting", np.int64, (-1, len(self.query.streams)))
        signs, came = parts.array("signs", np.uint8, (len(rows),)), parts.array("came", np.int64, (len(rows),))
        kept = (rows >= self.row_store.low) & (rows < self.row_store.following)
        for i in self.row_store.numbers:
            kept[:, i] = np.isin(rows[:, i], self.row_store.kept(i))
        tables = [join.table for join in self.joins]
        fits = bool((kept | (rows == -1)).all()) and bool((rows[:, tables] == -1).all()) and bool((signs <= 1).all())
        parts.require(fits, "rows that wait and are not kept")
        arrived = bool(((came >= -1) & (came < sum(self.row_store.following))).all())
        parts.require(arrived, "rows that wait and have not arrived")
        if len(rows):
            self.runs = (self._run(PartnerRows(rows, signs), came),)

    def check(self) -> None:
        """Raise StateError unless the invariants hold. O(state), for tests."""
        for run in self.runs:
            if (np.diff(run.due) < 0).any() or not np.array_equal(run.due, self._due(run.rows.rows)):
                raise StateError("a run of waiting rows is not in order, or waits for another time")
        for log in self.logs:
            log.check()
