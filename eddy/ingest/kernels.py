"""Kernels over the order of arrival: count, merge by event time, mark late rows."""

from __future__ import annotations

import numpy as np

from stairs.graph import FOREVER
from stairs.kernels.accelerate import inlined, jit, u64


@jit
def count_streams(order: np.ndarray, counts: np.ndarray) -> None:
    """Count how often each stream occurs in order uint8[arrivals]; counts int64[256] is overwritten."""
    for i in range(counts.shape[0]):
        counts[u64(i)] = 0
    for a in range(order.shape[0]):
        counts[u64(order[a])] += 1


@jit
def merge_by_time(
    times: np.ndarray, cursor: np.ndarray, ends: np.ndarray, next_time: np.ndarray, order: np.ndarray
) -> None:
    """Merge streams that are each in order of time: write the stream of each arrival; ties go to the first stream.

    times int64[rows] within ±2^61, stream after stream; cursor int64[streams], the start of each stream (overwritten);
    ends int64[streams]; next_time int64[streams] is scratch; order uint8[rows] is the output. O(arrivals * streams).
    """
    streams = cursor.shape[0]
    never = np.int64(1) << 62
    for i in range(streams):
        next_time[i] = times[cursor[i]] if cursor[i] < ends[i] else never
    for a in range(order.shape[0]):
        first = 0
        for i in range(1, streams):
            if next_time[u64(i)] < next_time[u64(first)]:
                first = i
        order[u64(a)] = first
        at = cursor[u64(first)] + 1
        cursor[u64(first)] = at
        next_time[u64(first)] = times[u64(at)] if at < ends[u64(first)] else never


@jit
def survey_times(times: np.ndarray, ends: np.ndarray, rising: np.ndarray) -> bool:
    """Return whether all event times lie within ±2^61, and set for each stream whether its times never fall.

    times int64[rows], stream after stream; ends int64[streams]; rising uint8[streams] is the output.
    """
    within, at = True, np.int64(0)
    for i in range(ends.shape[0]):
        never_falls, last = True, -2 * FOREVER
        for r in range(at, ends[u64(i)]):
            time = times[u64(r)]
            within &= -FOREVER <= time <= FOREVER
            never_falls &= time >= last
            last = time
        rising[u64(i)] = never_falls
        at = ends[u64(i)]
    return within


@jit
def find_stale(
    ids: np.ndarray,
    versions: np.ndarray,
    deletes: np.ndarray,
    newest: np.ndarray,
    gone: np.ndarray,
    until: np.ndarray,
    before: np.ndarray,
    stale: np.ndarray,
) -> int:
    """Mark the changes of a table that are older than the newest version of their key; return their number.

    ids int64[changes], places of keys in newest int64[] and gone uint8[], which are as before in the end; versions
    int64[changes] and deletes uint8[changes], the changes; until int64[2], the newest version of all keys, and how far
    it is ahead when a tombstone ends; before int64[2, changes] is scratch; stale uint8[changes] is the output.
    O(changes).
    """
    n, stale_count = ids.shape[0], 0
    greatest, tombstones = until[0], until[1]
    for k in range(n):
        place = u64(ids[u64(k)])
        before[0, u64(k)], before[1, u64(k)] = newest[place], gone[place]
        remembered = not gone[place] or newest[place] >= greatest - tombstones
        if versions[u64(k)] < newest[place] and remembered:
            stale[u64(k)] = 1
            stale_count += 1
            continue
        newest[place], gone[place] = versions[u64(k)], deletes[u64(k)]
        greatest = max(greatest, versions[u64(k)])
    for k in range(n - 1, -1, -1):
        place = u64(ids[u64(k)])
        newest[place], gone[place] = before[0, u64(k)], before[1, u64(k)]
    return stale_count


GREATEST, WATERMARK, BEHIND, UNTIL, SCALARS = 0, 1, 2, 3, 4
"""Scalars of the state of a clock, after the two arrays; their number."""
BY_ROWS, GIVEN, PAST = 0, 1, 2
"""How the watermark of a push comes about: it follows the rows; it is given; it follows rows of which none is late."""


@inlined
def least_mark(state: np.ndarray, lateness: np.ndarray, idle: int, greatest: int) -> tuple[int, int]:
    """Return the watermark of the slowest stream that is not idle, and the stream; -FOREVER if it has no row."""
    n, least, holder = lateness.shape[0], 2 * FOREVER, np.int64(-1)
    for i in range(n):
        if greatest - state[u64(n + i)] <= idle:
            if state[u64(i)] == -FOREVER:
                return -FOREVER, np.int64(i)
            mark = state[u64(i)] - lateness[u64(i)]
            if mark < least:
                least, holder = mark, np.int64(i)
    return least, holder


@jit
def read_clock(
    order: np.ndarray,
    times: np.ndarray,
    cursor: np.ndarray,
    lateness: np.ndarray,
    idle: int,
    slowest: bool,
    how: int,
    state: np.ndarray,
    marks: np.ndarray,
    late: np.ndarray,
    because: np.ndarray,
) -> tuple[int, bool]:
    """Take the rows of a push in their order; return the number of late ones, and whether the others came by time.

    order uint8[arrivals]; times int64[rows] and late uint8[rows] (zeros; output), stream after stream; cursor
    int64[streams], the start of each stream (overwritten); lateness int64[streams]; idle in ticks, 2 * FOREVER for no
    idle streams; how: BY_ROWS, GIVEN or PAST; state: of `eddy.ingest.clock`, changed in place; marks int64[arrivals]
    (output), the watermark with each; if it is GIVEN, the greatest event time of the push so far, no less than the
    watermark; because int64[streams], -FOREVER before: output, the watermark with the first late row of a stream.
    """
    n, late_count, by_time = lateness.shape[0], 0, True
    greatest, watermark = state[u64(2 * n + GREATEST)], state[u64(2 * n + WATERMARK)]
    behind, until = state[u64(2 * n + BEHIND)], state[u64(2 * n + UNTIL)]
    silent, holder, high = idle < 2 * FOREVER, np.int64(-1), watermark
    last = -2 * FOREVER
    for a in range(order.shape[0]):
        i = np.int64(order[u64(a)])
        at = u64(cursor[u64(i)])
        cursor[u64(i)] += 1
        t = times[at]
        before = greatest
        if before == -FOREVER:
            for j in range(n):
                state[u64(n + j)] = t
        greatest = max(greatest, t)
        state[u64(i)] = max(state[u64(i)], t)
        state[u64(n + i)] = greatest
        if how != GIVEN:
            if not slowest:
                if holder < 0:
                    # Before, a caller may have given watermarks.
                    holder = i
                    for j in range(n):
                        if state[u64(j)] > -FOREVER:
                            watermark = max(watermark, state[u64(j)] - lateness[u64(j)])
                watermark = max(watermark, t - lateness[u64(i)])
            elif silent or holder < 0 or i == holder:
                mark, holder = least_mark(state, lateness, idle, greatest)
                watermark = max(watermark, mark)
        if t < watermark and how != PAST:
            late[at] = 1
            late_count += 1
            if because[u64(i)] == -FOREVER:
                because[u64(i)] = watermark
        else:
            if t < before:
                behind, until = max(behind, before - t), greatest
            by_time &= t >= last
            last, high = max(last, t), max(high, t)
        marks[u64(a)] = high if how == GIVEN else watermark
    state[u64(2 * n + GREATEST)], state[u64(2 * n + WATERMARK)] = greatest, watermark
    state[u64(2 * n + BEHIND)], state[u64(2 * n + UNTIL)] = behind, until
    return late_count, by_time
