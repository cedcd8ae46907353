"""The tree of ring values (`eddy.aggregates.rings`): which queries have one, its roots, and the streams below them."""

from __future__ import annotations

from typing import NamedTuple

from eddy.query.query import Query
from stairs.graph import JoinGraph


class RingRoots(NamedTuple):
    """The roots, each but the first after its neighbour; none = ring values cannot serve the query, for this reason."""

    roots: tuple[int, ...]
    reason: str = ""


def served(query: Query) -> RingRoots:
    """Return whether ring values can serve the groups of a query, and from which root. O(streams)."""
    graph, aggregation = query.graph, query.aggregation
    if query.branches:
        return RingRoots((), "the query has branches")
    if aggregation is None or graph.n_streams < 2:
        return RingRoots((), "the query has one stream")
    if graph.tables:
        return RingRoots((), "the rows of a table change")
    if graph.comparisons or graph.scans:
        return RingRoots((), "the join has comparisons")
    attributes = {(i, c) for i, classes in enumerate(graph.attributes) for c in classes}
    if graph.forest() != attributes:
        return RingRoots((), "the join has a cycle")
    if query.conditions:
        return RingRoots((), "`where` reads joined rows")
    if graph.timed and not query.clock_rule.exact:
        return RingRoots(
            (), "rows may come later than younger ones; watermark='fastest' without lateness excludes that"
        )
    other = next(
        (
            aggregate.function
            for aggregate in aggregation.functions
            if not aggregate.rule.summed and aggregate.rule.form != "count"
        ),
        None,
    )
    if other is not None:
        return RingRoots((), f"{other} is neither a count nor a sum")
    if any(argument.expression is not None for argument in aggregation.inputs):
        return RingRoots((), "an argument is an expression")
    if aggregation.window is not None:
        return RingRoots((), "the groups have windows of event time")
    places = {f"{name}.{column}": query.index(name) for name, column in aggregation.places}
    wanted = {places[aggregation.inputs[number].name] for _, number in aggregation.keys}
    if not wanted:
        return RingRoots((max(range(graph.n_streams), key=lambda i: len(graph.attributes[i])),))
    tree = tree_of(graph, min(wanted))
    for v in list(wanted):
        while tree[v].parent >= 0:
            v = tree[v].parent
            wanted.add(v)
    if len(wanted) == graph.n_streams:
        return RingRoots((), "the group columns, and the streams between them, are of all streams")
    return RingRoots(tuple(v for v in tree if v in wanted))


class RingTreeNode(NamedTuple):
    """A stream of the tree: the class towards its parent, the parent, and its children with their classes."""

    up: int
    parent: int
    children: list[tuple[int, int]]


def tree_of(graph: JoinGraph, root: int) -> dict[int, RingTreeNode]:
    """Return the streams from the root down, each after its parent. The graph has no cycle."""
    nodes = {root: RingTreeNode(-1, -1, [])}
    waiting = [root]
    while waiting:
        v = waiting.pop()
        for c in graph.attributes[v]:
            if c == nodes[v].up:
                continue
            for w in graph.members[c]:
                if w != v:
                    nodes[v].children.append((w, c))
                    nodes[w] = RingTreeNode(c, v, [])
                    waiting.append(w)
    return nodes
