"""Nested-loop join over arrivals: what a query's results are, by definition.

Every arrival is tried against every combination of the tuples that arrived before it, one per other stream. Nothing is
indexed, nothing is dropped and little is remembered: the tuples in the order they came, and which results stand. So
each rule of `docs/guide/semantics.md` is here as one line. It is slow on purpose, and imports nothing of the project.

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
Result = tuple[int, ...]
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

    A result is a tuple of arrival numbers, one per stream in the order of the query. `expired` and `displaced` are the
    results it ended: those with a component whose time it told to be up, and then those with the tuple that it pushed
    out of a window of rows. They end in this order, before its own results begin.
    """

    fate: Fate
    number: int | None = None
    results: tuple[Result, ...] = ()
    expired: tuple[Result, ...] = ()
    displaced: tuple[Result, ...] = ()


@dataclass
class Oracle:
    """The join of a query, fed one arrival after the other."""

    query: OracleQuery
    tuples: dict[str, list[Row]] = field(init=False)
    newest: Any = None
    due: Any = None
    """The watermark: what is so much older than it as its window is long has left."""
    given: Any = None
    """The watermark named with the last push, if pushes name one."""
    standing: set[Result] = field(default_factory=set)
    """Results given, less those ended since."""
    _gone: list[int] = field(default_factory=list)
    _fresh: set[Result] = field(default_factory=set)
    """At the last look at the standing results, how many tuples had left; and what was given since."""

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
            self.due = newest - self.query.lateness
        return self._take(name, row)

    def push(self, arrivals: Sequence[tuple[str, Row]], watermark: Any) -> tuple[list[Outcome], tuple[Result, ...]]:
        """Take the rows of a push that names a watermark; give what became of each, and the results it ended."""
        fates: list[Fate] = []
        for name, row in arrivals:
            keep = self._stream[name].keep
            if keep is not None and keep(row) is not True:
                fates.append("rejected")
            else:
                fates.append("late" if self.given is not None and self._time(name, row) < self.given else "arrived")
        came = [self._time(*one) for one, fate in zip(arrivals, fates, strict=True) if fate == "arrived"]
        rising, outcomes = came == sorted(came), []
        for (name, row), fate in zip(arrivals, fates, strict=True):
            if fate == "arrived" and rising:
                t = self._time(name, row)
                self.due = min(t if self.due is None else max(t, self.due), watermark)
            outcomes.append(self._take(name, row) if fate == "arrived" else Outcome(fate))
        self.given = self.due = watermark
        return outcomes, self._end()

    def _take(self, name: str, row: Row) -> Outcome:
        # The order of ends: times that are up first, then the tuple for which there is no room any more.
        expired = self._end()
        self.tuples[name].append(row)
        displaced = self._end()
        number = len(self.tuples[name]) - 1
        results = sorted(self._result(chosen) for chosen in self._combinations({name: number}))
        self.standing.update(results)
        self._fresh.update(results)
        return Outcome("arrived", number, tuple(results), expired, displaced)

    def answer(self) -> list[Result]:
        """Give the maintained answer: the results whose components are all in their windows now, found anew."""
        first = self.query.streams[0].name
        found = [c for n in range(len(self.tuples[first])) for c in self._combinations({first: n})]
        return sorted(result for result in map(self._result, found) if self._in_windows(result))

    def copy(self) -> Oracle:
        """Give an oracle in the same state, to try arrivals on."""
        other = Oracle(self.query)
        other.tuples = {name: list(rows) for name, rows in self.tuples.items()}
        other.newest, other.due, other.given = self.newest, self.due, self.given
        other.standing = set(self.standing)
        other._gone, other._fresh = list(self._gone), set(self._fresh)
        return other

    def gone(self, name: str) -> int:
        """Count the tuples of a stream that have left its window: the first ones, for they leave as they came."""
        stream, tuples = self._stream[name], self.tuples[name]
        if stream.window == "rows":
            return max(0, len(tuples) - stream.size)
        if stream.window == "range" and self.due is not None:
            end = self.due - stream.size
            return next((n for n, row in enumerate(tuples) if end <= self._time(name, row)), len(tuples))
        return 0

    def row(self, name: str, number: int) -> Row:
        """Give the tuple of a stream that has this arrival number."""
        return self.tuples[name][number]

    def values(self, result: Sequence[int]) -> dict[Column, Any]:
        """Give every column of one result."""
        named = zip(self.query.streams, result, strict=True)
        return {(s.name, column): value for s, n in named for column, value in self.row(s.name, n).items()}

    def _result(self, chosen: Mapping[str, int]) -> Result:
        return tuple(chosen[stream.name] for stream in self.query.streams)

    def _in_windows(self, result: Result) -> bool:
        return all(n >= self.gone(s.name) for s, n in zip(self.query.streams, result, strict=True))

    def _end(self) -> tuple[Result, ...]:
        """Take the results that have lost a component out of the standing ones."""
        gone = [self.gone(stream.name) for stream in self.query.streams]
        looked_at = self._fresh if gone == self._gone else self.standing
        ended = {result for result in looked_at if any(n < low for n, low in zip(result, gone, strict=True))}
        self.standing -= ended
        self._gone, self._fresh = gone, set()
        return tuple(sorted(ended))

    def _combinations(self, chosen: dict[str, int]) -> Iterator[dict[str, int]]:
        """Extend the chosen tuples by one of every other stream, in all ways that make a result."""
        if len(chosen) == len(self.query.streams):
            if self._accepted(chosen):
                yield chosen
            return
        stream = self._next_stream(chosen)
        count = len(self.tuples[stream.name])
        for number in range(max(0, count - stream.size) if stream.window == "rows" else 0, count):
            extended = {**chosen, stream.name: number}
            if self._equal(extended, stream.name) and self._in_range(extended):
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
        """Tell whether every RANGE component is at most its size older than the newest component.

        Of some components as well: more of them only make the newest newer.
        """
        if not self._ranged:
            return True
        times = {name: self._time(name, self.row(name, number)) for name, number in chosen.items()}
        newest = max(times.values())
        ranged = [stream for stream in self.query.streams if stream.window == "range" and stream.name in times]
        return all(newest - times[stream.name] <= stream.size for stream in ranged)

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
