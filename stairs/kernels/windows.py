"""Windows by time: how the low mark of a RANGE window follows the watermark."""

from __future__ import annotations

from stairs.descriptors import M_LATENESS, M_WATERMARK, S_LO, S_MASK, S_NEXT, S_SIZE, S_TIMES
from stairs.kernels.accelerate import inlined, u64
from stairs.memory.arena import Arena

ROWS = 0
RANGE = 1
"""Kinds of a window (`stairs.graph.WindowKind`)."""


@inlined
def expire_range(arena: Arena, j: int) -> None:
    """Advance the low mark of a RANGE window past tuples that no later arrival can match. Amortised O(1) per tuple."""
    streams, meta = arena.streams, arena.meta
    horizon = meta[M_WATERMARK] - meta[M_LATENESS] - streams[j, S_SIZE]
    lo, following, mask, ring = streams[j, S_LO], streams[j, S_NEXT], streams[j, S_MASK], streams[j, S_TIMES]
    while lo < following and arena.times[u64(ring + (lo & mask))] < horizon:
        lo += 1
    streams[j, S_LO] = lo
