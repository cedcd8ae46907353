"""The rates of streams, in rows and ticks per epoch, and the rows of their windows in the epochs ahead.

A window that is not full yet is misleading: hops ship few intermediate tuples as long as windows have few rows. A
window with rows from before a drift, with which new rows do not join, is misleading as well. So plans are compared over
the windows that will exist if the next epochs resemble the newest one, on average over the epochs in which the gain of
a change must exceed its cost:

    rows per epoch r, span of three epochs
    held    r
    ahead   2r 3r 4r 4r 4r 4r 4r 4r        mean 3.6 r, of which rows to come 1r 2r 3r 4r 4r 4r 4r 4r, 3.25 r or 90 %
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from eddy.placement.synopses import Synopsis, distribution
from eddy.placement.tuples import Tuples

SMOOTHING = 0.5
"""Weight of the newest epoch."""


class StreamPace:
    """The pace of the streams of a query.

    spans   per stream the ticks of its window
    """

    def __init__(self, spans: Sequence[int]) -> None:
        self.rates = [0.0] * len(spans)
        """Per stream its rows per epoch."""
        self.ticks = 0.0
        """Ticks of event time per epoch."""
        self._spans = spans
        self._newest: int | None = None
        self._rows: Sequence[Tuples] = ()

    def note(self, rows: Sequence[Tuples]) -> None:
        """Record the rows of an epoch, per stream."""
        self._rows = rows
        times = [tuples.time for tuples in rows if tuples.size]
        newest = max(
            [int(ticks.max()) for ticks in times] + ([] if self._newest is None else [self._newest]), default=None
        )
        if self._newest is None:
            self.rates = [float(tuples.size) for tuples in rows]
            if newest is not None:
                # The first epoch has the ticks from its first row to its last one.
                self.ticks = newest - min(int(ticks.min()) for ticks in times) + 1.0
        else:
            assert newest is not None
            self.rates = [_smooth(tuples.size, before) for tuples, before in zip(rows, self.rates, strict=True)]
            self.ticks = _smooth(newest - self._newest, self.ticks)
        self._newest = newest

    def ahead(self, figures: Sequence[Synopsis], epochs: int) -> list[Synopsis]:
        """Return figures of all streams with the windows that are expected on average over a number of epochs."""
        expected = []
        for span, rate, rows, figure in zip(self._spans, self.rates, self._rows, figures, strict=True):
            if not rows.size:
                expected.append(figure)
                continue
            full = rate * (span / self.ticks + 1) if self.ticks else math.inf
            ahead = range(1, epochs + 1)
            held = sum(min(figure.window + k * rate, full) for k in ahead)
            fresh = sum(min(k * rate, full) for k in ahead) / held
            keys = {c: known.mixed(distribution(rows.keys[c]), fresh) for c, known in figure.keys.items()}
            expected.append(replace(figure, window=held / epochs, keys=keys))
        return expected


def _smooth(newest: float, before: float) -> float:
    return SMOOTHING * newest + (1 - SMOOTHING) * before
