"""Tables for an eddy: the ranking of SteMs for the tuples of each stream, and what makes a tuple ready for them."""

from __future__ import annotations

import numpy as np

from jisc.plan.routes import probe_orders
from jisc.plan.states import Masks
from jisc.plan.tree import Tree
from stairs.memory.arena import Routes
from stairs.routes import HopRow, OpRow, op_row, route_tables

WORD = 64


def compile_eddy(tree: Tree, masks: Masks) -> Routes:
    """Return the tables by which an eddy routes: SteMs rank as the plan would probe them.

    O(streams * (streams + classes)). Ranks are a preference, no route: a tuple goes to the first SteM in rank that it
    has a key for.
    """
    graph = masks.graph
    m, n = graph.n_streams, graph.n_classes
    span: list[tuple[int, int, int, int]] = []
    hops: list[HopRow] = []
    ops: list[OpRow] = []
    own: list[tuple[int, int]] = []
    for j in range(m):
        own.append((len(ops), len(ops) + len(graph.attributes[j])))
        ops += [op_row(graph, j, c, False) for c in graph.attributes[j]]
    ready = np.zeros((m * n + m, 3), np.uint64)
    for i, ranking in enumerate(probe_orders(tree, graph)):
        first = len(hops)
        for rank, j in enumerate(ranking):
            hops.append(HopRow(j, graph.attributes[j][0], ops0=own[j][0], ops1=own[j][1]))
            word, bit = divmod(rank, WORD)
            for c in graph.attributes[j]:
                ready[i * n + c, word] |= np.uint64(1 << bit)
        span.append((first, len(hops), len(hops), len(hops)))
        for c in graph.attributes[i]:
            ready[i * n + c, 2] = 1
            ready[m * n + i, :2] |= ready[i * n + c, :2]
    return route_tables(span, hops, ops, ready.view(np.int64))
