"""Places: the locations of the steps of a plan, and the nodes of a location that a tuple goes to.

A place is one node, or several nodes that share the work by key. Its nodes are the cells of a grid with a share per
attribute class; a tuple goes to the coordinate of its key in every class that it has, and to all coordinates in the
others:

    one node                        no shares
    four nodes by class b           shares {b: 4}; tuples without class b go to all four
    a grid of 2 x 3 nodes           shares {a: 2, b: 3}: a hypercube join (`eddy.placement.shares`)

All components of a result meet in exactly one cell of a place if each join there is on keys, because for every class
with a share above 1 some component has the coordinate. So no result is lost or produced twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from eddy.placement.tuples import Ints, Tuples
from stairs.errors import PlanError


@dataclass(frozen=True)
class Place:
    """Nodes where steps happen.

    nodes    one for each cell
    shares   (class, share) for each class whose keys decide; their product is the number of nodes. Empty: nothing
             decides, and a tuple that is sent here goes to all nodes

    Raises PlanError if shares and nodes do not fit together.
    """

    nodes: tuple[int, ...]
    shares: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if not self.nodes or len(set(self.nodes)) != len(self.nodes):
            raise PlanError(f"a place has one or more different nodes, not {list(self.nodes)}")
        cells = math.prod(share for _, share in self.shares)
        if self.shares and cells != len(self.nodes):
            raise PlanError(f"a place with {cells} cells needs as many nodes, not {len(self.nodes)}")

    @cached_property
    def _hash(self) -> int:
        return hash((self.nodes, self.shares))

    def __hash__(self) -> int:
        # The hash is stored because places are keys of most lookups of a node and have many nodes.
        return self._hash

    @cached_property
    def classes(self) -> frozenset[int]:
        """The classes whose keys decide."""
        return frozenset(c for c, share in self.shares if share > 1)

    def route(self, tuples: Tuples) -> list[tuple[int, Tuples]]:
        """Return the part of the tuples that each node gets, in the order of `nodes`; parts may be empty.

        Cost: one sort by cell, and the copies.
        """
        if len(self.nodes) == 1 or not self.classes & tuples.keys.keys():
            return [(node, tuples) for node in self.nodes]
        cells = np.zeros(tuples.size, np.int64)
        offsets = np.zeros(1, np.int64)
        stride = 1
        for c, share in self.shares:
            if c in tuples.keys:
                cells += coordinates(tuples.keys[c], share) * stride
            else:
                offsets = (offsets[:, None] + np.arange(share) * stride).ravel()
            stride *= share
        order = np.argsort(cells, kind="stable")
        starts = np.searchsorted(cells[order], np.arange(len(self.nodes) + 1)).tolist()
        dealt = tuples.take(order)
        parts = [dealt.take(slice(0, 0))] * len(self.nodes)
        for cell, (start, stop) in enumerate(pairwise(starts)):
            if start < stop:
                part = dealt.take(slice(start, stop))
                for offset in offsets.tolist():
                    parts[cell + offset] = part
        return list(zip(self.nodes, parts, strict=True))

    def copies(self, classes: frozenset[int]) -> int:
        """Return how many nodes a tuple with keys of these classes goes to."""
        if not self.shares:
            return len(self.nodes)
        return math.prod(share for c, share in self.shares if c not in classes)

    def text(self, labels: Sequence[str]) -> str:
        """Return the place in words; `labels` names the classes."""
        if len(self.nodes) == 1:
            return f"N{self.nodes[0]}"
        split = [f"{labels[c]}: {share}" for c, share in self.shares if share > 1]
        return f"{len(self.nodes)} nodes by {', '.join(split)}" if split else f"{len(self.nodes)} nodes"


def coordinates(keys: Ints, share: int) -> Ints:
    """Return the coordinate of each key along a class: a hash, mixed, from 0 to share - 1."""
    mixed = keys.astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return (((mixed >> np.uint64(32)) * np.uint64(share)) >> np.uint64(32)).astype(np.int64)


def by_class(nodes: Sequence[int], c: int) -> Place:
    """Return the place where all these nodes share the work by the keys of one class."""
    return Place(tuple(nodes), ((c, len(nodes)),) if len(nodes) > 1 else ())


def grid(nodes: Sequence[int], counts: Mapping[int, int]) -> Place:
    """Return the grid of these nodes with the given share of each class."""
    return Place(tuple(nodes), tuple(sorted(counts.items())))
