"""Kernels of the key directory: look-up, interning, and the sweep that recycles dead keys.

A key id is dead when no SteM of its class has a live tuple with it. The head row shows that: every SteM column is below
its stream's low mark, so no count per tuple is needed. Before a push changes anything, the sweep moves a hand over the
ids, two for each id assigned since the last sweep; a dead id leaves the table and goes to the free stack. If far more
ids are in use than tuples are live, the sweep examines all. So with at most T live tuples and P rows in a push, the
directory stays below 2 T + P + SLACK ids, or 2 P if that is more, whatever keys occur
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
from stairs.kernels.marks import MARKED, clear, newest_of, row_of
from stairs.kernels.memory import NEAR, prefetch
from stairs.memory.arena import Arena

SLACK = 64
"""Ids beyond twice the live tuples that do not yet cause a sweep of all ids."""
FREED = -2
"""First head of an id on the free stack, usually: the sweep recognises it with one comparison."""
TOGETHER = 4
"""Number of heads of a key that are compared before the result is tested."""
AHEAD = 16
"""Distance, in keys, between the key looked up and the key whose slot of a large table is prefetched."""


@inlined
def spread(tag: int, shift: int) -> int:
    """Return the home slot of a tag: the high bits of a multiplicative hash (Knuth, TAOCP 6.4) of its folded halves."""
    x = u64(tag)
    x ^= x >> u64(32)
    return np.int64((x * u64(0x9E3779B97F4A7C15)) >> u64(shift))


@inlined
def fold(words: np.ndarray, at: int, width: int) -> int:
    """Return the tag of a key of several words: one word for the table. Different keys may have equal tags."""
    x = u64(words[u64(at)])
    for k in range(1, width):
        x = (x ^ (x >> u64(29))) * u64(0xBF58476D1CE4E5B9) + u64(words[u64(at + k)])
    return np.int64(x ^ (x >> u64(31)))


@inlined
def same(left: np.ndarray, at: int, right: np.ndarray, other: int, width: int) -> bool:
    """Return whether two keys have equal words."""
    for k in range(width):
        if left[u64(at + k)] != right[u64(other + k)]:
            return False
    return True


@inlined
def find_slot(arena: Arena, c: int, source: np.ndarray, at: int) -> int:
    """Return the position in `table` of the key whose words start at source[at], or of the empty slot for it."""
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
    """Return whether the table of a class with keys of one word is larger than a core's own cache."""
    classes = arena.classes
    return classes[c, C_WIDTH] == 1 and (np.int64(16) << (64 - classes[c, C_SHIFT])) > NEAR


@inlined
def ask_for(arena: Arena, c: int, tag: int) -> None:
    """Prefetch the home slot of a tag, which will be looked up soon."""
    slot = arena.classes[c, C_TABLE] + 2 * spread(tag, arena.classes[c, C_SHIFT])
    prefetch(np.int64(arena.table.ctypes.data) + 8 * slot)


@jit
def adopt(arena: Arena, c: int, source: np.ndarray, at: int, p: int) -> int:
    """Assign an id to the key at source[at] and write it to the empty slot p; -1 if the class has no room for an id."""
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
    """Return whether no live tuple of any stream has the key, according to its heads; False for FREED ids.

    O(streams of the class).
    """
    classes, heads, streams = arena.classes, arena.heads, arena.streams
    row = classes[c, C_HEADS] + kid * classes[c, C_STRIDE]
    if heads[u64(row)] == FREED:
        return False
    stems = classes[c, C_STEMS]
    for first in range(0, stems, TOGETHER):
        # An exit after each head would cost more in mispredicted branches than it saves.
        live = False
        for k in range(first, min(first + TOGETHER, stems)):
            live |= newest_of(heads[u64(row + k)]) >= streams[u64(classes[c, u64(C_MEMBER + k)]), S_LO]
        if live:
            return False
    return True


@inlined
def drop(arena: Arena, c: int, kid: int, p: int) -> None:
    """Remove a key from slot p of the table, close the gap (no tombstones), and push its id on the free stack."""
    classes, table = arena.classes, arena.table
    base, shift = classes[c, C_TABLE], classes[c, C_SHIFT]
    last = (np.int64(1) << (64 - shift)) - 1
    gap = (p - base) >> 1
    slot = gap
    while True:
        slot = (slot + 1) & last
        if table[u64(base + 2 * slot + 1)] < 0:
            break
        # A key may move into the gap unless its home is strictly between the gap and its slot.
        tag = table[u64(base + 2 * slot)]
        if ((slot - spread(tag, shift)) & last) >= ((slot - gap) & last):
            table[u64(base + 2 * gap)] = tag
            table[u64(base + 2 * gap + 1)] = table[u64(base + 2 * slot + 1)]
            gap = slot
    table[u64(base + 2 * gap + 1)] = -1
    row = classes[c, C_HEADS] + kid * classes[c, C_STRIDE]
    for k in range(classes[c, C_STRIDE]):
        if arena.heads[u64(row + k)] <= MARKED:
            clear(arena, row_of(arena, classes[c, u64(C_MEMBER + k)], c), row + k)
    arena.heads[u64(row)] = FREED
    arena.freed[u64(classes[c, C_FREELIST] + classes[c, C_FREE])] = kid
    classes[c, C_FREE] += 1


@jit
def drop_key(arena: Arena, c: int, kid: int) -> None:
    """Remove a key that no tuple has any more from the table of class c."""
    classes = arena.classes
    p = find_slot(arena, c, arena.words, classes[c, C_WORDS] + kid * classes[c, C_WIDTH])
    drop(arena, c, kid, p)


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
    taken = 0
    for c in range(classes.shape[0]):
        owed = min(classes[c, C_DEBT], classes[c, C_NEXT])
        classes[c, C_DEBT] = 0
        # A dead key that occurs again before the hand reaches it keeps its id and adds no debt. If arrivals stay ahead
        # of the hand in this way, the sweep examines all ids. At least half of them are in use then, so the ids
        # assigned since the last full sweep pay for it.
        if classes[c, C_NEXT] - classes[c, C_FREE] > max(2 * live_tuples(arena, c) + SLACK, classes[c, C_NEXT] // 2):
            owed = classes[c, C_NEXT]
        # Heads and words are in the order of the hand; only the table slot of a dead key is elsewhere in memory.
        words, width, far = classes[c, C_WORDS], classes[c, C_WIDTH], is_far(arena, c)
        for _ in range(owed):
            kid = classes[c, C_HAND]
            classes[c, C_HAND] = kid + 1 if kid + 1 < classes[c, C_NEXT] else 0
            if far and kid + AHEAD < classes[c, C_NEXT]:
                ask_for(arena, c, arena.words[u64(words + kid + AHEAD)])
            if is_dead(arena, c, kid):
                p = find_slot(arena, c, arena.words, words + kid * width)
                # A free id may look like a dead one: its key may have occurred again and have another id now.
                if arena.table[u64(p + 1)] == kid:
                    drop(arena, c, kid, p)
                    taken += 1
    return taken
