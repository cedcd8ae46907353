"""Moving State: at a transition the plan stops, states are matched, moved, recomputed; then it goes on.

States of both plans are matched by identity and moved, which here means that they stay where they are. The others are
computed in whole, from the leaves up, each from its two children (Algorithms 1 and 2).
Source: Zhu, Rundensteiner, Heineman, "Dynamic plan migration for continuous queries over data streams", SIGMOD 2004,
sec. 4.1.
"""

from __future__ import annotations

from contextlib import suppress

from jisc.plan.states import Difference
from jisc.strategies.base import Transition
from jisc.strategies.stored import StoredStrategy
from stairs.errors import CapacityError


class MovingState(StoredStrategy):
    """Eager, state by state, bottom up."""

    name = "moving-state"

    def _complete(self, change: Difference, done: Transition) -> None:
        for state in change.incomplete:
            self.states[state].promote_all()
        done.recomputed = len(change.missing)

    def undone(self) -> None:
        """Recompute what the states forgot."""
        # Without room for them they are promoted on their next probe.
        with suppress(CapacityError, MemoryError):
            for stair in self.stairs:
                stair.promote_all()
