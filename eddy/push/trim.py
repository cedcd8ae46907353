"""Gives memory back that the next pushes can make again: states, ring values, bands, room for input and results.

Base windows are the truth, and all of this is made from them. Strategies that keep their states complete would compute
them again at once, so their states stay.
"""

from __future__ import annotations

from eddy.join_engine import JoinEngine
from eddy.push.transaction import begin, roll_back


def spare_bytes(engine: JoinEngine) -> int:
    """Return the bytes that `trim` gives back at most. O(states)."""
    modules, strategy = engine.modules, engine.strategy
    states = 0 if strategy.eager else strategy.nbytes
    rings = 0 if engine.rings is None else engine.rings.nbytes
    return modules.scratch.nbytes + modules.bands.nbytes + states + rings


def trim(engine: JoinEngine) -> None:
    """Give back what the engine can make again, between two pushes. O(states)."""
    modules, strategy = engine.modules, engine.strategy
    if engine.rings is not None:
        engine.rings.release()
    if strategy.stairs and not strategy.eager:
        # A push without arrivals that is taken back: states return empty, and complete on the next probe of each key.
        begin(engine)
        roll_back(engine)
    for b in range(len(modules.bands.table)):
        modules.bands.release(b)
    modules.release_scratch()
