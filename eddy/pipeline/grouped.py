"""A push of a query with groups: by joined rows, or by ring values (`eddy.aggregates.rings`), as `RingChoice` decides.

Ring values need only the windows, so arrivals are inserted without a probe. Stored states miss these arrivals, so
states are inactive while ring values are in use. States are emptied at the beginning, which frees memory, and again at
the end; from then on they are completed just in time.
"""

from __future__ import annotations

import pyarrow as pa

from eddy.aggregates.groups import Groups, GroupsCommit
from eddy.ingest.arrivals import Arrivals
from eddy.join.join import Join
from eddy.join.walk import walk


def choose_way(join: Join, arrivals: Arrivals) -> None:
    """Choose ring values or enumeration for the next push. Call it between two pushes."""
    rings = join.rings
    if rings is None:
        return
    choice = rings.choice
    on = choice.wanted() and may_serve(join) and not arrivals.given and not behind(arrivals)
    if on != choice.on:
        join.turn_rings(on)


def may_serve(join: Join) -> bool:
    """Return whether states complete just in time."""
    strategy = join.strategy
    return not strategy.eager and not strategy.overlaps and not strategy.background


def behind(arrivals: Arrivals) -> bool:
    """Return whether an arrival, or a row in a window, is older than an earlier row."""
    return arrivals.reading is not None and arrivals.reading.behind > 0


def by_rings(
    join: Join, groups: Groups, arrivals: Arrivals, only_kept: bool
) -> tuple[int, int, pa.Table, GroupsCommit]:
    """Process the arrivals; return transitions that happened, joined rows, rows of groups, and their commit.

    Raises BeyondLimit.
    """
    rings = join.rings
    assert rings is not None
    changes = walk(join, arrivals, only_kept, probing=False)
    join.modules.allowance.ask(0, "what was pushed")
    rows = rings.changes(arrivals.order)
    table, commit = groups.follow_weighted(rows, arrivals.ends)
    return changes, rows.changes, table, commit
