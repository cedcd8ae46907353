"""Parallel Track: old and new plan run side by side until all tuples from before the transition have expired.

A transition starts the new plan with empty states. It knows only the tuples that arrive from then on (`marks`): it has
low marks of its own over the SteMs that all plans share. The old plan continues with all tuples. Its root does not emit
results whose components are all new, because the new plan emits them (the paper's old and new marks, sec. 4.2,
Algorithm 3). When the windows have passed the marks, the old plan is dropped. If several transitions overlap, several
plans run, and each emits only results with a component older than the marks of the next plan. So each result is emitted
once, by the newest plan that knows all its components.

Over UNBOUNDED windows, which never pass the marks, no old plan is ever dropped. This is a limit of the strategy itself.
Source: Zhu, Rundensteiner, Heineman, "Dynamic plan migration for continuous queries over data streams", SIGMOD 2004,
sec. 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jisc.plan.states import StateId, states_of
from jisc.plan.stored_routes import StoredPlan
from jisc.plan.tree import Tree, check_connected, parse
from jisc.strategies.stored import StoredStrategy
from jisc.strategies.transition import Transition
from stairs.descriptors import E_LOWS, S_BASE, S_LO, S_NEXT
from stairs.errors import CapacityError
from stairs.graph import FOREVER
from stairs.memory.arena import Int64s
from stairs.stair import Stair
from stairs.storage.parts import Parts, Plain


@dataclass
class Track:
    """A plan that runs, with its own states."""

    tree: Tree
    states: dict[StateId, Stair]


class ParallelTrack(StoredStrategy):
    """Plans side by side."""

    name = "parallel-track"
    overlaps = True

    def _start(self, tree: Tree) -> None:
        self.tracks: list[Track] = []
        super()._start(tree)

    def _install(self, tree: Tree, missing: tuple[StateId, ...] | list[StateId]) -> None:
        """Start with one plan."""
        self._open_track(tree)
        self._compile(tree)

    def _open_track(self, tree: Tree) -> None:
        """Add a track for a plan. A state is complete at once if the track knows no tuple of one of its streams."""
        number, states = len(self.tracks), dict[StateId, Stair]()
        lows, following = self.store.entries.lows.reshape(-1, len(self.masks.classes))[number], self.modules.streams
        for state in states_of(tree, self.masks):
            empty = any(following[j, S_NEXT] <= lows[j] for j in state.streams)
            states[state] = self.store.add(state.streams, state.by, complete=empty, track=number)
        self.tracks.append(Track(tree, states))

    def _compile(self, tree: Tree) -> None:
        plans = [
            StoredPlan(track.tree, {state: stair.row for state, stair in track.states.items()}) for track in self.tracks
        ]
        self._use(plans)

    def to_parts(self) -> Plain:
        """Return all that another process needs to resume."""
        names = self.modules.graph.names
        return {**super().to_parts(), "plans": [track.tree.text(names) for track in self.tracks]}

    def _adopt(self, stairs: list[Stair], parts: Parts) -> None:
        graph = self.modules.graph
        trees = [parse(text, graph.names) for text in parts.texts("plans")]
        fits = len(trees) == len(self.store.marks) and trees[-1] == self.tree
        parts.require(fits, f"{len(trees)} plans run side by side, with marks for {len(self.store.marks)}")
        self.tracks = []
        for number, tree in enumerate(trees):
            check_connected(tree, graph)
            states = {StateId.of(stair.streams, stair.by): stair for stair in stairs if stair.track == number}
            parts.require(list(states) == states_of(tree, self.masks), f"states of another plan in track {number}")
            self.tracks.append(Track(tree, states))
        self._compile(self.tree)

    def _move(self, tree: Tree, done: Transition) -> None:
        trees, marks = self.trees, self._marks()
        try:
            self.store.set_marks(np.concatenate([self.store.marks, self.modules.streams[None, :, S_NEXT]]))
            self._open_track(tree)
            self._compile(tree)
            self.modules.allowance.ask(0, "a second plan next to the first")
        except (CapacityError, MemoryError):
            self.discard_states()
            self._restore(trees, marks)
            raise
        done.complete = len(self.tracks[-1].states)
        done.states = tuple(self.tracks[-1].states)

    def after_push(self, arrivals: int) -> None:
        """Drop the old plans whose tuples have all expired."""
        purged = 0
        while purged + 1 < len(self.tracks):
            passed = self.modules.streams[:, S_LO] >= self.store.marks[purged + 1]
            if not passed.all():
                break
            purged += 1
        if purged:
            self._retire_counters(self.routes)
            for track in self.tracks[:purged]:
                self._remove(list(track.states.values()))
            self.tracks = self.tracks[purged:]
            self.store.set_marks(self.store.marks[purged:].copy())
            m = self.modules.graph.n_streams
            for number, track in enumerate(self.tracks):
                for stair in track.states.values():
                    stair.track = number
                    stair.state[E_LOWS] = number * m
            self._compile(self.tree)
        super().after_push(arrivals)

    def _finished(self) -> list[Transition]:
        # Each open transition has its old plan; the oldest plans are purged first.
        open_ones = self.history.open_ones
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
        marks: Int64s = self.store.marks + self.modules.streams[:, S_BASE]
        return marks

    def _without_states(self) -> dict[str, Any]:
        return {"tracks": []}

    def _restore(self, trees: list[Tree], marks: Int64s | None) -> None:
        if marks is not None:
            self.store.set_marks(np.maximum(marks - self.modules.streams[:, S_BASE], -FOREVER))
        for tree in trees:
            self._open_track(tree)
        self._compile(trees[-1])
