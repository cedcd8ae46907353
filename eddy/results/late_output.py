"""The side output of late rows, and the messages about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from eddy.ingest.arrivals import LateBatch
from eddy.query.clock_rule import ClockRule
from eddy.results.side_output import SideOutput
from eddy.streams.late_options import Late
from eddy.streams.span_texts import lateness_text, span_text
from eddy.streams.stream import Stream
from eddy.streams.table import Table
from stairs.errors import LateRowsError


class LateOrigin(Protocol):
    """A query, or the streams of an engine: what a message about a late row says of them."""

    @property
    def streams(self) -> tuple[Stream, ...]: ...

    @property
    def time_type(self) -> pa.DataType | None: ...

    @property
    def clock_rule(self) -> ClockRule: ...

    @property
    def watermark(self) -> str: ...

    @property
    def late_by_stream(self) -> tuple[Late, ...]: ...

    @property
    def late_rows(self) -> int: ...


class LateOutput(SideOutput):
    """The side output of the late rows of one runtime or engine, by stream.

    host   what has the rows, in messages; place  the class that takes the lateness
    """

    noun, option, error = "late rows", "late", LateRowsError

    def __init__(self, query: LateOrigin, host: str = "runtime", place: str = "Query") -> None:
        schemas = {stream.name: stream.late_schema for stream in query.streams}
        super().__init__(schemas, query.late_by_stream, query.late_rows, host)
        self.query, self._place_of_lateness = query, place

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
                f" {allowed}; {self._place_of_lateness}(…, {wanted}) would accept it"
            )
        return f"{stream.place}: a row came too late to join anything. It is {how}. It {self._goes(i)}"
