"""Pairs of results that a change of a table takes back and gives: they differ in the version that changed alone."""

from __future__ import annotations

import numpy as np

from stairs.descriptors import DELETED, INSERTED, S_LIFE, UPDATED_FROM, UPDATED_TO
from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.versions import ended_by
from stairs.memory.arena import Arena

MIX = 0x9E3779B97F4A7C15
FEW = 8
"""Number of deletions that are searched one by one."""
NO_SLOTS = -1


@inlined
def slot_of(ids: np.ndarray, r: int, m: int, j: int, s: int, last: int) -> int:
    """Return the home of result r, with tuple s in place of its component of stream j (-1: of none)."""
    x = u64(0)
    for k in range(m):
        component = np.int64(ids[u64(r * m + k)]) if k != j else np.int64(s)
        x = (x ^ u64(component)) * u64(MIX)
        x ^= x >> u64(29)
    return np.int64(x & u64(last))


@inlined
def replaces(arena: Arena, ids: np.ndarray, after: int, before: int, m: int) -> bool:
    """Return whether a change replaced result `before` by result `after`: by another version of one table."""
    j = np.int64(-1)
    for k in range(m):
        if ids[u64(before * m + k)] != ids[u64(after * m + k)]:
            if j >= 0:
                return False
            j = np.int64(k)
    if j < 0 or arena.streams[u64(j), S_LIFE] == 0:
        return False
    return ended_by(arena, j, np.int64(ids[u64(after * m + j)])) == np.int64(ids[u64(before * m + j)])


@inlined
def listed_partner(arena: Arena, ids: np.ndarray, partners: np.ndarray, m: int, r: int, first: int, end: int) -> int:
    """Return the result first .. end - 1 without a partner that a change replaced by result r, -1 for none."""
    for before in range(first, end):
        if partners[u64(before)] < 0 and replaces(arena, ids, r, before, m):
            return np.int64(before)
    return np.int64(-1)


@inlined
def hashed_partner(arena: Arena, ids: np.ndarray, slots: np.ndarray, partners: np.ndarray, r: int) -> int:
    """Return the result in `slots` without a partner that a change replaced by result r, -1 for none.

    What arrived after the change is in no result that the change took back.
    """
    m, last = arena.streams.shape[0], slots.shape[0] - 1
    for j in range(m):
        if arena.streams[u64(j), S_LIFE] > 0:
            ended = ended_by(arena, j, np.int64(ids[u64(r * m + j)]))
            if ended >= 0:
                at = slot_of(ids, r, m, j, ended, last)
                while slots[u64(at)] >= 0:
                    before = np.int64(slots[u64(at)])
                    if partners[u64(before)] < 0 and replaces(arena, ids, r, before, m):
                        return before
                    at = (at + 1) & last
    return np.int64(-1)


@inlined
def fill_slots(ids: np.ndarray, slots: np.ndarray, m: int, first: int, end: int) -> None:
    """Enter the results first .. end - 1 into `slots`."""
    last = slots.shape[0] - 1
    for r in range(first, end):
        slot = slot_of(ids, r, m, -1, 0, last)
        while slots[u64(slot)] >= 0:
            slot = (slot + 1) & last
        slots[u64(slot)] = r


@inlined
def clear_slots(ids: np.ndarray, slots: np.ndarray, m: int, first: int, end: int) -> None:
    """Remove the results first .. end - 1, all that there are, from `slots`."""
    last = slots.shape[0] - 1
    for r in range(first, end):
        slot = slot_of(ids, r, m, -1, 0, last)
        while slots[u64(slot)] >= 0:
            slots[u64(slot)] = -1
            slot = (slot + 1) & last


@jit
def pair_results(
    arena: Arena, ids: np.ndarray, signs: np.ndarray, slots: np.ndarray, partners: np.ndarray, order: np.ndarray
) -> int:
    """Find the pairs among results: write the order in which pairs are adjacent; return the number of pairs.

    Each run of deletions, with the insertions that follow it, becomes: deletions, pairs, insertions. Mostly the walk of
    a new version finds what that of the old one found, in the same order; then no result is searched.

    Return NO_SLOTS if a search needs `slots`, and there are none; no argument has been changed then.

    ids       int32[results * streams]
    signs     uint8[results], INSERTED or DELETED; members of pairs get UPDATED_FROM and UPDATED_TO
    slots     int32[power of two, at least 2 * results], all -1; or int32[0]
    partners  int32[results], memory
    order     int32[results], written: the results in their new order
    """
    n, m, pairs = order.shape[0], arena.streams.shape[0], np.int64(0)
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
            following, left, hashed = first, middle - first, False
            for r in range(middle, end):
                before = np.int64(-1)
                if partners[u64(following)] < 0 and replaces(arena, ids, r, following, m):
                    before = following
                elif middle - first <= FEW:
                    before = listed_partner(arena, ids, partners, m, r, first, middle)
                else:
                    if slots.shape[0] == 0:
                        return np.int64(NO_SLOTS)
                    if not hashed:
                        fill_slots(ids, slots, m, first, middle)
                        hashed = True
                    before = hashed_partner(arena, ids, slots, partners, r)
                if before >= 0:
                    partners[u64(r)], partners[u64(before)] = before, r
                    pairs += 1
                    left -= 1
                    if left == 0:
                        break
                    following = before + 1 if before + 1 < middle else first
            if hashed:
                clear_slots(ids, slots, m, first, middle)
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
    for r in range(n):
        if partners[u64(r)] >= 0:
            signs[u64(r)] = UPDATED_TO if partners[u64(r)] < r else UPDATED_FROM
    return pairs
