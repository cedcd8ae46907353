"""The links between attributes along which no-good marks are followed (`stairs.kernels.marks`)."""

from __future__ import annotations

import numpy as np

from stairs.descriptors import N_FIELDS
from stairs.graph import JoinGraph
from stairs.memory.arena import Int64s


def links_of(graph: JoinGraph) -> tuple[Int64s, Int64s]:
    """Return the links along which no-good marks are followed, int64[n, N_FIELDS], and those of each attribute.

    The attributes of a spanning forest have links, if there are two classes or more. The second array has a row for
    each attribute: first link, end.
    """
    pairs = [(i, c) for i, classes in enumerate(graph.indexed) for c in classes]
    rows, forest = {pair: x for x, pair in enumerate(pairs)}, graph.forest()
    links: list[tuple[int, int, int]] = []
    ends = [0]
    for i, c in pairs:
        if (i, c) in forest and graph.n_classes > 1:
            linked = [j for j in graph.members[c] if j != i and (j, c) in forest]
            links += [(j, graph.columns[c][j], rows[j, c]) for j in linked]
        ends.append(len(links))
    bounds: Int64s = np.array([ends[:-1], ends[1:]], np.int64).T
    return np.array(links, np.int64).reshape(-1, N_FIELDS), bounds
