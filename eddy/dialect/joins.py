"""Parts as a query: each condition becomes a predicate, a filter of a stream, or a condition on joined rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from eddy.dialect.conditions import SqlPredicate, unconnected
from eddy.dialect.grammar import Source, identifier, printed
from eddy.dialect.parts import Hung, Part
from eddy.dialect.predicates import bands, implied, key_sides, predicate, why_no_key
from eddy.dialect.relations import Occurrence
from eddy.dialect.scalars import Scalars
from eddy.dialect.trees import Place, own_columns, place_of, presence_of, reads, replaced, where_present
from eddy.filters.conditions import Condition
from eddy.query.branch import Branch
from eddy.query.computed import Computed
from eddy.query.stream import PRESENCE, Stream, readable_name
from eddy.query.windows import Rows


@dataclass
class Join:
    """An inner join as a query or branch takes it."""

    streams: list[Stream]
    on: list[str] = field(default_factory=list)
    where: list[Condition] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)


class Joins:
    """Makes streams, predicates and conditions from parts.

    streams   by occurrence, its stream; its name is that of its table, or of its alias if the table occurs twice
    """

    def __init__(self, source: Source, tables: Mapping[str, Stream], occurrences: Sequence[Occurrence]) -> None:
        self.source = source
        counts: dict[str, int] = {}
        for one in occurrences:
            counts[one.table] = counts.get(one.table, 0) + 1
        self.streams: list[Stream] = []
        names: set[str] = {table for table, count in counts.items() if count == 1}
        for one in occurrences:
            name = one.table if counts[one.table] == 1 else _unused(one.alias, names)
            names.add(name)
            self.streams.append(replace(tables[one.table], name=name))
        self._filters: dict[int, list[SqlPredicate]] = {}

    # Columns

    def type_of(self, place: Place) -> pa.DataType:
        """Return the type of a column."""
        return pa.bool_() if place[1] == PRESENCE else self.streams[place[0]].type_of(place[1])

    def name_of(self, place: Place) -> str:
        """Return a column as predicates name it."""
        return printed(self._named(place))

    def _named(self, place: Place) -> exp.Column:
        name = identifier(self.streams[place[0]].name)
        return exp.Column(this=name) if place[1] == PRESENCE else exp.Column(this=identifier(place[1]), table=name)

    def text(self, node: exp.Expression) -> str:
        """Return a tree as text in which columns have the names of their streams."""

        def change(one: exp.Column) -> exp.Expression:
            place = place_of(one)
            return one if place is None else self._named(place)

        return printed(replaced(node, change))

    def scalars(self, alone: int | None = None) -> Scalars:
        """Return the maker of expressions over joined rows, or over the rows of one stream."""

        def named(node: exp.Column) -> tuple[str, pa.DataType]:
            place = place_of(node)
            if place is None:
                raise self.source.error(node, f"{printed(node)} is not a column of a stream here")
            name = place[1] if alone is not None else readable_name(self.streams[place[0]].name, place[1])
            return name, self.type_of(place)

        return Scalars(self.source, named)

    def output(self, node: exp.Expression) -> str | Computed:
        """Return an output column: the column of a stream, or an expression."""
        place = presence_of(node) or place_of(node)
        if place is not None:
            return readable_name(self.streams[place[0]].name, place[1])
        value = self.scalars().value(node)
        if value.family == "null":
            raise self.source.error(node, "NULL has no type here; write CAST(NULL AS …)")
        return Computed(value.arrow, self.text(node), self._read(node))

    def condition(self, node: exp.Expression) -> SqlPredicate:
        """Return a condition on joined rows."""
        text = self.text(node)
        return SqlPredicate(
            self.scalars().condition(node), name=text, sql=text, known=self._read(node), why=why_no_key(node)
        )

    def _read(self, node: exp.Expression) -> frozenset[str]:
        places = filter(None, map(place_of, own_columns(node)))
        return frozenset(readable_name(self.streams[i].name, column) for i, column in places)

    # Parts

    def join(self, part: Part, above: Sequence[int] = (), full: bool = False) -> Join:
        """Return the join of a part.

        above   the occurrences on the path to it
        full    whether a full outer join keeps the rows of the part
        """
        path = {*above, *part.own}
        found = Join([])
        full_here = any(one.how == "full" for one in part.branches)
        for condition in (where_present(one, path) for one in part.conditions):
            if self.plain_predicate(condition) is None:
                self.scalars().condition(condition)  # its types are checked as they were written
            for one in self.split(condition):
                self._place(one, part, path, found, plain=not full and not full_here)
        there = set(above) | part.surely()
        found.where += [self.condition(where_present(one, there)) for one in part.after]
        found.branches = [self._branch(one, path) for one in part.branches]
        found.streams = [self._stream(i) for i in part.own]
        return found

    def split(self, condition: exp.Expression) -> list[exp.Expression]:
        """Return |x - y| < c as two comparisons if these are predicates, any other condition as it is."""
        found = [*bands(condition), *implied(condition)]
        if isinstance(condition, exp.EQ):
            return found
        if len(found) == 1 or any(self._predicate(one) is None for one in found):
            return [condition]
        return found

    def plain_predicate(self, node: exp.Expression) -> str | None:
        """Return a condition as a predicate on columns as they are, None if it is none."""
        return predicate(node, self.type_of, self.name_of, self.source)

    def key_sides(self, node: exp.Expression) -> tuple[exp.Expression, exp.Expression] | None:
        """Return the sides of an equality of expressions that is a key (`eddy.dialect.predicates`)."""
        return key_sides(node, self.scalars())

    def _predicate(self, node: exp.Expression) -> str | None:
        plain = self.plain_predicate(node)
        if plain is not None:
            return plain
        sides = self.key_sides(node)
        return None if sides is None else f"{self.text(sides[0])} = {self.text(sides[1])}"

    def _place(self, node: exp.Expression, part: Part, path: set[int], found: Join, plain: bool) -> None:
        """Put a conjunct where it belongs."""
        read = reads(node)
        if len(read) == 1 and read <= set(part.own) and plain:
            (i,) = read
            # A filter comes before a window, and WHERE after it: that matters where the window counts rows.
            if not isinstance(self.streams[i].window, Rows):
                text, columns = self.text(node), frozenset(p[1] for p in map(place_of, own_columns(node)) if p)
                own = SqlPredicate(self.scalars(i).condition(node), name=text, sql=text, known=columns)
                self._filters.setdefault(i, []).append(own)
                return
        if read & set(part.own):
            own_text = self._predicate(node)
            if own_text is not None:
                found.on.append(own_text)
                return
        found.where.append(self.condition(node))

    def _branch(self, one: Hung, path: set[int]) -> Branch:
        own = self.join(one.part, sorted(path), one.how == "full")
        return Branch(own.streams, own.on, one.how, own.branches, own.where or None)

    def _stream(self, i: int) -> Stream:
        stream, more = self.streams[i], self._filters.get(i, [])
        if not more:
            return stream
        given: Any = stream.filter
        before = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
        return replace(stream, filter=[*before, *more])

    def check_connected(self, part: Part, found: Join, node: exp.Expression) -> None:
        """Raise SqlError for occurrences of an inner join that no predicate connects with the others."""
        if len(part.own) == 1:
            return
        apart = self._apart(part)
        if apart is not None:
            name = self.streams[apart].name
            raise self.source.error(
                node, f"nothing connects {name} with the other streams: {unconnected(name, found.where)}"
            )

    def _apart(self, part: Part) -> int | None:
        reached, grew = {part.own[0]}, True
        pairs = []
        for condition in part.conditions:
            for one in self.split(condition):
                own = {place[0] for place in map(place_of, own_columns(one)) if place is not None}
                if len(own) == 2 and self._predicate(one) is not None:
                    pairs.append(own)
        while grew:
            grew = False
            for own in pairs:
                if reached & own and not own <= reached:
                    reached |= own
                    grew = True
        return next((i for i in part.own if i not in reached), None)


def _unused(name: str, names: set[str]) -> str:
    found, k = name, 1
    while found in names:
        k += 1
        found = f"{name}_{k}"
    return found
