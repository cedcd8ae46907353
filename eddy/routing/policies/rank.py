"""Rank: streams in the order of (partners - 1) / cost; the plan changes if that order is better by a margin.

Source of the rank: Ibaraki, Kameda, "On the optimal nesting order for computing N-relational joins", TODS 1984;
Krishnamurthy, Boral, Zaniolo, "Optimization of nonrecursive queries", VLDB 1986. The margin is a hysteresis: without it
two equally good plans would alternate forever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eddy.routing.policies.base import Decision
from eddy.routing.policies.greedy import Greedy, centre
from eddy.routing.view import View


@dataclass
class Rank:
    """One greedy order by the numbers of partners of recent tuples, pair of streams by pair.

    margin   the saving that a change needs, as a share of the present cost
    """

    margin: float = 0.1
    name: str = "rank"
    conditional = False

    def learnt(self) -> dict[str, Any]:
        """Return the margin; nothing is learnt."""
        return {"margin": self.margin}

    def resume(self, learnt: dict[str, Any]) -> None:
        """Resume with the margin."""
        self.margin = float(learnt["margin"])

    def decide(self, view: View) -> Decision | None:
        """Return the greedy order if it is cheaper by the margin."""
        tree = view.left_deep(Greedy(view, self.conditional).order(centre(view)))
        if tree == view.tree:
            return None
        now, then = view.cost(view.tree), view.cost(tree)
        if then < (1 - self.margin) * now:
            return Decision(tree, (), f"greedy order: {then:.0f} ns per arrival instead of {now:.0f}")
        return None
