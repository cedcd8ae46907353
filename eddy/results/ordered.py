"""The results of a push in the order of their timestamps, whatever plan has found them (`Runtime(ordered=True)`).

The kernels give results in the order of the events that begin or end them: an arrival, the time that comes with it, or
the watermark at the end of the push. So only results of one event are out of order. The event of a result follows from
the numbers of its components, and a sort by event and numbers puts all results in place.

Source of the property: Zhu, Rundensteiner, Heineman, "Dynamic plan migration for continuous queries over data streams",
SIGMOD 2004, Lemma 2.1. The order here is stricter: the lemma permits several orders, and this is one of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stairs.descriptors import DELETED, M_CHANGELOG, M_OUT, S_LO
from stairs.graph import WindowKind
from stairs.memory.arena import Bytes, Int64s
from stairs.modules import Modules

TIMED_OUT, DISPLACED, BEGUN = 0, 1, 2
"""The events of an arrival, in this order. Event 3 p + k is the k-th of these at arrival p."""
NEVER = np.iinfo(np.int64).max


def put_in_order(modules: Modules, order: Bytes) -> None:
    """Sort the results of the open push in `modules.walk`, in place, with their signs.

    order   uint8[arrivals], the stream of each arrival

    O(results * log results * streams).
    """
    n, m = int(modules.meta[M_OUT]), modules.graph.n_streams
    if n < 2:
        return
    walk = modules.walk
    ids, signs = walk.ids[: n * m].reshape(n, m), walk.signs[:n]
    events = _begins(modules, order, ids)
    if modules.meta[M_CHANGELOG]:
        events = np.where(signs == DELETED, _ends(modules, order, ids), events)
    ranks = np.lexsort((*ids.T[::-1], events))
    ids[:] = ids[ranks]
    if modules.meta[M_CHANGELOG]:
        signs[:] = signs[ranks]


def _begins(modules: Modules, order: Bytes, ids: npt.NDArray[np.int32]) -> Int64s:
    """Return the event at which each result begins: the arrival of its last component."""
    last = np.full(len(ids), -1)
    for j, following in enumerate(modules.following):
        places = np.concatenate([[-1], np.flatnonzero(order == j)])
        np.maximum(last, places[np.maximum(ids[:, j] + 1 - following, 0)], out=last)
    return 3 * last + BEGUN


def _ends(modules: Modules, order: Bytes, ids: npt.NDArray[np.int32]) -> Int64s:
    """Return the event at which each result ends, in a changelog: the first of its components leaves its window."""
    first, watermarks = np.full(len(ids), NEVER), modules.watermarks(order)
    for j, window in enumerate(modules.graph.windows):
        low, end = modules.lowest_before(j), int(modules.streams[j, S_LO])
        if low == end:
            continue
        left = np.arange(low, end)
        if window.kind == WindowKind.ROWS:
            places = np.flatnonzero(order == j)
            events = 3 * places[left + window.size - modules.following[j]] + DISPLACED
        else:
            # A row leaves after all rows that came before it.
            times = np.maximum.accumulate(modules.times_of(j, left))
            events = 3 * np.searchsorted(watermarks, times + window.size, side="right") + TIMED_OUT
        np.minimum(first, np.append(events, NEVER)[np.minimum(ids[:, j] - low, len(left))], out=first)
    return first
