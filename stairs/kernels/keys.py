"""Kernels of the key directory: look-up, interning, and the sweep that recycles dead keys.

A key id is dead when no SteM of its class has a live tuple with it. The head row shows that: every SteM column is below
its stream's low mark, so no count per tuple is needed. Before a push changes anything, the sweep moves a hand over the
ids, two for each id assigned since the last sweep; a dead id leaves the table and goes to the free stack. If far more
ids are in use than tuples are live, the sweep examines all. So with at most T live tuples and P rows in a push, the
directory stays below 2 T + P + SLACK ids, or 2 P if that is more, whatever keys occur
(docs/internals/layout.md).

The sweep first lists the dead ids, from the heads alone. Then it removes their keys from the table one by one, or
builds the table anew from the other keys, if that costs less.

A new key takes over the heads of the dead key that had its id: they are below the low marks, and so end every chain.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    C_CAPACITY,
    C_DEBT,
    C_FACTOR,
    C_FREE,
    C_FREELIST,
    C_HAND,
    C_HEADS,
    C_LAST,
    C_MAY_PASS,
    C_MEMBER,
    C_NEXT,
    C_SECRET,
    C_SHIFT,
    C_STEMS,
    C_STRIDE,
    C_TABLE,
    C_TAG_FACTOR,
    C_TAG_SEED,
    C_WIDTH,
    C_WORDS,
    M_MARKS,
    S_LO,
    S_NEXT,
)
from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.hashes import MOST_SPARE, SPARE, finish, home, stir
from stairs.kernels.marks import MARKED, clear, newest_of, row_of
from stairs.kernels.memory import NEAR, prefetch
from stairs.memory.arena import Arena

SLACK = 64
"""Ids beyond twice the live tuples that do not yet cause a sweep of all ids."""
FREED = -2
"""First head of an id on the free stack, and of no other id."""
TOGETHER = 4
"""First columns of head rows, which the sweep compares in its pass over the ids."""
REMOVED, REINSERTED = 48, 20
"""Cost of the removal of a key, and of its insertion in an empty table; emptying the table costs 1 for each slot."""
AHEAD = 16
"""Distance, in keys, between the key looked up and the key whose slot of a large table is prefetched."""


@inlined
def home_of(arena: Arena, c: int, tag: int) -> int:
    """Return the home slot of a tag in the table of class c."""
    classes = arena.classes
    return home(tag, classes[c, C_SHIFT], classes[c, C_SECRET], classes[c, C_FACTOR], classes[c, C_LAST])


@inlined
def fold(arena: Arena, c: int, words: np.ndarray, at: int) -> int:
    """Return the tag of a key of several words: one word for the table. Different keys may have equal tags."""
    seed, factor = arena.classes[c, C_TAG_SEED], arena.classes[c, C_TAG_FACTOR]
    x = u64(seed)
    for k in range(arena.classes[c, C_WIDTH]):
        x = stir(x, words[u64(at + k)], factor)
    return finish(x, seed, factor)


@inlined
def spare_of(arena: Arena, c: int) -> int:
    """Return the slots that a pass over rows may pass, beyond those of each key, before the keys of class c crowd."""
    return SPARE + min((np.int64(1) << (64 - arena.classes[c, C_SHIFT])) >> 6, MOST_SPARE)


@inlined
def same(left: np.ndarray, at: int, right: np.ndarray, other: int, width: int) -> bool:
    """Return whether two keys have equal words."""
    for k in range(width):
        if left[u64(at + k)] != right[u64(other + k)]:
            return False
    return True


@inlined
def tag_at(arena: Arena, c: int, source: np.ndarray, at: int) -> int:
    """Return the tag of the key of class c whose words start at source[at]."""
    return source[u64(at)] if arena.classes[c, C_WIDTH] == 1 else fold(arena, c, source, at)


@inlined
def find_from(arena: Arena, c: int, source: np.ndarray, at: int, tag: int, slot: int) -> int:
    """Return the position in `table` of the key with a tag and home `slot`, or of the empty slot for it.

    Its words start at source[at].
    """
    classes, table = arena.classes, arena.table
    width, base = classes[c, C_WIDTH], classes[c, C_TABLE]
    last = (np.int64(1) << (64 - classes[c, C_SHIFT])) - 1
    while True:
        p = base + 2 * slot
        kid = table[u64(p + 1)]
        if kid < 0:
            return p
        if table[u64(p)] == tag and (
            width == 1 or same(source, at, arena.words, classes[c, C_WORDS] + kid * width, width)
        ):
            return p
        slot = (slot + 1) & last


@inlined
def find_slot(arena: Arena, c: int, source: np.ndarray, at: int) -> int:
    """Return the position in `table` of the key whose words start at source[at], or of the empty slot for it."""
    tag = tag_at(arena, c, source, at)
    return find_from(arena, c, source, at, tag, home_of(arena, c, tag))


@inlined
def passed(arena: Arena, c: int, slot: int, p: int) -> int:
    """Return how many slots a look-up from home `slot` passed before position p in `table`."""
    last = (np.int64(1) << (64 - arena.classes[c, C_SHIFT])) - 1
    return (((p - arena.classes[c, C_TABLE]) >> 1) - slot) & last


@inlined
def find_counted(arena: Arena, c: int, source: np.ndarray, at: int, spare: int) -> tuple[int, int]:
    """Return what `find_slot` does, and the slots that may still be passed, of which there were `spare`."""
    tag = tag_at(arena, c, source, at)
    slot = home_of(arena, c, tag)
    p = find_from(arena, c, source, at, tag, slot)
    return p, spare + arena.classes[c, C_MAY_PASS] - passed(arena, c, slot, p)


@inlined
def is_far(arena: Arena, c: int) -> bool:
    """Return whether the table of a class with keys of one word is larger than a core's own cache."""
    classes = arena.classes
    return classes[c, C_WIDTH] == 1 and (np.int64(16) << (64 - classes[c, C_SHIFT])) > NEAR


@inlined
def ask_for(arena: Arena, c: int, tag: int) -> None:
    """Prefetch the home slot of a tag, which will be looked up soon."""
    slot = arena.classes[c, C_TABLE] + 2 * home_of(arena, c, tag)
    prefetch(np.int64(arena.table.ctypes.data) + 8 * slot)


@inlined
def adopt(arena: Arena, c: int, source: np.ndarray, at: int, p: int) -> int:
    """Assign an id to the key at source[at] and write it to the empty slot p; -1 if the class has no room for an id."""
    classes, table, words, width = arena.classes, arena.table, arena.words, arena.classes[c, C_WIDTH]
    if classes[c, C_FREE] > 0:
        classes[c, C_FREE] -= 1
        kid = np.int64(arena.freed[u64(classes[c, C_FREELIST] + classes[c, C_FREE])])
    elif classes[c, C_NEXT] < classes[c, C_CAPACITY]:
        kid = classes[c, C_NEXT]
        classes[c, C_NEXT] = kid + 1
    else:
        return np.int64(-1)
    classes[c, C_DEBT] += 2
    table[u64(p + 1)] = kid
    if width == 1:
        table[u64(p)] = source[u64(at)]
        words[u64(classes[c, C_WORDS] + kid)] = source[u64(at)]
    else:
        table[u64(p)] = fold(arena, c, source, at)
        for k in range(width):
            words[u64(classes[c, C_WORDS] + kid * width + k)] = source[u64(at + k)]
    arena.heads[u64(classes[c, C_HEADS] + kid * classes[c, C_STRIDE])] = -1
    return kid


@inlined
def list_dead(arena: Arena, c: int, kid: int, end: int, at: int, most: int) -> int:
    """Write those of the ids kid .. end - 1 that may be dead to the free stack from `at` on; return their number.

    They are not FREED, and their heads in the first columns are below the low marks, or have a no-good mark. No branch
    depends on that, since it would often be mispredicted. O(ids).

    most   ids in use; when so many are found, the rest are free, and one more would lie outside of the stack
    """
    classes, streams, heads, freed = arena.classes, arena.streams, arena.heads, arena.freed
    first, stride, dead = classes[c, C_HEADS], classes[c, C_STRIDE], np.int64(0)
    # With fewer columns, the last one is read several times.
    last = classes[c, C_STEMS] - 1
    k0, k1, k2, k3 = np.int64(0), min(np.int64(1), last), min(np.int64(2), last), min(np.int64(3), last)
    low0 = streams[u64(classes[c, u64(C_MEMBER + k0)]), S_LO]
    low1 = streams[u64(classes[c, u64(C_MEMBER + k1)]), S_LO]
    low2 = streams[u64(classes[c, u64(C_MEMBER + k2)]), S_LO]
    low3 = streams[u64(classes[c, u64(C_MEMBER + k3)]), S_LO]
    while kid < end and dead < most:
        row = first + kid * stride
        # Negative if all four differences are.
        below = (heads[u64(row + k0)] - low0) & (heads[u64(row + k1)] - low1)
        below &= (heads[u64(row + k2)] - low2) & (heads[u64(row + k3)] - low3)
        freed[u64(at + dead)] = kid
        dead += (below < 0) & (heads[u64(row)] != FREED)
        kid += 1
    return dead


@inlined
def keep_dead(arena: Arena, c: int, column: int, at: int, listed: int) -> int:
    """Keep those of the ids listed from `at` on whose lists are dead from `column` on; return their number.

    O(ids listed * columns).
    """
    classes, heads, freed = arena.classes, arena.heads, arena.freed
    while column < classes[c, C_STEMS] and listed > 0:
        first, stride = classes[c, C_HEADS] + column, classes[c, C_STRIDE]
        low, kept = arena.streams[u64(classes[c, u64(C_MEMBER + column)]), S_LO], np.int64(0)
        for k in range(at, at + listed):
            kid = np.int64(freed[u64(k)])
            freed[u64(at + kept)] = kid
            kept += newest_of(heads[u64(first + kid * stride)]) < low
        listed = kept
        column += 1
    return listed


@inlined
def find_dead(arena: Arena, c: int, owed: int) -> int:
    """Move the hand of class c over the next `owed` ids, write the dead ones above the free stack, and return their
    number.

    An id is dead if no live tuple of any stream has the key, according to its heads, and if it is not FREED.
    """
    classes = arena.classes
    following, hand, at = classes[c, C_NEXT], classes[c, C_HAND], classes[c, C_FREELIST] + classes[c, C_FREE]
    used, end = following - classes[c, C_FREE], min(hand + owed, following)
    dead = list_dead(arena, c, hand, end, at, used)
    if hand + owed > following:
        end = hand + owed - following
        dead += list_dead(arena, c, 0, end, at + dead, used - dead)
    classes[c, C_HAND] = end if end < following else 0
    return keep_dead(arena, c, TOGETHER if arena.meta[M_MARKS] == 0 else 0, at, dead)


@inlined
def release(arena: Arena, c: int, kid: int) -> None:
    """Clear the no-good marks of a dead key, and mark its id as free."""
    row = arena.classes[c, C_HEADS] + kid * arena.classes[c, C_STRIDE]
    if arena.meta[M_MARKS] != 0:
        for k in range(arena.classes[c, C_STRIDE]):
            if arena.heads[u64(row + k)] <= MARKED:
                clear(arena, row_of(arena, arena.classes[c, u64(C_MEMBER + k)], c), row + k)
    arena.heads[u64(row)] = FREED


@inlined
def tag_of(arena: Arena, c: int, kid: int) -> int:
    """Return the tag of the key with an id."""
    return tag_at(arena, c, arena.words, arena.classes[c, C_WORDS] + kid * arena.classes[c, C_WIDTH])


@inlined
def remove(arena: Arena, c: int, kid: int) -> None:
    """Remove the key with an id from the table, and close the gap (no tombstones)."""
    classes, table = arena.classes, arena.table
    base, shift = classes[c, C_TABLE], classes[c, C_SHIFT]
    secret, factor, final = classes[c, C_SECRET], classes[c, C_FACTOR], classes[c, C_LAST]
    last = (np.int64(1) << (64 - shift)) - 1
    gap = home(tag_of(arena, c, kid), shift, secret, factor, final)
    while table[u64(base + 2 * gap + 1)] != kid:
        gap = (gap + 1) & last
    slot = gap
    while True:
        slot = (slot + 1) & last
        if table[u64(base + 2 * slot + 1)] < 0:
            break
        # A key may move into the gap unless its home is strictly between the gap and its slot. A key that may not is
        # written to where it is: a branch would be mispredicted half of the time.
        tag, other = table[u64(base + 2 * slot)], table[u64(base + 2 * slot + 1)]
        moves = ((slot - home(tag, shift, secret, factor, final)) & last) >= ((slot - gap) & last)
        to = gap if moves else slot
        table[u64(base + 2 * to)] = tag
        table[u64(base + 2 * to + 1)] = other
        gap = slot if moves else gap
    table[u64(base + 2 * gap + 1)] = -1


@inlined
def rebuild(arena: Arena, c: int, free: int) -> None:
    """Empty the table of class c, and fill it with the keys whose ids are not FREED. O(slots).

    free   the number of FREED ids, on the stack; the room above is used as scratch memory
    """
    classes, table, heads, freed = arena.classes, arena.table, arena.heads, arena.freed
    base, shift, far = classes[c, C_TABLE], classes[c, C_SHIFT], is_far(arena, c)
    secret, factor, final = classes[c, C_SECRET], classes[c, C_FACTOR], classes[c, C_LAST]
    last = (np.int64(1) << (64 - shift)) - 1
    for p in range(base, base + 2 * (last + 1)):
        table[u64(p)] = -1
    start, kid = classes[c, C_FREELIST] + free, np.int64(0)
    at, end = start, start + classes[c, C_NEXT] - free
    while at < end:
        freed[u64(at)] = kid
        at += heads[u64(classes[c, C_HEADS] + kid * classes[c, C_STRIDE])] != FREED
        kid += 1
    for k in range(start, end):
        if far and k + AHEAD < end:
            ask_for(arena, c, tag_of(arena, c, np.int64(freed[u64(k + AHEAD)])))
        kid = np.int64(freed[u64(k)])
        tag = tag_of(arena, c, kid)
        slot = home(tag, shift, secret, factor, final)
        while table[u64(base + 2 * slot + 1)] >= 0:
            slot = (slot + 1) & last
        table[u64(base + 2 * slot)] = tag
        table[u64(base + 2 * slot + 1)] = kid


@jit
def drop_key(arena: Arena, c: int, kid: int) -> None:
    """Remove a key that no tuple has any more from the table of class c, and push its id on the free stack."""
    remove(arena, c, kid)
    release(arena, c, kid)
    arena.freed[u64(arena.classes[c, C_FREELIST] + arena.classes[c, C_FREE])] = kid
    arena.classes[c, C_FREE] += 1


@inlined
def drop_dead(arena: Arena, c: int, dead: int) -> None:
    """Remove the keys of the dead ids that lie above the free stack of class c, and take them on the stack.

    Most dead keys of a large push are removed at once, with the table: it costs less to insert the others anew.
    """
    classes, freed = arena.classes, arena.freed
    start, free, far = classes[c, C_FREELIST] + classes[c, C_FREE], classes[c, C_FREE] + dead, is_far(arena, c)
    slots, end = np.int64(1) << (64 - classes[c, C_SHIFT]), start + dead
    anew = dead > (slots + REINSERTED * (classes[c, C_NEXT] - free)) // REMOVED
    for k in range(start, end):
        if not anew:
            if far and k + AHEAD < end:
                ask_for(arena, c, tag_of(arena, c, np.int64(freed[u64(k + AHEAD)])))
            remove(arena, c, np.int64(freed[u64(k)]))
        release(arena, c, np.int64(freed[u64(k)]))
    if anew:
        rebuild(arena, c, free)
    classes[c, C_FREE] = free


@inlined
def live_tuples(arena: Arena, c: int) -> int:
    """Return the number of tuples in the windows of the streams of a class, at least the number of its live keys."""
    rows = np.int64(0)
    for k in range(arena.classes[c, C_STEMS]):
        i = arena.classes[c, C_MEMBER + k]
        rows += arena.streams[i, S_NEXT] - arena.streams[i, S_LO]
    return rows


@jit
def sweep(arena: Arena) -> int:
    """Examine the key ids that are due in each class, recycle the dead ones, and return their number.

    Only between pushes: a key that a push interned but did not yet insert would appear dead.
    """
    classes = arena.classes
    taken = np.int64(0)
    for c in range(classes.shape[0]):
        owed = min(classes[c, C_DEBT], classes[c, C_NEXT])
        classes[c, C_DEBT] = 0
        # A dead key that occurs again before the hand reaches it keeps its id and adds no debt. If arrivals stay ahead
        # of the hand in this way, the sweep examines all ids. At least half of them are in use then, so the ids
        # assigned since the last full sweep pay for it.
        if classes[c, C_NEXT] - classes[c, C_FREE] > max(2 * live_tuples(arena, c) + SLACK, classes[c, C_NEXT] // 2):
            owed = classes[c, C_NEXT]
        if owed > 0:
            dead = find_dead(arena, c, owed)
            drop_dead(arena, c, dead)
            taken += dead
    return taken
