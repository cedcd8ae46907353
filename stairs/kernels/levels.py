"""Levels: the partial results of the events of a chunk, stream by stream and hop by hop.

A *level* contains the partial results of all events of one stream after one hop of its route. A hop looks up the heads
of all partial results in one pass and follows their chains in the next. So the look-ups of neighbouring partial results
do not wait for each other.

After the trunk hops, each leaf hop is looked up for all partial results of the last level. If there is only one leaf
hop, its matches make a level too. Else its matches become lists. A result is a combination of one element from each
list of a partial result (`stairs.kernels.combinations`).
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    A_CLASS,
    A_HITS,
    A_OFFSET,
    C_HEADS,
    C_STRIDE,
    ENDS,
    H_CLASS,
    H_COLUMN,
    H_COMPARE,
    H_LEAF0,
    H_LEAF1,
    H_OFFSET,
    H_OPS0,
    H_OPS1,
    H_TARGET,
    INSERTED,
    K_COUNT,
    K_FIRST,
    K_GONE,
    K_GONE_AT,
    K_LOW,
    K_START,
    K_STAY,
    L_AT,
    L_MATCHES,
    L_PROBES,
    L_SIZE,
    M_CHANGELOG,
    O_CHECK,
    Q_FIELDS,
    Q_HEAD,
    Q_PLACE,
    Q_TUPLE,
    R_END,
    R_LEAF,
    R_ROOT,
    R_TRUNK,
    S_ATTR0,
    S_ATTR1,
    S_LIFE,
    S_MASK,
    S_RECS,
    S_WIDTH,
    SCANS,
    V_KILLED,
    V_REST,
    V_TESTED,
)
from stairs.kernels.accelerate import inlined, step, u64
from stairs.kernels.chunk import has_arrived, has_left, has_twin, newest_seen
from stairs.kernels.marks import MARKED, row_of
from stairs.kernels.partials import add_partial, agrees, ancestor, bind_keys, close_level
from stairs.kernels.scan import scan
from stairs.memory.arena import Arena, Chunk, Routes, Walk

TRIAL, PAUSE = 1024, 64
"""Partial results after which looking a hop up ahead of its turn is judged; chunks for which it rests then."""
FEW = 8
"""One partial result in FEW has to end there."""


@inlined
def last_level(routes: Routes, i: int) -> int:
    """Return the last level of stream i. One leaf hop alone makes a level; several make lists."""
    leaf, end = routes.span[i, R_LEAF], routes.span[i, R_END]
    return (end if end - leaf == 1 else leaf) - routes.span[i, R_TRUNK]


@inlined
def is_weighed(routes: Routes, i: int, count_only: bool) -> bool:
    """Return whether each partial result of the last level of stream i has the number of those that it stands for.

    So it is if results are only counted, and the last hop scans: a scan need not write each match (Q_HEAD).
    """
    last = last_level(routes, i)
    end = routes.span[i, R_TRUNK] + last
    return count_only and last > 0 and end == routes.span[i, R_END] and routes.hops[u64(end - 1), H_OFFSET] == SCANS


@inlined
def was_probed(routes: Routes, i: int, h: int) -> bool:
    """Return whether hop h is the last leaf hop of the route and `keep_live` probed it last, for the last level."""
    trunk, leaf, end = routes.span[i, R_TRUNK], routes.span[i, R_LEAF], routes.span[i, R_END]
    if h < leaf or h + 1 < end:
        return False
    return leaf == trunk or routes.hops[u64(leaf - 1), H_LEAF0] < routes.hops[u64(leaf - 1), H_LEAF1]


@inlined
def write_heads(arena: Arena, routes: Routes, chunk: Chunk, i: int, level: int, h: int) -> None:
    """Write, for each partial result of a level, the newest tuple that hop h finds for its key."""
    recs, heads, partials, levels = arena.recs, arena.heads, chunk.partials, chunk.levels
    c = u64(routes.hops[u64(h), H_CLASS])
    column, stride = arena.classes[c, C_HEADS] + routes.hops[u64(h), H_COLUMN], arena.classes[c, C_STRIDE]
    above, j, offset = chunk.sources[c, 0], u64(chunk.sources[c, 1]), chunk.sources[c, 2]
    ring, mask, width = arena.streams[j, S_RECS] + offset + 1, arena.streams[j, S_MASK], arena.streams[j, S_WIDTH]
    at, size = levels[i, u64(level), L_AT], levels[i, u64(level), L_SIZE]
    if above == level:
        for p in range(at, at + size * Q_FIELDS, Q_FIELDS):
            kid = np.int64(recs[u64(ring + (np.int64(partials[u64(p + Q_TUPLE)]) & mask) * width)])
            partials[u64(p + Q_HEAD)] = heads[u64(column + kid * stride)]
    elif above == 0:
        for p in range(at, at + size * Q_FIELDS, Q_FIELDS):
            s = np.int64(chunk.tuples[u64(partials[u64(p + Q_PLACE)])])
            kid = np.int64(recs[u64(ring + (s & mask) * width)])
            partials[u64(p + Q_HEAD)] = heads[u64(column + kid * stride)]
    else:
        for q in range(size):
            kid = np.int64(recs[u64(ring + (ancestor(chunk, i, q, level, above) & mask) * width)])
            partials[u64(at + q * Q_FIELDS + Q_HEAD)] = heads[u64(column + kid * stride)]


@inlined
def keep_live(arena: Arena, routes: Routes, chunk: Chunk, i: int, level: int, first: int, last: int) -> None:
    """Keep the partial results of a level for which each leaf hop first .. last - 1 finds a tuple that is seen.

    The tuple that the level added has the keys of these hops. Trunk hops whose keys it has are looked up as well, ahead
    of their turn, unless few partial results end there (`judge_ahead`).
    """
    partials, levels, hops, attrs = chunk.partials, chunk.levels, routes.hops, arena.attrs
    at, trunk, leaf = levels[i, u64(level), L_AT], routes.span[i, R_TRUNK], routes.span[i, R_LEAF]
    for h in range(min(trunk + level + 1, leaf), max(leaf, last)):
        x = u64(row_of(arena, hops[u64(h), H_TARGET], hops[u64(h), H_CLASS]))
        if h < leaf:
            if routes.counts[V_REST, u64(h)] > 0 or hops[u64(h), H_OFFSET] == SCANS:
                continue
            if chunk.sources[u64(hops[u64(h), H_CLASS]), 0] != level:
                continue
            routes.counts[V_TESTED, u64(h)] += levels[i, u64(level), L_SIZE]
        elif h < first or h >= last:
            continue
        write_heads(arena, routes, chunk, i, level, h)
        j, offset = hops[u64(h), H_TARGET], hops[u64(h), H_OFFSET]
        events = chunk.streams[u64(j)]
        newer, low, stay, hits = events[K_FIRST], events[K_LOW], events[K_STAY], np.int64(0)
        kept = at
        for p in range(at, at + levels[i, u64(level), L_SIZE] * Q_FIELDS, Q_FIELDS):
            s = np.int64(partials[u64(p + Q_HEAD)])
            live = s >= low
            hits += s <= MARKED
            if s >= newer or (live and s < stay):
                live = newest_seen(arena, chunk, j, offset, s, np.int64(partials[u64(p + Q_PLACE)])) >= 0
            parent, tuple_, place = partials[u64(p)], partials[u64(p + Q_TUPLE)], partials[u64(p + Q_PLACE)]
            partials[u64(kept)], partials[u64(kept + Q_TUPLE)], partials[u64(kept + Q_PLACE)] = parent, tuple_, place
            partials[u64(kept + Q_HEAD)] = s
            kept += Q_FIELDS if live else 0
        routes.counts[V_KILLED, u64(h)] += levels[i, u64(level), L_SIZE] - (kept - at) // Q_FIELDS
        levels[i, u64(level), L_SIZE] = (kept - at) // Q_FIELDS
        attrs[x, A_HITS] += hits


@inlined
def judge_ahead(routes: Routes, i: int) -> None:
    """Decide after a chunk which trunk hops of stream i are looked up ahead of their turn in the next one."""
    for k in range(routes.span[i, R_TRUNK], routes.span[i, R_LEAF]):
        counts, h = routes.counts, u64(k)
        if counts[V_REST, h] > 0:
            counts[V_REST, h] -= 1
        elif counts[V_TESTED, h] > TRIAL:
            counts[V_REST, h] = PAUSE if FEW * counts[V_KILLED, h] < counts[V_TESTED, h] else 0
            counts[V_TESTED, h] = 0
            counts[V_KILLED, h] = 0


@inlined
def begin_level(arena: Arena, chunk: Chunk, i: int, at: int, last: int) -> int:
    """Start level 0 of stream i with its events at places before `last`; return its end, or -1 without room."""
    streams, events, partials = arena.streams, chunk.streams[i], chunk.partials
    ring, mask, width = streams[i, S_RECS] + 1, streams[i, S_MASK], streams[i, S_WIDTH]
    chunk.levels[i, 0, L_AT] = at
    if at + (events[K_COUNT] + events[K_GONE]) * Q_FIELDS > partials.shape[0]:
        return np.int64(-1)
    end = at
    # What leaves a window takes nothing with it where only the ends of versions delete results.
    probing = events[K_COUNT] + (events[K_GONE] if streams[i, S_LIFE] > 0 or arena.meta[M_CHANGELOG] != ENDS else 0)
    for r in range(probing):
        if r < events[K_COUNT]:
            s, place = events[K_FIRST] + r, np.int64(chunk.places[u64(events[K_START] + r)])
        else:
            place = np.int64(chunk.departures[u64(events[K_GONE_AT] + r - events[K_COUNT])])
            s = np.int64(chunk.tuples[u64(place)])
        if place < last and not has_twin(chunk, place, last) and arena.recs[u64(ring + (s & mask) * width)] >= 0:
            end = add_partial(partials, end, -1, s, place)
    chunk.levels[i, 0, L_SIZE] = (end - at) // Q_FIELDS
    for k in range(chunk.sources.shape[0]):
        chunk.sources[u64(k), 0] = -1
    for x in range(streams[i, S_ATTR0], streams[i, S_ATTR1]):
        c = u64(arena.attrs[u64(x), A_CLASS])
        chunk.sources[c, 0], chunk.sources[c, 1], chunk.sources[c, 2] = 0, i, arena.attrs[u64(x), A_OFFSET]
    return end


@inlined
def count_walked(chunk: Chunk, i: int) -> int:
    """Return the number of arrivals in level 0 of stream i."""
    at, arrivals = chunk.levels[i, 0, L_AT] + Q_PLACE, np.int64(0)
    for p in range(at, at + chunk.levels[i, 0, L_SIZE] * Q_FIELDS, Q_FIELDS):
        arrivals += chunk.signs[u64(chunk.partials[u64(p)])] == INSERTED
    return arrivals


@inlined
def extend(arena: Arena, routes: Routes, chunk: Chunk, walk: Walk, i: int, level: int, h: int, at: int) -> int:
    """Start level + 1 of stream i: each partial result with each match of hop h; return its end, -1 without room."""
    streams, recs, partials, levels, hops = arena.streams, arena.recs, chunk.partials, chunk.levels, routes.hops
    if not was_probed(routes, i, h):
        write_heads(arena, routes, chunk, i, level, h)
    j = u64(hops[u64(h), H_TARGET])
    ring, mask, width, offset = streams[j, S_RECS], streams[j, S_MASK], streams[j, S_WIDTH], hops[u64(h), H_OFFSET]
    events = chunk.streams[j]
    newer, low, stay = events[K_FIRST], events[K_LOW], events[K_STAY]
    checked, hits = hops[u64(h), H_COMPARE] >= 0, np.int64(0)
    for o in range(hops[u64(h), H_OPS0], hops[u64(h), H_OPS1]):
        checked |= routes.ops[u64(o), O_CHECK] != 0
    above, size = levels[i, u64(level), L_AT], levels[i, u64(level), L_SIZE]
    end, last = at, np.int64(partials.shape[0]) - Q_FIELDS
    for q in range(size):
        p = above + q * Q_FIELDS
        s, place = np.int64(partials[u64(p + Q_HEAD)]), np.int64(partials[u64(p + Q_PLACE)])
        hits += s <= MARKED
        if checked and s >= low:
            bind_keys(arena, routes, chunk, walk, i, level, q, h)
        while s >= low:
            record = ring + (s & mask) * width
            seen = s < newer or has_arrived(chunk, np.int64(j), s, place)
            if s < stay and has_left(arena, chunk, np.int64(j), s, place):
                if streams[j, S_LIFE] == 0:
                    break
                seen = False
            if seen and (not checked or agrees(arena, routes, walk, h, record, s)):
                if end > last:
                    return np.int64(-1)
                end = add_partial(partials, end, q, s, place)
            s = np.int64(recs[u64(record + offset)])
    x = u64(row_of(arena, np.int64(j), hops[u64(h), H_CLASS]))
    arena.attrs[x, A_HITS] += hits
    close_level(routes, chunk, i, level + 1, h, at, end)
    return end


@inlined
def list_matches(
    arena: Arena, routes: Routes, chunk: Chunk, i: int, level: int, h: int, k: int, at: int, count_only: bool
) -> int:
    """Write the lists of leaf hop h for the partial results of the last level as level k; return their end.

    Without room, return -1. A leaf hop whose key the arrival has is probed once for each arrival (`R_ROOT`). Lists that
    are only counted begin at 0.
    """
    streams, recs, partials, levels, hops = arena.streams, arena.recs, chunk.partials, chunk.levels, routes.hops
    if not was_probed(routes, i, h):
        write_heads(arena, routes, chunk, i, level, h)
    j = u64(hops[u64(h), H_TARGET])
    ring, mask, width = streams[j, S_RECS], streams[j, S_MASK], streams[j, S_WIDTH]
    offset, shared = hops[u64(h), H_OFFSET], h < routes.span[i, R_ROOT]
    events = chunk.streams[j]
    newer, low, stay = events[K_FIRST], events[K_LOW], events[K_STAY]
    p, size = levels[i, u64(level), L_AT], levels[i, u64(level), L_SIZE]
    end, room = at + 2 * size, np.int64(partials.shape[0])
    if end > room:
        return np.int64(-1)
    levels[i, u64(k), L_AT] = at
    before, probes, matches = np.int64(-1), np.int64(0), np.int64(0)
    for span in range(at, at + 2 * size, 2):
        place = np.int64(partials[u64(p + Q_PLACE)])
        if shared and place == before:
            partials[u64(span)] = partials[u64(span - 2)]
            partials[u64(span + 1)] = partials[u64(span - 1)]
        else:
            s, length = np.int64(partials[u64(p + Q_HEAD)]), np.int64(0)
            while s >= low:
                seen = s < newer or has_arrived(chunk, np.int64(j), s, place)
                if s < stay and has_left(arena, chunk, np.int64(j), s, place):
                    if streams[j, S_LIFE] == 0:
                        break
                    seen = False
                if seen:
                    if not count_only:
                        if end + length >= room:
                            return np.int64(-1)
                        partials[u64(end + length)] = s
                    length += 1
                s = np.int64(recs[u64(ring + (s & mask) * width + offset)])
            if count_only:
                partials[u64(span)] = 0
                partials[u64(span + 1)] = length
            else:
                partials[u64(span)] = end
                partials[u64(span + 1)] = end + length
                end += length
            probes += 1
            matches += length
        before = place
        p += Q_FIELDS
    levels[i, u64(k), L_PROBES] = probes
    levels[i, u64(k), L_MATCHES] = matches
    return end


@step
def probe_stream(
    arena: Arena, routes: Routes, chunk: Chunk, walk: Walk, i: int, at: int, last: int, count_only: bool
) -> int:
    """Find the partial results and lists of the events of stream i at places before `last`.

    Write them to `chunk.partials` from `at` on; return their end, -1 if they lack room, or NO_BAND.

    count_only   the elements of the lists are only counted
    """
    trunk, last_one = routes.span[i, R_TRUNK], last_level(routes, i)
    at = begin_level(arena, chunk, u64(i), at, last)
    # The steps are inlined: each of them stands here once.
    for level in range(last_one + 1):
        leaf0, leaf1 = routes.span[i, R_LEAF], routes.span[i, R_ROOT]
        if level > 0:
            h = trunk + level - 1
            leaf0, leaf1 = routes.hops[u64(h), H_LEAF0], routes.hops[u64(h), H_LEAF1]
            if routes.hops[u64(h), H_OFFSET] == SCANS:
                weighed = level == last_one and is_weighed(routes, i, count_only)
                at = scan(arena, routes, chunk, walk, u64(i), level - 1, h, at, weighed)
            else:
                at = extend(arena, routes, chunk, walk, u64(i), level - 1, h, at)
        if at < 0:
            return at
        keep_live(arena, routes, chunk, u64(i), level, leaf0, leaf1)
        if level == 0:
            chunk.levels[i, 0, L_MATCHES] = count_walked(chunk, u64(i))
        at = chunk.levels[i, u64(level), L_AT] + chunk.levels[i, u64(level), L_SIZE] * Q_FIELDS
    for h in range(routes.span[i, R_END] - 1, trunk + last_one - 1, -1):
        at = list_matches(arena, routes, chunk, u64(i), last_one, h, h - trunk + 1, at, count_only)
        if at < 0:
            return at
    return at
