"""Learning of no-good marks (`stairs.kernels.marks`) from the walks of a chunk.

A partial result without a result is *dead*. Level by level, from the last one back, the list in which a dead partial
result found its matches is examined. So a list is marked after those further out, on which its mark rests.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    A_COLUMN,
    A_LINK0,
    A_LINK1,
    A_LOST,
    A_MARKS,
    A_OFFSET,
    A_REST,
    A_SUPPORT,
    A_WORTH,
    C_HEADS,
    C_STRIDE,
    H_CLASS,
    H_TARGET,
    L_AT,
    L_MATCHES,
    L_SIZE,
    Q_FIELDS,
    Q_HEAD,
    Q_PARENT,
    R_TRUNK,
    S_LO,
    S_MASK,
    S_RECS,
    S_WIDTH,
)
from stairs.kernels.accelerate import inlined, step, u64
from stairs.kernels.levels import last_level
from stairs.kernels.marks import SAVED, is_blocked, newest_of, row_of, set_mark, support_of
from stairs.kernels.partials import ancestor
from stairs.memory.arena import Arena, Chunk, Routes

ALIVE = -3
"""Replaces the head in a partial result that has a result; no head has this value."""
VAIN = 1024
"""Matches in vain that are worth a chunk of a rest."""
LONGEST = 64
"""Lists with more tuples are not marked: the attempt could cost more than the walk."""
EXAMINED = 8
"""One of so many marks is examined for the marks on which it rests."""
SERVED = 4
"""Hits that such a mark is expected to have."""


@inlined
def credit_support(arena: Arena, j: int, x: int, p: int) -> None:
    """Credit the hits expected of the mark of a list to an attribute on whose marks it rests.

    The marks of an attribute may have few hits and still carry those of all others.
    """
    streams, row = arena.streams, u64(j)
    ring, mask, width = streams[row, S_RECS], streams[row, S_MASK], streams[row, S_WIDTH]
    s, low, support = newest_of(arena.heads[u64(p)]), streams[row, S_LO], np.int64(-1)
    while s >= low:
        record = ring + (s & mask) * width
        support = max(support, support_of(arena, j, x, record))
        s = np.int64(arena.recs[u64(record + arena.attrs[u64(x), A_OFFSET])])
    if support >= 0:
        arena.attrs[u64(support), A_SUPPORT] += EXAMINED * SERVED * (SAVED + arena.attrs[u64(x), A_WORTH])


@inlined
def try_to_mark(arena: Arena, j: int, x: int, p: int) -> int:
    """Mark the list of attribute x of stream j whose head is at p if each tuple in it has a blocked list elsewhere.

    Return the number of its tuples if it was marked, 0 otherwise.
    """
    streams, row = arena.streams, u64(j)
    s, low, tuples = np.int64(arena.heads[u64(p)]), streams[row, S_LO], np.int64(0)
    if s < low:
        return np.int64(0)
    ring, mask, width = streams[row, S_RECS], streams[row, S_MASK], streams[row, S_WIDTH]
    while s >= low:
        record = ring + (s & mask) * width
        tuples += 1
        if tuples > LONGEST or not is_blocked(arena, j, x, record):
            arena.attrs[u64(x), A_LOST] += tuples
            return np.int64(0)
        s = np.int64(arena.recs[u64(record + arena.attrs[u64(x), A_OFFSET])])
    set_mark(arena, x, p)
    # Which tuple is the newest is chance, so these marks are like the others.
    if newest_of(arena.heads[u64(p)]) % EXAMINED == 0:
        credit_support(arena, j, x, p)
    return tuples


@inlined
def shorten_rests(arena: Arena, routes: Routes, first: int, end: int, chunks: int) -> None:
    """Shorten the rests of the attributes probed by trunk hops first .. end - 1, all but their last chunk at most.

    A mark may rest on marks of other attributes. When data drift and walks become long, one attribute that sleeps lets
    the trials of the others fail as well; so the more is done in vain, the sooner all are tried again.
    """
    for h in range(first, end):
        x = u64(row_of(arena, routes.hops[u64(h), H_TARGET], routes.hops[u64(h), H_CLASS]))
        arena.attrs[x, A_REST] -= min(chunks, max(arena.attrs[x, A_REST] - 1, 0))


@step
def learn(arena: Arena, routes: Routes, chunk: Chunk, i: int) -> None:
    """Try to mark the lists in which the events of stream i found matches, but no result. Right after its walk."""
    last = last_level(routes, i)
    partials, levels, trunk = chunk.partials, chunk.levels, routes.span[u64(i), R_TRUNK]
    visits, resting = np.int64(0), True
    for level in range(1, last + 1):
        visits += levels[i, u64(level), L_MATCHES]
        h = u64(trunk + level - 1)
        resting &= arena.attrs[u64(row_of(arena, routes.hops[h, H_TARGET], routes.hops[h, H_CLASS])), A_REST] > 0
    vain = visits - last * levels[i, u64(last), L_SIZE]
    if vain > VAIN:
        shorten_rests(arena, routes, trunk, trunk + last, vain // VAIN)
    if resting or 2 * vain < levels[i, 0, L_SIZE]:
        return
    for level in range(last - 1, -1, -1):
        at, below = levels[i, u64(level), L_AT], levels[i, u64(level + 1), L_AT]
        # All partial results of the last level have results.
        for q in range(below, below + levels[i, u64(level + 1), L_SIZE] * Q_FIELDS, Q_FIELDS):
            if level + 1 == last or partials[u64(q + Q_HEAD)] == ALIVE:
                partials[u64(at + np.int64(partials[u64(q + Q_PARENT)]) * Q_FIELDS + Q_HEAD)] = ALIVE
        c, j = routes.hops[u64(trunk + level), H_CLASS], routes.hops[u64(trunk + level), H_TARGET]
        x, low = row_of(arena, j, c), arena.streams[u64(j), S_LO]
        attr, directory = arena.attrs[u64(x)], arena.classes[u64(c)]
        if attr[A_REST] != 0 or attr[A_LINK0] == attr[A_LINK1]:
            continue
        marks, listed, caused, size = attr[A_MARKS], np.int64(0), np.int64(0), levels[i, u64(level), L_SIZE]
        for k in range(level + 1, last + 1):
            caused += levels[i, u64(k), L_MATCHES]
        above, source = chunk.sources[u64(c), 0], arena.streams[u64(chunk.sources[u64(c), 1])]
        for q in range(size):
            if partials[u64(at + q * Q_FIELDS + Q_HEAD)] >= low:
                s = ancestor(chunk, i, q, level, above)
                record = source[S_RECS] + (s & source[S_MASK]) * source[S_WIDTH]
                kid = np.int64(arena.recs[u64(record + chunk.sources[u64(c), 2] + 1)])
                listed += try_to_mark(arena, j, x, directory[C_HEADS] + kid * directory[C_STRIDE] + attr[A_COLUMN])
        marks = attr[A_MARKS] - marks
        if marks > 0:
            # The lists found may be longer than those that can be marked: a hot key has a long one with results.
            matches = max(levels[i, u64(level + 1), L_MATCHES], 1)
            attr[A_WORTH] = max(attr[A_WORTH], min(caused // size, listed * caused // (marks * matches)))
