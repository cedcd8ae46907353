"""The nodes of a query with branches (`eddy.query.branches`): its core and its branches, as a tree.

A branch hangs on the node above it. The streams on the way from the core to a node are its path; their inner join
decides which tuples of the node above have partners.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stairs.graph import Window, WindowKind

Path = tuple[int, ...]
"""The streams of an inner join, by their positions in the query, ascending."""


@dataclass(frozen=True)
class BranchNode:
    """The core or a branch of a query.

    how       how the node hangs on the node above: "left", "semi" or "anti"; "core" for a core
    streams   streams of the node, by their position in the query
    path      streams of the node and of all nodes above it, ascending
    windows   by stream of `path`, the span in which its tuples can find new partners in the join of the path
    branches  the nodes that hang on this one
    """

    how: str
    streams: tuple[int, ...]
    path: Path
    windows: dict[int, Window]
    branches: tuple[BranchNode, ...]

    def spans(self, below: BranchNode) -> list[tuple[int, int]]:
        """Return the streams of this node with a RANGE window in the join of a node below it, with their sizes."""
        windows = [(i, below.windows[i]) for i in self.path]
        return [(i, window.size) for i, window in windows if window.kind == WindowKind.RANGE]

    def below(self) -> Iterator[BranchNode]:
        """Yield the node and all nodes below it."""
        yield self
        for branch in self.branches:
            yield from branch.below()
