"""No inner state at all: SteMs only, along routes compiled from the plan.

A transition changes tables and nothing else. It is the baseline of what storing states has to beat.
Source: Viglas, Naughton, Burger, "Maximizing the output rate of multi-way join queries over streaming information
sources", VLDB 2003.
"""

from __future__ import annotations

from jisc.plan.routes import compile_routes
from jisc.plan.tree import Tree
from jisc.strategies.base import Strategy, Transition
from stairs.descriptors import VIRTUAL
from stairs.memory.arena import Int64s
from stairs.modules import Modules


class MJoin(Strategy):
    """SteMs only, compiled routes."""

    name = "mjoin"
    mode = VIRTUAL

    def __init__(self, modules: Modules, tree: Tree) -> None:
        super().__init__(modules, tree)
        self.routes = compile_routes(tree, modules.graph)

    def _change(self, tree: Tree, done: Transition) -> None:
        self.routes = compile_routes(tree, self.modules.graph)

    def _restore(self, trees: list[Tree], marks: Int64s | None) -> None:
        self.routes = compile_routes(trees[-1], self.modules.graph)
