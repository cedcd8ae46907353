"""The reading of a query's clock for a push."""

from __future__ import annotations

from typing import NamedTuple

from stairs.memory.arena import Int64s


class ClockReading(NamedTuple):
    """The time of a push, as the clock of a query has it (`eddy.ingest.clock`); -FOREVER = no watermark yet.

    marks    int64[arrivals], the watermark with each arrival; it never decreases
    before   the watermark before the push
    after    the watermark after the push, no less than the last of `marks`
    newest   no event time that came before the push is greater
    behind   no row in a window and none of the push is older by more than that than one that came before it
    lags     whether the watermark may be below the greatest event time that came
    """

    marks: Int64s
    before: int
    after: int
    newest: int
    behind: int
    lags: bool

    def of(self, places: Int64s) -> ClockReading:
        """Return the reading for some arrivals of the push, given by their places."""
        return self if len(places) == len(self.marks) else self._replace(marks=self.marks[places])
