"""What is known of the conditions of a filter: what they cost, and what they drop together; the order that follows.

A profile is a sliding window over sampled rows, each of which was asked of all conditions:

    dropped  bool[WINDOW, n]     whether condition k dropped the row; rows are overwritten in a ring
                     A  B  C
    sampled row 0    1  1  0     A drops two rows of three, so do B and C. But behind A, B drops nothing of what is
                1    1  1  1     left and C drops all of it: what counts is the rate among the rows that the
                2    0  0  1     conditions before have left.

The order is greedy: at each place the condition with the greatest share of the remaining rows dropped per second. That
costs at most four times the best order, whatever the correlations; for independent conditions it is the best. Source:
Babu, Motwani, Munagala, Nishizawa, Widom, "Adaptive ordering of pipelined stream filters", SIGMOD 2004, sec. 3 and 4.

Three deviations. A call has a fixed part, which is paid in every order unless nothing is left to ask about; so places
are given out by the part that grows with the rows, but for batches of hardly any. Among few remaining rows the rate is
drawn towards the rate among all rows, as if PRIOR_ROWS rows had it: a profile in which nothing reaches the last places
would say nothing about them. And an order is changed only where greed is violated by MARGIN and the whole is expected
to become cheaper by GAIN, so that noise moves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stairs.storage.parts import Parts, Plain

WINDOW = 512
PRIOR_ROWS = 8.0
MARGIN = 0.2
GAIN = 0.05
MIN_ROWS = 32
"""A profile of fewer rows changes no order."""

DECAY = 0.98
"""What a call counts in terms of the one after it."""

EVEN_ROWS = 1000
"""Calls of up to so many rows count alike in a fit, larger ones by the time of a row."""

SPIKE = 8.0
"""A call counts at most so many times what was expected: a process that was put to sleep says nothing of its cost."""

TINY = 1e-9

COST_NUMBERS = 8
"""Numbers that say what was learnt of a call."""


class CallCost:
    """Seconds of a call on n rows, as call_s + row_s * n, fitted to recent calls by least squares."""

    def __init__(self) -> None:
        self.calls = 0
        self.call_s = 0.0
        self.row_s = 0.0
        # Weighted sums of 1, n, n², t, n·t. A call on a few rows should say as much as one on many: so what is fitted
        # is the time of a row, but where calls are short that of a call.
        self._sums = [0.0] * 5

    def to_parts(self) -> list[float]:
        """Return what was learnt, as numbers."""
        return [float(self.calls), float(self.call_s), float(self.row_s), *map(float, self._sums)]

    def load_parts(self, numbers: list[float]) -> None:
        """Go on from what was learnt."""
        calls, self.call_s, self.row_s, *self._sums = numbers
        self.calls = int(calls)

    def of(self, rows: float) -> float:
        """Return the seconds expected of a call; of less than a row, as a mean over calls that may not be made."""
        return self.call_s * min(rows, 1.0) + self.row_s * rows

    def saved(self, rows: float) -> float:
        """Return what of a call on so many rows another condition before it might save."""
        return self.call_s / max(rows, 1.0) + self.row_s * rows

    def note(self, rows: int, seconds: float) -> None:
        """Take the seconds that a call took; one without rows says nothing. O(1)."""
        if not rows:
            return
        seconds = max(seconds, TINY)
        if self.calls:
            seconds = min(seconds, SPIKE * max(self.of(rows), TINY))
        self.calls += 1
        weight = 1 / (EVEN_ROWS + rows) ** 2
        terms = (weight, weight * rows, weight * rows * rows, weight * seconds, weight * rows * seconds)
        self._sums = [DECAY * old + new for old, new in zip(self._sums, terms, strict=True)]
        one, n, nn, t, nt = self._sums
        determinant = one * nn - n * n
        # Calls on one number of rows tell no difference between the two parts.
        if determinant > 1e-4 * one * nn:
            self.call_s, self.row_s = (nn * t - n * nt) / determinant, (one * nt - n * t) / determinant
            if self.call_s >= 0 and self.row_s >= 0:
                return
            if self.row_s < 0:
                self.call_s, self.row_s = t / one, 0.0
                return
        self.call_s, self.row_s = 0.0, nt / nn


class Profile:
    """The sliding window of outcomes of n conditions."""

    def __init__(self, n: int) -> None:
        self.rows = 0
        """Rows in the window."""
        self._dropped = np.zeros((WINDOW, n), np.bool_)
        self._next = 0

    def to_parts(self) -> Plain:
        """Return all that goes on."""
        return {"rows": self.rows, "next": self._next, "dropped": self._dropped}

    def load_parts(self, parts: Parts) -> None:
        """Go on from the profile of as many conditions."""
        dropped = parts.array("dropped", np.bool_, self._dropped.shape)
        self.rows, self._next = parts.integer("rows", high=WINDOW), parts.integer("next", high=WINDOW - 1)
        self._dropped = dropped

    def add(self, dropped: npt.NDArray[np.bool_]) -> None:
        """Take the outcomes of some rows, bool[k, n]; the oldest give way."""
        places = (self._next + np.arange(len(dropped))) % WINDOW
        self._dropped[places] = dropped
        self._next = (self._next + len(dropped)) % WINDOW
        self.rows = min(WINDOW, self.rows + len(dropped))

    def clear(self) -> None:
        """Forget all rows."""
        self.rows = self._next = 0

    def alone(self) -> npt.NDArray[np.float64]:
        """Return the share of all rows that each condition drops, float64[n]."""
        return self._dropped[: self.rows].mean(axis=0) if self.rows else np.zeros(self._dropped.shape[1])

    def rates(self, left: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """Return the share of the rows left that each condition drops, float64[n]; left bool[rows]."""
        remaining = self._dropped[: self.rows][left]
        share: npt.NDArray[np.float64] = (remaining.sum(axis=0) + PRIOR_ROWS * self.alone()) / (
            len(remaining) + PRIOR_ROWS
        )
        return share

    def drops(self, order: Sequence[int]) -> list[float]:
        """Return the share of what reaches it that the condition at each place of an order drops."""
        left = np.ones(self.rows, np.bool_)
        found = []
        for k in order:
            found.append(float(self.rates(left)[k]))
            left &= ~self._dropped[: self.rows, k]
        return found

    def cost(self, order: Sequence[int], costs: Sequence[CallCost], rows: float) -> float:
        """Return the seconds expected of an order for so many rows."""
        seconds = 0.0
        for k, dropped in zip(order, self.drops(order), strict=True):
            seconds += costs[k].of(rows)
            rows *= 1 - dropped
        return seconds

    def better(self, order: Sequence[int], costs: Sequence[CallCost], rows: float) -> list[int] | None:
        """Return a better order for batches of so many rows, None if this one will do. O(n² WINDOW)."""
        if self.rows < MIN_ROWS:
            return None
        left, remaining, found, reaching = np.ones(self.rows, np.bool_), list(order), [], rows
        while remaining:
            rates = self.rates(left)
            score = {k: rates[k] / max(costs[k].saved(reaching), TINY) for k in remaining}
            best = max(remaining, key=score.__getitem__)
            chosen = best if score[best] > (1 + MARGIN) * score[remaining[0]] else remaining[0]
            remaining.remove(chosen)
            found.append(chosen)
            reaching *= 1 - float(rates[chosen])
            left &= ~self._dropped[: self.rows, chosen]
        if found == list(order):
            return None
        now = self.cost(order, costs, rows)
        return found if self.cost(found, costs, rows) < (1 - GAIN) * now else None
