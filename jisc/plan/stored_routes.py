"""Routes over stored states: tables of routes that probe STAIRs and store into them, and of promotions.

A tuple climbs the path from its leaf to the root. At each join it probes the sibling: its SteM or its STAIR, or, if the
state of the sibling is not stored, the SteMs and STAIRs below it. The combination found is stored in the state of the
join, if that state is stored. The hops of a join depend on its two sides only, not on the leaf that the tuple came
from, so the hops of each side of each join are compiled once, and a route is a list of their numbers.

A hop that crosses a scan class scans the SteM of the one stream on the other side that has the class. If the sibling
is stored, a look-up of each tuple found follows, since its STAIR is indexed by these tuples.

A promotion computes the combinations of a state with one key. Its route descends the tree from the state and probes
the STAIRs below it as soon as their keys are bound. A second route probes SteMs only, for keys that those STAIRs have
not attempted.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from jisc.plan.states import Masks, StateId
from jisc.plan.tree import Tree
from stairs.descriptors import H_NEWER, H_STORE, SCANS
from stairs.graph import Comparison
from stairs.memory.arena import Routes
from stairs.routes import CompareRow, HopRow, OpRow, add_compares, op_row, route_tables


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
        """All that its tables depend on."""
        return self.tree, tuple(self.rows.items()), self.streams, self.filled, tuple(self.newer.items())


Step = tuple[list[int], int, int]
"""Numbers of hops, and the streams visited and the classes bound after them, as bits."""
Promotions = dict[int, tuple[int, int]]
"""Per row of a state, the rows of `span` with its two routes of promotion (E_ROUTE, E_BASE)."""


class HopTable:
    """The hops of all routes, each once; a route is a list of their numbers."""

    def __init__(self, masks: Masks) -> None:
        self.masks = masks
        self.everything = (1 << masks.graph.n_streams) - 1
        self.scans = sum(1 << c for c in masks.graph.scans)
        self.hops: list[HopRow] = []
        self.ops: list[OpRow] = []
        self.compares: list[CompareRow] = []
        self._steps: dict[tuple[int, ...], Step] = {}
        self._one_class: dict[tuple[int, int, int], list[int]] = {}
        """Hops to targets with one class, by stream, class and state."""

    def crosses(self, by: int, visited: int) -> bool:
        """Return whether a hop by this class comes from the other stream of a scan class."""
        return bool(self.scans >> by & 1 and self.masks.members[by] & visited)

    def probe(self, tree: Tree, by: int, state: int, visited: int, bound: int) -> Step:
        """Add the hop to a leaf (state -1) or to a stored state, unless it is there already."""
        masks, graph = self.masks, self.masks.graph
        classes = masks.classes_of(tree)
        stream = (tree.mask & -tree.mask).bit_length() - 1
        before, visited = visited, visited | tree.mask
        # With one class there is nothing to check or to bind, so the hop is the same in all routes.
        one_class = classes == 1 << by and not graph.compared & tree.mask
        if one_class and (known := self._one_class.get((stream, by, state))) is not None:
            return known, visited, bound
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
                    own = masks.members[c] & tree.mask
                    self.ops.append(op_row(graph, (own & -own).bit_length() - 1, c, check))
        found, wanted = list[tuple[Comparison, int, int]](), graph.compared & tree.mask
        while wanted:
            own = (wanted & -wanted).bit_length() - 1
            wanted &= wanted - 1
            found += [(one, own, 0) for one, _ in graph.compared_with(own, before)]
        column = offset = 0
        if state < 0:
            column, offset = graph.columns[by][stream], SCANS if scan else graph.offsets[stream][by]
        compare = add_compares(self.compares, found)
        self.hops.append(HopRow(stream, by, column, offset, first, len(self.ops), compare, state=state))
        added = [len(self.hops) - 1]
        if one_class:
            self._one_class[stream, by, state] = added
        return added, visited, bound | classes

    def expand(
        self, tree: Tree, index: int, visited: int, bound: int, rows: Mapping[StateId, int], plan: int, whole: bool
    ) -> Step:
        """Return the hops that compute the combinations of a tree, given the bound classes.

        index   the class by which the sibling of the tree probes it
        rows    rows of the stored states of plan number `plan`; plan -1 = over SteMs only
        whole   whether to compute the tree from its children although its own state may be stored
        """
        if tree.left is None or tree.right is None:
            classes = self.masks.classes[tree.stream] & bound
            return self.probe(tree, (classes & -classes).bit_length() - 1, -1, visited, bound)
        key = (tree.mask, index if plan >= 0 else -1, visited, bound, plan, whole and plan >= 0)
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
            if first is left and plan >= 0 and bound >> by & 1 and StateId(right.mask, by) in rows:
                first = left if StateId(left.mask, by) in rows else right
            one, visited, bound = self.expand(first, by, visited, bound, rows, plan, False)
            other = right if first is left else left
            two, visited, bound = self.expand(other, by, visited, bound, rows, plan, False)
            step = one + two, visited, bound
        self._steps[key] = step
        return step

    def promotions(self, plan: StoredPlan, number: int) -> Iterator[tuple[int, tuple[list[int], list[int]]]]:
        """Yield the row of each stored state of plan number `number`, and its routes: over STAIRs, over SteMs alone."""
        for side in self.masks.sides(plan.tree):
            if side.node.children and (row := plan.rows.get(side.state, -1)) >= 0:
                node, by = side.node, side.by
                over = self.expand(node, by, 0, 1 << by, plan.rows, number, True)[0]
                yield row, (over, self.expand(node, by, 0, 1 << by, {}, -1, True)[0])


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
    m = masks.graph.n_streams
    table = HopTable(masks)
    spans: list[tuple[int, int, int, int]] = []
    numbers: list[int] = []
    promotions: Promotions = {}

    def add(route: list[int]) -> None:
        spans.append((len(numbers), len(numbers) + len(route), len(numbers) + len(route), len(numbers) + len(route)))
        numbers.extend(route)

    storing: list[tuple[int, int, int]] = []
    """Numbers of hops that store: the hop, the state into which it stores, the mark of a later plan."""
    all_sides = [masks.sides(plan.tree) for plan in plans]
    for number, (plan, own) in enumerate(zip(plans, all_sides, strict=True)):
        up: dict[int, list[int]] = {plan.tree.mask: []}
        """By the streams of a node, the hops of a tuple from that node up to the root."""
        stored = {side.node.mask: -1 if side.state in plan.filled else plan.rows.get(side.state, -1) for side in own}
        for node, sibling, by, parent in reversed(own):
            bound = masks.classes_of(node)
            # A copy: the state that the last hop stores into depends on the node that the tuple came from.
            steps = list(table.expand(sibling, by, node.mask, bound, plan.rows, number, False)[0])
            store, newer = stored.get(parent.mask, -1), plan.newer.get(parent.mask, 0)
            if store >= 0 or newer:
                storing.append((len(table.hops), store, newer))
                table.hops.append(table.hops[steps[-1]])
                steps[-1] = storing[-1][0]
            up[node.mask] = steps + up[parent.mask]
        for i in range(m):
            add(up[1 << i] if plan.streams >> i & 1 else [])
    for number, plan in enumerate(plans):
        for row, (over, base) in table.promotions(plan, number):
            if row not in promotions:
                promotions[row] = len(spans), len(spans) + 1
                add(over)
                add(base)
    routes = route_tables(spans, table.hops, table.ops, compares=table.compares)
    stored_by = np.array(storing, np.int64).reshape(-1, 3)
    routes.hops[stored_by[:, 0], H_STORE] = stored_by[:, 1]
    routes.hops[stored_by[:, 0], H_NEWER] = stored_by[:, 2]
    return routes._replace(hops=routes.hops[np.array(numbers, np.int64)]), promotions
