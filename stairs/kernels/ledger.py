"""Kernels of the ledger (`stairs.ledger`): events in, rows out.

A kernel stops before an event for which the room for rows or for the log could be too small, and returns the number of
events that it has processed; Python makes room, and calls it again with the rest.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stairs.kernels.accelerate import inlined, jit, step, u64
from stairs.kernels.ledger_arrays import (
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
    N_FIRST_FREED,
    N_FREE_OPTIONS,
    N_FREED,
    N_FRESH,
    N_LIVE,
    N_NEXT,
    N_OPTIONS,
    N_OUT,
    OPTIONS,
    SEMI,
    Int64s,
    LedgerArrays,
    branch_at,
    bucket_of,
    entry_at,
    find,
    has_room,
    put,
)


@inlined
def choices(ledger: LedgerArrays, e: int, b: int) -> int:
    """Return in how many ways a branch can contribute to a row now."""
    at = branch_at(e, b)
    count, how = ledger.entries[u64(at + B_COUNT)], ledger.hows[u64(b)]
    if how == LEFT and count > 0:
        # Options that are not stored are rows only when they come and go.
        return np.int64(count) if ledger.kept[u64(b)] else np.int64(0)
    if how == SEMI:
        return np.int64(count > 0)
    return np.int64(count == 0 and ledger.entries[u64(at + B_DONE)] == 1)


@inlined
def others(ledger: LedgerArrays, e: int, b: int) -> int:
    """Return in how many ways the branches other than b can contribute to a row now; b = -1 for all of them."""
    ways = np.int64(1)
    for k in range(ledger.hows.shape[0]):
        if k != b:
            ways = min(ways * min(choices(ledger, e, k), MOST >> 10), MOST)
    return ways


@inlined
def write(ledger: LedgerArrays, out: int, source: Int64s, first: int) -> None:
    """Write the components at source[first:] that are present into a row."""
    for i in range(ledger.rows.shape[1]):
        n = source[u64(first + i)]
        if n >= 0:
            ledger.rows[u64(out), u64(i)] = n


@step
def emit(ledger: LedgerArrays, sign: int, e: int, b: int, source: Int64s, first: int) -> None:
    """Put out the rows of an entry in which branch b contributes source[first:], or nothing if first is -1.

    The other branches contribute what they can now; b = -1 for all of them.
    """
    ways = others(ledger, e, b)
    if ways > 0:
        first_options(ledger, e, b)
    for _ in range(ways):
        out = common_part(ledger, e)
        if first >= 0:
            write(ledger, out, source, first)
        ledger.signs[u64(out)] = sign
        ledger.counters[N_OUT] = out + 1


@step
def emit_replaced(ledger: LedgerArrays, e: int, b: int, source: Int64s, old: int, new: int, ways: int) -> None:
    """Put out the rows of an entry in which branch b contributes source[new:] in place of source[old:].

    ways   in how many the other branches contribute
    """
    if ways > 0:
        first_options(ledger, e, b)
    for _ in range(ways):
        out = common_part(ledger, e)
        for i in range(ledger.rows.shape[1]):
            ledger.rows[u64(out + 1), u64(i)] = ledger.rows[u64(out), u64(i)]
        write(ledger, out, source, old)
        write(ledger, out + 1, source, new)
        ledger.signs[u64(out)], ledger.signs[u64(out + 1)] = 0, 1
        ledger.counters[N_OUT] = out + 2


@inlined
def first_options(ledger: LedgerArrays, e: int, b: int) -> None:
    """Begin with the newest option of each branch other than b."""
    for k in range(ledger.hows.shape[0]):
        at = branch_at(e, k)
        stored = k != b and ledger.hows[u64(k)] == LEFT and ledger.entries[u64(at + B_COUNT)] > 0
        ledger.turn[u64(k)] = ledger.entries[u64(at + B_HEAD)] if stored else -1


@inlined
def common_part(ledger: LedgerArrays, e: int) -> int:
    """Write what an entry and the options whose turn it is contribute to the next row; return the row."""
    n, ids = ledger.hows.shape[0], F_BRANCHES + B_FIELDS * ledger.hows.shape[0]
    out, turn, advance = ledger.counters[N_OUT], ledger.turn, True
    for i in range(ledger.rows.shape[1]):
        ledger.rows[u64(out), u64(i)] = ledger.entries[u64(e + ids + i)]
    for k in range(n):
        o = turn[u64(k)]
        if o < 0:
            continue
        write(ledger, out, ledger.options, o + 1)
        if advance:
            # The next row has the next option of the first branch that has one left.
            following = ledger.options[u64(o)]
            advance = following < 0
            turn[u64(k)] = ledger.entries[u64(branch_at(e, k) + B_HEAD)] if advance else following
    return np.int64(out)


@jit
def enter(ledger: LedgerArrays, matches: Int64s, done: int, start: int, stop: int) -> int:
    """Make an entry for each match of matches[start:stop]. Return where it stopped.

    done   1 = a missing option counts at once

    There is room for the entries. Nothing is logged: slots that are not in use mean nothing, and an undo fills the
    buckets anew.
    """
    n, m = ledger.hows.shape[0], ledger.rows.shape[1]
    flat, alone = matches.reshape(-1), ledger.alone == 1
    for x in range(start, stop):
        serial = flat[u64(x * m + ledger.key[0])] if alone else ledger.counters[N_NEXT]
        e = entry_at(ledger, serial)
        if not alone:
            bucket = u64(bucket_of(ledger, flat, x * m))
            ledger.entries[u64(e + F_LINK)] = ledger.buckets[bucket]
            ledger.buckets[bucket] = e
        ledger.entries[u64(e + F_SERIAL)] = serial
        for b in range(n):
            at = branch_at(e, b)
            ledger.entries[u64(at + B_COUNT)], ledger.entries[u64(at + B_HEAD)] = 0, -1
            ledger.entries[u64(at + B_DONE)] = done
        for i in range(m):
            ledger.entries[u64(e + F_BRANCHES + B_FIELDS * n + i)] = flat[u64(x * m + i)]
        ledger.counters[N_NEXT] = serial + 1
        ledger.counters[N_LIVE] += 1
    return stop


@jit
def appear(ledger: LedgerArrays, start: int, stop: int) -> int:
    """Put out the rows of the entries start .. stop - 1, by serial number, of which none are out. Return where it
    stopped."""
    for serial in range(start, stop):
        e = entry_at(ledger, serial)
        if ledger.entries[u64(e + F_SERIAL)] != serial:
            continue
        if not has_room(ledger, others(ledger, e, -1), 0):
            return serial
        emit(ledger, 1, e, -1, ledger.options, -1)
    return stop


@jit
def locate(ledger: LedgerArrays, rows: Int64s, places: Int64s) -> None:
    """Write where the entry of each row begins, -1 for none: int64[n]."""
    m = rows.shape[1]
    flat = rows.reshape(-1)
    # The reads of many entries overlap here; in `follow` each would wait for its memory.
    for x in range(rows.shape[0]):
        # An option that replaces another one follows it.
        same = x > 0
        for k in range(ledger.key.shape[0] if same else 0):
            at = x * m + ledger.key[u64(k)]
            same = same and flat[u64(at)] == flat[u64(at - m)]
        places[u64(x)] = places[u64(x - 1)] if same else find(ledger, flat, x * m)


@inlined
def is_fresh(ledger: LedgerArrays, e: int) -> bool:
    """Return whether no rows of an entry are out: `appear` puts them out at the end of the push."""
    return bool(ledger.entries[u64(e + F_SERIAL)] >= ledger.counters[N_FRESH])


@inlined
def new_option(ledger: LedgerArrays) -> int:
    """Return a free option, whose contents may be overwritten without a note in the log."""
    o = ledger.counters[N_FREE_OPTIONS]
    if o >= 0:
        ledger.counters[N_FREE_OPTIONS] = ledger.options[u64(o)]
        return np.int64(o)
    ledger.counters[N_OPTIONS] += 1
    return np.int64((ledger.counters[N_OPTIONS] - 1) * (ledger.rows.shape[1] + 1))


@inlined
def free_option(ledger: LedgerArrays, o: int) -> None:
    """Free an option. Its contents stay until the push is closed, for an undo."""
    if ledger.counters[N_FREED] < 0:
        ledger.counters[N_FIRST_FREED] = o
    put(ledger, OPTIONS, o, ledger.counters[N_FREED])
    ledger.counters[N_FREED] = o


@inlined
def add(ledger: LedgerArrays, e: int, b: int, flat: Int64s, first: int) -> None:
    """Take an option of an entry, and put out what begins and ends with it."""
    at, how, m = branch_at(e, b), ledger.hows[u64(b)], ledger.rows.shape[1]
    count, shown = ledger.entries[u64(at + B_COUNT)], not is_fresh(ledger, e)
    if shown and count == 0 and how != SEMI and ledger.entries[u64(at + B_DONE)] == 1:
        emit(ledger, 0, e, b, ledger.options, -1)
    if how == LEFT:
        if shown or not ledger.kept[u64(b)]:
            emit(ledger, 1, e, b, flat, first)
    elif shown and how == SEMI and count == 0:
        emit(ledger, 1, e, b, ledger.options, -1)
    # While options only come, whether there are some is all that counts.
    if count == 0 or ledger.kept[u64(b)] or ledger.entries[u64(at + B_DONE)] == 1:
        put(ledger, ENTRIES, at + B_COUNT, count + 1)
    if ledger.kept[u64(b)]:
        o = new_option(ledger)
        put(ledger, OPTIONS, o, ledger.entries[u64(at + B_HEAD)])
        for i in range(m):
            ledger.options[u64(o + 1 + i)] = flat[u64(first + i)]
        put(ledger, ENTRIES, at + B_HEAD, o)


@jit
def mark(ledger: LedgerArrays, options: Int64s, start: int, stop: int) -> int:
    """Note that the entries of options[start:stop] have options, where nothing else is to be done (`Ledger.passes`).

    Return where it stopped.
    """
    m = ledger.rows.shape[1]
    flat = options.reshape(-1)
    for x in range(start, stop):
        e = find(ledger, flat, x * m)
        if e >= 0 and ledger.entries[u64(branch_at(e, 0) + B_COUNT)] == 0:
            if not has_room(ledger, 0, 1):
                return x
            put(ledger, ENTRIES, branch_at(e, 0) + B_COUNT, 1)
    return stop


@inlined
def stored_at(ledger: LedgerArrays, e: int, b: int, flat: Int64s, first: int) -> tuple[int, int]:
    """Return a stored option and the one before it in its list, -1 = none."""
    m, before = ledger.rows.shape[1], np.int64(-1)
    o = ledger.entries[u64(branch_at(e, b) + B_HEAD)]
    while o >= 0:
        same = True
        for i in range(m):
            same = same and ledger.options[u64(o + 1 + i)] == flat[u64(first + i)]
        if same:
            break
        before, o = o, ledger.options[u64(o)]
    return np.int64(o), before


@inlined
def remove(ledger: LedgerArrays, e: int, b: int, flat: Int64s, first: int) -> None:
    """Take an option of an entry back, and put out what begins and ends with that."""
    at, how, shown = branch_at(e, b), ledger.hows[u64(b)], not is_fresh(ledger, e)
    count = ledger.entries[u64(at + B_COUNT)] - 1
    if how == LEFT:
        if shown or not ledger.kept[u64(b)]:
            emit(ledger, 0, e, b, flat, first)
    elif shown and how == SEMI and count == 0:
        emit(ledger, 0, e, b, ledger.options, -1)
    put(ledger, ENTRIES, at + B_COUNT, count)
    if ledger.kept[u64(b)]:
        o, before = stored_at(ledger, e, b, flat, first)
        if o >= 0:
            if before < 0:
                put(ledger, ENTRIES, at + B_HEAD, ledger.options[u64(o)])
            else:
                put(ledger, OPTIONS, before, ledger.options[u64(o)])
            free_option(ledger, o)
    if shown and count == 0 and how != SEMI and ledger.entries[u64(at + B_DONE)] == 1:
        emit(ledger, 1, e, b, ledger.options, -1)


@inlined
def replace(ledger: LedgerArrays, e: int, b: int, flat: Int64s, old: int, new: int, ways: int) -> None:
    """Put an option of an entry in the place of another one, and put out what begins and ends with that.

    ways   in how many the other branches contribute
    """
    if ledger.hows[u64(b)] != LEFT:
        return
    kept = ledger.kept[u64(b)]
    if not kept or not is_fresh(ledger, e):
        emit_replaced(ledger, e, b, flat, old, new, ways)
    if kept:
        o, _ = stored_at(ledger, e, b, flat, old)
        for i in range(ledger.rows.shape[1]):
            if o >= 0 and flat[u64(old + i)] != flat[u64(new + i)]:
                put(ledger, OPTIONS, o + 1 + i, flat[u64(new + i)])


@jit
def follow(
    ledger: LedgerArrays, b: int, options: Int64s, signs: npt.NDArray[np.uint8], places: Int64s, start: int, stop: int
) -> int:
    """Process options[start:stop] of a branch, which begin (sign 1) or end (0). Return where it stopped.

    places   of their entries, as `locate` writes them

    An option that ends just before one of the same entry begins is replaced by it.
    """
    m = ledger.rows.shape[1]
    flat = options.reshape(-1)
    x = np.int64(start)
    while x < stop:
        e = places[u64(x)]
        if e >= 0:
            ways = others(ledger, e, b)
            if not has_room(ledger, 2 * ways, m + 5):
                return x
            if signs[u64(x)]:
                add(ledger, e, b, flat, x * m)
            elif x + 1 < stop and places[u64(x + 1)] == e and signs[u64(x + 1)]:
                replace(ledger, e, b, flat, x * m, (x + 1) * m, ways)
                x += 1
            else:
                remove(ledger, e, b, flat, x * m)
        x += 1
    return x


@inlined
def drop(ledger: LedgerArrays, e: int) -> None:
    """Free an entry and its options."""
    if not ledger.alone:
        ids = F_BRANCHES + B_FIELDS * ledger.hows.shape[0]
        bucket = bucket_of(ledger, ledger.entries, e + ids)
        link, x = ledger.entries[u64(e + F_LINK)], ledger.buckets[u64(bucket)]
        if x == e:
            put(ledger, BUCKETS, bucket, link)
        else:
            while ledger.entries[u64(x + F_LINK)] != e:
                x = ledger.entries[u64(x + F_LINK)]
            put(ledger, ENTRIES, x + F_LINK, link)
    for b in range(ledger.hows.shape[0]):
        o = ledger.entries[u64(branch_at(e, b) + B_HEAD)]
        while o >= 0:
            following = ledger.options[u64(o)]
            free_option(ledger, o)
            o = following
    put(ledger, ENTRIES, e + F_SERIAL, -1)
    ledger.counters[N_LIVE] -= 1


@inlined
def stored(ledger: LedgerArrays, e: int) -> int:
    """Return how many options of an entry are stored."""
    n = np.int64(0)
    for b in range(ledger.hows.shape[0]):
        if ledger.kept[u64(b)]:
            n += ledger.entries[u64(branch_at(e, b) + B_COUNT)]
    return n


@jit
def close(ledger: LedgerArrays, due: Int64s, start: int, stop: int) -> int:
    """Process due[start:stop], serial number * branches + branch: no further option can come there.

    Return where it stopped. An entry whose branches are all done is freed.
    """
    n = ledger.hows.shape[0]
    for x in range(start, stop):
        # Most entries have one branch, and a division takes as long as the rest.
        serial, b = (due[u64(x)], 0) if n == 1 else (due[u64(x)] // n, due[u64(x)] % n)
        e = entry_at(ledger, serial)
        at = branch_at(e, b)
        if ledger.entries[u64(e + F_SERIAL)] != serial or ledger.entries[u64(at + B_DONE)] == 1:
            continue
        if not has_room(ledger, others(ledger, e, b), stored(ledger, e) + 6):
            return x
        put(ledger, ENTRIES, at + B_DONE, 1)
        if ledger.entries[u64(at + B_COUNT)] == 0 and ledger.hows[u64(b)] != SEMI:
            emit(ledger, 1, e, b, ledger.options, -1)
        done = True
        for k in range(n):
            done = done and ledger.entries[u64(branch_at(e, k) + B_DONE)] == 1
        if done:
            drop(ledger, e)
    return stop


@jit
def leave(ledger: LedgerArrays, places: Int64s, stays: int, start: int, stop: int) -> int:
    """Take the rows back of the entries at places[start:stop], and free them. Return where it stopped.

    stays   1 = the entries stay until `forget`, with rows for the options that still end; no row is out without one
    """
    for x in range(start, stop):
        e = places[u64(x)]
        if e < 0:
            continue
        if not has_room(ledger, others(ledger, e, -1), stored(ledger, e) + 6):
            return x
        if not is_fresh(ledger, e):
            emit(ledger, 0, e, -1, ledger.options, -1)
        if stays:
            put(ledger, ENTRIES, branch_at(e, 0) + B_DONE, 0)
        else:
            drop(ledger, e)
    return stop


@jit
def forget(ledger: LedgerArrays, places: Int64s, start: int, stop: int) -> int:
    """Free the entries at places[start:stop], whose rows stay. Return where it stopped."""
    for x in range(start, stop):
        e = places[u64(x)]
        if e >= 0 and ledger.entries[u64(e + F_SERIAL)] >= 0:
            if not has_room(ledger, 0, stored(ledger, e) + 6):
                return x
            drop(ledger, e)
    return stop
