"""The promotion of a state outside of any plan: its combinations with one key, over SteMs in an order of its own."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from jisc.plan.routes import Hop, hop_row
from jisc.plan.tables import OpRow, routes_of
from stairs.descriptors import R_END, R_FIELDS, R_LEAF, R_ROOT
from stairs.graph import JoinGraph
from stairs.memory.arena import Routes


def promote_route(streams: Iterable[int], by: int, graph: JoinGraph) -> list[Hop]:
    """Return the hops that find all combinations over a set of streams with one key of class `by`.

    The first stream of the set that has the class comes first, then the others as far as predicates connect them.
    Raises ValueError when the set has no attribute in the class, or is not connected.
    """
    waiting = sorted(set(streams))
    names = ", ".join(graph.names[j] for j in waiting)
    bound_after, hops = {by: 0}, list[Hop]()
    while waiting:
        reachable = [j for j in waiting if any(c in bound_after for c in graph.attributes[j])]
        if not reachable:
            raise ValueError(f"no predicates connect the streams {names}, begun with those joined on class {by}")
        stream = reachable[0]
        waiting.remove(stream)
        known = [c for c in graph.attributes[stream] if c in bound_after]
        probed = min(known, key=lambda c: (bound_after[c], c))
        checks = tuple(c for c in known if c != probed)
        # A class that no later stream of the set has decides nothing.
        ahead = {c for j in waiting for c in graph.attributes[j]}
        binds = tuple(c for c in graph.attributes[stream] if c not in bound_after and c in ahead)
        hops.append(Hop(stream, probed, checks, binds, bound_after[probed]))
        bound_after.update(dict.fromkeys(binds, len(hops)))
    return hops


def compile_promotion(streams: Iterable[int], by: int, graph: JoinGraph) -> Routes:
    """Return the tables of `promote_route`: one route, trunk hops only. O(streams^2 * classes of a stream)."""
    ops: list[OpRow] = []
    hops = [hop_row(hop, graph, ops) for hop in promote_route(streams, by, graph)]
    span = np.zeros((1, R_FIELDS), np.int64)
    span[0, [R_LEAF, R_ROOT, R_END]] = len(hops)
    return routes_of(span, hops, ops)
