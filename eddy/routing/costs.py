"""The cost model: predicted nanoseconds per arrival of a plan, from a trial of its routes on recent tuples.

The trial walks the routes over the live state (`stairs.samples`), so it makes no assumption about the combination of
selectivities. Steps have weights in nanoseconds. The weights were fitted on one machine; only their ratios matter.

Plans with stored states are predicted without building the states. The trial climbs the tree with all states virtual
and counts the combinations found on each side of each join. Then, for each state, its savings are compared with its
upkeep, the cost of its maintenance:

    saved    by the tuples of the sibling's streams: the hops below the state, minus one look-up and its matches
    upkeep   by the tuples of the state's own streams: each combination that they form is stored

A state is worth storing if it saves more than its upkeep. (The states of a tree are independent in this, except for a
stored state below a virtual state; in this case the prediction is conservative.)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from statistics import median
from typing import NamedTuple

import numpy as np

from jisc.plan.states import Masks, StateId
from jisc.plan.tree import Tree
from stairs.descriptors import R_END, R_TRUNK
from stairs.entry_ring import FIRST_ROOM
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

ARRIVAL, ATTRIBUTE = 25.0, 50.0
"""Nanoseconds of an arrival without a match, and of each of its attributes (interning a key, setting a link)."""
PROBE, VISIT, CHECK, LEAF, LEAF_VISIT = 15.0, 20.0, 2.0, 8.0, 10.0
"""Nanoseconds of a chain looked up, of a tuple in it, of a check, of a leaf hop, of a tuple listed for it."""
SCANNED, CLIMB_SCANNED = 0.25, 1.0
"""Nanoseconds of a tuple that a scan passes over, and the same where an arrival climbs."""
SEARCH = 100.0
"""Nanoseconds of a binary search in a band, which takes the place of such a scan."""
CLIMB_PROBE, CLIMB_VISIT, CLIMB_RESULT, CLIMB_MISSED = 16.0, 18.0, 2.0, 50.0
"""Nanoseconds where an arrival climbs: of a chain, a tuple in it, a result, an entry that fails the check of a key."""
STORE, STORE_ID, FAR = 10.0, 2.0, 72.0
"""Nanoseconds of an entry, stored and later removed; of each of its components; of an entry beyond CACHE."""
CACHE = 1e6
"""Bytes of a state that a core's own cache holds."""
ENTRY_BYTES = 4
SLACK = 3
"""Mean number of slots of a ring per live entry (`stairs.entry_ring`)."""


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


def entry_cost(components: int, n_bytes: float) -> float:
    """Return the nanoseconds of an entry with this many components, from its storage to its removal.

    n_bytes   those of its state: the entry is stored and found outside of the cache with the share of the state there
    """
    return STORE + STORE_ID * components + FAR * max(0.0, 1.0 - CACHE / max(n_bytes, 1.0))


def state_bytes(components: int, entries: float) -> float:
    """Return the predicted bytes of a state of so many entries."""
    return max(entries, FIRST_ROOM) * ENTRY_BYTES * (1 + components) * SLACK


def state_weights(formed: Floats, live: Floats, components: Floats) -> Floats:
    """Return the predicted nanoseconds per arrival of inner states of a pipelined plan, without those of leaves.

    formed       float64[states], composites that an arrival forms: each visited, stored, and probing the sibling
    live         float64[states], entries
    components   float64[states], streams of each
    """
    entry = [
        entry_cost(count, state_bytes(count, size))
        for count, size in zip(components.tolist(), live.tolist(), strict=True)
    ]
    weights: Floats = formed * (CLIMB_PROBE + CLIMB_VISIT + np.array(entry))
    return weights


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


class Climb(NamedTuple):
    """The part of a climb of a tree without stored states that does not depend on the data.

    routes   routes of the tree (`jisc.plan.stored_routes`)
    states   the inner states of the tree
    joins    per stream, the joins from its leaf to the root: hops that probe the sibling, the number of the sibling's
             state and of the state that the two form, -1 = none; whether the two share more than one key
    """

    routes: Routes
    states: list[StateId]
    joins: list[list[tuple[int, int, int, bool]]]


def climb_of(tree: Tree, masks: Masks, routes: Routes) -> Climb:
    """Return the climb of a tree by these routes. O(streams * depth)."""
    states = list(dict.fromkeys(side.state for side in masks.sides(tree) if side.node.children))
    number = {state.mask: k for k, state in enumerate(states)}
    joins = [
        [
            (
                len(sibling.streams),
                number[sibling.mask] if sibling.children else -1,
                number.get(node.mask | sibling.mask, -1),
                (masks.classes_of(node) & masks.classes_of(sibling)).bit_count() > 1,
            )
            for node, sibling in tree.path(i)
        ]
        for i in range(masks.graph.n_streams)
    ]
    return Climb(routes, states, joins)


def climb_costs(climb: Climb, trace: Trace, rows: Floats, walked: Floats, keys: Floats) -> tuple[float, list[Benefit]]:
    """Return the predicted nanoseconds of a climb with all states virtual, per arrival, and the benefits of states.

    trace    a trial of its routes
    rows     float64[streams], live tuples
    walked   float64[streams], tuples of each stream in the trace
    keys     float64[classes], keys of each class
    """
    # Python's numbers: there are a few hundred, and an operation of numpy on one of them takes as long as on all.
    routes, states, joins = climb
    total = max(float(trace.work[W_TUPLES]), 1.0)
    visits = trace.visits.tolist()
    steps = [0.0, *accumulate(CLIMB_PROBE * chains + CLIMB_VISIT * tuples for chains, tuples, _ in visits)]
    saved, made, probed, passed = ([0.0] * len(states) for _ in range(4))
    live: list[list[float]] = [[] for _ in states]
    work = [float(count) for count in trace.work]
    scans = CLIMB_SCANNED * (work[W_SCANNED] - work[W_SPARED]) + SEARCH * work[W_SEARCHED]
    cost = CLIMB_RESULT * work[W_RESULTS] + scans
    spans = routes.span[:, [R_TRUNK, R_END]].tolist()
    for (h, end), path, n, n_live in zip(spans, joins, walked.tolist(), rows.tolist(), strict=False):
        cost += steps[end] - steps[h]
        for hops, sibling, parent, checks in path:
            last = h + hops
            matched = visits[last - 1][2]
            if sibling >= 0:
                saved[sibling] += steps[last] - steps[h] - CLIMB_PROBE * visits[h][0] - CLIMB_VISIT * matched
                # A state is indexed by one key: a probe visits all entries with it. All keys count as equally frequent.
                probed[sibling] += visits[h][0] if checks else 0.0
                passed[sibling] += matched if checks else 0.0
            if parent >= 0:
                made[parent] += matched
                if n:
                    live[parent].append(matched / n * n_live)
            h = last
    benefits = []
    for state, worth, stored, sizes, probes, matches in zip(states, saved, made, live, probed, passed, strict=True):
        entries, components = median(sizes) if sizes else 0.0, state.mask.bit_count()
        worth -= CLIMB_MISSED * max(probes * entries / max(float(keys[state.by]), 1.0) - matches, 0.0)
        size = state_bytes(components, entries)
        upkeep = entry_cost(components, size) * stored
        benefits.append(Benefit(state, worth / total, upkeep / total, entries, size))
    return cost / total, benefits
