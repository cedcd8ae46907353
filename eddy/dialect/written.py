"""Predicates of a `Query` that need the grammar of SQL: keys that expressions compute, and other conditions."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from eddy.dialect.grammar import Source, parse, printed
from eddy.dialect.joins import Joins
from eddy.dialect.relations import Occurrence
from eddy.dialect.trees import column, conjuncts, own_columns, place_of, reads, replaced
from eddy.query.derived import Derived
from eddy.query.parser import Column, Parsed, parse_plain
from eddy.query.stream import Stream
from stairs.errors import QueryError, SqlError


def read_written(text: str, streams: Sequence[Stream], fault: QueryError | None) -> Parsed:
    """Return the equalities, comparisons and conditions that a predicate stands for, over columns named stream.column.

    fault  why the text is none in the grammar of `eddy.query.parser`

    Raises that error for text that is no SQL either, and SqlError for names and types that do not fit.
    """
    source = Source(text, f"predicate {text[:200]!r}", before="SELECT 1 WHERE ")
    try:
        tree = parse(source)
    except SqlError:
        if fault is not None:
            raise fault from None
        raise
    where = tree.args.get("where")
    if where is None or any(value for name, value in tree.args.items() if name not in ("where", "expressions")):
        raise fault or source.error(where, "a condition is expected")
    if fault is not None and (place_of(where.this) is not None or isinstance(where.this, exp.Column)):
        raise fault
    reader = _Reader(source, streams)
    found = Parsed([], [], [])
    for one in conjuncts(reader.resolved(where.this)):
        reader.add(one, found, text)
    return found


class _Reader:
    def __init__(self, source: Source, streams: Sequence[Stream]) -> None:
        self.source, self._index = source, {stream.name: i for i, stream in enumerate(streams)}
        tables = {stream.name: stream for stream in streams}
        self.joins = Joins(source, tables, [Occurrence(name, name, exp.Null()) for name in tables])

    def resolved(self, node: exp.Expression) -> exp.Expression:
        """Return a tree with its columns resolved."""

        def change(one: exp.Column) -> exp.Expression:
            if not one.table:
                raise self.source.error(one, f"{printed(one)} has no stream; write stream.column")
            i = self._index.get(one.table)
            if i is None:
                raise self.source.error(
                    one, f"there is no stream {one.table!r}; the streams are {', '.join(self._index)}"
                )
            self.joins.streams[i].type_of(one.name)
            made = column((i, one.name), one.table)
            made.meta["start"] = self.source.offset(one)
            return made

        return replaced(node, change)

    def add(self, node: exp.Expression, found: Parsed, text: str) -> None:
        """Add what a conjunct stands for."""
        joins = self.joins
        names = sorted({joins.streams[i].name for i in reads(node)})
        if len(names) < 2:
            raise self.source.error(
                node,
                f"{joins.text(node)} compares columns of stream {names[0]} only; write it as a filter of the stream:"
                " Stream(…, filter=…)"
                if names
                else f"{printed(node)} reads no column; leave it out",
            )
        joins.scalars().condition(node)  # its types
        for one in joins.split(node):
            plain, sides = joins.plain_predicate(one), joins.key_sides(one)
            if plain is not None:
                own = parse_plain(plain)
                found.equalities.extend(own.equalities)
                found.comparisons.extend(compared._replace(text=text) for compared in own.comparisons)
            elif sides is not None:
                left, right = map(self._key, sides)
                found.equalities.append((left, right))
            else:
                found.conditions.append(joins.condition(one))

    def _key(self, node: exp.Expression) -> Column:
        """Return a side of an equality: a column of a stream, given or computed."""
        (i,) = reads(node)
        stream, place = self.joins.streams[i], place_of(node)
        if place is not None:
            return stream.name, place[1]
        value = self.joins.scalars(i).value(node)
        own = [place[1] for place in map(place_of, own_columns(node)) if place is not None]
        name = printed(replaced(node, lambda one: exp.Column(this=one.this.copy())))
        while name in stream.schema.names:
            name += " "
        return stream.name, Derived(name, value.arrow, value.kind, tuple(dict.fromkeys(own)), self.joins.text(node))
