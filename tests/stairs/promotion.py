"""Routes of single states outside of any plan: they store the composites of each state and promote its keys.

Each state is a track of its own, so that one push feeds all of them. A route visits SteMs only: first those of the
state, whose last hop stores the composite, then the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jisc.plan.routes import Hop, hop_row
from stairs.graph import JoinGraph
from stairs.memory.arena import Routes
from stairs.routes import HopRow, OpRow, route_tables
from stairs.stair import Stair


def hops_over(streams: Iterable[int], bound: set[int], graph: JoinGraph) -> list[Hop]:
    """Return hops to these streams in an order that predicates connect, and add their classes to those bound.

    Raises ValueError when the predicates do not connect the streams with the classes bound.
    """
    waiting, hops = sorted(streams), list[Hop]()
    while waiting:
        reachable = [j for j in waiting if not bound.isdisjoint(graph.attributes[j])]
        if not reachable:
            raise ValueError(f"no predicates connect {[graph.names[j] for j in waiting]} with classes {sorted(bound)}")
        stream = reachable[0]
        waiting.remove(stream)
        known = [c for c in graph.attributes[stream] if c in bound]
        binds = tuple(c for c in graph.attributes[stream] if c not in bound)
        hops.append(Hop(stream, known[0], tuple(known[1:]), binds, len(hops)))
        bound.update(binds)
    return hops


def compile_states(states: Sequence[Stair], graph: JoinGraph) -> tuple[Routes, list[int]]:
    """Return the tables in which state t is track t, and per state the row of `span` that promotes it."""
    span: list[tuple[int, int, int, int]] = []
    hops: list[HopRow] = []
    ops: list[OpRow] = []

    def add(route: Iterable[HopRow]) -> None:
        first = len(hops)
        hops.extend(route)
        span.append((first, len(hops), len(hops), len(hops)))

    for stair in states:
        for i in range(graph.n_streams):
            members, bound = set(stair.streams) - {i}, set(graph.attributes[i])
            others = set(range(graph.n_streams)) - members - {i}
            if i not in stair.streams:
                members, others = set(), members | others
            route = [hop_row(hop, graph, ops, []) for hop in hops_over(members, bound, graph)]
            if route:
                route[-1] = route[-1]._replace(store=stair.row)
            add(route + [hop_row(hop, graph, ops, []) for hop in hops_over(others, bound, graph)])
    promotions = []
    for stair in states:
        promotions.append(len(span))
        add(hop_row(hop, graph, ops, []) for hop in hops_over(stair.streams, {stair.by}, graph))
    return route_tables(span, hops, ops), promotions
