"""The transitions of one strategy, and the pushes around them from which their rates follow.

A transition is *open* while its migration stage lasts: its counters grow. It is *watched* for the AROUND pushes after
it: its rates change. A transition that is neither does not change any more. An engine that moves between processes may
have a long history, so such transitions are archived as JSON, CHAPTER or more at a time, and parsed on demand.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from jisc.strategies.transition import Transition
from stairs.graph import JoinGraph
from stairs.memory.arena import Bytes
from stairs.storage.parts import NO_MEMORY, Parts, Plain

AROUND = 16
"""Pushes before and after a transition over which rates are taken."""
CHAPTER = 32
"""Transitions that are archived together, at least."""

SECONDS = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Upper bounds of the buckets in which times of pushes are counted."""

Counters = dict[str, int]
"""Running totals by the names of their fields in `Transition`."""
PushFigures = tuple[int, int, float]
"""Results, arrivals and seconds of a push."""


class Mark(NamedTuple):
    """A point in the history to which `History.roll_back` returns.

    length      transitions up to it
    open_ones   the open ones among them, each with the counters when its stage began
    """

    length: int
    open_ones: list[tuple[Transition, Counters]]


class History:
    """Transitions, oldest first."""

    def __init__(self, graph: JoinGraph) -> None:
        self.graph = graph
        self._archive: list[Bytes] = []
        """The oldest transitions as JSON, in chapters."""
        self._archived = 0
        """The number of archived transitions."""
        self._newer: list[Transition] = []
        """The transitions that are not archived."""
        self._open: list[tuple[Transition, Counters]] = []
        """Transitions whose stage lasts, each with the counters when it began; replaced, never modified."""
        self._recent: deque[PushFigures] = deque(maxlen=AROUND)
        """The last pushes."""
        self._watched: list[tuple[Transition, list[PushFigures]]] = []
        """The last transitions, each with the pushes after it."""
        self.buckets = [0] * (len(SECONDS) + 1)
        """Pushes of this process by their time: at most SECONDS[k], and more than all of them."""
        self.seconds = 0.0
        """Seconds of all pushes of this process."""

    @property
    def transitions(self) -> list[Transition]:
        """All transitions. Parses the archive; `count` and `newest` do not."""
        if self._archive:
            parsed = [done for chapter in self._archive for done in self._parsed(chapter)]
            # In one statement: an exception between two statements would duplicate transitions.
            vars(self).update(_newer=[*parsed, *self._newer], _archive=[], _archived=0)
        return self._newer

    @property
    def count(self) -> int:
        """The number of transitions. O(1)."""
        return self._archived + len(self._newer)

    @property
    def newest(self) -> Transition | None:
        """The newest transition, or None before the first. O(1)."""
        return self._newer[-1] if self._newer else None

    @property
    def recent(self) -> tuple[PushFigures, ...]:
        """The last pushes, at most AROUND, oldest first."""
        return tuple(self._recent)

    # A new transition, and what follows it

    def watch(self, done: Transition) -> None:
        """Take the rates before a transition that was just made, and take those after it from now on."""
        done.rate_before, done.ns_before = _rates(self._recent)
        self._watched.append((done, [(0, 0, done.seconds)]))

    def append(self, done: Transition, before: Counters, overlaps: bool) -> None:
        """Append a transition and open its stage; `before` are the counters before it.

        overlaps   whether stages of earlier transitions go on; if not, this transition ends them, since the states that
                   they left incomplete belong to its own stage
        """
        if not overlaps:
            for other, _ in self._open:
                other.ended = done.position
            self._open = []
        self._newer.append(done)
        self._open = [*self._open, (done, before)]

    @property
    def is_open(self) -> bool:
        """Whether the stage of a transition lasts. O(1)."""
        return bool(self._open)

    @property
    def open_ones(self) -> list[Transition]:
        """The transitions whose stage lasts."""
        return [done for done, _ in self._open]

    def update(self, now: Counters) -> None:
        """Set the counters of open transitions from the running totals."""
        for done, before in self._open:
            for name, value in now.items():
                setattr(done, name, value - before[name])

    def end(self, finished: Iterable[Transition], position: int) -> None:
        """End the stages of these transitions at a position."""
        for done in finished:
            done.ended = position
        self._open = [pair for pair in self._open if pair[0].ended is None]

    def note_push(self, results: int, arrivals: int, seconds: float) -> None:
        """Take the figures of a push into the rates. O(1)."""
        self._recent.append((results, arrivals, seconds))
        self.buckets[bisect_left(SECONDS, seconds)] += 1
        self.seconds += seconds
        for done, pushes in self._watched:
            pushes.append((results, arrivals, seconds))
            done.rate_after, done.ns_after = _rates(pushes)
            done.longest = max(done.longest, seconds)
        if self._watched:
            self._watched = [watched for watched in self._watched if len(watched[1]) <= AROUND]

    # Undo

    def mark(self) -> Mark:
        """Return the present point of the history."""
        return Mark(self._archived + len(self._newer), self._open)

    def roll_back(self, mark: Mark) -> None:
        """Remove the transitions since a mark. It may be repeated."""
        self._newer = self._newer[: mark.length - self._archived]
        self._open = mark.open_ones
        self._watched = [watched for watched in self._watched if watched[0] in self._newer]
        for done, _ in self._open:
            done.ended = None

    # Saved for another process (`eddy.live.engine_file`)

    def to_parts(self) -> Plain:
        """Return the history as plain parts."""
        self._write_chapter()
        place = {id(done): n for n, done in enumerate(self._newer)}
        return {
            "archive": self._archive,
            "archived": self._archived,
            "transitions": [done.to_parts() for done in self._newer],
            "open": [{"place": place[id(done)], "before": before} for done, before in self._open],
            "recent": [list(push) for push in self._recent],
            "watched": [
                {"place": place[id(done)], "pushes": [list(push) for push in pushes]} for done, pushes in self._watched
            ],
        }

    def load_parts(self, parts: Parts, names: Iterable[str]) -> None:
        """Resume the history that `to_parts` returned; `names` are those of the counters."""
        transitions = [Transition.from_parts(saved, self.graph) for saved in parts.items("transitions")]
        last, totals = len(transitions) - 1, tuple(names)
        self._open = [
            (transitions[saved.integer("place", high=last)], _totals(saved.part("before"), totals))
            for saved in parts.items("open")
        ]
        self._watched = [
            (transitions[saved.integer("place", high=last)], _pushes(saved, "pushes"))
            for saved in parts.items("watched")
        ]
        self._recent = deque(_pushes(parts, "recent"), maxlen=AROUND)
        self._archive = parts.arrays("archive", np.uint8)
        self._archived = parts.integer("archived")
        self._newer = transitions

    def _write_chapter(self) -> None:
        """Archive the transitions that do not change any more, if they fill a chapter."""
        busy = {id(done) for done, _ in (*self._open, *self._watched)}
        # Not the newest: `newest` returns it without parsing.
        older = self._newer[:-1]
        over = next((n for n, done in enumerate(older) if id(done) in busy), len(older))
        if over >= CHAPTER:
            text = json.dumps([done.to_parts() for done in older[:over]])
            self._archive = [*self._archive, np.frombuffer(text.encode(), np.uint8)]
            self._archived += over
            self._newer = self._newer[over:]

    def _parsed(self, chapter: Bytes) -> list[Transition]:
        written = Parts({"transitions": json.loads(chapter.tobytes())}, NO_MEMORY, "the archive of transitions")
        return [Transition.from_parts(saved, self.graph) for saved in written.items("transitions")]


def _totals(parts: Parts, names: Iterable[str]) -> Counters:
    return {name: parts.integer(name) for name in names}


def _pushes(parts: Parts, name: str) -> list[PushFigures]:
    """Return the figures of pushes that were saved."""
    pushes = []
    for push in parts.sequence(name):
        parts.require(type(push) is list and [type(value) for value in push] == [int, int, float], f"{name} {push}")
        pushes.append((push[0], push[1], push[2]))
    return pushes


def _rates(pushes: Iterable[PushFigures]) -> tuple[float, float]:
    """Return results per second, and nanoseconds per arrival."""
    results, arrivals, seconds = (sum(column) for column in zip(*pushes, strict=True)) if pushes else (0, 0, 0.0)
    return results / seconds if seconds else 0.0, 1e9 * seconds / arrivals if arrivals else 0.0
