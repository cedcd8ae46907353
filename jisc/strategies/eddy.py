"""The eddy's own way: each inner state of the plan is stored or virtual, as its router decides, and that may change.

With nothing stored it is `mjoin`: routes compiled over SteMs. With everything stored it is `jisc`. In between, a tuple
probes the states that are stored and computes the others on its way. A state that comes is empty and promoted key by
key, on the first probe of each; one that goes is forgotten. Both take the time of making tables.
Source of caching some subjoins of a pipeline and not others, by measured benefit: Babu, Munagala, Widom, Motwani,
"Adaptive caching for continuous queries", ICDE 2005.
"""

from __future__ import annotations

from collections.abc import Iterable

from jisc.plan.routes import Preference, compile_routes
from jisc.plan.states import StateId, states_of
from jisc.plan.tree import Tree
from jisc.strategies.base import Saved, Transition
from jisc.strategies.jisc import Jisc
from stairs.descriptors import M_MODE, STORED, VIRTUAL
from stairs.memory.arena import Entries, Routes
from stairs.modules import Modules
from stairs.routes import no_routes
from stairs.storage.parts import Parts, Plain

PLANS = 64
"""Plans whose tables are kept for when they come back."""


class Eddy(Jisc):
    """States are stored one by one: to begin with those given."""

    name = "eddy"

    def __init__(
        self, modules: Modules, tree: Tree, background: int = 0, stored: Iterable[StateId] = frozenset()
    ) -> None:
        self._virtual: dict[tuple[Tree, Preference | None], Routes] = {}
        """Tables of plans with nothing stored, for when they come back."""
        self._wanted: frozenset[StateId] = frozenset(stored)
        self.prefer: Preference | None = None
        """By which class streams are probed while nothing is stored (`jisc.plan.routes.compile_routes`)."""
        super().__init__(modules, tree, background)

    def to_parts(self) -> Plain:
        """Return all that goes on."""
        return {**super().to_parts(), "prefer": None if self.prefer is None else [list(own) for own in self.prefer]}

    def load_parts(self, parts: Parts) -> None:
        """Go on with the states that were kept."""
        prefer = parts.plain("prefer")
        if prefer is not None:
            own = self.modules.graph.attributes
            fits = type(prefer) is list and all(type(row) is list for row in prefer)
            parts.require(fits and [sorted(row) for row in prefer] == [list(row) for row in own], f"prefer {prefer}")
            prefer = tuple(map(tuple, prefer))
        self.prefer = prefer
        super().load_parts(parts)

    @property
    def stored(self) -> frozenset[StateId]:
        """The states of the plan that are stored."""
        return frozenset(self.states)

    def change(
        self, tree: Tree, stored: Iterable[StateId], reason: str = "", prefer: Preference | None = None
    ) -> Transition:
        """Go over to another plan, or to other stored states, or both; states that the plan has not got are left out.

        prefer   by which classes to probe while nothing is stored; None = as now. Raises as `transition`, with the old
                 plan running
        """
        before = self._wanted, self.prefer
        self._wanted, self.prefer = frozenset(stored), self.prefer if prefer is None else prefer
        try:
            return self.transition(tree, reason)
        except BaseException:
            self._wanted, self.prefer = before
            raise

    @property
    def entries(self) -> Entries | None:
        """The tables of the STAIRs; None while none is stored, so that arrivals need not keep their low marks up."""
        return super().entries if self.states else None

    def _states(self, tree: Tree) -> list[StateId]:
        return [state for state in states_of(tree, self.masks) if state in self._wanted]

    def _compile(self, tree: Tree) -> None:
        self._wanted = self.stored
        if self.states:
            self.mode = self.modules.meta[M_MODE] = STORED
            super()._compile(tree)
            return
        self.mode = self.modules.meta[M_MODE] = VIRTUAL
        known = self._virtual.get((tree, self.prefer))
        if known is None:
            if len(self._virtual) >= PLANS:
                self._virtual.clear()
            known = self._virtual[tree, self.prefer] = compile_routes(tree, self.modules.graph, self.prefer)
        self.routes = known._replace(hops=known.hops.copy())
        self.store.routes = no_routes()
        self.store.release()

    def save(self) -> Saved:
        """Note what `restore` needs, the stored states as well."""
        saved = super().save()
        saved.stored, saved.prefer = self._wanted, self.prefer
        return saved

    def restore(self, saved: Saved) -> None:
        """Run the plan there was, with the states there were."""
        self._wanted, self.prefer = saved.stored, saved.prefer
        super().restore(saved)
