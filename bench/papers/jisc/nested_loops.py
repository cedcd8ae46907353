"""A model of a left-deep plan whose joins are nested loops: every state is a list, and every probe scans it.

The engine joins by hash tables only, but the joins of figure 10 (b) of the paper are general theta joins. The model
evaluates the predicate, here equality, for each pair: one scan of a whole list for each combination.

moving-state   a transition computes every state that the old plan lacks: each combination of the state below against
               each row of the next window
jisc           a transition makes these states empty and incomplete. The first probe with a value asks the state below,
               and so on down to a state that knows the value or to a window, and scans a window at each level
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np
import numpy.typing as npt

from stairs.errors import InputError

STRATEGIES = ("jisc", "moving-state")
Int64s = npt.NDArray[np.int64]


class State:
    """Combinations of the streams of the lowest levels of a plan.

    rows      int64[n, streams], row numbers by stream, -1 = not joined yet
    keys      int64[n], their value
    complete  whether all live combinations are stored; else those of the values in `asked`
    """

    def __init__(self, streams: int) -> None:
        self.rows, self.keys = np.empty((0, streams), np.int64), np.empty(0, np.int64)
        self.asked: set[int] = set()
        self.complete = False

    def knows(self, key: int) -> bool:
        """Return whether all combinations of a value are stored."""
        return self.complete or key in self.asked

    def add(self, rows: Int64s, key: int) -> None:
        """Append combinations of a value."""
        self.rows, self.keys = np.concatenate([self.rows, rows]), np.append(self.keys, np.full(len(rows), key))


class NestedLoops:
    """A plan over streams on one join attribute, windows of `window` rows each; `plan` lists streams from the bottom.

    Row numbers count from 0; row s of a stream is in slot s % window.
    """

    def __init__(self, plan: Sequence[int], window: int, strategy: str) -> None:
        if strategy not in STRATEGIES:
            raise InputError(f"there is no model of strategy {strategy!r}; choose one of {', '.join(STRATEGIES)}")
        self.plan, self.window, self.strategy = list(plan), window, strategy
        self.values = np.full((len(plan), window), -1, np.int64)
        self.next = [0] * len(plan)
        self.states = {level: State(len(plan)) for level in range(1, len(plan) - 1)}
        for state in self.states.values():
            state.complete = True

    def fill(self, values: Sequence[Int64s]) -> None:
        """Fill the windows at once, int64[window] by stream; states stay empty and become incomplete."""
        self.values[:] = values
        self.next = [self.window] * len(self.plan)
        self.states = {level: State(len(self.plan)) for level in self.states}

    def transition(self, plan: Sequence[int]) -> None:
        """Change to another plan; states of the same streams are kept."""
        old, self.plan = self.plan, list(plan)
        for level in self.states:
            if set(old[: level + 1]) != set(self.plan[: level + 1]):
                self.states[level] = State(len(self.plan))
            if self.strategy == "moving-state" and not self.states[level].complete:
                self.states[level] = self._computed(level)

    def push(self, stream: int, value: int) -> list[tuple[int, ...]]:
        """Take a row and return its results, as row numbers by stream, in no order."""
        position, row = self.plan.index(stream), self.next[stream]
        for level, state in self.states.items():  # the row that leaves the window
            if level >= position and row >= self.window:
                kept = state.rows[:, stream] != row - self.window
                state.rows, state.keys = state.rows[kept], state.keys[kept]
        self.values[stream, row % self.window] = value
        self.next[stream] = row + 1
        found = self._asked(position - 1, value) if position else np.full((1, len(self.plan)), -1)
        found[:, stream] = row
        for level in range(position, len(self.plan)):
            if level > position:
                found = self._extended(found, level, value)
            # Combinations that are not stored here are found in the windows when the value is asked for.
            if level in self.states and self.states[level].knows(value):
                self.states[level].add(found, value)
        return [tuple(one) for one in found.tolist()]

    def _matches(self, stream: int, value: int) -> Int64s:
        """Return the live rows of a stream with a value, by a scan of its window."""
        slots = np.flatnonzero(self.values[stream] == value)
        last = self.next[stream] - 1
        return last - (last - slots) % self.window

    def _alone(self, matches: Int64s) -> Int64s:
        """Return rows of the lowest stream as combinations."""
        rows = np.full((len(matches), len(self.plan)), -1)
        rows[:, self.plan[0]] = matches
        return rows

    def _extended(self, rows: Int64s, level: int, value: int) -> Int64s:
        """Join combinations of the levels below with the window of a level, one scan for each."""
        stream = self.plan[level]
        made = [np.empty((0, rows.shape[1]), np.int64)]
        for one in rows:
            matches = self._matches(stream, value)
            made.append(np.tile(one, (len(matches), 1)))
            made[-1][:, stream] = matches
        return np.concatenate(made)

    def _asked(self, level: int, value: int) -> Int64s:
        """Return the combinations of levels 0 to `level` with a value; incomplete states store what they learn."""
        if level == 0:
            return self._alone(self._matches(self.plan[0], value))
        state = self.states[level]
        if state.knows(value):
            return state.rows[np.flatnonzero(state.keys == value)].copy()
        rows = self._extended(self._asked(level - 1, value), level, value)
        state.asked.add(value)
        state.add(rows, value)
        return rows.copy()

    def _computed(self, level: int) -> State:
        """Return the complete state of a level; the state below is complete."""
        state, below = State(len(self.plan)), self.states.get(level - 1)
        if below is None:
            live = np.arange(max(self.next[self.plan[0]] - self.window, 0), self.next[self.plan[0]])
            rows, keys = self._alone(live), self.values[self.plan[0], live % self.window]
        else:
            rows, keys = below.rows, below.keys
        made = [self._extended(rows[e : e + 1], level, int(key)) for e, key in enumerate(keys)]
        state.rows = np.concatenate([state.rows, *made])
        state.keys = np.repeat(keys, [len(one) for one in made])
        state.complete = True
        return state


def first_output(streams: int, window: int, strategy: str, seed: int) -> tuple[float, float, list[tuple[int, ...]]]:
    """Return (wall seconds of a transition that changes all states, those until the first result, that result).

    Each stream repeats a permutation of as many values as its window has rows. O(window) under jisc, O(window²) under
    moving-state, each times the number of streams.
    """
    rng = np.random.default_rng(seed)
    values = [rng.permutation(window) for _ in range(streams)]
    own = int(rng.integers(streams))
    plan = NestedLoops(range(streams), window, strategy)
    plan.fill(values)
    start = perf_counter()
    plan.transition(range(streams)[::-1])
    call = perf_counter() - start
    found: list[tuple[int, ...]] = []
    for value in values[own].tolist():
        found = plan.push(own, value)
        if found:
            break
    return call, perf_counter() - start, found
