"""Peers that run in this process: how they take the work, and what is timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, process_time, thread_time
from typing import Any, Protocol

from bench.measure import without_gc
from bench.peers.works import Step, Work

WALL = "wall"
CLOCKS: dict[str, Callable[[], float]] = {
    "CPU, thread": thread_time,
    "CPU, process": process_time,
    WALL: perf_counter,
}
"""The thread's for what runs in the calling one alone; the process's for what has a thread of its own to work in, which
`thread_time` does not see; wall time for more threads than one."""


class Engine(Protocol):
    """An engine with the work's windows, empty at first."""

    def push(self, given: Any) -> Any:
        """Take what `prepare` made of the next step and return its results."""

    def count(self, results: Any) -> int:
        """Return how many results there are."""

    def total(self, results: Any) -> int | None:
        """Return the sum of all values in the results, or None if it has none."""


@dataclass(frozen=True)
class Peer:
    """A way to do the work.

    start    an engine for this work; not timed
    prepare  a step in the form in which the engine takes it; not timed
    clock    one of CLOCKS
    threads  how many it may use
    version  of what does the work
    windows  the works it can do
    """

    name: str
    start: Callable[[Work], Engine]
    prepare: Callable[[Work, Step], Any]
    version: str
    clock: str = "CPU, thread"
    threads: int = 1
    windows: tuple[str, ...] = ("ROWS", "RANGE")


def found(peer: Peer, work: Work) -> tuple[int, int | None]:
    """Return how many results there are of all arrivals, and the sum of all their values. Nothing is timed."""
    engine = peer.start(work)
    results, total = 0, 0
    knows = True
    for step in work.steps:
        table = engine.push(peer.prepare(work, step))
        results += engine.count(table)
        of_step = engine.total(table)
        knows = knows and of_step is not None
        total += of_step or 0
    return results, total if knows else None


class Turn:
    """One peer over one work, to be run again and again: each time from empty windows, timed when they are full."""

    def __init__(self, peer: Peer, work: Work) -> None:
        self.peer = peer
        self.work = work
        self.given = [peer.prepare(work, step) for step in work.steps]
        self.results = 0
        """Of the timed arrivals of the last run."""
        self.wall = 0.0
        """Seconds of them by the clock on the wall, to be held against a peer that has no other."""

    def seconds(self) -> float:
        """Return the seconds of the timed arrivals."""
        clock = CLOCKS[self.peer.clock]
        engine = self.peer.start(self.work)
        warm = self.work.warm // self.work.batch
        results = 0
        with without_gc():
            for given in self.given[:warm]:
                engine.count(engine.push(given))
            start, on_wall = clock(), perf_counter()
            for given in self.given[warm:]:
                results += engine.count(engine.push(given))
            taken, self.wall = clock() - start, perf_counter() - on_wall
        self.results = results
        return taken
