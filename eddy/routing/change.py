"""Changes of plan: asked for by the user, scheduled for an arrival, or decided by the policy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from eddy.join_engine import JoinEngine
from eddy.push.transaction import begin
from eddy.query.numbers import whole
from eddy.routing.router import Router
from eddy.routing.schedule import Scheduled, schedule_of
from eddy.routing.strategies import resolve
from jisc.plan.routes import Preference
from jisc.plan.states import StateId
from jisc.plan.tree import Tree, read_plan
from jisc.strategies import Strategy, Transition
from stairs.errors import CapacityError, EddyError, InputError

ASKED_FOR = "asked for"
NO_ROOM = "there was no room for the states"


def transition(engine: JoinEngine, plan: str, at: int | None, store: Iterable[str] | None) -> Transition | None:
    """Change the plan now, or schedule the change; see `Runtime.transition`."""
    strategy = engine.strategy
    tree = read_plan(plan, engine.query.graph)
    strategy.require_changes()
    if store is not None:
        strategy.require_choice()
    states = None if store is None else resolve(tree, engine.query.graph, store)
    position = engine.position if at is None else whole(at)
    if position is None:
        raise InputError(f"at is the number of an arrival, not {at!r}")
    if position < engine.position:
        raise InputError(f"at={position} is past: {engine.position} rows have arrived; leave `at` out for a change now")
    if position > engine.position:
        engine.schedule = schedule_of([*engine.schedule, Scheduled(position, tree, states)])
        return None
    begin(engine)
    try:
        done = strategy.change(tree, ASKED_FOR, states)
    except EddyError:
        # The strategy refused, and is as it was before.
        engine.undo = None
        raise
    engine.router.plan_changed()
    engine.undo = None
    engine.late.keep_within(engine.bound.left)
    return done


class Planned(Protocol):
    """A join with a plan: an engine, or one of several joins over shared SteMs."""

    router: Router
    strategy: Strategy


def change_plan(
    engine: Planned,
    tree: Tree,
    store: frozenset[StateId] | None,
    reason: str,
    only_kept: bool,
    prefer: Preference | None = None,
) -> None:
    """Change the plan within a push. If memory is short for new states, change it without them.

    store       the states to store, if the strategy lets the caller choose; None = those stored now
    only_kept   whether to store no state that is not stored yet
    """
    strategy = engine.strategy
    if not strategy.can_store:
        strategy.change(tree, reason, prefer=prefer)
        return
    wanted = strategy.stored if store is None else store
    kept = wanted & strategy.stored
    if not only_kept or kept == wanted:
        try:
            strategy.change(tree, reason, wanted, prefer)
            return
        except CapacityError:
            if kept == wanted:
                raise
    strategy.change(tree, f"{reason}; {NO_ROOM}", kept, prefer)


def follow_router(engine: Planned, only_kept: bool = False) -> None:
    """Let the router look at the data, and change the plan as it decides."""
    choice = engine.router.look()
    if choice is not None:
        reason = f"{engine.router.policy.name}: {choice.reason}"
        change_plan(engine, choice.tree, choice.store, reason, only_kept, choice.prefer)
