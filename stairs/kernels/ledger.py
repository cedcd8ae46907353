"""Kernels of the ledger (`stairs.ledger`): events in, rows out.

A kernel stops before an event for which the room for rows or for the log could be too small, and returns the number of
events that it has processed; Python makes room, and calls it again with the rest.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stairs.kernels.accelerate import inlined, jit, step, u64
from stairs.kernels.book import (
    B_COUNT,
    B_DONE,
    B_FIELDS,
    B_HEAD,
    BUCKETS,
    ENTRIES,
    F_BRANCHES,
    F_LINK,
    F_SERIAL,
    LEFT,
    MOST,
    N_FREE_OPTIONS,
    N_LIVE,
    N_NEXT,
    N_OPTIONS,
    N_OUT,
    OPTIONS,
    SEMI,
    Book,
    Int64s,
    branch_at,
    bucket_of,
    entry_at,
    find,
    has_room,
    put,
)


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


@jit
def enter(book: Book, matches: Int64s, done: int, start: int, stop: int) -> int:
    """Make an entry for each match of matches[start:stop]. Return where it stopped.

    done   1 = a missing option counts at once

    There is room for the entries. Nothing is logged: slots that are not in use mean nothing, and an undo fills the
    buckets anew.
    """
    n, m = book.hows.shape[0], book.rows.shape[1]
    flat, alone = matches.reshape(-1), book.alone == 1
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
    if not book.alone:
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
        # Most entries have one branch, and a division takes as long as the rest.
        serial, b = (due[u64(x)], 0) if n == 1 else (due[u64(x)] // n, due[u64(x)] % n)
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
