"""Which states a plan has, and what becomes of them when the plan changes.

A state is identified by the set of streams it joins and the attribute class it is indexed on: the class by which its
sibling in the tree probes it. The same streams indexed on another class are another state. Streams have their SteMs,
which every plan shares; the root is probed by nobody and not stored.
Source: Aly et al., EDBT 2014, Definition 1 and sec. 4.5; a state there is known by its streams alone, all joins being
on one attribute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from jisc.plan.tree import Tree
from stairs.graph import JoinGraph


class StateId(NamedTuple):
    """Identity of a state: the bits of its streams, and the class it is indexed on."""

    mask: int
    by: int

    @property
    def streams(self) -> list[int]:
        """The streams, ascending."""
        return [j for j in range(self.mask.bit_length()) if self.mask >> j & 1]

    def text(self, graph: JoinGraph) -> str:
        """Return it as "R S T [2]": streams, and the number of the class as `explain` shows it."""
        return f"{' '.join(graph.names[j] for j in self.streams)} [{self.by + 1}]"


class Masks:
    """The join graph as sets of bits: what a plan's tables are computed from, quickly."""

    def __init__(self, graph: JoinGraph) -> None:
        self.graph = graph
        self.classes = graph.class_bits
        """Per stream, its classes."""
        self.members = [sum(1 << j for j in own) for own in graph.members]
        """Per class, its streams."""
        self._known: dict[int, int] = {}
        self._sides: dict[int, tuple[Tree, list[Side]]] = {}

    def sides(self, tree: Tree) -> list[Side]:
        """Return both sides of every join of a plan, those below others first. O(nodes), O(1) when asked again soon."""
        known = self._sides.get(id(tree))
        if known is None:
            if len(self._sides) > 16:
                self._sides.clear()
            # The tree is held as well, so that its id is not given to another one.
            known = self._sides[id(tree)] = tree, _sides(tree, self)
        return known[1]

    def classes_of(self, tree: Tree) -> int:
        """Return the classes of all streams of a tree. O(1) when asked again."""
        known = self._known.get(tree.mask)
        if known is None:
            if tree.left is None or tree.right is None:
                known = self.classes[tree.stream]
            else:
                known = self.classes_of(tree.left) | self.classes_of(tree.right)
            if len(self._known) > 100_000:
                self._known.clear()
            self._known[tree.mask] = known
        return known

    def by(self, tree: Tree, sibling: Tree) -> int:
        """Return the class by which two joined trees probe each other: the first that they share."""
        shared = self.classes_of(tree) & self.classes_of(sibling)
        return (shared & -shared).bit_length() - 1


class Side(NamedTuple):
    """One side of a join: a node below the root, its sibling, the class by which they probe each other, its parent."""

    node: Tree
    sibling: Tree
    by: int
    parent: Tree

    @property
    def state(self) -> StateId:
        """Its state, if it is no leaf."""
        return StateId(self.node.mask, self.by)


def _sides(tree: Tree, masks: Masks) -> list[Side]:
    found: list[Side] = []
    waiting = [tree]
    while waiting:
        parent = waiting.pop()
        if parent.left is None or parent.right is None:
            continue
        left, right = parent.left, parent.right
        by = masks.by(left, right)
        found.append(Side(right, left, by, parent))
        found.append(Side(left, right, by, parent))
        waiting += (left, right)
    found.reverse()
    return found


def states_of(tree: Tree, masks: Masks) -> list[StateId]:
    """Return the states of a plan, those below others first."""
    return [StateId(side.node.mask, side.by) for side in masks.sides(tree) if side.node.left is not None]


@dataclass(frozen=True)
class Difference:
    """What a transition does to the states: kept as they are, to be made, dropped.

    complete    of those kept, the ones that were complete in the old plan
    incomplete  all others of the new plan: new ones, and those kept that were incomplete (the paper's sec. 4.5)
    """

    old: tuple[StateId, ...]
    new: tuple[StateId, ...]
    incomplete_before: frozenset[StateId] = frozenset()

    @cached_property
    def kept(self) -> tuple[StateId, ...]:
        """States of both plans."""
        old = frozenset(self.old)
        return tuple(state for state in self.new if state in old)

    @cached_property
    def missing(self) -> tuple[StateId, ...]:
        """States of the new plan only."""
        old = frozenset(self.old)
        return tuple(state for state in self.new if state not in old)

    @cached_property
    def dropped(self) -> tuple[StateId, ...]:
        """States of the old plan only."""
        new = frozenset(self.new)
        return tuple(state for state in self.old if state not in new)

    @cached_property
    def complete(self) -> tuple[StateId, ...]:
        """States of the new plan that hold all there is from the start."""
        return tuple(state for state in self.kept if state not in self.incomplete_before)

    @cached_property
    def incomplete(self) -> tuple[StateId, ...]:
        """States of the new plan that have to be completed."""
        complete = frozenset(self.complete)
        return tuple(state for state in self.new if state not in complete)


def difference(
    old: Tree, new: Tree, masks: Masks, is_complete: Callable[[StateId], bool] = lambda state: True
) -> Difference:
    """Return what changes from one plan to another; `is_complete` tells of a state of the old plan. O(states)."""
    before = tuple(states_of(old, masks))
    return Difference(
        before, tuple(states_of(new, masks)), frozenset(state for state in before if not is_complete(state))
    )
