"""Frees memory that no row needs, or that the next pushes can rebuild.

States, ring values, bands, and buffers for input and results follow from the base windows. Strategies that keep their
states complete would compute the states again at once, so their states stay. The rings of the windows, with their
payload, shrink to twice the slots that the live tuples need. Key directories keep their size: a key id is a place in
them, and records and states have key ids.
"""

from __future__ import annotations

from eddy.join.compaction import compact_tables
from eddy.join.join import Join
from eddy.join.payload_room import fit_payload
from stairs.key_room import power_of_two
from stairs.versions import dead_versions


def spare_bytes(join: Join) -> int:
    """Return the maximal number of bytes that `trim` frees. O(states + versions of tables)."""
    modules, strategy = join.modules, join.strategy
    rooms = [modules.least_room(i) for i in range(len(modules.capacity))]
    slots = -join.payload.growth(rooms)
    for i, room in enumerate(rooms):
        slots += modules.ring_bytes(i, modules.capacity[i]) - modules.ring_bytes(i, room)
    # A compaction copies the arrays of a table, without the values of dead versions.
    slots += sum(join.payload.logged_bytes(i) for i in modules.graph.tables if dead_versions(modules, i))
    states = 0 if strategy.eager else strategy.nbytes
    rings = 0 if join.rings is None else join.rings.nbytes
    return modules.scratch.nbytes + modules.bands.nbytes + states + rings + slots


def trim(join: Join) -> None:
    """Free the memory that no row needs or that the join can rebuild, between two pushes.

    O(states), and O(state) if a ring shrinks or a table has dead versions.
    """
    modules, strategy = join.modules, join.strategy
    compact_tables(join)
    shrink_rings(join)
    if join.rings is not None:
        join.rings.release()
    if strategy.stairs and not strategy.eager:
        # A push without arrivals is undone: states are then empty, and each key is completed at its next probe.
        join.begin()
        join.roll_back()
    for b in range(len(modules.bands.table)):
        modules.bands.release(b)
    modules.release_scratch()


def shrink_rings(join: Join) -> None:
    """Shrink rings and payload to twice the slots that the live tuples need. O(state) if a ring shrinks."""
    modules = join.modules
    for i, old in enumerate(modules.capacity):
        # A table was compacted before, but an exception may have come between.
        room = max(modules.least_room(i), power_of_two(modules.rows(i)))
        if room < old:
            join.begin()
            modules.shrink_ring(i, room)
            fit_payload(modules, join.payload)
            join.undo = None
