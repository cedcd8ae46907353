"""Equality predicates as text, and the attribute classes that they make.

`R.a = S.a`, `(R.a, R.b) = (S.a, S.b)`, several joined by `AND`; names other than plain words in double quotes.
sqlglot splits the text, so the rules for quotes, comments and white space are those of SQL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import sqlglot
from sqlglot.tokens import TokenType

from eddy.query.key_types import KEY_TYPES, unified
from eddy.query.stream import Stream
from stairs.errors import QueryError

Column = tuple[str, str]
"""(stream, column)"""


@dataclass(frozen=True)
class AttributeClass:
    """A key that predicates share between streams: columns that are equal in every result.

    columns  by stream, for each component of the key the columns of the stream that must all be equal (usually one)
    types    the type in which each component is compared
    """

    columns: dict[str, tuple[tuple[str, ...], ...]]
    types: tuple[pa.DataType, ...]

    def __str__(self) -> str:
        def one(stream: str) -> str:
            texts = [" = ".join(f"{stream}.{name}" for name in component) for component in self.columns[stream]]
            return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"

        return " = ".join(one(stream) for stream in self.columns)


class _Reader:
    """Parser of predicates from the tokens of sqlglot. A keyword is a name here, so a stream may be called order."""

    def __init__(self, text: str, what: str) -> None:
        self.text, self.what, self.at = text, what, 0
        try:
            self.tokens = sqlglot.tokenize(text)
        except sqlglot.errors.SqlglotError as error:
            raise QueryError(f"{what} {text!r} cannot be parsed: {str(error).splitlines()[0]}") from error

    def wrong(self, expected: str) -> QueryError:
        """Return the error for the current token, with what was expected in its place."""
        found = repr(self.tokens[self.at].text) if self.at < len(self.tokens) else "its end"
        return QueryError(
            f"{self.what} {self.text!r}: {expected} expected at {found}; write 'R.a = S.a', '(R.a, R.b) = (S.a, S.b)',"
            ' several with AND, and "odd stream"."odd column" in quotes'
        )

    def ahead(self, kind: TokenType) -> bool:
        """Return whether the next token is of this kind."""
        return self.at < len(self.tokens) and self.tokens[self.at].token_type == kind

    def took(self, kind: TokenType) -> bool:
        """Skip the next token if it is of this kind; return whether it was."""
        if self.ahead(kind):
            self.at += 1
            return True
        return False

    def name(self) -> str:
        """Parse the name of a stream or column."""
        if self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token.token_type == TokenType.IDENTIFIER or re.fullmatch(r"[^\W\d]\w*", token.text):
                self.at += 1
                return str(token.text)
        raise self.wrong("a name")

    def column(self) -> Column:
        """Parse stream.column."""
        stream = self.name()
        if not self.took(TokenType.DOT):
            raise self.wrong("'.' and a column")
        return stream, self.name()

    def side(self) -> list[Column]:
        """Parse a column, or several in parentheses."""
        if not self.took(TokenType.L_PAREN):
            return [self.column()]
        columns = [self.column()]
        while self.took(TokenType.COMMA):
            columns.append(self.column())
        if not self.took(TokenType.R_PAREN):
            raise self.wrong("',' or ')'")
        return columns

    def equalities(self) -> list[tuple[Column, Column]]:
        """Parse equalities joined by AND, to the end of the text."""
        pairs: list[tuple[Column, Column]] = []
        while True:
            left = self.side()
            if not self.took(TokenType.EQ):
                raise self.wrong("'='")
            right = self.side()
            if len(left) != len(right):
                raise QueryError(
                    f"{self.what} {self.text!r}: {len(left)} columns on one side and {len(right)} on the other"
                )
            pairs.extend(zip(left, right, strict=True))
            if self.at == len(self.tokens):
                return pairs
            if not self.took(TokenType.AND):
                raise self.wrong("AND or the end")


def parse_predicates(texts: Sequence[str]) -> list[tuple[Column, Column]]:
    """Return the pairs of columns that predicates make equal, in order. Raises QueryError for any other text."""
    pairs: list[tuple[Column, Column]] = []
    for text in texts:
        if not isinstance(text, str):
            raise QueryError(f"a predicate must be a string like 'R.a = S.a', not {text!r}")
        pairs.extend(_Reader(text, "predicate").equalities())
    return pairs


def column_place(text: str) -> Column | None:
    """Return the (stream, column) of a text such as `R.a` or `"odd stream"."odd column"`, None for other text."""
    try:
        reader = _Reader(text, "column")
        place = reader.column()
    except QueryError:
        return None
    return place if reader.at == len(reader.tokens) else None


def _groups(pairs: list[tuple[Column, Column]]) -> list[list[Column]]:
    """Return the sets of columns that are equal to each other; columns and sets in order of first occurrence."""
    group: dict[Column, list[Column]] = {}
    for left, right in pairs:
        one, other = group.setdefault(left, [left]), group.setdefault(right, [right])
        if one is not other:
            one.extend(other)
            for column in other:
                group[column] = one
    found: list[list[Column]] = []
    for members in group.values():
        if not any(members is known for known in found):
            found.append(members)
    return found


def attribute_classes(streams: Sequence[Stream], pairs: list[tuple[Column, Column]]) -> tuple[AttributeClass, ...]:
    """Return the classes that pairs of equal columns make. Classes over the same streams are merged into one.

    Raises QueryError for an unknown stream or column, types that cannot be equal, and a predicate within one stream.
    """
    by_name = {stream.name: stream for stream in streams}
    for pair in pairs:
        for name, column in pair:
            if name not in by_name:
                raise QueryError(
                    f"predicate on {name}.{column}: there is no stream {name!r}; the streams are {', '.join(by_name)}"
                )
            by_name[name].type_of(column)
    merged: dict[frozenset[str], list[tuple[dict[str, tuple[str, ...]], pa.DataType]]] = {}
    for members in _groups(pairs):
        types = {f"{name}.{column}": by_name[name].type_of(column) for name, column in members}
        kind = unified(types.values())
        if kind is None:
            for column, own in types.items():
                if unified([own]) is None:
                    raise QueryError(
                        f"{column} is {own}, whose values cannot be keys; keys are"
                        f" {', '.join(one.names for one in KEY_TYPES)}, or a dictionary or run-end encoding of these"
                    )
            listed = ", ".join(f"{column} is {kind}" for column, kind in types.items())
            raise QueryError(f"these columns are compared but their types cannot be equal: {listed}; cast one of them")
        component = {
            stream.name: tuple(column for name, column in members if name == stream.name)
            for stream in streams
            if any(name == stream.name for name, _ in members)
        }
        if len(component) == 1:
            name = next(iter(component))
            raise QueryError(
                f"{' = '.join(types)} compares columns of stream {name} only; write it as a filter of the stream:"
                " Stream(…, filter=…)"
            )
        merged.setdefault(frozenset(component), []).append((component, kind))
    classes = []
    for components in merged.values():
        names = [stream.name for stream in streams if stream.name in components[0][0]]
        columns = {name: tuple(component[name] for component, _ in components) for name in names}
        classes.append(AttributeClass(columns, tuple(kind for _, kind in components)))
    return tuple(classes)
