"""Routes of joins on one key, where a tuple may probe any stream next: each table is filled at once.

With a hundred streams there are ten thousand hops, and row by row the tables take tens of milliseconds.
"""

from __future__ import annotations

from itertools import chain

import numpy as np

from jisc.plan.tree import Tree
from stairs.descriptors import H_FIELDS
from stairs.memory.arena import Int64s, Rows
from stairs.routes import HopRow


def one_key_orders(tree: Tree) -> Rows:
    """Return per stream the other streams in the order of `probe_orders`: int64[streams, streams - 1]. O(streams^2).

    A join takes an interval of the leaves. Joins come children first, so a leaf meets its siblings from the bottom up,
    and has met all other leaves of one side when it meets the other side.
    """
    leaves = np.array(list(tree.leaves()))
    orders = np.empty((len(leaves), len(leaves) - 1), np.int64)
    places = {1 << leaf: (at, at + 1) for at, leaf in enumerate(leaves.tolist())}
    for node in tree.inner():
        left, right = node.children
        (start, middle), (_, end) = places[left.mask], places[right.mask]
        orders[start:middle, middle - start - 1 : end - start - 1] = leaves[middle:end]
        orders[middle:end, end - middle - 1 : end - start - 1] = leaves[start:middle]
        places[node.mask] = start, end
    by_stream = np.empty_like(orders)
    by_stream[leaves] = orders
    return by_stream


def one_key_tables(tree: Tree, rows: list[HopRow]) -> tuple[Rows, Int64s]:
    """Return the route of each stream as (first hop, hop after the last), int64[streams, 2], and all hops.

    rows    the hop that probes each stream
    """
    targets = one_key_orders(tree)
    ends = np.arange(len(rows) + 1) * (len(rows) - 1)
    by_target = np.fromiter(chain.from_iterable(rows), np.int64).reshape(-1, H_FIELDS)
    return np.stack([ends[:-1], ends[1:]], axis=1), by_target.take(targets.reshape(-1), axis=0)
