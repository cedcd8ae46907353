"""The tables of a query that its other tables determine. They are no part of the key of a result.

orders.buyer = person.id, where id is the key of person: an order has one person at most, so the key of a result
is that of orders
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from eddy.query.branch import Branch
from eddy.query.branch_nodes import BranchNode, Path
from eddy.query.predicates import AttributeClass
from eddy.streams.stream import Stream
from eddy.streams.table import Table


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
    if any(one.how == "full" for one in query.branches):
        return frozenset()
    sources = {name: list(own) for name, own in _sources(query)}
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


def _sources(query: Joined) -> Iterator[tuple[str, Iterator[set[str]]]]:
    """Yield each table with the inputs, for each of its key columns, that have a column equal to it."""
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


def _of_table(stream: Stream, classes: Sequence[AttributeClass]) -> Iterator[tuple[str, Iterator[set[str]]]]:
    if isinstance(stream, Table):
        yield stream.name, (_equal(stream.name, key, classes) for key in stream.shown_keys)


def _equal(name: str, column: str, classes: Sequence[AttributeClass]) -> set[str]:
    """Return the other inputs with a column that equals one in each result."""
    found = set[str]()
    for one in classes:
        for k, component in enumerate(one.columns.get(name, ())):
            if column in component:
                found |= {other for other, columns in one.columns.items() if columns[k]}
    return found - {name}
