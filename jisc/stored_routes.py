"""Tables for plans with stored states: routes that probe STAIRs and store into them, and promotions.

A tuple goes up the path from its leaf to the root. At each join it probes the sibling: its SteM, its STAIR, or, when
the sibling's state is not stored, what lies below it. What it has then belongs into the state of the join, if that is
stored. What happens at a join depends on the two sides alone and not on where the tuple came from, so each side of each
join is worked out once, and a route is a list of those.

A promotion finds the combinations of a state with one key: down the tree from the state, by STAIRs below it where their
index is known by then, else by SteMs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from jisc.plan import Tree
from jisc.states import Masks, StateId, joins
from stairs.arena import Routes
from stairs.fields import (
    H_CLASS,
    H_COLUMN,
    H_FIELDS,
    H_OFFSET,
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


@dataclass(frozen=True)
class StoredPlan:
    """A plan and the row of each of its states that is stored."""

    tree: Tree
    rows: Mapping[StateId, int]


@dataclass
class _Tables:
    """Hops and ops so far; hops are templates, which routes name by number."""

    masks: Masks
    rows: Mapping[StateId, int]
    hops: list[list[int]]
    ops: list[tuple[int, ...]]
    route: list[int] = field(default_factory=list)
    """The hops of the route or part of a route under way."""

    def probe(self, tree: Tree, by: int, state: int, visited: int, bound: int, universe: int) -> tuple[int, int]:
        """Add a hop to a leaf or a stored state, and return what is visited and bound after it."""
        graph = self.masks.graph
        classes = self.masks.classes_of(tree)
        stream = tree.stream if state < 0 else (tree.mask & -tree.mask).bit_length() - 1
        hop = [0] * H_FIELDS
        hop[H_TARGET], hop[H_CLASS], hop[H_STATE], hop[H_STORE] = stream, by, state, -1
        if state < 0:
            hop[H_COLUMN] = self.masks.column(by, stream)
            hop[H_OFFSET] = 2 * graph.attributes[stream].index(by)
        visited |= tree.mask
        hop[H_OPS0] = len(self.ops)
        for check, wanted in ((1, classes & bound & ~(1 << by)), (0, classes & ~bound)):
            while wanted:
                c = (wanted & -wanted).bit_length() - 1
                wanted &= wanted - 1
                # A key that nobody ahead has decides nothing.
                if check or self.masks.members[c] & universe & ~visited:
                    own = self.masks.members[c] & tree.mask
                    j = (own & -own).bit_length() - 1
                    self.ops.append((c, 2 * graph.attributes[j].index(c), check, j, self.masks.column(c, j)))
        hop[H_OPS1] = len(self.ops)
        self.route.append(len(self.hops))
        self.hops.append(hop)
        return visited, bound | classes

    def expand(
        self, tree: Tree, index: int, visited: int, bound: int, universe: int, whole: bool = False
    ) -> tuple[int, int]:
        """Add the hops that find all of a tree, which its sibling probes by class `index`, by what is bound.

        `whole`: from what lies below, though its own state may be stored.
        """
        if not tree.children:
            known = self.masks.classes_of(tree) & bound
            return self.probe(tree, (known & -known).bit_length() - 1, -1, visited, bound, universe)
        state = -1 if whole else self.rows.get(StateId(tree.mask, index), -1)
        if state >= 0 and bound >> index & 1:
            return self.probe(tree, index, state, visited, bound, universe)
        left, right = tree.children
        by = self.masks.by(left, right)
        # Begin where a stored state can be probed at once, else where anything can.
        near = [child for child in (left, right) if self.masks.classes_of(child) & bound]
        first = next((child for child in near if StateId(child.mask, by) in self.rows and bound >> by & 1), near[0])
        visited, bound = self.expand(first, by, visited, bound, universe)
        return self.expand(right if first is left else left, by, visited, bound, universe)


def compile_stored(plans: Sequence[StoredPlan], masks: Masks) -> tuple[Routes, dict[int, int]]:
    """Return the tables for plans that run side by side, and by state row the row of `span` of its promotion.

    Row t * streams + i of `span` is the route of stream i in plan t. O(hops of all routes).
    """
    m = masks.graph.n_streams
    everything = (1 << m) - 1
    spans: list[tuple[int, int]] = []
    numbers: list[int] = []
    templates: list[list[int]] = []
    ops: list[tuple[int, ...]] = []
    promotions: dict[int, int] = {}

    for plan in plans:
        tables = _Tables(masks, plan.rows, templates, ops)
        steps: dict[int, list[int]] = {}
        """By the bits of a node, the hops of a tuple that comes up from it."""
        above: dict[int, Tree] = {}
        for node, sibling in joins(plan.tree):
            tables.route = []
            by = masks.by(node, sibling)
            tables.expand(sibling, by, node.mask, masks.classes_of(node), everything)
            steps[node.mask] = tables.route
        for parent in plan.tree.inner():
            for child in parent.children:
                above[child.mask] = parent
        for node, sibling in joins(plan.tree):
            if node.children and (row := plan.rows.get(StateId(node.mask, masks.by(node, sibling)), -1)) >= 0:
                for child in node.children:
                    templates[steps[child.mask][-1]][H_STORE] = row
        for i in range(m):
            first, mask = len(numbers), 1 << i
            while mask != plan.tree.mask:
                numbers += steps[mask]
                mask = above[mask].mask
            spans.append((first, len(numbers)))
    for plan in plans:
        tables = _Tables(masks, plan.rows, templates, ops)
        for node, sibling in joins(plan.tree):
            by = masks.by(node, sibling)
            if node.children and (row := plan.rows.get(StateId(node.mask, by), -1)) >= 0:
                tables.route = []
                tables.expand(node, by, 0, 1 << by, node.mask, whole=True)
                promotions[row] = len(spans)
                spans.append((len(numbers), len(numbers) + len(tables.route)))
                numbers += tables.route
    span = np.zeros((len(spans), R_FIELDS), np.int64)
    ends = np.array(spans, np.int64).reshape(-1, 2)
    span[:, R_TRUNK] = ends[:, 0]
    span[:, [R_LEAF, R_ROOT, R_END]] = ends[:, 1:]
    hops = np.array(templates, np.int64).reshape(-1, H_FIELDS)[np.array(numbers, np.int64)]
    return Routes(
        span,
        np.ascontiguousarray(hops),
        np.array(ops, np.int64).reshape(-1, O_FIELDS),
        np.zeros((0, 3), np.int64),
    ), promotions
