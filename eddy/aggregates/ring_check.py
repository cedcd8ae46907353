"""The check of ring values: they are computed anew from the windows, by the streams from the leaves up, with numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eddy.aggregates.ring import T_LIFT_WIDTH, T_LIFTS, T_VALUES, T_WIDTH, UNKNOWN
from eddy.aggregates.rings import Rings
from stairs.descriptors import S_LO, S_NEXT
from stairs.errors import StateError

Objects = npt.NDArray[np.object_]


def check_rings(rings: Rings) -> None:
    """Raise StateError unless each known row equals the row computed anew. O(state), for tests."""
    ring = rings.ring
    if ring is None or rings.fresh:
        return
    if ring.counts.any() or ring.marked.any() or ring.deltas.any():
        raise StateError("ring values: changes are left over")
    for v, rows in _recomputed(rings).items():
        width, first = rings.layout.width(v), int(rings.layout.streams[v, T_VALUES])
        stored = ring.values[first : first + len(rows) * width].reshape(-1, width)
        known = stored[:, 0] != UNKNOWN
        if not np.array_equal(stored[known], rows[known]):
            raise StateError(f"ring values of stream {rings.graph.names[v]} differ from their windows")


def _recomputed(rings: Rings) -> dict[int, npt.NDArray[np.int64]]:
    """Return the row of each key of each stream except roots: int64[keys, width]. O(state)."""
    modules, layout, ring = rings.modules, rings.layout, rings.ring
    assert ring is not None
    stream_rows: dict[int, npt.NDArray[np.int64]] = {}
    for v in reversed(list(rings.tree)):
        if v in rings.roots:
            continue
        branch, row, room = rings.tree[v], ring.tree[v], modules.capacity[v]
        width, lift = int(row[T_WIDTH]), int(row[T_LIFT_WIDTH])
        rows: Objects = np.zeros((modules.key_room(branch.up), width), object)
        records = modules.recs.view(v).reshape(room, -1)
        lifts = ring.lifts[int(row[T_LIFTS]) : int(row[T_LIFTS]) + room * lift].reshape(room, lift)
        offsets = rings.graph.offsets[v]
        for s in range(int(modules.streams[v, S_LO]), int(modules.streams[v, S_NEXT])):
            record = records[s & (room - 1)]
            if record[1] < 0:
                continue
            below = {w: stream_rows[w][record[offsets[c] + 1]] for w, c in branch.children}
            total = 1
            for child_row in below.values():
                total *= int(child_row[0])
            if not total:
                continue
            term: Objects = np.zeros(width, object)
            term[0] = total
            for k, part in layout.parts_of(v).items():
                span = slice(part.at, part.at + part.plain + part.limbs)
                if k in layout.own_inputs(v):
                    at = layout.own_inputs(v)[k]
                    term[span] = [int(x) * total for x in lifts[s & (room - 1)][at : at + part.plain + part.limbs]]
                else:
                    w = next(w for w, _ in branch.children if k in layout.parts_of(w))
                    source = layout.parts_of(w)[k].at
                    factor = total // int(below[w][0])
                    term[span] = [int(x) * factor for x in below[w][source : source + part.plain + part.limbs]]
            rows[record[offsets[branch.up] + 1]] += term
        for part in layout.parts_of(v).values():
            first = part.at + part.plain
            for k in range(first, first + part.limbs - 1):
                rows[:, k + 1] += rows[:, k] >> 32
                rows[:, k] &= (1 << 32) - 1
        stream_rows[v] = rows.astype(np.int64)
    return stream_rows
