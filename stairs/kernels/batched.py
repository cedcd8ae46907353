"""Batched probing: the arrivals of a chunk walk their routes together, stream by stream and hop by hop.

A *level* contains the partial results of all arrivals of one stream after one hop of its route. A hop looks up the
heads of all partial results in one pass and follows their chains in the next. So the look-ups of neighbouring partial
results do not wait for each other. After the trunk hops, each leaf hop is looked up for all partial results of the
last level, and its matches become lists. A result is a combination of one element from each list of a partial result.

All results of the chunk are counted before the first is written. The counts say where the results of each arrival go:
results are in the order of arrivals. If the room for partial results is too small, fewer arrivals walk at once.

`stairs.kernels.walk` is the same walk depth first, for one tuple. Source of the idea: batches of tuples in place of
tuples hide cache misses, as in Chen, Ailamaki, Gibbons, Mowry, "Improving hash join performance through prefetching",
ICDE 2004 (group prefetching).
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    A_CLASS,
    A_OFFSET,
    C_HEADS,
    C_STRIDE,
    DONE,
    H_CLASS,
    H_COLUMN,
    H_LEAF0,
    H_LEAF1,
    H_MATCHES,
    H_OFFSET,
    H_OPS0,
    H_OPS1,
    H_PROBES,
    H_TARGET,
    K_COUNT,
    K_FIRST,
    K_LOW,
    K_START,
    K_STAY,
    L_AT,
    L_MATCHES,
    L_PROBES,
    L_SIZE,
    LOADING,
    M_ARRIVAL,
    M_INSERTED,
    M_MODE,
    M_NEED,
    M_OUT,
    M_STOP,
    M_TIMED,
    M_WATERMARK,
    NEED_OUTPUT,
    NEED_PARTIALS,
    O_CHECK,
    O_CLASS,
    O_OFFSET,
    Q_FIELDS,
    Q_HEAD,
    Q_PARENT,
    Q_PLACE,
    Q_TUPLE,
    R_END,
    R_LEAF,
    R_ROOT,
    R_TRUNK,
    S_ATTR0,
    S_ATTR1,
    S_KIND,
    S_LO,
    S_MASK,
    S_RECS,
    S_SIZE,
    S_TIMES,
    S_WALKED,
    S_WIDTH,
)
from stairs.graph import FOREVER
from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.chunk import cut, find_stay, has_left, insert_chunk, lay_out, newest_seen
from stairs.kernels.walk import MOST_RESULTS, RANGE, ROWS, expire_range
from stairs.memory.arena import Arena, Batch, Chunk, Routes, Walk

MUCH = 1 << 18
"""int32s of partial results that a core's own cache holds. If they do not suffice, fewer arrivals walk at once."""


@inlined
def last_level(routes: Routes, i: int) -> int:
    """Return the last level of stream i. One leaf hop alone makes a level; several make lists."""
    leaf, end = routes.span[i, R_LEAF], routes.span[i, R_END]
    return (end if end - leaf == 1 else leaf) - routes.span[i, R_TRUNK]


@inlined
def was_probed(routes: Routes, i: int, h: int) -> bool:
    """Return whether hop h is the last leaf hop of the route and `keep_live` probed it last, for the last level."""
    trunk, leaf, end = routes.span[i, R_TRUNK], routes.span[i, R_LEAF], routes.span[i, R_END]
    if h < leaf or h + 1 < end:
        return False
    return leaf == trunk or routes.hops[u64(leaf - 1), H_LEAF0] < routes.hops[u64(leaf - 1), H_LEAF1]


@inlined
def ancestor(chunk: Chunk, i: int, q: int, level: int, above: int) -> int:
    """Return the tuple that partial result q of a level has at the level `above` it."""
    while level > above:
        q = np.int64(chunk.partials[u64(chunk.levels[i, u64(level), L_AT] + q * Q_FIELDS + Q_PARENT)])
        level -= 1
    return np.int64(chunk.partials[u64(chunk.levels[i, u64(level), L_AT] + q * Q_FIELDS + Q_TUPLE)])


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

    The tuple that the level added has the keys of these hops.
    """
    partials, levels, hops = chunk.partials, chunk.levels, routes.hops
    at = levels[i, u64(level), L_AT]
    for h in range(first, last):
        write_heads(arena, routes, chunk, i, level, h)
        j, offset = hops[u64(h), H_TARGET], hops[u64(h), H_OFFSET]
        own = chunk.streams[u64(j)]
        newer, low, stay = own[K_FIRST], own[K_LOW], own[K_STAY]
        kept = at
        for p in range(at, at + levels[i, u64(level), L_SIZE] * Q_FIELDS, Q_FIELDS):
            s = np.int64(partials[u64(p + Q_HEAD)])
            live = s >= low
            if s >= newer or (live and s < stay):
                live = newest_seen(arena, chunk, j, offset, s, np.int64(partials[u64(p + Q_PLACE)])) >= 0
            parent, tuple_, place = partials[u64(p)], partials[u64(p + Q_TUPLE)], partials[u64(p + Q_PLACE)]
            partials[u64(kept)], partials[u64(kept + Q_TUPLE)], partials[u64(kept + Q_PLACE)] = parent, tuple_, place
            partials[u64(kept + Q_HEAD)] = s
            kept += Q_FIELDS if live else 0
        levels[i, u64(level), L_SIZE] = (kept - at) // Q_FIELDS


@inlined
def begin_level(arena: Arena, chunk: Chunk, i: int, at: int, first: int, last: int) -> int:
    """Start level 0 of stream i with its arrivals at places first .. last - 1; return its end, or -1 without room."""
    streams, own, partials = arena.streams, chunk.streams[i], chunk.partials
    ring, mask, width = streams[i, S_RECS] + 1, streams[i, S_MASK], streams[i, S_WIDTH]
    chunk.levels[i, 0, L_AT] = at
    if at + own[K_COUNT] * Q_FIELDS > partials.shape[0]:
        return np.int64(-1)
    end = at
    for r in range(own[K_COUNT]):
        place = np.int64(chunk.places[u64(own[K_START] + r)])
        s = own[K_FIRST] + r
        if first <= place < last and arena.recs[u64(ring + (s & mask) * width)] >= 0:
            partials[u64(end + Q_PARENT)] = -1
            partials[u64(end + Q_TUPLE)] = s
            partials[u64(end + Q_PLACE)] = place
            end += Q_FIELDS
    chunk.levels[i, 0, L_SIZE] = (end - at) // Q_FIELDS
    for x in range(streams[i, S_ATTR0], streams[i, S_ATTR1]):
        c = u64(arena.attrs[u64(x), A_CLASS])
        chunk.sources[c, 0], chunk.sources[c, 1], chunk.sources[c, 2] = 0, i, arena.attrs[u64(x), A_OFFSET]
    return end


@inlined
def bind_keys(arena: Arena, routes: Routes, chunk: Chunk, walk: Walk, i: int, level: int, q: int, h: int) -> None:
    """Write the key ids of partial result q with which hop h compares those of its candidates."""
    ops = routes.ops
    for o in range(routes.hops[u64(h), H_OPS0], routes.hops[u64(h), H_OPS1]):
        if ops[u64(o), O_CHECK] != 0:
            c = u64(ops[u64(o), O_CLASS])
            row = arena.streams[u64(chunk.sources[c, 1])]
            s = ancestor(chunk, i, q, level, chunk.sources[c, 0])
            at = row[S_RECS] + (s & row[S_MASK]) * row[S_WIDTH] + chunk.sources[c, 2] + 1
            walk.kids[c] = arena.recs[u64(at)]


@inlined
def agrees(arena: Arena, routes: Routes, walk: Walk, h: int, record: int) -> bool:
    """Return whether the keys of the candidate whose record starts at `record` are those that `bind_keys` wrote."""
    ops, same = routes.ops, True
    for o in range(routes.hops[u64(h), H_OPS0], routes.hops[u64(h), H_OPS1]):
        if ops[u64(o), O_CHECK] != 0:
            same &= walk.kids[u64(ops[u64(o), O_CLASS])] == arena.recs[u64(record + ops[u64(o), O_OFFSET] + 1)]
    return same


@inlined
def extend(arena: Arena, routes: Routes, chunk: Chunk, walk: Walk, i: int, level: int, h: int, at: int) -> int:
    """Start level + 1 of stream i: each partial result with each match of hop h; return its end, -1 without room.

    The leaf hops whose keys the matches bind are probed as well.
    """
    streams, recs, partials, levels, hops = arena.streams, arena.recs, chunk.partials, chunk.levels, routes.hops
    if not was_probed(routes, i, h):
        write_heads(arena, routes, chunk, i, level, h)
    j = u64(hops[u64(h), H_TARGET])
    ring, mask, width, offset = streams[j, S_RECS], streams[j, S_MASK], streams[j, S_WIDTH], hops[u64(h), H_OFFSET]
    own = chunk.streams[j]
    newer, low, stay, start = own[K_FIRST], own[K_LOW], own[K_STAY], own[K_START] - own[K_FIRST]
    checked = False
    for o in range(hops[u64(h), H_OPS0], hops[u64(h), H_OPS1]):
        checked |= routes.ops[u64(o), O_CHECK] != 0
    above, size = levels[i, u64(level), L_AT], levels[i, u64(level), L_SIZE]
    end, last = at, np.int64(partials.shape[0]) - Q_FIELDS
    for q in range(size):
        p = above + q * Q_FIELDS
        s, place = np.int64(partials[u64(p + Q_HEAD)]), np.int64(partials[u64(p + Q_PLACE)])
        if checked and s >= low:
            bind_keys(arena, routes, chunk, walk, i, level, q, h)
        while s >= low:
            record = ring + (s & mask) * width
            seen = s < newer or chunk.places[u64(start + s)] < place
            if s < stay and has_left(arena, chunk, np.int64(j), s, place):
                break
            if seen and (not checked or agrees(arena, routes, walk, h, record)):
                if end > last:
                    return np.int64(-1)
                partials[u64(end + Q_PARENT)] = q
                partials[u64(end + Q_TUPLE)] = s
                partials[u64(end + Q_PLACE)] = place
                end += Q_FIELDS
            s = np.int64(recs[u64(record + offset)])
    level += 1
    levels[i, u64(level), L_AT] = at
    levels[i, u64(level), L_PROBES] = size
    levels[i, u64(level), L_MATCHES] = levels[i, u64(level), L_SIZE] = (end - at) // Q_FIELDS
    for o in range(hops[u64(h), H_OPS0], hops[u64(h), H_OPS1]):
        if routes.ops[u64(o), O_CHECK] == 0:
            c = u64(routes.ops[u64(o), O_CLASS])
            chunk.sources[c, 0], chunk.sources[c, 1] = level, np.int64(j)
            chunk.sources[c, 2] = routes.ops[u64(o), O_OFFSET]
    if hops[u64(h), H_LEAF0] < hops[u64(h), H_LEAF1]:
        keep_live(arena, routes, chunk, i, level, hops[u64(h), H_LEAF0], hops[u64(h), H_LEAF1])
    return at + levels[i, u64(level), L_SIZE] * Q_FIELDS


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
    own = chunk.streams[j]
    newer, low, stay, start = own[K_FIRST], own[K_LOW], own[K_STAY], own[K_START] - own[K_FIRST]
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
            s, found = np.int64(partials[u64(p + Q_HEAD)]), np.int64(0)
            while s >= low:
                seen = s < newer or chunk.places[u64(start + s)] < place
                if s < stay and has_left(arena, chunk, np.int64(j), s, place):
                    break
                if seen:
                    if not count_only:
                        if end + found >= room:
                            return np.int64(-1)
                        partials[u64(end + found)] = s
                    found += 1
                s = np.int64(recs[u64(ring + (s & mask) * width + offset)])
            if count_only:
                partials[u64(span)] = 0
                partials[u64(span + 1)] = found
            else:
                partials[u64(span)] = end
                partials[u64(span + 1)] = end + found
                end += found
            probes += 1
            matches += found
        before = place
        p += Q_FIELDS
    levels[i, u64(k), L_PROBES] = probes
    levels[i, u64(k), L_MATCHES] = matches
    return end


@jit
def probe_stream(
    arena: Arena, routes: Routes, chunk: Chunk, walk: Walk, i: int, at: int, first: int, last: int, count_only: bool
) -> int:
    """Find the partial results and lists of the arrivals of stream i at places first .. last - 1.

    Write them to `chunk.partials` from `at` on; return their end, or -1 if they lack room.

    count_only   the elements of the lists are only counted
    """
    trunk, leaf, last_one = routes.span[i, R_TRUNK], routes.span[i, R_LEAF], last_level(routes, i)
    at = begin_level(arena, chunk, u64(i), at, first, last)
    if at < 0:
        return at
    keep_live(arena, routes, chunk, u64(i), 0, leaf, routes.span[i, R_ROOT])
    chunk.levels[i, 0, L_MATCHES] = chunk.levels[i, 0, L_SIZE]
    at = chunk.levels[i, 0, L_AT] + chunk.levels[i, 0, L_SIZE] * Q_FIELDS
    for level in range(last_one):
        at = extend(arena, routes, chunk, walk, u64(i), level, trunk + level, at)
        if at < 0:
            return at
    for h in range(routes.span[i, R_END] - 1, trunk + last_one - 1, -1):
        at = list_matches(arena, routes, chunk, u64(i), last_one, h, h - trunk + 1, at, count_only)
        if at < 0:
            return at
    return at


@inlined
def first_in_time(
    arena: Arena, routes: Routes, chunk: Chunk, walk: Walk, i: int, q: int, turn: np.ndarray, again: bool
) -> bool:
    """Set `turn` to the next combination of the lists of partial result q whose components are all in time.

    again   False begins with the first combination; True goes on after the one in `turn`. Return False if none is left.
    """
    hops, streams, partials, levels = routes.hops, arena.streams, chunk.partials, chunk.levels
    trunk, end = routes.span[i, R_TRUNK], routes.span[i, R_END]
    leaf = trunk + last_level(routes, i)
    if not again:
        for h in range(leaf, end):
            span = levels[i, u64(h - trunk + 1), L_AT] + 2 * q
            turn[u64(h - leaf)] = partials[u64(span)]
            if partials[u64(span)] == partials[u64(span + 1)]:
                return False
    while True:
        if again:
            h = end - 1
            while h >= leaf:
                span = levels[i, u64(h - trunk + 1), L_AT] + 2 * q
                turn[u64(h - leaf)] += 1
                if turn[u64(h - leaf)] < partials[u64(span + 1)]:
                    break
                turn[u64(h - leaf)] = partials[u64(span)]
                h -= 1
            if h < leaf:
                return False
        again = True
        greatest, deadline = np.int64(-2 * FOREVER), np.int64(2 * FOREVER)
        for h in range(trunk - 1, end):
            j = i if h < trunk else u64(hops[u64(h), H_TARGET])
            s = walk.current[j] if h < leaf else np.int64(partials[u64(turn[u64(h - leaf)])])
            t = arena.times[u64(streams[j, S_TIMES] + (s & streams[j, S_MASK]))]
            greatest = max(greatest, t)
            if streams[j, S_KIND] == RANGE:
                deadline = min(deadline, t + streams[j, S_SIZE])
        if greatest <= deadline:
            return True


@inlined
def bind_components(routes: Routes, chunk: Chunk, walk: Walk, i: int, q: int) -> None:
    """Write the components of partial result q of the last level to `walk.current`."""
    trunk, levels = routes.span[i, R_TRUNK], chunk.levels
    for level in range(last_level(routes, i), 0, -1):
        p = levels[i, u64(level), L_AT] + q * Q_FIELDS
        walk.current[u64(routes.hops[u64(trunk + level - 1), H_TARGET])] = chunk.partials[u64(p + Q_TUPLE)]
        q = np.int64(chunk.partials[u64(p + Q_PARENT)])
    walk.current[i] = chunk.partials[u64(levels[i, 0, L_AT] + q * Q_FIELDS + Q_TUPLE)]


@jit
def count_results(arena: Arena, routes: Routes, chunk: Chunk, walk: Walk, i: int, strict: bool) -> int:
    """Add the results of the arrivals of stream i to `chunk.counts`; return their number, at most MOST_RESULTS."""
    trunk, last, end = routes.span[i, R_TRUNK], last_level(routes, i), routes.span[i, R_END]
    partials, levels, turn = chunk.partials, chunk.levels, walk.levels[2]
    p, found = levels[i, u64(last), L_AT] + Q_PLACE, np.int64(0)
    for q in range(levels[i, u64(last), L_SIZE]):
        total = np.int64(1)
        if strict:
            bind_components(routes, chunk, walk, u64(i), q)
            total = np.int64(0)
            while first_in_time(arena, routes, chunk, walk, u64(i), q, turn, total > 0):
                total += 1
        else:
            # The float cannot wrap around.
            size = 1.0
            for k in range(last + 1, end - trunk + 1):
                span = levels[i, u64(k), L_AT] + 2 * q
                n = np.int64(partials[u64(span + 1)]) - np.int64(partials[u64(span)])
                size *= n
                total = total * n if size <= MOST_RESULTS else MOST_RESULTS
        found = min(found + total, MOST_RESULTS)
        chunk.counts[u64(partials[u64(p)])] += total
        p += Q_FIELDS
    return found


@jit
def write_in_time(arena: Arena, routes: Routes, chunk: Chunk, walk: Walk, i: int) -> None:
    """Do the work of `write_results`, but only for combinations whose components are all in time."""
    hops, partials, levels, ids = routes.hops, chunk.partials, chunk.levels, walk.ids
    last, end = last_level(routes, i), routes.span[i, R_END]
    lists = routes.span[i, R_TRUNK] + last
    m, turn = walk.current.shape[0], walk.levels[2]
    p = levels[i, u64(last), L_AT] + Q_PLACE
    for q in range(levels[i, u64(last), L_SIZE]):
        place = u64(partials[u64(p)])
        bind_components(routes, chunk, walk, u64(i), q)
        more = first_in_time(arena, routes, chunk, walk, u64(i), q, turn, False)
        while more:
            origin = chunk.counts[place] * m
            for j in range(m):
                ids[u64(origin + j)] = walk.current[u64(j)]
            for h in range(lists, end):
                ids[u64(origin + hops[u64(h), H_TARGET])] = partials[u64(turn[u64(h - lists)])]
            chunk.counts[place] += 1
            more = first_in_time(arena, routes, chunk, walk, u64(i), q, turn, True)
        p += Q_FIELDS


@inlined
def origin_of(partials: np.ndarray, p: int) -> int:
    """Return where in `walk.ids` the first result of the partial result at p is, after `write_components`."""
    return np.int64(partials[u64(p + Q_PLACE)]) << 31 | np.int64(partials[u64(p + Q_TUPLE)])


@inlined
def write_components(routes: Routes, chunk: Chunk, walk: Walk, i: int) -> None:
    """Write the first result of each partial result of the last level, without the components from lists.

    Level after level: in short loops, the look-ups of neighbours do not wait for each other. The partial results of the
    last level are overwritten: by the place of the first result, and by their ancestor at the present level.
    """
    partials, levels, ids, m = chunk.partials, chunk.levels, walk.ids, walk.current.shape[0]
    trunk, last, end = routes.span[i, R_TRUNK], last_level(routes, i), routes.span[i, R_END]
    at, size = levels[i, u64(last), L_AT], levels[i, u64(last), L_SIZE]
    target = i if last == 0 else routes.hops[u64(trunk + last - 1), H_TARGET]
    for q in range(size):
        p, results = at + q * Q_FIELDS, np.int64(1)
        for k in range(last + 1, end - trunk + 1):
            span = levels[i, u64(k), L_AT] + 2 * q
            results *= np.int64(partials[u64(span + 1)]) - np.int64(partials[u64(span)])
        place = u64(partials[u64(p + Q_PLACE)])
        origin = chunk.counts[place] * m
        chunk.counts[place] += results
        ids[u64(origin + target)] = partials[u64(p + Q_TUPLE)]
        partials[u64(p + Q_TUPLE)] = origin & ((np.int64(1) << 31) - 1)
        partials[u64(p + Q_PLACE)] = origin >> 31
    for level in range(last - 1, -1, -1):
        above = levels[i, u64(level), L_AT]
        target = i if level == 0 else routes.hops[u64(trunk + level - 1), H_TARGET]
        for p in range(at, at + size * Q_FIELDS, Q_FIELDS):
            parent = above + np.int64(partials[u64(p + Q_PARENT)]) * Q_FIELDS
            ids[u64(origin_of(partials, p) + target)] = partials[u64(parent + Q_TUPLE)]
            partials[u64(p + Q_PARENT)] = partials[u64(parent + Q_PARENT)]


@jit
def write_results(routes: Routes, chunk: Chunk, walk: Walk, i: int) -> None:
    """Write the results of the arrivals of stream i to `walk.ids`, those of each arrival from its count on.

    The first combination of the lists of a partial result forms a block. For each list, the block is copied once per
    further element of the list, which replaces the first element in the copy. So lists of one element cost nothing.
    """
    write_components(routes, chunk, walk, i)
    hops, partials, levels, ids, m = routes.hops, chunk.partials, chunk.levels, walk.ids, walk.current.shape[0]
    trunk, last, end = routes.span[i, R_TRUNK], last_level(routes, i), routes.span[i, R_END]
    if trunk + last == end:
        return
    for q in range(levels[i, u64(last), L_SIZE]):
        origin, block = origin_of(partials, levels[i, u64(last), L_AT] + q * Q_FIELDS), m
        for h in range(end - 1, trunk + last - 1, -1):
            span = levels[i, u64(h - trunk + 1), L_AT] + 2 * q
            at, target = origin + block, np.int64(hops[u64(h), H_TARGET])
            first = np.int64(partials[u64(span)])
            for b in range(origin + target, at, m):
                ids[u64(b)] = partials[u64(first)]
            for e in range(first + 1, np.int64(partials[u64(span + 1)])):
                for b in range(block):
                    ids[u64(at + b)] = ids[u64(origin + b)]
                for b in range(at + target, at + block, m):
                    ids[u64(b)] = partials[u64(e)]
                at += block
            block = at - origin


@inlined
def tally(arena: Arena, routes: Routes, chunk: Chunk) -> None:
    """Add what the levels of all streams found to the counters of their hops."""
    for i in range(arena.streams.shape[0]):
        if chunk.streams[i, K_COUNT] > 0:
            arena.streams[i, S_WALKED] += chunk.levels[i, 0, L_MATCHES]
            trunk = routes.span[i, R_TRUNK]
            for h in range(trunk, routes.span[i, R_END]):
                routes.hops[u64(h), H_PROBES] += chunk.levels[i, u64(h - trunk + 1), L_PROBES]
                routes.hops[u64(h), H_MATCHES] += chunk.levels[i, u64(h - trunk + 1), L_MATCHES]


@inlined
def probe_places(arena: Arena, routes: Routes, chunk: Chunk, walk: Walk, n: int, strict: bool, count_only: bool) -> int:
    """Find and write the results of the first n arrivals of the chunk, or of fewer; return the number of arrivals.

    If a single arrival lacks room for partial results, or the results lack room, return minus the status.
    """
    m = arena.streams.shape[0]
    while True:
        at = np.int64(0)
        for i in range(m):
            if chunk.streams[i, K_COUNT] > 0 and at >= 0:
                at = probe_stream(arena, routes, chunk, walk, i, at, 0, n, count_only and not strict)
        if at >= 0:
            break
        if n == 1 or chunk.partials.shape[0] < MUCH:
            return -NEED_PARTIALS
        n //= 2
    for place in range(n):
        chunk.counts[u64(place)] = 0
    found, out = np.int64(0), arena.meta[M_OUT]
    for i in range(m):
        if chunk.streams[i, K_COUNT] > 0:
            found = min(found + count_results(arena, routes, chunk, walk, i, strict), MOST_RESULTS)
    if found == MOST_RESULTS or (not count_only and (out + found) * m > walk.ids.shape[0]):
        arena.meta[M_NEED] = min(out + found, MOST_RESULTS)
        return -NEED_OUTPUT
    tally(arena, routes, chunk)
    arena.meta[M_OUT] = out + found
    if count_only or found == 0:
        return n
    for place in range(n):
        count = chunk.counts[u64(place)]
        chunk.counts[u64(place)] = out
        out += count
    for i in range(m):
        if chunk.streams[i, K_COUNT] > 0:
            if strict:
                write_in_time(arena, routes, chunk, walk, i)
            else:
                write_results(routes, chunk, walk, i)
    return n


@inlined
def follow_windows(arena: Arena, batch: Batch, chunk: Chunk, start: int, n: int) -> None:
    """Set watermark and low marks to those after the first n arrivals of the chunk, which begins with `start`."""
    streams, meta = arena.streams, arena.meta
    if meta[M_TIMED] != 0:
        meta[M_WATERMARK] = chunk.clock[u64(n - 1)]
    for a in range(start, start + n):
        # From here on, K_FIRST is the number that follows those of the n arrivals.
        chunk.streams[u64(batch.order[u64(a)]), K_FIRST] += 1
    for i in range(streams.shape[0]):
        if streams[i, S_KIND] == ROWS:
            streams[i, S_LO] = max(streams[i, S_LO], chunk.streams[i, K_FIRST] - streams[i, S_SIZE])
        elif streams[i, S_KIND] == RANGE:
            expire_range(arena, i)


@jit
def push_batched(
    arena: Arena, routes: Routes, batch: Batch, chunk: Chunk, walk: Walk, strict: bool, count_only: bool
) -> int:
    """Do the work of `stairs.kernels.push.push` for arrivals that probe SteMs or none (LOADING); return the status."""
    meta, most = arena.meta, np.int64(chunk.places.shape[0])
    while meta[M_ARRIVAL] < meta[M_STOP]:
        start = meta[M_ARRIVAL]
        inserted = meta[M_INSERTED] > start
        stop = meta[M_INSERTED] if inserted else cut(arena, batch, chunk, start, meta[M_STOP])
        n = stop - start
        lay_out(arena, batch, chunk, start, stop, inserted)
        if not inserted:
            insert_chunk(arena, chunk)
            meta[M_INSERTED] = stop
        if meta[M_MODE] != LOADING:
            find_stay(arena, chunk, n, strict)
            asked = min(n, most)
            n = probe_places(arena, routes, chunk, walk, asked, strict, count_only)
            if n < 0:
                return -n
            # As many arrivals as the room for partial results allowed, and a few more each time.
            most = n if n < asked else most + most // 4 + 1
        follow_windows(arena, batch, chunk, start, n)
        meta[M_ARRIVAL] = start + n
    return DONE
