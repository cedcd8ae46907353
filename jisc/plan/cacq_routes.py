"""Tables for an eddy: the ranking of SteMs for the tuples of each stream, and what makes a tuple ready for them."""

from __future__ import annotations

import numpy as np

from jisc.plan.routes import probe_orders
from jisc.plan.states import Masks
from jisc.plan.tree import Tree
from stairs.descriptors import (
    H_CLASS,
    H_FIELDS,
    H_OPS0,
    H_OPS1,
    H_STATE,
    H_STORE,
    H_TARGET,
    O_FIELDS,
    R_END,
    R_FIELDS,
    R_LEAF,
    R_ROOT,
    R_TRUNK,
)
from stairs.memory.arena import Routes

WORD = 64


def compile_eddy(tree: Tree, masks: Masks) -> Routes:
    """Return the tables by which an eddy routes: SteMs rank as the plan would probe them.

    O(streams * (streams + classes)). Ranks are a preference, no route: a tuple goes to the first SteM in rank that it
    has a key for.
    """
    graph = masks.graph
    m, n = graph.n_streams, graph.n_classes
    span = np.zeros((m, R_FIELDS), np.int64)
    hops = np.zeros((m * (m - 1), H_FIELDS), np.int64)
    ops: list[tuple[int, ...]] = []
    own: list[tuple[int, int]] = []
    for j in range(m):
        own.append((len(ops), len(ops) + len(graph.attributes[j])))
        ops += [(c, 2 * k, 0, j, masks.column(c, j)) for k, c in enumerate(graph.attributes[j])]
    ready = np.zeros((m * n + m, 3), np.uint64)
    at = 0
    for i, ranking in enumerate(probe_orders(tree, graph)):
        span[i, R_TRUNK] = at
        for rank, j in enumerate(ranking):
            hops[at, [H_TARGET, H_STATE, H_STORE]] = j, -1, -1
            hops[at, H_CLASS] = graph.attributes[j][0]
            hops[at, [H_OPS0, H_OPS1]] = own[j]
            word, bit = divmod(rank, WORD)
            for c in graph.attributes[j]:
                ready[i * n + c, word] |= np.uint64(1 << bit)
            at += 1
        span[i, [R_LEAF, R_ROOT, R_END]] = at
        for c in graph.attributes[i]:
            ready[i * n + c, 2] = 1
            ready[m * n + i, :2] |= ready[i * n + c, :2]
    return Routes(span, hops, np.array(ops, np.int64).reshape(-1, O_FIELDS), ready.view(np.int64))
