"""The choice between kinds of plan over nodes that share all steps: one round over a hypercube, or several hops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eddy.placement.program import Steps
from eddy.placement.routes import Planner
from eddy.placement.synopses import Synopsis

KINDS = ("grid", "hops")
"""Kinds of plan over nodes that share all steps."""
WORTH = 1.05
"""Least predicted gain, as a factor of speed, for which the cluster changes to another kind of plan."""
ALIKE = 2.0
"""Factor within which two predictions of a kind of plan are similar enough for the same correction."""
PAYBACK = 8
"""Epochs in which a change must save the time for the transfer of its windows."""


class Chosen(NamedTuple):
    """A plan that is worth a change.

    kind, routes    kind and routes of the plan
    before, after   predicted seconds per epoch, of the running plan and of this plan
    """

    kind: str
    routes: list[Steps]
    before: float
    after: float


class PredictionOutcome(NamedTuple):
    """The outcome of a prediction: predicted seconds of an epoch, and the ratio of measured to predicted seconds."""

    predicted: float
    off: float


class PlanKindChooser:
    """Chooses the kind of plan that is predicted to be faster, and corrects predictions by what was measured.

    The prediction of a kind of plan is corrected by the outcome of its last prediction. But the error depends on the
    data: a kind that ran while there were few results would seem better than a kind that runs while there are many. So
    an outcome with a very different prediction (`ALIKE`) is not used; the newest outcome of any kind replaces it.
    """

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self._last: dict[str, PredictionOutcome] = {}
        """Kind of plan -> the time when it ran last."""
        self._newest = PredictionOutcome(0.0, 1.0)

    def routes(self, kind: str, figures: Sequence[Synopsis]) -> list[Steps]:
        """Return the routes of a kind of plan, under the figures of the streams."""
        return self.planner.grid_routes(figures) if kind == "grid" else self.planner.hop_routes(figures)

    def choose(
        self,
        kind: str,
        running: Sequence[Steps],
        figures: Sequence[Synopsis],
        ahead: Sequence[Synopsis],
        took: float | None,
        bare: bool,
    ) -> Chosen | None:
        """Return the plan to change to, None if no change is worth it.

        kind, running   the running plan
        figures, ahead  figures of the streams: current, and expected on average over the next `PAYBACK` epochs
        took            seconds of the last epoch, None if they are no measurement for the next epochs
        bare            whether no row has come, so that no window moves
        """
        expected = self.planner.predicted(running, figures)
        if took is not None and expected:
            self._last[kind] = self._newest = PredictionOutcome(expected, took / expected)
        made = {plan_kind: self.routes(plan_kind, ahead) for plan_kind in KINDS}
        seconds = {
            plan_kind: self._corrected(plan_kind, self.planner.predicted(routes, ahead))
            for plan_kind, routes in made.items()
        }
        now = self._corrected(kind, self.planner.predicted(running, ahead))
        best = min(KINDS, key=lambda plan_kind: (seconds[plan_kind], plan_kind))
        moved = 0.0 if bare else self.planner.moving(running, made[best], figures)
        if seconds[best] * WORTH < now and (now - seconds[best]) * PAYBACK > moved:
            return Chosen(best, made[best], now, seconds[best])
        return None

    def _corrected(self, kind: str, predicted: float) -> float:
        """Return predicted seconds of a kind of plan, corrected by an outcome."""
        last = self._last.get(kind, self._newest)
        alike = last.predicted <= ALIKE * predicted and predicted <= ALIKE * last.predicted
        return predicted * (last if alike else self._newest).off
