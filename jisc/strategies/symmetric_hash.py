"""A pipeline of symmetric hash joins: every inner state is stored and complete from the first tuple on.

Its plan cannot change. It is the baseline of what being ready for change costs.
Source: Wilschut, Apers, "Dataflow query execution in a parallel main-memory environment", Distributed and Parallel
Databases, 1993.
"""

from __future__ import annotations

from contextlib import suppress

from jisc.plan.tree import Tree
from jisc.strategies.base import Transition, refuse
from jisc.strategies.stored import StoredStrategy
from stairs.errors import CapacityError


class SymmetricHash(StoredStrategy):
    """All stored, nothing changes."""

    name = "symmetric-hash"
    changes = False

    def _change(self, tree: Tree, done: Transition) -> None:
        raise refuse(self.name)

    def undone(self) -> None:
        """Recompute what the states forgot."""
        # Without room for them they are promoted on their next probe.
        with suppress(CapacityError, MemoryError):
            for stair in self.stairs:
                stair.promote_all()
