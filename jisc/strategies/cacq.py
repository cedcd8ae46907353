"""CACQ: SteMs only, tuple at a time through an eddy that chooses the next SteM at every hop (`stairs.kernels.cacq`).

A transition changes the ranking by which the eddy chooses and nothing else.
Source: Madden, Shah, Hellerstein, Raman, "Continuously adaptive continuous queries over streams", SIGMOD 2002.
"""

from __future__ import annotations

from jisc.plan.cacq_routes import compile_eddy
from jisc.plan.tree import Tree
from jisc.strategies.base import Strategy, Transition
from stairs.descriptors import ROUTED
from stairs.memory.arena import Int64s
from stairs.modules import Modules


class Cacq(Strategy):
    """SteMs only, routed hop by hop."""

    name = "cacq"
    mode = ROUTED

    def __init__(self, modules: Modules, tree: Tree) -> None:
        super().__init__(modules, tree)
        modules.scratch.open_frames()
        self.routes = compile_eddy(tree, self.masks)

    def _change(self, tree: Tree, done: Transition) -> None:
        self.routes = compile_eddy(tree, self.masks)

    def _restore(self, trees: list[Tree], marks: Int64s | None) -> None:
        self.routes = compile_eddy(trees[-1], self.masks)
