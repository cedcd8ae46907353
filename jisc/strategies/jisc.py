"""JISC: states of the new plan are completed just in time, key by key, on the first probe of each key.

A transition drops the states that the new plan has not got, keeps those it shares with the old one, with their marks,
and makes the others empty with no key attempted; that is all, so it takes the time of making tables. Nothing else needs
to be known of what came before: a state kept incomplete is still exactly what its marks say (the paper's sec. 4.5,
figure 4), and one that was dropped and comes back begins anew, with no mark.

Where the paper is followed in the idea and not in the letter is said in `stairs.kernels.climb` (a key that is present
is not a key that is complete) and in `stairs.stair` (when a state is complete). Two more places. A tuple that leaves a
window need not be traced through incomplete states (sec. 4.2, 4.4): an entry is dead when a component is, whoever holds
it. And there is no queue to drain before plans change (sec. 4.1): an arrival is walked to its end before the next.
"""

from __future__ import annotations

from contextlib import suppress

from jisc.plan.tree import Tree
from jisc.strategies.stored import StoredStrategy
from stairs.errors import CapacityError
from stairs.modules import Modules

LOOKS = 16
"""Key ids that completion looks at in each incomplete state after a push, beside one for every LOOK_EVERY arrivals."""
LOOK_EVERY = 4


class Jisc(StoredStrategy):
    """Lazy promotion; `background` keys of each incomplete state are promoted after each push as well."""

    name = "jisc"

    def __init__(self, modules: Modules, tree: Tree, background: int = 0) -> None:
        super().__init__(modules, tree)
        self.background = background

    def after_push(self, arrivals: int) -> None:
        """Bring incomplete states nearer to completeness."""
        waiting = [stair for stair in self.stairs if not stair.proven]
        if waiting:
            # Without room for more the states stay incomplete: what is probed is promoted then, or refused then.
            with suppress(CapacityError, MemoryError):
                self.store.advance(waiting, max(LOOKS + arrivals // LOOK_EVERY, 2 * self.background), self.background)
        super().after_push(arrivals)
