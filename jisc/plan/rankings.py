"""Rankings: tables by which an eddy routes tuples hop by hop (`stairs.kernels.cacq`), over SteMs or over STAIRs.

A ranking is not a route. Per stream it ranks state modules; a tuple goes to the first module of the ranking for which
it has a key and which it has not visited. Tables say which module is probed by a key of a class, and which modules
give a tuple a key of the class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jisc.plan.one_key import one_key_tables
from jisc.plan.routes import probe_orders
from jisc.plan.states import Masks
from jisc.plan.stored_routes import HopTable, Promotions, StoredPlan, leaf_among
from jisc.plan.tree import Tree
from stairs.graph import JoinGraph
from stairs.memory.arena import Int64s, Routes
from stairs.routes import CompareRow, HopRow, OpRow, add_compares, op_row, route_tables

WORD = 64


class Module(NamedTuple):
    """A state module of a ranking.

    streams   its streams as bits: one for a SteM, several for a STAIR
    by        the class that a STAIR is indexed on; a SteM is probed by any of its classes
    state     the row of the STAIR, -1 = a SteM
    store     the row of the STAIR into which the combinations found here are inserted, -1 = none
    """

    streams: int
    by: int = -1
    state: int = -1
    store: int = -1


class _Ranked(NamedTuple):
    span: list[tuple[int, int, int, int]]
    hops: list[HopRow]
    ready: Int64s


class _Keys(NamedTuple):
    """The keys of a match in a module: its rows of `ops`, one for each of these classes, and its streams."""

    ops0: int
    ops1: int
    classes: list[int]
    streams: list[int]


def _keys_of(streams: int, graph: JoinGraph, ops: list[OpRow]) -> _Keys:
    """Append the keys of a module to `ops`. A class within the module alone is of no use to a tuple outside of it."""
    inside = [j for j in range(graph.n_streams) if streams >> j & 1]
    members = {c: j for j in reversed(inside) for c in graph.attributes[j]}
    if len(inside) > 1:
        members = {c: j for c, j in members.items() if any(not streams >> k & 1 for k in graph.members[c])}
    first, classes = len(ops), sorted(members)
    ops += [op_row(graph, members[c], c, False)._replace(check=2 if c in graph.scans else 0) for c in classes]
    return _Keys(first, len(ops), classes, inside)


def _rank(
    graph: JoinGraph, rankings: Sequence[Sequence[Module]], ops: list[OpRow], compares: list[CompareRow]
) -> _Ranked:
    """Return the hops of the rankings of all streams; append their keys to `ops`, their comparisons to `compares`."""
    m, n = graph.n_streams, graph.n_classes
    span: list[tuple[int, int, int, int]] = []
    hops: list[HopRow] = []
    known: dict[int, _Keys] = {}
    """Keys by the streams of the module: all rankings share them."""
    ready = np.zeros((m * n + m, 5), np.uint64)
    for i, ranking in enumerate(rankings):
        first = len(hops)
        for rank, module in enumerate(ranking):
            keys = known.get(module.streams)
            if keys is None:
                keys = known[module.streams] = _keys_of(module.streams, graph, ops)
            compared = [
                (comparison, j, _rank_of(other, i, ranking))
                for j in (keys.streams if graph.compared & module.streams else ())
                for comparison, other in graph.compared_with(j, ~module.streams)
            ]
            # For a SteM the kernel chooses the class, the column and the offset tuple by tuple.
            by = keys.classes if module.state < 0 else [module.by]
            hop = HopRow(keys.streams[0], by[0], ops0=keys.ops0, ops1=keys.ops1, state=module.state, store=module.store)
            hops.append(hop._replace(compare=add_compares(compares, compared)))
            word, bit = divmod(rank, WORD)
            for c in by:
                ready[i * n + c, word] |= np.uint64(1 << bit)
            for c in keys.classes:
                ready[i * n + c, 2 + word] |= np.uint64(1 << bit)
        span.append((first, len(hops), len(hops), len(hops)))
        for c in graph.attributes[i]:
            ready[i * n + c, 4] = 1
            ready[m * n + i, :2] |= ready[i * n + c, :2]
    return _Ranked(span, hops, ready.view(np.int64))


def _rank_of(stream: int, arrival: int, ranking: Sequence[Module]) -> int:
    """Return the rank of the first module with a stream; -1 = the stream is that of the arrival."""
    if stream == arrival:
        return -1
    return next(rank for rank, module in enumerate(ranking) if module.streams >> stream & 1)


def compile_rankings(tree: Tree, graph: JoinGraph) -> Routes:
    """Return the tables of CACQ: SteMs only, ranked in the order in which the plan would probe them.

    O(streams * (streams + classes)).
    """
    ops: list[OpRow] = []
    compares: list[CompareRow] = []
    if graph.on_one_key:
        return _one_key_rankings(tree, graph, ops)
    ranked = _rank(graph, [[Module(1 << j) for j in order] for order in probe_orders(tree, graph)], ops, compares)
    return route_tables(ranked.span, ranked.hops, ops, ranked.ready, compares)


def _one_key_rankings(tree: Tree, graph: JoinGraph, ops: list[OpRow]) -> Routes:
    """Return the tables of CACQ for a join on one key, where a tuple is ready for all modules at once."""
    m = graph.n_streams
    keys = [_keys_of(1 << j, graph, ops) for j in range(m)]
    ends, hops = one_key_tables(tree, [HopRow(j, 0, ops0=key.ops0, ops1=key.ops1) for j, key in enumerate(keys)])
    every = (1 << (m - 1)) - 1
    words = np.array([every & ((1 << WORD) - 1), every >> WORD], np.uint64)
    ready = np.ones((2 * m, 5), np.uint64)
    ready[:m, :2], ready[:m, 2:4] = words, words
    ready[m:, :2], ready[m:, 2:] = words, 0
    return route_tables(ends[:, [0, 1, 1, 1]], hops, ops, ready.view(np.int64))


def duals(plan: StoredPlan, masks: Masks) -> list[list[Module]]:
    """Return, per stream, the modules that its tuples meet between their leaf and the root: the ranking of an eddy.

    A STAIR behind a comparison is indexed by the tuples of the stream that is compared, so its SteM comes before it.
    """
    rankings: list[list[Module]] = [[] for _ in masks.classes]
    sides = masks.sides(plan.tree)
    stored = {side.node.mask: plan.rows[side.state] for side in sides if side.node.children}
    for side in sides:
        last = Module(side.sibling.mask, store=stored.get(side.parent.mask, -1))
        modules = [last]
        if side.sibling.children:
            modules = [last._replace(by=side.by, state=stored[side.sibling.mask])]
            if side.by in masks.graph.scans:
                scanned = leaf_among(side.sibling, masks.members[side.by])
                modules.insert(0, Module(scanned.mask))
        for i in side.node.streams:
            rankings[i] += modules
    return rankings


def compile_stair_rankings(plans: Sequence[StoredPlan], masks: Masks) -> tuple[Routes, Promotions]:
    """Return the tables of an eddy over STAIRs for one plan, all states of which are stored, with its promotions.

    O(streams^2 + hops of all promotions). See `jisc.plan.stored_routes.compile_stored` for the result.
    """
    (plan,) = plans
    table = HopTable(masks)
    ranked = _rank(masks.graph, duals(plan, masks), table.ops, table.compares)
    promotions: Promotions = {}
    numbers: list[int] = []
    table.add_plan(plan, 0)
    for row, routes in table.promotions(plan, 0):
        promotions[row] = len(ranked.span), len(ranked.span) + 1
        for route in routes:
            first = len(ranked.hops) + len(numbers)
            numbers += route
            ranked.span.append((first, first + len(route), first + len(route), first + len(route)))
    hops = ranked.hops + [table.hops[number] for number in numbers]
    return route_tables(ranked.span, hops, table.ops, ranked.ready, table.compares), promotions
