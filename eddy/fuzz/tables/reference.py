"""The expected changelog of a query over tables: the oracles, in terms of the arrivals of a case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from eddy.fuzz.aggregate_oracle import grouped
from eddy.fuzz.case import NAMES, Results
from eddy.fuzz.compare import Group
from eddy.fuzz.play import Expected
from eddy.fuzz.table_oracle import Change, Result
from eddy.fuzz.tables.case import DELETES, RANK, ChangelogMode, TableArrival, TablesQuery, keeps
from eddy.fuzz.tables.changes import Change as Shown
from eddy.fuzz.top_oracle import changes
from eddy.query.result_key import result_key

Rows = dict[tuple[Any, ...], tuple[Any, ...]]
"""The rows of an answer, by what identifies them."""
First = dict[tuple[Any, ...], list[tuple[Any, ...]]]


class TableReference:
    """The oracles of a query, fed one push after the other.

    begun   whether something was pushed: then the one group of a query without group columns is there
    """

    def __init__(self, asked: TablesQuery, output: ChangelogMode = "changelog", results: Results = "rows") -> None:
        self.asked, self.output, self.results = asked, output, results
        self.oracle, self.clock, self.begun = asked.oracle(), asked.clock(), False
        self.names = [source.name for source in self.oracle.every]
        self.first: First = {}
        self.ranked: Mapping[tuple[Any, ...], Mapping[str, Any]] = {}
        self.key = self._key_places() if output == "upsert" else None
        """Where a push has each key once, in a changelog of rows by key: the numbers of the columns of the key."""

    def _key_places(self) -> list[int] | None:
        """Return None where each change has a row: rows of a join whose tables are not determined by others."""
        key, tables = result_key(self.asked.query()), len(self.asked.visible)
        if self.asked.grouped is None and self.asked.top is None and len(key) == tables * len(self.asked.key):
            return None
        columns = [*self.asked.outputs, *([RANK] if self.asked.rank else [])]
        return [columns.index(name) for name in key]

    def push(self, arrivals: Sequence[TableArrival], atomic: bool = False) -> Expected:
        """Take a push, and return what it must give."""
        before, results, late = self.rows(), set(self.oracle.answer), dict[str, list[Any]]()
        changed: list[list[Change]] = []
        if atomic or self.asked.atomic:
            for arrival in self.net(arrivals, late):
                self.arrive(arrival, late)
            changed.append(self.oracle.since(results))
        else:
            changed += [self.arrive(arrival, late) for arrival in arrivals if not self.left_out(arrival, late)]
        self.begun = True
        return self._expected(changed, before, late)

    def load(self, arrivals: Sequence[TableArrival]) -> None:
        """Take what is loaded, input after input. Stale changes are left out, and count as no late rows."""
        for arrival in sorted(arrivals, key=lambda arrival: arrival.input):
            if not self.left_out(arrival, {}):
                self.arrive(arrival, {})

    def advance(self, watermark: int) -> Expected:
        """Take a watermark without rows, and return what that must give."""
        before = self.rows()
        self.clock.give(watermark)
        changed = self.oracle.advance(self.clock.now)
        self.begun = True
        return self._expected([changed], before, {})

    def net(self, arrivals: Sequence[TableArrival], late: dict[str, list[Any]]) -> list[TableArrival]:
        """Return what arrives of an atomic push: the last change of each key, then the rows of streams."""
        last, rows = dict[Any, TableArrival](), list[TableArrival]()
        for arrival in arrivals:
            if not self.asked.tables[arrival.input]:
                rows.append(arrival)
            elif not self.left_out(arrival, late):
                key = arrival.input, *(arrival.row[column] for column in self.asked.key)
                last.pop(key, None)
                last[key] = arrival
        return [*last.values(), *rows]

    def left_out(self, arrival: TableArrival, late: dict[str, list[Any]]) -> bool:
        """Return whether a change does not arrive; a stale one is late."""
        if not self.asked.tables[arrival.input] or arrival.op == "-U":
            return arrival.op == "-U"
        deletes = arrival.op in DELETES
        stale = self.oracle.is_stale(NAMES[arrival.input], arrival.row, deletes)
        if stale:
            rejected = self.asked.filtered and not keeps(arrival.row)
            late.setdefault(NAMES[arrival.input], []).append((*arrival.values, "-D" if deletes or rejected else "+I"))
        return stale

    def arrive(self, arrival: TableArrival, late: dict[str, list[Any]]) -> list[Change]:
        """Take a row or a change, and return the changes of the answer. A late row does not arrive."""
        name, row = NAMES[arrival.input], arrival.row
        comes = not self.asked.tables[arrival.input] and not (self.asked.filtered and not keeps(row))
        if self.asked.timed and comes and self.clock.tick(name, row["t"]):
            late.setdefault(name, []).append(arrival.values)
            return []
        return self.oracle.arrive(name, row, arrival.op in DELETES, self.clock.now)

    def answer(self) -> Counter[tuple[Any, ...]]:
        """Return the rows that are the answer, as a changelog shows them."""
        if self.asked.top is None:
            return Counter(self.rows().values())
        assert self.asked.ranking is not None
        ranked = self._values()
        first = self.asked.ranking.of(ranked)
        return Counter(
            self._placed(ranked[number], place) for numbers in first.values() for place, number in enumerate(numbers)
        )

    def rows(self) -> Rows:
        """Return the rows of the answer without regard to `top`: results by their arrivals, groups by their columns."""
        if self.asked.grouped is None:
            return {result: self.shown(result) for result in self.oracle.answer}
        if not self.begun:
            return {}
        joined = [self._columns(result) for result in self.oracle.answer]
        groups = grouped(joined, self.asked.grouped, [*self.asked.functions.values()])
        return {key: (*key, *values) for key, values in groups.items()}

    def shown(self, result: Result) -> tuple[Any, ...]:
        """Return a result as a row shows it; None for a component that it lacks."""
        if self.results == "ids":
            return tuple(None if result[i] < 0 else result[i] for i in self.asked.visible)
        columns = self._columns(result)
        return tuple(columns[name] for name in self.asked.outputs)

    def _columns(self, result: Result) -> dict[str, Any]:
        """Return all columns of a result that are visible."""
        columns = {}
        for i in self.asked.visible:
            row: Mapping[str, Any] = {} if result[i] < 0 else self.oracle.row(self.names[i], result[i])
            columns.update({f"{self.names[i]}.{column}": row.get(column) for column in "abkpvw"})
        return columns

    def _expected(self, changed: list[list[Change]], before: Rows, late: dict[str, list[Any]]) -> Expected:
        groups: Sequence[Group]
        if self.asked.top is not None:
            groups = self._first_changes()
        elif self.asked.grouped is not None:
            groups = self._group_changes(before)
        elif self.results == "count":
            ops = Counter(op in ("+I", "+U") for group in changed for op, _ in group)
            return Expected([[("+I", ops[True])], [("-D", ops[False])]], late, ops.total())
        else:
            shown = [[(op, *self.shown(result)) for op, result in group] for group in changed]
            kept = [without_equal(group) for group in shown]
            if self.key is not None:
                groups = self._by_key(kept, before)
            else:
                groups = [part for group in kept for part in self._parts(group)]
        kept_groups = [group for group in groups if group]
        return Expected(kept_groups, late, sum(map(len, kept_groups)))

    def _parts(self, shown: list[Shown]) -> list[list[Shown]]:
        """Return the changes of an arrival in groups that follow each other: ends, then pairs, then new results."""
        pair = ("+U",) if self.output == "upsert" else ("-U", "+U")
        return [[change for change in shown if change[0] in ops] for ops in (("-D",), pair, ("+I",))]

    def _by_key(self, changed: list[list[Shown]], before: Rows) -> list[list[Shown]]:
        """Return the last row of each key that has changed, unless it came and went."""
        old, new = ({self._key(row): row for row in rows.values()} for rows in (before, self.rows()))
        keys = {self._key(row[1:]) for group in changed for row in group}
        ended: list[Shown] = [("-D", *key) for key in keys if key in old and key not in new]
        return [ended + [("+U" if key in old else "+I", *new[key]) for key in keys if key in new]]

    def _key(self, row: Sequence[Any]) -> tuple[Any, ...]:
        assert self.key is not None
        return tuple(row[k] for k in self.key)

    def _group_changes(self, before: Rows) -> list[list[Shown]]:
        after = self.rows()
        gone = [(key, row) for key, row in before.items() if after.get(key) != row]
        come = [(key, row) for key, row in after.items() if before.get(key) != row]
        if self.key is None:
            return [[("-D", *row) for _, row in gone], [("+I", *row) for _, row in come]]
        ended: list[Shown] = [("-D", *self._key(row)) for key, row in gone if key not in after]
        return [ended + [("+U" if key in before else "+I", *row) for key, row in come]]

    def _values(self) -> dict[tuple[Any, ...], Mapping[str, Any]]:
        """Return the rows that `top` reads, by what decides between rows of equal order."""
        if self.asked.grouped is None:
            return {result: self._columns(result) for result in self.oracle.answer}
        return {row: dict(zip(self.asked.outputs, row, strict=True)) for row in self.rows().values()}

    def _placed(self, row: Mapping[str, Any], place: int) -> tuple[Any, ...]:
        return (*(row[name] for name in self.asked.outputs), *([place + 1] if self.asked.rank else []))

    def _first_changes(self) -> list[list[Shown]]:
        """Return the difference of the first rows from those before."""
        assert self.asked.ranking is not None
        assert self.asked.top is not None
        ranked = self._values()
        first = self.asked.ranking.of(ranked)
        ended, pairs, begun = list[Shown](), list[Shown](), list[Shown]()
        for old, new, place in changes(self.first, first, self.asked.top.n == 1 or self.asked.rank):
            had = None if old is None else self._placed(self.ranked[old], place)
            has = None if new is None else self._placed(ranked[new], place)
            if has is None and had is not None:
                ended.append(("-D", *(had if self.key is None else self._key(had))))
            elif had is None and has is not None:
                begun.append(("+I", *has))
            elif had is not None and has is not None and had != has:
                pairs += [("-U", *had), ("+U", *has)] if self.key is None else [("+U", *has)]
        self.first, self.ranked = first, ranked
        return [ended, pairs, begun] if self.key is None else [ended + pairs + begun]


def without_equal(shown: list[Shown]) -> list[Shown]:
    """Return changes without the pairs whose rows are equal."""
    equal = {k for k in range(len(shown) - 1) if shown[k][0] == "-U" and shown[k][1:] == shown[k + 1][1:]}
    return [change for k, change in enumerate(shown) if k not in equal and k - 1 not in equal]
