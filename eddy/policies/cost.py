"""Cost: plans are searched by estimates, tried on recent tuples over the live state, and taken if they save enough.

Left-deep plans come from greedy orders that begin in the middle of the join graph, where most arrivals come from, and
with each stream in turn. Bushy ones are built *around* a stream that
brings many arrivals: what is left of the join graph without it falls into parts, each of which becomes a subtree that
its tuples probe, and which may be stored. A plan is taken when the model, corrected by what was measured of plans like
it, says that it saves more than the margin. So it slides between nothing stored and everything stored.
Source of storing subjoins around a stream's pipeline: Babu, Munagala, Widom, Motwani, "Adaptive caching for continuous
queries", ICDE 2005; of trying plans on samples of the state: see `stairs.samples`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from eddy.policies.base import Decision
from eddy.policies.costs import ARRIVAL, PROBE, VISIT
from eddy.policies.greedy import Greedy, centre
from eddy.policies.view import NOTHING, View
from jisc.orders import has_choice
from jisc.plan import Tree, join, left_deep

AROUND = 3
"""Streams that plans are built around at most."""
CHEAP = ARRIVAL + 3 * (PROBE + VISIT)
"""Nanoseconds of an arrival up to which storing is not thought of: there is too little to save."""
LEARNING = 0.5
"""Weight of the last measurement."""


@dataclass
class Cost:
    """The default.

    margin   what another order has to save, as a share of what an arrival costs now
    storing  the same for a change of what is stored: its prediction is less sure, and states have to be filled
    """

    margin: float = 0.04
    storing: float = 0.12
    name: str = "cost"
    _choice: bool | None = None
    _turn: int = 0
    _scales: dict[bool, float] = field(default_factory=dict)
    """What was measured in terms of what was predicted, for plans with something stored and with nothing."""

    def decide(self, view: View) -> Decision | None:
        """Try what the search proposes, and take the best if it saves enough."""
        if self._choice is None:
            self._choice = has_choice(view.masks)
        if not len(view.picks):
            return None
        now = self._learn(view)
        best, store, least = view.tree, view.stored, now
        greedy = Greedy(view, True)
        for tree in self._orders(view, greedy):
            cost = view.cost(tree) * self._scale(False)
            if cost < min(least, (1 - (self.storing if view.stored else self.margin)) * now):
                best, store, least = tree, NOTHING, cost
        if view.storing and (view.stored or view.cost(best) > CHEAP):
            for tree in dict.fromkeys([view.tree, best, *self._around(view, greedy)]):
                found = view.worth_storing(tree)
                if not found or (tree, found) == (view.tree, view.stored):
                    continue
                cost = view.stored_cost(tree, found) * self._scale(True)
                if cost < min(least, (1 - self.storing) * now):
                    best, store, least = tree, found, cost
        if (best, store) == (view.tree, view.stored):
            return None
        return Decision(best, store, f"{least:.0f} ns an arrival predicted, {now:.0f} now: {1 - least / now:.0%} saved")

    def _scale(self, stored: bool) -> float:
        """Return the correction of predictions; of a way that was never measured, that of the other one."""
        return self._scales.get(stored, self._scales.get(not stored, 1.0))

    def _learn(self, view: View) -> float:
        """Set what was measured against what is predicted of the present plan; return what it costs."""
        kind = bool(view.stored)
        predicted = view.stored_cost(view.tree, view.stored)
        if view.settled and not np.isnan(view.measured):
            found = view.measured / predicted
            self._scales[kind] = found + (1 - LEARNING) * (self._scales.get(kind, found) - found)
        return predicted * self._scale(kind)

    def _orders(self, view: View, greedy: Greedy) -> list[Tree]:
        """Return left-deep plans worth trying, the present one among them."""
        if not self._choice:
            return [view.tree]
        m = view.graph.n_streams
        self._turn = (self._turn + 1) % m
        starts = (centre(view), int(np.argmax(view.shares)), self._turn)
        return list(dict.fromkeys([view.tree, *(left_deep(greedy.order(i)) for i in starts)]))

    def _around(self, view: View, greedy: Greedy) -> list[Tree]:
        """Return bushy plans around the streams with most arrivals, as far as they have more than their share."""
        m = view.graph.n_streams
        busy = sorted(range(m), key=lambda i: -float(view.shares[i]))[:AROUND]
        return [around(view, greedy, i) for i in busy if view.shares[i] * m > 1.5]


def around(view: View, greedy: Greedy, i: int) -> Tree:
    """Return the plan in which tuples of stream i probe one subtree for each part that the join has without it."""
    masks, m = view.masks, view.graph.n_streams
    tree, left = Tree(i), (1 << m) - 1 & ~(1 << i)
    # The stream's own keys keep no two parts together: they meet in it.
    own = masks.classes[i]
    parts: list[tuple[int, ...]] = []
    while left:
        entry = next(j for j in range(m) if left >> j & 1 and masks.classes[j] & own)
        part, grown = 1 << entry, True
        while grown:
            grown = False
            classes = 0
            for j in range(m):
                if part >> j & 1:
                    classes |= masks.classes[j]
            for j in range(m):
                if left >> j & 1 and not part >> j & 1 and masks.classes[j] & classes & ~own:
                    part |= 1 << j
                    grown = True
        left &= ~part
        parts.append(greedy.order(entry, part))
    for part_order in parts:
        tree = join(tree, left_deep(part_order))
    return tree
