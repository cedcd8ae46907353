"""The profile of a filter's conditions: their costs, the rows that each condition drops, and the resulting order.

A profile is a sliding window over sampled rows, on each of which all conditions were evaluated:

    dropped  bool[WINDOW, n]     whether condition k dropped the row; rows are overwritten in a ring
                     A  B  C
    sampled row 0    1  1  0     A, B and C each drop two rows of three. But after A, B drops none of the remaining
                1    1  1  1     rows and C drops all of them. The relevant rate is the rate among the rows that the
                2    0  0  1     conditions before accept.

The order is greedy: each place has the condition that drops the greatest share of the remaining rows per second. The
greedy order costs at most four times the best order for any correlations; for independent conditions the greedy order
is the best order. Source: Babu, Motwani, Munagala, Nishizawa, Widom, "Adaptive ordering of pipelined stream filters",
SIGMOD 2004, sec. 3 and 4.

The implementation deviates in three points. (1) A call has a fixed cost, which every order pays unless no row is left;
so the cost per row decides, except in batches of very few rows. (2) Among few remaining rows, the rate is moved towards
the rate among all rows, as if PRIOR_ROWS further rows had the rate among all rows. Otherwise the last places would have
no order in a profile of which no row reaches these places. (3) An order is changed only where a condition is better
than the current condition by MARGIN and the whole order is expected to be cheaper by GAIN, so that noise does not
change the order.
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
"""A profile of fewer rows does not change the order."""

DECAY = 0.98
"""Weight of a call relative to the next one."""

EVEN_ROWS = 1000
"""Calls of up to this many rows weigh about the same in the fit; above, weights fall with the rows squared."""

SPIKE = 8.0
"""The time of a call is capped at this multiple of the expected time: the process may have been suspended."""

TINY = 1e-9

COST_NUMBERS = 8
"""Numbers of the state of a `CallCost`."""


class CallCost:
    """Seconds of a call on n rows, as call_s + row_s * n, fitted to recent calls by least squares."""

    def __init__(self) -> None:
        self.calls = 0
        self.call_s = 0.0
        self.row_s = 0.0
        # Weighted sums of 1, n, n², t, n·t. The weights make a call on few rows count as much as one on many: the fit
        # minimises the error of the time per row, and for short calls the error of the time per call.
        self._sums = [0.0] * 5

    def to_numbers(self) -> list[float]:
        """Return the state as COST_NUMBERS numbers."""
        return [float(self.calls), float(self.call_s), float(self.row_s), *map(float, self._sums)]

    def load_numbers(self, numbers: list[float]) -> None:
        """Set the state that `to_numbers` returned."""
        calls, self.call_s, self.row_s, *self._sums = numbers
        self.calls = int(calls)

    def of(self, rows: float) -> float:
        """Return the expected seconds of a call; below one row, the mean over calls of which some are not made."""
        return self.call_s * min(rows, 1.0) + self.row_s * rows

    def saved(self, rows: float) -> float:
        """Return the part of the cost of a call on this many rows that an earlier condition may save."""
        return self.call_s / max(rows, 1.0) + self.row_s * rows

    def note(self, rows: int, seconds: float) -> None:
        """Record the seconds of a call; a call without rows is ignored. O(1)."""
        if not rows:
            return
        seconds = max(seconds, TINY)
        if self.calls:
            seconds = min(seconds, SPIKE * max(self.of(rows), TINY))
        self.calls += 1
        weight = 1 / (EVEN_ROWS + rows) ** 2
        terms = (weight, weight * rows, weight * rows * rows, weight * seconds, weight * rows * seconds)
        self._sums = [DECAY * old + new for old, new in zip(self._sums, terms, strict=True)]
        weights, n, nn, t, nt = self._sums
        determinant = weights * nn - n * n
        # Calls on the same number of rows cannot separate the two parts.
        if determinant > 1e-4 * weights * nn:
            self.call_s, self.row_s = (nn * t - n * nt) / determinant, (weights * nt - n * t) / determinant
            if self.call_s >= 0 and self.row_s >= 0:
                return
            if self.row_s < 0:
                self.call_s, self.row_s = t / weights, 0.0
                return
        self.call_s, self.row_s = 0.0, nt / nn


class Profile:
    """A sliding window of the outcomes of n conditions."""

    def __init__(self, n: int) -> None:
        self.rows = 0
        """Rows in the window."""
        self._dropped = np.zeros((WINDOW, n), np.bool_)
        self._next = 0

    def to_parts(self) -> Plain:
        """Return the state as plain parts."""
        return {"rows": self.rows, "next": self._next, "dropped": self._dropped}

    def load_parts(self, parts: Parts) -> None:
        """Set the state that a profile of as many conditions returned from `to_parts`. Raises StateError."""
        dropped = parts.array("dropped", np.bool_, self._dropped.shape)
        self.rows, self._next = parts.integer("rows", high=WINDOW), parts.integer("next", high=WINDOW - 1)
        self._dropped = dropped

    def add(self, dropped: npt.NDArray[np.bool_]) -> None:
        """Add the outcomes of some rows, bool[k, n], in place of the oldest."""
        places = (self._next + np.arange(len(dropped))) % WINDOW
        self._dropped[places] = dropped
        self._next = (self._next + len(dropped)) % WINDOW
        self.rows = min(WINDOW, self.rows + len(dropped))

    def clear(self) -> None:
        """Remove all rows."""
        self.rows = self._next = 0

    def alone(self) -> npt.NDArray[np.float64]:
        """Return the share of all rows that each condition drops, float64[n]."""
        return self._dropped[: self.rows].mean(axis=0) if self.rows else np.zeros(self._dropped.shape[1])

    def rates(self, left: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """Return the share of the remaining rows that each condition drops, float64[n]; left bool[rows]."""
        remaining = self._dropped[: self.rows][left]
        share: npt.NDArray[np.float64] = (remaining.sum(axis=0) + PRIOR_ROWS * self.alone()) / (
            len(remaining) + PRIOR_ROWS
        )
        return share

    def drops(self, order: Sequence[int]) -> list[float]:
        """Return, for each place of an order, the share of the rows reaching it that its condition drops."""
        left = np.ones(self.rows, np.bool_)
        shares = []
        for k in order:
            shares.append(float(self.rates(left)[k]))
            left &= ~self._dropped[: self.rows, k]
        return shares

    def cost(self, order: Sequence[int], costs: Sequence[CallCost], rows: float) -> float:
        """Return the expected seconds of an order for this many rows."""
        seconds = 0.0
        for k, dropped in zip(order, self.drops(order), strict=True):
            seconds += costs[k].of(rows)
            rows *= 1 - dropped
        return seconds

    def better(self, order: Sequence[int], costs: Sequence[CallCost], rows: float) -> list[int] | None:
        """Return a clearly better order for batches of this many rows, or None if none is found. O(n² WINDOW)."""
        if self.rows < MIN_ROWS:
            return None
        left, remaining, reordered, reaching = np.ones(self.rows, np.bool_), list(order), [], rows
        while remaining:
            rates = self.rates(left)
            score = {k: rates[k] / max(costs[k].saved(reaching), TINY) for k in remaining}
            best = max(remaining, key=score.__getitem__)
            chosen = best if score[best] > (1 + MARGIN) * score[remaining[0]] else remaining[0]
            remaining.remove(chosen)
            reordered.append(chosen)
            reaching *= 1 - float(rates[chosen])
            left &= ~self._dropped[: self.rows, chosen]
        if reordered == list(order):
            return None
        now = self.cost(order, costs, rows)
        return reordered if self.cost(reordered, costs, rows) < (1 - GAIN) * now else None
