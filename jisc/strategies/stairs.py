"""STAIRs: at a transition every entry of a dropped state is demoted, and every key of a new state is promoted.

Promotion goes key by key, each through all states from the leaves up. In the paper tuples move from STAIR to STAIR;
here each state is kept in addition to the SteMs. The amount of work is the same.
Source: Deshpande, Hellerstein, "Lifting the burden of history from adaptive query processing", VLDB 2004.
"""

from __future__ import annotations

from jisc.plan.states import Difference
from jisc.strategies.eager import EagerStrategy
from stairs.stair import Stair


class Stairs(EagerStrategy):
    """The strategy whose transitions demote every entry of dropped states, and promote every key of new ones."""

    name = "stairs"
    has_entries = True

    def _before(self, change: Difference) -> None:
        for state in change.dropped:
            self.states[state].demote_all()

    def _fill(self, stairs: list[Stair]) -> None:
        self.store.promote_keys(stairs)
        for stair in stairs:
            stair.settle()
