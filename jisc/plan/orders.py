"""Orders of streams in which each joins one before it: the left-deep plans of a query without a cross product."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jisc.plan.states import Masks


def connected_orders(masks: Masks) -> Iterator[tuple[int, ...]]:
    """Yield every order, those that begin with the first streams first. There may be m! of them."""
    m = len(masks.classes)

    def extend(order: tuple[int, ...], bound: int) -> Iterator[tuple[int, ...]]:
        if len(order) == m:
            yield order
            return
        for j in range(m):
            if j not in order and (not order or masks.classes[j] & bound):
                yield from extend((*order, j), bound | masks.classes[j])

    yield from extend((), 0)


def random_order(masks: Masks, rng: np.random.Generator) -> tuple[int, ...]:
    """Return an order drawn step by step, each time one of the streams that connect. O(streams squared)."""
    m = len(masks.classes)
    order, bound = [int(rng.integers(m))], 0
    while len(order) < m:
        bound |= masks.classes[order[-1]]
        ready = [j for j in range(m) if j not in order and masks.classes[j] & bound]
        order.append(ready[int(rng.integers(len(ready)))])
    return tuple(order)


def connected(order: list[int], masks: Masks) -> tuple[int, ...]:
    """Return the order nearest to this one in which each stream joins one before it."""
    waiting, found = list(order), list[int]()
    bound = 0
    while waiting:
        following = next(j for j in waiting if not found or masks.classes[j] & bound)
        waiting.remove(following)
        found.append(following)
        bound |= masks.classes[following]
    return tuple(found)


def trunk_of(masks: Masks, stream: int, bound: int, left: int) -> bool:
    """Tell whether probing a stream would bind or check something: if not it is a leaf hop, whatever the plan.

    bound   bits of the classes that have a key by then
    left    bits of the streams not probed yet, itself included
    """
    own = masks.classes[stream]
    if (own & bound).bit_count() > 1:
        return True
    more = own & ~bound
    while more:
        c = (more & -more).bit_length() - 1
        more &= more - 1
        if masks.members[c] & left & ~(1 << stream):
            return True
    return False


def has_choice(masks: Masks) -> bool:
    """Tell whether plans of the query differ in how tuples are routed over SteMs.

    They do not if every tuple has one trunk hop at most before it at any time: leaf hops are all looked up first.
    """
    m = len(masks.classes)
    for i in range(m):
        bound, left = masks.classes[i], (1 << m) - 1 & ~(1 << i)
        while left:
            ready = [j for j in range(m) if left >> j & 1 and masks.classes[j] & bound]
            trunk = [j for j in ready if trunk_of(masks, j, bound, left)]
            if len(trunk) > 1:
                return True
            for j in trunk or ready:
                bound |= masks.classes[j]
                left &= ~(1 << j)
    return False


def is_cyclic(masks: Masks) -> bool:
    """Tell whether the graph of streams and classes has a cycle: a stream may be met with several of its keys bound."""
    edges = sum(classes.bit_count() for classes in masks.classes)
    return edges >= len(masks.classes) + len(masks.members)
