"""STAIRs: at a transition every entry of a state that goes is demoted, and every key of a new one promoted.

Key by key, each through all states from the leaves up. In the paper tuples are moved from STAIR to STAIR, here each
state is beside the SteMs; the work is the same.
Source: Deshpande, Hellerstein, "Lifting the burden of history from adaptive query processing", VLDB 2004.
"""

from __future__ import annotations

from contextlib import suppress

from jisc.plan.states import Difference
from jisc.strategies.base import Transition
from jisc.strategies.stored import StoredStrategy
from stairs.errors import CapacityError


class Stairs(StoredStrategy):
    """Eager, key by key."""

    name = "stairs"

    def _before(self, change: Difference) -> None:
        for state in change.dropped:
            self.states[state].demote_all()

    def _complete(self, change: Difference, done: Transition) -> None:
        self.store.promote_keys(self.states[state] for state in change.incomplete)
        for state in change.incomplete:
            self.states[state].settle()
        done.recomputed = len(change.missing)

    def undone(self) -> None:
        """Promote again what the states forgot."""
        # Without room for them they are promoted on their next probe.
        with suppress(CapacityError, MemoryError):
            self.store.promote_keys(self.stairs)
            for stair in self.stairs:
                stair.settle()
