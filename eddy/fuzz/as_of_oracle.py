"""The rows of a query with as-of joins by definition, over those of `eddy.fuzz.branch_oracle` or `table_oracle`.

A row waits until the watermark has passed its times. Then its version of each table is searched among all versions that
have arrived, from the definition in `docs/guide/semantics.md`. In a changelog no row waits: the answer, the rows with
their versions, is found anew after each push. Slow on purpose. Positions count all arrivals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from eddy.fuzz.branch_oracle import BranchOracle, Numbers
from eddy.fuzz.oracle import Column, OracleClock, OracleStream, Row, clock_of
from eddy.fuzz.table_oracle import TableOracle


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

    inner: BranchOracle | TableOracle
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
    standing: set[Numbers] = field(default_factory=set)
    """In a changelog, the rows of the inner oracle."""
    answer: set[Numbers] = field(default_factory=set)
    """In a changelog, the rows with their versions."""

    def __post_init__(self) -> None:
        tables = [join.table for join in self.joins]
        if isinstance(self.inner, TableOracle):
            streams = {
                source.name: OracleStream(source.name, "unbounded", 0, source.time)
                for source in self.inner.every
                if not source.key
            }
            self.inner_names, self.rows = [source.name for source in self.inner.every], self.inner.arrived
        else:
            streams = {stream.name: stream for node in self.inner.tree.everywhere() for stream in node.path}
            self.inner_names, self.rows = self.inner.names, self.inner.rows
        ticking = [*streams.values(), *(join.table for join in self.joins if join.at is not None)]
        self.timed = isinstance(self.inner, TableOracle) or self.inner.timed or len(ticking) > len(streams)
        if isinstance(self.inner, BranchOracle):
            self.inner.timed = self.timed
        self.clock = clock_of(ticking, self.lateness, self.watermark, self.idle_after)
        self.times = {stream.name: stream.time for stream in ticking}
        self.versions = {table.name: [] for table in tables}
        self.names = [*self.inner_names, *self.versions]
        self.positions = {name: [] for name in self.names}

    def push(
        self, arrivals: Sequence[tuple[str, Row, bool]], watermark: Any = None
    ) -> tuple[list[Numbers], list[Numbers]]:
        """Take the rows of a push, each with whether it is a delete; return the rows that end, and those that begin."""
        kept, before = [], self.clock.now
        for name, row, deleted in self._as_one_change(arrivals):
            late, time = False, self.times.get(name)
            if time is not None and self.timed and watermark is None:
                late = self.clock.tick(name, row[time])
            elif time is not None and self.timed:
                self.clock.come(name, row[time])
                late = before is not None and row[time] < before
            if not late:
                self.positions[name].append(sum(map(len, self.positions.values())))
            if not late and name in self.versions:
                self.versions[name].append((row, deleted))
            elif not late and isinstance(self.inner, TableOracle):
                self.inner.arrive(name, row, deleted, self.clock.now)
            elif not late:
                kept.append((name, row))
        if watermark is not None:
            self.clock.give(watermark)
        if isinstance(self.inner, TableOracle):
            self.inner.due = self.clock.now
            self.inner.expire()
            rows = {tuple(None if n < 0 else n for n in row) for row in self.inner.answer}
            return self._taken([*(self.standing - rows)], [*(rows - self.standing)])
        return self._taken(*self.inner.take(kept, self.clock.now))

    def _as_one_change(self, arrivals: Sequence[tuple[str, Row, bool]]) -> Sequence[tuple[str, Row, bool]]:
        """Return the last change of each key of tables, then the rows of streams."""
        if not isinstance(self.inner, TableOracle):
            return arrivals
        keys = {source.name: source.key for source in self.inner.every if source.key}
        last = {
            (name, *(row[column] for column in keys[name])): k
            for k, (name, row, _) in enumerate(arrivals)
            if name in keys
        }
        return [arrivals[k] for k in sorted(last.values())] + [
            arrival for arrival in arrivals if arrival[0] not in keys
        ]

    def finish(self) -> tuple[list[Numbers], list[Numbers]]:
        """End the input; return the rows that this decides."""
        begun = [] if isinstance(self.inner, TableOracle) else self.inner.finish()
        self.clock.now = float("inf")
        return self._taken([], begun)

    def _taken(self, ended: list[Numbers], begun: list[Numbers]) -> tuple[list[Numbers], list[Numbers]]:
        if isinstance(self.inner, BranchOracle) and not self.inner.changelog:
            self._wait(ended, begun)
            return self._ready()
        self.standing = (self.standing - set(ended)) | set(begun)
        before, self.answer = (
            self.answer,
            {versioned for row in self.standing for versioned in self._with_versions(row)},
        )
        return sorted(before - self.answer, key=str), sorted(self.answer - before, key=str)

    def _with_versions(self, row: Numbers) -> list[Numbers]:
        """Return a row with its versions; none for a row that lacks one."""
        versions = [self._version(row, join) for join in self.joins]
        whole = all(n is not None or join.how == "left" for n, join in zip(versions, self.joins, strict=True))
        return [(*row, *versions)] if whole else []

    def row(self, name: str, number: int) -> Row:
        """Return the row of a stream, or the version of a table, with this arrival number."""
        return self.versions[name][number][0] if name in self.versions else self.rows[name][number]

    def _wait(self, ended: list[Numbers], begun: list[Numbers]) -> None:
        for sign, rows in ((-1, ended), (1, begun)):
            for row in rows:
                times = [None if join.at is None else self._value(row, join.at) for join in self.joins]
                due = [t + join.ahead for t, join in zip(times, self.joins, strict=True) if t is not None]
                self.waiting.append((max(due, default=float("-inf")), sign, row))

    def _ready(self) -> tuple[list[Numbers], list[Numbers]]:
        now, counts = self.clock.now, Counter[Numbers]()
        for due, sign, row in self.waiting:
            if due == float("-inf") or (now is not None and due < now):
                for versioned in self._with_versions(row):
                    counts[versioned] += sign
        self.waiting = [
            entry for entry in self.waiting if not (entry[0] < now if now is not None else entry[0] == float("-inf"))
        ]
        assert all(abs(count) <= 1 for count in counts.values())
        return [row for row, count in counts.items() if count < 0], [row for row, count in counts.items() if count > 0]

    def _value(self, row: Numbers, column: Column) -> Any:
        number = row[self.inner_names.index(column[0])]
        return None if number is None else self.rows[column[0]][number][column[1]]

    def _version(self, row: Numbers, join: OracleAsOf) -> int | None:
        """Return the arrival number of the version of a row."""
        own_positions = self.positions[join.table.name]
        if join.at is not None:
            t = self._value(row, join.at)
        else:
            t = max(self.positions[name][n] for name, n in zip(self.inner_names, row, strict=True) if n is not None)
        key = {name: self._value(row, column) for name, column in join.key.items()}
        if t is None or None in key.values():
            return None
        time, newest = join.table.time or "", dict[Any, int]()
        for number, (version, _) in enumerate(self.versions[join.table.name]):
            if all(version[name] == value for name, value in key.items()):
                # Of several with one time, the last one to arrive counts.
                newest[own_positions[number] if join.at is None else version[time]] = number
        there = {at: n for at, n in newest.items() if not self.versions[join.table.name][n][1]}
        valid = max((at for at in newest if at <= t), default=None)
        back = [valid] if valid in there else []
        ahead = [at for at in (min((at for at in there if at >= t), default=None),) if at is not None]
        begins = {"backward": back, "forward": ahead, "nearest": back + ahead}[join.direction]
        near = [at for at in begins if join.tolerance is None or abs(at - t) <= join.tolerance]
        return there[min(near, key=lambda at: (abs(at - t), at))] if near else None
