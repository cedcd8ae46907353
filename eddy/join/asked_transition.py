"""A change of plan on request: at once, or scheduled for an arrival."""

from __future__ import annotations

from collections.abc import Iterable

from eddy.join.join import Join
from eddy.routing.plan_change import ASKED_FOR
from eddy.routing.schedule import Scheduled, schedule_of
from eddy.routing.strategies import resolve
from eddy.streams.numbers import whole
from jisc.plan.box import read_box
from jisc.plan.tree import read_plan
from jisc.strategies import Transition
from stairs.errors import EddyError, InputError


def transition(
    join: Join, plan: str, at: int | None, store: Iterable[str] | None, box: str | None = None
) -> Transition | None:
    """Change the plan now, or schedule the change; see `Runtime.transition`."""
    strategy, graph = join.strategy, join.query.graph
    tree = read_plan(plan, graph)
    strategy.require_changes()
    if store is not None:
        strategy.require_choice()
    states = None if store is None else resolve(tree, graph, store)
    position = join.position if at is None else whole(at)
    if position is None:
        raise InputError(f"at is the number of an arrival, not {at!r}")
    if position < join.position:
        raise InputError(f"at={position} is past: {join.position} rows have arrived; leave `at` out for a change now")
    if position > join.position:
        if box is not None:
            raise InputError(
                f"box={box!r} is for a change of the plan that runs now, and at={position} is later: leave one out; the"
                " smallest box is found when the change happens"
            )
        join.schedule = schedule_of([*join.schedule, Scheduled(position, tree, states)])
        return None
    asked_box = None if box is None else read_box(box, strategy.tree, tree, graph)
    join.begin()
    try:
        done = strategy.change(tree, ASKED_FOR, states, box=asked_box)
    except EddyError:
        # The strategy refused the change, and is unchanged.
        join.undo = None
        raise
    join.router.plan_changed()
    join.undo = None
    return done
