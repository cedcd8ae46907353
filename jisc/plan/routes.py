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

from operator import attrgetter
from typing import NamedTuple

from jisc.plan.tree import Tree
from stairs.graph import JoinGraph
from stairs.memory.arena import Routes
from stairs.routes import HopRow, OpRow, op_row, route_tables, stem_hop

Preference = tuple[tuple[int, ...], ...]
"""Per stream its classes, those first by which a chain of it is to be followed where there is a choice."""


class Hop(NamedTuple):
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


def probe_orders(tree: Tree, graph: JoinGraph) -> list[list[int]]:
    """Return for each stream the others in the order in which its tuples probe them under the plan. O(streams^2)."""
    orders: list[list[int]] = [[] for _ in range(graph.n_streams)]
    below: dict[int, list[int]] = {}
    for node in tree.inner():
        sides = [below[child.mask] if child.children else [child.stream] for child in node.children]
        below[node.mask] = sides[0] + sides[1]
        # Nodes come children first, so a stream meets its siblings from the leaf up to the root.
        for own, other in (sides, sides[::-1]):
            for i in own:
                orders[i] += connected(other, i, orders[i], graph) if len(other) > 1 else other
    return orders


def connected(group: list[int], stream: int, before: list[int], graph: JoinGraph) -> list[int]:
    """Return a group of streams in the order nearest to theirs in which a tuple that was at others before has a key."""
    bits = graph.class_bits
    bound = bits[stream]
    for j in before:
        bound |= bits[j]
    waiting, found = list(group), []
    while waiting:
        following = next(j for j in waiting if bits[j] & bound)
        waiting.remove(following)
        found.append(following)
        bound |= bits[following]
    return found


def probe_order(tree: Tree, stream: int, graph: JoinGraph) -> list[int]:
    """Return the other streams in the order in which a tuple of `stream` probes them under the plan."""
    return probe_orders(tree, graph)[stream]


def route(tree: Tree, stream: int, graph: JoinGraph) -> list[Hop]:
    """Return the hops of a tuple of `stream`: trunk hops in the plan's order, then leaf hops by when they are bound."""
    return hops_of(probe_order(tree, stream, graph), stream, graph)


def hops_of(order: list[int], stream: int, graph: JoinGraph, prefer: Preference | None = None) -> list[Hop]:
    """Return the hops of a tuple of `stream` that probes the others in this order (see `route`, `compile_routes`)."""
    bound_after = dict.fromkeys(graph.attributes[stream], 0)
    trunk: list[Hop] = []
    leaves: list[Hop] = []
    for j in order:
        own = graph.attributes[j]
        if len(own) == 1:
            leaves.append(Hop(j, own[0], (), (), bound_after[own[0]]))
            continue
        known = [c for c in own if c in bound_after]
        # The class bound first: its key has had the most company, and a leaf hop of it is decided earliest.
        by = min(known, key=lambda c: (bound_after[c], c) if prefer is None else (prefer[j].index(c), c))
        checks = tuple(c for c in known if c != by)
        binds = tuple(c for c in own if c not in bound_after)
        hop = Hop(j, by, checks, binds, bound_after[by])
        if hop.leaf:
            leaves.append(hop)
        else:
            trunk.append(hop)
            bound_after.update(dict.fromkeys(binds, len(trunk)))
    leaves.sort(key=attrgetter("after"))
    return trunk + leaves


def compile_routes(tree: Tree, graph: JoinGraph, prefer: Preference | None = None) -> Routes:
    """Return the tables for a plan. O(streams^2 * classes of a stream).

    prefer   by which class a stream is probed when keys of several are bound; the others are checked. None = by the one
             bound first
    """
    span = []
    hops: list[HopRow] = []
    ops: list[OpRow] = []
    made: dict[Hop, HopRow] = {}
    """Rows of hops by what they do: in many routes they are the same."""
    for i, order in enumerate(probe_orders(tree, graph)):
        taken = hops_of(order, i, graph, prefer)
        first, n_trunk = len(hops), sum(not hop.leaf for hop in taken)
        leaf, end = first + n_trunk, first + len(taken)
        root = leaf + sum(hop.after == 0 for hop in taken[n_trunk:])
        span.append([first, leaf, root, end])
        enabled = root
        for n, hop in enumerate(taken):
            row = made.get(hop)
            if row is None:
                row = made[hop] = hop_row(hop, graph, ops)
            if n < n_trunk:
                leaf0 = enabled
                while enabled < end and taken[enabled - first].after == n + 1:
                    enabled += 1
                row = row._replace(leaf0=leaf0, leaf1=enabled)
            hops.append(row)
    return route_tables(span, hops, ops)


def hop_row(hop: Hop, graph: JoinGraph, ops: list[OpRow]) -> HopRow:
    """Return the row of a hop, and put its checks and bindings at the end of `ops`."""
    first = len(ops)
    ops += [op_row(graph, hop.stream, c, True) for c in hop.checks]
    ops += [op_row(graph, hop.stream, c, False) for c in hop.binds]
    return stem_hop(graph, hop.stream, hop.by, first, len(ops))
