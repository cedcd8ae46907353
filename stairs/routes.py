"""Rows of the tables that kernels walk (`stairs.memory.arena.Routes`), by field name, and the tables made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stairs.descriptors import E_FIELDS, H_FIELDS, O_FIELDS, P_FIELDS, R_FIELDS
from stairs.graph import JoinGraph
from stairs.memory.arena import Entries, Int64s, Routes


class HopRow(NamedTuple):
    """One row of `Routes.hops`. The fields stand in the order of the H_ columns of `stairs.descriptors`."""

    target: int
    by: int
    column: int = 0
    offset: int = 0
    ops0: int = 0
    ops1: int = 0
    leaf0: int = 0
    leaf1: int = 0
    probes: int = 0
    matches: int = 0
    state: int = -1
    store: int = -1
    tested: int = 0
    killed: int = 0
    rest: int = 0


class OpRow(NamedTuple):
    """One row of `Routes.ops`. The fields stand in the order of the O_ columns of `stairs.descriptors`."""

    by: int
    offset: int
    check: int
    stream: int
    column: int


def stem_hop(graph: JoinGraph, stream: int, by: int, ops0: int = 0, ops1: int = 0) -> HopRow:
    """Return the row of a hop that probes the SteM of a stream by the key of class `by`. O(1)."""
    return HopRow(stream, by, graph.columns[by][stream], graph.offsets[stream][by], ops0, ops1)


def op_row(graph: JoinGraph, stream: int, c: int, check: bool) -> OpRow:
    """Return the row that checks or binds the key of class c of a component of `stream`. O(1)."""
    return OpRow(c, graph.offsets[stream][c], check, stream, graph.columns[c][stream])


def route_tables(
    span: Sequence[Sequence[int]] | Int64s, hops: Sequence[HopRow], ops: Sequence[OpRow], ready: Int64s | None = None
) -> Routes:
    """Return the rows of the tables as arrays (see `Routes`); `ready` is None unless tuples are routed hop by hop."""
    return Routes(
        np.array(span, np.int64).reshape(-1, R_FIELDS),
        np.array(hops, np.int64).reshape(-1, H_FIELDS),
        np.array(ops, np.int64).reshape(-1, O_FIELDS),
        np.zeros((0, 3), np.int64) if ready is None else ready,
    )


def no_routes() -> Routes:
    """Return tables without a route."""
    return route_tables((), (), ())


def no_entries() -> Entries:
    """Return the tables of a store without states."""
    nothing = np.zeros(0, np.int64)
    return Entries(np.zeros((0, E_FIELDS), np.int64), np.zeros((0, P_FIELDS), np.int64), nothing, nothing)
