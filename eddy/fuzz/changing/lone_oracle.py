"""The results of a version with a join of its own, by the definition of docs/guide/semantics.md, "Queries that change".

A nested loop takes the arrivals between the bounds of the version, push by push, with the watermark of the engine at
the end of each part. It imports nothing but the nested loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eddy.fuzz.branch_oracle import BranchOracle
from eddy.fuzz.oracle import Oracle, OracleQuery, Row

Rows = tuple[Row | None, ...]


class OraclePush(NamedTuple):
    """A push of an engine: the position of its first arrival, its arrivals by stream, and watermarks.

    watermarks  that before each arrival, and that at the end; None without event times
    """

    first: int
    arrivals: Sequence[tuple[str, Row]]
    watermarks: Sequence[Any]

    @property
    def end(self) -> Any:
        """The watermark at the end, less than all times before the first."""
        return float("-inf") if self.watermarks[-1] is None else self.watermarks[-1]

    def cut(self, begin: int, end: int) -> OraclePush | None:
        """Return the part from one position to another, None if it is empty."""
        low, high = max(begin - self.first, 0), min(end - self.first, len(self.arrivals))
        if low >= high:
            return None
        return OraclePush(self.first + low, self.arrivals[low:high], self.watermarks[low : high + 1])


Follow = Callable[[OraclePush], tuple[list[Rows], list[Rows]]]
"""A nested loop: it takes a part, and returns the rows that end, and those that begin."""


@dataclass
class LoneVersion:
    """A version: its nested loop and its bounds.

    warm    whether the loop takes the arrivals before the start, too
    drain   the position of its drain stop: a row must have a component before it
    place   returns the position of a component
    """

    follow: Follow
    start: int
    warm: bool = False
    stop: int | None = None
    drain: int | None = None
    place: Callable[[Row], int] = field(default=lambda row: int(row["n"]))

    def push(self, part: OraclePush) -> tuple[list[Rows], list[Rows]]:
        """Take a push; return the rows of the version that end, and those that begin."""
        stop = part.first + len(part.arrivals) if self.stop is None else self.stop
        before = part.cut(0, min(self.start, stop)) if self.warm else None
        if before is not None:
            self.follow(before)
        live_part = part.cut(self.start, stop)
        if live_part is None:
            return [], []
        ended, begun = self.follow(live_part)
        return [row for row in ended if self._owns(row)], [row for row in begun if self._owns(row)]

    def _owns(self, rows: Rows) -> bool:
        return self.drain is None or any(row is not None and self.place(row) < self.drain for row in rows)


def branched(oracles: Sequence[BranchOracle], timed: bool) -> Follow:
    """Return the nested loop of a query with branches; a full outer join has two oracles.

    timed   whether the query has a window of time
    """

    def follow(part: OraclePush) -> tuple[list[Rows], list[Rows]]:
        changes: tuple[list[Rows], list[Rows]] = [], []
        for oracle in oracles:
            mine = [arrival for arrival in part.arrivals if arrival[0] in oracle.names]
            ended, begun, fates = oracle.push(mine, part.end if timed else None)
            assert all(fates)
            for out, rows in zip(changes, (ended, begun), strict=True):
                out += [tuple(_row(oracle, k, n) for k, n in enumerate(row)) for row in rows]
        return changes

    return follow


def _row(oracle: BranchOracle, k: int, number: int | None) -> Row | None:
    return None if number is None else oracle.rows[oracle.names[k]][number]


def inner(query: OracleQuery) -> Follow:
    """Return the nested loop of the changelog of an inner join."""
    oracle, timed = Oracle(query), any(stream.window == "range" for stream in query.streams)
    names = [stream.name for stream in query.streams]

    def follow(part: OraclePush) -> tuple[list[Rows], list[Rows]]:
        mine = [arrival for arrival in part.arrivals if arrival[0] in names]
        if timed:
            outcomes, ended = oracle.push(mine, part.end)
        else:
            outcomes, ended = [oracle.arrive(*arrival) for arrival in mine], ()
        gone = [result for outcome in outcomes for result in (*outcome.expired, *outcome.displaced)] + list(ended)
        come = [result for outcome in outcomes for result in outcome.results]
        return [_rows(result) for result in gone], [_rows(result) for result in come]

    def _rows(result: tuple[int, ...]) -> Rows:
        return tuple(oracle.row(name, number) for name, number in zip(names, result, strict=True))

    return follow
