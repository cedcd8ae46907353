"""How many tasks a streaming join needs, from the time for which its tasks are busy.

The rule is that of Kubernetes' horizontal autoscaler: the number of tasks times their utilization, over the
utilization that is wanted. The join grows at once, and it shrinks only to the most tasks that it needed lately, because
a key group that moves to another executor is loaded from the log.
"""

from __future__ import annotations

import math
from collections import deque

UTILIZATION = 0.4
"""The share of their time for which tasks should be busy. While rows wait, tasks are busy for 0.5 to 0.65 of their time
with 500,000 rows in a micro-batch, and for 0.1 to 0.35 with 2,000 to 50,000, of which more tasks would only save a
part; the rest is the time of Spark and of the driver."""
TOLERANCE = 0.1
"""The relative deviation from this share that has no effect."""
WINDOW_S, SHRINK_S = 5.0, 60.0
"""Seconds over which utilization is averaged, and for which a number of tasks is kept that was needed."""


class Demand:
    """The tasks that one join needs.

    tasks  the number at the start
    most   the greatest number
    now    the time in seconds, of any clock that does not go back
    """

    def __init__(self, tasks: int, most: int, now: float) -> None:
        self._most = most
        self._ended = now
        self._batches: deque[tuple[float, float, float]] = deque()
        """Of the batches in the window: when the batch before them ended, when they ended, their busy seconds."""
        self._needed: deque[tuple[float, int]] = deque([(now, min(tasks, most))])
        """The tasks that were needed within SHRINK_S, with the times."""

    def tasks(self, now: float) -> int:
        """Return the number of tasks that the join should have."""
        while len(self._needed) > 1 and self._needed[0][0] < now - SHRINK_S:
            self._needed.popleft()
        return max(tasks for _, tasks in self._needed)

    def saw(self, tasks: int, busy_s: float, now: float) -> None:
        """Take the figures of a micro-batch that ended now: its tasks, and the seconds for which all of them
        were busy."""
        self._batches.append((self._ended, now, busy_s))
        self._ended = now
        while self._batches[0][1] < now - WINDOW_S:
            self._batches.popleft()
        seconds = max(now - self._batches[0][0], 1e-9)
        needed = sum(busy for _, _, busy in self._batches) / seconds / UTILIZATION
        if abs(needed / tasks - 1) <= TOLERANCE:
            needed = tasks
        self._needed.append((now, max(1, min(self._most, math.ceil(needed)))))
