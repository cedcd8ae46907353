"""The reasons for the present plan and for storing states or not, as a part of the description.

Alternatives are shown with the costs predicted at the last decision of the policy. The costs of the present plan and of
its states are predicted anew. All these costs are predictions of the model; policy "cost" corrects the predictions by
its measurements.
"""

from __future__ import annotations

from dataclasses import replace
from math import isnan

from eddy.join.bound import Bound
from eddy.routing.router import Router
from eddy.routing.view import View
from eddy.show.description import BenefitDescription, MemoryDescription, PredictionDescription, Reasons
from jisc.plan.states import StateId, states_of
from jisc.strategies import Strategy

SHOWN = 5
"""Alternatives shown."""
STATES = 32
"""States shown: those with the largest benefits or losses."""


def reasons_of(strategy: Strategy, router: Router, bound: Bound | None, predict: bool) -> Reasons:
    """Return the reasons. O(changes); `predict` adds the time of one trial of the present plan."""
    name, pace = router.policy.name, router.pace
    room = None
    if bound is not None and bound.max_bytes is not None:
        room = MemoryDescription(bound.max_bytes, bound.base(), strategy.nbytes)
    known = Reasons(
        policy=name,
        sampling=router.sampling,
        samples=pace.samples,
        decisions=pace.decisions,
        changes=sum(transition.reason.startswith(f"{name}: ") for transition in strategy.history.transitions),
        seconds=router.seconds,
        room=room,
    )
    if not (router.sampling and predict):
        return known
    known, view = replace(known, predicted=True), router.view_now()
    if not len(view.picks):
        return known
    here = frozenset(StateId.of(stair.streams, stair.by) for stair in strategy.stairs)
    stored = here & frozenset(states_of(strategy.tree, view.masks))
    plan, names = strategy.tree.text(view.graph.names), view.graph.names
    known = replace(
        known,
        present=PredictionDescription(plan, _texts(view, stored), view.stored_cost(strategy.tree, stored), True),
        measured=None if isnan(router.nanoseconds) else router.nanoseconds,
    )
    seen = router.view
    if seen is not None:
        present_cost = seen.considered.get((strategy.tree, stored))
        others = {
            choice: cost
            for choice, cost in seen.considered.items()
            if choice != (strategy.tree, stored) and not isnan(cost)
        }
        best = sorted(others, key=lambda choice: others[choice])
        same = view.kind(strategy.tree)
        considered = tuple(
            PredictionDescription(
                tree.text(names),
                _texts(view, chosen),
                others[tree, chosen],
                not chosen and not stored and view.kind(tree) == same,
            )
            for tree, chosen in best[:SHOWN]
        )
        if others:
            known = replace(
                known,
                considered_at=seen.position,
                present_cost=present_cost,
                considered=considered,
                more=len(best) - len(considered),
            )
    benefits = view.benefits(strategy.tree)[1]
    shown = sorted(sorted(benefits, key=lambda benefit: -abs(benefit.net))[:STATES], key=lambda benefit: -benefit.net)
    return replace(
        known,
        benefits=tuple(
            BenefitDescription(
                benefit.state.text(view.graph),
                benefit.saved,
                benefit.upkeep,
                benefit.live,
                int(benefit.n_bytes),
                benefit.state in stored,
            )
            for benefit in shown
        ),
        more_states=len(benefits) - len(shown),
    )


def _texts(view: View, states: frozenset[StateId]) -> tuple[str, ...]:
    return tuple(sorted(state.text(view.graph) for state in states))
