"""CACQ: SteMs only; an eddy routes tuple by tuple and chooses the next SteM at every hop (`stairs.kernels.cacq`).

A transition only changes the ranking by which the eddy chooses.
Source: Madden, Shah, Hellerstein, Raman, "Continuously adaptive continuous queries over streams", SIGMOD 2002.
"""

from __future__ import annotations

from jisc.plan.rankings import compile_rankings
from jisc.plan.tree import Tree
from jisc.strategies.base import Strategy
from jisc.strategies.transition import Transition
from stairs.descriptors import ROUTED
from stairs.memory.arena import Int64s


class Cacq(Strategy):
    """The strategy with SteMs alone, whose tuples an eddy routes hop by hop."""

    name = "cacq"
    mode = ROUTED

    def _start(self, tree: Tree) -> None:
        self.modules.scratch.open_frames()
        self.routes = compile_rankings(tree, self.modules.graph)

    def _move(self, tree: Tree, done: Transition) -> None:
        self.routes = compile_rankings(tree, self.modules.graph)

    def _restore(self, trees: list[Tree], marks: Int64s | None) -> None:
        self.routes = compile_rankings(trees[-1], self.modules.graph)
