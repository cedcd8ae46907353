"""JISC: states of the new plan are completed just in time, key by key, on the first probe of each key.

A transition drops the states that the new plan does not have, keeps those of both plans with their marks, and adds the
others empty, with no key attempted. That is all, so a transition costs no more than compiling tables. The first probe
of a key completes it, in a kernel: `newest` in `stairs.kernels.climb` calls `promote` in `stairs.kernels.promotion`.
Nothing else of the past matters: a kept incomplete state is described by its marks (the paper's sec. 4.5, figure 4),
and a dropped state that returns starts empty.

Deviations from the letter of the paper are listed in `stairs.kernels.climb` (a present key need not be complete) and in
`stairs.stair` (when a state is complete). There are two more. A tuple that leaves a window is not traced through
incomplete states (sec. 4.2, 4.4), because an entry is dead as soon as one of its components is. And no queue has to be
drained before plans change (sec. 4.1), because each arrival is walked to its end before the next.
"""

from __future__ import annotations

from contextlib import suppress

from jisc.strategies.stored import StoredStrategy
from stairs.errors import CapacityError

LOOKS = 16
"""Key ids that completion examines in each incomplete state after a push, plus one per LOOK_EVERY arrivals."""
LOOK_EVERY = 4


class Jisc(StoredStrategy):
    """The strategy that promotes keys on their first probe, and after each push `background` keys of each state."""

    name = "jisc"
    can_promote = True

    def after_push(self, arrivals: int) -> None:
        """Advance the completion of incomplete states."""
        if self.states and (waiting := [stair for stair in self.stairs if not stair.proven]):
            # If memory is short, states stay incomplete; a probe then promotes its key, or is refused.
            with suppress(CapacityError, MemoryError):
                self.store.advance(waiting, max(LOOKS + arrivals // LOOK_EVERY, 2 * self.background), self.background)
        super().after_push(arrivals)
