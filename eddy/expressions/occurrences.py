"""Occurrences of tables in a text of SQL, each a stream, and what is made of their columns."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa
from sqlglot import exp

from eddy.expressions.computed import ComputedExpression
from eddy.expressions.conditions import SqlPredicate
from eddy.expressions.grammar import identifier, printed
from eddy.expressions.predicates import bands, implied, key_sides, null_safe, predicate, why_no_key
from eddy.expressions.scalars import Scalars
from eddy.expressions.source import StatementText, parse
from eddy.expressions.trees import Place, own_columns, place_of, presence_of, replaced
from eddy.streams.stream import PRESENCE, Stream, readable_name


@dataclass
class Occurrence:
    """One mention of a table: the name of its stream, its alias, and where it stands."""

    table: str
    alias: str
    node: exp.Expression


class Occurrences:
    """Makes predicates, conditions and output columns of the columns of occurrences.

    streams   by occurrence, its stream; its name is that of its table, or of its alias if the table occurs twice
    """

    def __init__(self, source: StatementText, tables: Mapping[str, Stream], occurrences: Sequence[Occurrence]) -> None:
        self.source = source
        counts: dict[str, int] = {}
        for occurrence in occurrences:
            counts[occurrence.table] = counts.get(occurrence.table, 0) + 1
        self.streams: list[Stream] = []
        names: set[str] = {table for table, count in counts.items() if count == 1}
        for occurrence in occurrences:
            name = occurrence.table if counts[occurrence.table] == 1 else unused(occurrence.alias, names)
            names.add(name)
            self.streams.append(replace(tables[occurrence.table], name=name))

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

        def change(column: exp.Column) -> exp.Expression:
            place = place_of(column)
            return column if place is None else self._named(place)

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

    def output(self, node: exp.Expression) -> str | ComputedExpression:
        """Return an output column: the column of a stream, or an expression."""
        place = presence_of(node) or place_of(node)
        if place is not None:
            return readable_name(self.streams[place[0]].name, place[1])
        value = self.scalars().value(node)
        if value.family == "null":
            raise self.source.error(node, "NULL has no type here; write CAST(NULL AS …)")
        return ComputedExpression(value.arrow, self.text(node), self._read(node))

    def condition(self, node: exp.Expression) -> SqlPredicate:
        """Return a condition on joined rows."""
        text = self.text(node)
        return SqlPredicate(
            self.scalars().condition(node), name=text, sql=text, known=self._read(node), why=why_no_key(node)
        )

    def _read(self, node: exp.Expression) -> frozenset[str]:
        places = filter(None, map(place_of, own_columns(node)))
        return frozenset(readable_name(self.streams[i].name, column) for i, column in places)

    def split(self, condition: exp.Expression) -> list[exp.Expression]:
        """Return |x - y| < c, and IS NOT DISTINCT FROM, as two predicates each; any other condition as it is."""
        if isinstance(condition, exp.NullSafeEQ):
            return null_safe(condition, self.type_of) or [condition]
        parts = [*bands(condition), *implied(condition)]
        if isinstance(condition, exp.EQ):
            return parts
        if len(parts) == 1 or any(self.predicate_text(part) is None for part in parts):
            return [condition]
        return parts

    def plain_predicate(self, node: exp.Expression) -> str | None:
        """Return a condition as a predicate on columns as they are, None if it is none."""
        return predicate(node, self.type_of, self.name_of, self.source)

    def key_sides(self, node: exp.Expression) -> tuple[exp.Expression, exp.Expression] | None:
        """Return the sides of an equality of expressions that is a key (`eddy.expressions.predicates`)."""
        return key_sides(node, self.scalars())

    def predicate_text(self, node: exp.Expression) -> str | None:
        """Return a condition as a predicate, None if it is none."""
        plain = self.plain_predicate(node)
        if plain is not None:
            return plain
        sides = self.key_sides(node)
        return None if sides is None else " = ".join(side_text(self.text(side)) for side in sides)


@lru_cache(maxsize=1024)
def side_text(text: str) -> str:
    """Return an expression as it stands beside =: a condition is in parentheses."""
    tree = parse(StatementText(f"SELECT {text}")).expressions[0]
    return f"({text})" if isinstance(tree, exp.Connector | exp.Predicate | exp.Not) else text


def unused(name: str, names: Container[str]) -> str:
    """Return a name that is not among others: the given one, or one with a number.

    >>> unused("a", {"a", "b"})
    'a_2'
    """
    candidate, k = name, 1
    while candidate in names:
        k += 1
        candidate = f"{name}_{k}"
    return candidate
