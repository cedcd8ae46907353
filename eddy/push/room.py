"""Room for stored states: windows, keys and payload come first; states are dropped until the rest fits."""

from __future__ import annotations

from collections.abc import Sequence

from eddy.join_engine import JoinEngine
from eddy.push.transaction import begin
from eddy.routing.change import NO_ROOM
from stairs.errors import CapacityError


def make_room(engine: JoinEngine, rows: Sequence[int]) -> None:
    """Drop states until the others fit next to a push of rows[i] rows of stream i. Raises CapacityError."""
    strategy = engine.strategy
    engine.router.room = room = engine.bound.room(rows)
    if engine.bound.max_bytes is None:
        return
    if strategy.nbytes > room and engine.modules.bands.drop():
        engine.router.room = room = engine.bound.room(rows)
    while strategy.nbytes > room:
        if not drop_state(engine):
            raise CapacityError(
                f"the states of strategy {strategy.name!r} take {strategy.nbytes:,} bytes, but {room:,.0f} are left for"
                " them: narrow the windows, raise max_bytes, or use strategy 'eddy', which can run without states"
            )


def drop_state(engine: JoinEngine) -> bool:
    """Drop the stored state with the least benefit; return False if no stored state can be dropped.

    A push that fails afterwards does not bring the state back.
    """
    strategy = engine.strategy
    if not strategy.stored:
        return False
    begin(engine)
    least = engine.router.least_worth()
    strategy.change(strategy.tree, NO_ROOM, strategy.stored - {least})
    engine.router.plan_changed()
    begin(engine)
    return True
