"""Pairs of results that a change of a table takes back and gives: they differ in the version that changed alone."""

from __future__ import annotations

import numpy as np

from stairs.descriptors import DELETED, INSERTED, S_LIFE, UPDATED_FROM, UPDATED_TO
from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.versions import ended_by
from stairs.memory.arena import Arena

MIX = 0x9E3779B97F4A7C15


@inlined
def slot_of(ids: np.ndarray, r: int, m: int, j: int, s: int, last: int) -> int:
    """Return the home of result r, with tuple s in place of its component of stream j (-1: of none)."""
    x = u64(0)
    for k in range(m):
        own = np.int64(ids[u64(r * m + k)]) if k != j else np.int64(s)
        x = (x ^ u64(own)) * u64(MIX)
        x ^= x >> u64(29)
    return np.int64(x & u64(last))


@inlined
def is_pair(ids: np.ndarray, before: int, after: int, m: int, j: int, s: int) -> bool:
    """Return whether result `after` is result `before` with another version than s of table j."""
    for k in range(m):
        own = np.int64(ids[u64(after * m + k)]) if k != j else np.int64(s)
        if np.int64(ids[u64(before * m + k)]) != own:
            return False
    return True


@inlined
def partner_of(arena: Arena, ids: np.ndarray, slots: np.ndarray, partners: np.ndarray, r: int) -> int:
    """Return the result in `slots` that a change replaced by result r, -1 for none.

    A result that has a version which ended another one was replaced by it if the rest of it is the same. What arrived
    after the change is in no result that the change took back.
    """
    m, last = arena.streams.shape[0], slots.shape[0] - 1
    for j in range(m):
        if arena.streams[u64(j), S_LIFE] > 0:
            ended = ended_by(arena, j, np.int64(ids[u64(r * m + j)]))
            if ended >= 0:
                at = slot_of(ids, r, m, j, ended, last)
                while slots[u64(at)] >= 0:
                    before = np.int64(slots[u64(at)])
                    if partners[u64(before)] < 0 and is_pair(ids, before, r, m, j, ended):
                        return before
                    at = (at + 1) & last
    return np.int64(-1)


@jit
def pair_results(
    arena: Arena, ids: np.ndarray, signs: np.ndarray, slots: np.ndarray, partners: np.ndarray, order: np.ndarray
) -> int:
    """Find the pairs among results: write the order in which pairs are adjacent; return the number of pairs.

    Each run of deletions, with the insertions that follow it, becomes: deletions, pairs, insertions.

    ids       int32[results * streams]
    signs     uint8[results], INSERTED or DELETED; members of pairs get UPDATED_FROM and UPDATED_TO
    slots     int32[power of two, at least 2 * results], all -1
    partners  int32[results], memory
    order     int32[results], written: the results in their new order
    """
    n, m, last, pairs = order.shape[0], arena.streams.shape[0], slots.shape[0] - 1, np.int64(0)
    for r in range(n):
        partners[u64(r)] = -1
    first, at = np.int64(0), np.int64(0)
    while first < n:
        middle = first
        while middle < n and signs[u64(middle)] == DELETED:
            middle += 1
        end = middle
        while end < n and signs[u64(end)] == INSERTED:
            end += 1
        if first < middle < end:
            for r in range(first, middle):
                slot = slot_of(ids, r, m, -1, 0, last)
                while slots[u64(slot)] >= 0:
                    slot = (slot + 1) & last
                slots[u64(slot)] = r
            for r in range(middle, end):
                before = partner_of(arena, ids, slots, partners, r)
                if before >= 0:
                    partners[u64(r)], partners[u64(before)] = before, r
                    signs[u64(r)], signs[u64(before)] = UPDATED_TO, UPDATED_FROM
                    pairs += 1
            for r in range(first, middle):
                slot = slot_of(ids, r, m, -1, 0, last)
                while slots[u64(slot)] >= 0:
                    slots[u64(slot)] = -1
                    slot = (slot + 1) & last
        for r in range(first, middle):
            if partners[u64(r)] < 0:
                order[u64(at)] = r
                at += 1
        for r in range(middle, end):
            if partners[u64(r)] >= 0:
                order[u64(at)], order[u64(at + 1)] = partners[u64(r)], r
                at += 2
        for r in range(middle, end):
            if partners[u64(r)] < 0:
                order[u64(at)] = r
                at += 1
        first = end
    return pairs
