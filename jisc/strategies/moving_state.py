"""Moving State: at a transition the plan stops, its states are matched, moved and recomputed, then the new plan runs.

States of both plans are matched by identity; moving one means that it stays where it is. The others are computed in
whole, from the leaves up, each from its two children (Algorithms 1 and 2).
Source: Zhu, Rundensteiner, Heineman, "Dynamic plan migration for continuous queries over data streams", SIGMOD 2004,
sec. 4.1.
"""

from __future__ import annotations

from jisc.strategies.eager import EagerStrategy


class MovingState(EagerStrategy):
    """Eager, state by state, bottom up."""

    name = "moving-state"
