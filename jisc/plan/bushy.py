"""Bushy plans by dynamic programming: the plan whose inner states weigh least.

In a pipelined plan, arrivals form the same composites of a set of streams in whichever way the plan joins the set. So
the work of an inner state depends on its streams alone, and the work of a plan is a sum over its states: the best plan
of a set consists of the best plans of two parts. With up to `ALL` streams every connected set is considered; with more
streams, the intervals of one order, whose number grows with the square of the streams.
Source of dynamic programming over joins: Selinger et al., "Access path selection in a relational database management
system", SIGMOD 1979; without cross products: Moerkotte, Neumann, "Analysis of two existing and one new dynamic
programming algorithm for the generation of optimal bushy join trees without cross products", VLDB 2006.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from jisc.plan.connected import reachable
from jisc.plan.states import Masks
from jisc.plan.tree import Tree, join, leaf
from stairs.memory.arena import Int64s

ALL = 10
"""Number of streams up to which all connected sets are considered."""


class Bushy:
    """The connected sets of streams that bushy plans of a query may join, and the pairs of sets that form each.

    sets      streams of each set as bits, smaller sets before larger ones
    members   bool[sets, streams]

    O(3^streams) up to `ALL` streams, O(streams^3) for more. Depends on the query only.
    """

    def __init__(self, masks: Masks) -> None:
        m = len(masks.classes)
        ways = _all_ways(masks) if m <= ALL else _interval_ways(masks)
        self.sets = sorted(ways, key=int.bit_count)
        self.members = np.array([[streams >> i & 1 for i in range(m)] for streams in self.sets], np.bool_)
        number = {streams: k for k, streams in enumerate(self.sets)}
        self._ways: list[Int64s] = [
            np.array([(number[left], number[streams ^ left]) for left in ways[streams]], np.int64).reshape(-1, 2)
            for streams in self.sets
        ]
        """Per set, the pairs of sets that form it: int64[pairs, 2]. A single stream has none."""

    def lightest(self, weights: npt.NDArray[np.float64]) -> Tree:
        """Return the plan whose inner states have the least sum of weights; the root weighs nothing. O(pairs).

        weights   float64[sets]
        """
        costs = np.zeros(len(self.sets))
        chosen: list[tuple[int, int] | None] = [None] * len(self.sets)
        for k, pairs in enumerate(self._ways):
            if len(pairs):
                sums = costs[pairs].sum(axis=1)
                best = int(sums.argmin())
                chosen[k] = int(pairs[best, 0]), int(pairs[best, 1])
                costs[k] = sums[best] + weights[k]

        def tree(k: int) -> Tree:
            pair = chosen[k]
            return leaf(self.sets[k].bit_length() - 1) if pair is None else join(tree(pair[0]), tree(pair[1]))

        return tree(len(self.sets) - 1)


def _all_ways(masks: Masks) -> dict[int, list[int]]:
    """Return all connected sets; for each, the part with its first stream in each pair of connected parts."""
    m = len(masks.classes)
    classes = {1 << i: bits for i, bits in enumerate(masks.classes)}
    ways: dict[int, list[int]] = {}
    for streams in range(1, 1 << m):
        first = streams & -streams
        parts, part = list[int](), (streams - 1) & streams
        while part:
            # Two connected parts that share a class form a connected set. Subsets are smaller numbers.
            rest = streams ^ part
            if part & first and part in ways and rest in ways and classes[part] & classes[rest]:
                parts.append(part)
            part = (part - 1) & streams
        if parts:
            classes[streams] = classes[parts[0]] | classes[streams ^ parts[0]]
        if parts or streams == first:
            ways[streams] = parts
    return ways


def _interval_ways(masks: Masks) -> dict[int, list[int]]:
    """Return the connected intervals of one order of the streams; for each, the first part of each cut in two."""
    order = _depth_first(masks)
    classes = {1 << i: masks.classes[i] for i in order}
    ways: dict[int, list[int]] = {1 << i: [] for i in order}
    before = [0]
    for i in order:
        before.append(before[-1] | 1 << i)
    for length in range(2, len(order) + 1):
        for a in range(len(order) - length + 1):
            b = a + length
            cuts = [(before[k] ^ before[a], before[b] ^ before[k]) for k in range(a + 1, b)]
            parts = [left for left, right in cuts if left in ways and right in ways and classes[left] & classes[right]]
            if parts:
                streams = before[b] ^ before[a]
                ways[streams] = parts
                classes[streams] = classes[parts[0]] | classes[streams ^ parts[0]]
    return ways


def _depth_first(masks: Masks) -> list[int]:
    """Return the streams as a walk in depth visits them, from one of those with the fewest neighbours.

    So the streams of a chain, and of an arm of a star, stand next to each other.
    """
    everyone = range(len(masks.classes))
    near = [reachable(everyone, bits, masks.classes) for bits in masks.classes]
    order, waiting = list[int](), [min(everyone, key=lambda i: len(near[i]))]
    while waiting:
        i = waiting.pop()
        if i not in order:
            order.append(i)
            waiting += reversed(near[i])
    return order
