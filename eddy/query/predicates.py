"""Attribute classes: the keys that equality predicates make.

`eddy.expressions.parser` reads the predicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from eddy.expressions.derived import Derived
from eddy.expressions.occurrences import side_text
from eddy.expressions.parser import Column
from eddy.streams.key_columns import HIDDEN
from eddy.streams.key_types import UNCOMPARED, unified
from eddy.streams.stream import Stream, no_input
from eddy.streams.table import Table
from stairs.errors import QueryError


@dataclass(frozen=True)
class AttributeClass:
    """A key that predicates share between streams: columns that are equal in every result.

    columns  by stream, for each component of the key the columns of the stream that must all be equal (usually one);
             a column may be `Derived`
    types    the type in which each component is compared
    """

    columns: dict[str, tuple[tuple[str, ...], ...]]
    types: tuple[pa.DataType, ...]

    def __str__(self) -> str:
        def columns_of(stream: str) -> str:
            texts = [" = ".join(_shown(stream, name) for name in component) for component in self.columns[stream]]
            return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"

        return " = ".join(columns_of(stream) for stream in self.columns)


def _shown(stream: str, column: str) -> str:
    return side_text(column.shown) if isinstance(column, Derived) else f"{stream}.{column.removeprefix(HIDDEN)}"


def _type(stream: Stream, column: str) -> pa.DataType:
    return column.kind if isinstance(column, Derived) else stream.type_of(column)


def _groups(pairs: list[tuple[Column, Column]]) -> list[list[Column]]:
    """Return the sets of columns that are equal to each other; columns and sets in order of first occurrence."""
    group: dict[Column, list[Column]] = {}
    for left, right in pairs:
        equal, other = group.setdefault(left, [left]), group.setdefault(right, [right])
        if equal is not other:
            equal.extend(other)
            for column in other:
                group[column] = equal
    groups: list[list[Column]] = []
    for members in group.values():
        if not any(members is known for known in groups):
            groups.append(members)
    return groups


def primary_keys(streams: Sequence[Stream]) -> tuple[AttributeClass | None, ...]:
    """Return the class of the primary key of each stream that is a table, None for the others."""
    classes: list[AttributeClass | None] = []
    for stream in streams:
        if not isinstance(stream, Table):
            classes.append(None)
            continue
        kinds = [unified([stream.type_of(column)]) for column in stream.keys]
        types = tuple(kind for kind in kinds if kind is not None)
        classes.append(AttributeClass({stream.name: tuple((column,) for column in stream.keys)}, types))
    return tuple(classes)


def attribute_classes(streams: Sequence[Stream], pairs: list[tuple[Column, Column]]) -> tuple[AttributeClass, ...]:
    """Return the classes that pairs of equal columns make. Classes over the same streams are merged into one.

    Raises QueryError for an unknown stream or column, types that cannot be equal, and a predicate within one stream.
    """
    by_name = {stream.name: stream for stream in streams}
    for pair in pairs:
        for name, column in pair:
            if name not in by_name:
                raise QueryError(f"predicate on {name}.{column}: {no_input(name, streams)}")
            _type(by_name[name], column)
    merged: dict[frozenset[str], list[tuple[dict[str, tuple[str, ...]], pa.DataType]]] = {}
    for members in _groups(pairs):
        types = {_shown(name, column): _type(by_name[name], column) for name, column in members}
        kind = unified(types.values())
        if kind is None:
            for column, column_type in types.items():
                if unified([column_type]) is None:
                    raise QueryError(f"{column} is {column_type}, {UNCOMPARED}")
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
                f"{' = '.join(types)} compares columns of {by_name[name].place} only; write it as its filter:"
                f" {by_name[name].filter_form}"
            )
        merged.setdefault(frozenset(component), []).append((component, kind))
    classes = []
    for components in merged.values():
        names = [stream.name for stream in streams if stream.name in components[0][0]]
        columns = {name: tuple(component[name] for component, _ in components) for name in names}
        classes.append(AttributeClass(columns, tuple(kind for _, kind in components)))
    return tuple(classes)
