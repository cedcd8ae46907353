"""Nested-loop join over arrivals: what a query's results are, by definition.

Every arrival is tried against every combination of the tuples that arrived before it, one per other stream. Nothing is
indexed, nothing expires and nothing is remembered but the tuples in the order they came, so each rule of
`docs/semantics.md` stands here as one line. It is slow on purpose, and imports nothing of the project.

Values are plain Python values of one kind per attribute class (all timestamps in one unit, and so on): two of them are
equal when Python's `==` says so, except that None equals nothing. NaN and -0.0 are what `==` makes of them.
Event times are numbers in one unit over all streams, and so are `lateness` and the sizes of `RANGE` windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Row = Mapping[str, Any]
Column = tuple[str, str]
Fate = Literal["arrived", "late", "rejected"]


@dataclass(frozen=True)
class OracleStream:
    """A stream: `size` is n of a ROWS window, d of a RANGE window, unused otherwise."""

    name: str
    window: Literal["rows", "range", "unbounded"]
    size: int = 0
    time: str | None = None
    keep: Callable[[Row], bool | None] | None = None


@dataclass(frozen=True)
class OracleQuery:
    """A query: each equality names two (stream, column) pairs; a multi-column predicate is several of them."""

    streams: Sequence[OracleStream]
    equalities: Sequence[tuple[Column, Column]]
    lateness: int = 0
    where: Callable[[Mapping[Column, Any]], bool | None] | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of one arrival: its number in its stream (None unless it arrived) and the results it completed.

    A result is a tuple of arrival numbers, one per stream in the order of the query.
    """

    fate: Fate
    number: int | None = None
    results: tuple[tuple[int, ...], ...] = ()


@dataclass
class Oracle:
    """The join of a query, fed one arrival after the other."""

    query: OracleQuery
    tuples: dict[str, list[Row]] = field(init=False)
    newest: Any = None

    def __post_init__(self) -> None:
        self.tuples = {stream.name: [] for stream in self.query.streams}
        self._stream = {stream.name: stream for stream in self.query.streams}
        self._ranged = any(stream.window == "range" for stream in self.query.streams)

    def arrive(self, name: str, row: Row) -> Outcome:
        """Take one row of a stream and give what became of it."""
        stream = self._stream[name]
        if stream.keep is not None and stream.keep(row) is not True:
            return Outcome("rejected")
        if self._ranged:
            t = self._time(name, row)
            newest = t if self.newest is None else max(self.newest, t)
            if t < newest - self.query.lateness:
                return Outcome("late")
            self.newest = newest
        self.tuples[name].append(row)
        number = len(self.tuples[name]) - 1
        results = [tuple(chosen[s.name] for s in self.query.streams) for chosen in self._combinations({name: number})]
        return Outcome("arrived", number, tuple(sorted(results)))

    def copy(self) -> Oracle:
        """Give an oracle in the same state, to try arrivals on."""
        other = Oracle(self.query)
        other.tuples = {name: list(rows) for name, rows in self.tuples.items()}
        other.newest = self.newest
        return other

    def row(self, name: str, number: int) -> Row:
        """Give the tuple of a stream that has this arrival number."""
        return self.tuples[name][number]

    def values(self, result: Sequence[int]) -> dict[Column, Any]:
        """Give every column of one result."""
        named = zip(self.query.streams, result, strict=True)
        return {(s.name, column): value for s, n in named for column, value in self.row(s.name, n).items()}

    def _combinations(self, chosen: dict[str, int]) -> Iterator[dict[str, int]]:
        """Extend the chosen tuples by one of every other stream, in all ways that make a result."""
        if len(chosen) == len(self.query.streams):
            if self._in_range(chosen) and self._accepted(chosen):
                yield chosen
            return
        stream = self._next_stream(chosen)
        count = len(self.tuples[stream.name])
        for number in range(max(0, count - stream.size) if stream.window == "rows" else 0, count):
            extended = {**chosen, stream.name: number}
            if self._equal(extended, stream.name):
                yield from self._combinations(extended)

    def _next_stream(self, chosen: Mapping[str, int]) -> OracleStream:
        """Name the next loop: a stream with a predicate to the chosen ones, so that few combinations are tried."""
        for (a, _), (b, _) in self.query.equalities:
            for near, far in ((a, b), (b, a)):
                if near in chosen and far not in chosen:
                    return self._stream[far]
        raise ValueError(f"no predicate connects {sorted(chosen)} with the other streams")

    def _equal(self, chosen: Mapping[str, int], last: str) -> bool:
        """Tell whether all predicates hold between `last` and the chosen tuples."""
        for (a, x), (b, y) in self.query.equalities:
            if last in (a, b) and a in chosen and b in chosen:
                left, right = self.row(a, chosen[a])[x], self.row(b, chosen[b])[y]
                if left is None or right is None or left != right:
                    return False
        return True

    def _in_range(self, chosen: Mapping[str, int]) -> bool:
        """Tell whether every RANGE component is at most its size older than the newest component."""
        if not self._ranged:
            return True
        times = {name: self._time(name, self.row(name, number)) for name, number in chosen.items()}
        newest = max(times.values())
        return all(newest - times[s.name] <= s.size for s in self.query.streams if s.window == "range")

    def _accepted(self, chosen: Mapping[str, int]) -> bool:
        """Tell whether the result filter says true."""
        if self.query.where is None:
            return True
        return self.query.where(self.values([chosen[s.name] for s in self.query.streams])) is True

    def _time(self, name: str, row: Row) -> Any:
        column = self._stream[name].time
        if column is None:
            raise ValueError(f"stream {name} needs a time column in a query with a RANGE window")
        return row[column]
