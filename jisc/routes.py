"""From a plan to the tables the kernel walks.

The inner states of the plan are *virtual* here: nothing of them is stored, they are computed from the SteMs on probe. A
tuple of stream i goes up the path from its leaf to the root; at each join the sibling's streams are probed one by one,
in the sibling's order from left to right as far as predicates connect them.

A hop is a **leaf hop** when it probes by a class already bound and its stream brings nothing that anything else needs:
no further class to bind, none to check. What it finds depends on one key only, so the kernel looks it up once and
multiplies out at the end, and a leaf hop that finds nothing ends the walk before any other hop is taken. All others are
**trunk hops**, walked one inside the other in the plan's order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jisc.plan import Tree
from stairs.arena import Int64s, Routes
from stairs.fields import (
    H_CLASS,
    H_COLUMN,
    H_FIELDS,
    H_LEAF0,
    H_LEAF1,
    H_OFFSET,
    H_OPS0,
    H_OPS1,
    H_STATE,
    H_STORE,
    H_TARGET,
    O_CHECK,
    O_CLASS,
    O_COLUMN,
    O_FIELDS,
    O_OFFSET,
    O_STREAM,
    R_END,
    R_FIELDS,
    R_LEAF,
    R_ROOT,
    R_TRUNK,
)
from stairs.graph import JoinGraph


@dataclass(frozen=True)
class Hop:
    """One probe of a route: `stream` by the key of class `by`, checking and binding the key ids of other classes.

    `after` is the number of trunk hops taken before the class is bound: 0 = bound by the arrival.
    """

    stream: int
    by: int
    checks: tuple[int, ...]
    binds: tuple[int, ...]
    after: int

    @property
    def leaf(self) -> bool:
        """Whether nothing but the key of `by` decides what it finds, and nothing depends on it."""
        return not self.checks and not self.binds


def probe_order(tree: Tree, stream: int, graph: JoinGraph) -> list[int]:
    """Return the other streams in the order in which a tuple of `stream` probes them under the plan."""
    bound, order = set(graph.attributes[stream]), []
    for _, sibling in tree.path(stream):
        waiting = list(sibling.leaves())
        while waiting:
            following = next(j for j in waiting if not bound.isdisjoint(graph.attributes[j]))
            waiting.remove(following)
            bound.update(graph.attributes[following])
            order.append(following)
    return order


def route(tree: Tree, stream: int, graph: JoinGraph) -> list[Hop]:
    """Return the hops of a tuple of `stream`: trunk hops in the plan's order, then leaf hops by when they are bound."""
    bound_after = dict.fromkeys(graph.attributes[stream], 0)
    trunk: list[Hop] = []
    leaves: list[Hop] = []
    for j in probe_order(tree, stream, graph):
        known = [c for c in graph.attributes[j] if c in bound_after]
        # The class bound first: its key has had the most company, and a leaf hop of it is decided earliest.
        by = min(known, key=lambda c: (bound_after[c], c))
        checks = tuple(c for c in known if c != by)
        binds = tuple(c for c in graph.attributes[j] if c not in bound_after)
        hop = Hop(j, by, checks, binds, bound_after[by])
        if hop.leaf:
            leaves.append(hop)
        else:
            trunk.append(hop)
            bound_after.update(dict.fromkeys(binds, len(trunk)))
    return trunk + sorted(leaves, key=lambda hop: hop.after)


def compile_routes(tree: Tree, graph: JoinGraph) -> Routes:
    """Return the tables for a plan. O(streams^2 * classes of a stream)."""
    span = np.zeros((graph.n_streams, R_FIELDS), np.int64)
    hops: list[list[int]] = []
    ops: list[list[int]] = []
    for i in range(graph.n_streams):
        taken = route(tree, i, graph)
        trunk = [hop for hop in taken if not hop.leaf]
        leaves = [hop for hop in taken if hop.leaf]
        first, leaf = len(hops), len(hops) + len(trunk)
        root = leaf + sum(hop.after == 0 for hop in leaves)
        span[i, [R_TRUNK, R_LEAF, R_ROOT, R_END]] = first, leaf, root, leaf + len(leaves)
        enabled = root
        for n, hop in enumerate(taken):
            row = hop_row(hop, graph, ops)
            if n < len(trunk):
                row[H_LEAF0] = enabled
                enabled += sum(other.after == n + 1 for other in leaves)
                row[H_LEAF1] = enabled
            hops.append(row)
    return route_tables(span, hops, ops)


def hop_row(hop: Hop, graph: JoinGraph, ops: list[list[int]]) -> list[int]:
    """Return the row of a hop, and put its checks and bindings at the end of `ops`."""
    row = [0] * H_FIELDS
    row[H_TARGET], row[H_CLASS] = hop.stream, hop.by
    row[H_STATE] = row[H_STORE] = -1
    row[H_COLUMN] = graph.members[hop.by].index(hop.stream)
    row[H_OFFSET] = 2 * graph.attributes[hop.stream].index(hop.by)
    row[H_OPS0] = len(ops)
    for c in hop.checks + hop.binds:
        op = [0] * O_FIELDS
        op[O_CLASS], op[O_CHECK], op[O_STREAM] = c, int(c in hop.checks), hop.stream
        op[O_COLUMN] = graph.members[c].index(hop.stream)
        op[O_OFFSET] = 2 * graph.attributes[hop.stream].index(c)
        ops.append(op)
    row[H_OPS1] = len(ops)
    return row


def route_tables(span: Int64s, hops: list[list[int]], ops: list[list[int]]) -> Routes:
    """Return rows of the three tables as arrays."""
    return Routes(
        span,
        np.array(hops, np.int64).reshape(-1, H_FIELDS),
        np.array(ops, np.int64).reshape(-1, O_FIELDS),
        np.zeros((0, 3), np.int64),
    )
