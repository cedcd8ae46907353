"""Event times in joins on one key: which tuples of RANGE windows are too old, or surely not, for a block of arrivals.

To compare the event time of each partner with that of each other one takes longer than to find all of them. So two
*marks* per RANGE window bound what needs a look: the tuples before `gone` are too old for each arrival of the block,
those from `sure` on are young enough for it and for all its partners. Both are sequence numbers; tuples between them
are in doubt.

An earlier event time in a ring is above a later one by at most M_BEHIND, which is measured where rows are admitted. So
if the tuple at a mark has a time t, all tuples after it have times from t - M_BEHIND on.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    M_BEHIND,
    M_NEWEST,
    S_KIND,
    S_LO,
    S_MASK,
    S_NEXT,
    S_SIZE,
    S_VALUES,
)
from stairs.graph import FOREVER
from stairs.kernels.accelerate import inlined, step, u64
from stairs.kernels.windows import RANGE, expire_range
from stairs.memory.arena import Arena, Batch, Walk

PACE = 8
"""Most tuples of a window that `gone` passes for each arrival, so that a small push after a long one stays cheap."""


@inlined
def time_of(arena: Arena, j: int, s: int) -> int:
    """Return the event time of tuple s of stream j."""
    return arena.values[u64(arena.streams[u64(j), S_VALUES] + (s & arena.streams[u64(j), S_MASK]))]


@inlined
def deadline_of(arena: Arena, j: int, time: int) -> int:
    """Return the last event time that a tuple of stream j with this event time can join."""
    return time + arena.streams[u64(j), S_SIZE] if arena.streams[u64(j), S_KIND] == RANGE else 2 * FOREVER


@step
def times_of(arena: Arena, batch: Batch, walk: Walk, first: int, last: int) -> tuple[int, int]:
    """Return the least and the greatest event time of arrivals first .. last - 1, none of which is inserted yet."""
    streams, following = arena.streams, walk.turn
    least, greatest = 2 * FOREVER, -2 * FOREVER
    for j in range(streams.shape[0]):
        following[u64(j)] = streams[u64(j), S_NEXT]
    for a in range(first, last):
        i = u64(batch.order[u64(a)])
        time = arena.values[u64(streams[i, S_VALUES] + (following[i] & streams[i, S_MASK]))]
        following[i] += 1
        least, greatest = min(least, time), max(greatest, time)
    return least, greatest


@inlined
def open_marks(arena: Arena, walk: Walk) -> None:
    """Place the marks for the arrivals to come. O(streams * log(tuples))."""
    streams, meta = arena.streams, arena.meta
    for j in range(streams.shape[0]):
        if streams[u64(j), S_KIND] == RANGE:
            horizon = meta[M_NEWEST] + meta[M_BEHIND] - streams[u64(j), S_SIZE]
            low, sure = streams[u64(j), S_LO], streams[u64(j), S_NEXT]
            walk.gone[u64(j)] = low
            # Times that are not in order can misdirect the search, but `sure` is the end or a tuple of the horizon.
            while low < sure:
                middle = (low + sure) >> 1
                if time_of(arena, j, middle) >= horizon:
                    sure = middle
                else:
                    low = middle + 1
            walk.sure[u64(j)] = sure


@inlined
def move_marks(arena: Arena, walk: Walk, least: int, greatest: int, arrivals: int) -> bool:
    """Expire RANGE windows, and move their marks to a block of arrivals; return whether the marks hold for it.

    least      the least event time of the arrivals
    greatest   the greatest one so far, with the arrivals

    Amortised O(streams + arrivals). In `walk.lows`, the marks `gone` take the place of the low marks, which lag behind
    with the watermark, unless the block has an arrival older than the one before the block.
    """
    streams, meta = arena.streams, arena.meta
    before, hold = meta[M_NEWEST], True
    for j in range(streams.shape[0]):
        if streams[u64(j), S_KIND] == RANGE:
            expire_range(arena, j)
            size, low, following = streams[u64(j), S_SIZE], streams[u64(j), S_LO], streams[u64(j), S_NEXT]
            gone = max(np.int64(walk.gone[u64(j)]), low)
            limit = min(following, gone + PACE * arrivals)
            while gone < limit and time_of(arena, j, gone) < before - size:
                gone += 1
            sure = max(np.int64(walk.sure[u64(j)]), gone)
            while sure < following and time_of(arena, j, sure) < greatest + meta[M_BEHIND] - size:
                sure += 1
            walk.gone[u64(j)], walk.sure[u64(j)] = gone, sure
            walk.lows[u64(j)] = gone if least >= before else low
            # The arrivals are partners too.
            hold &= least >= greatest - size
    return hold
