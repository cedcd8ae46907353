"""Kernels of versions: chains by key in the order of event time, and the search in them.

The versions of a log are numbered from 0. `heads` has for each key the version with the greatest event time, -1 = none;
`links` has for each version the next older one of its key. Of versions with equal times the later arrival comes first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stairs.graph import FOREVER
from stairs.kernels.accelerate import jit, u64

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

BACKWARD, FORWARD, NEAREST = range(3)
DIRECTIONS = ("backward", "forward", "nearest")
"""Which version is wanted; see `eddy.query.as_of.AsOf`."""
R_MARK, R_NEXT, R_LATER, R_PASSED, R_FIELDS = range(5)
"""Fields of where the search of a key rests: the search that wrote them, the version to look at next, the version that
begins at the least later time, and the version looked at last; -1 = none."""


@jit
def insert_versions(times: Int64s, links: Int64s, keys: Int64s, heads: Int64s, order: Int64s, until: Int64s) -> None:
    """Insert versions into the chains of their keys. O(versions of the key with a greater time) each.

    order   int64[n], the numbers of the versions, in the order of their times, then of their arrival
    until   int64[n], written: the time of the next version of the key at its insertion; FOREVER = none
    """
    for x in range(order.shape[0]):
        version = order[u64(x)]
        key, time = keys[u64(version)], times[u64(version)]
        newer, at = -1, heads[u64(key)]
        while at >= 0 and times[u64(at)] > time:
            newer, at = at, links[u64(at)]
        links[u64(version)] = at
        if newer < 0:
            heads[u64(key)] = version
            until[u64(x)] = FOREVER
        else:
            links[u64(newer)] = version
            until[u64(x)] = times[u64(newer)]


@jit
def affected_rows(
    hashes: npt.NDArray[np.uint64],
    times: Int64s,
    rows: Int64s,
    wanted: npt.NDArray[np.uint64],
    spans: Int64s,
    affected: Int64s,
) -> np.int64:
    """Write the rows that new versions may concern; return their number, also beyond the room in `affected`.

    hashes, times, rows   key, time and number of rows, in the order of the first two
    wanted                uint64[n], the hash of the key of each new version
    spans                 int64[n, 2], the first and the last time of rows that it concerns
    affected              written; a row may come more than once
    """
    n = np.int64(0)
    for v in range(wanted.shape[0]):
        key, first, last = wanted[u64(v)], spans[u64(v), u64(0)], spans[u64(v), u64(1)]
        low, high = np.int64(0), np.int64(hashes.shape[0])
        while low < high:
            middle = (low + high) >> 1
            middle_key = hashes[u64(middle)]
            if middle_key < key or (middle_key == key and times[u64(middle)] < first):
                low = middle + 1
            else:
                high = middle
        while low < hashes.shape[0] and hashes[u64(low)] == key and times[u64(low)] <= last:
            if n < affected.shape[0]:
                affected[u64(n)] = rows[u64(low)]
            n += 1
            low += 1
    return np.int64(n)


@jit
def remove_versions(links: Int64s, heads: Int64s, first: int) -> None:
    """Remove the versions from number `first` on from all chains. O(keys + versions). Idempotent."""
    for key in range(heads.shape[0]):
        newer, at = -1, heads[u64(key)]
        while at >= 0:
            older = links[u64(at)]
            if at < first:
                newer = at
            elif newer < 0:
                heads[u64(key)] = older
            else:
                links[u64(newer)] = older
            at = older


@jit
def mark_needed(
    times: Int64s, links: Int64s, gone: Bytes, heads: Int64s, limit: int, direction: int, tolerance: int, needed: Bytes
) -> int:
    """Mark the versions that rows of time `limit` or later may get, or that hide others; return how many they are.

    gone       uint8[], 1 = from its time on the key has no version
    tolerance  -1 = any
    """
    count = 0
    for key in range(heads.shape[0]):
        at = heads[u64(key)]
        while at >= 0 and times[u64(at)] > limit:
            needed[u64(at)] = 1
            count += 1
            at = links[u64(at)]
        if at >= 0 and gone[u64(at)] == 0:
            distance = limit - times[u64(at)]
            if distance == 0 or (direction != FORWARD and (tolerance < 0 or distance <= tolerance)):
                needed[u64(at)] = 1
                count += 1
    return count


@jit
def find_versions(
    times: Int64s,
    links: Int64s,
    gone: Bytes,
    heads: Int64s,
    keys: Int64s,
    wanted: Int64s,
    asked: Int64s,
    rests: Int64s,
    versions: Int64s,
) -> None:
    """Find the version of each row, -1 = none. O(rows + versions of their keys that begin after the first row).

    keys      int64[n], the key of each row, -1 = none
    wanted    int64[n], the time of each row, ascending
    asked     (direction, tolerance, mark, end): tolerance -1 = any; a mark that no search in `rests` has had; versions
              from number `end` on do not count
    rests     int64[keys, R_FIELDS]
    versions  int64[n], written
    """
    direction, tolerance, mark, end = asked[0], asked[1], asked[2], asked[3]
    for x in range(keys.shape[0] - 1, -1, -1):
        key, time = keys[u64(x)], wanted[u64(x)]
        versions[u64(x)] = -1
        if key < 0:
            continue
        if rests[u64(key), u64(R_MARK)] == mark:
            # Rows come from the latest to the earliest, so the search of their key goes on.
            at, later, passed = (
                rests[u64(key), u64(R_NEXT)],
                rests[u64(key), u64(R_LATER)],
                rests[u64(key), u64(R_PASSED)],
            )
        else:
            at, later, passed = heads[u64(key)], -1, -1
        while at >= 0 and times[u64(at)] > time:
            # Of versions with equal times only the first one counts.
            if at < end:
                if (passed < 0 or times[u64(passed)] != times[u64(at)]) and gone[u64(at)] == 0:
                    later = at
                passed = at
            at = links[u64(at)]
        while at >= end:
            at = links[u64(at)]
        rests[u64(key), u64(R_MARK)] = mark
        rests[u64(key), u64(R_NEXT)] = at
        rests[u64(key), u64(R_LATER)] = later
        rests[u64(key), u64(R_PASSED)] = passed
        valid = at if at >= 0 and gone[u64(at)] == 0 else -1
        if direction == BACKWARD:
            chosen = valid
        elif valid >= 0 and times[u64(valid)] == time:
            chosen = valid
        elif direction == FORWARD or valid < 0:
            chosen = later
        elif later < 0 or time - times[u64(valid)] <= times[u64(later)] - time:
            chosen = valid
        else:
            chosen = later
        if chosen >= 0 and (tolerance < 0 or abs(time - times[u64(chosen)]) <= tolerance):
            versions[u64(x)] = chosen
