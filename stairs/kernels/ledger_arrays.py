"""The arrays of a ledger (`stairs.ledger`), how its entries are found in them, and how writes to them are undone.

Writes go through `put`, which logs the old value.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stairs.kernels.accelerate import bundled, inlined, jit, u64
from stairs.kernels.hashes import finish, stir

Int64s = npt.NDArray[np.int64]

LEFT, SEMI, ANTI = 0, 1, 2
"""The ways in which a branch hangs on its parent."""
HOWS = ("left", "semi", "anti")

N_LOW, N_NEXT, N_LIVE, N_OPTIONS, N_FREE_OPTIONS, N_OUT, N_LOG, N_ROWS, N_WRITES = range(9)
N_FRESH, N_FREED, N_FIRST_FREED, N_COUNTERS = range(9, 13)
"""Counters: entries in use have serial numbers from N_LOW to N_NEXT - 1, and N_LIVE is how many they are; options ever
used, and the first free one; rows put out; values logged; rows and writes for which the next event needs room. Those of
a push: entries from N_FRESH on have put out no rows yet; the last and the first option that it freed, -1 = none."""
NEVER = (1 << 63) - 1
"""N_FRESH if there are no such entries."""
MOST = 1 << 40
"""More rows than an event can have: a count of them stops here, before it overflows."""
F_LINK, F_SERIAL, F_BRANCHES = range(3)
"""Fields of an entry: the next one in its bucket; its serial number, another one = not in use; then the fields of each
branch; then a component for each stream, -1 = none."""
B_COUNT, B_HEAD, B_DONE, B_FIELDS = range(4)
"""Fields of a branch of an entry: its options, the newest one (-1 = none), and whether no option can come any more, or
a missing one counts at once."""
ENTRIES, OPTIONS, BUCKETS = range(3)
LOGGED = 3
"""Numbers in the log for each write: array, position, old value."""


@bundled
class LedgerArrays(NamedTuple):
    """The arrays of a ledger.

    entries   int64[]      a ring of 2^n entries by serial number, `stride_of` numbers each
    options   int64[]      options: the next one of the same entry and branch, then a component for each stream
    buckets   int64[2^n]   the first entry of each bucket, -1 = none; only where a match has several components
    seeds     int64[2]     of the hash that gives a match its bucket
    counters  int64[N_COUNTERS]
    hows      int64[branches]
    key       int64[]      the streams of a match, whose components identify an entry
    kept      int64[branches]  1 = the options are stored
    rows      int64[room, streams]  rows put out
    signs     uint8[room]  1 = the row begins, 0 = it ends
    log       int64[]      what was overwritten
    turn      int64[branches]  the option of each branch in the present row
    mask      slots of the ring of entries - 1
    alone     1 = the match is a tuple of a stream, whose arrival number is the serial number
    """

    entries: Int64s
    options: Int64s
    buckets: Int64s
    seeds: Int64s
    counters: Int64s
    hows: Int64s
    key: Int64s
    kept: Int64s
    rows: Int64s
    signs: npt.NDArray[np.uint8]
    log: Int64s
    turn: Int64s
    mask: int
    alone: int


@inlined
def put(ledger: LedgerArrays, which: int, x: int, value: int) -> None:
    """Write a number, and log the old one."""
    at = u64(ledger.counters[N_LOG] * LOGGED)
    array = ledger.entries if which == ENTRIES else (ledger.options if which == OPTIONS else ledger.buckets)
    ledger.log[at], ledger.log[at + u64(1)], ledger.log[at + u64(2)] = which, x, array[u64(x)]
    array[u64(x)] = value
    ledger.counters[N_LOG] += 1


@jit
def undo(ledger: LedgerArrays) -> None:
    """Take back all writes in the log, the newest first."""
    for n in range(ledger.counters[N_LOG] - 1, -1, -1):
        which, x, old = ledger.log[3 * n], ledger.log[3 * n + 1], ledger.log[3 * n + 2]
        if which == ENTRIES:
            ledger.entries[u64(x)] = old
        elif which == OPTIONS:
            ledger.options[u64(x)] = old
        else:
            ledger.buckets[u64(x)] = old
    ledger.counters[N_LOG] = 0


@inlined
def stride_of(ledger: LedgerArrays) -> int:
    """Return how many numbers an entry has."""
    return F_BRANCHES + B_FIELDS * ledger.hows.shape[0] + ledger.rows.shape[1]


@inlined
def entry_at(ledger: LedgerArrays, serial: int) -> int:
    """Return where the entry with a serial number begins."""
    return (serial & ledger.mask) * stride_of(ledger)


@inlined
def bucket_of(ledger: LedgerArrays, components: Int64s, first: int) -> int:
    """Return the bucket of a match, whose components lie at components[first:]."""
    code = u64(ledger.seeds[0])
    for k in range(ledger.key.shape[0]):
        code = stir(code, components[u64(first + ledger.key[u64(k)])], ledger.seeds[1])
    return finish(code, ledger.seeds[0], ledger.seeds[1]) & (ledger.buckets.shape[0] - 1)


@inlined
def find(ledger: LedgerArrays, components: Int64s, first: int) -> int:
    """Return where the entry of a match begins, -1 if the match has no entry."""
    if ledger.alone:
        # The serial number is the component.
        serial = components[u64(first + ledger.key[0])]
        e = entry_at(ledger, serial)
        return np.int64(e) if ledger.entries[u64(e + F_SERIAL)] == serial else np.int64(-1)
    ids = F_BRANCHES + B_FIELDS * ledger.hows.shape[0]
    e = ledger.buckets[u64(bucket_of(ledger, components, first))]
    while e >= 0:
        same = True
        for k in range(ledger.key.shape[0]):
            i = ledger.key[u64(k)]
            same = same and ledger.entries[u64(e + ids + i)] == components[u64(first + i)]
        if same:
            return np.int64(e)
        e = ledger.entries[u64(e + F_LINK)]
    return np.int64(-1)


@inlined
def branch_at(e: int, b: int) -> int:
    """Return where the fields of a branch of an entry begin."""
    return e + F_BRANCHES + B_FIELDS * b


@inlined
def has_room(ledger: LedgerArrays, rows: int, writes: int) -> bool:
    """Return whether so many rows can be put out, and so many writes logged."""
    ledger.counters[N_ROWS], ledger.counters[N_WRITES] = rows, writes
    fits = ledger.counters[N_OUT] + rows <= ledger.rows.shape[0]
    return fits and (ledger.counters[N_LOG] + writes) * LOGGED <= ledger.log.shape[0]


@jit
def least(ledger: LedgerArrays, lows: Int64s) -> None:
    """Lower lows[i] to the smallest component of stream i in the entries and stored options."""
    n, m = ledger.hows.shape[0], ledger.rows.shape[1]
    for serial in range(ledger.counters[N_LOW], ledger.counters[N_NEXT]):
        e = entry_at(ledger, serial)
        if ledger.entries[u64(e + F_SERIAL)] != serial:
            continue
        for i in range(m):
            number = ledger.entries[u64(e + F_BRANCHES + B_FIELDS * n + i)]
            if 0 <= number < lows[u64(i)]:
                lows[u64(i)] = number
        for b in range(n):
            o = ledger.entries[u64(branch_at(e, b) + B_HEAD)]
            while o >= 0:
                for i in range(m):
                    number = ledger.options[u64(o + 1 + i)]
                    if 0 <= number < lows[u64(i)]:
                        lows[u64(i)] = number
                o = ledger.options[u64(o)]


@jit
def advance(ledger: LedgerArrays) -> None:
    """Raise N_LOW to the oldest entry in use."""
    low, following = ledger.counters[N_LOW], ledger.counters[N_NEXT]
    while low < following and ledger.entries[u64(entry_at(ledger, low) + F_SERIAL)] != low:
        low += 1
    ledger.counters[N_LOW] = low


@jit
def relink(ledger: LedgerArrays, entries: Int64s) -> None:
    """Fill empty buckets with the entries in use, after copying them from another ring of entries, if that is longer.

    entries   the ring that has the entries now
    """
    stride = stride_of(ledger)
    ids, mask = F_BRANCHES + B_FIELDS * ledger.hows.shape[0], entries.shape[0] // stride - 1
    for serial in range(ledger.counters[N_LOW], ledger.counters[N_NEXT]):
        source, e = (serial & mask) * stride, entry_at(ledger, serial)
        if entries[u64(source + F_SERIAL)] != serial:
            continue
        for k in range(stride):
            ledger.entries[u64(e + k)] = entries[u64(source + k)]
        if not ledger.alone:
            bucket = u64(bucket_of(ledger, ledger.entries, e + ids))
            ledger.entries[u64(e + F_LINK)] = ledger.buckets[bucket]
            ledger.buckets[bucket] = e
