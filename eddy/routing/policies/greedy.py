"""Greedy orders: at each step, the stream of the least rank.

The rank of a stream is (partners - 1) / cost: the least rank removes most tuples per nanosecond. Sorting by rank is
optimal for independent filters and for joins along a tree (Ibaraki, Kameda, "On the optimal nesting order for computing
N-relational joins", TODS 1984). Leaf hops need no place in the order, because a walk looks them all up before it
continues. So a stream is ranked together with its leaves.
"""

from __future__ import annotations

import numpy as np

from eddy.routing.view import View
from jisc.plan.orders import trunk_of
from stairs.samples import Floats


class Greedy:
    """Orders by one view.

    conditional   count partners only for the sampled tuples that pass the streams chosen before, weighted by their
                  partners there; otherwise for all sampled tuples
    """

    def __init__(self, view: View, conditional: bool) -> None:
        self.view, self.conditional = view, conditional
        m = view.graph.n_streams
        self._everything = (1 << m) - 1
        self._alives: dict[tuple[int, int], tuple[Floats, float]] = {}

    def order(self, start: int, among: int | None = None) -> tuple[int, ...]:
        """Return a connected order of streams that begins with `start`.

        among   bits of the streams to order, as far as they are reachable from `start`; None = all
        """
        wanted = self._everything if among is None else among
        placed, ordered = [start], [start]
        weights = {start: self._alive(start, -1)[0]}
        bound = self.view.masks.classes[start]
        left = wanted & ~(1 << start)
        left = self._take_leaves(bound, left, ordered)
        while left:
            best: tuple[float, int, int, int] | None = None
            for k in placed:
                for n, near in enumerate(self.view.neighbours(k)):
                    if left >> near.stream & 1:
                        rank = self._rank(k, n, near.stream, near.by, weights[k])
                        if best is None or rank < best[0]:
                            best = rank, near.stream, k, n
            if best is None:
                break
            _, j, k, n = best
            if self.conditional and len(weights[k]):
                weights[k] = weights[k] * self.view.profile(k)[:, n]
            by = self.view.neighbours(k)[n].by
            weights[j] = self._alive(j, by)[0]
            placed.append(j)
            ordered.append(j)
            left &= ~(1 << j)
            bound |= self.view.masks.classes[j]
            left = self._take_leaves(bound, left, ordered)
        return tuple(ordered)

    def _take_leaves(self, bound: int, left: int, ordered: list[int]) -> int:
        """Append the streams that are leaf hops by now; return the others."""
        for j in range(self.view.graph.n_streams):
            # In the whole query: a stream with further neighbours is no leaf, even if those are not to be ordered here.
            others = self._everything & ~sum(1 << k for k in ordered)
            ready = left >> j & 1 and self.view.masks.classes[j] & bound
            if ready and not trunk_of(self.view.masks, j, bound, others):
                ordered.append(j)
                left &= ~(1 << j)
        return left

    def _alive(self, j: int, by: int) -> tuple[Floats, float]:
        """Return whether sampled tuples of j have partners in all leaves of j (except by class `by`); and the mean."""
        known = self._alives.get((j, by))
        if known is None:
            profile = self.view.profile(j)
            alive = np.ones(len(profile))
            for k, near in enumerate(self.view.neighbours(j)):
                if near.by != by and self.view.masks.classes[near.stream] == 1 << near.by:
                    alive = alive * (profile[:, k] > 0)
            known = self._alives[j, by] = alive, float(alive.mean()) if len(alive) else 1.0
        return known

    def _rank(self, k: int, column: int, j: int, by: int, weights: Floats) -> float:
        partners = self.view.profile(k)[:, column]
        if not len(partners):
            return 0.0
        total = float(weights.sum()) if self.conditional else 0.0
        mean = float(weights @ partners) / total if total > 0 else float(partners.sum()) / len(partners)
        return (mean * self._alive(j, by)[1] - 1) / (1 + mean)


def centre(view: View) -> int:
    """Return the stream with most attributes, and of these the one with most arrivals: its walks have most choice."""
    attributes = view.graph.attributes
    return max(range(view.graph.n_streams), key=lambda i: (len(attributes[i]), float(view.shares[i]), -i))
