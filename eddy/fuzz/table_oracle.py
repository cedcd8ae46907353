"""Joins over tables by definition: the answer is computed anew, by nested loops, after each change.

It is written from "Tables" and "Branches" in `docs/guide/semantics.md` and from nothing else, and it imports nothing of
ours. Values are plain Python values, as in `eddy.fuzz.oracle`.

>>> row = {"id": 7, "k": 1}
>>> rows = [("S", row, False), ("T", row, False), ("T", row, False), ("T", row, True)]
>>> oracle = TableOracle([TableInput("S"), TableInput("T", key=("id",))], [(("S", "k"), "=", ("T", "k"))])
>>> [oracle.arrive(*row) for row in rows]
[[], [('+I', (0, 0))], [('-U', (0, 0)), ('+U', (0, 1))], [('-D', (0, 1))]]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
Column = tuple[str, str]
"""Name of an input, and of a column of it."""
Result = tuple[int, ...]
"""The number of an arrival of each input, in the order of the query; -1 = none."""
Change = tuple[str, Result]
"""An operation, and the result that it takes back or gives."""
_HOLDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


@dataclass(frozen=True)
class TableInput:
    """An input: a table with a key, or a stream with a window of its `rows` newest rows (None = all).

    span   instead of `rows`, that of a RANGE window over the column `time`
    keep   the filter: a row of a stream for which it is not True does not arrive, one of a table deletes
    version     the column by which a change of a table may be stale
    tombstones  how far the newest version is ahead when the version of a deleted key is forgotten; None = never
    """

    name: str
    key: tuple[str, ...] = ()
    rows: int | None = None
    span: Any = None
    time: str = ""
    keep: Callable[[Row], bool | None] | None = None
    version: str = ""
    tombstones: int | None = None


@dataclass(frozen=True)
class TableBranch:
    """A branch, whose predicates join its inputs with each other and with those above it; see `TableOracle`."""

    inputs: Sequence[TableInput]
    predicates: Sequence[tuple[Column, str, Column]]
    how: str
    branches: Sequence[TableBranch] = ()

    def all_inputs(self) -> list[TableInput]:
        """Return its inputs, and those of the branches below it."""
        return [*self.inputs, *(source for branch in self.branches for source in branch.all_inputs())]


@dataclass
class TableOracle:
    """A join whose predicates are all comparisons of two columns: (left, operator, right).

    inputs   those of the core; `every` has those of the branches as well
    expiry   "retract": a result ends when a row of it leaves its window; "final": it stays in the answer for ever
    """

    inputs: Sequence[TableInput]
    predicates: Sequence[tuple[Column, str, Column]]
    branches: Sequence[TableBranch] = ()
    expiry: str = "retract"
    every: Sequence[TableInput] = field(init=False)
    arrived: dict[str, list[Row]] = field(init=False)
    alive: dict[str, dict[tuple[Any, ...], int]] = field(init=False)
    """Of each table, the version of each key."""
    standing: set[Result] = field(default_factory=set)
    """The results whose rows are in their windows."""
    final: set[Result] = field(default_factory=set)
    """The results whose rows have left them, with `expiry` "final"."""
    due: Any = None
    """The watermark, None before the first."""
    newest: dict[str, dict[tuple[Any, ...], tuple[int, bool]]] = field(default_factory=dict)
    """Of each table with versions, the version of each key, and whether it is that of a delete."""

    def __post_init__(self) -> None:
        self.every = [*self.inputs, *(source for branch in self.branches for source in branch.all_inputs())]
        self.arrived = {source.name: [] for source in self.every}
        self.alive = {source.name: {} for source in self.every if source.key}

    def arrive(self, name: str, row: Row, deletes: bool = False, watermark: Any = None) -> list[Change]:
        """Take a row of a stream, or a change of a table, and return what it does to the answer.

        First the results that the watermark ends, then those that end without a successor, then the replaced ones in
        pairs, then the new ones.

        watermark   that with the row; None = as before
        """
        source = next(source for source in self.every if source.name == name)
        kept = source.keep is None or source.keep(row) is True
        if not source.key and not kept:
            return []
        self.due = self.due if watermark is None else watermark
        left = [("-D", result) for result in self.expire()]
        self.arrived[name].append(row)
        if source.key:
            key = tuple(row[column] for column in source.key)
            self.alive[name].pop(key, None)
            if kept and not deletes:
                self.alive[name][key] = len(self.arrived[name]) - 1
        if self.expiry == "final":
            self.expire()
        before, self.standing = self.standing, set(self._branched() if self.branches else self._results(()))
        ended, begun = sorted(before - self.standing), sorted(self.standing - before)
        pairs = list(self._pairs(source, ended, begun)) if source.key else []
        replaced, new = {left for left, _ in pairs}, {right for _, right in pairs}
        changes = left + [("-D", result) for result in ended if result not in replaced]
        changes += [change for left, right in pairs for change in (("-U", left), ("+U", right))]
        return changes + [("+I", result) for result in begun if result not in new]

    def advance(self, watermark: Any) -> list[Change]:
        """Take a watermark without a row, and return what it does to the answer."""
        before, self.due = set(self.answer), watermark
        self.expire()
        if self.branches:
            self.standing = set(self._branched())
        return self.since(before)

    @property
    def answer(self) -> set[Result]:
        """All results that have come, and have not been taken back."""
        return self.standing | self.final

    def expire(self) -> list[Result]:
        """Let the results end whose rows have left their windows; return those that are taken back, in order."""
        over = {result for result in self.standing if not self._stands(result)}
        self.standing -= over
        if self.expiry == "final":
            self.final |= over
            return []
        return sorted(over)

    def is_stale(self, name: str, row: Row, deletes: bool = False) -> bool:
        """Return whether a change does not arrive because its key has a newer version; note its version otherwise."""
        source = next(source for source in self.every if source.name == name)
        if not source.version:
            return False
        known = self.newest.setdefault(name, {})
        key, version = tuple(row[column] for column in source.key), row[source.version]
        if key in known and version < known[key][0]:
            return True
        known[key] = version, deletes or (source.keep is not None and source.keep(row) is not True)
        if source.tombstones is not None:
            end = max(at for at, _ in known.values()) - source.tombstones
            self.newest[name] = {key: (at, gone) for key, (at, gone) in known.items() if not gone or at >= end}
        return False

    def since(self, before: set[Result]) -> list[Change]:
        """Return the difference of the answer from an earlier one: ended results, then replaced ones, then new ones.

        One result replaces another if their rows of streams, and the keys of their versions, are the same.
        """
        ended = {self._identity(result): result for result in sorted(before - self.answer)}
        begun = {self._identity(result): result for result in sorted(self.answer - before)}
        changes = [("-D", result) for key, result in ended.items() if key not in begun]
        for key, result in begun.items():
            changes += [("-U", ended[key]), ("+U", result)] if key in ended else []
        return changes + [("+I", result) for key, result in begun.items() if key not in ended]

    def _identity(self, result: Result) -> tuple[Any, ...]:
        """Return the keys of the versions, and the numbers of the rows, of a result."""
        return tuple(
            tuple(self.row(source.name, n)[column] for column in source.key) if source.key and n >= 0 else n
            for source, n in zip(self.every, result, strict=True)
        )

    @property
    def position(self) -> int:
        """Arrivals so far, over all inputs."""
        return sum(map(len, self.arrived.values()))

    def row(self, name: str, number: int) -> Row:
        """Return a row by its number."""
        return self.arrived[name][number]

    def _pairs(self, table: TableInput, ended: list[Result], begun: list[Result]) -> Iterator[tuple[Result, Result]]:
        """Yield the results that differ in the version of the changed table alone."""
        k = [source.name for source in self.every].index(table.name)
        for left in ended:
            for right in begun:
                if left[:k] == right[:k] and left[k + 1 :] == right[k + 1 :]:
                    yield left, right

    def _low(self, stream: TableInput) -> int:
        """Return the number of the oldest row in the window of a stream; rows leave in the order of their arrival."""
        rows = self.arrived[stream.name]
        if stream.span is None:
            return 0 if stream.rows is None else max(0, len(rows) - stream.rows)
        if self.due is None:
            return 0
        end = self.due - stream.span
        return next((n for n, row in enumerate(rows) if row[stream.time] >= end), len(rows))

    def _stands(self, result: Result) -> bool:
        """Return whether the rows of a result are in their windows."""
        return all(source.key or n < 0 or n >= self._low(source) for source, n in zip(self.every, result, strict=True))

    def _present(self, source: TableInput) -> Sequence[int]:
        if source.key:
            return sorted(self.alive[source.name].values())
        return range(self._low(source), len(self.arrived[source.name]))

    def _in_time(self, match: Mapping[str, int]) -> bool:
        """Return whether no row of a RANGE window is too old for the youngest row of a stream."""
        timed = [
            (source, self.row(source.name, match[source.name]))
            for source in self.every
            if source.time and source.name in match
        ]
        newest = max((row[source.time] for source, row in timed), default=None)
        return all(source.span is None or newest - row[source.time] <= source.span for source, row in timed)

    def _results(self, numbers: Result) -> Iterator[Result]:
        if len(numbers) == len(self.inputs):
            if self._in_time({source.name: n for source, n in zip(self.inputs, numbers, strict=True)}):
                yield numbers
            return
        for n in self._present(self.inputs[len(numbers)]):
            if self._agree((*numbers, n)):
                yield from self._results((*numbers, n))

    def _branched(self) -> Iterator[Result]:
        """Yield the rows of all matches of the core, and of a full join those of the second input without a partner."""
        rows = [
            row for match in self._matches({}, self.inputs, self.predicates) for row in self._rows(match, self.branches)
        ]
        for branch in self.branches:
            if branch.how == "full":
                (core,), (second,) = self.inputs, branch.inputs
                alone = [{second.name: n} for n in self._present(second)]
                rows += [row for row in alone if not list(self._matches(row, [core], branch.predicates))]
        for row in rows:
            yield tuple(row.get(source.name, -1) for source in self.every)

    def _matches(
        self, above: Mapping[str, int], inputs: Sequence[TableInput], predicates: Sequence[tuple[Column, str, Column]]
    ) -> Iterator[Mapping[str, int]]:
        """Yield the matches of some inputs that contain a match above them, by the name of the input."""
        if not inputs:
            if self._in_time(above):
                yield above
            return
        for n in self._present(inputs[0]):
            match = {**above, inputs[0].name: n}
            if self._hold(match, predicates):
                yield from self._matches(match, inputs[1:], predicates)

    def _rows(self, match: Mapping[str, int], branches: Sequence[TableBranch]) -> list[Mapping[str, int]]:
        """Return the rows of a match: the combinations of what its branches contribute."""
        rows = [match]
        for branch in branches:
            partners = self._matches(match, branch.inputs, branch.predicates)
            options = [row for partner in partners for row in self._rows(partner, branch.branches)]
            if branch.how in ("semi", "anti"):
                if bool(options) != (branch.how == "semi"):
                    return []
                options = [match]
            rows = [{**row, **option} for row in rows for option in options or [match]]
        return rows

    def _hold(self, match: Mapping[str, int], predicates: Sequence[tuple[Column, str, Column]]) -> bool:
        """Return whether all predicates hold that compare components of a match."""
        for (a, x), op, (b, y) in predicates:
            if a in match and b in match:
                left, right = self.row(a, match[a])[x], self.row(b, match[b])[y]
                if left is None or right is None or not _HOLDS[op](left, right):
                    return False
        return True

    def _agree(self, numbers: Result) -> bool:
        """Return whether the last component fulfils all predicates with those before it."""
        rows = {source.name: self.row(source.name, n) for source, n in zip(self.inputs, numbers, strict=False)}
        last = self.inputs[len(numbers) - 1].name
        for (a, x), op, (b, y) in self.predicates:
            if last in (a, b) and a in rows and b in rows:
                left, right = rows[a][x], rows[b][y]
                if left is None or right is None or not _HOLDS[op](left, right):
                    return False
        return True
