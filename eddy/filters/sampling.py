"""Samples for the profile of a filter: the choice of rows of a slice, within a share of the filter's time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eddy.filters.profile import CallCost
from eddy.storage.random_state import random_state, set_random_state
from stairs.storage.parts import Parts, Plain

SAMPLE_ROWS = 256
"""Upper bound on the rows sampled of a slice."""

FEWEST_SAMPLED = 8
"""Smaller samples would cost the same number of calls and give little information."""

FIRST_SAMPLE = 64
FIRST_ONE_IN, FIRST_ONE_IN_LARGE = 16, 64
"""The first sample is taken before any cost is known: one row in 16 up to FIRST_SAMPLE rows, one in 64 beyond."""

DRIFT_SHARE = 3
"""While the data drift, samples may take this many times their share of the time."""

SEED = 0
"""The sampled rows are the same in each run."""

Rows = npt.NDArray[np.int64]


class Sampler:
    """Chooses the sampled rows of each slice.

    share  of the time of the filter that samples may take; DRIFT_SHARE times as much while the data drift, and without
           counting the first sample
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.rows = 0
        """Rows sampled."""
        self.seconds = 0.0
        """Seconds that samples took."""
        self.drifting = False
        """Whether the profile no longer fits the data, so that the next sample begins a new one."""
        self._allowed = 0.0
        """Seconds that samples may take now; negative after a sample that took longer than allowed."""
        self._random = np.random.default_rng(SEED)

    def count(self, rows: int, costs: Sequence[CallCost], filter_seconds: float) -> int:
        """Return how many rows of a slice to sample, 0 = none.

        costs           of the conditions
        filter_seconds  seconds that the filter has taken so far
        """
        wanted = self._wanted(rows, costs, filter_seconds)
        return wanted if wanted >= FEWEST_SAMPLED else 0

    def _wanted(self, rows: int, costs: Sequence[CallCost], filter_seconds: float) -> int:
        if not self.rows and not self._allowed:
            return _first_count(rows) if self.share else 0
        call = sum(cost.call_s for cost in costs)
        row = sum(cost.row_s for cost in costs)
        # Unused time has an upper bound, because after many large batches the unused time would be long.
        self._allowed = min(self._allowed, 4 * (call + SAMPLE_ROWS * row))
        if self.drifting:
            count = _first_count(rows)
            most = DRIFT_SHARE * self.share * filter_seconds
            return count if self.seconds + call + count * row <= most else 0
        affordable = (self._allowed - call) / row if row else SAMPLE_ROWS * (self._allowed > call)
        return int(max(0, min(affordable, SAMPLE_ROWS, rows)))

    def draw(self, rows: int, count: int) -> Rows:
        """Return `count` different row numbers below `rows`, ascending, int64: one from each of `count` stretches."""
        return ((np.arange(count) + self._random.random(count)) * rows / count).astype(np.int64)

    def cuts(self, count: int) -> list[int]:
        """Return the ends of the parts into which a sample is cut; each part is evaluated by one call.

        The times of the very first calls are unreliable, because these calls load and compile code. Two more calls of
        different sizes separate the cost of a call from the cost of a row.
        """
        return [count] if self.rows else sorted({FEWEST_SAMPLED, min(2 * FEWEST_SAMPLED, count), count})

    def spend(self, sample_seconds: float, other_seconds: float) -> None:
        """Record the seconds of a slice: the seconds for its sample and the other seconds."""
        self.seconds += sample_seconds
        self._allowed += self.share * other_seconds - sample_seconds

    def to_parts(self) -> Plain:
        """Return the state as plain parts."""
        return {
            "rows": self.rows,
            "seconds": float(self.seconds),
            "drifting": bool(self.drifting),
            "allowed": float(self._allowed),
            "random": random_state(self._random),
        }

    def load_parts(self, parts: Parts) -> None:
        """Set the state that `to_parts` returned. Raises StateError."""
        self.rows, self.seconds = parts.integer("rows"), parts.number("seconds")
        self.drifting, self._allowed = parts.flag("drifting"), parts.number("allowed")
        set_random_state(self._random, parts.part("random"))


def _first_count(rows: int) -> int:
    return min(max(min(FIRST_SAMPLE, rows // FIRST_ONE_IN), rows // FIRST_ONE_IN_LARGE), SAMPLE_ROWS)
