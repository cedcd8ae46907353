"""A strategy: how a plan is executed, and how one plan replaces another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from time import perf_counter
from typing import ClassVar, NamedTuple

import numpy as np

from jisc.plan.routes import Preference
from jisc.plan.states import Masks, StateId
from jisc.plan.tree import Tree
from jisc.strategies.history import History, Mark
from jisc.strategies.transition import Transition
from stairs.checks.stair import check_stair
from stairs.descriptors import H_TARGET, M_ARRIVAL, M_ARRIVALS, M_MODE, M_SUPPRESSED, V_MATCHES, V_PROBES
from stairs.errors import PlanError
from stairs.memory.arena import Entries, Int64s, Routes
from stairs.modules import Modules
from stairs.stair import Stair
from stairs.storage.parts import Parts, Plain

COUNTERS = slice(V_PROBES, V_MATCHES + 1)
"""The rows of `Routes.counts` that are reported."""


PURGES = ("exact", "paper")
"""When an old plan ends: once no old tuple is in a window, or a window later, as in the plan migration paper."""


class Savepoint(NamedTuple):
    """A moment to which `Strategy.restore` returns: plans, counters, history. States are not in it: they are caches.

    trees      the plans that run, oldest first
    marks      int64[plans, 2 * streams + 1], where several plans can run: of each plan the first arrival of each stream
               that it knows, and `passed` and `twice` of its track (`jisc.strategies.parallel_track`); None = one plan
               knows all
    counters   int64[2, hops], counters of the tables of routes; None = they are in `past`
    past       int64[streams, 2], counters of earlier tables
    chosen     the states that the caller chose to store, None = the strategy's own choice
    """

    trees: list[Tree]
    marks: Int64s | None
    counters: Int64s | None
    past: Int64s
    history: Mark
    chosen: frozenset[StateId] | None
    prefer: Preference | None


class Strategy(ABC):
    """A strategy over the SteMs of `modules`: it makes the tables of plans that the kernel reads, and changes them.

    A strategy decides which states are stored and when they are computed. Results are the same under every strategy.

    background   keys that are promoted after each push in each incomplete state (only if `can_promote`)
    store        inner states to store from the start (only if `can_store` or `joins_many`); None = those that the
                 strategy stores by itself
    purge        when an old plan ends, one of PURGES (only if `purges`)

    A subclass has a name and a mode, and says how tables are made (`_start`, `_move`, `_restore`); other methods have
    defaults for a strategy that stores nothing. Register it in `jisc.strategies`.
    """

    name: ClassVar[str]
    mode: int
    """The way in which the kernel routes tuples: VIRTUAL, STORED or ROUTED (`stairs.descriptors`)."""
    changes: ClassVar[bool] = True
    """Whether the plan can change."""
    can_store: ClassVar[bool] = False
    """Whether the caller chooses the states that are stored."""
    joins_many: ClassVar[bool] = False
    """Whether the caller may leave inner states out, so that several joins are one, with more than two inputs."""
    prefers: ClassVar[bool] = False
    """Whether the plan says by which class a stream is probed (`jisc.plan.routes.Preference`)."""
    can_promote: ClassVar[bool] = False
    """Whether keys are promoted in the background."""
    eager: ClassVar[bool] = False
    """Whether all states are complete at all times, so that states that were emptied are computed at once."""
    purges: ClassVar[bool] = False
    """Whether an old plan runs on beside the new one."""
    overlaps: ClassVar[bool] = False
    """Whether the migration stages of several transitions go on side by side."""

    def __init__(
        self,
        modules: Modules,
        tree: Tree,
        background: int = 0,
        store: Iterable[StateId] | None = None,
        purge: str = "exact",
    ) -> None:
        self.modules = modules
        self.masks = Masks(modules.graph)
        self.tree = tree
        self.background = background
        self.purge = purge
        self.routes: Routes
        self.history = History(modules.graph)
        self.past: Int64s = np.zeros((modules.graph.n_streams, 2), np.int64)
        """Probes and matches, per stream probed, under earlier tables; replaced, never modified."""
        self.prefer: Preference | None = None
        """The class by which each stream is probed while nothing is stored; None stands for the class bound first."""
        self._box: int | None = None
        """The box of the transition at hand, if the caller has named it."""
        self._chosen = None if store is None else frozenset(store)
        """The states that the caller chose to store; those of other plans are ignored. None = the strategy chooses."""
        modules.meta[M_MODE] = self.mode
        self._start(tree)

    @abstractmethod
    def _start(self, tree: Tree) -> None:
        """Make the first tables."""

    # Properties that the runtime asks for

    @property
    def entries(self) -> Entries | None:
        """The tables of the STAIRs, or None for a strategy without STAIRs."""
        return None

    @property
    def stairs(self) -> list[Stair]:
        """The STAIRs of all plans that run."""
        return []

    @property
    def stored(self) -> frozenset[StateId]:
        """The states of the plan that are stored because the caller chose them (`can_store`)."""
        return frozenset()

    def kept(self, tree: Tree) -> frozenset[StateId]:
        """Return the states that a plan has by the strategy's own rule, whatever a policy chooses."""
        return frozenset()

    @property
    def choice(self) -> frozenset[StateId] | None:
        """The states that the caller has chosen, with which the strategy can be made again; None = its own choice."""
        return None

    @property
    def trees(self) -> list[Tree]:
        """The plans that run, oldest first."""
        return [self.tree]

    @property
    def nbytes(self) -> int:
        """Bytes of the STAIRs."""
        return 0

    def counters(self) -> dict[str, int]:
        """Return running totals by the names of their fields in `Transition`."""
        return {"duplicates": int(self.modules.meta[M_SUPPRESSED])}

    @classmethod
    def require_changes(cls) -> None:
        """Raise PlanError if the plan cannot change."""
        if not cls.changes:
            raise PlanError(
                f"strategy {cls.name!r} keeps the plan it began with; to change plans choose another strategy, such as"
                " 'jisc'"
            )

    @classmethod
    def require_choice(cls) -> None:
        """Raise PlanError if the caller cannot choose the states that are stored."""
        if not (cls.can_store or cls.joins_many):
            raise PlanError(
                f"strategy {cls.name!r} decides by its own rule what is stored; choose states under strategy 'eddy' or"
                " 'moving-state'"
            )

    # Changing plans

    def change(
        self,
        tree: Tree,
        reason: str = "",
        store: Iterable[StateId] | None = None,
        prefer: Preference | None = None,
        box: int | None = None,
    ) -> Transition:
        """Change to another plan, to other stored states, or both, between two arrivals. Return the transition.

        store    states to store, those of other plans are ignored; None = the present ones that the new plan has too
        prefer   by which class to probe streams while nothing is stored; None = as now
        box      the streams of the subtree that changes, as bits (`jisc.plan.box`); None = the smallest one. Only a
                 strategy that runs plans side by side needs it: the others keep all states that both plans have

        Raises PlanError if the strategy cannot do it, CapacityError if memory is short; then the old plan still runs.
        """
        self.require_changes()
        if store is not None:
            self.require_choice()
        before = self._chosen, self.prefer
        self._chosen = self._chosen if store is None else frozenset(store)
        self.prefer = self.prefer if prefer is None else prefer
        self._box = box
        try:
            return self._transition(tree, reason)
        except BaseException:
            self._chosen, self.prefer = before
            raise
        finally:
            self._box = None

    def _transition(self, tree: Tree, reason: str) -> Transition:
        position = int(self.modules.meta[M_ARRIVALS] + self.modules.meta[M_ARRIVAL])
        done = Transition(position, self.name, (self.tree, tree), self.modules.graph.names, reason=reason)
        before, tables = self.counters(), self.routes
        self.history.update(before)
        began = perf_counter()
        try:
            self._move(tree, done)
        except BaseException:
            if self.routes is not tables:
                # The old plan has new tables, whose counters are 0.
                self._retire_counters(tables)
            raise
        done.seconds = perf_counter() - began
        self._retire_counters(tables)
        self.history.watch(done)
        self.tree = tree
        self.history.append(done, before, self.overlaps)
        self.history.update(self.counters())
        return done

    @abstractmethod
    def _move(self, tree: Tree, done: Transition) -> None:
        """Make tables for `tree`, and set the figures of the call in `done`."""

    def after_push(self, arrivals: int) -> None:
        """Do the work that is due after a push of this many arrivals has committed."""
        if self.history.is_open:
            self.history.update(self.counters())
            self.history.end(self._finished(), int(self.modules.meta[M_ARRIVALS]))

    def _finished(self) -> list[Transition]:
        """Return the open transitions whose stage is over."""
        return self.history.open_ones

    # Saved for another process (`eddy.live.engine_file`)

    def to_parts(self) -> Plain:
        """Return all that another process needs to resume, except the plan and its tables."""
        return {"counters": self.routes.counts[COUNTERS], "past": self.past, "history": self.history.to_parts()}

    def load_parts(self, parts: Parts) -> None:
        """Resume from the parts of a strategy of this name, with this plan. The modules have to be loaded before."""
        counts = self.routes.counts
        counters = parts.array("counters", np.int64, counts[COUNTERS].shape)
        past = parts.array("past", np.int64, self.past.shape)
        self.history.load_parts(parts.part("history"), self.counters())
        self.past, counts[COUNTERS] = past, counters

    def dismantle(self) -> None:
        """Release all memory. The strategy cannot be used afterwards."""
        vars(self).clear()

    # Undo and recovery

    def savepoint(self) -> Savepoint:
        """Return the present moment for `restore`; taken before a push and before a change. O(plans that run)."""
        counters = self.routes.counts[COUNTERS].copy()
        return Savepoint(self.trees, self._marks(), counters, self.past, self.history.mark(), self._chosen, self.prefer)

    def newest_plan(self) -> Savepoint:
        """Return a savepoint at which the newest plan runs alone, with all counts so far. After `discard_states`."""
        past = self._past_with(self.routes)
        return self.savepoint()._replace(trees=[self.tree], marks=None, counters=None, past=past)

    def discard_states(self) -> None:  # noqa: B027 - most strategies store nothing
        """Discard all states, whatever condition an exception left them in: they are caches over the SteMs.

        `restore` has to follow. Both may be repeated.
        """

    def restore(self, savepoint: Savepoint) -> None:
        """Run the plans of a savepoint, with empty states. To be called after `discard_states` and `Modules.undo`.

        It reads nothing that an exception within a change of plan can leave inconsistent.
        """
        self._chosen, self.prefer = savepoint.chosen, savepoint.prefer
        self.modules.meta[M_MODE] = self.mode
        self._restore(savepoint.trees, savepoint.marks)
        self.tree = savepoint.trees[-1]
        if savepoint.counters is not None:
            self.routes.counts[COUNTERS] = savepoint.counters
        self.past = savepoint.past
        self.history.roll_back(savepoint.history)

    def refill(self) -> None:  # noqa: B027 - most strategies have nothing to do
        """Compute the states that the strategy keeps complete, after `restore` or after states were emptied."""

    @abstractmethod
    def _restore(self, trees: list[Tree], marks: Int64s | None) -> None:
        """Make tables for `trees` (the last one is the plan), with empty states."""

    def _marks(self) -> Int64s | None:
        """Return the marks of a savepoint."""
        return None

    def _retire_counters(self, tables: Routes) -> None:
        """Add the counters of replaced tables to those of the past."""
        self.past = self._past_with(tables)

    def _past_with(self, tables: Routes) -> Int64s:
        counts, past = tables.counts, self.past.copy()
        for column in range(past.shape[1]):
            # numpy adds to one axis in a quarter of the time.
            np.add.at(past[:, column], tables.hops[:, H_TARGET], counts[V_PROBES + column])
        return past

    # Inspection

    def check(self) -> None:
        """Raise StateError unless the invariants of all states hold. O(all combinations), for tests."""
        for stair in self.stairs:
            check_stair(stair)
