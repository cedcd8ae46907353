"""Windows of event time: the buckets that results fall into, and the windows that buckets belong to.

Hopping windows share *panes*, as long as the greatest common divisor of size and hop: a result changes one bucket,
however many windows it is in (Li et al., "No pane, no gain", SIGMOD Record 34(1), 2005). The bucket of a result in a
session is its event time; sessions are found when they can have ended.

A window is *due* when no result to come can fall into it: its end is at most the *limit*, which is the watermark minus
the slack of the query (`Query.slack`).
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from eddy.aggregates.directory import numbered
from eddy.query.aggregation import WindowTicks
from stairs.graph import FOREVER

Int64s = npt.NDArray[np.int64]
NEVER = 1 << 62
"""A limit above all event times; its negative is below all event times."""


class Due(NamedTuple):
    """Windows of groups, and the buckets that they consist of.

    windows  number of the window of each membership
    buckets  row of the bucket of each membership
    rows     a row of each window: the group is that of its key
    starts, ends   bounds of each window, in ticks
    closed   rows that belong to no later window
    next     the least end of a window that is not due; NEVER if there is none
    """

    windows: Int64s
    buckets: Int64s
    rows: Int64s
    starts: Int64s
    ends: Int64s
    closed: Int64s
    next: int

    def only(self, kept: npt.NDArray[np.bool_]) -> Due:
        """Return some of the windows; the rows that are closed stay the same."""
        number = np.cumsum(kept) - 1
        chosen = kept[self.windows]
        return self._replace(
            windows=number[self.windows[chosen]],
            buckets=self.buckets[chosen],
            rows=self.rows[kept],
            starts=self.starts[kept],
            ends=self.ends[kept],
        )


class Buckets(Protocol):
    """The division of event time into buckets, and of buckets into windows."""

    def of(self, times: Int64s) -> Int64s:
        """Return the bucket of each event time."""

    def covered(self, times: Int64s) -> npt.NDArray[np.bool_] | None:
        """Return the event times that lie in a window, as a mask; None = all."""

    def next_end(self, times: Int64s) -> int:
        """Return a time at or before the end of each window that some event times are in."""

    def due(self, keys: Int64s, after: int, limit: int) -> Due:
        """Return the windows that end after `after`, at `limit` at the latest; the last words of keys are buckets."""

    def open_until(self, keys: Int64s, begin: int, limit: int) -> int | None:
        """Return the limit at which no window that starts at `begin` or before is open; None = not known at `limit`."""


def buckets_of(window: WindowTicks) -> Buckets:
    """Return the buckets of a window."""
    return Sessions(window.gap) if window.gap else Panes(window.size, window.hop)


class Panes:
    """The buckets of tumbling and hopping windows: a bucket is identified by its begin."""

    def __init__(self, size: int, hop: int) -> None:
        self.size, self.hop, self.pane = size, hop, gcd(size, hop)

    def of(self, times: Int64s) -> Int64s:
        return times // self.pane * self.pane

    def covered(self, times: Int64s) -> npt.NDArray[np.bool_] | None:
        return None if self.hop <= self.size else times % self.hop < self.size

    def next_end(self, times: Int64s) -> int:
        return int(self._first(self.of(times)).min()) * self.hop + self.size

    def open_until(self, keys: Int64s, begin: int, limit: int) -> int | None:
        return begin // self.hop * self.hop + self.size

    def _first(self, panes: Int64s) -> Int64s:
        """Return the number of the first window with each pane; window k begins at k * hop."""
        return -((self.size - self.pane - panes) // self.hop)

    def due(self, keys: Int64s, after: int, limit: int) -> Due:
        panes = keys[:, -1]
        first, last = self._first(panes), panes // self.hop
        begin = np.maximum(first, (after - self.size) // self.hop + 1)
        end = np.minimum(last, (limit - self.size) // self.hop)
        counts = np.maximum(end - begin + 1, 0)
        buckets = np.repeat(np.arange(len(keys)), counts)
        within = np.arange(len(buckets)) - np.repeat(np.cumsum(counts) - counts, counts)
        number = begin[buckets] + within
        windows, rows = numbered(np.column_stack([keys[buckets, :-1], number]))
        starts = number[rows] * self.hop
        rest = last > end
        following = np.maximum(begin, end + 1)[rest]
        ends = following * self.hop + self.size
        return Due(
            windows,
            buckets,
            buckets[rows],
            starts,
            starts + self.size,
            np.flatnonzero(~rest),
            int(ends.min()) if len(ends) else NEVER,
        )


class Sessions:
    """The buckets of sessions: event times. Those of one group that differ by less than the gap are in one session."""

    def __init__(self, gap: int) -> None:
        self.gap = gap

    def of(self, times: Int64s) -> Int64s:
        return times

    def covered(self, times: Int64s) -> npt.NDArray[np.bool_] | None:
        return None

    def next_end(self, times: Int64s) -> int:
        return int(times.min()) + self.gap

    def open_until(self, keys: Int64s, begin: int, limit: int) -> int | None:
        due = self.due(keys, limit, limit)
        still = np.ones(len(keys), np.bool_)
        still[due.closed] = False
        return None if (keys[still, -1] <= begin).any() else begin + 1

    def due(self, keys: Int64s, after: int, limit: int) -> Due:
        groups, times = numbered(keys[:, :-1])[0], keys[:, -1]
        order = np.lexsort((times, groups))
        groups, times = groups[order], times[order]
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (groups[1:] != groups[:-1]) | (times[1:] - times[:-1] >= self.gap)
        firsts = np.flatnonzero(begins)
        lasts = np.append(firsts[1:], len(order)) - 1 if len(order) else firsts
        ends = times[lasts] + self.gap
        due = ends <= limit
        numbers = np.cumsum(begins) - 1
        closing = np.flatnonzero(due[numbers]) if len(order) else firsts
        place = np.cumsum(due) - 1
        open_ends = ends[~due]
        return Due(
            place[numbers[closing]],
            order[closing],
            order[firsts[due]],
            times[firsts[due]],
            ends[due],
            order[closing],
            int(open_ends.min()) if len(open_ends) else NEVER,
        )


def clipped(limit: int) -> int:
    """Return a limit that arithmetic with spans cannot take beyond 64 bits."""
    return max(min(limit, FOREVER), -FOREVER)
