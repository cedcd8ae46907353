"""Nested-loop join over arrivals: the results of a query by definition. It judges the tests and the fuzzer.

Each arrival is combined with every combination of the tuples that arrived before it, one per other stream. Nothing is
indexed, nothing is dropped and little is remembered: the tuples in their order of arrival, and the standing results.
Each rule of `docs/guide/semantics.md` is one line here. The join is slow on purpose, and it imports nothing of ours.

Values are plain Python values of one kind per attribute class (all timestamps in one unit, and so on): two of them are
equal when Python's `==` says so, except that None equals nothing. NaN and -0.0 behave as under `==`. Comparisons are
those of Python, except that neither None nor NaN fulfils one.
Event times are numbers in one unit over all streams, and so are `lateness` and the sizes of `RANGE` windows.

>>> streams = [OracleStream("R", "rows", 1), OracleStream("S", "unbounded")]
>>> oracle = Oracle(OracleQuery(streams, [(("R", "k"), ("S", "k"))]))
>>> oracle.arrive("R", {"k": 7}).results, oracle.arrive("S", {"k": 7}).results
((), ((0, 0),))
>>> oracle.arrive("R", {"k": 7}).displaced
((0, 0),)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Row = Mapping[str, Any]
Column = tuple[str, str]
"""Name of a stream, and of a column of it."""
Result = tuple[int, ...]
"""An arrival number per stream, in the order of the query."""
Fate = Literal["arrived", "late", "rejected"]
Loop = tuple[str, tuple[tuple[int, str, str], ...]]
"""A nested loop: its stream, and its equalities with the streams of the loops around it.

An equality is the position of the outer loop, the column there, and the column of this stream."""
Comparison = tuple[Column, Literal["<", "<=", ">", ">=", "!=", "="], Column, Any]
"""left, operator, right, amount: a predicate such as left < right + amount."""
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "!=": lambda left, right: left != right,
    "=": lambda left, right: left == right,
}


@dataclass(frozen=True)
class OracleStream:
    """A stream: `size` is n of a ROWS window, d of a RANGE window, unused otherwise.

    The window "derived" follows from the intervals.
    """

    name: str
    window: Literal["rows", "range", "unbounded", "derived"]
    size: int = 0
    time: str | None = None
    keep: Callable[[Row], bool | None] | None = None
    lateness: int | None = None
    """That of the stream; None = that of the query."""


class NoValueError(Exception):
    """Raised by `OracleQuery.where` for a result for which it has no value: the result fails."""


@dataclass(frozen=True)
class OracleQuery:
    """A query: each equality names two (stream, column) pairs; a multi-column predicate is several of them.

    watermark   the stream that it follows, "slowest" or "fastest"; idle_after: None = no stream is idle
    """

    streams: Sequence[OracleStream]
    equalities: Sequence[tuple[Column, Column]]
    lateness: int = 0
    where: Callable[[Mapping[Column, Any]], bool | None] | None = None
    comparisons: Sequence[Comparison] = ()
    watermark: str = "slowest"
    idle_after: int | None = None


@dataclass
class OracleClock:
    """The watermark of some streams: `now`, None before the first. `lateness` has that of each stream."""

    lateness: Mapping[str, Any]
    watermark: str = "slowest"
    idle_after: Any = None
    now: Any = None
    newest: dict[str, Any] = field(default_factory=dict)
    """Stream -> its greatest event time."""
    seen: dict[str, Any] = field(default_factory=dict)
    """Stream -> the greatest event time of all streams when its last row came; at first, the time of the first row."""

    def come(self, name: str, t: Any) -> None:
        """Take the event time of a row, which a caller's watermark does not allow to move `now`."""
        self.seen = self.seen or dict.fromkeys(self.lateness, t)
        self.newest[name] = max(t, self.newest.get(name, t))
        self.seen[name] = max(self.newest.values())

    def tick(self, name: str, t: Any) -> bool:
        """Take the event time of a row, and return whether the row is late."""
        self.come(name, t)
        marks = {stream: newest - self.lateness[stream] for stream, newest in self.newest.items()}
        waited = self._waited_for()
        if self.watermark == "fastest":
            self.give(max(marks.values()))
        elif all(stream in marks for stream in waited):
            self.give(min(marks[stream] for stream in waited))
        return self.now is not None and bool(t < self.now)

    def give(self, watermark: Any) -> None:
        """Raise the watermark; it never goes back."""
        self.now = watermark if self.now is None else max(self.now, watermark)

    def _waited_for(self) -> list[str]:
        """Return the streams that are not idle."""
        greatest = max(self.newest.values())
        return [s for s in self.lateness if self.idle_after is None or greatest - self.seen[s] <= self.idle_after]

    def copy(self) -> OracleClock:
        """Return a clock in the same state."""
        return replace(self, newest=dict(self.newest), seen=dict(self.seen))


def clock_of(streams: Sequence[OracleStream], lateness: Any, watermark: str, idle_after: Any) -> OracleClock:
    """Return a new clock of some streams; `lateness` is that of streams without one of their own."""
    by_stream = {stream.name: lateness if stream.lateness is None else stream.lateness for stream in streams}
    return OracleClock(by_stream, watermark, idle_after)


@dataclass(frozen=True)
class ArrivalOutcome:
    """Fate of one arrival, its number in its stream (None unless it arrived), and the results it completed.

    `expired` and `displaced` are the results it ended: those with a component whose time is up, and then those with the
    tuple that it pushed out of a window of rows. They end in this order, before its own results begin.
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
    clock: OracleClock = field(init=False)
    due: Any = None
    """The watermark: a tuple older than it by more than the size of its window has left."""
    standing: set[Result] = field(default_factory=set)
    """Results returned, less those ended since."""
    failed: int = 0
    """Results for which `where` had no value."""
    _left: list[int] = field(init=False)
    """Per stream, how many tuples had left their window when the standing results were last searched."""
    _fresh: set[Result] = field(default_factory=set)
    """Results returned since then."""

    def __post_init__(self) -> None:
        self.tuples = {stream.name: [] for stream in self.query.streams}
        self._left = [0] * len(self.query.streams)
        self._stream = {stream.name: stream for stream in self.query.streams}
        self._ranged = any(stream.window in ("range", "derived") for stream in self.query.streams)
        self._spans = self._longest() if any(stream.window == "derived" for stream in self.query.streams) else {}
        self._nests: dict[str, tuple[Loop, ...]] = {}
        query = self.query
        self.clock = clock_of(query.streams, query.lateness, query.watermark, query.idle_after)

    @property
    def position(self) -> int:
        """Arrivals so far, over all streams."""
        return sum(map(len, self.tuples.values()))

    def arrive(self, name: str, row: Row) -> ArrivalOutcome:
        """Take one row of a stream and return its outcome."""
        stream = self._stream[name]
        if stream.keep is not None and stream.keep(row) is not True:
            return ArrivalOutcome("rejected")
        if self._ranged:
            late = self.clock.tick(name, self._time(name, row))
            self.due = self.clock.now
            if late:
                return ArrivalOutcome("late")
        return self._take(name, row)

    def arrive_at(self, name: str, row: Row, watermark: Any) -> ArrivalOutcome:
        """Take one row that is not late, with the watermark that holds with it: a clock of more streams has decided."""
        keep = self._stream[name].keep
        if keep is not None and keep(row) is not True:
            return ArrivalOutcome("rejected")
        self.due = watermark
        return self._take(name, row)

    def push(
        self, arrivals: Sequence[tuple[str, Row]], watermark: Any
    ) -> tuple[list[ArrivalOutcome], tuple[Result, ...]]:
        """Take the rows of a push that gives a watermark; return the outcome of each, and the results it ended."""
        fates: list[Fate] = []
        before = self.due = self.clock.now
        for name, row in arrivals:
            keep = self._stream[name].keep
            if keep is not None and keep(row) is not True:
                fates.append("rejected")
            else:
                self.clock.come(name, self._time(name, row))
                fates.append("late" if before is not None and self._time(name, row) < before else "arrived")
        came = [self._time(*arrival) for arrival, fate in zip(arrivals, fates, strict=True) if fate == "arrived"]
        rising, outcomes = came == sorted(came), []
        for (name, row), fate in zip(arrivals, fates, strict=True):
            if fate == "arrived" and rising:
                t = self._time(name, row)
                self.due = min(t if self.due is None else max(t, self.due), watermark)
            outcomes.append(self._take(name, row) if fate == "arrived" else ArrivalOutcome(fate))
        self.clock.give(watermark)
        self.due = watermark
        return outcomes, self._end()

    def completes_more_than(self, most: int, name: str, row: Row) -> bool:
        """Return whether a row that arrived now would make more than `most` combinations in some loop.

        The result filter is not asked. Nothing changes.
        """
        self.tuples[name].append(row)
        combinations = self._combinations(name, len(self.tuples[name]) - 1, most)
        self.tuples[name].pop()
        return combinations is None

    def answer(self) -> list[Result]:
        """Return the maintained answer: the results whose components are all in their windows now, found anew."""
        first, left = self.query.streams[0].name, [self.gone(stream.name) for stream in self.query.streams]
        numbers = range(left[0], len(self.tuples[first]))
        results = [result for number in numbers for result in self._results(first, number)]
        return sorted(result for result in results if all(n >= low for n, low in zip(result, left, strict=True)))

    def copy(self) -> Oracle:
        """Return an oracle in the same state, to try arrivals on."""
        other = Oracle(self.query)
        other.tuples = {name: list(rows) for name, rows in self.tuples.items()}
        other.clock, other.due = self.clock.copy(), self.due
        other.standing, other._fresh = set(self.standing), set(self._fresh)
        other._left, other._nests, other.failed = list(self._left), self._nests, self.failed
        return other

    def gone(self, name: str) -> int:
        """Return how many tuples of a stream have left its window: the first ones, for they leave as they came."""
        stream, tuples = self._stream[name], self.tuples[name]
        if stream.window == "rows":
            return max(0, len(tuples) - stream.size)
        if stream.window in ("range", "derived") and self.due is not None:
            end = self.due - (stream.size if stream.window == "range" else self._spans[name])
            return next((n for n, row in enumerate(tuples) if end <= self._time(name, row)), len(tuples))
        return 0

    def row(self, name: str, number: int) -> Row:
        """Return the tuple of a stream that has this arrival number."""
        return self.tuples[name][number]

    def values(self, result: Sequence[int]) -> dict[Column, Any]:
        """Return every column of one result."""
        named = zip(self.query.streams, result, strict=True)
        return {(s.name, column): value for s, n in named for column, value in self.row(s.name, n).items()}

    def _take(self, name: str, row: Row) -> ArrivalOutcome:
        # The order of ends: times that are up first, then the tuple for which there is no room any more.
        expired = self._end()
        self.tuples[name].append(row)
        displaced = self._end()
        number = len(self.tuples[name]) - 1
        results = sorted(self._results(name, number))
        self.standing.update(results)
        self._fresh.update(results)
        return ArrivalOutcome("arrived", number, tuple(results), expired, displaced)

    def _end(self) -> tuple[Result, ...]:
        """Remove the results that have lost a component from the standing ones, and return them."""
        left = [self.gone(stream.name) for stream in self.query.streams]
        searched = self._fresh if left == self._left else self.standing
        ended = {result for result in searched if any(n < low for n, low in zip(result, left, strict=True))}
        self.standing -= ended
        self._left, self._fresh = left, set()
        return tuple(sorted(ended))

    def _results(self, name: str, number: int) -> list[Result]:
        """Return the results with one tuple and tuples that are in their windows now."""
        return [result for result in self._combinations(name, number) or () if self._accepts(result)]

    def _accepts(self, result: Result) -> bool:
        """Return whether `where` accepts a result that has come, and count it if it fails."""
        try:
            return self.query.where is None or self.query.where(self.values(result)) is True
        except NoValueError:
            self.failed += 1
            return False

    def _combinations(self, name: str, number: int, most: int | None = None) -> list[Result] | None:
        """Return the results before the result filter; None if more than `most` combinations come out of some loop."""
        loops = self._nest(name)
        combinations: list[tuple[Result, tuple[Row, ...]]] = [((number,), (self.row(name, number),))]
        for k, (inner, equalities) in enumerate(loops[1:], start=2):
            # Intervals alone decide which tuples join, so a tuple that a derived window dropped can join none.
            low = 0 if self._stream[inner].window == "derived" else self.gone(inner)
            window = list(enumerate(self.tuples[inner][low:], start=low))
            combinations = [
                ((*numbers, n), (*rows, row))
                for numbers, rows in combinations
                for n, row in window
                if all(rows[i][x] is not None and rows[i][x] == row[y] for i, x, y in equalities)
                and self._compare(loops[:k], (*rows, row))
                and self._in_range(loops[:k], (*rows, row))
            ]
            if most is not None and len(combinations) > most:
                return None
        at = [
            next(i for i, (loop_name, _) in enumerate(loops) if loop_name == stream.name)
            for stream in self.query.streams
        ]
        return [tuple(numbers[i] for i in at) for numbers, _ in combinations]

    def _nest(self, first: str) -> tuple[Loop, ...]:
        """Return the loops around a tuple of a stream, each over a stream with a predicate to those before it."""
        if first not in self._nests:
            order = [first]
            while len(order) < len(self.query.streams):
                every = [*self.query.equalities, *((left, right) for left, _, right, _ in self.query.comparisons)]
                pairs = [ends for (a, _), (b, _) in every for ends in ((a, b), (b, a))]
                following = next((far for near, far in pairs if near in order and far not in order), None)
                if following is None:
                    raise ValueError(f"no predicate connects {sorted(order)} with the other streams")
                order.append(following)
            sides = [pair for a, b in self.query.equalities for pair in ((a, b), (b, a))]
            self._nests[first] = tuple(
                (name, tuple((order.index(a), x, y) for (a, x), (b, y) in sides if b == name and a in order[:k]))
                for k, name in enumerate(order)
            )
        return self._nests[first]

    def _compare(self, loops: Sequence[Loop], rows: Sequence[Row]) -> bool:
        """Return whether the components fulfil the comparisons between them."""
        by_name = {name: row for (name, _), row in zip(loops, rows, strict=True)}
        for (a, x), op, (b, y), amount in self.query.comparisons:
            if a in by_name and b in by_name:
                left, right = by_name[a][x], by_name[b][y]
                if left is None or right is None or left != left or right != right:
                    return False
                if not _OPERATORS[op](left, right + amount):
                    return False
        return True

    def _longest(self) -> dict[str, Any]:
        """Return for each stream how much younger than its component another one can be, given all intervals."""
        most, names = self._most(), [stream.name for stream in self.query.streams]
        return {a: max(most[a, b] for b in names) for a in names}

    def _most(self) -> dict[tuple[str, str], Any]:
        """Return by how much the event time of each second stream can exceed that of each first one.

        A chain of intervals allows the sum of what each allows, and the shortest chain decides.
        """
        times = {(stream.name, stream.time) for stream in self.query.streams}
        names = [stream.name for stream in self.query.streams]
        most: dict[tuple[str, str], Any] = {(a, b): 0 if a == b else float("inf") for a in names for b in names}
        for low, high, span in self._bounds():
            if {low, high} <= times:
                most[low[0], high[0]] = min(most[low[0], high[0]], span)
        for k in names:
            for a in names:
                for b in names:
                    most[a, b] = min(most[a, b], most[a, k] + most[k, b])
        return most

    def _intervals(self) -> bool:
        """Return whether comparisons bound the difference of event times."""
        times = {(stream.name, stream.time) for stream in self.query.streams}
        return any({left, right} <= times and op != "!=" for left, op, right, _ in self.query.comparisons)

    def _bounds(self) -> Iterator[tuple[Column, Column, Any]]:
        """Yield triples (a, b, span): column b exceeds column a by at most the span. Columns have whole numbers."""
        for left, op, right, amount in self.query.comparisons:
            if op in ("<", "<=", "="):
                yield right, left, amount - (op == "<")
            if op in (">", ">=", "="):
                yield left, right, -amount - (op == ">")
        for a, b in self.query.equalities:
            yield from ((a, b, 0), (b, a, 0))

    def _in_range(self, loops: Sequence[Loop], rows: Sequence[Row]) -> bool:
        """Return whether every RANGE component is at most its size older than the newest component.

        Also for some of the components: further ones only make the newest newer.
        """
        if not self._ranged:
            return True
        streams = [self._stream[name] for name, _ in loops]
        times = [self._time(stream.name, row) for stream, row in zip(streams, rows, strict=True)]
        newest = max(times)
        return all(s.window != "range" or newest - t <= s.size for s, t in zip(streams, times, strict=True))

    def _time(self, name: str, row: Row) -> Any:
        column = self._stream[name].time
        if column is None:
            raise ValueError(f"stream {name} needs a time column in a query with a RANGE window")
        return row[column]
