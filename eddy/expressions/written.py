"""Predicates of a `Query` that need the grammar of SQL: keys that expressions compute, and other conditions."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.tokens import TokenType

from eddy.expressions.derived import Derived
from eddy.expressions.grammar import printed
from eddy.expressions.occurrences import Occurrence, Occurrences
from eddy.expressions.parser import Column, Parsed, parse_plain
from eddy.expressions.source import StatementText, parse
from eddy.expressions.trees import column, conjuncts, own_columns, place_of, reads, replaced
from eddy.streams.key_types import comparable, unified
from eddy.streams.stream import Stream
from stairs.errors import QueryError, SqlError


def read_written(text: str, streams: Sequence[Stream], fault: QueryError | None) -> Parsed:
    """Return the equalities, comparisons and conditions that a predicate stands for, over columns named stream.column.

    fault  the reason why the text does not fit the grammar of `eddy.expressions.parser`

    Raises that error for text that is no SQL either, and SqlError for names and types that do not fit.
    """
    source = StatementText(text, f"predicate {text[:200]!r}", before="SELECT 1 WHERE ")
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
    reader = _ConjunctReader(source, streams)
    parsed = Parsed([], [], [])
    for conjunct in conjuncts(reader.resolved(where.this)):
        reader.add(conjunct, parsed, text)
    return parsed


def parse_predicates(texts: Sequence[str], streams: Sequence[Stream]) -> Parsed:
    """Return the predicates in texts over some streams. Raises QueryError for any other text.

    A text that is no predicate of `eddy.expressions.parser`, or has types that only SQL compares, is read as SQL.
    """
    parsed = Parsed([], [], [])
    for text in texts:
        if not isinstance(text, str):
            raise QueryError(f"a predicate must be a string like 'R.a = S.a', not {text!r}")
        parsed.extend(_parsed(text, streams))
    return parsed


def _parsed(text: str, streams: Sequence[Stream]) -> Parsed:
    fault = None
    try:
        plain = parse_plain(text)
    except QueryError as error:
        fault = error
    else:
        if _fit(plain, streams):
            return plain
    parts = _conjuncts(text)
    if fault is not None and not all(parts):
        raise fault
    if len(parts) > 1:
        parsed = Parsed([], [], [])
        for part in parts:
            parsed.extend(_parsed(part, streams))
        return parsed
    return read_written(text, streams, fault)


def _fit(parsed: Parsed, streams: Sequence[Stream]) -> bool:
    """Return whether columns are compared as they are.

    Unknown columns, and those of other types, have errors elsewhere.
    """
    schemas = {stream.name: stream.schema for stream in streams}

    def types(*columns: Column) -> list[pa.DataType]:
        known = all(name in schemas and column in schemas[name].names for name, column in columns)
        return [schemas[name].field(column).type for name, column in columns] if known else []

    for pair in parsed.equalities:
        kinds = types(*pair)
        if (
            kinds
            and unified(kinds) is None
            and all(unified([kind]) is not None for kind in kinds)
            and pair[0][0] != pair[1][0]
        ):
            return False
    for comparison in parsed.comparisons:
        kinds = types(comparison.left.column, comparison.right.column)
        if kinds and comparable(kinds) is None and comparison.left.column[0] != comparison.right.column[0]:
            return False
    return True


def _conjuncts(text: str) -> list[str]:
    """Return the parts of a text between the AND that are outside of parentheses, CASE and BETWEEN."""
    try:
        tokens = sqlglot.tokenize(text)
    except sqlglot.errors.SqlglotError:
        return [text]
    parts, start, depth, between = [], 0, 0, 0
    for token in tokens:
        kind = token.token_type
        depth += (kind in (TokenType.L_PAREN, TokenType.CASE)) - (kind in (TokenType.R_PAREN, TokenType.END))
        if depth == 0 and kind == TokenType.BETWEEN:
            between += 1
        elif depth == 0 and kind == TokenType.AND and between:
            between -= 1
        elif depth == 0 and kind == TokenType.AND:
            parts.append(text[start : token.start].strip())
            start = token.end + 1
    return [*parts, text[start:].strip()]


class _ConjunctReader:
    def __init__(self, source: StatementText, streams: Sequence[Stream]) -> None:
        self.source, self._index = source, {stream.name: i for i, stream in enumerate(streams)}
        tables = {stream.name: stream for stream in streams}
        self.columns = Occurrences(source, tables, [Occurrence(name, name, exp.Null()) for name in tables])

    def resolved(self, node: exp.Expression) -> exp.Expression:
        """Return a tree with its columns resolved."""

        def change(reference: exp.Column) -> exp.Expression:
            if not reference.table:
                raise self.source.error(reference, f"{printed(reference)} has no stream; write stream.column")
            i = self._index.get(reference.table)
            if i is None:
                raise self.source.error(
                    reference, f"there is no stream {reference.table!r}; the streams are {', '.join(self._index)}"
                )
            self.columns.streams[i].type_of(reference.name)
            made = column((i, reference.name), reference.table)
            made.meta["start"] = self.source.offset(reference)
            return made

        return replaced(node, change)

    def add(self, node: exp.Expression, parsed: Parsed, text: str) -> None:
        """Add what a conjunct stands for."""
        columns = self.columns
        streams = [*{columns.streams[i].name: columns.streams[i] for i in sorted(reads(node))}.values()]
        if len(streams) < 2:
            raise self.source.error(
                node,
                f"{columns.text(node)} compares columns of {streams[0].place} only; write it as its filter:"
                f" {streams[0].filter_form}"
                if streams
                else f"{printed(node)} reads no column; leave it out",
            )
        columns.scalars().condition(node)  # its types
        for predicate in columns.split(node):
            plain, sides = columns.plain_predicate(predicate), columns.key_sides(predicate)
            if plain is not None:
                parsed_plain = parse_plain(plain)
                parsed.equalities.extend(parsed_plain.equalities)
                parsed.comparisons.extend(compared._replace(text=text) for compared in parsed_plain.comparisons)
            elif sides is not None:
                left, right = map(self._key, sides)
                parsed.equalities.append((left, right))
            else:
                parsed.conditions.append(columns.condition(predicate))

    def _key(self, node: exp.Expression) -> Column:
        """Return a side of an equality: a column of a stream, given or computed."""
        (i,) = reads(node)
        stream, place = self.columns.streams[i], place_of(node)
        if place is not None:
            return stream.name, place[1]
        value = self.columns.scalars(i).value(node)
        columns = [place[1] for place in map(place_of, own_columns(node)) if place is not None]
        name = printed(replaced(node, lambda reference: exp.Column(this=reference.this.copy())))
        while name in stream.schema.names:
            name += " "
        return stream.name, Derived(
            name, value.arrow, value.kind, tuple(dict.fromkeys(columns)), self.columns.text(node)
        )
