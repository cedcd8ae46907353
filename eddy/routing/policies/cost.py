"""Cost: plans are proposed by estimates, tried on recent tuples over the live state, and chosen if they save enough.

Left-deep plans come from greedy orders that begin at the centre of the join graph and at the stream with most arrivals,
and from a pool of random plans, some of which are tried each time; these find plans that statistics of pairs miss.
Bushy plans come from a dynamic program over estimated sizes of states (`jisc.plan.bushy`), and are built *around* the
streams with most arrivals: without such a stream the join graph falls into parts; each part becomes a subtree, which
the tuples of the stream probe and which may be stored. A plan is chosen if the model, corrected by measurements of
similar plans, predicts a saving above the margin. So the policy may store no state, some states, or all states. Where
the strategy stores all states by its own rule, the policy chooses the plan whose states cost least.
Source of storing subjoins around a stream's pipeline: Babu, Munagala, Widom, Motwani, "Adaptive caching for continuous
queries", ICDE 2005; of trying plans on samples of the state: see `stairs.samples`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt
from operator import itemgetter
from typing import Any

import numpy as np

from eddy.routing.costs import PROBE, VISIT, state_weights
from eddy.routing.policies.base import Decision, plan_texts, plans_of
from eddy.routing.policies.greedy import Greedy, centre
from eddy.routing.sizes import sizes
from eddy.routing.view import NOTHING, View
from jisc.plan.orders import has_choice, random_order
from jisc.plan.states import StateId
from jisc.plan.tree import Tree, join, left_deep

AROUND = 2
"""Upper bound of the number of streams around which plans are built."""
CHEAP = 3 * (PROBE + VISIT)
"""Nanoseconds of probing per arrival up to which no states are considered, because the possible saving is too small."""
LITTLE = 0.2
"""Least share of probes in the cost of an arrival for a trial of other plans. With no-good marks the share is low."""
LEARNING = 0.4
"""Weight of the last measurement."""
TRUST = 3.0
"""Upper bound of the factor between measurement and prediction; a larger one has another cause."""
DOUBT = 1.2
"""Correction of the predicted cost of storing until it has been measured."""
POOL = 24
"""Upper bound of the left-deep plans in the pool; plans that route alike count once."""
FIRST_DRAWN, DRAWN = 6, 2
"""Random plans drawn for the first decision, and for each later one until the pool is full."""
UNMEASURED = 0.5
"""Share of the cost below which states are stored before any plan has been measured: the model may be wrong."""
STALE = 6
"""Number of successive decisions without a new kind of plan after which no more plans are drawn."""
TRIED = 3
"""Plans of the pool tried at each decision, in turn."""


Priced = tuple[Tree, frozenset[StateId], float]
"""A plan, its stored states, and its predicted cost."""


@dataclass
class Cost:
    """The default policy.

    margin   the saving that a change of order needs, as a share of the present cost of an arrival
    storing  the same for storing states, whose saving is less certain: states must be filled, and may grow with drift
    """

    margin: float = 0.04
    storing: float = 0.25
    name: str = "cost"
    _choice: bool | None = None
    _pool: dict[bytes, Tree] = field(default_factory=dict)
    _turn: int = 0
    _stale: int = 0
    _scales: dict[bool, float] = field(default_factory=dict)
    """Measured cost relative to the prediction, for plans with stored states (True) and without (False)."""

    def learnt(self) -> dict[str, Any]:
        """Return the pool, the corrections and the position of the search."""
        pool = list(self._pool.values())
        return {
            "margin": self.margin,
            "storing": self.storing,
            "choice": self._choice,
            "streams": len(pool[0].streams) if pool else 0,
            "kinds": [kind.hex() for kind in self._pool],
            "plans": plan_texts(pool),
            "turn": self._turn,
            "stale": self._stale,
            "scales": [[stored, float(scale)] for stored, scale in self._scales.items()],
        }

    def resume(self, learnt: dict[str, Any]) -> None:
        """Resume with this pool, these corrections and this position."""
        self.margin, self.storing = float(learnt["margin"]), float(learnt["storing"])
        self._choice = None if learnt["choice"] is None else bool(learnt["choice"])
        plans = plans_of(learnt["plans"], learnt["streams"])
        self._pool = dict(zip(map(bytes.fromhex, learnt["kinds"]), plans, strict=True))
        self._turn, self._stale = int(learnt["turn"]), int(learnt["stale"])
        self._scales = {bool(stored): float(scale) for stored, scale in learnt["scales"]}

    def decide(self, view: View) -> Decision | None:
        """Return the best of the proposed plans if it saves enough."""
        if self._choice is None:
            self._choice = view.pipelined or has_choice(view.masks)
        if not len(view.picks):
            return None
        now = self._learn(view)
        if not view.stored and view.present - view.base < LITTLE * view.present:
            return None
        best, store, least = view.tree, view.stored, now
        greedy = Greedy(view, True)
        for tree in [*self._orders(view, greedy), *(self._bushy(view, greedy) if view.pipelined else ())]:
            cost = view.cost(tree) * self._scale(False)
            if cost < min(least, (1 - self.margin) * now):
                best, store, least = tree, NOTHING, cost
        # While the windows turn over, the current size of a state is no prediction of its future size.
        if view.storing and not view.turning and (view.stored or view.cost(best) - view.base > CHEAP):
            trees = list(dict.fromkeys([view.tree, best, *self._bushy(view, greedy)]))
            best, store, least = self._to_store(view, trees, (best, store, least))
        if (best, store) == (view.tree, view.stored) and least == now:
            return None
        return Decision(
            best, store, f"predicted {least:.0f} ns per arrival, {now:.0f} now: {1 - least / now:.0%} saved"
        )

    def _to_store(self, view: View, trees: list[Tree], best: Priced) -> Priced:
        """Return the best of these plans with stored states, if it saves enough against `best`; else return `best`.

        The saving is the one on all tuples of two samples: the plan was chosen by the first, so it may be only lucky
        there.
        """
        priced: list[Priced] = []
        for tree in trees:
            store = view.worth_storing(tree)
            if store and (tree, store) != (view.tree, view.stored):
                priced.append((tree, store, view.stored_cost(tree, store) * self._scale(True)))
        wish = min(priced, key=itemgetter(2), default=None)
        if wish is None or wish[2] > (1 - self.storing) * best[2]:
            return best
        if not self._scales and wish[2] > UNMEASURED * best[2]:
            return best
        again = view.again()
        wished = wish[2] + again.stored_cost(*wish[:2]) * self._scale(True)
        others = best[2] + again.stored_cost(*best[:2]) * self._scale(bool(best[1]))
        return wish if wished <= (1 - self.storing) * others else best

    def _scale(self, stored: bool) -> float:
        """Return the correction of predictions; if such plans were never measured, one between that of others and none.

        Part of what is wrong for the others is the speed of the machine, which is the same for both.
        """
        if stored in self._scales:
            return self._scales[stored]
        return sqrt(self._scales.get(not stored, 1.0)) * (DOUBT if stored else 1.0)

    def _learn(self, view: View) -> float:
        """Update the correction by the measured cost of the present plan; return its corrected cost."""
        kind = bool(view.stored)
        predicted = view.present
        if view.settled and not np.isnan(view.measured):
            ratio = min(max(view.measured / predicted, 1 / TRUST), TRUST)
            self._scales[kind] = ratio + (1 - LEARNING) * (self._scales.get(kind, ratio) - ratio)
        return predicted * self._scale(kind)

    def _orders(self, view: View, greedy: Greedy) -> list[Tree]:
        """Return left-deep plans to try, including the present one; of plans that route alike, one."""
        if not self._choice:
            return [view.tree]
        trees = [view.tree]
        trees += [left_deep(greedy.order(i)) for i in dict.fromkeys((centre(view), int(np.argmax(view.shares))))]
        drawing = len(self._pool) < POOL and self._stale < STALE
        if drawing:
            drawn = DRAWN if self._pool else FIRST_DRAWN
            trees += [left_deep(random_order(view.masks, view.rng)) for _ in range(drawn)]
        known = list(self._pool.values())
        trees += [known[(self._turn + k) % len(known)] for k in range(min(TRIED, len(known)))]
        self._turn += TRIED
        kinds = {view.kind(tree): tree for tree in reversed(trees)}
        before = len(self._pool)
        for kind, tree in kinds.items():
            if len(self._pool) < POOL:
                self._pool.setdefault(kind, tree)
        self._stale = 0 if len(self._pool) > before else self._stale + drawing
        return list(kinds.values())

    def _bushy(self, view: View, greedy: Greedy) -> list[Tree]:
        """Return the plan of the lightest states, and those around the streams with most arrivals."""
        bushy = view.tables.bushy
        lightest = bushy.lightest(state_weights(*sizes(view, bushy), bushy.members.sum(axis=1)))
        busy = sorted(range(view.graph.n_streams), key=lambda i: -float(view.shares[i]))[:AROUND]
        return [lightest, *(around(view, greedy, i) for i in busy)]


def around(view: View, greedy: Greedy, i: int) -> Tree:
    """Return the plan in which tuples of stream i probe one subtree per part of the join graph without i."""
    masks, m = view.masks, view.graph.n_streams
    tree, left = Tree(i), (1 << m) - 1 & ~(1 << i)
    # Classes of stream i do not connect two parts, because they connect the parts only through i.
    stream_classes = masks.classes[i]
    parts: list[tuple[int, ...]] = []
    while left:
        entry = next(j for j in range(m) if left >> j & 1 and masks.classes[j] & stream_classes)
        part, grown = 1 << entry, True
        while grown:
            grown = False
            classes = 0
            for j in range(m):
                if part >> j & 1:
                    classes |= masks.classes[j]
            for j in range(m):
                if left >> j & 1 and not part >> j & 1 and masks.classes[j] & classes & ~stream_classes:
                    part |= 1 << j
                    grown = True
        left &= ~part
        parts.append(greedy.order(entry, part))
    for part_order in parts:
        tree = join(tree, left_deep(part_order))
    return tree
