"""The results of one arrival in joins on one key: all combinations of its partners, or those that are in time.

The arrival and its newest partners are an *entry* of a list: its position in the block of arrivals, then the newest
tuple of each stream with the key, the arrival for its own stream, then the low mark of each stream. Later arrivals
change heads and low marks, but no entry and no link between older tuples. So all arrivals of a block are inserted
before the first of them probes.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    H_TARGET,
    M_SHORT,
    R_END,
    R_LEAF,
    S_MASK,
    S_RECS,
    SHORT_OUTPUT,
    V_MATCHES,
    V_PROBES,
)
from stairs.kernels.accelerate import inlined, step, u64
from stairs.kernels.combinations import MOST_RESULTS
from stairs.kernels.one_key_times import deadline_of, time_of
from stairs.kernels.presence import RECORD, half_of, is_several, settle
from stairs.memory.arena import Arena, Routes, Walk

NEWEST = 1
"""Where the newest tuples are in an entry; the low marks follow them."""
NONE, SOME, ALL = 0, 1, 2


@inlined
def key_of(arena: Arena, walk: Walk, i: int, at: int) -> int:
    """Return the key id of an entry of stream i."""
    slot = np.int64(walk.met[u64(at + NEWEST + i)]) & arena.streams[u64(i), S_MASK]
    return np.int64(arena.recs[u64(arena.streams[u64(i), S_RECS] + slot * RECORD + 1)])


@inlined
def combine_alone(arena: Arena, walk: Walk, at: int, sure: int, count_only: bool, out: int) -> int:
    """Do the work of `combine` for an entry with one partner of each stream, but for the counters (`count_alone`)."""
    ids, met, m, old = walk.ids, walk.met, arena.streams.shape[0], np.int64(0)
    for j in range(m):
        old |= np.int64(met[u64(at + NEWEST + j)] < walk.sure[u64(sure + j)])
    if old != 0:
        return np.int64(-1)
    if not count_only:
        if (out + 1) * m <= ids.shape[0]:
            for j in range(m):
                ids[u64(out * m + j)] = met[u64(at + NEWEST + j)]
        else:
            arena.meta[M_SHORT] |= SHORT_OUTPUT
    return out + 1


@step
def count_alone(routes: Routes, walk: Walk) -> None:
    """Count the results of `combine_alone`: each is a probe and a match in every hop of its route. O(hops)."""
    for i in range(walk.alone.shape[0]):
        count = walk.alone[u64(i)]
        if count != 0:
            walk.alone[u64(i)] = 0
            for h in range(routes.span[u64(i), R_LEAF], routes.span[u64(i), R_END]):
                routes.counts[V_PROBES, u64(h)] += count
                routes.counts[V_MATCHES, u64(h)] += count


@inlined
def combine(
    arena: Arena, routes: Routes, walk: Walk, i: int, at: int, sure: int, count_only: bool, tally: int, out: int
) -> int:
    """Write every combination of the live partners of an entry of stream i; return the results now, written or not.

    Return -1, with the counters as before, if the event times must be compared: a partner of some stream j is older
    than walk.sure[sure + j].

    The newest partners form a block of one result. For each hop, from the last to the first, the block is copied once
    per further partner, which replaces the partner in the copy. So partners are visited one by one and never listed.
    """
    streams, hops, recs, ids, met = arena.streams, routes.hops, arena.recs, walk.ids, walk.met
    m, half, entry, kid = streams.shape[0], half_of(arena), np.int64(0), np.int64(0)
    if half > 0:
        entry, kid = at // (NEWEST + 2 * m), key_of(arena, walk, i, at)
    made, size, origin, room = 1, 1.0, out * m, ids.shape[0]
    writing = not count_only and origin + m <= room
    if writing:
        for j in range(m):
            ids[u64(origin + j)] = met[u64(at + NEWEST + j)]
    leaf = routes.span[u64(i), R_LEAF]
    for h in range(routes.span[u64(i), R_END] - 1, leaf - 1, -1):
        j = hops[u64(h), H_TARGET]
        ring, mask, low = streams[u64(j), S_RECS], streams[u64(j), S_MASK], np.int64(met[u64(at + NEWEST + m + j)])
        block, end = made * m, origin + made * m
        oldest, partners, partner = np.int64(met[u64(at + NEWEST + j)]), 1, np.int64(-1)
        if half == 0 or is_several(walk, half, entry, j):
            partner = np.int64(recs[u64(ring + (oldest & mask) * RECORD)])
            if half > 0:
                settle(arena, kid, half, j, oldest, partner)
        while partner >= low:
            partners += 1
            writing = writing and end + block <= room
            if writing:
                for q in range(block):
                    ids[u64(end + q)] = ids[u64(origin + q)]
                place = end + j
                for _ in range(made):
                    ids[u64(place)] = partner
                    place += m
                end += block
            oldest = partner
            partner = np.int64(recs[u64(ring + (partner & mask) * RECORD)])
        walk.turn[u64(h - leaf)] = partners
        if oldest < walk.sure[u64(sure + j)]:
            for g in range(h + 1, routes.span[u64(i), R_END]):
                routes.counts[V_PROBES, u64(g)] -= tally
                routes.counts[V_MATCHES, u64(g)] -= tally * walk.turn[u64(g - leaf)]
            return -1
        size *= partners
        made = made * partners if size <= MOST_RESULTS else MOST_RESULTS
        routes.counts[V_PROBES, u64(h)] += tally
        routes.counts[V_MATCHES, u64(h)] += tally * partners
    if (not count_only and not writing) or size > MOST_RESULTS:
        arena.meta[M_SHORT] |= SHORT_OUTPUT
    return out + made


@step
def in_time(arena: Arena, routes: Routes, walk: Walk, i: int, at: int) -> int:
    """Return whether NONE, SOME or ALL combinations of the partners of an entry of stream i are in time.

    SOME may turn out to be none. Then `walk.turn` has the number of partners of each hop that are in time for the
    arrival.
    """
    streams, hops, recs, met = arena.streams, routes.hops, arena.recs, walk.met
    m = streams.shape[0]
    arrival_time = time_of(arena, i, np.int64(met[u64(at + NEWEST + i)]))
    greatest, deadline = arrival_time, deadline_of(arena, i, arrival_time)
    for h in range(routes.span[u64(i), R_LEAF], routes.span[u64(i), R_END]):
        j, timely = hops[u64(h), H_TARGET], np.int64(0)
        ring, mask, low = streams[u64(j), S_RECS], streams[u64(j), S_MASK], np.int64(met[u64(at + NEWEST + m + j)])
        partner = np.int64(met[u64(at + NEWEST + j)])
        while partner >= low:
            time = time_of(arena, j, partner)
            end = deadline_of(arena, j, time)
            greatest, deadline = max(greatest, time), min(deadline, end)
            timely += end >= arrival_time
            partner = np.int64(recs[u64(ring + (partner & mask) * RECORD)])
        if timely == 0:
            return NONE
        walk.turn[u64(h - routes.span[u64(i), R_LEAF])] = timely
    return ALL if greatest <= deadline else SOME


@step
def combine_in_time(
    arena: Arena, routes: Routes, walk: Walk, i: int, at: int, count_only: bool, tally: int, out: int
) -> int:
    """Write those combinations of the partners of an entry of stream i that are in time, as `combine` does.

    `walk.turn` has the partners of each hop.
    """
    streams, hops, recs, met, ids = arena.streams, routes.hops, arena.recs, walk.met, walk.ids
    m, chosen, following = streams.shape[0], walk.frames[0], walk.turn
    greatest, deadline = walk.levels[0], walk.levels[1]
    first, depth = routes.span[u64(i), R_LEAF], routes.span[u64(i), R_END] - routes.span[u64(i), R_LEAF]
    for h in range(first, first + depth):
        routes.counts[V_PROBES, u64(h)] += tally
        routes.counts[V_MATCHES, u64(h)] += tally * following[u64(h - first)]
    chosen[u64(i)] = met[u64(at + NEWEST + i)]
    greatest[0] = time_of(arena, i, np.int64(chosen[u64(i)]))
    deadline[0] = deadline_of(arena, i, greatest[0])
    following[0] = met[u64(at + NEWEST + hops[u64(first), H_TARGET])]
    level = np.int64(0)
    while level >= 0:
        j, partner = hops[u64(first + level), H_TARGET], following[u64(level)]
        if partner < met[u64(at + NEWEST + m + j)]:
            level -= 1
            continue
        following[u64(level)] = recs[u64(streams[u64(j), S_RECS] + (partner & streams[u64(j), S_MASK]) * RECORD)]
        time = time_of(arena, j, partner)
        youngest, end = max(greatest[u64(level)], time), min(deadline[u64(level)], deadline_of(arena, j, time))
        if youngest > end:
            continue
        chosen[u64(j)] = partner
        if level + 1 < depth:
            level += 1
            greatest[u64(level)], deadline[u64(level)] = youngest, end
            following[u64(level)] = met[u64(at + NEWEST + hops[u64(first + level), H_TARGET])]
            continue
        if not count_only:
            if (out + 1) * m <= ids.shape[0]:
                for k in range(m):
                    ids[u64(out * m + k)] = chosen[u64(k)]
            else:
                arena.meta[M_SHORT] |= SHORT_OUTPUT
        out += 1
    return out
