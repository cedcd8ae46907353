"""Bandit: plans are arms, the measured cost of an arrival is the loss, and the arm with the best bound is played.

Discounted UCB: old losses fade, so a bad arm is tried again after a time, and a drift is detected. The regret against
the best arm of each moment is bounded by the square root of time and drifts, up to a logarithm.
Source: Garivier, Moulines, "On upper-confidence bound policies for switching bandit problems", ALT 2011.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eddy.routing.policies.base import Decision, plan_texts, plans_of
from eddy.routing.policies.greedy import Greedy
from eddy.routing.view import View
from jisc.plan.orders import has_choice, random_order
from jisc.plan.tree import Tree


@dataclass
class Bandit:
    """Plays plans and measures their costs; needs no cost model.

    arms      upper bound of the plans: the initial one, greedy ones, random ones
    fading    factor of the earlier losses at each decision
    boldness  weight of the uncertainty of an arm
    """

    arms: int = 8
    fading: float = 0.98
    boldness: float = 0.3
    name: str = "bandit"
    _plans: list[Tree] = field(default_factory=list)
    _played: list[float] = field(default_factory=list)
    _losses: list[float] = field(default_factory=list)

    def learnt(self) -> dict[str, Any]:
        """Return the arms, how often each was played, and their losses."""
        return {
            "arms": self.arms,
            "fading": self.fading,
            "boldness": self.boldness,
            "streams": len(self._plans[0].streams) if self._plans else 0,
            "plans": plan_texts(self._plans),
            "played": [float(played) for played in self._played],
            "losses": [float(loss) for loss in self._losses],
        }

    def resume(self, learnt: dict[str, Any]) -> None:
        """Resume with these arms."""
        self.arms, self.fading = int(learnt["arms"]), float(learnt["fading"])
        self.boldness = float(learnt["boldness"])
        self._plans = plans_of(learnt["plans"], learnt["streams"])
        self._played = [float(played) for played in learnt["played"]]
        self._losses = [float(loss) for loss in learnt["losses"]]

    def decide(self, view: View) -> Decision | None:
        """Add the measured cost of the present plan to its losses, and play the arm with the least lower bound."""
        if not self._plans:
            self._plans = self._chosen(view)
            self._played, self._losses = [0.0] * len(self._plans), [0.0] * len(self._plans)
        if len(self._plans) < 2:
            return None
        self._played = [self.fading * played for played in self._played]
        self._losses = [self.fading * loss for loss in self._losses]
        if view.settled and not np.isnan(view.measured) and view.tree in self._plans:
            arm = self._plans.index(view.tree)
            self._played[arm] += 1
            self._losses[arm] += view.measured
        untried = [k for k, played in enumerate(self._played) if played < 0.05]
        if untried:
            best, why = untried[0], "not tried recently"
        else:
            total = sum(self._played)
            mean = [loss / played for loss, played in zip(self._losses, self._played, strict=True)]
            # Losses are relative to the best, so that the bound means the same for every query.
            bounds = [
                mean[k] / min(mean) - self.boldness * float(np.sqrt(np.log(1 + total) / self._played[k]))
                for k in range(len(mean))
            ]
            best = int(np.argmin(bounds))
            why = f"least bound: {mean[best]:.0f} ns per arrival, played {self._played[best]:.1f} times recently"
        tree = self._plans[best]
        return None if tree == view.tree else Decision(tree, (), why)

    def _chosen(self, view: View) -> list[Tree]:
        trees = {view.tree: None}
        if not has_choice(view.masks):
            return list(trees)
        greedy = Greedy(view, True)
        for start in range(view.graph.n_streams):
            if len(trees) < self.arms:
                trees[view.left_deep(greedy.order(start))] = None
        for _ in range(4 * self.arms):
            if len(trees) < self.arms:
                trees[view.left_deep(random_order(view.masks, view.rng))] = None
        return list(trees)
