"""Tables for plans with stored states: routes that probe STAIRs and store into them, and promotions.

A tuple goes up the path from its leaf to the root. At each join it probes the sibling: its SteM, its STAIR, or, when
the sibling's state is not stored, what lies below it. What it has then belongs into the state of the join, if that is
stored. What happens at a join depends on the two sides alone and not on where the tuple came from, so each side of each
join is worked out once, and a route is a list of those.

A promotion finds the combinations of a state with one key: down the tree from the state, by STAIRs below it where their
index is known by then. It has a second route over SteMs alone, for keys that those STAIRs do not have yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jisc.plan.states import Masks, StateId
from jisc.plan.tree import Tree
from stairs.memory.arena import Routes
from stairs.routes import HopRow, OpRow, op_row, route_tables, stem_hop


@dataclass(frozen=True)
class StoredPlan:
    """A plan and the row of each of its states that is stored."""

    tree: Tree
    rows: Mapping[StateId, int]


Step = tuple[list[int], int, int]
"""Hops, by number, and what is visited and bound after them."""


class _Templates:
    """Hops that routes are made of, each in the table once; a route is a list of their numbers."""

    def __init__(self, masks: Masks) -> None:
        self.masks = masks
        self.everything = (1 << masks.graph.n_streams) - 1
        self.hops: list[HopRow] = []
        self.ops: list[OpRow] = []
        self._steps: dict[tuple[int, ...], Step] = {}
        self._plain: dict[tuple[int, int, int], list[int]] = {}
        """Hops to what has one class only, by stream, class and state."""

    def probe(self, tree: Tree, by: int, state: int, visited: int, bound: int) -> Step:
        """Add a hop to a leaf or a stored state."""
        masks = self.masks
        classes = masks.classes_of(tree)
        stream = (tree.mask & -tree.mask).bit_length() - 1
        visited |= tree.mask
        # By the only class there is, nothing is left to check or to bind: the hop is the same wherever it stands.
        plain = classes == 1 << by
        if plain and (known := self._plain.get((stream, by, state))) is not None:
            return known, visited, bound
        first = len(self.ops)
        for check, wanted in ((True, classes & bound & ~(1 << by)), (False, classes & ~bound)):
            while wanted:
                c = (wanted & -wanted).bit_length() - 1
                wanted &= wanted - 1
                # A key that nobody ahead has decides nothing.
                if check or masks.members[c] & self.everything & ~visited:
                    own = masks.members[c] & tree.mask
                    j = (own & -own).bit_length() - 1
                    self.ops.append(op_row(masks.graph, j, c, check))
        last = len(self.ops)
        if state < 0:
            self.hops.append(stem_hop(masks.graph, stream, by, first, last))
        else:
            self.hops.append(HopRow(stream, by, ops0=first, ops1=last, state=state))
        made = [len(self.hops) - 1]
        if plain:
            self._plain[stream, by, state] = made
        return made, visited, bound | classes

    def expand(
        self, tree: Tree, index: int, visited: int, bound: int, rows: Mapping[StateId, int], plan: int, whole: bool
    ) -> Step:
        """Return the hops that find all of a tree, which its sibling probes by class `index`, by what is bound.

        rows    the states there are, those of the plan of this number; -1 = none
        whole   from what lies below, though its own state may be stored
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
        else:
            left, right = tree.left, tree.right
            by = self.masks.by(left, right)
            # Begin where a stored state can be probed at once, else where anything can.
            first = left if self.masks.classes_of(left) & bound else right
            if first is left and plan >= 0 and bound >> by & 1 and StateId(right.mask, by) in rows:
                first = left if StateId(left.mask, by) in rows else right
            one, visited, bound = self.expand(first, by, visited, bound, rows, plan, False)
            other = right if first is left else left
            two, visited, bound = self.expand(other, by, visited, bound, rows, plan, False)
            step = one + two, visited, bound
        self._steps[key] = step
        return step


def compile_stored(plans: Sequence[StoredPlan], masks: Masks) -> tuple[Routes, dict[int, tuple[int, int]]]:
    """Return the tables for plans that run side by side, and by state row the rows of `span` of its two promotions.

    Row t * streams + i of `span` is the route of stream i in plan t. O(hops of all routes).
    """
    m = masks.graph.n_streams
    templates = _Templates(masks)
    spans: list[tuple[int, int, int, int]] = []
    numbers: list[int] = []
    promotions: dict[int, tuple[int, int]] = {}

    def add(route: list[int]) -> None:
        spans.append((len(numbers), len(numbers) + len(route), len(numbers) + len(route), len(numbers) + len(route)))
        numbers.extend(route)

    all_sides = [masks.sides(plan.tree) for plan in plans]
    for number, (plan, own) in enumerate(zip(plans, all_sides, strict=True)):
        up: dict[int, list[int]] = {plan.tree.mask: []}
        """By the bits of a node, the hops of a tuple from there up to the root."""
        stored = {side.node.mask: plan.rows.get(side.state, -1) for side in own}
        for node, sibling, by, parent in reversed(own):
            bound = masks.classes_of(node)
            # Not shared with other routes: what is stored after the last hop depends on where the tuple came from.
            steps = list(templates.expand(sibling, by, node.mask, bound, plan.rows, number, False)[0])
            store = stored.get(parent.mask, -1)
            if store >= 0:
                last = templates.hops[steps[-1]]._replace(store=store)
                steps[-1] = len(templates.hops)
                templates.hops.append(last)
            up[node.mask] = steps + up[parent.mask]
        for i in range(m):
            add(up[1 << i])
    for number, (plan, own) in enumerate(zip(plans, all_sides, strict=True)):
        for side in own:
            if side.node.left is not None and (row := plan.rows.get(side.state, -1)) >= 0:
                promotions[row] = len(spans), len(spans) + 1
                node, by = side.node, side.by
                add(templates.expand(node, by, 0, 1 << by, plan.rows, number, True)[0])
                add(templates.expand(node, by, 0, 1 << by, {}, -1, True)[0])
    tables = route_tables(spans, templates.hops, templates.ops)
    return tables._replace(hops=tables.hops[np.array(numbers, np.int64)]), promotions
