"""MJoin: SteMs only, no inner state; routes are compiled from the plan.

A transition only changes tables. MJoin is the baseline that storing states has to beat.
Source: Viglas, Naughton, Burger, "Maximizing the output rate of multi-way join queries over streaming information
sources", VLDB 2003.
"""

from __future__ import annotations

from jisc.plan.routes import compile_routes
from jisc.plan.tree import Tree
from jisc.strategies.base import Strategy
from jisc.strategies.transition import Transition
from stairs.descriptors import VIRTUAL
from stairs.memory.arena import Int64s


class MJoin(Strategy):
    """The strategy with SteMs alone, whose routes are compiled from the plan."""

    name = "mjoin"
    mode = VIRTUAL

    def _start(self, tree: Tree) -> None:
        self.routes = compile_routes(tree, self.modules.graph)

    def _move(self, tree: Tree, done: Transition) -> None:
        self.routes = compile_routes(tree, self.modules.graph)

    def _restore(self, trees: list[Tree], marks: Int64s | None) -> None:
        self.routes = compile_routes(trees[-1], self.modules.graph)
