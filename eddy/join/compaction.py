"""The compaction of the tables of a join (`stairs.versions`): when it happens, and that the payload follows."""

from __future__ import annotations

from collections.abc import Sequence

from eddy.join.join import Join
from eddy.join.payload_room import fit_payload
from stairs.versions import compact, dead_versions


def make_room_in_tables(join: Join, rows: Sequence[int]) -> None:
    """Compact each table whose ring has no room for the changes of a push, if half of its versions are dead.

    The push has begun in the join, and has not been opened. O(1) for a table with room, else O(state), which the
    changes since the last compaction pay for.

    rows   the rows of the push, by stream
    """
    modules = join.modules
    for i in modules.graph.tables:
        held = modules.rows(i)
        if held + rows[i] > modules.capacity[i] and 2 * dead_versions(modules, i) >= held:
            compact(modules, i)
        # An exception may have come between an earlier compaction and this.
        fit_payload(modules, join.payload)


def compact_tables(join: Join) -> bool:
    """Compact all tables with dead versions, between two pushes; return whether there are some. O(state)."""
    modules, compacted = join.modules, False
    for i in modules.graph.tables:
        if dead_versions(modules, i):
            compacted = True
            join.begin()
            fit_payload(modules, join.payload)
            compact(modules, i)
            fit_payload(modules, join.payload)
            join.undo = None
    return compacted
