"""A model of a left-deep plan whose joins are nested loops: every state is a list, and every probe scans it.

The engine joins by hash tables only, so figure 10 (b) of the paper, whose joins are general theta joins, cannot be had
from it. In the model the predicate is evaluated for each pair, as if nothing were known about it; that it compares
two numbers for equality serves only to keep results few.

moving-state   a transition computes every state that the old plan has not, each combination of the state below against
               each row of the next window
jisc           a transition makes them empty and incomplete. The first probe by a value asks the state below for it, and
               so on down to a state that knows or to a window, and scans a window at each level

An incomplete state keeps the values it was asked for, of which it has every combination, and takes no others; so it is
right however long it stays incomplete. It does not become complete in time, which a plan would see to that runs long.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from bench.papers.jisc.nested_loops_kernels import FULL, Plan, compute, push
from bench.workloads import Keys
from stairs.errors import CapacityError, InputError

STRATEGIES = ("jisc", "moving-state")


class NestedLoops:
    """A plan over streams on one join attribute, windows of `window` rows each.

    plan      the streams from the bottom of the plan up
    strategy  what a transition does: "jisc" or "moving-state"
    room      combinations that a state may have, at least as many as a window has rows: enough for values that are
              different within a window
    """

    def __init__(self, plan: Sequence[int], window: int, strategy: str, room: int = 0) -> None:
        if strategy not in STRATEGIES:
            raise InputError(f"there is no model of strategy {strategy!r}; choose one of {', '.join(STRATEGIES)}")
        m, room = len(plan), max(room, window)
        self.strategy = strategy
        # Filled, not only reserved: a plan that runs has had states there, and pages that are touched for the first
        # time would cost more than what jisc does with them.
        self._p = Plan(
            np.array(plan, np.int64),
            np.zeros((m, window), np.int64),
            np.zeros(m, np.int64),
            np.ones(m, np.int64),
            np.zeros(m, np.int64),
            np.full((m, room), -1, np.int64),
            np.full((m, m, room), -1, np.int32),
            np.zeros(m, np.int64),
            np.full((m, room), -1, np.int64),
            np.full((2, m, room), -1, np.int32),
        )

    def fill(self, values: Sequence[Keys]) -> None:
        """Fill the windows with rows at once, int64[window] by stream; no state has anything of them yet."""
        for j, own in enumerate(values):
            self._p.values[j] = own
        self._p.nxt[:] = self._p.values.shape[1]
        for level in range(1, len(self._p.plan) - 1):
            self._forget(level)

    def _forget(self, level: int) -> None:
        """Make the state of a level empty and incomplete."""
        self._p.complete[level] = self._p.counts[level] = self._p.n_asked[level] = 0

    def transition(self, plan: Sequence[int]) -> None:
        """Go over to another plan; states of the same streams are kept. Raises CapacityError if one is too large."""
        old, new = self._p.plan.tolist(), list(plan)
        for level in range(1, len(new) - 1):
            if set(old[: level + 1]) != set(new[: level + 1]):
                self._forget(level)
        self._p.plan[:] = new
        if self.strategy == "moving-state":
            for level in range(1, len(new) - 1):
                if not self._p.complete[level]:
                    self._checked(compute(self._p, level))

    def push(self, stream: int, value: int) -> list[tuple[int, ...]]:
        """Take a row and return its results, as row numbers by stream, in no order. Raises as `transition`."""
        n = self._checked(push(self._p, stream, value))
        work = self._p.work[(len(self._p.plan) - 1) % 2]
        return [tuple(work[:, c].tolist()) for c in range(n)]

    def _checked(self, n: int) -> int:
        if n == FULL:
            room = self._p.keys.shape[1]
            raise CapacityError(f"a state has more than {room:,} combinations: give the plan more room")
        return n


def first_output(streams: int, window: int, strategy: str, seed: int) -> tuple[float, float, list[tuple[int, ...]]]:
    """Return (wall seconds of a transition that changes all states, those until the first result, that result).

    Each stream has a permutation of as many values as its window has rows, and repeats it. O(window) under jisc,
    O(window²) under moving-state, each times the number of streams.
    """
    rng = np.random.default_rng(seed)
    values = [rng.permutation(window) for _ in range(streams)]
    own = int(rng.integers(streams))
    plan = NestedLoops(range(streams), window, strategy)
    plan.fill(values)
    coming = values[own].tolist()
    start = perf_counter()
    plan.transition(range(streams)[::-1])
    call = perf_counter() - start
    found: list[tuple[int, ...]] = []
    for value in coming:
        found = plan.push(own, value)
        if found:
            break
    return call, perf_counter() - start, found
