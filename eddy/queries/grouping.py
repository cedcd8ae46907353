"""The groups of one version of a query with aggregates: which windows it owns, and when each is given.

A window of event time *begins before* a position if its start is at most the greatest event time before that position,
and it is *given at* the arrival with which the watermark passes its end.

    fresh and warm start at s   windows that begin at s or later
    immediate stop at e         windows given before e
    drain stop at e             windows that begin before e

The windows of a version that starts before all arrivals are all its own. Bounds on starts are applied before groups are
merged, those on the arrivals after that. So a version is the operator `eddy.aggregates.groups.Groups` with two bounds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eddy.aggregates.groups import Groups, GroupsCommit
from eddy.queries.bound import EngineBound
from eddy.queries.combinations import VersionRows
from eddy.queries.drain import DrainByWindows
from eddy.queries.sources import EnginePush
from eddy.queries.version import Version
from stairs.graph import FOREVER
from stairs.storage.parts import Parts, Plain

Int64s = npt.NDArray[np.int64]


class Grouping:
    """The groups of a version."""

    def __init__(self, version: Version, bound: EngineBound) -> None:
        window = version.query.aggregation.window if version.query.aggregation else None
        assert window is not None
        assert window.slack is not None
        self._version = version
        self._bound, allowance = bound, bound.allowance()
        groups = self._groups = Groups(version.query, "append", False, allowance)
        allowance.parts.append(lambda: groups.nbytes)
        self._slack = window.slack
        self._after: int | None = None
        """The windows that it owns start after this time; None until the position of its start has been reached."""
        self._open: tuple[GroupsCommit, int] | None = None
        """The effect of `settle`: the end of the push in the groups, and `_after`."""

    @property
    def nbytes(self) -> int:
        """Bytes of the groups."""
        return self._groups.nbytes

    def follow(self, table: pa.Table, push: EnginePush) -> VersionRows:
        """Take the results of a push that the version owns; return the rows of its windows, and the arrival of each.

        `settle` or `roll_back` follows. Ends the version if it drains and this is over.
        """
        version, groups = self._version, self._groups
        assert version.start is not None
        if version.start > push.end:
            return VersionRows(version.query.output_schema.empty_table(), np.zeros(0, np.int64))
        after = push.clock_at(version.start) if self._after is None else self._after
        until = FOREVER
        if isinstance(version.drain, DrainByWindows) and version.drain.greatest is not None:
            until = version.drain.greatest
        now = push.watermark_at(push.end)
        with self._bound.at_work(lambda: groups.nbytes):
            rows, given, done = groups.follow_windows(
                table,
                None if now == -FOREVER else now,
                push.ends,
                lambda starts: (starts > after) & (starts <= until),
            )
        self._open = done, after
        places = self._given_at(push, given.ends)
        failed, windows = done.failed[: len(done.failed) - len(given.failed)], given.failed
        if version.drain is not None and version.drain.at <= push.end:
            end = done.progress.limit if until == -FOREVER else groups.open_until(until, done.progress.limit)
            if end is not None and end <= done.progress.limit:
                passed = max(end, given.newest)
                self._version.drained(max(version.drain.at, self._passed(push, passed)))
        if version.stop is not None:
            kept = np.flatnonzero(places < version.stop)
            rows, places = rows.take(pa.array(kept)), places[kept]
            at = self._given_at(push, np.array([end for end, _ in windows], np.int64))
            windows = tuple(window for window, place in zip(windows, at.tolist(), strict=True) if place < version.stop)
        order = np.argsort(places, kind="stable")
        failed = (*failed, *(batch for _, batch in windows))
        return VersionRows(rows.take(pa.array(order)), places[order], failed)

    def _given_at(self, push: EnginePush, ends: Int64s) -> Int64s:
        """Return the arrivals of a push with which windows of some ends are given.

        Those that only a watermark of the caller's closes, after the push, are given with its last arrival.
        """
        assert push.reading is not None
        places = push.first + np.searchsorted(push.reading.marks, ends + self._slack)
        return np.minimum(places, max(push.end - 1, push.first))

    def _passed(self, push: EnginePush, end: int) -> int:
        """Return the position from which the windows of an end have been given."""
        assert push.reading is not None
        at = end + self._slack
        if at <= push.reading.before:
            return push.first
        return min(int(self._given_at(push, np.array([end]))[0]) + 1, push.end)

    def now(self) -> pa.Table:
        """Return the rows of open windows as they are, of those that the version owns; see `Runtime.groups`."""
        after = self._after
        if after is None:
            return self._version.query.output_schema.empty_table()
        drain = self._version.drain
        known = drain.greatest if isinstance(drain, DrainByWindows) else None
        until = FOREVER if known is None else known
        return self._groups.now(lambda starts: (starts > after) & (starts <= until))

    @property
    def after(self) -> int | None:
        """The windows that the version owns start after this time; None before its start."""
        return self._after

    def to_parts(self) -> Plain:
        """Return the groups as parts from which `load_parts` resumes."""
        return self._groups.to_parts()

    def load_parts(self, parts: Parts, after: int | None, watermark: int | None) -> None:
        """Fill new groups; `after` is that of those saved. Raises StateError for parts that do not fit."""
        self._groups.load_parts(parts, watermark)
        parts.require(after is not None or not len(self._groups.state), "groups: there are some before the start")
        self._after = after

    def settle(self) -> None:
        """Let the push happen. It may be repeated."""
        if self._open is not None:
            done, self._after = self._open
            self._groups.settle(done)
            self._open = None

    def roll_back(self) -> None:
        """Take the push back. It may be repeated."""
        self._groups.roll_back()
        self._open = None
