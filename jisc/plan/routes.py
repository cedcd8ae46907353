"""Routes over SteMs: from a plan with virtual states to the tables that the kernel walks.

The inner states of the plan are *virtual* here: they are not stored, probes compute them from the SteMs. A tuple of
stream i climbs the path from its leaf to the root. At each join it probes the streams of the sibling one by one, from
left to right as far as predicates connect them.

A hop is a **leaf hop** if it probes by a class that is bound already and its stream has no comparison and no other
class to check or to bind. Its matches depend on one key only, so the kernel looks the key up once and forms the product
at the end. A leaf hop without a match ends the walk before any further hop. All other hops are **trunk hops**: nested
loops in the order of the plan.
"""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from jisc.plan.connected import connected_order
from jisc.plan.one_key import one_key_tables
from jisc.plan.tree import Tree
from stairs.descriptors import SCANS
from stairs.graph import Comparison, JoinGraph
from stairs.memory.arena import Routes
from stairs.routes import CompareRow, HopRow, OpRow, add_compares, op_row, route_tables, stem_hop

Preference = tuple[tuple[int, ...], ...]
"""Per stream its classes, most preferred first: by which of them to probe the stream when several are bound.

() = by the class that was bound first, as for every stream without a preference.
"""


class Hop(NamedTuple):
    """One probe of a route: `stream` by the key of class `by`; other classes are checked or bound on a match.

    `after` is the number of trunk hops before the class is bound; 0 = the arrival binds it. `compares` has the
    comparisons to check on a match, each with the number of trunk hops before its other component is bound; `compared`
    is whether the stream has a comparison at all. `scan`: the class is a scan class, and all tuples are candidates.
    """

    stream: int
    by: int
    checks: tuple[int, ...]
    binds: tuple[int, ...]
    after: int
    compares: tuple[tuple[Comparison, int], ...] = ()
    compared: bool = False
    scan: bool = False

    @property
    def leaf(self) -> bool:
        """Whether the key of `by` alone decides the matches, and no other hop depends on them."""
        return not (self.checks or self.binds or self.compared)


def probe_orders(tree: Tree, graph: JoinGraph) -> list[list[int]]:
    """Return, per stream, the other streams in the order in which its tuples probe them. O(streams^2)."""
    orders: list[list[int]] = [[] for _ in range(graph.n_streams)]
    bound = list(graph.class_bits)
    """Per stream, the classes of the streams that its order has so far."""
    below: dict[int, list[int]] = {}
    for node in tree.inner():
        sides = [below[child.mask] if child.children else [child.stream] for child in node.children]
        below[node.mask] = sides[0] + sides[1]
        # Nodes come children first, so a stream meets its siblings from the leaf up to the root.
        for side, other in (sides, sides[::-1]):
            for i in side:
                orders[i] += connected_order(other, graph.class_bits, bound[i]) if len(other) > 1 else other
            classes = 0
            for j in other:
                classes |= graph.class_bits[j]
            for i in side:
                bound[i] |= classes
    return orders


def probe_order(tree: Tree, stream: int, graph: JoinGraph) -> list[int]:
    """Return the other streams in the order in which a tuple of `stream` probes them."""
    return probe_orders(tree, graph)[stream]


def route(tree: Tree, stream: int, graph: JoinGraph) -> list[Hop]:
    """Return the hops of a tuple of `stream`: trunk hops in plan order, then leaf hops in the order of `after`."""
    return hops_of(probe_order(tree, stream, graph), stream, graph)


def hops_of(order: list[int], stream: int, graph: JoinGraph, prefer: Preference | None = None) -> list[Hop]:
    """Return the hops of a tuple of `stream` that probes the others in this order; see `route` and `compile_routes`."""
    bound_after = dict.fromkeys(graph.attributes[stream], 0)
    trunk: list[Hop] = []
    levels = {stream: 0}
    visited = 1 << stream
    leaves: list[Hop] = []
    for j in order:
        classes = graph.attributes[j]
        compared = bool(graph.compared >> j & 1)
        if len(classes) == 1 and not compared:
            leaves.append(Hop(j, classes[0], (), (), bound_after[classes[0]]))
            continue
        # A scan class is the last resort, and its keys are never equal.
        equal = [c for c in classes if c not in graph.scans]
        known = [c for c in equal if c in bound_after] or [c for c in classes if c in bound_after]
        # The class that was bound first: a leaf hop of it is decided earliest.
        wished = () if prefer is None else prefer[j]
        by = min(known, key=lambda c: (wished.index(c) if wished else bound_after[c], c))
        checks = tuple(c for c in known if c != by and c in equal)
        binds = tuple(c for c in classes if c not in bound_after)
        others = graph.compared_with(j, visited) if compared else ()
        compares = tuple((comparison, levels[other]) for comparison, other in others)
        hop = Hop(j, by, checks, binds, bound_after[by], compares, compared, by in graph.scans)
        if hop.leaf:
            leaves.append(hop)
        else:
            trunk.append(hop)
            visited |= 1 << j
            levels[j] = len(trunk)
            bound_after.update(dict.fromkeys(binds, len(trunk)))
    leaves.sort(key=attrgetter("after"))
    return trunk + leaves


def compile_routes(tree: Tree, graph: JoinGraph, prefer: Preference | None = None) -> Routes:
    """Return the tables for a plan. O(streams^2 * classes of a stream).

    prefer   by which class a stream is probed when several of its classes are bound; the others are checked
    """
    if graph.on_one_key:
        ends, table = one_key_tables(tree, [stem_hop(graph, j, 0) for j in range(graph.n_streams)])
        return route_tables(ends[:, [0, 0, 1, 1]], table, ())
    span = []
    hops: list[HopRow] = []
    ops: list[OpRow] = []
    compares: list[CompareRow] = []
    rows: dict[Hop, HopRow] = {}
    """Rows of hops: equal hops of several routes share their ops."""
    for i, order in enumerate(probe_orders(tree, graph)):
        taken = hops_of(order, i, graph, prefer)
        first, n_trunk = len(hops), sum(not hop.leaf for hop in taken)
        leaf, end = first + n_trunk, first + len(taken)
        root = leaf + sum(hop.after == 0 for hop in taken[n_trunk:])
        span.append([first, leaf, root, end])
        enabled = root
        for n, hop in enumerate(taken):
            row = rows.get(hop)
            if row is None:
                row = rows[hop] = hop_row(hop, graph, ops, compares)
            if n < n_trunk:
                ready = enabled
                while enabled < end and taken[enabled - first].after == n + 1:
                    enabled += 1
                row = row._replace(leaf0=ready, leaf1=enabled)
            hops.append(row)
    return route_tables(span, hops, ops, compares=compares)


def hop_row(hop: Hop, graph: JoinGraph, ops: list[OpRow], compares: list[CompareRow]) -> HopRow:
    """Return the row of a hop, and append its checks and bindings to `ops`, its comparisons to `compares`."""
    first = len(ops)
    compare = add_compares(compares, [(comparison, hop.stream, level) for comparison, level in hop.compares])
    ops += [op_row(graph, hop.stream, c, True) for c in hop.checks]
    ops += [op_row(graph, hop.stream, c, False) for c in hop.binds]
    row = stem_hop(graph, hop.stream, hop.by, first, len(ops))
    return row._replace(compare=compare, offset=SCANS if hop.scan else row.offset)
