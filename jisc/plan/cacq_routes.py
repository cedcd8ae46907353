"""Tables for CACQ: per stream, a ranking of the SteMs, and the classes that make a tuple ready for each of them."""

from __future__ import annotations

import numpy as np

from jisc.plan.routes import probe_orders
from jisc.plan.tables import HopRow, OpRow, op_row, routes_of
from jisc.plan.tree import Tree
from stairs.descriptors import R_END, R_FIELDS, R_LEAF, R_ROOT, R_TRUNK
from stairs.graph import JoinGraph
from stairs.memory.arena import Routes

WORD = 64


def compile_rankings(tree: Tree, graph: JoinGraph) -> Routes:
    """Return the tables by which CACQ routes tuples. O(streams * (streams + classes)).

    SteMs rank in the order in which the plan would probe them. A ranking is not a route: a tuple goes to the first SteM
    in the ranking for which it has a key.
    """
    m, n = graph.n_streams, graph.n_classes
    span = np.zeros((m, R_FIELDS), np.int64)
    hops: list[HopRow] = []
    ops: list[OpRow] = []
    rows: list[HopRow] = []
    """Per stream, the row of its SteM in every ranking."""
    for j in range(m):
        own = graph.attributes[j]
        # The kernel chooses the class, the column and the offset tuple by tuple.
        rows.append(HopRow(j, own[0], 0, 0, len(ops), len(ops) + len(own)))
        ops += [op_row(graph, j, c, False) for c in own]
    ready = np.zeros((m * n + m, 3), np.uint64)
    for i, ranking in enumerate(probe_orders(tree, graph)):
        span[i, R_TRUNK] = len(hops)
        for rank, j in enumerate(ranking):
            hops.append(rows[j])
            word, bit = divmod(rank, WORD)
            for c in graph.attributes[j]:
                ready[i * n + c, word] |= np.uint64(1 << bit)
        span[i, [R_LEAF, R_ROOT, R_END]] = len(hops)
        for c in graph.attributes[i]:
            ready[i * n + c, 2] = 1
            ready[m * n + i, :2] |= ready[i * n + c, :2]
    return routes_of(span, hops, ops)._replace(ready=ready.view(np.int64))
