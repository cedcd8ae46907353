"""Where late rows go once a push has committed: to the log, to a function, or into a store with a bound.

    rows    all of the state, a `LateRows` that is replaced by one assignment

A push prepares the next `rows` before it commits and puts them in place with its commit. Everything here comes after,
so it never undoes a push. Rows for a function lie in `rows` until the function has returned: if it raises, or the
process is interrupted, they are handed over again after the next push.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pyarrow as pa

from eddy.ingest.arrivals import TooLate
from eddy.query.lateness import lateness_text, span_text
from eddy.query.query import Query
from eddy.results.late_rows import LateRows
from stairs.errors import LateRowsError

LOG = logging.getLogger(__name__)


class SideOutput:
    """The late rows of one runtime."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.rows = LateRows.none(len(query.streams))

    def take(self) -> dict[str, pa.Table]:
        """Return the rows kept, by the names of the streams (those without any left out), and keep nothing of them."""
        rows, streams = self.rows, self.query.streams
        tables = {stream.name: rows.table(i, stream.schema) for i, stream in enumerate(streams) if rows.rows[i]}
        self.rows = rows.without(range(len(streams)))
        return tables

    def settle(self, late: Mapping[int, TooLate], left: float, given: bool) -> None:
        """Do what there is to do for late rows after a push that brought some, or none: tell, hand over, drop.

        late   the late rows of the push, which are in `rows` already
        left   bytes that rows may take
        given  whether the watermark was given with a push

        Raises LateRowsError if a function raised; by then all the rest is done.
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
                f"stream {names}: the function that takes late rows raised {type(error).__name__}: {error}. The push"
                " was committed: do not push its rows again; its results are in runtime.last_push(). The late rows are"
                " handed over again after the next push, unless runtime.late() takes them before"
            ) from error

    def _hand_over(self) -> list[tuple[str, Exception]]:
        """Give rows to the functions that take them; return which of these raised what, by stream."""
        failures = []
        for i, choice in enumerate(self.query.late_by_stream):
            if not callable(choice) or not self.rows.rows[i]:
                continue
            name = self.query.streams[i].name
            try:
                choice(name, self.rows.table(i, self.query.streams[i].schema))
            except Exception as error:
                failures.append((name, error))
            else:
                self.rows = self.rows.without([i])
        return failures

    def keep_within(self, left: float) -> None:
        """Drop the oldest rows that are too many, and tell so, once until rows are taken."""
        before, most = self.rows, self.query.late_rows
        if before.nbytes <= left and all(kept <= most for kept in before.rows):
            return
        self.rows = before.within(most, left)
        for i, stream in enumerate(self.query.streams):
            lost = self.rows.dropped[i] - before.dropped[i]
            if lost and before.dropped[i] == before.taken[i]:
                many = before.rows[i] > most
                LOG.warning(
                    f"stream {stream.name}: {f'more than late_rows={most:,} rows' if many else 'late rows'} wait for"
                    f" runtime.late(){'' if many else ', more than max_bytes has room for'}; the oldest are dropped,"
                    f" {lost:,} so far. Call late() more often, allow more, or set"
                    " late='count' or a function. metrics() counts them as late_dropped; this message comes again only"
                    " after late() was called"
                )

    def _first(self, i: int, one: TooLate, given: bool) -> str:
        """Return what to tell of the first late row of a stream."""
        query, choice = self.query, self.query.late_by_stream[i]
        assert query.time_type is not None
        behind = span_text(one.behind, query.time_type)
        if given:
            how = f"{behind} older than the watermark given with an earlier push; a lower watermark would let it in"
        else:
            allowed = span_text(query.graph.lateness, query.time_type) if query.graph.lateness else "0"
            wanted = lateness_text(one.behind, query.time_type)
            how = (
                f"{behind} older than the newest event time before it, and lateness is {allowed}; Query(…, {wanted})"
                " would let it in"
            )
        goes = "is kept for runtime.late()" if choice == "keep" else "is counted only"
        if callable(choice):
            goes = f"goes to {getattr(choice, '__qualname__', type(choice).__qualname__)}"
        return f"stream {query.streams[i].name}: a row came too late to join anything. It is {how}. It {goes}"
