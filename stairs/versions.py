"""The compaction of tables: a ring most of whose versions are dead gives their slots back.

The living versions of a table get new sequence numbers, the last ones before the number of the next arrival, in their
order. So chains stay newest first, the numbers of later arrivals are what they would have been, and a version keeps its
arrival number in a ring of values (`stairs.kernels.versions`). Whoever holds sequence numbers follows: the caches of
the modules, and the payload (`Payload.follow`).
"""

from __future__ import annotations

import numpy as np

from stairs.caches import VersionMove
from stairs.descriptors import S_LO, S_NEXT
from stairs.kernels.versions import compact_versions
from stairs.stems import Stems


def dead_versions(stems: Stems, i: int) -> int:
    """Return the number of dead versions in the ring of table i. O(versions)."""
    return stems.rows(i) - stems.live(i)


def compact(stems: Stems, i: int) -> VersionMove:
    """Move the living versions of table i together, and return where they are. Between two pushes.

    The table moves in one call of a kernel; caches follow after it, and so must the payload. O(versions + marks), and
    what the caches need.
    """
    stems.clear_marks()
    stems.bands.reset()
    low, following = stems.streams[i, [S_LO, S_NEXT]].tolist()
    alive = stems.live_tuples(i)
    first = following - len(alive)
    to = np.full(following - low, -1, np.int64)
    to[alive - low] = np.arange(first, following)
    stems.last_move = move = VersionMove(i, low, to, first)
    compact_versions(stems.arena, i, to, stems.graph.rings[i], stems.move_count)
    for cache in stems.caches:
        cache.moved(move)
    return move
