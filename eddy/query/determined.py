"""The tables of a query that its other tables determine. They are no part of the key of a result.

orders.buyer = person.id, where id is the key of person: an order has one person at most, so the key of a result
is that of orders
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from eddy.query.branch import Branch
from eddy.query.branch_nodes import BranchNode, Path
from eddy.query.predicates import AttributeClass
from eddy.streams.stream import Stream
from eddy.streams.table import Table

Place = tuple[str, str]
"""Input and column."""


class HasClasses(Protocol):
    """An inner join."""

    classes: tuple[AttributeClass, ...]


class Joined(Protocol):
    """The parts of a query that determine which rows its results have."""

    streams: tuple[Stream, ...]
    branches: tuple[Branch, ...]
    classes: tuple[AttributeClass, ...]

    @property
    def cores(self) -> tuple[BranchNode, ...]:
        """The cores of its trees of nodes; none without branches."""

    def inner_joins(self) -> Mapping[Path, HasClasses]:
        """Return its inner joins, by the positions of their streams."""


def determined(query: Joined) -> frozenset[str]:
    """Return the names of tables whose versions in a result follow from those of the other tables. O(tables ^ 3).

    A table of the core follows from others of the core only, since a row may lack those of a branch. In a full outer
    join no table follows from the other one.
    """
    if _full(query):
        return frozenset()
    sources = {name: [{other for other, _ in equal} for equal in keys.values()] for name, keys in _sources(query)}
    rest = list(sources)
    for name in reversed(list(sources)):
        others = {other for other in rest if other != name}
        known, grown = set(others), True
        while grown:
            reached = {source for source in sources if all(names & known for names in sources[source])} - known
            grown, known = bool(reached), known | reached
        if name in known:
            rest.remove(name)
    return frozenset(sources) - frozenset(rest)


def undetermined(query: Joined, columns: Collection[Place]) -> list[Place]:
    """Return key columns of tables without which some columns of a result do not determine it. O(tables ^ 3).

    columns   (input, column); those of a stream are taken to identify its rows
    """
    keys = dict(_sources(query))
    known = {stream.name for stream in query.streams} - keys.keys()

    def follows(table: str, column: str) -> bool:
        equal = frozenset[Place]() if _full(query) else keys[table][column]
        return (table, column) in columns or any(place in columns or place[0] in known for place in equal)

    while following := {name for name in keys.keys() - known if all(follows(name, column) for column in keys[name])}:
        known |= following
    # A table that others determine needs no column of its own.
    needed = keys.keys() - known - determined(query)
    return [
        (name, column)
        for name, key_columns in keys.items()
        if name in needed
        for column in key_columns
        if not follows(name, column)
    ]


def _full(query: Joined) -> bool:
    return any(branch.how == "full" for branch in query.branches)


def _sources(query: Joined) -> Iterator[tuple[str, dict[str, frozenset[Place]]]]:
    """Yield each table with the columns, for each column of its key, that are equal to it."""
    if not query.cores:
        for stream in query.streams:
            yield from _of_table(stream, query.classes)
        return
    nodes = [*query.cores]
    while nodes:
        node = nodes.pop(0)
        join = query.inner_joins().get(node.path)
        for i in node.streams:
            yield from _of_table(query.streams[i], () if join is None else join.classes)
        nodes += [branch for branch in node.branches if branch.how == "left"]


def _of_table(stream: Stream, classes: Sequence[AttributeClass]) -> Iterator[tuple[str, dict[str, frozenset[Place]]]]:
    if isinstance(stream, Table):
        yield stream.name, {key: frozenset(_equal(stream.name, key, classes)) for key in stream.shown_keys}


def _equal(name: str, column: str, classes: Sequence[AttributeClass]) -> Iterator[Place]:
    """Yield the columns that equal a column of an input in each result."""
    for attribute_class in classes:
        for k, component in enumerate(attribute_class.columns.get(name, ())):
            if column in component:
                yield from ((other, same) for other, columns in attribute_class.columns.items() for same in columns[k])
