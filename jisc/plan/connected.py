"""The streams that can be probed next: those that share an attribute class with a stream that is bound already.

Sets of classes are ints with a bit for each class; `JoinGraph.class_bits[i]` is the set of stream i. An order of
streams is *connected* if each stream but the first shares a class with one before it, so that no step is a cross
product.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def reachable(streams: Iterable[int], bound: int, bits: Sequence[int]) -> list[int]:
    """Return those of the streams that share a class with the set `bound`. O(streams)."""
    return [j for j in streams if bits[j] & bound]


def connected_order(order: Iterable[int], bits: Sequence[int], bound: int = 0) -> list[int]:
    """Return the connected order nearest to this one: at each step, the first stream that is reachable. O(streams^2).

    bound   classes that are bound before the first step; 0 = the first stream of `order` begins
    """
    waiting, connected = list(order), list[int]()
    while waiting:
        following = waiting[0] if not bound else next(j for j in waiting if bits[j] & bound)
        waiting.remove(following)
        connected.append(following)
        bound |= bits[following]
    return connected
