"""A small reference join in plain Python, by which the engine is judged.

It keeps what is alive and no more: the rows in each window, in order of arrival, and the results that stand. An arrival
first ends what its time tells to be over, then takes its place, then meets the rows of the other windows, one stream
after the other. There is no index, no plan and no key id, and it imports nothing of the engine. What it computes is
fixed in docs/guide/semantics.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Result = tuple[int, ...]
"""An arrival number per stream, in the order of the query."""
Column = tuple[int, str]
"""Position of a stream, and the name of a column of it."""
Kind = Literal["rows", "range", "unbounded"]


@dataclass(frozen=True)
class Row:
    """A row: its stream, its keys by column (None equals nothing), its event time, and a number to know it by."""

    stream: int
    keys: Mapping[str, Any]
    time: int = 0
    tag: int = 0


@dataclass(frozen=True)
class Extent:
    """A window: `size` rows, a span of `size`, or without end."""

    kind: Kind
    size: int = 0


@dataclass(frozen=True)
class Verdict:
    """What an arrival does, in this order: results end whose time is up, or that it displaces; results begin."""

    late: bool = False
    expired: tuple[Result, ...] = ()
    displaced: tuple[Result, ...] = ()
    results: tuple[Result, ...] = ()


class Judge:
    """The join of streams on equalities, fed one arrival after the other.

    >>> judge = Judge([Extent("rows", 1), Extent("unbounded")], [((0, "k"), (1, "k"))])
    >>> judge.arrive(Row(0, {"k": 7})).results, judge.arrive(Row(1, {"k": 7})).results
    ((), ((0, 0),))
    >>> judge.arrive(Row(0, {"k": 7}))
    Verdict(late=False, expired=(), displaced=((0, 0),), results=((1, 0),))
    """

    def __init__(
        self, windows: Sequence[Extent], equalities: Sequence[tuple[Column, Column]], lateness: int = 0
    ) -> None:
        self.windows, self.equalities, self.lateness = tuple(windows), tuple(equalities), lateness
        self.timed = any(window.kind == "range" for window in windows)
        self.rows: list[list[Row]] = [[] for _ in windows]
        """All that arrived, by stream and arrival number."""
        self.newest: int | None = None
        self.answer: dict[Result, None] = {}
        """The results whose components are all in their windows, in the order in which they came."""
        self._live: list[deque[int]] = [deque() for _ in windows]

    def fork(self) -> Judge:
        """Give a judge in the same state, which goes its own way."""
        other = Judge(self.windows, self.equalities, self.lateness)
        other.rows = [list(rows) for rows in self.rows]
        other.newest, other.answer = self.newest, dict(self.answer)
        other._live = [deque(live) for live in self._live]
        return other

    @property
    def position(self) -> int:
        """Arrivals so far, over all streams."""
        return sum(map(len, self.rows))

    def arrive(self, row: Row) -> Verdict:
        """Take a row."""
        expired: list[Result] = []
        if self.timed:
            newest = row.time if self.newest is None else max(self.newest, row.time)
            if row.time < newest - self.lateness:
                return Verdict(late=True)
            self.newest = newest
            expired = self._expire(newest - self.lateness)
        i = row.stream
        results = tuple(sorted(self.completes(row) or ()))
        number = len(self.rows[i])
        self.rows[i].append(row)
        self._live[i].append(number)
        displaced: list[Result] = []
        if self.windows[i].kind == "rows" and len(self._live[i]) > self.windows[i].size:
            displaced = self._end(i, self._live[i].popleft())
        self.answer.update(dict.fromkeys(results))
        return Verdict(False, tuple(sorted(expired)), tuple(sorted(displaced)), results)

    def completes(self, row: Row, most: int | None = None) -> list[Result] | None:
        """Give the results that a row would complete if it arrived now, or None if there are more than `most`.

        What `most` bounds is every step on the way to them as well, so a row that meets too much is found out soon.
        """
        found: list[dict[int, int]] = [{row.stream: len(self.rows[row.stream])}]
        for j in self._order(row.stream)[1:]:
            longer = []
            for chosen in found:
                rows = {i: row if i == row.stream else self.rows[i][n] for i, n in chosen.items()}
                longer += [{**chosen, j: n} for n in self._live[j] if self._agrees(j, self.rows[j][n], rows)]
                if most is not None and len(longer) > most:
                    return None
            found = longer
        results = [tuple(chosen[i] for i in range(len(self.windows))) for chosen in found]
        return [result for result in results if self._in_time(result, row)] if self.timed else results

    def _order(self, first: int) -> list[int]:
        """Order the streams so that each has an equality with one before it."""
        order = [first]
        while len(order) < len(self.windows):
            near = {b for (a, _), (b, _) in self.equalities if a in order}
            near |= {a for (a, _), (b, _) in self.equalities if b in order}
            order.append(min(near.difference(order)))
        return order

    def _agrees(self, j: int, row: Row, rows: Mapping[int, Row]) -> bool:
        """Tell whether all equalities hold between a row of stream `j` and some of others."""
        for left, right in self.equalities:
            for (a, x), (b, y) in ((left, right), (right, left)):
                if a == j and b in rows and (row.keys[x] is None or row.keys[x] != rows[b].keys[y]):
                    return False
        return True

    def _in_time(self, result: Result, row: Row) -> bool:
        """Tell whether no component is older than its window allows beside the newest one."""
        times = [row.time if i == row.stream else self.rows[i][n].time for i, n in enumerate(result)]
        spans = zip(self.windows, times, strict=True)
        return all(window.kind != "range" or max(times) - time <= window.size for window, time in spans)

    def _expire(self, watermark: int) -> list[Result]:
        """Let the rows go whose time is up, from the oldest on, and end their results."""
        ended: list[Result] = []
        for i, (window, live) in enumerate(zip(self.windows, self._live, strict=True)):
            while window.kind == "range" and live and self.rows[i][live[0]].time + window.size < watermark:
                ended += self._end(i, live.popleft())
        return ended

    def _end(self, stream: int, number: int) -> list[Result]:
        ended = [result for result in self.answer if result[stream] == number]
        for result in ended:
            del self.answer[result]
        return ended
