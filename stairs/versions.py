"""The compaction of tables: a ring most of whose versions are dead gives their slots back.

The living versions of a table get new sequence numbers, the last ones before the number of the next arrival, in their
order. So chains stay newest first, the numbers of later arrivals are what they would have been, and a version keeps its
arrival number in a ring of values (`stairs.kernels.versions`). Whoever holds sequence numbers follows: the caches of
the modules, and the payload (`Payload.follow`).
"""

from __future__ import annotations

import numpy as np

from stairs.caches import VersionMove
from stairs.descriptors import C_CAPACITY, S_LO, S_NEXT
from stairs.stems import Stems


def dead_versions(stems: Stems, i: int) -> int:
    """Return the number of dead versions in the ring of table i. O(versions)."""
    return stems.rows(i) - stems.live(i)


def compact(stems: Stems, i: int) -> VersionMove:
    """Move the living versions of table i together, and return where they are. Between two pushes. O(state).

    The arrays change in one statement; caches follow after it, and so must the payload.
    """
    graph, room = stems.graph, stems.capacity[i]
    stems.clear_marks()
    stems.bands.reset()
    low, following = stems.streams[i, [S_LO, S_NEXT]].tolist()
    alive = stems.live_tuples(i)
    after = np.arange(following - len(alive), following)
    to = np.full(following - low, -1, np.int64)
    to[alive - low] = after
    move = VersionMove(i, low, to, following - len(alive))
    recs, heads, values, streams = stems.recs.copy(), stems.heads.copy(), stems.values.copy(), stems.streams.copy()
    records = recs.view(i).reshape(room, -1)
    moved = records[alive & (room - 1)]
    n = len(graph.indexed[i])
    links = [*range(0, 2 * n, 2), *range(2 * n, 3 * n)]
    moved[:, links] = move.moved(moved[:, links].astype(np.int64))
    records[after & (room - 1)] = moved
    for c in graph.indexed[i]:
        keys = int(stems.classes[c, C_CAPACITY])
        column = heads.view(c)[stems.before[c] :].reshape(keys, -1)[:, graph.columns[c][i]]
        # A head that is no version says -1, or that the key id is free.
        column[column >= 0] = move.moved(column[column >= 0].astype(np.int64))
    for ring in values.view(i).reshape(graph.rings[i], room):
        ring[after & (room - 1)] = ring[alive & (room - 1)]
    streams[i, S_LO] = move.first
    stems._install(streams=streams, recs=recs, heads=heads, values=values, move=move)
    for cache in stems.caches:
        cache.moved(move)
    return move
