"""Estimated composites: how many of each set of streams an arrival forms, by the samples of a view.

The shares of matching pairs of two streams are multiplied as if they were independent, so the estimates only propose
plans; a trial over the live state decides (`eddy.routing.view`). Comparisons are assumed to be always true.
"""

from __future__ import annotations

import numpy as np

from eddy.routing.view import View
from jisc.plan.bushy import Bushy
from stairs.samples import Floats


def sizes(view: View, bushy: Bushy) -> tuple[Floats, Floats]:
    """Return, of each set, the composites that an arrival of any stream forms on average, and the live ones.

    Both are float64[sets]. O(sets * pairs of streams that share a class).
    """
    rows = np.maximum(view.rows, 1.0)
    logs: Floats = bushy.members.astype(np.float64) @ np.log(rows)
    for by, members in enumerate(view.graph.members):
        # The members of a set are compared one after the other, so each but the first is compared once.
        last = np.full(len(bushy.sets), -1)
        for j in members:
            inside = bushy.members[:, j]
            for i in members[: members.index(j)]:
                logs[inside & (last == i)] += np.log(_share(view, i, j, by, rows))
            last[inside] = j
    live: Floats = np.exp(logs)
    formed: Floats = live * (bushy.members @ (view.shares / rows))
    return formed, live


def _share(view: View, i: int, j: int, by: int, rows: Floats) -> float:
    """Return the share of pairs of live tuples of two streams that agree in a class, as arrivals of either find it."""
    shares = [share for share in (_seen(view, i, j, by, rows), _seen(view, j, i, by, rows)) if share > 0]
    return float(np.exp(np.mean(np.log(shares)))) if shares else 1.0


def _seen(view: View, i: int, j: int, by: int, rows: Floats) -> float:
    """Return the share of the tuples of j that a sampled tuple of i finds; 0 = i has no sample."""
    sampled = len(view.profile(i))
    # Where no sampled tuple has a partner, the next one may have: half a partner among all of them.
    return max(view.fanout(i, j, by), 0.5 / sampled) / float(rows[j]) if sampled else 0.0
