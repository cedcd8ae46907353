"""Kernels of the ledger (`stairs.ledger`): events in, rows out.

Writes to the arrays of a ledger go through `put`, which logs the old value, so that a push can be undone. A kernel
stops before an event for which the room for rows or for the log could be too small, and returns the number of events
that it has processed; Python makes room, and calls it again with the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stairs.kernels.accelerate import inlined, jit, step, u64
from stairs.kernels.rows import MIX

Int64s = npt.NDArray[np.int64]

LEFT, SEMI, ANTI = 0, 1, 2
"""How a branch hangs on its parent."""
HOWS = ("left", "semi", "anti")

N_LOW, N_NEXT, N_LIVE, N_OPTIONS, N_FREE_OPTIONS, N_OUT, N_LOG, N_ROWS, N_WRITES, N_COUNTERS = range(10)
"""Counters: entries in use have serial numbers from N_LOW to N_NEXT - 1, and N_LIVE is how many they are; options ever
used, and the first free one; rows put out; values logged; rows and writes for which the next event needs room."""
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


class Book(NamedTuple):
    """The arrays of a ledger.

    entries   int64[]      a ring of 2^n entries by serial number, `stride_of` numbers each
    options   int64[]      options: the next one of the same entry and branch, then a component for each stream
    buckets   int64[2^n]   the first entry of each bucket, -1 = none; only where a match has several components
    counters  int64[N_COUNTERS]
    hows      int64[branches]
    key       int64[]      the streams of a match, whose components identify an entry
    kept      int64[branches]  1 = the options are stored
    rows      int64[room, streams]  rows put out
    signs     uint8[room]  1 = the row begins, 0 = it ends
    log       int64[]      what was overwritten
    turn      int64[branches]  the option of each branch in the present row
    """

    entries: Int64s
    options: Int64s
    buckets: Int64s
    counters: Int64s
    hows: Int64s
    key: Int64s
    kept: Int64s
    rows: Int64s
    signs: npt.NDArray[np.uint8]
    log: Int64s
    turn: Int64s


@inlined
def put(book: Book, which: int, x: int, value: int) -> None:
    """Write a number, and log the old one."""
    at = u64(book.counters[N_LOG] * LOGGED)
    array = book.entries if which == ENTRIES else (book.options if which == OPTIONS else book.buckets)
    book.log[at], book.log[at + u64(1)], book.log[at + u64(2)] = which, x, array[u64(x)]
    array[u64(x)] = value
    book.counters[N_LOG] += 1


@jit
def undo(book: Book, first: int) -> None:
    """Take back the writes from number `first` on, the newest first."""
    for n in range(book.counters[N_LOG] - 1, first - 1, -1):
        which, x, old = book.log[3 * n], book.log[3 * n + 1], book.log[3 * n + 2]
        if which == ENTRIES:
            book.entries[u64(x)] = old
        elif which == OPTIONS:
            book.options[u64(x)] = old
        else:
            book.buckets[u64(x)] = old
    book.counters[N_LOG] = first


@inlined
def stride_of(book: Book) -> int:
    """Return how many numbers an entry has."""
    return F_BRANCHES + B_FIELDS * book.hows.shape[0] + book.rows.shape[1]


@inlined
def entry_at(book: Book, serial: int) -> int:
    """Return where the entry with a serial number begins."""
    stride = stride_of(book)
    return (serial & (book.entries.shape[0] // stride - 1)) * stride


@inlined
def bucket_of(book: Book, components: Int64s, first: int) -> int:
    """Return the bucket of a match, whose components lie at components[first:]."""
    code = np.int64(0)
    for k in range(book.key.shape[0]):
        code = (code ^ components[u64(first + book.key[u64(k)])]) * MIX
        code ^= code >> 29
    return code & (book.buckets.shape[0] - 1)


@inlined
def find(book: Book, components: Int64s, first: int) -> int:
    """Return where the entry of a match begins, -1 if there is none."""
    if book.key.shape[0] == 1:
        # The serial number is the component.
        serial = components[u64(first + book.key[0])]
        e = entry_at(book, serial)
        return np.int64(e) if book.entries[u64(e + F_SERIAL)] == serial else np.int64(-1)
    ids = F_BRANCHES + B_FIELDS * book.hows.shape[0]
    e = book.buckets[u64(bucket_of(book, components, first))]
    while e >= 0:
        same = True
        for k in range(book.key.shape[0]):
            i = book.key[u64(k)]
            same = same and book.entries[u64(e + ids + i)] == components[u64(first + i)]
        if same:
            return np.int64(e)
        e = book.entries[u64(e + F_LINK)]
    return np.int64(-1)


@inlined
def branch_at(e: int, b: int) -> int:
    """Return where the fields of a branch of an entry begin."""
    return e + F_BRANCHES + B_FIELDS * b


@inlined
def choices(book: Book, e: int, b: int) -> int:
    """Return in how many ways a branch can contribute to a row now."""
    at = branch_at(e, b)
    count, how = book.entries[u64(at + B_COUNT)], book.hows[u64(b)]
    if how == LEFT and count > 0:
        # Options that are not stored are rows only when they come and go.
        return np.int64(count) if book.kept[u64(b)] else np.int64(0)
    if how == SEMI:
        return np.int64(count > 0)
    return np.int64(count == 0 and book.entries[u64(at + B_DONE)] == 1)


@inlined
def others(book: Book, e: int, b: int) -> int:
    """Return in how many ways the branches other than b can contribute to a row now; b = -1 for all of them."""
    ways = np.int64(1)
    for k in range(book.hows.shape[0]):
        if k != b:
            ways = min(ways * min(choices(book, e, k), MOST >> 10), MOST)
    return ways


@inlined
def write(book: Book, source: Int64s, first: int) -> None:
    """Write the components at source[first:] that are present into the row at hand."""
    row = book.rows[u64(book.counters[N_OUT])]
    for i in range(row.shape[0]):
        n = source[u64(first + i)]
        if n >= 0:
            row[u64(i)] = n


@step
def emit(book: Book, sign: int, e: int, b: int, source: Int64s, first: int) -> None:
    """Put out the rows of an entry in which branch b contributes source[first:], or nothing if first is -1.

    The other branches contribute what they can now; b = -1 for all of them.
    """
    n, m, ids = book.hows.shape[0], book.rows.shape[1], F_BRANCHES + B_FIELDS * book.hows.shape[0]
    ways = others(book, e, b)
    if ways == 0:
        return
    turn = book.turn
    for k in range(n):
        at = branch_at(e, k)
        stored = k != b and book.hows[u64(k)] == LEFT and book.entries[u64(at + B_COUNT)] > 0
        turn[u64(k)] = book.entries[u64(at + B_HEAD)] if stored else -1
    for _ in range(ways):
        out = u64(book.counters[N_OUT])
        for i in range(m):
            book.rows[out, u64(i)] = book.entries[u64(e + ids + i)]
        if first >= 0:
            write(book, source, first)
        advance = True
        for k in range(n):
            o = turn[u64(k)]
            if o < 0:
                continue
            write(book, book.options, o + 1)
            if advance:
                # The next row has the next option of the first branch that has one left.
                following = book.options[u64(o)]
                advance = following < 0
                turn[u64(k)] = book.entries[u64(branch_at(e, k) + B_HEAD)] if advance else following
        book.signs[out] = sign
        book.counters[N_OUT] += 1


@inlined
def has_room(book: Book, rows: int, writes: int) -> bool:
    """Return whether so many rows can be put out, and so many writes logged."""
    book.counters[N_ROWS], book.counters[N_WRITES] = rows, writes
    fits = book.counters[N_OUT] + rows <= book.rows.shape[0]
    return fits and (book.counters[N_LOG] + writes) * LOGGED <= book.log.shape[0]


@jit
def enter(book: Book, matches: Int64s, done: int, start: int, stop: int) -> int:
    """Make an entry for each match of matches[start:stop]. Return where it stopped.

    done   1 = a missing option counts at once

    There is room for the entries. Nothing is logged: slots that are not in use mean nothing, and an undo fills the
    buckets anew.
    """
    n, m = book.hows.shape[0], book.rows.shape[1]
    flat, alone = matches.reshape(-1), book.key.shape[0] == 1
    for x in range(start, stop):
        if not has_room(book, 1, 0):
            return x
        serial = flat[u64(x * m + book.key[0])] if alone else book.counters[N_NEXT]
        e = entry_at(book, serial)
        if not alone:
            bucket = u64(bucket_of(book, flat, x * m))
            book.entries[u64(e + F_LINK)] = book.buckets[bucket]
            book.buckets[bucket] = e
        book.entries[u64(e + F_SERIAL)] = serial
        for b in range(n):
            at = branch_at(e, b)
            book.entries[u64(at + B_COUNT)], book.entries[u64(at + B_HEAD)] = 0, -1
            book.entries[u64(at + B_DONE)] = done
        for i in range(m):
            book.entries[u64(e + F_BRANCHES + B_FIELDS * n + i)] = flat[u64(x * m + i)]
        book.counters[N_NEXT] = serial + 1
        book.counters[N_LIVE] += 1
        if done:
            emit(book, 1, e, -1, book.options, -1)
    return stop


@inlined
def add(book: Book, e: int, b: int, flat: Int64s, first: int) -> None:
    """Take an option of an entry, and put out what begins and ends with it."""
    at, how, m = branch_at(e, b), book.hows[u64(b)], book.rows.shape[1]
    count = book.entries[u64(at + B_COUNT)]
    if count == 0 and how != SEMI and book.entries[u64(at + B_DONE)] == 1:
        emit(book, 0, e, b, book.options, -1)
    if how == LEFT:
        emit(book, 1, e, b, flat, first)
    elif how == SEMI and count == 0:
        emit(book, 1, e, b, book.options, -1)
    # While options only come, whether there are some is all that counts.
    if count == 0 or book.kept[u64(b)] or book.entries[u64(at + B_DONE)] == 1:
        put(book, ENTRIES, at + B_COUNT, count + 1)
    if book.kept[u64(b)]:
        o = book.counters[N_FREE_OPTIONS]
        if o >= 0:
            book.counters[N_FREE_OPTIONS] = book.options[u64(o)]
        else:
            o = book.counters[N_OPTIONS] * (m + 1)
            book.counters[N_OPTIONS] += 1
        put(book, OPTIONS, o, book.entries[u64(at + B_HEAD)])
        for i in range(m):
            put(book, OPTIONS, o + 1 + i, flat[u64(first + i)])
        put(book, ENTRIES, at + B_HEAD, o)


@jit
def mark(book: Book, options: Int64s, start: int, stop: int) -> int:
    """Note that the entries of options[start:stop] have options, where nothing else is to be done (`Ledger.passes`).

    Return where it stopped.
    """
    m = book.rows.shape[1]
    flat = options.reshape(-1)
    for x in range(start, stop):
        e = find(book, flat, x * m)
        if e >= 0 and book.entries[u64(branch_at(e, 0) + B_COUNT)] == 0:
            if not has_room(book, 0, 1):
                return x
            put(book, ENTRIES, branch_at(e, 0) + B_COUNT, 1)
    return stop


@inlined
def forget(book: Book, e: int, b: int, flat: Int64s, first: int) -> None:
    """Remove a stored option from its list."""
    m, before = book.rows.shape[1], np.int64(-1)
    at = branch_at(e, b)
    o = book.entries[u64(at + B_HEAD)]
    while o >= 0:
        same = True
        for i in range(m):
            same = same and book.options[u64(o + 1 + i)] == flat[u64(first + i)]
        if same:
            break
        before, o = o, book.options[u64(o)]
    if o < 0:
        return
    if before < 0:
        put(book, ENTRIES, at + B_HEAD, book.options[u64(o)])
    else:
        put(book, OPTIONS, before, book.options[u64(o)])
    put(book, OPTIONS, o, book.counters[N_FREE_OPTIONS])
    book.counters[N_FREE_OPTIONS] = o


@inlined
def remove(book: Book, e: int, b: int, flat: Int64s, first: int) -> None:
    """Take an option of an entry back, and put out what begins and ends with that."""
    at, how = branch_at(e, b), book.hows[u64(b)]
    count = book.entries[u64(at + B_COUNT)] - 1
    if how == LEFT:
        emit(book, 0, e, b, flat, first)
    elif how == SEMI and count == 0:
        emit(book, 0, e, b, book.options, -1)
    put(book, ENTRIES, at + B_COUNT, count)
    if book.kept[u64(b)]:
        forget(book, e, b, flat, first)
    if count == 0 and how != SEMI and book.entries[u64(at + B_DONE)] == 1:
        emit(book, 1, e, b, book.options, -1)


@jit
def follow(book: Book, b: int, options: Int64s, signs: npt.NDArray[np.uint8], start: int, stop: int) -> int:
    """Process options[start:stop] of a branch, which begin (sign 1) or end (0). Return where it stopped."""
    m = book.rows.shape[1]
    flat = options.reshape(-1)
    for x in range(start, stop):
        e = find(book, flat, x * m)
        if e < 0:
            continue
        if not has_room(book, 2 * others(book, e, b), m + 5):
            return x
        if signs[u64(x)]:
            add(book, e, b, flat, x * m)
        else:
            remove(book, e, b, flat, x * m)
    return stop


@inlined
def drop(book: Book, e: int) -> None:
    """Free an entry and its options."""
    if book.key.shape[0] > 1:
        ids = F_BRANCHES + B_FIELDS * book.hows.shape[0]
        bucket = bucket_of(book, book.entries, e + ids)
        link, x = book.entries[u64(e + F_LINK)], book.buckets[u64(bucket)]
        if x == e:
            put(book, BUCKETS, bucket, link)
        else:
            while book.entries[u64(x + F_LINK)] != e:
                x = book.entries[u64(x + F_LINK)]
            put(book, ENTRIES, x + F_LINK, link)
    for b in range(book.hows.shape[0]):
        o = book.entries[u64(branch_at(e, b) + B_HEAD)]
        while o >= 0:
            following = book.options[u64(o)]
            put(book, OPTIONS, o, book.counters[N_FREE_OPTIONS])
            book.counters[N_FREE_OPTIONS] = o
            o = following
    put(book, ENTRIES, e + F_SERIAL, -1)
    book.counters[N_LIVE] -= 1


@inlined
def stored(book: Book, e: int) -> int:
    """Return how many options of an entry are stored."""
    n = np.int64(0)
    for b in range(book.hows.shape[0]):
        if book.kept[u64(b)]:
            n += book.entries[u64(branch_at(e, b) + B_COUNT)]
    return n


@jit
def close(book: Book, due: Int64s, start: int, stop: int) -> int:
    """Process due[start:stop], serial number * branches + branch: no further option can come there.

    Return where it stopped. An entry whose branches are all done is freed.
    """
    n = book.hows.shape[0]
    for x in range(start, stop):
        serial, b = due[u64(x)] // n, due[u64(x)] % n
        e = entry_at(book, serial)
        at = branch_at(e, b)
        if book.entries[u64(e + F_SERIAL)] != serial or book.entries[u64(at + B_DONE)] == 1:
            continue
        if not has_room(book, others(book, e, b), stored(book, e) + 6):
            return x
        put(book, ENTRIES, at + B_DONE, 1)
        if book.entries[u64(at + B_COUNT)] == 0 and book.hows[u64(b)] != SEMI:
            emit(book, 1, e, b, book.options, -1)
        done = True
        for k in range(n):
            done = done and book.entries[u64(branch_at(e, k) + B_DONE)] == 1
        if done:
            drop(book, e)
    return stop


@jit
def leave(book: Book, matches: Int64s, start: int, stop: int) -> int:
    """Process matches[start:stop], which end, after their options. Return where it stopped."""
    m = book.rows.shape[1]
    flat = matches.reshape(-1)
    for x in range(start, stop):
        e = find(book, flat, x * m)
        if e < 0:
            continue
        if not has_room(book, others(book, e, -1), stored(book, e) + 6):
            return x
        emit(book, 0, e, -1, book.options, -1)
        drop(book, e)
    return stop


@jit
def least(book: Book, lows: Int64s) -> None:
    """Lower lows[i] to the smallest component of stream i in the entries and stored options."""
    n, m = book.hows.shape[0], book.rows.shape[1]
    for serial in range(book.counters[N_LOW], book.counters[N_NEXT]):
        e = entry_at(book, serial)
        if book.entries[u64(e + F_SERIAL)] != serial:
            continue
        for i in range(m):
            number = book.entries[u64(e + F_BRANCHES + B_FIELDS * n + i)]
            if 0 <= number < lows[u64(i)]:
                lows[u64(i)] = number
        for b in range(n):
            o = book.entries[u64(branch_at(e, b) + B_HEAD)]
            while o >= 0:
                for i in range(m):
                    number = book.options[u64(o + 1 + i)]
                    if 0 <= number < lows[u64(i)]:
                        lows[u64(i)] = number
                o = book.options[u64(o)]


@jit
def advance(book: Book) -> None:
    """Raise N_LOW to the oldest entry in use."""
    low, following = book.counters[N_LOW], book.counters[N_NEXT]
    while low < following and book.entries[u64(entry_at(book, low) + F_SERIAL)] != low:
        low += 1
    book.counters[N_LOW] = low


@jit
def relink(book: Book, entries: Int64s) -> None:
    """Fill empty buckets with the entries in use, after copying them from another ring of entries, if that is longer.

    entries   the ring that has the entries now
    """
    stride = stride_of(book)
    ids, mask = F_BRANCHES + B_FIELDS * book.hows.shape[0], entries.shape[0] // stride - 1
    for serial in range(book.counters[N_LOW], book.counters[N_NEXT]):
        source, e = (serial & mask) * stride, entry_at(book, serial)
        if entries[u64(source + F_SERIAL)] != serial:
            continue
        for k in range(stride):
            book.entries[u64(e + k)] = entries[u64(source + k)]
        if book.key.shape[0] > 1:
            bucket = u64(bucket_of(book, book.entries, e + ids))
            book.entries[u64(e + F_LINK)] = book.buckets[bucket]
            book.buckets[bucket] = e
