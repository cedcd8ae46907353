"""The cost model: predicted nanoseconds per arrival of a plan, from a trial of its routes on recent tuples.

The trial walks the routes over the live state (`stairs.samples`), so it assumes nothing about how selectivities
combine. Steps are weighed in nanoseconds. The weights were fitted on one machine; only their ratios matter.

Plans with stored states are predicted without building the states. The trial climbs the tree with all states virtual
and counts the combinations found on each side of each join. Then, for each state, its savings are compared with its
upkeep:

    saved    by the tuples of the sibling's streams: the hops below the state, minus one look-up and its matches
    upkeep   by the tuples of the state's own streams: each combination that they form is stored

A state is worth storing if it saves more than its upkeep. (The states of a tree are independent in this, except for a
stored state below a virtual one; there the prediction errs on the safe side.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jisc.plan.states import Masks, StateId
from jisc.plan.tree import Tree
from stairs.descriptors import R_END, R_TRUNK
from stairs.kernels.sample import (
    W_CHECKS,
    W_LEAF_VISITS,
    W_LEAVES,
    W_PROBES,
    W_RESULTS,
    W_SCANNED,
    W_SEARCHED,
    W_SPARED,
    W_TUPLES,
    W_VISITS,
)
from stairs.memory.arena import Routes
from stairs.samples import Floats, Trace
from stairs.stair import FIRST_ROOM

ARRIVAL, ATTRIBUTE = 25.0, 35.0
"""Nanoseconds of an arrival without a match, and of each of its attributes (interning a key, setting a link)."""
PROBE, VISIT, CHECK, LEAF, LEAF_VISIT = 12.0, 18.0, 2.0, 8.0, 4.0
"""Nanoseconds of a chain looked up, of a tuple in it, of a check, of a leaf hop, of a tuple listed for it."""
SCANNED, CLIMB_SCANNED = 0.25, 1.0
"""Nanoseconds of a tuple that a scan passes over, and the same where an arrival climbs."""
SEARCH = 100.0
"""Nanoseconds of a binary search in a band, which takes the place of such a scan."""
CLIMB, CLIMB_PROBE, CLIMB_VISIT, CLIMB_RESULT, STORE = 40.0, 14.0, 24.0, 10.0, 60.0
"""Additional nanoseconds of an arrival that climbs; those of a chain, a tuple in it, a result, an entry stored."""
ENTRY_BYTES = 4
SLACK = 3
"""Mean number of slots of a ring per live entry (`stairs.stair`)."""


@dataclass(frozen=True)
class Benefit:
    """Predicted benefit of storing a state of a plan.

    saved, upkeep   nanoseconds per arrival of any stream
    live            entries that the state would hold
    n_bytes         bytes that it would take
    """

    state: StateId
    saved: float
    upkeep: float
    live: float
    n_bytes: float

    @property
    def net(self) -> float:
        """Nanoseconds saved per arrival of any stream, minus upkeep."""
        return self.saved - self.upkeep


def virtual_cost(trace: Trace) -> float:
    """Return the predicted nanoseconds of the probes of an arrival with nothing stored; nan without a sample."""
    work = trace.work
    if not work[W_TUPLES]:
        return float("nan")
    spent = (
        PROBE * work[W_PROBES]
        + VISIT * work[W_VISITS]
        + CHECK * work[W_CHECKS]
        + LEAF * work[W_LEAVES]
        + LEAF_VISIT * work[W_LEAF_VISITS]
        + SCANNED * (work[W_SCANNED] - work[W_SPARED])
        + SEARCH * work[W_SEARCHED]
    )
    return float(spent / work[W_TUPLES])


def climb_costs(
    tree: Tree, masks: Masks, routes: Routes, trace: Trace, rows: Floats, walked: Floats
) -> tuple[float, list[Benefit]]:
    """Return the predicted nanoseconds of climbing a tree, per arrival, with all states virtual, and their benefits.

    routes   those of the tree with no state stored (`jisc.plan.stored_routes`); `trace` is a trial of them
    rows     float64[streams], live tuples
    walked   float64[streams], tuples of each stream in the trace
    """
    total = max(float(trace.work[W_TUPLES]), 1.0)
    visits = trace.visits.astype(np.float64)
    steps = CLIMB_PROBE * visits[:, 0] + CLIMB_VISIT * visits[:, 1]
    saved = dict.fromkeys((side.state for side in masks.sides(tree) if side.node.children), 0.0)
    made = dict.fromkeys(saved, 0.0)
    live: dict[StateId, list[float]] = {state: [] for state in saved}
    by_mask = {state.mask: state for state in saved}
    cost = CLIMB * total + CLIMB_RESULT * float(trace.work[W_RESULTS]) + CLIMB_SCANNED * float(trace.work[W_SCANNED])
    for i in range(masks.graph.n_streams):
        h, end = int(routes.span[i, R_TRUNK]), int(routes.span[i, R_END])
        cost += float(steps[h:end].sum())
        for own, sibling in tree.path(i):
            last = h + len(sibling.streams)
            found = float(visits[last - 1, 2])
            if sibling.children:
                state = by_mask[sibling.mask]
                probes = float(visits[h, 0])
                saved[state] += float(steps[h:last].sum()) - CLIMB_PROBE * probes - CLIMB_VISIT * found
            parent = by_mask.get(own.mask | sibling.mask)
            if parent is not None:
                made[parent] += found
                if walked[i]:
                    live[parent].append(found / walked[i] * rows[i])
            h = last
    benefits = []
    for state, worth in saved.items():
        entries = float(np.median(live[state])) if live[state] else 0.0
        size = max(entries, FIRST_ROOM) * ENTRY_BYTES * (1 + state.mask.bit_count()) * SLACK
        benefits.append(Benefit(state, worth / total, STORE * made[state] / total, entries, size))
    return cost / total, benefits
