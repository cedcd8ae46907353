"""The choice between ring values and enumeration, made from measured costs and changed while the query runs.

The cost of ring values grows with the tuples on the way to the root, and the cost of enumeration with the joined rows.
So enumeration runs first, and ring values are not tried while enumeration finds few joined rows for each arrival.
Otherwise ring values are tried for some pushes, and stay if they cost less. While ring values run, the cost of
enumeration is predicted; this cost grows with the joined rows that come and go.
"""

from __future__ import annotations

FEW = 4.0
"""Joined rows per arrival, coming and going, below which ring values are not tried."""
BASE = 15.0
"""Number of joined rows whose enumeration costs as much as an arrival without joined rows."""
TRIAL = 4_000
"""Number of arrivals over which a cost is measured."""
WARM = 2_000
"""First arrivals after a change that are not measured: rows are computed for the first time."""
PATIENCE = 50_000
"""Arrivals after which the more expensive way is tried again; doubled after each failed trial."""
MOST_PATIENCE = 1 << 22
GROWN = 1.5
"""Ring values are tried again at once when the joined rows per arrival grow by this factor since they lost."""
MARGIN = 1.1
"""Factor by which a way must be cheaper to replace the other way."""
CLOSE = 0.7
"""Ring values that cost more than this part of the predicted cost of enumeration are compared again."""
FADING = 0.5
"""Weight of earlier costs against those of a new measurement."""


class RingChoice:
    """The choice between ring values and enumeration for the next push.

    forced   True for ring values always, False for never; None if measured costs decide
    on       whether ring values serve now
    changes  number of changes of `on`
    """

    def __init__(self) -> None:
        self.forced: bool | None = None
        self.on = False
        self.changes = 0
        self.costs: dict[bool, float] = {}
        """Seconds per arrival by ring values (True) and by enumeration (False), as far as they were measured."""
        self.rows: dict[bool, float] = {}
        """Joined rows per arrival that each way told apart when it was measured: ring values see fewer."""
        self._again = False
        """Whether enumeration serves only for a new measurement."""
        self._missed = 1.0
        """Joined rows of enumeration for each one that ring values see."""
        self._rows_lost = 0.0
        """Joined rows per arrival that enumeration found before ring values lost."""
        self._patience, self._waiting = PATIENCE, 0
        self._skip = WARM
        self._arrivals, self._joined, self._seconds = 0, 0, 0.0

    def wanted(self) -> bool:
        """Return whether ring values should serve the next push."""
        if self.forced is not None:
            return self.forced
        if self._arrivals < TRIAL:
            return self.on
        cost, rows = self._seconds / self._arrivals, self._joined / self._arrivals
        keep = FADING if self._waiting else 0.0
        self.costs[self.on] = keep * self.costs.get(self.on, 0.0) + (1 - keep) * cost
        self.rows[self.on] = keep * self.rows.get(self.on, 0.0) + (1 - keep) * rows
        self._waiting += self._arrivals
        self._start()
        return self._stays() if self.on else self._tries()

    @property
    def predicted(self) -> float:
        """The predicted cost of enumeration while ring values serve, seconds per arrival; infinite if it is unknown."""
        if False not in self.costs or True not in self.rows:
            return float("inf")
        return self.costs[False] * (BASE + self._missed * self.rows[True]) / (BASE + self.rows[False])

    def _stays(self) -> bool:
        """Return whether ring values cost less than enumeration would."""
        predicted = self.predicted
        if self.costs[True] >= predicted * (MARGIN if self._waiting > TRIAL else 1.0):
            return False
        self._again = self._waiting >= self._patience and self.costs[True] > CLOSE * predicted
        return not self._again

    def _tries(self) -> bool:
        """Return whether ring values are worth a trial, or have cost less."""
        margin, self._again = 1.0 if self._again else MARGIN, False
        if self.rows[False] < FEW:
            return False
        if True not in self.costs or self._waiting >= self._patience:
            return True
        if self.rows[False] > GROWN * self._rows_lost:
            return True
        if self.costs[True] * margin >= self.costs[False]:
            return False
        # Ring values were left because they tell few of the joined rows apart.
        self._missed = self.rows[False] / max(self.rows.get(True, 0.0), 1e-3)
        return True

    def _start(self) -> None:
        self._arrivals, self._joined, self._seconds = 0, 0, 0.0

    def turned(self, on: bool, lost: bool = False) -> None:
        """Note that ring values serve from now on, or that they do not; lost: they could not."""
        if self.on and not on:
            self._rows_lost = self.rows.get(False, 0.0)
            longer = lost or self._again or self._waiting < 4 * TRIAL
            self._patience = min(2 * self._patience, MOST_PATIENCE) if longer else PATIENCE
            if lost:
                self.costs[True] = float("inf")
        self.on = on
        self.changes += 1
        self._waiting, self._skip = 0, WARM
        self._start()

    def note(self, arrivals: int, joined: int, seconds: float) -> None:
        """Count a push: its arrivals, the joined rows that came and went, CPU seconds."""
        if self._skip > 0:
            self._skip -= arrivals
            return
        self._arrivals += arrivals
        self._joined += joined
        self._seconds += seconds
