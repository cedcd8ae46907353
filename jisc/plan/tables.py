"""The rows of the tables that kernels walk (`stairs.memory.arena.Routes`), with a name for each field.

`HopRow` and `OpRow` have their fields in the order of the H_ and O_ columns of `stairs.descriptors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stairs.descriptors import H_FIELDS, O_FIELDS, R_FIELDS
from stairs.graph import JoinGraph
from stairs.memory.arena import Int64s, Routes


class HopRow(NamedTuple):
    """One probe of a route.

    target   the stream probed, or the first stream of the state probed
    by       the class whose key is looked up
    column   head column of the target (0 for a state)
    offset   where (link, key id) of the class lies in a record of the target (0 for a state)
    ops      rows first_op .. end_op - 1 of `Routes.ops` are the checks and bindings on a match
    leaves   hops first_leaf .. end_leaf - 1 are the leaf hops whose class this hop binds
    probes, matches   counters of the kernel
    state    the state probed, -1 = the SteM of the target
    store    the state that the combination found goes into, -1 = none
    """

    target: int
    by: int
    column: int
    offset: int
    first_op: int
    end_op: int
    first_leaf: int = 0
    end_leaf: int = 0
    probes: int = 0
    matches: int = 0
    state: int = -1
    store: int = -1


class OpRow(NamedTuple):
    """One check or binding on a match: the key id of class `by` of a component.

    offset   where (link, key id) of the class lies in a record of the stream
    check    1 = the key id must equal the one bound, 0 = it is bound
    stream   the stream of the component
    column   its column in a head row of the class
    """

    by: int
    offset: int
    check: int
    stream: int
    column: int


def probe_row(graph: JoinGraph, stream: int, by: int, ops: tuple[int, int]) -> HopRow:
    """Return the row of a probe of the SteM of `stream` by class `by`; `ops` are the first and the end of its ops."""
    return HopRow(stream, by, graph.members[by].index(stream), record_offset(graph, stream, by), *ops)


def op_row(graph: JoinGraph, stream: int, by: int, check: bool) -> OpRow:
    """Return the row that checks or binds the key id of class `by` in a tuple of `stream`."""
    return OpRow(by, record_offset(graph, stream, by), int(check), stream, graph.members[by].index(stream))


def record_offset(graph: JoinGraph, stream: int, by: int) -> int:
    """Return where (link, key id) of a class lies in a record of a stream."""
    return 2 * graph.attributes[stream].index(by)


def routes_of(span: Int64s, hops: Sequence[HopRow], ops: Sequence[OpRow]) -> Routes:
    """Return rows of the tables as arrays."""
    return Routes(
        span.reshape(-1, R_FIELDS),
        np.array(hops, np.int64).reshape(-1, H_FIELDS),
        np.array(ops, np.int64).reshape(-1, O_FIELDS),
        np.zeros((0, 3), np.int64),
    )
