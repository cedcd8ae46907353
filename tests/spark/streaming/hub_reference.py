"""A reference for hubs: nested loops over rows with their micro-batches; it imports nothing of the engine."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
Batches = Mapping[str, Sequence[Sequence[Row]]]
"""Stream -> rows of each micro-batch."""


def always(row: Any) -> bool:
    """Accept all."""
    return True


@dataclass(frozen=True)
class HubReferenceQuery:
    """A join on k under windows of time t.

    ranges  stream -> its RANGE
    keep     the filter of all streams
    columns  result column -> stream, column
    accept   the filter of results, of the row of each stream; None without one
    """

    ranges: Mapping[str, int]
    columns: Mapping[str, tuple[str, str]]
    keep: Callable[[Row], bool] = always
    accept: Callable[[Mapping[str, Row]], bool] | None = None

    def matches(self, batches: Batches) -> list[tuple[int, int, tuple[Any, ...]]]:
        """Return the least and the greatest micro-batch of the components of each result, and the result."""
        by_key: dict[str, dict[Any, list[tuple[int, Row]]]] = {name: defaultdict(list) for name in self.ranges}
        for name in self.ranges:
            for number, rows in enumerate(batches[name]):
                for row in rows:
                    if self.keep(row):
                        by_key[name][row["k"]].append((number, row))
        names = list(self.ranges)
        matches = []
        for key in by_key[names[0]]:
            combinations: list[tuple[tuple[int, Row], ...]] = [()]
            for name in names:
                longer = ((*combination, more) for combination in combinations for more in by_key[name][key])
                combinations = [
                    combination for combination in longer if self._within(combination)
                ]  # a further row brings none back
            for combination in combinations:
                numbers = [number for number, _ in combination]
                rows = dict(zip(names, (row for _, row in combination), strict=True))
                if self.accept is not None and not self.accept(rows):
                    continue
                result = tuple(rows[stream][column] for stream, column in self.columns.values())
                matches.append((min(numbers), max(numbers), result))
        return matches

    def _within(self, combination: Sequence[tuple[int, Row]]) -> bool:
        """Return whether the rows of the first streams are within their windows."""
        newest = max(row["t"] for _, row in combination)
        return all(newest - row["t"] <= span for span, (_, row) in zip(self.ranges.values(), combination, strict=False))


@dataclass(frozen=True)
class HubReferenceVersion:
    """A version: its query and its bounds, as `eddy/queries/version.py` states them."""

    asked: HubReferenceQuery
    start: int = 0
    warm: bool = False
    stop: int | None = None
    drain: int | None = None

    def results(self, batches: Batches) -> Counter[tuple[Any, ...]]:
        """Return the results with their counts."""
        return Counter(
            result
            for first, last, result in self.asked.matches(batches)
            if (last if self.warm else first) >= self.start
            and (self.stop is None or last < self.stop)
            and (self.drain is None or first < self.drain)
        )


@dataclass(frozen=True)
class BranchReference:
    """A version of R with one branch S on k, or of their inner join as a changelog.

    kind    "left", "semi", "anti" or "inner"
    ranges  the RANGE of R and of S
    shown   the column of R in results; the one of S is v
    keep    the filter of both streams
    """

    kind: str
    ranges: tuple[int, int]
    start: int = 0
    warm: bool = False
    stop: int | None = None
    shown: str = "v"
    keep: Callable[[Row], bool] = always

    def _rows(self, batches: Batches) -> tuple[list[tuple[int, Row]], list[tuple[int, Row]]]:
        """Return the rows that the version may use, with their micro-batches."""
        first = 0 if self.warm else self.start
        left, right = (
            [
                (number, row)
                for number, rows in enumerate(batches[name])
                if number >= first
                for row in rows
                if self.keep(row)
            ]
            for name in "RS"
        )
        return left, right

    def partners(self, row: Row, others: Sequence[tuple[int, Row]]) -> list[tuple[int, Row]]:
        """Return the partners of a row of R among rows of S."""
        left, right = self.ranges
        return [
            (number, other)
            for number, other in others
            if row["k"] is not None and row["k"] == other["k"] and -right <= other["t"] - row["t"] <= left
        ]

    def results(self, batches: Batches, watermarks: Sequence[int | None]) -> Counter[tuple[Any, ...]]:
        """Return the final results; `watermarks` has the watermark after each micro-batch."""
        left, right = self._rows(batches)
        given: list[tuple[int, tuple[Any, ...]]] = []
        for came, row in left:
            partners = self.partners(row, right)
            if self.kind in ("left", "inner"):
                given += [(max(came, number), (row[self.shown], other["v"])) for number, other in partners]
            elif self.kind == "semi" and partners:
                given.append((max(came, min(number for number, _ in partners)), (row[self.shown],)))
            if self.kind in ("left", "anti") and not partners:
                ends = row["t"] + self.ranges[0]
                passed = [e for e, mark in enumerate(watermarks) if e >= came and mark is not None and mark > ends]
                given += [
                    (e, (row[self.shown], None) if self.kind == "left" else (row[self.shown],)) for e in passed[:1]
                ]
        return Counter(
            result for batch, result in given if batch >= self.start and (self.stop is None or batch < self.stop)
        )

    def answer(self, batches: Batches, watermark: int | None) -> Counter[tuple[Any, ...]]:
        """Return the answer of the changelog after a watermark: of the rows that it has passed, in their windows."""
        if watermark is None:
            return Counter()
        left, right = self._rows(batches)
        alive = [(number, row) for number, row in left if row["t"] <= watermark <= row["t"] + self.ranges[0]]
        others = [(number, row) for number, row in right if row["t"] <= watermark <= row["t"] + self.ranges[1]]
        answer: Counter[tuple[Any, ...]] = Counter()
        for _, row in alive:
            partners = self.partners(row, others)
            if self.kind in ("left", "inner"):
                answer.update((row[self.shown], other["v"]) for _, other in partners)
            elif self.kind == "semi" and partners:
                answer[row[self.shown],] += 1
            if self.kind in ("left", "anti") and not partners:
                answer[(row[self.shown], None) if self.kind == "left" else (row[self.shown],)] += 1
        return answer
