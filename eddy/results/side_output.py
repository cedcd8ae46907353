"""The side output: late rows after a push has committed, which are logged, passed to a function or stored.

    rows    the whole state, a `LateRows` that is replaced by one assignment

A push prepares the next `rows` before it commits and assigns them with its commit. Everything here happens afterwards,
so it never undoes a push. Rows for a function stay in `rows` until the function has returned. If it raises, or the
process is interrupted, it gets them again after the next push. Rows that a caller collects stay there until the next
push, for a caller who was interrupted before the rows reached it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pyarrow as pa

from eddy.ingest.arrivals import LateBatch
from eddy.query.lateness import lateness_text, span_text
from eddy.query.query import Query
from eddy.results.late_rows import Chunks, LateRows
from stairs.errors import LateRowsError

LOG = logging.getLogger(__name__)


class SideOutput:
    """The side output of one runtime."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.rows = LateRows.none(len(query.streams))

    def take(self) -> dict[str, pa.Table]:
        """Return the stored rows by name of stream (streams without any are left out), and store none."""
        tables = self._tables(self.rows.stored)
        if tables:
            # One assignment. Whoever is interrupted from here on finds the rows in `taken`.
            self.rows = self.rows.collected()
        return tables

    def taken(self) -> dict[str, pa.Table] | None:
        """Return the rows that `take` removed since the last push, None if it removed none."""
        return None if self.rows.taken is None else self._tables(self.rows.taken)

    def _tables(self, rows: tuple[Chunks, ...]) -> dict[str, pa.Table]:
        return {s.name: own.table(s.schema) for s, own in zip(self.query.streams, rows, strict=True) if own.rows}

    def settle(self, late: Mapping[int, LateBatch], left: float, given: bool) -> None:
        """Handle late rows after a push: log the first of a stream, call the functions, drop what exceeds the bounds.

        late   the late rows of the push, which are in `rows` already
        left   bytes that stored rows may take
        given  whether callers pass the watermark with each push

        Raises LateRowsError if a function raised, after everything else is done.
        """
        for i, one in late.items():
            if self.rows.counts[i] == one.n_rows:
                LOG.warning(self._first(i, one, given))
        failures = self._hand_over() if any(self.rows.rows) else []
        self.keep_within(left)
        if failures:
            names = ", ".join(name for name, _ in failures)
            error = failures[0][1]
            raise LateRowsError(
                f"stream {names}: the function for late rows raised {type(error).__name__}: {error}. The push has"
                " committed: do not push its rows again; its results are in runtime.last_push(). The function gets the"
                " late rows again after the next push, unless runtime.late() returns them before"
            ) from error

    def _hand_over(self) -> list[tuple[str, Exception]]:
        """Pass rows to the functions that take them; return the exceptions by stream."""
        failures = []
        for i, choice in enumerate(self.query.late_by_stream):
            if not callable(choice) or not self.rows.rows[i]:
                continue
            name = self.query.streams[i].name
            try:
                choice(name, self.rows.stored[i].table(self.query.streams[i].schema))
            except Exception as error:
                failures.append((name, error))
            else:
                self.rows = self.rows.without([i])
        return failures

    def keep_within(self, left: float) -> None:
        """Drop the oldest rows beyond the bounds, and log it, once until rows are collected."""
        before, most = self.rows, self.query.late_rows
        if before.nbytes <= left and all(kept <= most for kept in before.rows):
            return
        self.rows = before.within(most, left)
        for i, stream in enumerate(self.query.streams):
            lost = self.rows.dropped[i] - before.dropped[i]
            if lost and before.dropped[i] == before.reported[i]:
                many = before.rows[i] > most
                LOG.warning(
                    f"stream {stream.name}: {lost:,} late rows were dropped, the oldest ones, because more than"
                    f" {f'late_rows={most:,} of them' if many else 'max_bytes allows'} wait for runtime.late(). Call"
                    " late() more often, raise the limit, set late='count' or pass a function. metrics() counts dropped"
                    " rows as late_dropped; this message is repeated only after a call of late()"
                )

    def _first(self, i: int, one: LateBatch, given: bool) -> str:
        """Return the message about the first late row of a stream."""
        query, choice = self.query, self.query.late_by_stream[i]
        assert query.time_type is not None
        behind = span_text(one.behind, query.time_type)
        if given:
            how = f"{behind} older than the watermark passed with an earlier push; a lower watermark would accept it"
        else:
            allowed = span_text(query.graph.lateness, query.time_type) if query.graph.lateness else "0"
            wanted = lateness_text(one.behind, query.time_type)
            how = (
                f"{behind} older than the newest event time before it, and lateness is {allowed}; Query(…, {wanted})"
                " would accept it"
            )
        goes = "is stored for runtime.late()" if choice == "keep" else "is only counted"
        if callable(choice):
            goes = f"is passed to {getattr(choice, '__qualname__', type(choice).__qualname__)}"
        return f"stream {query.streams[i].name}: a row came too late to join anything. It is {how}. It {goes}"
