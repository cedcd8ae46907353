"""Changes of plan within a push: scheduled for an arrival, or decided by the policy."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from eddy.routing.router import Router
from jisc.plan.routes import Preference
from jisc.plan.states import StateId
from jisc.plan.tree import Tree
from jisc.strategies import Strategy
from stairs.errors import CapacityError

ASKED_FOR = "asked for"
NO_ROOM = "there was no room for the states"


class PlannedJoin(Protocol):
    """A join with a plan: a join of its own, or one of several over shared SteMs."""

    router: Router
    strategy: Strategy


def change_plan(
    join: PlannedJoin,
    tree: Tree,
    store: frozenset[StateId] | None,
    reason: str,
    only_kept: bool,
    prefer: Preference | None = None,
) -> None:
    """Change the plan within a push. If memory is short for new states, change it without them.

    store       the states to store, only if the strategy lets the caller choose; None = those stored now
    only_kept   whether to store no state that is not stored yet
    """
    strategy = join.strategy
    if not strategy.can_store:
        strategy.change(tree, reason, store, prefer)
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


def follow_router(join: PlannedJoin, only_kept: bool = False) -> None:
    """Let the router look at the data, and change the plan as it decides.

    A plan that finds no room is left: what a policy wishes refuses no push.
    """
    choice = join.router.look()
    if choice is not None:
        reason = f"{join.router.policy.name}: {choice.reason}"
        # A policy chooses states for a strategy whose states it weighs; the caller's own choice stands.
        store = choice.store if join.strategy.can_store else None
        with suppress(CapacityError):
            change_plan(join, choice.tree, store, reason, only_kept, choice.prefer)
