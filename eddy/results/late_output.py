"""The side output of late rows, and the messages about them."""

from __future__ import annotations

from collections.abc import Mapping

from eddy.ingest.arrivals import LateBatch
from eddy.query.query import Query
from eddy.results.side_output import SideOutput
from eddy.streams.span_texts import lateness_text, span_text
from eddy.streams.table import Table
from stairs.errors import LateRowsError


class LateOutput(SideOutput):
    """The side output of the late rows of one runtime, by stream."""

    noun, option, error = "late rows", "late", LateRowsError

    def __init__(self, query: Query) -> None:
        super().__init__(
            {stream.name: stream.late_schema for stream in query.streams}, query.late_by_stream, query.late_rows
        )
        self.query = query

    def settle(self, late: Mapping[int, LateBatch], left: float, given: bool) -> None:
        """Handle late rows after a push, see `settle_with`; given: the caller passed a watermark with it."""
        self.settle_with(late, left, lambda i: self._first(i, late[i], given))

    def _first(self, i: int, batch: LateBatch, given: bool) -> str:
        """Return the message about the first late row of a stream."""
        query, stream = self.query, self.query.streams[i]
        if isinstance(stream, Table):
            return (
                f"{stream.place}: a change was stale: its {stream.version} is less than that of an earlier change of"
                f" its key. It {self._goes(i)}"
            )
        assert query.time_type is not None
        behind = span_text(batch.behind, query.time_type)
        if given:
            how = f"{behind} older than the watermark before its push; a lower watermark would accept it"
        else:
            lateness = max(query.clock_rule.lateness)
            allowed = span_text(lateness, query.time_type) if lateness else "0"
            wanted = lateness_text(lateness + batch.behind, query.time_type)
            how = (
                f"{behind} older than the watermark, which follows the {query.watermark} stream, and lateness is"
                f" {allowed}; Query(…, {wanted}) would accept it"
            )
        return f"{stream.place}: a row came too late to join anything. It is {how}. It {self._goes(i)}"
