"""The net results of an atomic push: the difference between the answers before it and after it.

Each key of a table changes once in such a push. So a result has one row at most that ends it and one that begins it,
unless it comes and goes within the push; then these rows take each other away.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import DELETED, INSERTED, S_LIFE, UPDATED_FROM, UPDATED_TO
from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.pairs import slot_of
from stairs.kernels.versions import ended_by
from stairs.memory.arena import Arena

GONE = 255
"""Sign of a row that another row took away."""


@inlined
def slot_with(ids: np.ndarray, slots: np.ndarray, given: np.ndarray, g: int, m: int) -> int:
    """Return the slot of the result whose components are those of result g of `given`, or where it would be."""
    last = slots.shape[0] - 1
    slot = slot_of(given, g, m, -1, 0, last)
    while slots[u64(slot)] >= 0:
        r, same = np.int64(slots[u64(slot)]), True
        for k in range(m):
            same &= ids[u64(r * m + k)] == given[u64(g * m + k)]
        if same:
            break
        slot = (slot + 1) & last
    return slot


@inlined
def write_replaced(arena: Arena, ids: np.ndarray, firsts: np.ndarray, r: int, m: int, replaced: np.ndarray) -> bool:
    """Write the result that result r replaces, as far as it does; return whether a version in r is new and ended one.

    firsts   int64[streams], the number of the first arrival of the push
    """
    replaces = False
    for k in range(m):
        component = np.int64(ids[u64(r * m + k)])
        if arena.streams[u64(k), S_LIFE] > 0 and component >= firsts[u64(k)]:
            ended = ended_by(arena, np.int64(k), component)
            if ended >= 0:
                component, replaces = ended, True
        replaced[u64(k)] = component
    return replaces


@jit
def net_results(
    arena: Arena,
    ids: np.ndarray,
    signs: np.ndarray,
    firsts: np.ndarray,
    slots: np.ndarray,
    partners: np.ndarray,
    replaced: np.ndarray,
    order: np.ndarray,
) -> int:
    """Write the order of the net results: those that ended, then pairs, then new ones; return their number.

    ids       int32[results * streams]
    signs     uint8[results], INSERTED or DELETED; members of pairs get UPDATED_FROM and UPDATED_TO
    firsts    int64[streams], the number of the first arrival of the push
    slots     int32[power of two, at least 2 * results], all -1
    partners  int32[results], memory
    replaced  int32[streams], memory
    order     int32[results], written: the net results in their new order
    """
    n, m, at = order.shape[0], arena.streams.shape[0], np.int64(0)
    for r in range(n):
        partners[u64(r)] = -1
        slot = slot_with(ids, slots, ids, np.int64(r), m)
        before = np.int64(slots[u64(slot)])
        if before >= 0 and signs[u64(before)] != GONE:
            signs[u64(before)], signs[u64(r)] = GONE, GONE
        else:
            slots[u64(slot)] = r
    for r in range(n):
        if signs[u64(r)] == INSERTED and write_replaced(arena, ids, firsts, np.int64(r), m, replaced):
            before = np.int64(slots[u64(slot_with(ids, slots, replaced, 0, m))])
            if before >= 0 and signs[u64(before)] == DELETED:
                partners[u64(r)], partners[u64(before)] = before, r
    for r in range(n):
        if signs[u64(r)] == DELETED and partners[u64(r)] < 0:
            order[u64(at)] = r
            at += 1
    for r in range(n):
        if signs[u64(r)] == INSERTED and partners[u64(r)] >= 0:
            before = partners[u64(r)]
            order[u64(at)], order[u64(at + 1)] = before, r
            signs[u64(r)], signs[u64(before)] = UPDATED_TO, UPDATED_FROM
            at += 2
    for r in range(n):
        if signs[u64(r)] == INSERTED:
            order[u64(at)] = r
            at += 1
    return at
