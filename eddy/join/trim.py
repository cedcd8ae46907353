"""Gives memory back that the next pushes can make again: states, ring values, bands, room for input and results.

Base windows are the truth, and all of this is made from them. Strategies that keep their states complete would compute
them again at once, so their states stay.
"""

from __future__ import annotations

from eddy.join.join import Join


def spare_bytes(join: Join) -> int:
    """Return the bytes that `trim` gives back at most. O(states)."""
    modules, strategy = join.modules, join.strategy
    states = 0 if strategy.eager else strategy.nbytes
    rings = 0 if join.rings is None else join.rings.nbytes
    return modules.scratch.nbytes + modules.bands.nbytes + states + rings


def trim(join: Join) -> None:
    """Give back what the join can make again, between two pushes. O(states)."""
    modules, strategy = join.modules, join.strategy
    if join.rings is not None:
        join.rings.release()
    if strategy.stairs and not strategy.eager:
        # A push without arrivals that is taken back: states return empty, and complete on the next probe of each key.
        join.begin()
        join.roll_back()
    for b in range(len(modules.bands.table)):
        modules.bands.release(b)
    modules.release_scratch()
