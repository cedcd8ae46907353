"""The default strategy: each inner state of the plan is stored or virtual by choice, and the choice may change.

With nothing stored it equals `mjoin`: routes compiled over SteMs. With everything stored it equals `jisc`. In between,
a tuple probes the stored states and computes the virtual ones. A new state is empty and is promoted key by key, on the
first probe of each; a dropped state is forgotten. Either costs no more than compiling tables.
Source of caching some subjoins of a pipeline by measured benefit: Babu, Munagala, Widom, Motwani, "Adaptive caching for
continuous queries", ICDE 2005.
"""

from __future__ import annotations

from jisc.plan.states import StateId, states_of
from jisc.plan.tree import Tree
from jisc.strategies.jisc import Jisc
from stairs.storage.parts import Parts, Plain


class Eddy(Jisc):
    """The strategy that stores the states that the caller chooses, one by one."""

    name = "eddy"
    can_store = True
    prefers = True
    has_entries = True

    def to_parts(self) -> Plain:
        """Return all that another process needs to resume."""
        return {
            **super().to_parts(),
            "prefer": None if self.prefer is None else [list(classes) for classes in self.prefer],
        }

    def load_parts(self, parts: Parts) -> None:
        """Resume from what `to_parts` returned."""
        prefer = parts.value("prefer")
        if prefer is not None:
            attributes = self.modules.graph.attributes
            fits = type(prefer) is list and len(prefer) == len(attributes) and all(type(row) is list for row in prefer)
            # A stream without a preference has an empty row.
            fits = fits and all(
                sorted(row) in ([], [*classes]) for row, classes in zip(prefer, attributes, strict=True)
            )
            parts.require(fits, f"prefer {prefer}")
            prefer = tuple(map(tuple, prefer))
        self.prefer = prefer
        super().load_parts(parts)

    @property
    def stored(self) -> frozenset[StateId]:
        """The states of the plan that are stored."""
        return frozenset(self.states)

    @property
    def choice(self) -> frozenset[StateId] | None:
        """The states of the plan that are stored."""
        return self.stored

    def _states(self, tree: Tree) -> list[StateId]:
        return [state for state in states_of(tree, self.masks) if state in (self._chosen or ())]

    def _compile(self, tree: Tree) -> None:
        self._chosen = self.stored
        if self.states:
            super()._compile(tree)
        else:
            self._use_virtual(tree)


class Unstored(Eddy):
    """The strategy of a join over shared SteMs (`stairs.shared`), which stores no state."""

    can_store = False

    def _states(self, tree: Tree) -> list[StateId]:
        return []
