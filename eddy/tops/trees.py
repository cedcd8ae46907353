"""The arrays of the trees of all groups: one treap for each group, its rows in order.

A treap is a search tree by the order of rows, and a heap by random priorities; so it is balanced with a probability
that no order of rows changes, and its form depends on its rows alone. A node in its left subtree precedes a node, one
in its right subtree follows it (Seidel and Aragon, "Randomized search trees", Algorithmica 16, 1996).

The words of a row are compared from left to right:

    columns   a word for each column of the order (`eddy.aggregates.words`); 0 for null
    late      one word with a bit for each column; the row with the bit comes after a row without it: nulls and values
    ties      arrival numbers, which decide between rows that are equal otherwise
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stairs.kernels.accelerate import bundled

Int64s = npt.NDArray[np.int64]

LEFT = 0  # node of the left subtree, -1 = none
RIGHT = 1  # node of the right subtree, -1 = none
SIZE = 2  # nodes of the subtree, itself included; 0 = the slot is in no tree
PRIORITY = 3  # no node of the subtree has a greater one
ADDED = 4  # its place among the nodes that the open push added, -1 = it was there before
MARK = 5  # a mark for the comparison of two answers, 0 between two calls
ROW = 6  # the number of its row among the stored rows
GROUP = 7  # the slot of its group
NODE_FIELDS = 8

N_NEXT = 0  # slots assigned so far
N_FREE = 1  # slots on the stack of free ones
N_ADDED = 2  # nodes that the open push added
N_REMOVED = 3  # nodes that the open push removed and had not added
N_FIELDS = 4

DESCENDING = 1
TEXT = 2
"""Bits of the kind of a column: the order is reversed; words are ids of byte strings."""
DEEPEST = 4096
"""Room for a path in a tree. A treap of 10^9 nodes is deeper than 200 with a probability below 10^-20."""
LEAST_NODES = 64


@bundled
class Trees(NamedTuple):
    """The nodes of all trees. A slot of `nodes` and of `words` is one row of one group.

    nodes    int64[capacity, NODE_FIELDS]
    words    int64[capacity, columns + 1 + ties]
    freed    int64[capacity]  stack of free slots
    added    int64[capacity]  nodes that the open push added
    removed  int64[capacity]  nodes that the open push removed; their words stay until it is settled
    meta     int64[N_FIELDS]
    kinds    int64[columns]   bits of each column
    path     int64[DEEPEST]   the nodes above the current one
    seeds    int64[2]         of the priorities
    """

    nodes: Int64s
    words: Int64s
    freed: Int64s
    added: Int64s
    removed: Int64s
    meta: Int64s
    kinds: Int64s
    path: Int64s
    seeds: Int64s


def empty_trees(width: int, kinds: Int64s, seeds: Int64s) -> Trees:
    """Return no trees, whose rows have `width` words."""
    return Trees(
        np.zeros((LEAST_NODES, NODE_FIELDS), np.int64),
        np.zeros((LEAST_NODES, width), np.int64),
        np.zeros(LEAST_NODES, np.int64),
        np.zeros(LEAST_NODES, np.int64),
        np.zeros(LEAST_NODES, np.int64),
        np.zeros(N_FIELDS, np.int64),
        kinds,
        np.zeros(DEEPEST, np.int64),
        seeds,
    )


def longer_trees(trees: Trees, room: int) -> Trees:
    """Return the same trees with room for more nodes."""

    def longer(array: Int64s) -> Int64s:
        larger = np.zeros((room, *array.shape[1:]), np.int64)
        larger[: len(array)] = array
        return larger

    return trees._replace(
        nodes=longer(trees.nodes),
        words=longer(trees.words),
        freed=longer(trees.freed),
        added=longer(trees.added),
        removed=longer(trees.removed),
    )
