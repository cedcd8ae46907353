"""Tables for CACQ: per stream, a ranking of the SteMs, and the classes that make a tuple ready for each of them."""

from __future__ import annotations

import numpy as np

from jisc.plan.routes import probe_orders
from jisc.plan.tree import Tree
from stairs.graph import JoinGraph
from stairs.memory.arena import Routes
from stairs.routes import CompareRow, HopRow, OpRow, add_compares, op_row, route_tables

WORD = 64


def compile_rankings(tree: Tree, graph: JoinGraph) -> Routes:
    """Return the tables by which CACQ routes tuples. O(streams * (streams + classes)).

    SteMs rank in the order in which the plan would probe them. A ranking is not a route: a tuple goes to the first SteM
    in the ranking for which it has a key.
    """
    m, n = graph.n_streams, graph.n_classes
    span: list[tuple[int, int, int, int]] = []
    hops: list[HopRow] = []
    ops: list[OpRow] = []
    compares: list[CompareRow] = []
    rows: list[HopRow] = []
    """Per stream, the row of its SteM in every ranking."""
    for j in range(m):
        own = graph.attributes[j]
        # The kernel chooses the class, the column and the offset tuple by tuple.
        rows.append(HopRow(j, own[0], ops0=len(ops), ops1=len(ops) + len(own)))
        ops += [op_row(graph, j, c, False)._replace(check=2 if c in graph.scans else 0) for c in own]
    ready = np.zeros((m * n + m, 3), np.uint64)
    for i, ranking in enumerate(probe_orders(tree, graph)):
        first = len(hops)
        for rank, j in enumerate(ranking):
            own_compares = graph.compared_with(j, (1 << m) - 1) if graph.compared >> j & 1 else []
            found = [(one, j, -1 if other == i else ranking.index(other)) for one, other in own_compares]
            hops.append(rows[j]._replace(compare=add_compares(compares, found)))
            word, bit = divmod(rank, WORD)
            for c in graph.attributes[j]:
                ready[i * n + c, word] |= np.uint64(1 << bit)
        span.append((first, len(hops), len(hops), len(hops)))
        for c in graph.attributes[i]:
            ready[i * n + c, 2] = 1
            ready[m * n + i, :2] |= ready[i * n + c, :2]
    return route_tables(span, hops, ops, ready.view(np.int64), compares)
