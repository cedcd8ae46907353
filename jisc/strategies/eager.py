"""Strategies whose states are always complete: missing ones are computed within the transition, while output waits."""

from __future__ import annotations

from contextlib import suppress

from jisc.plan.states import Difference
from jisc.strategies.stored import StoredStrategy
from jisc.strategies.transition import Transition
from stairs.errors import CapacityError
from stairs.stair import Stair


class EagerStrategy(StoredStrategy):
    """A strategy that computes each state in whole, one state after the other, children before parents."""

    eager = True

    def _complete(self, change: Difference, done: Transition) -> None:
        self._fill([self.states[state] for state in change.incomplete])
        done.recomputed = len(change.missing)

    def _fill(self, stairs: list[Stair]) -> None:
        """Compute these states in whole; children come before parents."""
        for stair in stairs:
            stair.promote_all()

    def refill(self) -> None:
        """Compute all states again."""
        # If memory is short, each key is promoted on its next probe.
        with suppress(CapacityError, MemoryError):
            self._fill(self.stairs)
