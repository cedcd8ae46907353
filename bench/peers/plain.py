"""W1 in plain Python: a dictionary of deques for each stream, rows as tuples."""

from __future__ import annotations

import platform
from collections import deque
from itertools import product
from typing import Any

from bench.peers.turns import Peer
from bench.peers.works import ROWS, SPAN, STREAMS, Step, Work
from bench.workloads import WINDOW

Result = tuple[int, int, int, int]


class Plain:
    """Values by key and stream, and what is in each window in the order of arrival."""

    def __init__(self, work: Work) -> None:
        self.values: list[dict[int, deque[int]]] = [{} for _ in STREAMS]
        self.windows: list[deque[tuple[int, int]]] = [deque() for _ in STREAMS]
        self.rows = work.windows == ROWS

    def push(self, given: Any) -> list[tuple[int, Result]]:
        found: list[tuple[int, Result]] = []
        values, windows, by_rows = self.values, self.windows, self.rows
        nothing: tuple[int, ...] = ()
        for i, key, time, value in zip(*given, strict=True):
            if not by_rows:
                oldest = time - SPAN
                for window, kept in zip(windows, values, strict=True):
                    while window and window[0][0] < oldest:
                        kept[window.popleft()[1]].popleft()
            own = values[i]
            parts = [(value,) if kept is own else kept.get(key, nothing) for kept in values]
            if all(parts):
                found.extend((key, result) for result in product(*parts))
            if key in own:
                own[key].append(value)
            else:
                own[key] = deque((value,))
            window = windows[i]
            window.append((time, key))
            if by_rows and len(window) > WINDOW:
                own[window.popleft()[1]].popleft()
        return found

    def count(self, results: list[tuple[int, Result]]) -> int:
        return len(results)

    def total(self, results: list[tuple[int, Result]]) -> int:
        return sum(map(sum, (values for _, values in results)))


def _lists(work: Work, step: Step) -> Any:
    numbers = range(step.start, step.start + len(step.order))
    return step.order.tolist(), step.keys.tolist(), step.times.tolist(), numbers


def plain_peer() -> Peer:
    """Return it."""
    return Peer("plain Python", Plain, _lists, platform.python_version())
