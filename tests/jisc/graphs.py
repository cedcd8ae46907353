"""Join graphs of the usual shapes, an attribute class for each edge."""

from __future__ import annotations

from collections.abc import Sequence

from eddy.fuzz.graphs import edges
from stairs.graph import JoinGraph, Window, WindowKind

NAMES = "RSTUVWXY"


def classes_of(attributes: Sequence[Sequence[int]]) -> JoinGraph:
    """Give a graph by the classes of each stream."""
    n = len(attributes)
    classes = 1 + max(c for own in attributes for c in own)
    windows = (Window(WindowKind.ROWS, 4),) * n
    return JoinGraph(tuple(NAMES[:n]), windows, tuple(tuple(sorted(own)) for own in attributes), (1,) * classes)


def graph_of(n: int, pairs: Sequence[tuple[int, int]]) -> JoinGraph:
    """Give a graph with a class for each edge: class k joins the two streams of edge k and no others."""
    return classes_of([[k for k, pair in enumerate(pairs) if i in pair] for i in range(n)])


def chain(n: int) -> JoinGraph:
    return graph_of(n, edges("chain", n))


def star(n: int) -> JoinGraph:
    """Give a star around stream 0, which has an attribute for each other stream."""
    return graph_of(n, edges("star", n))


def cycle(n: int) -> JoinGraph:
    return graph_of(n, edges("cycle", n))


def clique(n: int) -> JoinGraph:
    return graph_of(n, edges("clique", n))


def same_key(n: int) -> JoinGraph:
    """Give n streams with one attribute, all in one class."""
    return classes_of([[0]] * n)
