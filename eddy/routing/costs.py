"""What a plan costs per arrival, predicted from what its routes do for a sample of recent tuples.

Routes are walked over the state as it is (`stairs.samples`), so nothing is assumed of how selectivities combine. Steps
are weighed in nanoseconds. The weights were fitted on one machine; only their proportions decide anything.

A plan with stored states is not built to be tried. Its tuples climb the tree, and what each side of each join finds is
counted with all states virtual; then, state by state, what probing it would save is set against its upkeep:

    saved    by the tuples of the sibling's streams: the hops below the state, less one look-up and what it finds
    upkeep   by the tuples of the state's own streams: each composite they make is stored

A state is worth storing when the first exceeds the second. (Within one tree these are independent of each other as
long as no stored state lies below another that is virtual, which is where the prediction errs to the safe side.)
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
    W_TUPLES,
    W_VISITS,
)
from stairs.memory.arena import Routes
from stairs.samples import Floats, Trace
from stairs.stair import FIRST_ROOM

ARRIVAL, ATTRIBUTE = 25.0, 35.0
"""Nanoseconds of an arrival that finds nothing, and of each of its attributes on top: keys are interned, links set."""
PROBE, VISIT, CHECK, LEAF, LEAF_VISIT = 12.0, 18.0, 2.0, 8.0, 4.0
"""Nanoseconds of a chain looked up, a tuple met in it; a leaf hop compared, a chain listed for it, a tuple of that."""
CLIMB, CLIMB_PROBE, CLIMB_VISIT, CLIMB_RESULT, STORE = 40.0, 14.0, 24.0, 10.0, 60.0
"""Nanoseconds of an arrival that climbs, on top; of a chain looked up, a tuple met, a result, a composite stored."""
ENTRY_BYTES = 4
SLACK = 3
"""Room of a ring per live entry, on average (`stairs.stair`)."""


@dataclass(frozen=True)
class Benefit:
    """What storing a state of a plan would bring, per arrival of any stream.

    saved, upkeep   nanoseconds
    live            entries it would hold
    n_bytes         bytes it would take
    """

    state: StateId
    saved: float
    upkeep: float
    live: float
    n_bytes: float

    @property
    def net(self) -> float:
        """Nanoseconds saved per arrival of any stream, upkeep deducted."""
        return self.saved - self.upkeep


def virtual_cost(trace: Trace) -> float:
    """Return nanoseconds per arrival of a plan with nothing stored, on top of its own; nan without a sample."""
    work = trace.work
    if not work[W_TUPLES]:
        return float("nan")
    spent = (
        PROBE * work[W_PROBES]
        + VISIT * work[W_VISITS]
        + CHECK * work[W_CHECKS]
        + LEAF * work[W_LEAVES]
        + LEAF_VISIT * work[W_LEAF_VISITS]
    )
    return float(spent / work[W_TUPLES])


def climb_costs(
    tree: Tree, masks: Masks, routes: Routes, trace: Trace, rows: Floats, walked: Floats
) -> tuple[float, list[Benefit]]:
    """Return nanoseconds per arrival of climbing a tree with all states virtual, on top of its own, and their benefits.

    routes   those of the tree with no state stored (`jisc.plan.stored_routes`), of which `trace` is
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
    cost = CLIMB * total + CLIMB_RESULT * float(trace.work[W_RESULTS])
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
