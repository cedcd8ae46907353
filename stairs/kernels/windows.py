"""Low marks of windows, in the SteMs and in the tracks of stored states."""

from __future__ import annotations

from stairs.descriptors import M_WATERMARK, S_KIND, S_LO, S_MASK, S_NEXT, S_SIZE, S_VALUES
from stairs.kernels.accelerate import inlined, u64
from stairs.memory.arena import Arena, Entries

ROWS = 0
RANGE = 1
"""Kinds of a window (`stairs.graph.WindowKind`)."""


@inlined
def expire_range(arena: Arena, j: int) -> None:
    """Advance the low mark of a RANGE window past tuples that no later arrival can match. Amortised O(1) per tuple."""
    streams, meta = arena.streams, arena.meta
    horizon = meta[M_WATERMARK] - streams[j, S_SIZE]
    lo, following, mask, ring = streams[j, S_LO], streams[j, S_NEXT], streams[j, S_MASK], streams[j, S_VALUES]
    while lo < following and arena.values[u64(ring + (lo & mask))] < horizon:
        lo += 1
    streams[j, S_LO] = lo


@inlined
def expire_ranges(arena: Arena) -> None:
    """Advance the low marks of all RANGE windows."""
    for j in range(arena.streams.shape[0]):
        if arena.streams[u64(j), S_KIND] == RANGE:
            expire_range(arena, j)


@inlined
def set_low(arena: Arena, entries: Entries, j: int, lo: int) -> None:
    """Set the low mark of stream j to `lo`, in every track."""
    arena.streams[u64(j), S_LO] = lo
    for p in range(j, entries.lows.shape[0], arena.streams.shape[0]):
        entries.lows[u64(p)] = max(lo, entries.marks[u64(p)])


@inlined
def sync_lows(arena: Arena, entries: Entries) -> None:
    """Raise the low marks of all tracks to those of the windows."""
    for j in range(min(arena.streams.shape[0], entries.lows.shape[0])):
        set_low(arena, entries, j, arena.streams[u64(j), S_LO])
