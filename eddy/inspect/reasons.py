"""The reasons for the present plan and for storing states or not: lines of `Runtime.explain`.

Alternatives are shown with the costs predicted when the policy looked last; the costs of the present plan and of its
states are predicted anew. All are predictions of the model; policy "cost" corrects them by its measurements.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan

from eddy.inspect.explain import bytes_text
from eddy.push.bound import Bound
from eddy.routing.router import Router
from eddy.routing.view import View
from jisc.plan.states import StateId, states_of
from jisc.strategies import Strategy

SHOWN = 5
"""Alternatives shown."""
STATES = 32
"""States shown: those with the largest benefits or losses."""


def reason_lines(strategy: Strategy, router: Router, bound: Bound) -> Iterator[str]:
    """Yield the lines. O(trying the present plan once)."""
    yield from _policy_lines(strategy, router)
    if bound.max_bytes is not None:
        base = bound.base()
        yield (
            f"max_bytes {bytes_text(bound.max_bytes)}: windows, keys and payload {bytes_text(base)},"
            f" room for states {bytes_text(max(bound.max_bytes - base, 0))}, used {bytes_text(strategy.nbytes)}"
        )
    if not router.sampling:
        return
    view = router.view_now()
    if not len(view.picks):
        yield "no arrivals yet, so there are no predictions"
        return
    here = frozenset(StateId.of(one.streams, one.by) for one in strategy.stairs)
    stored = here & frozenset(states_of(strategy.tree, view.masks))
    now = view.stored_cost(strategy.tree, stored)
    yield f"present {_plan_text(view, strategy.tree.text(view.graph.names), stored)}"
    measured = "too few arrivals to measure" if isnan(router.nanoseconds) else f"measured {router.nanoseconds:,.0f}"
    yield f"  ns per arrival: predicted {now:,.0f}, {measured}"
    yield from _alternatives(strategy, router, view, stored)
    yield from _state_lines(strategy, view, stored)


def _policy_lines(strategy: Strategy, router: Router) -> Iterator[str]:
    name = router.policy.name
    if not router.sampling:
        yield f"policy {name}: statistics are off, so the plan stays"
        return
    changes = [one for one in strategy.history.transitions if one.reason.startswith(f"{name}: ")]
    pace, last = router.pace, strategy.history.newest
    yield (
        f"policy {name}: {pace.samples:,} samples, {pace.decisions:,} decisions, {len(changes):,} changes,"
        f" {1e3 * router.seconds:,.1f} ms in total"
    )
    if last is not None:
        yield f"  last change at arrival {last.position:,}: {last.reason or 'no reason given'}"


def _plan_text(view: View, plan: str, stored: frozenset[StateId]) -> str:
    states = ", ".join(sorted(state.text(view.graph) for state in stored))
    return f"{plan}, stored {states}" if states else f"{plan}, nothing stored"


def _alternatives(strategy: Strategy, router: Router, now: View, stored: frozenset[StateId]) -> Iterator[str]:
    """Yield the best plans that the policy considered last, and how much their costs differ from the present one."""
    seen = router.view
    if seen is None:
        return
    own = seen.considered.get((strategy.tree, stored))
    others = {
        (tree, chosen): cost
        for (tree, chosen), cost in seen.considered.items()
        if (tree, chosen) != (strategy.tree, stored) and not isnan(cost)
    }
    if not others:
        return
    at = f"at arrival {seen.position:,}"
    yield f"considered last {at}" + ("" if own is None else f", when the present plan was predicted at {own:,.0f}")
    best = sorted(others, key=lambda one: others[one])
    for tree, chosen in best[:SHOWN]:
        cost = others[tree, chosen]
        margin = ""
        if own:
            margin = f" ({cost / own - 1:+.1%})"
        if not chosen and not stored and now.kind(tree) == now.kind(strategy.tree):
            margin += ", the same routes as now"
        yield f"  {cost:,.0f}{margin}  {_plan_text(now, tree.text(now.graph.names), chosen)}"
    if len(best) > SHOWN:
        yield f"  and {len(best) - SHOWN:,} more"


def _state_lines(strategy: Strategy, view: View, stored: frozenset[StateId]) -> Iterator[str]:
    """Yield the benefit of storing each inner state of the present plan."""
    benefits = view.benefits(strategy.tree)[1]
    if not benefits:
        return
    yield "inner states (predicted ns per arrival of any stream)"
    shown = sorted(benefits, key=lambda one: -abs(one.net))[:STATES]
    for one in sorted(shown, key=lambda one: -one.net):
        yield (
            f"  {one.state.text(view.graph)}  saves {one.saved:,.1f}, upkeep {one.upkeep:,.1f}, net {one.net:+,.1f}"
            f"  about {one.live:,.0f} entries, {bytes_text(int(one.n_bytes))}"
            f"  {'stored' if one.state in stored else 'not stored'}"
        )
    if len(benefits) > STATES:
        yield f"  and {len(benefits) - STATES:,} more"
