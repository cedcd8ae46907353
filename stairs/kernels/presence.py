"""Which streams may have live tuples of a key, as bits, in joins of MANY streams on one key.

The words of a key come in two halves, one bit per stream in each:

    present   0 = the newest tuple of the stream with the key, if there is one, has left its window
    several   0 = at most one tuple of the stream with the key is in its window

So a few words decide for most arrivals that they have no results, whatever the number of streams. A set bit may be
wrong: a tuple that leaves its window is not traced. Whoever meets such a bit clears it (`stale`), and each insertion
sets one, so wrong bits cost O(1) an arrival. Unused bits of `present` are set.

A composite of some streams with one key exists if all of their bits are set, under any plan: the words stand for the
stored states of every plan at once, and a transition has nothing to complete. The heads of the key are its entries.

The words are a cache over the SteMs. `M_PRESENCE` says whether they are true; a kernel that does not keep them ends
that, and the next push that reads them starts with all bits set.
"""

from __future__ import annotations

import numpy as np

from stairs.descriptors import C_HEADS, C_NEXT, M_PRESENCE, S_LO, S_MASK, S_RECS
from stairs.kernels.accelerate import inlined, u64
from stairs.memory.arena import Arena, Walk

MANY = 8
"""Streams from which on the words cost less than a comparison of all heads."""
RECORD = 2
"""int32s in a record of a stream with one attribute: link, key id."""


def words_of(streams: int) -> int:
    """Return the words of a key, of both halves."""
    return 2 * (-(-streams // 64))


@inlined
def half_of(arena: Arena) -> int:
    """Return the words of one half; 0 in a join that keeps none."""
    return np.int64((arena.streams.shape[0] + 63) >> 6) if arena.presence.shape[0] > 0 else np.int64(0)


@inlined
def open_presence(arena: Arena) -> None:
    """Set all bits unless the words are true. O(key ids) then."""
    if arena.meta[M_PRESENCE] == 0:
        for w in range(2 * half_of(arena) * arena.classes[0, C_NEXT]):
            arena.presence[u64(w)] = -1
        arena.meta[M_PRESENCE] = 1


@inlined
def set_bits(arena: Arena, j: int, first: int, end: int) -> None:
    """Set the bits of the keys of tuples first .. end - 1 of stream j, which return to their window, if it has any."""
    half, bit = half_of(arena), np.int64(1) << (j & 63)
    ring, mask = arena.streams[u64(j), S_RECS], arena.streams[u64(j), S_MASK]
    for s in range(first, end if half > 0 else first):
        kid = np.int64(arena.recs[u64(ring + (s & mask) * RECORD + 1)])
        if kid >= 0:
            at = kid * 2 * half + (j >> 6)
            arena.presence[u64(at)] |= bit
            arena.presence[u64(at + half)] |= bit


@inlined
def stale(arena: Arena, kid: int, half: int) -> None:
    """Clear the bits of streams whose newest tuple of a key has left its window. O(streams)."""
    m, row = arena.streams.shape[0], arena.classes[0, C_HEADS] + kid * arena.streams.shape[0]
    for w in range(half):
        gone = np.int64(0)
        for j in range(64 * w, min(64 * w + 64, m)):
            gone |= np.int64(arena.heads[u64(row + j)] < arena.streams[u64(j), S_LO]) << (j & 63)
        arena.presence[u64(kid * 2 * half + w)] &= ~gone


@inlined
def arrive(arena: Arena, kid: int, half: int, i: int, several_live: bool) -> bool:
    """Set the bits of stream i for an arrival; return whether all streams may have live tuples of its key.

    several_live   whether the tuple before it with the key stays in its window
    """
    presence, at, bit = arena.presence, kid * 2 * half, np.int64(1) << (i & 63)
    word_at = at + (i >> 6)
    presence[u64(word_at)] |= bit
    # A branch would be mispredicted often.
    presence[u64(word_at + half)] = presence[u64(word_at + half)] & ~bit | np.int64(several_live) << (i & 63)
    every = np.int64(-1)
    for w in range(half):
        every &= presence[u64(at + w)]
    return every == -1


@inlined
def several_now(arena: Arena, walk: Walk, kid: int, half: int, i: int, entry: int) -> None:
    """Note with an entry of stream i which other streams may have several live tuples of its key.

    Later arrivals of the block may clear the bits before the entry is visited.
    """
    rest = arena.streams.shape[0] & 63
    for w in range(half):
        word = arena.presence[u64(kid * 2 * half + half + w)]
        # The last word has unused bits.
        word = word & ~(np.int64(-1) << rest) if rest != 0 and w == half - 1 else word
        walk.several[u64(entry * half + w)] = word & ~(np.int64(1) << (i & 63)) if w == i >> 6 else word


@inlined
def is_alone(walk: Walk, half: int, entry: int) -> bool:
    """Return whether an entry has one live partner of each stream."""
    others = np.int64(0)
    for w in range(half):
        others |= walk.several[u64(entry * half + w)]
    return others == 0


@inlined
def is_several(walk: Walk, half: int, entry: int, j: int) -> bool:
    """Return whether an entry may have several live partners of stream j."""
    return (walk.several[u64(entry * half + (j >> 6))] >> (j & 63)) & 1 != 0


@inlined
def settle(arena: Arena, kid: int, half: int, j: int, newest: int, older: int) -> None:
    """Clear a bit of `several` if `older`, the tuple of stream j before the newest one, has left its window."""
    row = arena.classes[0, C_HEADS] + kid * arena.streams.shape[0]
    if older < arena.streams[u64(j), S_LO] and arena.heads[u64(row + j)] == newest:
        arena.presence[u64(kid * 2 * half + half + (j >> 6))] &= ~(np.int64(1) << (j & 63))
