"""Routes over stored states: tables of routes that probe STAIRs and store into them, and of promotions.

A tuple climbs the path from its leaf to the root. At each join it probes the sibling: its SteM or its STAIR, or, if the
state of the sibling is not stored, the SteMs and STAIRs below it. The combination found is stored in the state of the
join, if that state is stored. The hops of a join depend on its two sides only, not on the leaf that the tuple came
from, so the hops of each side of each join are compiled once, and a route is a list of their numbers.

A tree is *plain* if each of its streams has one class and no comparison. Its joins are all on that class, so the hops
to it check nothing and bind nothing: they do not even depend on what was visited before. They are found node by node,
from the leaves up, and the others by descent. Joins on one key have plain trees only.

A hop that crosses a scan class scans the SteM of the one stream on the other side that has the class. If the sibling
is stored, a look-up of each tuple found follows, since its STAIR is indexed by these tuples.

A promotion computes the combinations of a state with one key. Its route descends the tree from the state and probes
the STAIRs below it as soon as their keys are bound. A second route probes SteMs only, for keys that those STAIRs have
not attempted.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np

from jisc.plan.states import Masks, StateId
from jisc.plan.tree import Tree
from stairs.descriptors import H_NEWER, H_STORE, R_FIELDS, R_TRUNK, SCANS
from stairs.graph import Comparison
from stairs.memory.arena import Int64s, Routes
from stairs.routes import CompareRow, HopRow, OpRow, add_compares, fresh, op_row, route_tables, stem_hop


@dataclass(frozen=True)
class StoredPlan:
    """A plan, and for each of its stored states the row of its STAIR in the store.

    streams  the streams whose tuples follow its routes, as bits
    filled   states into which it does not store, because an older plan does
    newer    by the streams of a join, as bits: where the marks of a later plan start, which finds what is all new there
    """

    tree: Tree
    rows: Mapping[StateId, int]
    streams: int = -1
    filled: frozenset[StateId] = frozenset()
    newer: Mapping[int, int] = field(default_factory=dict)

    @property
    def key(self) -> Hashable:
        """Everything that the tables of the plan depend on: equal keys have equal tables."""
        return self.tree, tuple(self.rows.items()), self.streams, self.filled, tuple(self.newer.items())


Step = tuple[list[int], int, int]
"""Numbers of hops, and the streams visited and the classes bound after them, as bits."""
Promotions = dict[int, tuple[int, int]]
"""Per row of a state, the rows of `span` with its two routes of promotion (E_ROUTE, E_BASE)."""
OVER_STEMS = -1
"""The number, in place of that of a plan, of routes over SteMs only."""


class _Ways(NamedTuple):
    """The hops to plain trees under one plan.

    rows    the rows of its stored states
    probe   by the streams of a tree, its hops
    whole   by the streams of a join, its hops from its children, although its own state may be stored
    """

    rows: Mapping[StateId, int]
    probe: dict[int, list[int]]
    whole: dict[int, list[int]]


class HopTable:
    """The hops of all routes; a route is a list of their numbers."""

    def __init__(self, masks: Masks) -> None:
        self.masks = masks
        self.everything = (1 << masks.graph.n_streams) - 1
        self.scans = sum(1 << c for c in masks.graph.scans)
        self.hops: list[HopRow] = []
        self.ops: list[OpRow] = []
        self.compares: list[CompareRow] = []
        self._steps: dict[tuple[int, ...], Step] = {}
        stems = dict[int, list[int]]()
        self._ways = {OVER_STEMS: _Ways({}, stems, stems)}

    def add_plan(self, plan: StoredPlan, number: int) -> dict[int, list[int]]:
        """Add the hops to the plain trees of a plan, and return them by the streams of the tree. O(streams^2).

        To be called before `expand` with this number.
        """
        graph, hops, special = self.masks.graph, self.hops, ~self.masks.plain
        stems, rows = self._ways[OVER_STEMS].probe, plan.rows
        _, probe, whole = self._ways[number] = _Ways(rows, {}, {})
        stored = set[int]()
        for node, _, by, _, state, _ in self.masks.sides(plan.tree):
            mask, left, right = node.mask, node.left, node.right
            if mask & special:
                continue
            if left is None or right is None:
                probe[mask] = stems[mask] = [len(hops)]
                hops.append(stem_hop(graph, node.stream, by))
                continue
            first, second = left.mask, right.mask
            stems.setdefault(mask, stems[first] + stems[second])
            # Begin with a child that has a stored state.
            if second in stored and first not in stored:
                first, second = second, first
            probe[mask] = whole[mask] = probe[first] + probe[second]
            if (row := rows.get(state, -1)) >= 0:
                stored.add(mask)
                probe[mask] = [len(hops)]
                hops.append(HopRow((mask & -mask).bit_length() - 1, by, state=row))
        return probe

    def crosses(self, by: int, visited: int) -> bool:
        """Return whether a hop by this class comes from the other stream of a scan class."""
        return bool(self.scans >> by & 1 and self.masks.members[by] & visited)

    def probe(self, tree: Tree, by: int, state: int, visited: int, bound: int) -> Step:
        """Add the hop to a leaf (state -1) or to a stored state."""
        masks, graph = self.masks, self.masks.graph
        classes = masks.classes_of(tree)
        stream = (tree.mask & -tree.mask).bit_length() - 1
        before, visited = visited, visited | tree.mask
        first = len(self.ops)
        scan = self.crosses(by, before)
        # The keys of scan classes are never equal. A scan binds that of its match, by which a state may be indexed.
        bind = classes & ~bound | (1 << by if scan else 0)
        for check, wanted in ((True, classes & bound & ~(1 << by) & ~self.scans), (False, bind)):
            while wanted:
                c = (wanted & -wanted).bit_length() - 1
                wanted &= wanted - 1
                # A class is bound only if a stream that is still to be probed has it.
                if check or c == by or masks.members[c] & self.everything & ~visited:
                    members = masks.members[c] & tree.mask
                    self.ops.append(op_row(graph, (members & -members).bit_length() - 1, c, check))
        compared, wanted = list[tuple[Comparison, int, int]](), graph.compared & tree.mask
        while wanted:
            inner = (wanted & -wanted).bit_length() - 1
            wanted &= wanted - 1
            compared += [(comparison, inner, 0) for comparison, _ in graph.compared_with(inner, before)]
        column = offset = 0
        if state < 0:
            column, offset = graph.columns[by][stream], SCANS if scan else graph.offsets[stream][by]
        compare = add_compares(self.compares, compared)
        self.hops.append(HopRow(stream, by, column, offset, first, len(self.ops), compare, state=state))
        return [len(self.hops) - 1], visited, bound | classes

    def expand(self, tree: Tree, index: int, visited: int, bound: int, plan: int, whole: bool = False) -> Step:
        """Return the hops that compute the combinations of a tree, given the bound classes.

        index   the class by which the sibling of the tree probes it
        plan    number of a plan, or OVER_STEMS
        whole   whether to compute the tree from its children although its own state may be stored
        """
        rows, probe, from_children = self._ways[plan]
        if not tree.mask & ~self.masks.plain:
            return (from_children if whole else probe)[tree.mask], visited | tree.mask, bound
        if tree.left is None or tree.right is None:
            classes = self.masks.classes[tree.stream] & bound
            return self.probe(tree, (classes & -classes).bit_length() - 1, -1, visited, bound)
        over_stems = plan == OVER_STEMS
        key = (tree.mask, -1 if over_stems else index, visited, bound, plan, whole and not over_stems)
        known = self._steps.get(key)
        if known is not None:
            return known
        if not whole and bound >> index & 1 and (state := rows.get(StateId(tree.mask, index), -1)) >= 0:
            step = self.probe(tree, index, state, visited, bound)
            if self.crosses(index, visited):
                scanned = self.probe(leaf_among(tree, self.masks.members[index]), index, -1, visited, bound)
                step = scanned[0] + step[0], *step[1:]
        else:
            left, right = tree.left, tree.right
            by = self.masks.by(left, right)
            # Begin with a child that has a stored state and a bound key, else with any child that has a bound key.
            first = left if self.masks.classes_of(left) & bound else right
            if first is left and bound >> by & 1 and StateId(right.mask, by) in rows:
                first = left if StateId(left.mask, by) in rows else right
            near, visited, bound = self.expand(first, by, visited, bound, plan)
            other = right if first is left else left
            far, visited, bound = self.expand(other, by, visited, bound, plan)
            step = near + far, visited, bound
        self._steps[key] = step
        return step

    def promotions(self, plan: StoredPlan, number: int) -> Iterator[tuple[int, tuple[list[int], list[int]]]]:
        """Yield the row of each stored state of plan number `number`, and its routes: over STAIRs, over SteMs alone."""
        for node, _, by, _, state, _ in self.masks.sides(plan.tree):
            if node.left is not None and (row := plan.rows.get(state, -1)) >= 0:
                over = self.expand(node, by, 0, 1 << by, number, True)[0]
                yield row, (over, self.expand(node, by, 0, 1 << by, OVER_STEMS)[0])


def leaf_among(tree: Tree, streams: int) -> Tree:
    """Return the leaf of a tree whose stream is among some streams, given as bits."""
    while tree.left is not None and tree.right is not None:
        tree = tree.left if tree.left.mask & streams else tree.right
    return tree


def compile_stored(plans: Sequence[StoredPlan], masks: Masks) -> tuple[Routes, Promotions]:
    """Return the tables for plans that run side by side, and per state row the two promotion routes (rows of `span`).

    Row t * streams + i of `span` is the route of stream i in plan t. A state that several plans have is promoted as the
    first of them computes it. O(hops of all routes).
    """
    table = HopTable(masks)
    routes: list[list[int]] = []
    storing: list[tuple[int, int, int]] = []
    """Hops that store: number of the hop, the state into which it stores, the mark of a later plan. Number k is ~k in
    routes."""
    for number, plan in enumerate(plans):
        plain = table.add_plan(plan, number)
        into = {state.mask: (row, 0) for state, row in plan.rows.items() if state not in plan.filled}
        """Streams of a join -> the state into which it stores, and the mark of a later plan."""
        into.update({mask: (into.get(mask, (-1, 0))[0], mark) for mask, mark in plan.newer.items()})
        up: dict[int, list[int]] = {plan.tree.mask: []}
        """Streams of a node -> the hops of a tuple from this node up to the root."""
        for node, sibling, by, parent, _, bound in reversed(masks.sides(plan.tree)):
            steps = plain.get(sibling.mask) or table.expand(sibling, by, node.mask, bound, number)[0]
            stores = into.get(parent.mask)
            if stores is not None:
                # The state that the last hop stores into depends on the node that the tuple came from.
                storing.append((steps[-1], *stores))
                steps = [*steps[:-1], -len(storing)]
            up[node.mask] = steps + up[parent.mask]
        routes += [up[1 << i] if plan.streams >> i & 1 else [] for i in range(masks.graph.n_streams)]
    promotions: Promotions = {}
    for number, plan in enumerate(plans):
        for row, both in table.promotions(plan, number):
            if row not in promotions:
                promotions[row] = len(routes), len(routes) + 1
                routes += both
    tables = route_tables(spans_of(routes), table.hops, table.ops, compares=table.compares)
    numbers = np.array(list(chain.from_iterable(routes)), np.int64)
    last = np.flatnonzero(numbers < 0)
    stored = np.array(storing, np.int64).reshape(-1, 3)[~numbers[last]]
    numbers[last] = stored[:, 0]
    hops = tables.hops[numbers]
    hops[last, H_STORE], hops[last, H_NEWER] = stored[:, 1], stored[:, 2]
    return fresh(tables._replace(hops=hops)), promotions


def spans_of(routes: Sequence[Sequence[int]]) -> Int64s:
    """Return the rows of `span` for routes that follow each other in `hops`: all hops are trunk hops."""
    ends = np.array(list(accumulate(map(len, routes), initial=0)), np.int64)
    spans: Int64s = np.empty((len(routes), R_FIELDS), np.int64)
    spans[:, R_TRUNK], spans[:, 1:] = ends[:-1], ends[1:, None]
    return spans
