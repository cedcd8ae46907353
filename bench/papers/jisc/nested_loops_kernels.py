"""The loops of a plan of nested-loop joins (bench/papers/jisc/nested_loops.py): scans of lists, no index anywhere.

Streams are numbered as in the query; `plan` says which stream is joined at which level. State k of a left-deep plan has
the combinations of the streams of levels 0 to k. Every function that writes composites returns how many there are, or
FULL when the room is too small.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stairs.kernels.accelerate import inlined, jit, u64

FULL = -1
BLOCK = 64
"""Pairs that are tested together: most blocks have no match, and to count none takes no branch a pair."""


class Plan(NamedTuple):
    """What a plan of nested loops keeps.

    plan      int64[m]                 the stream at each level
    values    int64[m, window]         the join attribute of the rows, row s in slot s % window
    nxt       int64[m]                 number of the next row of each stream
    complete  int64[m]                 1 = the state of the level has every live combination
    counts    int64[m]                 combinations stored by level; 0 at level 0, which is a window, and at the root
    keys      int64[m, room]           the join attribute of each stored combination
    rows      int32[m, m, room]        by level and stream the row number of each stored combination
    n_asked   int64[m]                 values by which an incomplete state was asked, and so has all combinations of
    asked     int64[m, room]           those values
    work      int32[2, m, room]        composites on their way, by stream
    """

    plan: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]
    nxt: npt.NDArray[np.int64]
    complete: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    keys: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int32]
    n_asked: npt.NDArray[np.int64]
    asked: npt.NDArray[np.int64]
    work: npt.NDArray[np.int32]


@inlined
def row_in(nxt: int, window: int, slot: int) -> int:
    """Return the number of the row that is in a slot, of a stream whose next row is number nxt."""
    last = nxt - 1
    return last - (last - slot) % window


@jit
def next_match(p: Plan, stream: int, slot: int, live: int, key: int) -> int:
    """Return the first slot of a window from `slot` on whose row joins with a value, `live` = there is none."""
    while slot < live:
        end = min(slot + BLOCK, live)
        hits = np.int64(0)
        for at in range(slot, end):
            hits += p.values[u64(stream), u64(at)] == key
        if hits:
            while p.values[u64(stream), u64(slot)] != key:
                slot += 1
            return slot
        slot = end
    return live


@inlined
def was_asked(p: Plan, level: int, key: int) -> bool:
    """Return whether the state of a level has all combinations of a value. Scans the values asked."""
    if p.complete[u64(level)]:
        return True
    for a in range(p.n_asked[u64(level)]):
        if p.asked[u64(level), u64(a)] == key:
            return True
    return False


@jit
def store(p: Plan, level: int, key: int, buffer: int, n: int) -> int:
    """Append n composites to the state of a level."""
    room = p.keys.shape[1]
    first = p.counts[u64(level)]
    if first + n > room:
        return FULL
    for c in range(n):
        p.keys[u64(level), u64(first + c)] = key
        for q in range(level + 1):
            j = p.plan[u64(q)]
            p.rows[u64(level), u64(j), u64(first + c)] = p.work[u64(buffer), u64(j), u64(c)]
    p.counts[u64(level)] = first + n
    return n


@jit
def extend(p: Plan, level: int, key: int, buffer: int, n: int) -> int:
    """Join n composites of the levels below with the window of a level, a scan for each; into the other buffer."""
    m, window, room = p.plan.shape[0], p.values.shape[1], p.keys.shape[1]
    j = p.plan[u64(level)]
    live = min(p.nxt[u64(j)], window)
    other, found = 1 - buffer, np.int64(0)
    for c in range(n):
        slot = next_match(p, j, 0, live, key)
        while slot < live:
            if found == room:
                return FULL
            for i in range(m):
                p.work[u64(other), u64(i), u64(found)] = p.work[u64(buffer), u64(i), u64(c)]
            p.work[u64(other), u64(j), u64(found)] = row_in(p.nxt[u64(j)], window, slot)
            found += 1
            slot = next_match(p, j, slot + 1, live, key)
    return found


@jit
def ask(p: Plan, level: int, key: int) -> int:
    """Find the combinations of the levels 0 to `level` that have a value; they are left in buffer `level % 2`.

    Where a state is incomplete and was not asked for the value before, the level below is asked, its window scanned,
    and what was found stored; so the plan is gone down as far as the first state that knows.
    """
    window, room = p.values.shape[1], p.keys.shape[1]
    base = level
    while base > 0 and not was_asked(p, base, key):
        base -= 1
    buffer, n = base % 2, np.int64(0)
    if base == 0:
        j = p.plan[0]
        live = min(p.nxt[u64(j)], window)
        slot = next_match(p, j, 0, live, key)
        while slot < live:
            p.work[u64(buffer), u64(j), u64(n)] = row_in(p.nxt[u64(j)], window, slot)
            n += 1
            slot = next_match(p, j, slot + 1, live, key)
    else:
        for e in range(p.counts[u64(base)]):
            if p.keys[u64(base), u64(e)] == key:
                for q in range(base + 1):
                    j = p.plan[u64(q)]
                    p.work[u64(buffer), u64(j), u64(n)] = p.rows[u64(base), u64(j), u64(e)]
                n += 1
    for above in range(base + 1, level + 1):
        n = extend(p, above, key, buffer, n)
        if n == FULL:
            return FULL
        buffer = 1 - buffer
        if p.n_asked[u64(above)] == room or store(p, above, key, buffer, n) == FULL:
            return FULL
        p.asked[u64(above), u64(p.n_asked[u64(above)])] = key
        p.n_asked[u64(above)] += 1
    return n


@jit
def compute(p: Plan, level: int) -> int:
    """Compute the state of a level: each combination of the level below against each row of the window.

    The state below is complete. Returns the number of combinations.
    """
    window, room = p.values.shape[1], p.keys.shape[1]
    j, first = p.plan[u64(level)], p.plan[0]
    live, below = min(p.nxt[u64(j)], window), level - 1
    left = min(p.nxt[u64(first)], window) if below == 0 else p.counts[u64(below)]
    n = np.int64(0)
    for e in range(left):
        key = p.values[u64(first), u64(e)] if below == 0 else p.keys[u64(below), u64(e)]
        slot = next_match(p, j, 0, live, key)
        while slot < live:
            if n == room:
                return FULL
            p.keys[u64(level), u64(n)] = key
            if below == 0:
                p.rows[u64(level), u64(first), u64(n)] = row_in(p.nxt[u64(first)], window, e)
            else:
                for q in range(level):
                    i = p.plan[u64(q)]
                    p.rows[u64(level), u64(i), u64(n)] = p.rows[u64(below), u64(i), u64(e)]
            p.rows[u64(level), u64(j), u64(n)] = row_in(p.nxt[u64(j)], window, slot)
            n += 1
            slot = next_match(p, j, slot + 1, live, key)
    p.counts[u64(level)] = n
    p.complete[u64(level)] = 1
    return n


@jit
def expire(p: Plan, own: int, position: int) -> None:
    """Take the combinations of the oldest row of a full window out of the states of its stream, a scan of each."""
    m, window = p.plan.shape[0], p.values.shape[1]
    gone = p.nxt[u64(own)] - window
    if gone < 0:
        return
    for level in range(max(position, 1), m - 1):
        n, e = p.counts[u64(level)], np.int64(0)
        while e < n:
            if p.rows[u64(level), u64(own), u64(e)] != gone:
                e += 1
                continue
            n -= 1
            p.keys[u64(level), u64(e)] = p.keys[u64(level), u64(n)]
            for q in range(level + 1):
                j = p.plan[u64(q)]
                p.rows[u64(level), u64(j), u64(e)] = p.rows[u64(level), u64(j), u64(n)]
        p.counts[u64(level)] = n


@jit
def push(p: Plan, own: int, key: int) -> int:
    """Take a row of stream `own`; return how many results it gives. They are left in buffer (m - 1) % 2."""
    m, window = p.plan.shape[0], p.values.shape[1]
    position = np.int64(0)
    while p.plan[u64(position)] != own:
        position += 1
    expire(p, own, position)
    row = p.nxt[u64(own)]
    p.values[u64(own), u64(row % window)] = key
    p.nxt[u64(own)] = row + 1
    n = np.int64(1)
    if position:
        n = ask(p, position - 1, key)
        if n == FULL:
            return FULL
    buffer = position % 2
    for c in range(n):
        for q in range(position):
            j = p.plan[u64(q)]
            p.work[u64(buffer), u64(j), u64(c)] = p.work[u64(1 - buffer), u64(j), u64(c)]
        p.work[u64(buffer), u64(own), u64(c)] = row
    for level in range(position, m):
        if level > position:
            n = extend(p, level, key, buffer, n)
            if n == FULL:
                return FULL
            buffer = 1 - buffer
        # What is passed over here is found in the windows when the value is asked for.
        if 0 < level < m - 1 and n and was_asked(p, level, key) and store(p, level, key, buffer, n) == FULL:
            return FULL
    return n
