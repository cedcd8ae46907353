"""Memory for stored states: windows, keys and payload take precedence; states are dropped until the rest fits."""

from __future__ import annotations

from collections.abc import Sequence

from eddy.join.join import Join
from eddy.routing.plan_change import NO_ROOM
from stairs.errors import CapacityError


def make_room(join: Join, rows: Sequence[int]) -> None:
    """Drop states until the other states fit together with a push of rows[i] rows of stream i. Raises CapacityError."""
    strategy = join.strategy
    join.router.room = room = join.bound.room(rows)
    if join.bound.max_bytes is None:
        return
    if strategy.nbytes > room and join.modules.bands.drop():
        join.router.room = room = join.bound.room(rows)
    while strategy.nbytes > room:
        if not drop_state(join):
            raise CapacityError(
                f"the states of strategy {strategy.name!r} take {strategy.nbytes:,} bytes, but {room:,.0f} are left for"
                " them: narrow the windows, raise max_bytes, or use strategy 'eddy', which can run without states"
            )


def drop_state(join: Join) -> bool:
    """Drop the stored state with the least benefit; return False if no stored state can be dropped.

    A push that fails afterwards does not bring the state back.
    """
    strategy = join.strategy
    if not strategy.stored:
        return False
    join.begin()
    least = join.router.least_worth()
    strategy.change(strategy.tree, NO_ROOM, strategy.stored - {least})
    join.router.plan_changed()
    join.begin()
    return True
