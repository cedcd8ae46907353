"""Node operator sets of joins on Spark, whose nodes are partitions or key groups (`eddy.placement.operators`)."""

from __future__ import annotations

from collections.abc import Mapping

from eddy.placement.keys import classes_of
from eddy.placement.operators import NOS, texts
from eddy.placement.places import Place, by_class
from eddy.placement.program import place_operators
from eddy.placement.shares import Shares
from eddy.query.query import Query
from eddy.streams.windows import Rows


def why_unplaced(query: Query) -> str | None:
    """Return why the steps of a query have no places; None if they have places."""
    if query.branches:
        return "it has branches"
    if query.as_of:
        return "it has as-of joins"
    if query.comparisons:
        return f"{query.comparisons[0]} is no equality"
    counted = [stream.name for stream in query.streams if isinstance(stream.window, Rows)]
    if counted:
        return f"stream {counted[0]!r} has a Rows window"
    if query.tables_changing:
        return f"{query.tables_changing[0]} is a table"
    untimed = [stream.name for stream in query.streams if stream.time is None]
    if query.graph.timed and untimed:
        return f"{untimed[0]} has no event time"
    if len(query.streams) < 2:
        return "it has a single stream"
    return None


def homes(query: Query, nodes: int) -> tuple[Place, ...]:
    """Return per stream its home: all nodes, by its first key."""
    return tuple(by_class(range(nodes), min(classes)) for classes in classes_of(query))


def grid_place(shares: Shares) -> Place:
    """Return the place of a join in one round."""
    return Place(tuple(range(shares.partitions)), tuple((c, n) for c, n in enumerate(shares.counts) if n > 1))


def grid_operators(query: Query, shares: Shares) -> dict[str, list[str]]:
    """Return the operators of a join in one round, as text, by place."""
    place, m = grid_place(shares), len(query.streams)
    routes = {head: tuple((j, place) for j in range(m) if j != head) for head in range(m)}
    return operator_texts(query, shares, place_operators(homes(query, shares.partitions), routes))


def operator_texts(query: Query, shares: Shares, operators: Mapping[Place, NOS]) -> dict[str, list[str]]:
    """Return operators as text, by place."""
    labels = [f"[{key_class}]" for key_class in shares.classes]
    return {
        place.text(labels): texts(operator_set, query.graph.names, labels) for place, operator_set in operators.items()
    }
