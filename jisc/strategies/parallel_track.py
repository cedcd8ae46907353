"""Parallel Track: old and new version of what changes run side by side until the tuples from before have expired.

A transition has a *box*, the subtree that changes (`jisc.plan.box`), and starts its new version as a *track*, with
empty states. The track knows only the tuples of the box's streams that arrive from then on (`marks`): it has low marks
of its own over the SteMs that all tracks share. The old track continues with all tuples. At the root of the box it
gives up composites whose components are all new, because the new track finds them (the paper's old and new marks, sec.
4.2, Algorithm 3). So each composite leaves the box once, into the state and up the path that both versions share.
Tuples of other streams have one walk, which probes that state. When the windows of the box's streams have passed the
marks, the old version of the box is dropped.

States within the box that both versions have are shared as well: the old track stores into them, and the new one reads
those entries that it knows. A box that the caller names has its whole subtree twice, as in the paper, where the box is
what the optimizer has selected.

While a box is being migrated, each further transition has the whole plan for its box. If several overlap, several
tracks run, and each leaves results that are all new to the next of them. So each result is emitted once, by the newest
track that knows all its components.

In the paper a composite is kept for a window after its *youngest* component (Lemma 2.2), and here it is dead as soon as
its oldest one is. So the stage takes one window here, and two there if the box has more than one join (eq. 4). With
`purge="paper"` the old track is kept for the second window as well, in which it finds nothing but what it gives up.

Over UNBOUNDED windows, which never pass the marks, no old track is ever dropped. This is a limit of the strategy.
Source: Zhu, Rundensteiner, Heineman, "Dynamic plan migration for continuous queries over data streams", SIGMOD 2004,
sec. 3, 4.2 and 5.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from jisc.plan.box import smallest_box
from jisc.plan.states import StateId, states_of, streams_of
from jisc.plan.stored_routes import StoredPlan
from jisc.plan.tree import Tree, check_connected, parse
from jisc.strategies.stored import StoredStrategy
from jisc.strategies.transition import Transition
from stairs.descriptors import E_LOWS, S_BASE, S_LO, S_NEXT
from stairs.errors import CapacityError
from stairs.graph import FOREVER
from stairs.memory.arena import Int64s
from stairs.stair import NewState, Stair
from stairs.storage.parts import Parts, Plain

NO_MARK = -FOREVER
"""The mark of a stream that is not in the box: every tuple is above it."""


@dataclass
class Track:
    """A plan that runs, and its states: those of its own, and those that it shares with the track before it.

    box      the streams of its box, as bits
    twice    whether it shares no state within its box
    passed   purge="paper": the arrivals of each stream when the windows of the box had passed the marks; NO_MARK before
    """

    tree: Tree
    states: dict[StateId, Stair]
    shared: dict[StateId, Stair]
    box: int
    twice: bool
    passed: Int64s

    @property
    def every(self) -> dict[StateId, Stair]:
        """All states of the plan."""
        return {**self.shared, **self.states}


class ParallelTrack(StoredStrategy):
    """The strategy that runs two versions of a box side by side."""

    name = "parallel-track"
    has_entries = True
    overlaps = True
    purges = True

    def _start(self, tree: Tree) -> None:
        self.tracks: list[Track] = []
        self._whole = (1 << self.modules.graph.n_streams) - 1
        super()._start(tree)

    def _install(self, tree: Tree, missing: tuple[StateId, ...] | list[StateId]) -> None:
        """Start with one plan."""
        self._open_track(tree)
        self._compile(tree)

    def _open_track(self, tree: Tree, twice: bool = False) -> None:
        """Add a track for a plan, with its marks. A state is complete at once if no tuple of a stream of it is known.

        twice   the track shares no state within its box
        """
        number, unshared = len(self.tracks), list[StateId]()
        box = self._box_of(number)
        lows, following = self.store.entries.lows.reshape(-1, len(self.masks.classes))[number], self.modules.streams
        before = self.tracks[-1].every if self.tracks else {}
        shared = dict[StateId, Stair]()
        for state in states_of(tree, self.masks):
            known = before.get(state)
            if known is not None and not (twice and _within(state, box)):
                shared[state] = known
                continue
            unshared.append(state)
        empty = (following[:, S_NEXT] <= lows).tolist()
        new = [
            NewState(streams, state.by, any(empty[j] for j in streams), number)
            for state, streams in zip(unshared, streams_of(unshared), strict=True)
        ]
        states = dict(zip(unshared, self.store.add(new), strict=True))
        self.tracks.append(Track(tree, states, shared, box, twice, self._not_passed()))

    def _not_passed(self) -> Int64s:
        return np.full(self.modules.graph.n_streams, NO_MARK, np.int64)

    def _box_of(self, number: int) -> int:
        """Return the box of a track: the streams that have a mark."""
        if not number:
            return self._whole
        return sum(1 << j for j in np.flatnonzero(self.store.marks[number] > NO_MARK // 2).tolist())

    def _compile(self, tree: Tree) -> None:
        m, plans = self.modules.graph.n_streams, []
        for number, track in enumerate(self.tracks):
            newer = dict[int, int]()
            for later, other in enumerate(self.tracks[number + 1 :], number + 1):
                newer.setdefault(other.box, later * m)
            rows = {state: stair.row for state, stair in track.every.items()}
            filled = frozenset(state for state in track.shared if _within(state, track.box))
            plans.append(StoredPlan(track.tree, rows, track.box, filled, newer))
        self._use(plans)

    def to_parts(self) -> Plain:
        """Return all that another process needs to resume."""
        names = self.modules.graph.names
        plans = [{"plan": track.tree.text(names), "passed": track.passed.tolist()} for track in self.tracks]
        return {**super().to_parts(), "tracks": plans}

    def _adopt(self, stairs: list[Stair], parts: Parts) -> None:
        graph, marks = self.modules.graph, self.store.marks
        kept = parts.items("tracks", len(marks))
        self.tracks = []
        for number, saved in enumerate(kept):
            tree = parse(saved.text("plan"), graph.names)
            check_connected(tree, graph)
            box, last = self._box_of(number), saved.integers("passed", graph.n_streams, low=NO_MARK)
            before = self.tracks[-1] if number else None
            saved.require(before is None or _fits(box, before.tree, tree, number, self._whole), f"box {box:b}")
            states = {StateId.of(stair.streams, stair.by): stair for stair in stairs if stair.track == number}
            every, known = states_of(tree, self.masks), {} if before is None else before.every
            fits = states.keys() <= set(every) and all(state in states or state in known for state in every)
            saved.require(fits, f"states of another plan in track {number}")
            shared = {state: known[state] for state in every if state not in states}
            twice = any(state in known and _within(state, box) for state in states)
            self.tracks.append(Track(tree, states, shared, box, twice, np.array(last, np.int64)))
        parts.require(self.tracks[-1].tree == self.tree, "another plan")
        parts.require(len(self.stairs) == len(stairs), "states of no track")
        self._compile(self.tree)

    def _move(self, tree: Tree, done: Transition) -> None:
        trees, marks, newest = self.trees, self._marks(), self.tracks[-1].tree
        box = smallest_box(newest, tree)
        if not box:
            # Only sides of joins have changed places.
            self.tracks[-1].tree = tree
            self._compile(tree)
            done.kept = done.complete = len(self.tracks[-1].every)
            done.ended = done.position
        else:
            box = self._whole if len(self.tracks) > 1 else self._box or box
            self._begin(tree, box, trees, marks)
            done.kept, done.complete = len(self.tracks[-1].shared), len(self.tracks[-1].every)
        done.states = tuple(self.tracks[-1].every)

    def _begin(self, tree: Tree, box: int, trees: list[Tree], marks: Int64s) -> None:
        """Begin the track of a box. If memory is short, the tracks of `trees` are as before, with empty states."""
        following = self.modules.streams[:, S_NEXT]
        within = _streams_of(box, len(following))
        try:
            self.store.set_marks(np.concatenate([self.store.marks, np.where(within, following, NO_MARK)[None]]))
            self._open_track(tree, twice=self._box is not None)
            self._compile(tree)
            self.modules.allowance.ask(0, "a second version of what changes")
        except (CapacityError, MemoryError):
            self.discard_states()
            self._restore(trees, marks)
            raise

    def after_push(self, arrivals: int) -> None:
        """Drop the old tracks whose tuples have all expired."""
        purged = 0
        while purged + 1 < len(self.tracks) and self._has_passed(purged + 1):
            purged += 1
        if purged:
            self._drop_tracks(purged)
        super().after_push(arrivals)

    def _has_passed(self, number: int) -> bool:
        """Return whether the track before this one is purged: no window of the box has an old tuple any more."""
        streams, track = self.modules.streams, self.tracks[number]
        if not (streams[:, S_LO] >= self.store.marks[number]).all():
            return False
        if self.purge == "exact" or track.box.bit_count() < 3:
            return True
        if track.passed.max() == NO_MARK:
            # The youngest component of an old composite came before now.
            within = _streams_of(track.box, len(streams))
            track.passed = np.where(within, streams[:, S_NEXT] + streams[:, S_BASE], NO_MARK)
        return bool((streams[:, S_LO] + streams[:, S_BASE] >= track.passed).all())

    def _drop_tracks(self, purged: int) -> None:
        self._retire_counters(self.routes)
        gone, (first, *later) = self.tracks[:purged], self.tracks[purged:]
        kept = first.every
        rows = {stair.row for stair in kept.values()}
        self._remove([stair for track in gone for stair in track.states.values() if stair.row not in rows])
        self.tracks = [replace(first, states=kept, shared={}, box=self._whole, passed=self._not_passed()), *later]
        self.store.set_marks(self.store.marks[purged:].copy())
        m = self.modules.graph.n_streams
        for number, track in enumerate(self.tracks):
            for stair in track.states.values():
                stair.track = number
                stair.state[E_LOWS] = number * m
        self._compile(self.tree)

    def _finished(self) -> list[Transition]:
        # Each open transition has its old track; the oldest tracks are purged first.
        open_ones = [done for done in self.history.open_ones if done.ended is None]
        return open_ones[: len(open_ones) + 1 - len(self.tracks)]

    @property
    def stairs(self) -> list[Stair]:
        """The STAIRs of all plans that run."""
        return [stair for track in self.tracks for stair in track.states.values()]

    @property
    def trees(self) -> list[Tree]:
        """The plans that run, oldest first."""
        return [track.tree for track in self.tracks]

    def _marks(self) -> Int64s:
        # As arrival numbers, which stay; tuples may be renumbered before the marks are needed again.
        # There is no track between `discard_states` and `restore`.
        kept = [[*track.passed, track.twice] for track in self.tracks] or [[*self._not_passed(), 0]]
        marks: Int64s = np.hstack([self.store.marks + self.modules.streams[:, S_BASE], np.array(kept, np.int64)])
        return marks

    def _without_states(self) -> dict[str, Any]:
        return {"tracks": []}

    def _restore(self, trees: list[Tree], marks: Int64s | None) -> None:
        base = self.modules.streams[:, S_BASE]
        m = len(base)
        if marks is None:
            marks = np.hstack([self.store.marks + base, self._not_passed()[None], [[0]]])
        self.store.set_marks(np.maximum(marks[:, :m] - base, NO_MARK))
        for tree, row in zip(trees, marks, strict=True):
            self._open_track(tree, bool(row[-1]))
            self.tracks[-1].passed = row[m:-1]
        self._compile(trees[-1])


def _streams_of(box: int, n: int) -> npt.NDArray[np.bool_]:
    """Return which of n streams are in a box, whose number may have more bits than an integer of numpy."""
    return np.array([box >> stream & 1 for stream in range(n)], np.bool_)


def _within(state: StateId, box: int) -> bool:
    """Return whether a state is within a box, and not its output."""
    return not state.mask & ~box and state.mask != box


def _fits(box: int, old: Tree, new: Tree, number: int, whole: int) -> bool:
    """Return whether track `number`, which comes after a track with the plan `old`, can have this box."""
    if box == whole:
        return True
    nodes = [{node.mask for node in tree.inner()} for tree in (old, new)]
    return number == 1 and all(box in masks for masks in nodes) and not smallest_box(old, new) & ~box
