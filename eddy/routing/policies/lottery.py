"""Lottery: a stream that takes many tuples and returns few has many tickets; the next probe is drawn by tickets.

In the paper each tuple is routed by its own lottery. Here one order is drawn for all tuples up to the next decision,
because the kernel reads routes from tables.
Source: Avnur, Hellerstein, "Eddies: continuously adaptive query processing", SIGMOD 2000, sec. 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eddy.routing.policies.base import Decision
from eddy.routing.view import View
from jisc.plan.orders import drawn_order
from stairs.samples import Floats


@dataclass
class Lottery:
    """Draws orders.

    fading   factor of the earlier tickets at each decision: the window over which tickets are counted
    """

    fading: float = 0.8
    name: str = "lottery"
    _tickets: Floats | None = None

    def learnt(self) -> dict[str, Any]:
        """Return the tickets."""
        return {"fading": self.fading, "tickets": None if self._tickets is None else self._tickets.tolist()}

    def resume(self, learnt: dict[str, Any]) -> None:
        """Resume with these tickets."""
        tickets = learnt["tickets"]
        self.fading = float(learnt["fading"])
        self._tickets = None if tickets is None else np.array(tickets, np.float64)

    def decide(self, view: View) -> Decision | None:
        """Count tickets and draw an order."""
        m = view.graph.n_streams
        gained = view.probed[:, 0] - view.probed[:, 1]
        before = np.zeros(m) if self._tickets is None else self._tickets
        self._tickets = self.fading * before + gained
        tickets = np.maximum(self._tickets, 0.0) + 1.0

        def draw(ready: list[int]) -> int:
            share = tickets[ready] / tickets[ready].sum()
            return ready[int(view.rng.choice(len(ready), p=share))]

        tree = view.left_deep(drawn_order(view.masks, draw))
        return None if tree == view.tree else Decision(tree, None, "drawn by tickets")
