"""W1 in plain Python: a dictionary of deques for each stream, rows as tuples."""

from __future__ import annotations

import platform
from collections import deque
from itertools import product
from typing import Any

from bench.peers.turns import Peer
from bench.peers.works import ROWS, SPAN, STREAMS, Step, Work
from bench.workloads import WINDOW

Result = tuple[int, int, int, int, int]
"""The key and the four values."""


class Plain:
    """Values by key and stream, and what is in the windows in the order of arrival.

    RANGE windows are all as long, so one order of arrival does for them.
    """

    def __init__(self, work: Work) -> None:
        self.values: list[dict[int, deque[int]]] = [{} for _ in STREAMS]
        self.rows = work.windows == ROWS
        self.windows: list[deque[tuple[int, deque[int]]]]
        self.windows = [deque() for _ in STREAMS] if self.rows else [deque()] * len(STREAMS)

    def push(self, given: Any) -> list[Result]:
        found: list[Result] = []
        windows, by_rows = self.windows, self.rows
        add = [kept.setdefault for kept in self.values]
        look = [kept.get for kept in self.values]
        nothing: tuple[int, ...] = ()
        for i, key, time, value in zip(*given, strict=True):
            window = windows[i]
            if not by_rows:
                oldest = time - SPAN
                while window and window[0][0] < oldest:
                    window.popleft()[1].popleft()
            parts = [get(key, nothing) for get in look]
            parts[i] = (value,)
            if all(parts):
                found += product((key,), *parts)
            own = add[i](key, deque())
            own.append(value)
            window.append((time, own))
            if by_rows and len(window) > WINDOW:
                window.popleft()[1].popleft()
        return found

    def count(self, results: list[Result]) -> int:
        return len(results)

    def total(self, results: list[Result]) -> int:
        return sum(sum(values) for _, *values in results)


def _lists(work: Work, step: Step) -> Any:
    numbers = range(step.start, step.start + len(step.order))
    return step.order.tolist(), step.keys.tolist(), step.times.tolist(), numbers


def plain_peer() -> Peer:
    """Return it."""
    return Peer("plain Python", Plain, _lists, platform.python_version())
