"""Groups of some results merged into groups of others, without the results; not where results are taken back.

Counts and sums are added, extremes compared, values united. Sums of floats are exact, so the outcome is that of all
results in one state, bit for bit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eddy.aggregates.state import AggregationState, GroupChange
from eddy.aggregates.storage import copied, text_ids

Int64s = npt.NDArray[np.int64]


def merged_change(state: AggregationState, other: AggregationState, always: bool) -> GroupChange:
    """Return the change of groups by those of another state of the same aggregation. O(groups and values of `other`).

    always   the one group of a query without group columns is there without results, too
    """
    assert not state.layout.retracts
    keys, cells, listed = copied(other, other.groups.slots)
    _translate(state, other, keys, cells, listed)
    layout = state.widened(state.layout.covering(other.layout.sums))
    cells = other.layout.moved(cells, layout)
    if always and not len(keys):
        keys, cells = np.zeros((1, state.words), np.int64), np.zeros((1, layout.fields), np.int64)
    n = len(keys)
    places, old = state.before(keys)
    nothing = [(np.zeros((0, values.width), np.int64), np.zeros(0, np.int64)) for values in state.values]
    both = np.concatenate([np.arange(n), np.arange(n)])
    new = layout.merged(np.concatenate([old, cells]), both, n, nothing, state.texts)
    changes = []
    for rows, values in zip(listed, state.values, strict=True):
        words, numbers, counts = (np.ascontiguousarray(part) for part in (rows[:, 1:-1], rows[:, 0], rows[:, -1]))
        changes.append(values.change(words, numbers, counts, places))
    return state.followed(keys, places, old, new, changes, always)


def _translate(
    state: AggregationState, other: AggregationState, keys: Int64s, cells: Int64s, listed: list[Int64s]
) -> None:
    """Write the ids that byte strings have in `state` in place of those that they have in `other`."""
    places = text_ids(other, keys, cells, listed)
    ids = np.unique(np.concatenate([np.zeros(0, np.int64), *(part[rows, k] for part, rows, k in places)]))
    offsets, text = other.texts.read(ids)
    data = text if len(text) else np.zeros(1, np.uint8)
    here = state.texts.intern(offsets, data, np.zeros(len(ids), np.uint8))
    for part, rows, k in places:
        part[rows, k] = here[np.searchsorted(ids, part[rows, k])]
