"""A push of a query with groups: by joined rows, or by ring values (`eddy.aggregates.rings`), as `RingChoice` decides.

Ring values need the windows only, so arrivals are inserted without a probe. Stored states miss them: states sleep while
ring values serve. They are emptied at the beginning, to give memory back, and again at the end, from where on they
complete just in time.
"""

from __future__ import annotations

import pyarrow as pa

from eddy.aggregates.groups import GroupsCommit
from eddy.ingest.arrivals import Arrivals
from eddy.join_engine import JoinEngine
from eddy.push.transaction import begin, roll_back
from eddy.push.walk import walk


def choose_way(engine: JoinEngine, arrivals: Arrivals) -> None:
    """Let the push be served by ring values, or by enumeration. Between two pushes."""
    rings = engine.rings
    if rings is None:
        return
    choice = rings.choice
    on = choice.wanted() and may_serve(engine) and not arrivals.given and not behind(arrivals)
    if on != choice.on:
        turn(engine, on)


def may_serve(engine: JoinEngine) -> bool:
    """Return whether states complete just in time."""
    strategy = engine.strategy
    return not strategy.eager and not strategy.overlaps and not strategy.background


def behind(arrivals: Arrivals) -> bool:
    """Return whether an arrival, or a row in a window, is older than one that came before it."""
    return arrivals.reading is not None and arrivals.reading.behind > 0


def turn(engine: JoinEngine, on: bool, lost: bool = False) -> None:
    """Let ring values serve from now on, or let them not; lost: they could not."""
    rings = engine.rings
    assert rings is not None
    rings.release()
    if engine.strategy.stairs:
        # A push without arrivals that is taken back: states return empty.
        begin(engine)
        roll_back(engine)
    rings.choice.turned(on, lost)


def by_rings(engine: JoinEngine, arrivals: Arrivals, only_kept: bool) -> tuple[int, int, pa.Table, GroupsCommit]:
    """Take the arrivals in; return transitions that happened, joined rows told apart, rows of groups, and their commit.

    Raises BeyondLimit.
    """
    rings, groups = engine.rings, engine.groups
    assert rings is not None
    assert groups is not None
    changes = walk(engine, arrivals, only_kept, probing=False)
    engine.modules.allowance.ask(0, "what was pushed")
    rows = rings.changes(arrivals.order)
    table, commit = groups.follow_weighted(rows, arrivals.ends)
    return changes, rows.found, table, commit
