"""Fixed plans to compare with: the left-deep ones without a cross product, one of each kind of work.

Leaf hops that are bound at the same time are looked up together, whatever their order. So plans whose routes have the
same trunk hops in the same order, and the same leaf hops after each, do the same work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from jisc.plan.routes import Hop, route
from jisc.plan.tree import default_plan, left_deep
from stairs.graph import JoinGraph

Order = tuple[int, ...]
Work = tuple[tuple[tuple[Hop, ...], frozenset[Hop]], ...]
MOST_LISTED = 2_000
"""Left-deep orders that are examined at most."""


@dataclass(frozen=True)
class FixedPlans:
    """Plans to run: one order of streams for each kind of work, the default order first."""

    orders: list[Order]

    def texts(self, graph: JoinGraph) -> list[str]:
        """Return the plans as text."""
        return [left_deep(order).text(graph.names) for order in self.orders]


def extensions(order: Order, graph: JoinGraph) -> list[int]:
    """Return the streams that a predicate connects with the streams of an order. O(streams * classes)."""
    done = frozenset(order)
    return [j for j in range(graph.n_streams) if j not in done and graph.shared(done, frozenset([j]))]


def from_the_end(graph: JoinGraph) -> Order:
    """Return the order that begins with the last stream and always takes the last connected one."""
    order: Order = (graph.n_streams - 1,)
    while len(order) < graph.n_streams:
        order = (*order, extensions(order, graph)[-1])
    return order


def all_orders(graph: JoinGraph) -> Iterator[Order]:
    """Yield the left-deep orders without a cross product; the first two streams of one come in one order only."""
    waiting: list[Order] = [(i,) for i in reversed(range(graph.n_streams))]
    while waiting:
        order = waiting.pop()
        if len(order) == graph.n_streams:
            yield order
        for j in reversed(extensions(order, graph)):
            # (R S) and (S R) are one join.
            if len(order) > 1 or j > order[0]:
                waiting.append((*order, j))


def work(order: Order, graph: JoinGraph) -> Work:
    """Return the work of a left-deep plan, equal for plans that do the same."""
    tree, done = left_deep(order), []
    for i in range(graph.n_streams):
        hops = route(tree, i, graph)
        done.append((tuple(hop for hop in hops if not hop.leaf), frozenset(hop for hop in hops if hop.leaf)))
    return tuple(done)


def fixed_plans(graph: JoinGraph, most: int = 50) -> FixedPlans:
    """Return one left-deep plan of each kind of work, at most `most`, the default order first."""
    default = tuple(default_plan(graph).leaves())
    if graph.n_classes == 1:  # every hop is bound by the arrival
        return FixedPlans([default])
    kinds: dict[Work, Order] = {work(default, graph): default}
    for order in islice(all_orders(graph), MOST_LISTED):
        kinds.setdefault(work(order, graph), order)
    return FixedPlans(list(kinds.values())[:most])
