"""What strategies that store states have in common: one STAIR for each inner node, in a store beside the SteMs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from jisc.plan.states import Difference, StateId, states_of
from jisc.plan.stored_routes import StoredPlan, compile_stored
from jisc.plan.tree import Tree
from jisc.strategies.base import Strategy, Transition, note
from stairs.descriptors import E_BASE, E_ROUTE, S_LO, S_NEXT, STORED
from stairs.errors import CapacityError
from stairs.memory.arena import Entries, Int64s, Routes
from stairs.modules import Modules
from stairs.stair import Stair
from stairs.storage.parts import Parts, Plain
from stairs.store import StairStore

TABLES = 32
"""Tables of plans that are kept for when the plan comes back."""


class StoredStrategy(Strategy):
    """A pipelined plan: every inner state below the root is stored."""

    mode = STORED

    def __init__(self, modules: Modules, tree: Tree) -> None:
        super().__init__(modules, tree)
        self.store = StairStore(modules)
        self.states: dict[StateId, Stair] = {}
        """The STAIRs of the plan."""
        self._gone: Int64s = np.zeros(4, np.int64)
        """Counters of states that were dropped."""
        self._tables: dict[tuple[Any, ...], tuple[Routes, dict[int, tuple[int, int]]]] = {}
        self._install(tree, self._states(tree))

    # Kept for another process (`eddy.live.engine_file`)

    def to_parts(self) -> Plain:
        """Return all that goes on. Tables are quickly made again, and kept they would be most of what is written."""
        return {**super().to_parts(), "store": self.store.to_parts(self.stairs), "gone": self._gone}

    def load_parts(self, parts: Parts) -> None:
        """Go on with the states that were kept."""
        stairs = self.store.load_parts(parts.part("store"))
        self._gone = parts.array("gone", np.int64, self._gone.shape)
        self._take(stairs, parts)
        super().load_parts(parts)

    def _take(self, stairs: list[Stair], parts: Parts) -> None:
        """Make these the states of the plan, and compile it."""
        self.states = {state_of(stair): stair for stair in stairs}
        possible = frozenset(states_of(self.tree, self.masks))
        parts.require(len(self.states) == len(stairs) and self.states.keys() <= possible, "states of another plan")
        self._compile(self.tree)

    def dismantle(self) -> None:
        """Let go of everything."""
        vars(self.store).clear()
        super().dismantle()

    def _states(self, tree: Tree) -> list[StateId]:
        """Return the states that are stored under a plan, those below others first."""
        return states_of(tree, self.masks)

    def _install(self, tree: Tree, missing: tuple[StateId, ...] | list[StateId]) -> None:
        """Add states, and make the plan's tables. A state is born complete if no window could fill it yet."""
        streams = self.modules.streams
        empty = sum(1 << j for j in np.flatnonzero(streams[:, S_NEXT] == streams[:, S_LO]).tolist())
        for state in missing:
            self.states[state] = self.store.add(state.streams, state.by, complete=bool(state.mask & empty))
        self._compile(tree)

    def _compile(self, tree: Tree) -> None:
        self._use([StoredPlan(tree, {state: stair.row for state, stair in self.states.items()})])

    def _use(self, plans: list[StoredPlan]) -> None:
        """Make tables for these plans, or take those made before: plans that drift away tend to come back."""
        key = tuple((plan.tree, tuple(plan.rows.items())) for plan in plans)
        known = self._tables.get(key)
        if known is None:
            if len(self._tables) >= TABLES:
                self._tables.clear()
            known = self._tables[key] = compile_stored(plans, self.masks)
        tables, promotions = known
        self.routes = self.store.routes = tables._replace(hops=tables.hops.copy())
        self.store.release()
        states = self.store.entries.states
        for stair in self.stairs:
            states[stair.row, E_ROUTE : E_BASE + 1] = promotions[stair.row]

    def _drop(self, states: Iterable[StateId]) -> None:
        self._remove([self.states.pop(state) for state in states])

    def _remove(self, stairs: list[Stair]) -> None:
        self._gone += self.store.counters(stairs)
        for stair in stairs:
            self.store.remove(stair)

    def _difference(self, tree: Tree) -> Difference:
        proven = self.store.proven
        open_states = frozenset(state for state, stair in self.states.items() if stair.row not in proven)
        return Difference(tuple(self.states), tuple(self._states(tree)), open_states)

    def _change(self, tree: Tree, done: Transition) -> None:
        change = self._difference(tree)
        note(done, change)
        self._before(change)
        self._drop(change.dropped)
        try:
            self._install(tree, change.missing)
            if change.missing:
                self.modules.allowance.ask(0, f"storing {len(change.missing)} more states")
            self._complete(change, done)
            done.states = tuple(self.states)
        except (CapacityError, MemoryError):
            # As far as they got; the old states come back with no key attempted, which is always right.
            self._drop([state for state in change.missing if state in self.states])
            self._install(self.tree, change.dropped)
            raise

    def _before(self, change: Difference) -> None:
        """Do what comes before states are dropped."""

    def _complete(self, change: Difference, done: Transition) -> None:
        """Compute missing states at once; what is left is promoted on the first probe of each key."""

    def _finished(self) -> list[Transition]:
        return super()._finished() if all(stair.proven for stair in self.states.values()) else []

    @property
    def entries(self) -> Entries | None:
        """The tables of the STAIRs."""
        return self.store.entries

    @property
    def stairs(self) -> list[Stair]:
        """The STAIRs of the plan."""
        return list(self.states.values())

    @property
    def nbytes(self) -> int:
        """Bytes of the STAIRs."""
        return self.store.nbytes

    def counters(self) -> dict[str, int]:
        """Return running totals, states that are gone included."""
        stored, _, promoted, computed = (self._gone + self.store.counters(self.stairs)).tolist()
        return {**super().counters(), "promoted": promoted, "computed": computed, "intermediate": stored}

    def abandon(self) -> None:
        """Let go of all states."""
        self.modules.caches.remove(self.store)
        gone = self._gone + self.store.counters(self.stairs)
        vars(self).update(store=StairStore(self.modules), _gone=gone, **self._nothing())

    def _nothing(self) -> dict[str, Any]:
        """Return the attributes of a strategy that has no states."""
        return {"states": {}}

    def _restore(self, trees: list[Tree], marks: Int64s | None) -> None:
        self._install(trees[-1], self._states(trees[-1]))


def state_of(stair: Stair) -> StateId:
    """Return the identity of a STAIR."""
    return StateId(sum(1 << j for j in stair.streams), stair.by)
