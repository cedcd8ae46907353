"""The clock of a query, which determines the watermark at each arrival and the late rows.

All watermarks of runtimes and engines come from this module; code that works on rows takes them from a `ClockReading`.
The state of a clock is one array, which each push replaces as a whole (docs/guide/semantics.md, "Late rows"):

    newest[streams]   per stream the greatest event time that came, -FOREVER before its first row
    since[streams]    per stream the greatest event time of all streams when its last row had come; before its first
                      row, the event time of the first row of all
    greatest          the greatest event time of all streams, -FOREVER before the first row
    watermark         -FOREVER before the first watermark
    behind            the greatest span by which a row in a window is older than an earlier row
    until             no row that is older by this span has come since this event time was the greatest
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from eddy.ingest.arrivals import Order, Times
from eddy.ingest.given_watermark import check_given
from eddy.ingest.kernels import BEHIND, BY_ROWS, GIVEN, GREATEST, PAST, SCALARS, UNTIL, WATERMARK, read_clock
from eddy.query.clock_rule import ClockRule
from eddy.query.query import Query
from stairs.clock_reading import ClockReading
from stairs.descriptors import S_LO, S_NEXT
from stairs.graph import FOREVER, WindowKind
from stairs.memory.arena import Bytes, Int64s
from stairs.modules import Modules
from stairs.storage.json_form import fields, integer, list_of
from stairs.storage.parts import Parts

Require = Callable[[bool, str], None]
TICK = integer(-FOREVER, FOREVER)
CLOCK_FORM = fields({"watermark": TICK, "newest": list_of(TICK), "since": list_of(TICK)})
"""The form of `Clock.contents`."""


class Ticked(NamedTuple):
    """The clock of a push that has not happened yet.

    reading   the reading for all rows of the push, including late rows
    state     the state of the clock after the push
    late      uint8[rows], 1 for the late rows, stream after stream; empty if none is late
    because   int64[streams], the watermark that the first late row of each stream missed
    """

    reading: ClockReading
    state: Int64s
    late: Bytes
    because: Int64s


class Clock:
    """The clock of a query with event times.

    rule    how the watermark follows the rows
    span    the longest RANGE window, in ticks; None = unknown
    state   see the text at the top; a push replaces it
    """

    def __init__(self, rule: ClockRule, span: int | None) -> None:
        self.rule, self.span = rule, span
        n = len(rule.lateness)
        self._lateness = np.array(rule.lateness, np.int64)
        self._idle = 2 * FOREVER if rule.idle_after is None else rule.idle_after
        self.state: Int64s = np.full(2 * n + SCALARS, -FOREVER, np.int64)
        self.state[2 * n + BEHIND] = 0
        self._n = n
        self._none, self._cursor = np.full(n, -FOREVER, np.int64), np.zeros(n, np.int64)

    @property
    def watermark(self) -> int | None:
        """The watermark in ticks, None before the first."""
        watermark = int(self.state[2 * self._n + WATERMARK])
        return None if watermark == -FOREVER else watermark

    @property
    def greatest(self) -> int:
        """The greatest event time that came, -FOREVER before the first row."""
        return int(self.state[2 * self._n + GREATEST])

    @property
    def newest(self) -> list[int]:
        """Per stream the greatest event time that came, -FOREVER before its first row."""
        newest: list[int] = self.state[: self._n].tolist()
        return newest

    @property
    def in_order(self) -> bool:
        """Whether no row in a window is older than one that came before it."""
        return not self.state[2 * self._n + BEHIND]

    def tick(self, order: Order, times: list[Times | None], given: int | None, past: bool = False) -> Ticked:
        """Return the clock after a push, with the reading for its rows.

        order   uint8[arrivals], the stream of each arrival
        times   the event times of the rows of each stream
        given   the watermark that the caller gives with the push, None = none
        past    whether the rows came earlier; then no row is late

        Raises InputError for a watermark below that before the push. O(arrivals * streams) at most, and O(arrivals)
        where the slowest stream seldom advances.
        """
        n, state = self._n, self.state.copy()
        before, newest = int(state[2 * n + WATERMARK]), int(state[2 * n + GREATEST])
        if given is not None:
            check_given(given, before)
        if state[2 * n + BEHIND] and self.span is not None and before - self.span > state[2 * n + UNTIL]:
            state[2 * n + BEHIND] = 0
        marks, because = np.empty(len(order), np.int64), self._none.copy()
        late = np.zeros(0, np.uint8)
        if len(order):
            present, cursor, first = [ticks for ticks in times if ticks is not None], self._cursor, 0
            for i, ticks in enumerate(times):
                cursor[i] = first
                first += 0 if ticks is None else len(ticks)
            rows = np.concatenate(present)  # the times of one stream may lie in read-only memory
            late = np.zeros(len(rows), np.uint8)
            how = PAST if past else BY_ROWS if given is None else GIVEN
            late_count, by_time = read_clock(
                order, rows, cursor, self._lateness, self._idle, self.rule.slowest, how, state, marks, late, because
            )
            late = late if late_count else late[:0]
            if given is not None:
                # If the rows come in order of event time, the watermark rises with them.
                marks[:] = np.minimum(marks, given) if by_time else before
        if given is not None:
            state[2 * n + WATERMARK] = given
        after, behind = int(state[2 * n + WATERMARK]), int(state[2 * n + BEHIND])
        exact = self.rule.exact and before == newest and given is None
        return Ticked(ClockReading(marks, before, after, newest, behind, not exact), state, late, because)

    def contents(self) -> dict[str, Any]:
        """Return the state from which `resume` continues, as JSON values."""
        n = self._n
        return {"watermark": int(self.state[2 * n + WATERMARK]), "newest": self.newest, "since": self.since}

    @property
    def since(self) -> list[int]:
        """Per stream the greatest event time of all streams when its last row had come."""
        since: list[int] = self.state[self._n : 2 * self._n].tolist()
        return since

    def resume(self, contents: Mapping[str, Any], behind: int, require: Require) -> None:
        """Continue as the clock with these `contents`; `behind` as in the state.

        require   raises an error unless its first argument holds
        """
        n, greatest = self._n, max(contents["newest"], default=-FOREVER)
        require(len(contents["newest"]) == len(contents["since"]) == n, "its clock is of another number of streams")
        require(max(contents["since"]) <= greatest, "its clock has rows beyond the greatest event time")
        scalars = [greatest, contents["watermark"], behind, greatest]
        self.state = np.array([*contents["newest"], *contents["since"], *scalars], np.int64)

    def to_parts(self) -> list[int]:
        """Return the parts from which `load_parts` continues."""
        parts: list[int] = self.state.tolist()
        return parts

    def load_parts(self, parts: Parts) -> None:
        """Continue as the clock that had these parts, under "clock". Raises StateError for parts that do not fit."""
        state = parts.integers("clock", len(self.state), -FOREVER, 2 * FOREVER)
        n = self._n
        times = [*state[: 2 * n], state[2 * n + GREATEST], state[2 * n + WATERMARK], state[2 * n + UNTIL]]
        parts.require(max(times) <= FOREVER, "its clock is beyond ±2^61")
        parts.require(state[2 * n + GREATEST] == max(state[:n]), "its clock has another greatest event time")
        parts.require(state[2 * n + BEHIND] >= 0, "rows are behind by less than nothing")
        self.state = np.array(state, np.int64)

    def told(self, reading: ClockReading) -> Int64s:
        """Return the state after a push whose time another clock has decided."""
        state = self.state.copy()
        state[2 * self._n + WATERMARK] = reading.after
        return state


def clock_of(query: Query) -> Clock | None:
    """Return a new clock for a query, None for one without a RANGE window."""
    graph = query.graph
    if not graph.timed:
        return None
    rule = query.clock_rule
    if query.timeless:
        # A change has no event time.
        timed = [i for i in range(len(query.streams)) if i not in query.timeless]
        rule = rule._replace(lateness=tuple(rule.lateness[i] for i in timed))
    return Clock(rule, max((window.size for window in graph.windows if window.kind == WindowKind.RANGE), default=0))


def behind_in(modules: Modules) -> int:
    """Return the greatest span by which a tuple in a window is older than an earlier tuple of its stream."""
    behind = 0
    for i in range(modules.graph.n_streams):
        low, following = modules.streams[i, [S_LO, S_NEXT]].tolist()
        behind = max(behind, behind_of(modules.times_of(i, np.arange(low, following))))
    return behind


def behind_of(times: Times) -> int:
    """Return the greatest span by which an event time is below an earlier one; 0 if they are in order."""
    return int((np.maximum.accumulate(times) - times).max()) if len(times) else 0
