"""Kernels of the key directory: look-up, interning and the sweep that takes dead keys back.

A key id is dead when no SteM of its class holds a live tuple with it, which its head row tells: every SteM column is
below its stream's low mark. Nothing is counted per tuple. The sweep runs a hand over the ids, two for each id handed
out since it last ran, before a push touches anything; an id found dead leaves the table and goes on the free stack;
and when far more ids are in use than tuples are live, it looks at all. So with T live tuples at most and P rows in a
push, the directory stays below 2 T + P + SLACK ids, or 2 P if that is more, whatever keys ever pass
(docs/internals/layout.md).
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import (
    C_CAPACITY,
    C_DEBT,
    C_FREE,
    C_FREELIST,
    C_HAND,
    C_HEADS,
    C_MEMBER,
    C_NEXT,
    C_SHIFT,
    C_STEMS,
    C_STRIDE,
    C_TABLE,
    C_WIDTH,
    C_WORDS,
    S_LO,
    S_NEXT,
)
from stairs.kernels.accelerate import inlined, jit, u64
from stairs.kernels.memory import NEAR, prefetch
from stairs.memory.arena import Arena

SLACK = 64
"""Ids beyond twice the live tuples that are not worth a look at all of them."""
FREED = -2
"""First head of an id on the free stack, as a rule: so that a look at it is short."""
TOGETHER = 4
"""Heads of a key that are compared before it is asked whether one of them was live."""
AHEAD = 16
"""Keys between one that is looked up and the one whose slot of a large table is asked for."""


@inlined
def spread(tag: int, shift: int) -> int:
    """Return the home slot of a tag: the high bits of a multiplicative hash (Knuth, TAOCP 6.4) of its folded halves."""
    x = u64(tag)
    x ^= x >> u64(32)
    return np.int64((x * u64(0x9E3779B97F4A7C15)) >> u64(shift))


@inlined
def fold(words: np.ndarray, at: int, width: int) -> int:
    """Return one word for a key of several: the tag by which the table knows it. Equal tags do not mean equal keys."""
    x = u64(words[u64(at)])
    for k in range(1, width):
        x = (x ^ (x >> u64(29))) * u64(0xBF58476D1CE4E5B9) + u64(words[u64(at + k)])
    return np.int64(x ^ (x >> u64(31)))


@inlined
def same(left: np.ndarray, at: int, right: np.ndarray, other: int, width: int) -> bool:
    """Tell whether two keys have equal words."""
    for k in range(width):
        if left[u64(at + k)] != right[u64(other + k)]:
            return False
    return True


@inlined
def find_slot(arena: Arena, c: int, source: np.ndarray, at: int) -> int:
    """Return where in `table` the key lies whose words start at source[at], or the empty slot where it would go."""
    classes, table = arena.classes, arena.table
    width, base, shift = classes[c, C_WIDTH], classes[c, C_TABLE], classes[c, C_SHIFT]
    last = (np.int64(1) << (64 - shift)) - 1
    tag = source[u64(at)] if width == 1 else fold(source, at, width)
    slot = spread(tag, shift)
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
def is_far(arena: Arena, c: int) -> bool:
    """Tell whether the table of a class is larger than a core's own cache; only for keys of one word it matters."""
    classes = arena.classes
    return classes[c, C_WIDTH] == 1 and (np.int64(16) << (64 - classes[c, C_SHIFT])) > NEAR


@inlined
def ask_for(arena: Arena, c: int, tag: int) -> None:
    """Ask for the home slot of a tag, which will be looked up soon."""
    slot = arena.classes[c, C_TABLE] + 2 * spread(tag, arena.classes[c, C_SHIFT])
    prefetch(np.int64(arena.table.ctypes.data) + 8 * slot)


@jit
def adopt(arena: Arena, c: int, source: np.ndarray, at: int, p: int) -> int:
    """Give the key at source[at] an id and put it in the empty slot p; -1 when the class has no room for another id."""
    classes, table, heads = arena.classes, arena.table, arena.heads
    width, stride = classes[c, C_WIDTH], classes[c, C_STRIDE]
    if classes[c, C_FREE] > 0:
        classes[c, C_FREE] -= 1
        kid = np.int64(arena.freed[classes[c, C_FREELIST] + classes[c, C_FREE]])
    elif classes[c, C_NEXT] < classes[c, C_CAPACITY]:
        kid = classes[c, C_NEXT]
        classes[c, C_NEXT] = kid + 1
    else:
        return -1
    classes[c, C_DEBT] += 2
    table[u64(p)] = source[u64(at)] if width == 1 else fold(source, at, width)
    table[u64(p + 1)] = kid
    home = classes[c, C_WORDS] + kid * width
    for k in range(width):
        arena.words[u64(home + k)] = source[u64(at + k)]
    row = classes[c, C_HEADS] + kid * stride
    for k in range(stride):
        heads[u64(row + k)] = -1
    return kid


@inlined
def is_dead(arena: Arena, c: int, kid: int) -> bool:
    """Tell whether a key is in use and no live tuple of any stream has it, as far as its heads tell.

    O(streams of the class), less when one has.
    """
    classes, heads, streams = arena.classes, arena.heads, arena.streams
    row = classes[c, C_HEADS] + kid * classes[c, C_STRIDE]
    if heads[u64(row)] == FREED:
        return False
    stems = classes[c, C_STEMS]
    for first in range(0, stems, TOGETHER):
        # A way out at each would be guessed wrong more often than it saves.
        live = False
        for k in range(first, min(first + TOGETHER, stems)):
            live |= heads[u64(row + k)] >= streams[u64(classes[c, u64(C_MEMBER + k)]), S_LO]
        if live:
            return False
    return True


@inlined
def drop(arena: Arena, c: int, kid: int, p: int) -> None:
    """Take a key out of slot p of the table (closing the gap: no tombstones gather) and its id onto the free stack."""
    classes, table = arena.classes, arena.table
    base, shift = classes[c, C_TABLE], classes[c, C_SHIFT]
    last = (np.int64(1) << (64 - shift)) - 1
    gap = (p - base) >> 1
    slot = gap
    while True:
        slot = (slot + 1) & last
        if table[u64(base + 2 * slot + 1)] < 0:
            break
        # An entry may move into the gap when its home is not strictly between the gap and where it lies.
        tag = table[u64(base + 2 * slot)]
        if ((slot - spread(tag, shift)) & last) >= ((slot - gap) & last):
            table[u64(base + 2 * gap)] = tag
            table[u64(base + 2 * gap + 1)] = table[u64(base + 2 * slot + 1)]
            gap = slot
    table[u64(base + 2 * gap + 1)] = -1
    arena.heads[u64(classes[c, C_HEADS] + kid * classes[c, C_STRIDE])] = FREED
    arena.freed[u64(classes[c, C_FREELIST] + classes[c, C_FREE])] = kid
    classes[c, C_FREE] += 1


@jit
def drop_key(arena: Arena, c: int, kid: int) -> None:
    """Take a key that no tuple has any more out of the table of class c."""
    classes = arena.classes
    p = find_slot(arena, c, arena.words, classes[c, C_WORDS] + kid * classes[c, C_WIDTH])
    drop(arena, c, kid, p)


@inlined
def live_tuples(arena: Arena, c: int) -> int:
    """Return the tuples in the windows of the streams of a class: no fewer than it has live keys."""
    rows = np.int64(0)
    for k in range(arena.classes[c, C_STEMS]):
        i = arena.classes[c, C_MEMBER + k]
        rows += arena.streams[i, S_NEXT] - arena.streams[i, S_LO]
    return rows


@jit
def sweep(arena: Arena) -> int:
    """Look at as many key ids of each class as are owed, take the dead ones back, and return how many those were.

    Only between pushes: a key that a push has interned but not yet inserted would look dead.
    """
    classes = arena.classes
    taken = 0
    for c in range(classes.shape[0]):
        owed = min(classes[c, C_DEBT], classes[c, C_NEXT])
        classes[c, C_DEBT] = 0
        # A key that comes again before the hand finds it dead costs no id and owes no look; arrivals that keep ahead of
        # the hand in this way are met by a look at all ids. Half of those are in use then, so it costs no more than the
        # adoptions since the last one have paid for.
        if classes[c, C_NEXT] - classes[c, C_FREE] > max(2 * live_tuples(arena, c) + SLACK, classes[c, C_NEXT] // 2):
            owed = classes[c, C_NEXT]
        # Heads and words lie in the order of the hand; only a dead key's slot of the table is somewhere else.
        words, width, far = classes[c, C_WORDS], classes[c, C_WIDTH], is_far(arena, c)
        for _ in range(owed):
            kid = classes[c, C_HAND]
            classes[c, C_HAND] = kid + 1 if kid + 1 < classes[c, C_NEXT] else 0
            if far and kid + AHEAD < classes[c, C_NEXT]:
                ask_for(arena, c, arena.words[u64(words + kid + AHEAD)])
            if is_dead(arena, c, kid):
                p = find_slot(arena, c, arena.words, words + kid * width)
                # An id that is free already may look like one in use: its key may have come again under another.
                if arena.table[u64(p + 1)] == kid:
                    drop(arena, c, kid, p)
                    taken += 1
    return taken
