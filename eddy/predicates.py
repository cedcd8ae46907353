"""Equality predicates as text, and the attribute classes they make.

`R.a = S.a`, `(R.a, R.b) = (S.a, S.b)`, several joined by `AND`; names that are not plain words in double quotes. sqlglot
reads them, so quoting and white space are SQL's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import sqlglot
from sqlglot import exp

from eddy.stream import Stream
from eddy.types import unified
from stairs.errors import QueryError

Column = tuple[str, str]
"""(stream, column)"""


@dataclass(frozen=True)
class AttributeClass:
    """Columns made equal by predicates: per stream one or several columns for each component of the key.

    `columns[stream]` is a tuple of components, a component the columns of the stream that must all be equal (usually one);
    `types` are the types in which the components are compared.
    """

    columns: dict[str, tuple[tuple[str, ...], ...]]
    types: tuple[pa.DataType, ...]

    def __str__(self) -> str:
        def one(stream: str) -> str:
            texts = [" = ".join(f"{stream}.{name}" for name in component) for component in self.columns[stream]]
            return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"

        return " = ".join(one(stream) for stream in self.columns)


def _column(node: exp.Expression, text: str) -> Column:
    if not isinstance(node, exp.Column) or not node.table or node.args.get("db"):
        raise QueryError(
            f"predicate {text!r}: {node.sql()!r} is not a column of a stream; write stream.column, or"
            " \"odd stream\".\"odd column\" with quotes"
        )
    return node.table, node.name


def _sides(node: exp.Expression, text: str) -> Iterable[tuple[Column, Column]]:
    if isinstance(node, exp.Paren):
        yield from _sides(node.this, text)
    elif isinstance(node, exp.And):
        yield from _sides(node.left, text)
        yield from _sides(node.right, text)
    elif isinstance(node, exp.EQ):
        left = node.left.expressions if isinstance(node.left, exp.Tuple) else [node.left.unnest()]
        right = node.right.expressions if isinstance(node.right, exp.Tuple) else [node.right.unnest()]
        if len(left) != len(right):
            raise QueryError(f"predicate {text!r}: {len(left)} columns on one side and {len(right)} on the other")
        for one, other in zip(left, right, strict=True):
            yield _column(one, text), _column(other, text)
    else:
        raise QueryError(f"predicate {text!r} is not an equality of columns, like 'R.a = S.a' or '(R.a, R.b) = (S.a, S.b)'")


def parse_predicates(texts: Sequence[str]) -> list[tuple[Column, Column]]:
    """Return the pairs of columns that the predicates make equal, in order. Raises QueryError for anything else."""
    pairs: list[tuple[Column, Column]] = []
    for text in texts:
        if not isinstance(text, str):
            raise QueryError(f"a predicate is a string like 'R.a = S.a', not {text!r}")
        try:
            node = sqlglot.parse_one(text)
        except sqlglot.errors.SqlglotError as error:
            raise QueryError(
                f"predicate {text!r} cannot be read: {str(error).splitlines()[0]}; write it like 'R.a = S.a'"
            ) from error
        pairs.extend(_sides(node, text))
    return pairs


def _groups(pairs: list[tuple[Column, Column]]) -> list[list[Column]]:
    """Return the sets of columns that are equal to each other, columns and sets in order of first mention."""
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
    """Return the classes that pairs of equal columns make. Classes over the same streams become one of several columns.

    Raises QueryError for an unknown stream or column, types that can't be equal, and columns of one stream only.
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
            listed = ", ".join(f"{column} is {kind}" for column, kind in types.items())
            raise QueryError(f"these columns are compared but their types can't be equal: {listed}; cast one of them")
        component = {
            stream.name: tuple(column for name, column in members if name == stream.name)
            for stream in streams
            if any(name == stream.name for name, _ in members)
        }
        if len(component) == 1:
            name = next(iter(component))
            raise QueryError(
                f"{' = '.join(types)} compares columns of stream {name} only; that is a filter of the stream, not a join"
            )
        merged.setdefault(frozenset(component), []).append((component, kind))
    classes = []
    for components in merged.values():
        names = [stream.name for stream in streams if stream.name in components[0][0]]
        columns = {name: tuple(component[name] for component, _ in components) for name in names}
        classes.append(AttributeClass(columns, tuple(kind for _, kind in components)))
    return tuple(classes)
