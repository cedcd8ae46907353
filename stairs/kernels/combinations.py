"""The results of a chunk: combinations of the lists of each partial result, counted, then written in order.

The counts say where the results of each event go: results are in the order of events.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    H_TARGET,
    K_GONE,
    L_AT,
    L_SIZE,
    M_NEED,
    M_SHORT,
    M_TALLIED,
    NEED_ENTRIES,
    NEED_OUTPUT,
    Q_FIELDS,
    Q_HEAD,
    Q_PARENT,
    Q_PLACE,
    Q_TUPLE,
    R_END,
    R_TRUNK,
    S_KIND,
    S_LIFE,
    S_MASK,
    S_SIZE,
    S_VALUES,
    SHORT_ENTRIES,
)
from stairs.graph import FOREVER
from stairs.kernels.accelerate import inlined, step, u64
from stairs.kernels.chunk import has_twin
from stairs.kernels.levels import last_level
from stairs.kernels.windows import RANGE
from stairs.memory.arena import Arena, Chunk, Routes, Walk

MOST_RESULTS = 1 << 48
"""Upper bound on the results of an event, so that no product overflows an int64. More results end the push."""


@inlined
def write(walk: Walk, out: int) -> None:
    """Write the bound components as result `out`."""
    m = walk.current.shape[0]
    for j in range(m):
        walk.ids[u64(out * m + j)] = walk.current[u64(j)]


@inlined
def shortage(arena: Arena, needed: int) -> int:
    """Return the status for the room that a walk lacked; the counters include the walk, which will be repeated."""
    arena.meta[M_TALLIED] = 1
    if (arena.meta[M_SHORT] & SHORT_ENTRIES) != 0:
        return NEED_ENTRIES
    arena.meta[M_NEED] = needed
    return NEED_OUTPUT


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
            t = arena.values[u64(streams[j, S_VALUES] + (s & streams[j, S_MASK]))]
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


@step
def count_results(arena: Arena, routes: Routes, chunk: Chunk, walk: Walk, i: int, strict: bool, weighed: bool) -> None:
    """Add the results of the events of stream i to `chunk.counts`, up to MOST_RESULTS for an event.

    weighed   as `stairs.kernels.levels.is_weighed`
    """
    trunk, last, end = routes.span[i, R_TRUNK], last_level(routes, i), routes.span[i, R_END]
    partials, levels, turn = chunk.partials, chunk.levels, walk.turn
    p = levels[i, u64(last), L_AT] + Q_PLACE
    # The count of an event stays in a register while its partial results follow each other.
    counted, results = u64(0), chunk.counts[u64(0)]
    for q in range(levels[i, u64(last), L_SIZE]):
        total = np.int64(1)
        if weighed:
            total = np.int64(partials[u64(p - Q_PLACE + Q_HEAD)])
        elif strict:
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
        place = u64(partials[u64(p)])
        if place != counted:
            chunk.counts[counted] = results
            counted, results = place, chunk.counts[place]
        results = min(results + total, MOST_RESULTS)
        p += Q_FIELDS
    chunk.counts[counted] = results


@step
def write_in_time(arena: Arena, routes: Routes, chunk: Chunk, walk: Walk, i: int) -> None:
    """Do the work of `write_results`, but only for combinations whose components are all in time."""
    hops, partials, levels, ids = routes.hops, chunk.partials, chunk.levels, walk.ids
    last, end = last_level(routes, i), routes.span[i, R_END]
    lists = routes.span[i, R_TRUNK] + last
    m, turn = walk.current.shape[0], walk.turn
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


@step
def write_results(routes: Routes, chunk: Chunk, walk: Walk, i: int) -> None:
    """Write the results of the events of stream i to `walk.ids`, those of each event from its count on.

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
def count_twins(arena: Arena, chunk: Chunk, n: int) -> bool:
    """Give each event that has a twin among the first n events the count of its twin; return whether there are some."""
    some = False
    for i in range(arena.streams.shape[0]):
        some |= arena.streams[u64(i), S_LIFE] > 0 and chunk.streams[u64(i), K_GONE] > 0
    for place in range(n if some else 0):
        if has_twin(chunk, place, n):
            chunk.counts[u64(place)] = chunk.counts[u64(place + 1)]
    return some


@step
def write_twins(chunk: Chunk, walk: Walk, n: int) -> None:
    """Write the results of each event that has a twin, before those of its twin, which are written."""
    m = walk.current.shape[0]
    for place in range(n):
        if has_twin(chunk, place, n):
            # The results of the twin follow at once, and its count says where they end now.
            start, end = chunk.counts[u64(place)] * m, chunk.counts[u64(place + 1)] * m
            length = (end - start) >> 1
            for r in range(start, start + length):
                walk.ids[u64(r)] = walk.ids[u64(r + length)]
            for r in range(start + np.int64(chunk.owners[u64(place)]), start + length, m):
                walk.ids[u64(r)] = chunk.tuples[u64(place)]
            chunk.counts[u64(place)] += length // m
