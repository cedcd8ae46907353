"""The costs of each placement of a streaming join, fitted to the micro-batches that ran in it.

A micro-batch is a *point*: its predicted work, and the CPU seconds that its tasks took. The fitted costs follow from
the newest points and the default costs alone. So manifests store the points, and a restarted join has the same costs as
before. Points are rounded in memory, too, so that a restart does not change the costs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np

from eddy.spark.hops.costs import TaskCosts, TaskWork
from stairs.storage.json_form import fields, finite, list_of, row_of

POINTS = 24
"""Number of the newest micro-batches of a placement that count for its costs."""
HALF_LIFE = 8
"""A micro-batch of a placement counts half as much as a micro-batch that came HALF_LIFE micro-batches later."""
TRUST = 0.02
"""The weight of the default costs, relative to micro-batches whose predictions may be off by their whole amount."""
MOST_FACTOR = 4.0
"""Upper bound of the ratio of a cost to the default cost of this machine, and of this cost to that of the fit."""
DIGITS = 4
"""Significant digits of the numbers of a point."""
LEAST_S, MOST = 1e-9, 1e15
"""Least seconds and greatest number of a point; with other values a fit might not be finite."""

_PARTS = len(TaskWork._fields)
_COSTS = list_of(row_of(*[finite(0, MOST)] * _PARTS, finite(LEAST_S, MOST)))
MEASURED = fields({"grid": _COSTS, "hops": _COSTS})
"""The form of `PlacementCosts.to_json`: the points of each placement; a point has numbers of work, and seconds."""
UNMEASURED: dict[str, Any] = {"grid": [], "hops": []}
"""The stored form without points."""


class MeasuredCosts:
    """The costs of one placement."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, ...]] = deque(maxlen=POINTS)

    def __len__(self) -> int:
        """Return the number of micro-batches that count."""
        return len(self._points)

    def add(self, work: TaskWork, seconds: float) -> None:
        """Take the predicted work of a micro-batch, and the CPU seconds that its tasks took."""
        point = tuple(float(f"{number:.{DIGITS}g}") for number in (*work, max(seconds, LEAST_S)))
        if all(0 <= number <= MOST for number in point):
            self._points.append(point)

    def factor(self, usual: TaskCosts) -> float | None:
        """Return the median ratio of measured to default seconds of the newest micro-batches, None without points."""
        if not self._points:
            return None
        newest = list(self._points)[-HALF_LIFE:]
        # A single micro-batch may take ten times as long, probably because engines grow.
        ratio = np.median([seconds / max(usual.seconds(TaskWork(*work)), LEAST_S) for *work, seconds in newest])
        return min(MOST_FACTOR, max(1 / MOST_FACTOR, float(ratio)))

    def costs(self, usual: TaskCosts, factor: float) -> TaskCosts:
        """Return the costs with the least sum of squared relative errors and of distances from the default costs.

        factor   ratio of measured to default costs on this machine
        """
        prior = np.array(astuple(usual)) * factor
        if not self._points:
            return TaskCosts(*prior.tolist())
        points = np.array(self._points)
        works, seconds, weights = points[:, :_PARTS], points[:, _PARTS:], np.sqrt(self._weights())
        terms = works * prior / seconds * weights[:, None]
        trusted = np.sqrt(TRUST) * np.eye(len(prior))
        wanted = np.concatenate([weights, np.full(len(prior), np.sqrt(TRUST))])
        times = np.linalg.lstsq(np.concatenate([terms, trusted]), wanted, rcond=None)[0]
        return TaskCosts(*(prior * np.clip(times, 1 / MOST_FACTOR, MOST_FACTOR)).tolist())

    def _weights(self) -> np.ndarray:
        return 0.5 ** (np.arange(len(self._points))[::-1] / HALF_LIFE)

    def to_json(self) -> list[list[float]]:
        """Return the points, the newest last."""
        return [list(point) for point in self._points]

    @classmethod
    def from_json(cls, points: list[list[float]]) -> MeasuredCosts:
        """Return the costs with the points that `to_json` returned, which have been checked."""
        costs = cls()
        costs._points.extend(tuple(map(float, point)) for point in points)
        return costs


@dataclass(frozen=True)
class PlacementCosts:
    """The costs of both placements of one join."""

    grid: MeasuredCosts = field(default_factory=MeasuredCosts)
    hops: MeasuredCosts = field(default_factory=MeasuredCosts)

    def to_json(self) -> dict[str, Any]:
        """Return the points as JSON; `MEASURED` is its form."""
        return {"grid": self.grid.to_json(), "hops": self.hops.to_json()}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> PlacementCosts:
        """Return the value from which `to_json` was made, after `MEASURED` has checked the JSON."""
        return cls(MeasuredCosts.from_json(stored["grid"]), MeasuredCosts.from_json(stored["hops"]))
