"""Tables: streams whose changes end the versions that came before them.

A change of a table is an arrival like others. An *upsert* is a version of the row with its primary key, and lies in the
ring of records of its stream; a *delete* lies there as well, as a version that never lived. Each change ends the living
version with its key. So a ring is a log of versions, most of whose rules are those of a stream: sequence numbers rise,
chains are newest first, and an undo unlinks the newest versions first. Three things are added:

    life      Whether a version lives: ALIVE, the place of the event in the open chunk that ends it, or DEAD.
    burial    An ended version leaves its chains when the event that ended it is closed. So chains contain living
              versions only, except within a chunk. For that a record also has, for each attribute, the newer neighbour
              in the chain. The first key id of a buried version is negative, as that of a tuple that cannot join.
    number    A version keeps its arrival number in a ring of values: a ring of which most versions are dead is
              compacted (`stairs.versions`), and its living versions get other sequence numbers then.

    a record with two attributes and a primary key (k is the key id):

        link k0 | link k1 | link k2 | newer0 newer1 newer2 | life  ended  at
                                                             `ended`: the version that this change ended, -1 = none
                                                             `at`: S_NEXT of the stream when that was buried

Sequence numbers are never used again, in contrast to slots of a free list. So an entry of a stored state is dead
exactly if a component is below its low mark or not ALIVE.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    A_MARKS,
    A_OFFSET,
    M_INTERN_ATTR,
    M_MARKS,
    S_ATTR0,
    S_ATTR1,
    S_KEY,
    S_LIFE,
    S_LO,
    S_MASK,
    S_NEXT,
    S_RECS,
    S_VALUES,
    S_WIDTH,
)
from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.marks import MARKED, head_of, head_with, newest_of
from stairs.memory.arena import Arena

ALIVE = (1 << 31) - 1
DEAD = -1
LIFE_FIELDS = 3
"""int32s of a record after the newer neighbours: life, the version that the change ended, where it was buried."""
NULL, DELETE = 1, 2
"""Marks of a row in the input of a push: it cannot join; it is a delete."""
DELETED_KEY = -2
"""First key id of a delete; that of a version that cannot join is -1."""
BURIED = -3
"""The first key id k of a buried version is BURIED - k."""


@inlined
def record_at(arena: Arena, i: int, s: int) -> int:
    """Return where the record of tuple s of stream i starts in `recs`."""
    row = arena.streams[u64(i)]
    return row[S_RECS] + (s & row[S_MASK]) * row[S_WIDTH]


@inlined
def life_of(arena: Arena, i: int, s: int) -> int:
    """Return the life of version s of table i."""
    return arena.recs[u64(record_at(arena, i, s) + arena.streams[u64(i), S_LIFE])]


@inlined
def newer_at(arena: Arena, i: int, x: int, s: int) -> int:
    """Return where the newer neighbour of version s of table i, in its chain by attribute x, lies in `recs`."""
    row = arena.streams[u64(i)]
    first = row[S_LIFE] - (row[S_ATTR1] - row[S_ATTR0])
    return record_at(arena, i, s) + first + (arena.attrs[u64(x), A_OFFSET] >> 1)


@inlined
def open_versions(arena: Arena, i: int, rows: int) -> None:
    """Make ready the records of the changes of table i in a push of `rows` changes, whose key ids are written."""
    row, recs = arena.streams[u64(i)], arena.recs
    for s in range(row[S_NEXT], row[S_NEXT] + rows):
        record = record_at(arena, i, s)
        at = record + row[S_LIFE]
        recs[u64(at)] = DEAD if recs[u64(record + 1)] == DELETED_KEY else ALIVE
        recs[u64(at + 1)] = -1
        recs[u64(at + 2)] = 0


@inlined
def is_delete(arena: Arena, i: int, s: int) -> bool:
    """Return whether change s of table i is a delete."""
    return arena.recs[u64(record_at(arena, i, s) + 1)] == DELETED_KEY


@inlined
def ended_by(arena: Arena, i: int, s: int) -> int:
    """Return the version that change s of table i ended, as far as that was asked before; -1 for none."""
    return np.int64(arena.recs[u64(record_at(arena, i, s) + arena.streams[u64(i), S_LIFE] + 1)])


@inlined
def end_version(arena: Arena, i: int, s: int) -> int:
    """Return the living version with the key of change s of table i, and note that s ends it; -1 for none.

    The change is in no chain yet.
    """
    row = arena.streams[u64(i)]
    record = record_at(arena, i, s)
    newest = np.int64(arena.heads[u64(head_of(arena, row[S_KEY], record))])
    if newest < row[S_LO] or life_of(arena, i, newest) != ALIVE:
        return np.int64(-1)
    arena.recs[u64(record + row[S_LIFE] + 1)] = newest
    return newest


@inlined
def set_life(arena: Arena, i: int, s: int, state: int) -> None:
    """Set the life of version s of table i."""
    arena.recs[u64(record_at(arena, i, s) + arena.streams[u64(i), S_LIFE])] = state


@inlined
def link_version(arena: Arena, i: int, x: int, s: int) -> None:
    """Insert version s of table i into its chain by attribute x, as the newest one. A delete must not be inserted."""
    record = record_at(arena, i, s)
    at = record + arena.attrs[u64(x), A_OFFSET]
    if arena.recs[u64(at + 1)] >= 0:
        p = u64(head_of(arena, x, record))
        older = newest_of(arena.heads[p])
        arena.recs[u64(at)] = older
        arena.recs[u64(newer_at(arena, i, x, s))] = -1
        if older >= 0:
            arena.recs[u64(newer_at(arena, i, x, older))] = s
        arena.heads[p] = head_with(arena.heads[p], s)


@inlined
def insert_version(arena: Arena, i: int, s: int) -> None:
    """Insert change s of table i into its chains; a delete is in none."""
    if not is_delete(arena, i, s):
        for x in range(arena.streams[u64(i), S_ATTR0], arena.streams[u64(i), S_ATTR1]):
            link_version(arena, i, x, s)


@inlined
def bury(arena: Arena, i: int, s: int, by: int) -> None:
    """Remove version s of table i, which change `by` ended, from its chains: it is dead."""
    recs, attrs, row = arena.recs, arena.attrs, arena.streams[u64(i)]
    record = record_at(arena, i, s)
    for x in range(row[S_ATTR0], row[S_ATTR1]):
        at = record + attrs[u64(x), A_OFFSET]
        if recs[u64(at + 1)] < 0:
            continue
        older, newer = np.int64(recs[u64(at)]), np.int64(recs[u64(newer_at(arena, i, x, s))])
        if newer >= 0:
            recs[u64(record_at(arena, i, newer) + attrs[u64(x), A_OFFSET])] = older
        else:
            p = u64(head_of(arena, x, record))
            marked = arena.heads[p] <= MARKED
            if marked and older < 0:
                # An empty list is blocked without a mark.
                attrs[u64(x), A_MARKS] -= 1
                arena.meta[M_MARKS] -= 1
            arena.heads[p] = MARKED - older if marked and older >= 0 else older
        if older >= 0:
            recs[u64(newer_at(arena, i, x, older))] = newer
    if recs[u64(record + 1)] >= 0:
        recs[u64(record + 1)] = BURIED - recs[u64(record + 1)]
    recs[u64(record + row[S_LIFE])] = DEAD
    recs[u64(record_at(arena, i, by) + row[S_LIFE] + 2)] = row[S_NEXT]


@inlined
def unbury(arena: Arena, i: int, s: int) -> None:
    """Revert the burial of version s of table i. All that was linked or buried after it has been reverted."""
    recs, attrs, row = arena.recs, arena.attrs, arena.streams[u64(i)]
    record = record_at(arena, i, s)
    if recs[u64(record + 1)] <= BURIED:
        recs[u64(record + 1)] = BURIED - recs[u64(record + 1)]
    for x in range(row[S_ATTR0], row[S_ATTR1]):
        at = record + attrs[u64(x), A_OFFSET]
        if recs[u64(at + 1)] < 0:
            continue
        older, newer = np.int64(recs[u64(at)]), np.int64(recs[u64(newer_at(arena, i, x, s))])
        if newer >= 0:
            recs[u64(record_at(arena, i, newer) + attrs[u64(x), A_OFFSET])] = s
        else:
            arena.heads[u64(head_of(arena, x, record))] = s
        if older >= 0:
            recs[u64(newer_at(arena, i, x, older))] = s
    recs[u64(record + row[S_LIFE])] = ALIVE


@inlined
def unlink_from(arena: Arena, i: int, first: int, end: int) -> None:
    """Remove the versions first .. end - 1 of table i from their chains, of which they are the newest. No list is
    marked."""
    recs, attrs, row = arena.recs, arena.attrs, arena.streams[u64(i)]
    for s in range(end - 1, first - 1, -1):
        record = record_at(arena, i, s)
        if recs[u64(record + 1)] == DELETED_KEY:
            continue
        for x in range(row[S_ATTR0], row[S_ATTR1]):
            at = record + attrs[u64(x), A_OFFSET]
            if recs[u64(at + 1)] >= 0:
                older = np.int64(recs[u64(at)])
                arena.heads[u64(head_of(arena, x, record))] = older
                if older >= 0:
                    recs[u64(newer_at(arena, i, x, older))] = -1


@inlined
def undo_versions(arena: Arena, i: int, first: int, rows: int) -> None:
    """Undo a push of `rows` changes of table i, the first of which has number `first`: the last burial comes first.

    The marks are cleared, and S_NEXT is that of the push.
    """
    row = arena.streams[u64(i)]
    end = row[S_NEXT]
    if arena.meta[M_INTERN_ATTR] > row[S_KEY]:
        for s in range(first + rows - 1, first - 1, -1):
            at = record_at(arena, i, s) + row[S_LIFE]
            ended = np.int64(arena.recs[u64(at + 1)])
            if ended < 0:
                continue
            if life_of(arena, i, ended) == DEAD:
                buried = np.int64(arena.recs[u64(at + 2)])
                unlink_from(arena, i, buried, end)
                end = min(end, buried)
                unbury(arena, i, ended)
            else:
                set_life(arena, i, ended, ALIVE)
            arena.recs[u64(at + 1)] = -1
    unlink_from(arena, i, first, end)


@inlined
def pass_dead(arena: Arena, i: int, end: int) -> int:
    """Return the first version of table i from its low mark on, before `end`, that is not dead. Amortised O(1)."""
    low = arena.streams[u64(i), S_LO]
    while low < end and life_of(arena, i, low) == DEAD:
        low += 1
    return low


@inlined
def renumber_links(arena: Arena, i: int, s: int, to: np.ndarray) -> None:
    """Write the new numbers to[version - low mark] of the neighbours of living version s, and its own as a head."""
    recs, row = arena.recs, arena.streams[u64(i)]
    record, low = record_at(arena, i, s), row[S_LO]
    for x in range(row[S_ATTR0], row[S_ATTR1]):
        at, above = record + arena.attrs[u64(x), A_OFFSET], newer_at(arena, i, x, s)
        if recs[u64(at + 1)] < 0:
            continue
        older, newer = np.int64(recs[u64(at)]), np.int64(recs[u64(above)])
        if older >= 0:
            recs[u64(at)] = to[u64(older - low)]
        if newer >= 0:
            recs[u64(above)] = to[u64(newer - low)]
        else:
            arena.heads[u64(head_of(arena, x, record))] = to[u64(s - low)]


@jit
def compact_versions(arena: Arena, i: int, to: np.ndarray, rings: int, moves: np.ndarray) -> None:
    """Move the living versions of table i to the places of their new numbers, none of which is lower. No list is
    marked.

    The versions move from the newest on, so none is overwritten before it has moved. One call does everything, because
    an exception must not come between.

    to     int64[versions from the low mark on], the new number of each, -1 = it is dead
    rings  rings of values of the table
    moves  int64[1], the number of compactions, which rises by one
    """
    recs, values, row = arena.recs, arena.values, arena.streams[u64(i)]
    low, following, room = row[S_LO], row[S_NEXT], row[S_MASK] + 1
    first = following
    for s in range(following - 1, low - 1, -1):
        new = to[u64(s - low)]
        if new < 0:
            continue
        renumber_links(arena, i, s, to)
        first = new
        if new != s:
            old_record, new_record = record_at(arena, i, s), record_at(arena, i, new)
            for k in range(row[S_WIDTH]):
                recs[u64(new_record + k)] = recs[u64(old_record + k)]
            for ring in range(rings):
                start = row[S_VALUES] + ring * room
                values[u64(start + (new & row[S_MASK]))] = values[u64(start + (s & row[S_MASK]))]
    row[S_LO] = first
    moves[0] += 1
