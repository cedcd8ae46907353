"""The common part of strategies that store states: one STAIR per inner node, in a store next to the SteMs.

In a join of many streams on one key, a state needs no entries: its composites are the products of the chains of a key.
The heads are there already, and the presence words of a key (`stairs.kernels.presence`) say of each state whether it
has a composite, under every plan at once. So no STAIR is made, arrivals take the routes of a plan with nothing stored,
and a transition has no state to drop, to compute or to complete.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, ClassVar

import numpy as np

from jisc.plan.routes import Preference, compile_routes
from jisc.plan.states import Difference, StateId, states_of, streams_of
from jisc.plan.stored_routes import StoredPlan, compile_stored
from jisc.plan.tree import Tree
from jisc.strategies.base import Strategy
from jisc.strategies.transition import Transition
from stairs.descriptors import E_BASE, E_ROUTE, M_MODE, S_LO, S_NEXT, STORED, VIRTUAL
from stairs.errors import CapacityError
from stairs.memory.arena import Entries, Int64s, Routes
from stairs.routes import fresh, no_routes
from stairs.stair import NewState, Stair
from stairs.storage.parts import Parts, Plain
from stairs.store import StairStore

PLANS = 32
"""Plans whose tables are cached."""


class StoredStrategy(Strategy):
    """A pipelined plan: every inner state below the root is stored."""

    mode = STORED
    has_entries: ClassVar[bool] = False
    """Whether states have entries even where presence words could stand for them."""
    compile = staticmethod(compile_stored)
    """Makes the tables of the plans that run, and the routes of promotions."""

    def _start(self, tree: Tree) -> None:
        self.store = StairStore(self.modules)
        self.states: dict[StateId, Stair] = {}
        """The STAIRs of the plan."""
        self._gone: Int64s = np.zeros(4, np.int64)
        """Counters of dropped states."""
        self._tables: dict[tuple[Hashable, ...], tuple[Routes, Int64s]] = {}
        """Cached tables by plans and the rows of their states: the routes; for each state its row and promotions."""
        self._virtual: dict[tuple[Tree, Preference | None], Routes] = {}
        """Cached tables of plans with nothing stored."""
        self._install(tree, self._states(tree))

    # Saved for another process (`eddy.live.engine_file`)

    def to_parts(self) -> Plain:
        """Return all that another process needs to resume. Tables are compiled again: they would take most room."""
        return {**super().to_parts(), "store": self.store.to_parts(self.stairs), "gone": self._gone}

    def load_parts(self, parts: Parts) -> None:
        """Resume with the states that were saved."""
        stairs = self.store.load_parts(parts.part("store"))
        self._gone = parts.array("gone", np.int64, self._gone.shape)
        self._adopt(stairs, parts)
        super().load_parts(parts)

    def _adopt(self, stairs: list[Stair], parts: Parts) -> None:
        """Make these the states of the plan, and compile it."""
        self.states = {StateId.of(stair.streams, stair.by): stair for stair in stairs}
        possible = frozenset(() if self._derives else states_of(self.tree, self.masks))
        parts.require(len(self.states) == len(stairs) and self.states.keys() <= possible, "states of another plan")
        self._compile(self.tree)

    def dismantle(self) -> None:
        """Release all memory. The strategy cannot be used afterwards."""
        vars(self.store).clear()
        super().dismantle()

    def _states(self, tree: Tree) -> list[StateId]:
        """Return the states that have a STAIR under a plan, children before parents."""
        return [] if self._derives else states_of(tree, self.masks)

    def kept(self, tree: Tree) -> frozenset[StateId]:
        """Return the states that a plan has, unless the caller chooses them."""
        chosen = self.can_store or self._chosen is not None
        return frozenset() if chosen else frozenset(self._states(tree))

    @property
    def _derives(self) -> bool:
        """Whether presence words stand for all states."""
        return self.modules.has_presence and not self.has_entries

    def _install(self, tree: Tree, missing: tuple[StateId, ...] | list[StateId]) -> None:
        """Add states, and make the tables of the plan. A state with an empty window below it is complete at once."""
        streams = self.modules.streams
        empty = sum(1 << j for j in np.flatnonzero(streams[:, S_NEXT] == streams[:, S_LO]).tolist())
        new = [
            NewState(inside, by, bool(mask & empty))
            for (mask, by), inside in zip(missing, streams_of(missing), strict=True)
        ]
        self.states.update(zip(missing, self.store.add(new), strict=True))
        self._compile(tree)

    def _compile(self, tree: Tree) -> None:
        if self._derives:
            self._use_virtual(tree)
        else:
            self._use([StoredPlan(tree, {state: stair.row for state, stair in self.states.items()})])

    def _use_virtual(self, tree: Tree) -> None:
        """Use the tables of a plan with nothing stored."""
        self.mode = self.modules.meta[M_MODE] = VIRTUAL
        known = self._virtual.get((tree, self.prefer))
        if known is None:
            if len(self._virtual) >= PLANS:
                self._virtual.clear()
            known = self._virtual[tree, self.prefer] = compile_routes(tree, self.modules.graph, self.prefer)
        self.routes = fresh(known)
        self.store.routes = no_routes()
        self.store.release()

    def _use(self, plans: list[StoredPlan]) -> None:
        """Use the tables of these plans. They are cached, because plans that were replaced tend to return."""
        self.mode = self.modules.meta[M_MODE] = type(self).mode
        key = tuple(plan.key for plan in plans)
        known = self._tables.get(key)
        if known is None:
            if len(self._tables) >= PLANS:
                self._tables.clear()
            routes, by_row = self.compile(plans, self.masks)
            rows = np.array([(row, *both) for row, both in by_row.items()], np.int64).reshape(-1, 3)
            known = self._tables[key] = routes, rows
        tables, promotions = known
        self.routes = self.store.routes = fresh(tables)
        self.store.release()
        self.store.entries.states[promotions[:, 0], E_ROUTE : E_BASE + 1] = promotions[:, 1:]

    def _drop(self, states: Iterable[StateId]) -> None:
        self._remove([self.states.pop(state) for state in states])

    def _remove(self, stairs: list[Stair]) -> None:
        self._gone += self.store.counters(stairs)
        self.store.remove(stairs)

    def _difference(self, tree: Tree) -> Difference:
        proven = self.store.proven
        open_states = frozenset(state for state, stair in self.states.items() if stair.row not in proven)
        return Difference(tuple(self.states), tuple(self._states(tree)), open_states)

    def _move(self, tree: Tree, done: Transition) -> None:
        change = self._difference(tree)
        done.count(change)
        self._before(change)
        self._drop(change.dropped)
        try:
            self._install(tree, change.missing)
            if change.missing:
                self.modules.allowance.ask(0, f"storing {len(change.missing)} more states")
            self._complete(change, done)
            done.states = tuple(self.states)
        except (CapacityError, MemoryError):
            # Some of the new states may exist. The old ones return empty, with no key attempted: always a valid state.
            self._drop([state for state in change.missing if state in self.states])
            self._install(self.tree, change.dropped)
            raise

    def _before(self, change: Difference) -> None:
        """Do the work that precedes the drop of states."""

    def _complete(self, change: Difference, done: Transition) -> None:
        """Compute states at once; by default each key is promoted on its first probe."""

    def _finished(self) -> list[Transition]:
        return super()._finished() if all(stair.proven for stair in self.states.values()) else []

    @property
    def entries(self) -> Entries | None:
        """The tables of the STAIRs; None if nothing is stored: arrivals then need not maintain low marks for them."""
        return None if self.mode == VIRTUAL else self.store.entries

    @property
    def stairs(self) -> list[Stair]:
        """The STAIRs of the plan."""
        return list(self.states.values())

    @property
    def nbytes(self) -> int:
        """Bytes of the STAIRs."""
        return self.store.nbytes

    def counters(self) -> dict[str, int]:
        """Return running totals, dropped states included."""
        stored, _, promoted, computed = (self._gone + self.store.counters(self.stairs)).tolist()
        return {**super().counters(), "promoted": promoted, "computed": computed, "intermediate": stored}

    def discard_states(self) -> None:
        """Discard all states."""
        self.modules.caches.remove(self.store)
        gone = self._gone + self.store.counters(self.stairs)
        # In one statement: the counters of the states move to `_gone` exactly once.
        vars(self).update(store=StairStore(self.modules), _gone=gone, **self._without_states())

    def _without_states(self) -> dict[str, Any]:
        """Return the attributes of a strategy that has no states."""
        return {"states": {}}

    def _restore(self, trees: list[Tree], marks: Int64s | None) -> None:
        self._install(trees[-1], self._states(trees[-1]))
