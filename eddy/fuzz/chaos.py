"""A policy that changes plans at random. `eddy.fuzz.script` copies `Chaos` into the scripts it writes."""

from __future__ import annotations

import random

from eddy.routing.policies import Decision, View
from jisc.plan.states import states_of
from jisc.plan.tree import Tree, join


class Chaos:
    """Policy that decides at random.

    The k-th decision depends on the seed and the query only, so a second run of a case repeats it.
    """

    name = "chaos"

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def decide(self, view: View) -> Decision | None:
        """Return a random plan, left-deep or bushy, with random states stored; sometimes the present plan, or None."""
        pick = self.random.randrange(8)
        if pick == 0:
            return None
        tree = view.tree if pick == 1 else self.tree(view)
        if pick == 2 or not view.storing:
            return Decision(tree, None, "kept what was stored")
        store = [state for state in states_of(tree, view.masks) if self.random.randrange(2)]
        return Decision(tree, store, "any states")

    def tree(self, view: View) -> Tree:
        """Join parts that share a class until one is left."""
        parts = [(Tree(i), bits) for i, bits in enumerate(view.masks.classes)]
        self.random.shuffle(parts)
        left_deep = self.random.randrange(2)
        while len(parts) > 1:
            firsts = parts[:1] if left_deep else parts
            pairs = [(a, b) for a in firsts for b in parts if a is not b and a[1] & b[1]]
            a, b = self.random.choice(pairs)
            parts = [(join(a[0], b[0]), a[1] | b[1]), *(part for part in parts if part is not a and part is not b)]
        return parts[0][0]
