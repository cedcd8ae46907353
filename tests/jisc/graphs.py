"""Join graphs of the usual shapes, with an attribute class per edge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eddy.fuzz.graphs import edges
from jisc.plan.states import Masks
from stairs.graph import JoinGraph, Window, WindowKind

NAMES = "RSTUVWXY"


def classes_of(attributes: Sequence[Sequence[int]]) -> JoinGraph:
    """Return the graph in which stream i has the classes attributes[i]."""
    n = len(attributes)
    classes = 1 + max(c for stream_classes in attributes for c in stream_classes)
    windows = (Window(WindowKind.ROWS, 4),) * n
    names = tuple(NAMES[:n]) if n <= len(NAMES) else tuple(f"S{i}" for i in range(n))
    return JoinGraph(
        names, windows, tuple(tuple(sorted(stream_classes)) for stream_classes in attributes), (1,) * classes
    )


def graph_of(n: int, pairs: Sequence[tuple[int, int]]) -> JoinGraph:
    """Return a graph with a class per edge: class k joins the two streams of edge k only."""
    return classes_of([[k for k, pair in enumerate(pairs) if i in pair] for i in range(n)])


def chain(n: int) -> JoinGraph:
    return graph_of(n, edges("chain", n))


def star(n: int) -> JoinGraph:
    """Return a star around stream 0, which has an attribute for each other stream."""
    return graph_of(n, edges("star", n))


def cycle(n: int) -> JoinGraph:
    return graph_of(n, edges("cycle", n))


def clique(n: int) -> JoinGraph:
    return graph_of(n, edges("clique", n))


def same_key(n: int) -> JoinGraph:
    """Return n streams with one attribute each, all in one class."""
    return classes_of([[0]] * n)


def connected_orders(masks: Masks) -> Iterator[tuple[int, ...]]:
    """Yield every order in which each stream joins one before it, in lexicographic order. There may be m! of them."""
    m = len(masks.classes)

    def extend(order: tuple[int, ...], bound: int) -> Iterator[tuple[int, ...]]:
        if len(order) == m:
            yield order
            return
        for j in range(m):
            if j not in order and (not order or masks.classes[j] & bound):
                yield from extend((*order, j), bound | masks.classes[j])

    yield from extend((), 0)
