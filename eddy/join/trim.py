"""Frees memory that the next pushes can rebuild: states, ring values, bands, buffers for input and results.

All of these follow from the base windows. Strategies that keep their states complete would compute the states again at
once, so their states stay.
"""

from __future__ import annotations

from eddy.join.compaction import compact_tables
from eddy.join.join import Join


def spare_bytes(join: Join) -> int:
    """Return the maximal number of bytes that `trim` frees. O(states)."""
    modules, strategy = join.modules, join.strategy
    states = 0 if strategy.eager else strategy.nbytes
    rings = 0 if join.rings is None else join.rings.nbytes
    return modules.scratch.nbytes + modules.bands.nbytes + states + rings


def trim(join: Join) -> None:
    """Free the memory that the join can rebuild, between two pushes. O(states)."""
    modules, strategy = join.modules, join.strategy
    compact_tables(join)
    if join.rings is not None:
        join.rings.release()
    if strategy.stairs and not strategy.eager:
        # A push without arrivals is undone: states are then empty, and each key is completed at its next probe.
        join.begin()
        join.roll_back()
    for b in range(len(modules.bands.table)):
        modules.bands.release(b)
    modules.release_scratch()
