"""Connected orders of streams (left-deep plans), and whether a query leaves a choice between them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jisc.plan.connected import reachable
from jisc.plan.states import Masks


def random_order(masks: Masks, rng: np.random.Generator) -> tuple[int, ...]:
    """Return a connected order; each step draws one of the reachable streams, all equally likely. O(streams^2)."""
    return drawn_order(masks, lambda ready: ready[int(rng.integers(len(ready)))])


def drawn_order(masks: Masks, draw: Callable[[list[int]], int]) -> tuple[int, ...]:
    """Return a connected order; each step takes the stream that `draw` chooses of the reachable ones. O(streams^2)."""
    waiting = list(range(len(masks.classes)))
    order, bound = list[int](), 0
    while waiting:
        order.append(draw(reachable(waiting, bound, masks.classes) if order else waiting))
        waiting.remove(order[-1])
        bound |= masks.classes[order[-1]]
    return tuple(order)


def trunk_of(masks: Masks, stream: int, bound: int, left: int) -> bool:
    """Return whether a probe of the stream binds or checks a class or compares; if not, it is a leaf hop in all plans.

    bound   bits of the classes that are bound by then
    left    bits of the streams not probed yet, `stream` included
    """
    classes = masks.classes[stream]
    if masks.graph.compared >> stream & 1 or (classes & bound).bit_count() > 1:
        return True
    more = classes & ~bound
    while more:
        c = (more & -more).bit_length() - 1
        more &= more - 1
        if masks.members[c] & left & ~(1 << stream):
            return True
    return False


def has_choice(masks: Masks) -> bool:
    """Return whether plans of the query differ in how they route tuples over SteMs.

    They do not if a tuple has at most one trunk hop to choose at any time: leaf hops all come first.
    """
    m = len(masks.classes)
    for i in range(m):
        bound, left = masks.classes[i], (1 << m) - 1 & ~(1 << i)
        while left:
            ready = reachable((j for j in range(m) if left >> j & 1), bound, masks.classes)
            trunk = [j for j in ready if trunk_of(masks, j, bound, left)]
            if len(trunk) > 1:
                return True
            for j in trunk or ready:
                bound |= masks.classes[j]
                left &= ~(1 << j)
    return False


def is_cyclic(masks: Masks) -> bool:
    """Return whether the graph of streams and classes has a cycle, so that a probe may have several classes bound."""
    edges = sum(classes.bit_count() for classes in masks.classes)
    return edges >= len(masks.classes) + len(masks.members)
