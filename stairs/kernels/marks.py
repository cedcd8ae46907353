"""No-good marks: a key that was probed in vain once is not probed again.

A *list* is the chain of the tuples of one stream with one key of a class. A list is *blocked* if it is empty, or if it
has a mark. The mark says: each tuple of the list has a key, in another class, with a blocked list in another stream. So
no result contains a tuple of a blocked list, and a probe may treat the list as empty. It does so without a test, since
a mark is the sign of the head: the head of a marked list is below every low mark.

A mark belongs to no plan: a change of plan keeps all of them. In joins whose streams and classes form a cycle, marks
follow a spanning tree (`JoinGraph.forest`); else a mark could rest on itself.

    learning    A walk that finds matches, but no result, tries to mark the lists that it visited
                (`stairs.kernels.learning`).
    insertion   An arrival in a marked list keeps the mark if the arrival has a blocked list itself. Else the mark is
                cleared, and so are the marks that rested on it, outwards. An arrival in an empty list does the same to
                the marks that rested on its emptiness (`keep_marks`).
    expiry      needs nothing: a list without its oldest tuple is blocked if it was.
    undo        makes tuples live again, so it clears all marks. So does a state that is stored: what is computed for it
                has to contain combinations without a result.

Learning stops in a column for a while if its marks are cleared more often than they help (`rest`).
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    A_CLASS,
    A_COLUMN,
    A_HITS,
    A_LINK0,
    A_LINK1,
    A_LOST,
    A_MARKS,
    A_OFFSET,
    A_PAUSE,
    A_REST,
    A_STREAM,
    A_SUPPORT,
    A_WORTH,
    C_HEADS,
    C_NEXT,
    C_STRIDE,
    K_COUNT,
    K_FIRST,
    M_MARKS,
    N_ATTR,
    N_COLUMN,
    N_STREAM,
    S_ATTR0,
    S_ATTR1,
    S_LO,
    S_MASK,
    S_RECS,
    S_WIDTH,
)
from stairs.kernels.accelerate import inlined, jit, step, u64
from stairs.memory.arena import Arena, Chunk

MARKED = -4
"""The head of a marked list is MARKED - its newest tuple; -1 means none, -2 is FREED."""
SAVED = 2
"""Look-ups that a hit saves, at least."""
LEARNT = 4
"""Look-ups that a mark took."""
TRIAL = 4096
"""Look-ups lost in a column after which its benefit is judged."""
PAUSE = 64
"""Chunks for which learning rests at first; the pause doubles each time."""
LONGEST_PAUSE = 1 << 10


@inlined
def newest_of(head: int) -> int:
    """Return the newest tuple of a list, marked or not, from its head."""
    return max(np.int64(head), MARKED - np.int64(head))


@inlined
def head_with(head: int, s: int) -> int:
    """Return the head of a list after tuple s was inserted; `head` is the one before."""
    return s if head > MARKED else MARKED - s


@inlined
def row_of(arena: Arena, j: int, c: int) -> int:
    """Return the row of `attrs` of stream j and class c."""
    x = arena.streams[u64(j), S_ATTR0]
    while arena.attrs[u64(x), A_CLASS] != c:
        x += 1
    return x


@inlined
def head_of(arena: Arena, x: int, record: int) -> int:
    """Return where the head of the list is that the record at `record` is in, by attribute x of its stream."""
    attr = arena.attrs[u64(x)]
    directory = arena.classes[u64(attr[A_CLASS])]
    kid = np.int64(arena.recs[u64(record + attr[A_OFFSET] + 1)])
    return directory[C_HEADS] + kid * directory[C_STRIDE] + attr[A_COLUMN]


@inlined
def is_blocked(arena: Arena, i: int, x: int, record: int) -> bool:
    """Return whether a tuple of stream i has, in a class other than that of attribute x, a blocked list elsewhere."""
    attrs, links, blocked = arena.attrs, arena.links, False
    for z in range(arena.streams[u64(i), S_ATTR0], arena.streams[u64(i), S_ATTR1]):
        if z != x:
            at = head_of(arena, z, record) - attrs[u64(z), A_COLUMN]
            for k in range(attrs[u64(z), A_LINK0], attrs[u64(z), A_LINK1]):
                low = arena.streams[u64(links[u64(k), N_STREAM]), S_LO]
                blocked |= arena.heads[u64(at + links[u64(k), N_COLUMN])] < low
    return blocked


@inlined
def support_of(arena: Arena, i: int, x: int, record: int) -> int:
    """Return the attribute of a marked list that blocks a blocked tuple of stream i; -1 if an empty list blocks it.

    Few marks are examined for this, but each arrival for `is_blocked`, which is shorter therefore.

    x   the attribute of the mark
    """
    attrs, links, support, empty = arena.attrs, arena.links, np.int64(-1), False
    for z in range(arena.streams[u64(i), S_ATTR0], arena.streams[u64(i), S_ATTR1]):
        if z != x:
            at = head_of(arena, z, record) - attrs[u64(z), A_COLUMN]
            for k in range(attrs[u64(z), A_LINK0], attrs[u64(z), A_LINK1]):
                head = np.int64(arena.heads[u64(at + links[u64(k), N_COLUMN])])
                marked = head <= MARKED
                empty |= not marked and head < arena.streams[u64(links[u64(k), N_STREAM]), S_LO]
                support = links[u64(k), N_ATTR] if marked else support
    return np.int64(-1) if empty else support


@inlined
def clear(arena: Arena, x: int, p: int) -> None:
    """Clear the mark of the list of attribute x whose head is at p."""
    arena.heads[u64(p)] = newest_of(arena.heads[u64(p)])
    arena.attrs[u64(x), A_MARKS] -= 1
    arena.attrs[u64(x), A_LOST] += LEARNT
    arena.meta[M_MARKS] -= 1


@inlined
def set_mark(arena: Arena, x: int, p: int) -> None:
    """Mark the list of attribute x whose head is at p."""
    arena.heads[u64(p)] = MARKED - arena.heads[u64(p)]
    arena.attrs[u64(x), A_MARKS] += 1
    arena.meta[M_MARKS] += 1


@jit
def clear_all(arena: Arena) -> None:
    """Clear all marks. O(key ids * streams) if there are any."""
    if arena.meta[M_MARKS] != 0:
        for c in range(arena.classes.shape[0]):
            first = arena.classes[u64(c), C_HEADS]
            for p in range(first, first + arena.classes[u64(c), C_NEXT] * arena.classes[u64(c), C_STRIDE]):
                arena.heads[u64(p)] = newest_of(arena.heads[u64(p)])
        for x in range(arena.attrs.shape[0]):
            arena.attrs[u64(x), A_MARKS] = 0
        arena.meta[M_MARKS] = 0


@inlined
def may_rest(arena: Arena, x: int) -> bool:
    """Return whether some mark may rest on a list of attribute x."""
    rests = False
    for k in range(arena.attrs[u64(x), A_LINK0], arena.attrs[u64(x), A_LINK1]):
        j, y = u64(arena.links[u64(k), N_STREAM]), arena.links[u64(k), N_ATTR]
        for z in range(arena.streams[j, S_ATTR0], arena.streams[j, S_ATTR1]):
            rests |= z != y and arena.attrs[u64(z), A_MARKS] > 0
    return rests


@jit
def clear_outwards(arena: Arena, stack: np.ndarray, x: int, kid: int) -> None:
    """Clear the marks that rested on a list, which is not blocked any more, and those that rested on them.

    x, kid   attribute and key id of the list
    stack    int32[], memory; if it does not suffice, all marks are cleared
    """
    attrs, links, recs, heads = arena.attrs, arena.links, arena.recs, arena.heads
    stack[0], stack[1], top = x, kid, 2
    while top > 0:
        top -= 2
        x, kid = np.int64(stack[u64(top)]), np.int64(stack[u64(top + 1)])
        directory = arena.classes[u64(attrs[u64(x), A_CLASS])]
        row = directory[C_HEADS] + kid * directory[C_STRIDE]
        for k in range(attrs[u64(x), A_LINK0], attrs[u64(x), A_LINK1]):
            j, y = links[u64(k), N_STREAM], links[u64(k), N_ATTR]
            first, last, marks = arena.streams[u64(j), S_ATTR0], arena.streams[u64(j), S_ATTR1], np.int64(0)
            for z in range(first, last):
                marks += attrs[u64(z), A_MARKS] if z != y else 0
            if marks == 0:
                continue
            ring, mask, low = arena.streams[u64(j), S_RECS], arena.streams[u64(j), S_MASK], arena.streams[u64(j), S_LO]
            width, offset = arena.streams[u64(j), S_WIDTH], attrs[u64(y), A_OFFSET]
            s = newest_of(heads[u64(row + links[u64(k), N_COLUMN])])
            while s >= low:
                record = ring + (s & mask) * width
                for z in range(first, last):
                    if z != y and attrs[u64(z), A_MARKS] > 0:
                        attrs[u64(z), A_LOST] += 1
                        p = head_of(arena, z, record)
                        if heads[u64(p)] <= MARKED and not is_blocked(arena, j, z, record):
                            clear(arena, z, p)
                            if top + 2 > stack.shape[0]:
                                clear_all(arena)
                                return
                            stack[u64(top)] = z
                            stack[u64(top + 1)] = recs[u64(record + attrs[u64(z), A_OFFSET] + 1)]
                            top += 2
                s = np.int64(recs[u64(record + offset)])


@step
def keep_marks(arena: Arena, chunk: Chunk) -> None:
    """Make all marks true again after the arrivals of a chunk were inserted.

    Their order does not matter: each removal of a mark examines the marks that rested on it. A mark that is set here,
    on a list that was empty, is examined again by each later arrival in the list.
    """
    streams, attrs, recs, heads = arena.streams, arena.attrs, arena.recs, arena.heads
    for x in range(attrs.shape[0]):
        i = u64(attrs[u64(x), A_STREAM])
        rested = may_rest(arena, x)
        if attrs[u64(x), A_MARKS] == 0 and not rested:
            continue
        ring, mask, width, low = streams[i, S_RECS], streams[i, S_MASK], streams[i, S_WIDTH], streams[i, S_LO]
        for s in range(chunk.streams[i, K_FIRST], chunk.streams[i, K_FIRST] + chunk.streams[i, K_COUNT]):
            record = ring + (s & mask) * width
            at = record + attrs[u64(x), A_OFFSET]
            kid = np.int64(recs[u64(at + 1)])
            if kid < 0:
                continue
            p = head_of(arena, x, record)
            marked = heads[u64(p)] <= MARKED
            if not marked and not (rested and recs[u64(at)] < low):
                continue
            blocked = is_blocked(arena, np.int64(i), x, record)
            attrs[u64(x), A_LOST] += 1
            if blocked and not marked and attrs[u64(x), A_REST] == 0:
                set_mark(arena, x, p)
            elif not blocked or not marked:
                if marked:
                    clear(arena, x, p)
                clear_outwards(arena, chunk.partials, x, kid)


@step
def clear_column(arena: Arena, stack: np.ndarray, x: int) -> None:
    """Clear all marks of attribute x, and those that rested on them. O(key ids) if there are any.

    stack    int32[], memory
    """
    directory = arena.classes[arena.attrs[x, A_CLASS]]
    first, stride = directory[C_HEADS] + arena.attrs[x, A_COLUMN], directory[C_STRIDE]
    for kid in range(directory[C_NEXT]):
        if arena.attrs[x, A_MARKS] == 0:
            return
        p = first + kid * stride
        if arena.heads[u64(p)] <= MARKED:
            clear(arena, x, p)
            clear_outwards(arena, stack, x, kid)


@inlined
def rest(arena: Arena, stack: np.ndarray) -> None:
    """Judge each attribute after a chunk: learning rests where the marks saved less than was lost on them.

    They saved what their hits did, and what the marks did that rested on them.
    """
    attrs = arena.attrs
    for x in range(attrs.shape[0]):
        row = u64(x)
        if attrs[row, A_REST] > 0:
            attrs[row, A_REST] -= 1
        elif attrs[row, A_LOST] > TRIAL:
            saved = (SAVED + attrs[row, A_WORTH]) * attrs[row, A_HITS] + attrs[row, A_SUPPORT]
            if saved >= attrs[row, A_LOST]:
                attrs[row, A_PAUSE] = 0
            else:
                attrs[row, A_PAUSE] = min(max(2 * attrs[row, A_PAUSE], PAUSE), LONGEST_PAUSE)
                clear_column(arena, stack, x)
            attrs[row, A_REST] = attrs[row, A_PAUSE]
            attrs[row, A_LOST] = 0
            attrs[row, A_HITS] = 0
            attrs[row, A_SUPPORT] = 0
            # It was measured when lists were marked. While marks work, few walks show what they save.
            attrs[row, A_WORTH] -= attrs[row, A_WORTH] // 8
