"""Moving State: at a transition the plan stops, its states are matched, moved and recomputed, then the new plan runs.

States of both plans are matched by identity; moving one means that it stays where it is. The others are computed in
whole, from the leaves up, each from its two children (Algorithms 1 and 2).

Inner states may be left out. The joins around such a state are then one operator with more than two inputs (an MJoin),
whose states are those of its inputs. They are matched and moved like others: a change between an MJoin and a tree of
binary joins over the same inputs computes the states within the tree, or drops them.
Source: Zhu, Rundensteiner, Heineman, "Dynamic plan migration for continuous queries over data streams", SIGMOD 2004,
sec. 4.1.
"""

from __future__ import annotations

from jisc.plan.states import StateId, states_of
from jisc.plan.tree import Tree
from jisc.strategies.eager import EagerStrategy
from stairs.storage.parts import Parts, Plain


class MovingState(EagerStrategy):
    """The strategy whose transitions compute missing states one after another, bottom up."""

    name = "moving-state"
    joins_many = True

    def _states(self, tree: Tree) -> list[StateId]:
        if self._chosen is None:
            return super()._states(tree)
        return [state for state in states_of(tree, self.masks) if state in self._chosen]

    @property
    def _derives(self) -> bool:
        return self._chosen is None and super()._derives

    @property
    def choice(self) -> frozenset[StateId] | None:
        """The states of the plan, if the caller has chosen them; None = all of every plan."""
        return None if self._chosen is None else frozenset(self.states)

    def to_parts(self) -> Plain:
        """Return all that another process needs to resume."""
        return {**super().to_parts(), "chosen": self._chosen is not None}

    def load_parts(self, parts: Parts) -> None:
        """Resume from what `to_parts` returned."""
        chosen = parts.flag("chosen")
        self._chosen = frozenset() if chosen else None
        super().load_parts(parts)
        parts.require(chosen or len(self.states) == len(self._states(self.tree)), "not all states are stored")
        self._chosen = frozenset(self.states) if chosen else None
