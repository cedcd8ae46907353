"""The results of a query with branches by definition, from the matches that nested loops find (`eddy.fuzz.oracle`).

After each push the rows of all matches are found anew, from the definition in `docs/guide/semantics.md`; what is new is
the output. Slow on purpose. A row is an arrival number per stream of the whole query, None where it has no component.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

from eddy.fuzz.oracle import Oracle, OracleClock, OracleQuery, OracleStream, Result, Row, clock_of

Numbers = tuple[int | None, ...]


@dataclass(frozen=True)
class OracleBranch:
    """A branch: the predicates of `query` are its own; its streams too. The core is a branch as well.

    where   a further condition on a match of its path, whose rows it gets by stream
    """

    query: OracleQuery
    how: Literal["core", "left", "semi", "anti"] = "core"
    branches: Sequence[OracleBranch] = ()
    where: Callable[[Mapping[str, Row]], bool] | None = None


@dataclass
class _Node:
    """A branch with the join of its path: `path` are the streams, `matches` all matches so far."""

    branch: OracleBranch
    path: Sequence[OracleStream]
    join: Oracle
    below: list[_Node]
    above: _Node | None = None
    matches: set[Result] = field(default_factory=set)

    def accepts(self, rows: Mapping[str, Row]) -> bool:
        """Return whether the conditions of the branch, and of those on which it hangs, accept a match."""
        where = self.branch.where
        return (where is None or where(rows)) and (self.above is None or self.above.accepts(rows))

    def everywhere(self) -> Iterable[_Node]:
        yield self
        for node in self.below:
            yield from node.everywhere()


@dataclass
class BranchOracle:
    """A query with branches, fed one push after the other.

    In a changelog the windows that intervals require are longer (`docs/guide/semantics.md`). For the second half of a
    full outer join, `spans` are those of the first half.
    """

    core: OracleBranch
    changelog: bool = False
    lateness: Any = 0
    watermark: str = "slowest"
    idle_after: Any = None
    spans: dict[str, Any] | None = None
    finished: bool = False
    clock: OracleClock = field(init=False)
    shown: set[Numbers] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.names: list[str] = []
        self._note(self.core)
        self.rows: dict[str, list[Row]] = {name: [] for name in self.names}
        draft = self._node(self.core, (), (), (), {})
        streams = [stream for node in draft.everywhere() for stream in node.path]
        self.clock = clock_of(streams, self.lateness, self.watermark, self.idle_after)
        self.tight = draft
        required = self._required(draft)
        # Rows may be late if the query has a window in event time, also if a changelog keeps its stream forever.
        everywhere = [stream for node in draft.everywhere() for stream in node.path]
        self.timed = any(_sized(stream, required).window == "range" for stream in everywhere)
        if self.spans is None:
            if self.changelog:
                self._lengthen(draft, required)
            self.spans = required
        self.tree = self._node(self.core, (), (), (), self.spans)
        self.tight = draft

    def _required(self, draft: _Node) -> dict[str, Any]:
        """Return the windows that intervals require: the longest of all joins; infinite for a stream without one."""
        spans: dict[str, Any] = {}
        for node in draft.everywhere():
            for stream in node.path if len(node.path) > 1 else ():
                if stream.window == "derived":
                    size = node.join._spans[stream.name] if node.join._intervals() else float("inf")
                    spans[stream.name] = max(spans.get(stream.name, 0), size)
        return spans

    def _note(self, branch: OracleBranch) -> None:
        self.names += [stream.name for stream in branch.query.streams]
        for sub_branch in branch.branches:
            self._note(sub_branch)

    def _node(
        self,
        branch: OracleBranch,
        above: Sequence[OracleStream],
        equalities: Sequence[Any],
        comparisons: Sequence[Any],
        spans: dict[str, Any],
    ) -> _Node:
        path = sorted((*above, *branch.query.streams), key=lambda stream: self.names.index(stream.name))
        equalities = (*equalities, *branch.query.equalities)
        comparisons = (*comparisons, *branch.query.comparisons)
        streams = [_sized(stream, spans) for stream in path]
        join = Oracle(OracleQuery(streams, equalities, comparisons=comparisons))
        below = [self._node(sub_branch, path, equalities, comparisons, spans) for sub_branch in branch.branches]
        node = _Node(branch, streams, join, below)
        for child in below:
            child.above = node
        return node

    def _lengthen(self, node: _Node, spans: dict[str, Any]) -> None:
        above, longest = [stream.name for stream in node.path], max(self.clock.lateness.values())
        for child in node.below:
            most = child.join._most()
            for stream in child.branch.query.streams:
                if stream.window == "derived":
                    sizes = [most[stream.name, name] + self._size(name, spans) + longest for name in above]
                    spans[stream.name] = max([spans[stream.name], *sizes])
            self._lengthen(child, spans)

    def _size(self, name: str, spans: dict[str, Any]) -> Any:
        for node in self._node(self.core, (), (), (), {}).everywhere():
            for stream in node.path:
                if stream.name == name and stream.window == "range":
                    return stream.size
        return spans.get(name, float("inf"))

    def push(
        self, arrivals: Sequence[tuple[str, Row]], watermark: Any = None
    ) -> tuple[list[Numbers], list[Numbers], list[bool]]:
        """Take the rows of a push; return the rows that end, those that begin, and which arrivals came in time."""
        timed, before = self.timed, self.clock.now
        kept, fates = [], []
        for name, row in arrivals:
            t = row[self._time(name)] if timed else None
            late = False
            if timed and watermark is None:
                late = self.clock.tick(name, t)
            elif timed:
                self.clock.come(name, t)
                late = before is not None and t < before
            fates.append(not late)
            if not late:
                kept.append((name, row))
        if watermark is not None:
            self.clock.give(watermark)
        return (*self.take(kept, self.clock.now), fates)

    def take(self, kept: Sequence[tuple[str, Row]], now: Any) -> tuple[list[Numbers], list[Numbers]]:
        """Take the rows of a push that came in time; return the rows that end, and those that begin.

        now   the watermark after the push
        """
        for name, row in kept:
            self.rows[name].append(row)
        for node in self.tree.everywhere():
            arrivals = [arrival for arrival in kept if arrival[0] in {stream.name for stream in node.path}]
            if node.join._ranged:
                outcomes, _ = node.join.push(arrivals, float("-inf") if now is None else now)
            else:
                outcomes = [node.join.arrive(name, row) for name, row in arrivals]
            node.matches |= {result for outcome in outcomes for result in outcome.results}
        return self._difference(now)

    @property
    def position(self) -> int:
        """The number of arrivals, without late ones."""
        return sum(map(len, self.rows.values()))

    def copy(self) -> BranchOracle:
        """Return a copy."""
        return deepcopy(self)

    def finish(self) -> list[Numbers]:
        """End the input; return the rows that this decides."""
        self.finished = True
        return self._difference(self.clock.now)[1]

    def _difference(self, now: Any) -> tuple[list[Numbers], list[Numbers]]:
        self._now = now
        matches = {id(node): self._matches(node) for node in self.tree.everywhere()}
        rows = [row for match in matches[id(self.tree)] for row in self._rows(self.tree, self.tight, match, matches)]
        assert len(rows) == len(set(rows))
        ended, begun = self.shown - set(rows), set(rows) - self.shown
        assert self.changelog or not ended
        self.shown = set(rows)
        return sorted(ended, key=_order), sorted(begun, key=_order)

    def _matches(self, node: _Node) -> list[Result]:
        names = [stream.name for stream in node.path]
        return [
            match
            for match in (node.join.answer() if self.changelog else sorted(node.matches))
            if node.accepts({name: self.rows[name][n] for name, n in zip(names, match, strict=True)})
        ]

    def _rows(self, node: _Node, tight: _Node, match: Result, matches: dict[int, list[Result]]) -> list[Numbers]:
        at = [self.names.index(stream.name) for stream in node.path]
        base: list[int | None] = [None] * len(self.names)
        for i, n in zip(at, match, strict=True):
            base[i] = n
        contributions: list[list[Numbers | None]] = []
        for child, closest in zip(node.below, tight.below, strict=True):
            names = [stream.name for stream in child.path]
            places = [names.index(stream.name) for stream in node.path]
            partners = [p for p in matches[id(child)] if all(p[k] == n for k, n in zip(places, match, strict=True))]
            partner_rows = [row for partner in partners for row in self._rows(child, closest, partner, matches)]
            ends = self.changelog or self._closed(node, closest, match)
            if child.branch.how == "left":
                contributions.append([*partner_rows] if partner_rows else [None] if ends else [])
            elif child.branch.how == "semi":
                contributions.append([None] if partner_rows else [])
            else:
                contributions.append([None] if not partner_rows and ends else [])
        rows = []
        for choice in product(*contributions):
            row = list(base)
            for part in choice:
                for i, number in enumerate(part or ()):
                    row[i] = row[i] if number is None else number
            rows.append(tuple(row))
        return rows

    def _closed(self, node: _Node, branch: _Node, match: Result) -> bool:
        """Return whether no further partner of a match can come from a branch."""
        return self.finished or all(self._left(node, child, match) for child in branch.everywhere())

    def _left(self, node: _Node, below: _Node, match: Result) -> bool:
        for stream, n in zip(node.path, match, strict=True):
            below_stream = next(candidate for candidate in below.path if candidate.name == stream.name)
            if below_stream.window == "rows" and len(self.rows[below_stream.name]) > n + below_stream.size:
                return True
            size: Any = below_stream.size
            if below_stream.window == "derived":
                size = below.join._spans[below_stream.name] if below.join._intervals() else float("inf")
            if below_stream.window not in ("range", "derived") or self._now is None:
                continue
            if self._now - self.rows[below_stream.name][n][self._time(below_stream.name)] > size:
                return True
        return False

    def _time(self, name: str) -> str:
        for node in self.tree.everywhere():
            for stream in node.path:
                if stream.name == name:
                    assert stream.time is not None
                    return stream.time
        raise KeyError(name)


def _sized(stream: OracleStream, spans: dict[str, Any]) -> OracleStream:
    """Return a stream with its window, if it follows from intervals and is known."""
    size = spans.get(stream.name)
    if stream.window != "derived" or size is None:
        return stream
    if size == float("inf"):
        return replace(stream, window="unbounded")
    return replace(stream, window="range", size=size)


def _order(row: Numbers) -> tuple[int, ...]:
    return tuple(-1 if n is None else n for n in row)
