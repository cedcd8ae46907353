"""The rows of a query with as-of joins by definition, over the rows that `eddy.fuzz.branch_oracle` finds.

A row waits until the watermark has passed its times. Then its version of each table is searched among all versions that
have arrived, from the definition in `docs/guide/semantics.md`. Slow on purpose. Positions count all arrivals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from eddy.fuzz.branch_oracle import BranchOracle, Numbers
from eddy.fuzz.oracle import Column, OracleClock, OracleStream, Row, clock_of


@dataclass(frozen=True)
class OracleAsOf:
    """An as-of join.

    table   the table, which has event times or not
    key     column of the table -> the column that it equals
    at      the event time for which a version is wanted; None = the position at which the row arrives
    """

    table: OracleStream
    key: Mapping[str, Column]
    at: Column | None
    how: Literal["inner", "left"] = "inner"
    direction: Literal["backward", "forward", "nearest"] = "backward"
    tolerance: Any = None

    @property
    def ahead(self) -> Any:
        """How much later than the wanted time a version may begin."""
        return 0 if self.direction == "backward" else self.tolerance


@dataclass
class AsOfOracle:
    """A query with as-of joins, fed one push after the other.

    A row is that of the inner oracle, then the arrival number of the version of each table. `deleted` tells whether a
    row of a table says that its key has no version any more.
    """

    inner: BranchOracle
    joins: Sequence[OracleAsOf]
    lateness: Any = 0
    watermark: str = "slowest"
    idle_after: Any = None
    clock: OracleClock = field(init=False)
    versions: dict[str, list[tuple[Row, bool]]] = field(init=False)
    positions: dict[str, list[int]] = field(init=False)
    """Stream or table -> the position of each of its arrivals."""
    waiting: list[tuple[Any, int, Numbers]] = field(default_factory=list)
    """(due, 1 = it begins or -1 = it ends, row of the inner oracle), in the order in which they came."""

    def __post_init__(self) -> None:
        streams = {one.name: one for node in self.inner.tree.everywhere() for one in node.path}
        tables = [one.table for one in self.joins]
        ticking = [*streams.values(), *(one.table for one in self.joins if one.at is not None)]
        self.inner.timed = self.inner.timed or len(ticking) > len(streams)
        self.clock = clock_of(ticking, self.lateness, self.watermark, self.idle_after)
        self.times = {one.name: one.time for one in ticking}
        self.versions = {one.name: [] for one in tables}
        self.names = [*self.inner.names, *self.versions]
        self.positions = {name: [] for name in self.names}

    def push(
        self, arrivals: Sequence[tuple[str, Row, bool]], watermark: Any = None
    ) -> tuple[list[Numbers], list[Numbers]]:
        """Take the rows of a push, each with whether it is a delete; return the rows that end, and those that begin."""
        kept, before = [], self.clock.now
        for name, row, deleted in arrivals:
            late, time = False, self.times.get(name)
            if time is not None and self.inner.timed and watermark is None:
                late = self.clock.tick(name, row[time])
            elif time is not None and self.inner.timed:
                self.clock.come(name, row[time])
                late = before is not None and row[time] < before
            if not late:
                self.positions[name].append(sum(map(len, self.positions.values())))
            if not late and name in self.versions:
                self.versions[name].append((row, deleted))
            elif not late:
                kept.append((name, row))
        if watermark is not None:
            self.clock.give(watermark)
        self._wait(*self.inner.take(kept, self.clock.now))
        return self._ready()

    def finish(self) -> tuple[list[Numbers], list[Numbers]]:
        """End the input; return the rows that this decides."""
        self._wait([], self.inner.finish())
        self.clock.now = float("inf")
        return self._ready()

    def row(self, name: str, number: int) -> Row:
        """Return the row of a stream, or the version of a table, with this arrival number."""
        return self.versions[name][number][0] if name in self.versions else self.inner.rows[name][number]

    def _wait(self, ended: list[Numbers], begun: list[Numbers]) -> None:
        for sign, rows in ((-1, ended), (1, begun)):
            for row in rows:
                times = [None if one.at is None else self._value(row, one.at) for one in self.joins]
                due = [t + one.ahead for t, one in zip(times, self.joins, strict=True) if t is not None]
                self.waiting.append((max(due, default=float("-inf")), sign, row))

    def _ready(self) -> tuple[list[Numbers], list[Numbers]]:
        now, found = self.clock.now, Counter[Numbers]()
        for due, sign, row in self.waiting:
            if due == float("-inf") or (now is not None and due < now):
                versions = [self._version(row, one) for one in self.joins]
                if all(n is not None or one.how == "left" for n, one in zip(versions, self.joins, strict=True)):
                    found[(*row, *versions)] += sign
        self.waiting = [
            one for one in self.waiting if not (one[0] < now if now is not None else one[0] == float("-inf"))
        ]
        assert all(abs(count) <= 1 for count in found.values())
        return [row for row, count in found.items() if count < 0], [row for row, count in found.items() if count > 0]

    def _value(self, row: Numbers, column: Column) -> Any:
        number = row[self.inner.names.index(column[0])]
        return None if number is None else self.inner.rows[column[0]][number][column[1]]

    def _version(self, row: Numbers, one: OracleAsOf) -> int | None:
        """Return the arrival number of the version of a row."""
        own_positions = self.positions[one.table.name]
        if one.at is not None:
            t = self._value(row, one.at)
        else:
            t = max(self.positions[name][n] for name, n in zip(self.inner.names, row, strict=True) if n is not None)
        key = {name: self._value(row, column) for name, column in one.key.items()}
        if t is None or None in key.values():
            return None
        time, newest = one.table.time or "", dict[Any, int]()
        for number, (own, _) in enumerate(self.versions[one.table.name]):
            if all(own[name] == value for name, value in key.items()):
                # Of several with one time, the last one to arrive counts.
                newest[own_positions[number] if one.at is None else own[time]] = number
        there = {at: n for at, n in newest.items() if not self.versions[one.table.name][n][1]}
        valid = max((at for at in newest if at <= t), default=None)
        back = [valid] if valid in there else []
        ahead = [at for at in (min((at for at in there if at >= t), default=None),) if at is not None]
        begins = {"backward": back, "forward": ahead, "nearest": back + ahead}[one.direction]
        near = [at for at in begins if one.tolerance is None or abs(at - t) <= one.tolerance]
        return there[min(near, key=lambda at: (abs(at - t), at))] if near else None
