"""Rows of the tables that kernels walk (`stairs.memory.arena.Routes`), by field name, and the tables made of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from stairs.descriptors import (
    DIFFERS,
    E_FIELDS,
    FLOATS_DIFFER,
    FLOATS_TURNED,
    FLOATS_WITHIN,
    H_FIELDS,
    O_FIELDS,
    P_FIELDS,
    R_FIELDS,
    V_FIELDS,
    WITHIN,
    X_FIELDS,
)
from stairs.graph import Comparison, JoinGraph
from stairs.memory.arena import Entries, Int64s, Routes


class HopRow(NamedTuple):
    """One row of `Routes.hops`. The fields stand in the order of the H_ columns of `stairs.descriptors`."""

    target: int
    by: int
    column: int = 0
    offset: int = 0
    ops0: int = 0
    ops1: int = 0
    compare: int = -1
    leaf0: int = 0
    leaf1: int = 0
    state: int = -1
    store: int = -1


class OpRow(NamedTuple):
    """One row of `Routes.ops`. The fields stand in the order of the O_ columns of `stairs.descriptors`."""

    by: int
    offset: int
    check: int
    stream: int
    column: int


class CompareRow(NamedTuple):
    """One row of `Routes.compares`. The fields stand in the order of the X_ columns of `stairs.descriptors`."""

    stream: int
    ring: int
    other: int
    other_ring: int
    kind: int
    low: int
    high: int
    excluded: int
    level: int
    remaining: int


def add_compares(compares: list[CompareRow], comparisons: Sequence[tuple[Comparison, int, int]]) -> int:
    """Append the rows of the comparisons of a hop. Return the number of the first row, or -1 for no comparisons.

    comparisons  comparison, the stream whose component the hop finds, level as X_LEVEL
    """
    first = len(compares)
    for k, (comparison, stream, level) in enumerate(comparisons):
        compares.append(_compare_row(comparison, stream, level, len(comparisons) - k))
    return first if comparisons else -1


def _compare_row(comparison: Comparison, stream: int, level: int, remaining: int) -> CompareRow:
    near, far, low, high = comparison.left, comparison.right, comparison.low, comparison.high
    turned = near.stream != stream
    if turned:
        near, far = far, near
    if comparison.floats:
        kind = FLOATS_DIFFER if comparison.differs else FLOATS_WITHIN
        bits = np.array([low, high], np.float64).view(np.int64).tolist()
        kind += FLOATS_TURNED * turned
    else:
        kind = DIFFERS if comparison.differs else WITHIN
        if turned:
            low, high = (-low, -high) if comparison.differs else (-high, -low)
        bits = [int(low), int(high)]
    return CompareRow(
        near.stream,
        near.ring,
        far.stream,
        far.ring,
        kind,
        low=bits[0],
        high=bits[1],
        excluded=comparison.excluded,
        level=level,
        remaining=remaining,
    )


def stem_hop(graph: JoinGraph, stream: int, by: int, ops0: int = 0, ops1: int = 0) -> HopRow:
    """Return the row of a hop that probes the SteM of a stream by the key of class `by`. O(1)."""
    return HopRow(stream, by, graph.columns[by][stream], graph.offsets[stream][by], ops0, ops1)


def op_row(graph: JoinGraph, stream: int, c: int, check: bool) -> OpRow:
    """Return the row that checks or binds the key of class c of a component of `stream`. O(1)."""
    return OpRow(c, graph.offsets[stream][c], check, stream, graph.columns[c][stream])


def route_tables(
    span: Sequence[Sequence[int]] | Int64s,
    hops: Sequence[HopRow] | Int64s,
    ops: Sequence[OpRow],
    ready: Int64s | None = None,
    compares: Sequence[CompareRow] = (),
) -> Routes:
    """Return the rows of the tables as arrays (see `Routes`); `ready` is None unless tuples are routed hop by hop."""
    return Routes(
        np.ascontiguousarray(span) if isinstance(span, np.ndarray) else _table(span, R_FIELDS),
        hops if isinstance(hops, np.ndarray) else _table(hops, H_FIELDS),
        np.zeros((V_FIELDS, len(hops)), np.int64),
        _table(ops, O_FIELDS),
        _table(compares, X_FIELDS),
        np.zeros((0, 5), np.int64) if ready is None else ready,
    )


def _table(rows: Sequence[Sequence[int]], fields: int) -> Int64s:
    # From one flat list in about half the time of a list of rows.
    return np.array(list(chain.from_iterable(rows)), np.int64).reshape(-1, fields)


def no_routes() -> Routes:
    """Return tables without a route."""
    return route_tables((), (), ())


def no_entries() -> Entries:
    """Return the tables of a store without states."""
    nothing = np.zeros(0, np.int64)
    return Entries(np.zeros((0, E_FIELDS), np.int64), np.zeros((0, P_FIELDS), np.int64), nothing, nothing)


def fresh(tables: Routes) -> Routes:
    """Return tables of the same routes, with counts of their own. O(hops)."""
    return tables._replace(counts=np.zeros((V_FIELDS, len(tables.hops)), np.int64))
