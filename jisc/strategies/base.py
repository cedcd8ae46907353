"""What a strategy is: how one plan takes over from another, and what that costs."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from time import perf_counter
from typing import ClassVar

import numpy as np

from jisc.plan.routes import Preference
from jisc.plan.states import Difference, Masks, StateId
from jisc.plan.tree import Tree, parse
from stairs.checks.stair import check_stair
from stairs.descriptors import H_MATCHES, H_PROBES, H_TARGET, M_ARRIVAL, M_ARRIVALS, M_MODE, M_SUPPRESSED
from stairs.errors import PlanError
from stairs.graph import JoinGraph
from stairs.memory.arena import Bytes, Entries, Int64s, Routes
from stairs.modules import Modules
from stairs.stair import Stair
from stairs.storage.parts import MOST, NO_MEMORY, Parts, Plain

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
    kept … dropped   states by what became of them (`jisc.plan.states.Difference`)
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

    def plain(self) -> Plain:
        """Return it as JSON values."""
        return {
            **{name: getattr(self, name) for name in (*_COUNTS, *_FIGURES, *_TEXTS)},
            "ended": self.ended,
            "plans": [self.old, self.new],
            "states": [list(state) for state in self.states],
        }

    @classmethod
    def from_parts(cls, parts: Parts, graph: JoinGraph) -> Transition:
        """Return the transition that `plain` gave."""
        names, plans = graph.names, parts.texts("plans")
        parts.require(len(plans) == 2, f"{len(plans)} plans")
        done = cls(
            parts.integer("position"),
            parts.text("strategy"),
            (parse(plans[0], names), parse(plans[1], names)),
            names,
            ended=parts.optional("ended"),
            reason=parts.text("reason"),
            states=read_states(parts, "states", graph),
        )
        for name in _COUNTS:
            setattr(done, name, parts.integer(name, low=-MOST))
        for name in _FIGURES:
            setattr(done, name, parts.number(name))
        return done


_COUNTS = [one.name for one in fields(Transition) if one.type == "int"]
_FIGURES = [one.name for one in fields(Transition) if one.type == "float"]
_TEXTS = ["strategy", "reason"]


def read_states(parts: Parts, name: str, graph: JoinGraph) -> tuple[StateId, ...]:
    """Return the states that were kept as a list of (streams as bits, class)."""
    found = tuple(StateId(mask, by) for mask, by in parts.masks(name))
    fits = all(0 < mask < 1 << graph.n_streams and 0 <= by < graph.n_classes for mask, by in found)
    parts.require(fits, f"{name} of other streams or classes")
    return found


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
        self._archive: list[Bytes] = []
        """Transitions of long ago, oldest first, as they were written down in JSON: CHAPTER or more each."""
        self._archived = 0
        """How many they are."""
        self._transitions: list[Transition] = []
        """Those since."""
        self.past: Int64s = np.zeros((modules.graph.n_streams, 2), np.int64)
        """Probes and matches per stream probed, under tables that are gone; replaced, never changed."""
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
            read = [one for chapter in self._archive for one in self._read(chapter)]
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

    # Kept for another process (`eddy.live.engine_file`)

    def to_parts(self) -> Plain:
        """Return all that goes on, but the plan that runs and its tables."""
        self._write_down()
        place = {id(done): n for n, done in enumerate(self._transitions)}
        return {
            "counters": self.routes.hops[:, COUNTERS],
            "past": self.past,
            "archive": self._archive,
            "archived": self._archived,
            "transitions": [done.plain() for done in self._transitions],
            "open": [{"place": place[id(done)], "before": before} for done, before in self._open],
            "recent": [list(push) for push in self._recent],
            "watched": [
                {"place": place[id(done)], "pushes": [list(push) for push in pushes]} for done, pushes in self._watched
            ],
        }

    def load_parts(self, parts: Parts) -> None:
        """Go on from what a strategy of this name, with this plan, kept. After the modules woke."""
        hops, graph = self.routes.hops, self.modules.graph
        counters = parts.array("counters", np.int64, hops[:, COUNTERS].shape)
        past = parts.array("past", np.int64, self.past.shape)
        transitions = [Transition.from_parts(own, graph) for own in parts.items("transitions")]
        last, names = len(transitions) - 1, self.counters().keys()
        self._open = [
            (transitions[own.integer("place", high=last)], _totals(own.part("before"), names))
            for own in parts.items("open")
        ]
        self._watched = [
            (transitions[own.integer("place", high=last)], _pushes(own, "pushes")) for own in parts.items("watched")
        ]
        self._recent = deque(_pushes(parts, "recent"), maxlen=AROUND)
        self._archive = parts.arrays("archive", np.uint8, (-1,))
        self._archived = parts.integer("archived")
        self._transitions, self.past, hops[:, COUNTERS] = transitions, past, counters

    def _write_down(self) -> None:
        """Move transitions that are over to the archive, once they fill a chapter: what is over does not change."""
        busy = {id(done) for done, _ in (*self._open, *self._watched)}
        # The newest stays at hand.
        own = self._transitions[:-1]
        over = next((n for n, done in enumerate(own) if id(done) in busy), len(own))
        if over >= CHAPTER:
            text = json.dumps([done.plain() for done in own[:over]])
            self._archive = [*self._archive, np.frombuffer(text.encode(), np.uint8)]
            self._archived += over
            self._transitions = self._transitions[over:]

    def _read(self, chapter: Bytes) -> list[Transition]:
        written = Parts({"transitions": json.loads(chapter.tobytes())}, NO_MEMORY, "the archive of transitions")
        return [Transition.from_parts(own, self.modules.graph) for own in written.items("transitions")]

    def dismantle(self) -> None:
        """Let go of everything; it is of no use afterwards."""
        vars(self).clear()

    # Taking back

    def save(self) -> Saved:
        """Note what `restore` needs. Before a push, and before plans change. O(plans that run)."""
        counters = self.routes.hops[:, COUNTERS].copy()
        return Saved(self.trees, self._marks(), counters, self.past, len(self._transitions), list(self._open))

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
        self.past = saved.past
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
        hops, past = tables.hops, self.past.copy()
        np.add.at(past, hops[:, H_TARGET], hops[:, COUNTERS])
        self.past = past

    # Looking in

    def check(self) -> None:
        """Raise StateError unless all states are as they should be. O(all combinations), for tests."""
        for stair in self.stairs:
            check_stair(stair)


def _totals(parts: Parts, names: Iterable[str]) -> dict[str, int]:
    return {name: parts.integer(name) for name in names}


def _pushes(parts: Parts, name: str) -> list[tuple[int, int, float]]:
    """Return pushes as they were kept: results, arrivals, seconds."""
    found = []
    for push in parts.sequence(name):
        parts.require(type(push) is list and [type(value) for value in push] == [int, int, float], f"{name} {push}")
        found.append((push[0], push[1], push[2]))
    return found


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
