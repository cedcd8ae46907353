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
    sources = {name: [{one for one, _ in own} for own in keys.values()] for name, keys in _sources(query)}
    rest = list(sources)
    for name in reversed(list(sources)):
        others = {one for one in rest if one != name}
        known, grown = set(others), True
        while grown:
            found = {one for one in sources if all(own & known for own in sources[one])} - known
            grown, known = bool(found), known | found
        if name in known:
            rest.remove(name)
    return frozenset(sources) - frozenset(rest)


def undetermined(query: Joined, columns: Collection[Place]) -> list[Place]:
    """Return key columns of tables without which some columns of a result do not determine it. O(tables ^ 3).

    columns   (input, column); those of a stream are taken to identify its rows
    """
    keys = dict(_sources(query))
    known = {one.name for one in query.streams} - keys.keys()

    def follows(table: str, column: str) -> bool:
        equal = frozenset[Place]() if _full(query) else keys[table][column]
        return (table, column) in columns or any(one in columns or one[0] in known for one in equal)

    while found := {name for name in keys.keys() - known if all(follows(name, column) for column in keys[name])}:
        known |= found
    # A table that others determine needs no column of its own.
    needed = keys.keys() - known - determined(query)
    return [(name, one) for name, own in keys.items() if name in needed for one in own if not follows(name, one)]


def _full(query: Joined) -> bool:
    return any(one.how == "full" for one in query.branches)


def _sources(query: Joined) -> Iterator[tuple[str, dict[str, frozenset[Place]]]]:
    """Yield each table with the columns, for each column of its key, that are equal to it."""
    if not query.cores:
        for one in query.streams:
            yield from _of_table(one, query.classes)
        return
    nodes = [*query.cores]
    while nodes:
        node = nodes.pop(0)
        join = query.inner_joins().get(node.path)
        for i in node.own:
            yield from _of_table(query.streams[i], () if join is None else join.classes)
        nodes += [one for one in node.branches if one.how == "left"]


def _of_table(stream: Stream, classes: Sequence[AttributeClass]) -> Iterator[tuple[str, dict[str, frozenset[Place]]]]:
    if isinstance(stream, Table):
        yield stream.name, {key: frozenset(_equal(stream.name, key, classes)) for key in stream.shown_keys}


def _equal(name: str, column: str, classes: Sequence[AttributeClass]) -> Iterator[Place]:
    """Yield the columns that equal a column of an input in each result."""
    for one in classes:
        for k, component in enumerate(one.columns.get(name, ())):
            if column in component:
                yield from ((other, same) for other, columns in one.columns.items() for same in columns[k])
