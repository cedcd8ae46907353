"""The columns by which the rows of a query's streams can be dealt: those that its equalities make equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eddy.query.query import Query

Choice = Mapping[str, frozenset[str]]
"""By stream the columns of which each is equal to those of the other streams: in each match, and of each row and its
partners and versions."""


def key_choices(query: Query) -> list[Choice]:
    """Return all choices of a column of each stream by which a match, its partners and its versions are in one place.

    The list has one choice without streams for a query over one stream, whose rows may be dealt by any column.
    """
    choices: list[Choice] = [{}]
    for path, join in query.inner_joins().items():
        names = [query.streams[i].name for i in path]
        if len(names) > 1:
            components = [
                {name: frozenset(key_class.columns[name][k]) for name in names}
                for key_class in join.classes
                if key_class.columns.keys() >= set(names)
                for k in range(len(key_class.types))
            ]
            choices = list(merged(choices, components))
    for as_of in query.as_of_joins:
        table = query.streams[as_of.table].name
        looked_up = [
            {table: frozenset([key.key]), (name := query.streams[key.stream].name): _equal(query, name, key.column)}
            for key in as_of.keys
        ]
        choices = list(merged(choices, looked_up))
    return choices


def merged(choices: Sequence[Choice], others: Sequence[Choice]) -> Iterator[Choice]:
    """Yield the choices that agree with a choice of each of two lists."""
    for choice in choices:
        for other in others:
            both = {name: columns & choice.get(name, columns) for name, columns in other.items()}
            if all(both.values()):
                yield {**choice, **both}


def _equal(query: Query, name: str, column: str) -> frozenset[str]:
    """Return a column of a stream and those that are equal to it in each match."""
    components = (
        component
        for join in query.inner_joins().values()
        for key_class in join.classes
        for component in key_class.columns.get(name, ())
        if column in component
    )
    return frozenset([column]).union(*components)
