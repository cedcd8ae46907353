"""What a strategy is: how one plan takes over from another, and what that costs."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from jisc.plan import Tree
from jisc.routes import Preference
from jisc.states import Difference, Masks, StateId
from stairs.arena import Entries, Int64s, Routes
from stairs.errors import PlanError
from stairs.fields import H_MATCHES, H_PROBES, H_TARGET, M_ARRIVAL, M_ARRIVALS, M_MODE, M_SUPPRESSED
from stairs.modules import Modules
from stairs.stair import Stair

AROUND = 16
"""Pushes before and after a transition over which the rate of output is taken."""
CHAPTER = 32
"""Transitions that are written down together."""
COUNTERS = slice(H_PROBES, H_MATCHES + 1)
"""The columns of `Routes.hops` that count."""


@dataclass
class Transition:
    """One change of the plan and its figures. Those of the migration stage grow until the stage ends.

    position      arrivals taken before it
    strategy      the name of the strategy that ran
    plans         old and new; `old` and `new` are their texts, by the names of the streams
    seconds       the call itself; nothing is emitted while it lasts, so for an eager strategy this is the stall
    kept … dropped   states by what became of them (`jisc.states.Difference`)
    recomputed    states computed in whole, within the call
    promoted      keys promoted, in the call and in the stage
    computed      entries which those promotions stored
    intermediate  entries stored by arrivals in the stage
    duplicates    results found by one plan and left to another, in the stage
    rate_before   results per second of pushing, over the AROUND pushes before it
    rate_after    the same over those after it, its own seconds included; of as many as there were yet
    longest       seconds of the longest of those pushes after it
    ns_before     nanoseconds per arrival over the same pushes before it, whole pushes by the wall clock, and ns_after
                  over those after it, its own seconds included; 0 = there were none
    reason        who or what asked for it: "asked for" by `Runtime.transition`, the name of a policy and why it decided
                  so, or that there was no room
    states        the inner states stored from then on; `stored` is their text
    ended         arrivals taken when the stage ended: every state complete, or the old plan purged; None = it goes on
    """

    position: int
    strategy: str
    plans: tuple[Tree, Tree]
    names: tuple[str, ...]
    seconds: float = 0.0
    kept: int = 0
    complete: int = 0
    incomplete: int = 0
    dropped: int = 0
    recomputed: int = 0
    promoted: int = 0
    computed: int = 0
    intermediate: int = 0
    duplicates: int = 0
    rate_before: float = 0.0
    rate_after: float = 0.0
    longest: float = 0.0
    ns_before: float = 0.0
    ns_after: float = 0.0
    ended: int | None = None
    reason: str = ""
    states: tuple[StateId, ...] = ()

    @property
    def stored(self) -> str:
        """The states stored, as text: streams of a state, states by commas."""
        return ", ".join(" ".join(self.names[j] for j in state.streams) for state in self.states)

    @property
    def old(self) -> str:
        """The plan before, as text."""
        return self.plans[0].text(self.names)

    @property
    def new(self) -> str:
        """The plan after, as text."""
        return self.plans[1].text(self.names)


@dataclass
class Saved:
    """What takes a strategy back to where it was: its trees, its marks, its counters, the states it chose to store.

    marks      int64[plans, streams], the first arrival that each plan knows of each stream; None = one plan, which
               knows all
    counters   those of the tables; None = they are in `past`
    """

    trees: list[Tree]
    marks: Int64s | None
    counters: Int64s | None
    past: Int64s
    transitions: int
    open: list[tuple[Transition, dict[str, int]]] = field(default_factory=list)
    stored: frozenset[StateId] = frozenset()
    prefer: Preference | None = None


class Strategy(ABC):
    """Runs plans over the SteMs of `modules`: gives the kernel its tables, and changes them.

    A strategy is a choice of what is stored and when it is computed; results are the same under all of them.
    """

    name: ClassVar[str]
    mode: int
    """How the kernel routes: VIRTUAL, STORED, ROUTED."""
    changes: ClassVar[bool] = True
    """Whether its plan can change."""
    overlaps: ClassVar[bool] = False
    """Whether stages of several transitions go on side by side."""

    def __init__(self, modules: Modules, tree: Tree) -> None:
        self.modules = modules
        self.masks = Masks(modules.graph)
        self.tree = tree
        self.routes: Routes
        self._archive: list[bytes] = []
        """Transitions of long ago, oldest first, as they were written down: CHAPTER or more each."""
        self._archived = 0
        """How many they are."""
        self._transitions: list[Transition] = []
        """Those since."""
        self.past: Int64s = np.zeros((modules.graph.n_streams, 2), np.int64)
        """Probes and matches per stream probed, under tables that are gone."""
        self._open: list[tuple[Transition, dict[str, int]]] = []
        """Transitions whose stage goes on, with the counters when they began."""
        self._recent: deque[tuple[int, int, float]] = deque(maxlen=AROUND)
        """Results, arrivals and seconds of the last pushes."""
        self._watched: list[tuple[Transition, list[tuple[int, int, float]]]] = []
        """Transitions of late, with the pushes after them."""
        modules.meta[M_MODE] = self.mode

    # What the kernel works with

    @property
    def entries(self) -> Entries | None:
        """The tables of the STAIRs, None = there are none."""
        return None

    @property
    def stairs(self) -> list[Stair]:
        """The STAIRs of all plans that run."""
        return []

    @property
    def trees(self) -> list[Tree]:
        """The plans that run, oldest first."""
        return [self.tree]

    @property
    def transitions(self) -> list[Transition]:
        """All transitions, oldest first. Those written down are read: `happened` and `newest` do without."""
        if self._archive:
            read = [one for chapter in self._archive for one in pickle.loads(chapter)]
            # In one statement, lest an exception between two leave some of them twice.
            vars(self).update(_transitions=[*read, *self._transitions], _archive=[], _archived=0)
        return self._transitions

    @property
    def happened(self) -> int:
        """How many transitions there were. O(1)."""
        return self._archived + len(self._transitions)

    @property
    def newest(self) -> Transition | None:
        """The newest transition, None when there was none. O(1)."""
        return self._transitions[-1] if self._transitions else None

    @property
    def nbytes(self) -> int:
        """Bytes of the STAIRs."""
        return 0

    # Changing plans

    def transition(self, tree: Tree, reason: str = "") -> Transition:
        """Go over to another plan, between two arrivals. Raises PlanError, CapacityError with the old one running."""
        position = int(self.modules.meta[M_ARRIVALS] + self.modules.meta[M_ARRIVAL])
        done = Transition(position, self.name, (self.tree, tree), self.modules.graph.names, reason=reason)
        self._update()
        before, tables = self.counters(), self.routes
        began = perf_counter()
        try:
            self._change(tree, done)
        except BaseException:
            if self.routes is not tables:
                # The plan there was has new tables, which have counted nothing.
                self._retire_counters(tables)
            raise
        done.seconds = perf_counter() - began
        self._retire_counters(tables)
        done.rate_before, done.ns_before = _rates(self._recent)
        self._watched.append((done, [(0, 0, done.seconds)]))
        self.tree = tree
        if not self.overlaps:
            # A stage that a new transition cuts short is over: what it left incomplete is the new one's.
            for other, _ in self._open:
                other.ended = position
            self._open = []
        self._transitions.append(done)
        self._open.append((done, before))
        self._update()
        return done

    @abstractmethod
    def _change(self, tree: Tree, done: Transition) -> None:
        """Make `tree` the plan, and fill in the figures of the call."""

    def after_push(self, arrivals: int) -> None:
        """Do what is due after a push of so many arrivals; not while one is under way."""
        if self._open:
            self._update()
            position = int(self.modules.meta[M_ARRIVALS])
            for done in self._finished():
                done.ended = position
            self._open = [pair for pair in self._open if pair[0].ended is None]

    def note_push(self, results: int, arrivals: int, seconds: float) -> None:
        """Take down how many results a push gave, of how many arrivals, and how long it took. O(1)."""
        self._recent.append((results, arrivals, seconds))
        for done, pushes in self._watched:
            pushes.append((results, arrivals, seconds))
            done.rate_after, done.ns_after = _rates(pushes)
            done.longest = max(done.longest, seconds)
        if self._watched:
            self._watched = [watched for watched in self._watched if len(watched[1]) <= AROUND]

    def _finished(self) -> list[Transition]:
        """Return the open transitions whose stage is over."""
        return [done for done, _ in self._open]

    def _update(self) -> None:
        now = self.counters()
        for done, before in self._open:
            for name, value in now.items():
                setattr(done, name, value - before[name])

    def counters(self) -> dict[str, int]:
        """Return running totals by the names they have in `Transition`."""
        return {"duplicates": int(self.modules.meta[M_SUPPRESSED])}

    # Kept for another process (`eddy.live`)

    def __getstate__(self) -> dict[str, Any]:
        busy = {id(done) for done, _ in (*self._open, *self._watched)}
        # The newest stays at hand.
        own = self._transitions[:-1]
        over = next((n for n, done in enumerate(own) if id(done) in busy), len(own))
        state = dict(vars(self))
        if over >= CHAPTER:
            # What is over does not change: it is written once, not each time.
            state["_archive"] = [*self._archive, pickle.dumps(self._transitions[:over], protocol=5)]
            state["_archived"] = self._archived + over
            state["_transitions"] = self._transitions[over:]
        return state

    def relocated(self) -> None:  # noqa: B027 - most strategies know no addresses
        """Note where states lie, in memory of another process now."""

    def dismantle(self) -> None:
        """Let go of everything; it is of no use afterwards."""
        vars(self).clear()

    # Taking back

    def save(self) -> Saved:
        """Note what `restore` needs. Before a push, and before plans change. O(plans that run)."""
        counters = self.routes.hops[:, COUNTERS].copy()
        return Saved(self.trees, self._marks(), counters, self.past.copy(), len(self._transitions), list(self._open))

    def standing(self) -> Saved:
        """Return what `restore` needs to run the newest plan alone, with the counts so far. After `abandon`."""
        self._retire_counters(self.routes)
        return replace(self.save(), trees=[self.tree], marks=None, counters=None)

    def abandon(self) -> None:  # noqa: B027 - most strategies store nothing
        """Let go of all states, in whatever condition an exception left them: they are only caches over the SteMs.

        The SteMs tell them nothing any more. `restore` comes next; both may be done again from the beginning.
        """

    def restore(self, saved: Saved) -> None:
        """Run the plans that were noted, with states that hold nothing yet; after `abandon`, and `Modules.undo`.

        It reads nothing that an exception within a change of plan can leave half done.
        """
        self.modules.meta[M_MODE] = self.mode
        self._restore(saved.trees, saved.marks)
        self.tree = saved.trees[-1]
        if saved.counters is not None:
            self.routes.hops[:, COUNTERS] = saved.counters
        self.past = saved.past.copy()
        self._transitions = self._transitions[: saved.transitions]
        self._open = list(saved.open)
        self._watched = [watched for watched in self._watched if watched[0] in self._transitions]
        for done, _ in self._open:
            done.ended = None

    def undone(self) -> None:  # noqa: B027 - most strategies have nothing to do
        """Compute what the strategy wants computed at all times, after `restore` or when states were made to forget."""

    @abstractmethod
    def _restore(self, trees: list[Tree], marks: Int64s | None) -> None:
        """Make `trees` the plans that run, with nothing stored."""

    def _marks(self) -> Int64s | None:
        return None

    def _retire_counters(self, tables: Routes) -> None:
        """Add the counters of tables that were replaced to the past."""
        hops = tables.hops
        np.add.at(self.past, hops[:, H_TARGET], hops[:, COUNTERS])

    # Looking in

    def check(self) -> None:
        """Raise StateError unless all states are as they should be. O(all combinations), for tests."""
        for stair in self.stairs:
            stair.check()


def _rates(pushes: Iterable[tuple[int, int, float]]) -> tuple[float, float]:
    """Return results per second and nanoseconds per arrival."""
    results, arrivals, seconds = (sum(column) for column in zip(*pushes, strict=True)) if pushes else (0, 0, 0.0)
    return results / seconds if seconds else 0.0, 1e9 * seconds / arrivals if arrivals else 0.0


def refuse(name: str) -> PlanError:
    """Return the error of a strategy that cannot change its plan."""
    return PlanError(
        f"strategy {name!r} keeps the plan it began with; to change plans choose another strategy, such as 'jisc'"
    )


def note(done: Transition, change: Difference) -> None:
    """Write the states of a difference into the figures of a transition."""
    done.kept, done.dropped = len(change.kept), len(change.dropped)
    done.complete, done.incomplete = len(change.complete), len(change.incomplete)
