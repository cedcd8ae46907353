"""The arrays of ring values (`eddy.aggregates.rings`), as their kernels read them, and the fields of these arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stairs.kernels.accelerate import bundled

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

UNKNOWN = np.int64(-(1 << 62))
"""The count of a row that was not asked for yet."""
LIMIT = np.int64(1 << 31)

# tree[v]: a stream
T_UP = 0  # its attribute of the class that it shares with its parent, a row of `attrs`; -1 = it is a root
T_PARENT = 1
T_PARENT_UP = 2  # the attribute of the parent in that class
T_WIDTH = 3  # numbers of a row
T_VALUES = 4  # where its rows start in `values` (not of roots) and in `deltas`
T_LIFTS = 5  # where the parts of its tuples start in `lifts`
T_LIFT_WIDTH = 6
T_CHILD0 = 7  # its children are rows CHILD0 .. CHILD1 - 1 of `children`
T_CHILD1 = 8
T_PART0 = 9  # its parts are rows PART0 .. PART1 - 1 of `parts`
T_PART1 = 10
T_TOUCHED = 11  # where its changed rows start in `touched` and `marked`
T_OUT = 12  # of a root: where its parts start in a row of `out`
T_HOP0 = 13  # of a root: the others are found by rows HOP0 .. HOP0 + roots - 2 of `hops`
T_FIELDS = 14

# children[k]
D_STREAM = 0
D_ATTR = 1  # the attribute of the parent in the class that they share
D_FIELDS = 2

# parts[k]
G_AT = 0  # where it starts in a row of the stream
G_FROM = 1  # the child that it comes from, -1 = the stream's own tuples
G_SOURCE = 2  # where it starts in a row of the child, or in the parts of a tuple
G_PLAIN = 3  # counts
G_LIMBS = 4
G_ATTR = 5  # D_ATTR of the child
G_FIELDS = 6

# hops[k]: another root, with one that was found before
J_STREAM = 0
J_ATTR = 1  # its attribute in the class that both share
J_FROM = 2  # the one found before
J_FROM_ATTR = 3
J_FIELDS = 4

# bounds[v]
B_LOW = 0  # the first tuple that counts
B_NEXT = 1

# meta
M_OVER = 0  # 1 = a count has reached LIMIT
M_WALKED = 1  # tuples visited
M_FOUND = 2  # joined rows that begin, and that end, as far as they were told apart
M_OUT = 3  # rows of `out`
M_TIME = 4  # watermark at the last arrival
M_DONE = 5  # streams or arrivals taken
M_OPEN = 6  # 1 = the last one has changed roots that were not expanded yet
M_NEED = 7  # rows of `out` that are needed
M_FIELDS = 8


@bundled
class Ring(NamedTuple):
    """The arrays of ring values (see the module).

    frames, sums   memory of `promote`: int64[streams, 4], int64[streams, widest row]
    touched, marked  by stream the changed rows (keys, or sequence numbers of the root), and whether a row is one
    counts         int64[streams], the number of changed rows
    roots          int64[roots]
    walk, terms    by root in `expand`: its tuple, the next candidate, its count, int64[streams, 3]; its row
    """

    tree: Int64s
    children: Int64s
    parts: Int64s
    values: Int64s
    deltas: Int64s
    lifts: Int64s
    frames: Int64s
    sums: Int64s
    touched: Int32s
    marked: npt.NDArray[np.uint8]
    counts: Int64s
    bounds: Int64s
    meta: Int64s
    roots: Int64s
    hops: Int64s
    walk: Int64s
    terms: Int64s
