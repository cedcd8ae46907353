"""Lottery: a stream that takes tuples and returns few has many tickets, and what is probed next is drawn by tickets.

There each tuple is routed by a lottery of its own. Here the order of a batch is drawn: the kernel reads tables, and
tuples of one batch take one route.
Source: Avnur, Hellerstein, "Eddies: continuously adaptive query processing", SIGMOD 2000, sec. 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eddy.routing.policies.base import Decision
from eddy.routing.view import View
from stairs.samples import Floats


@dataclass
class Lottery:
    """Draws orders.

    fading   what is left of a ticket at the next decision: the window over which tickets are counted
    """

    fading: float = 0.8
    name: str = "lottery"
    _tickets: Floats | None = None

    def learnt(self) -> dict[str, Any]:
        """Return the tickets."""
        return {"fading": self.fading, "tickets": None if self._tickets is None else self._tickets.tolist()}

    def resume(self, learnt: dict[str, Any]) -> None:
        """Go on with the tickets."""
        tickets = learnt["tickets"]
        self.fading = float(learnt["fading"])
        self._tickets = None if tickets is None else np.array(tickets, np.float64)

    def decide(self, view: View) -> Decision | None:
        """Count tickets, draw an order."""
        m = view.graph.n_streams
        gained = view.probed[:, 0] - view.probed[:, 1]
        before = np.zeros(m) if self._tickets is None else self._tickets
        self._tickets = self.fading * before + gained
        tickets = np.maximum(self._tickets, 0.0) + 1.0
        order: list[int] = []
        bound = 0
        while len(order) < m:
            ready = [j for j in range(m) if j not in order and (not order or view.masks.classes[j] & bound)]
            share = tickets[ready] / tickets[ready].sum()
            order.append(ready[int(view.rng.choice(len(ready), p=share))])
            bound |= view.masks.classes[order[-1]]
        tree = view.left_deep(order)
        return None if tree == view.tree else Decision(tree, None, "drawn by tickets")
