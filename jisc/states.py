"""Which states a plan has, and what becomes of them when the plan changes.

A state is identified by the set of streams it joins and the attribute class it is indexed on: the class by which its
sibling in the tree probes it. The same streams indexed on another class are another state. Streams have their SteMs,
which every plan shares; the root is probed by nobody and not stored.
Source: Aly et al., EDBT 2014, Definition 1 and sec. 4.5; a state there is known by its streams alone, all joins being
on one attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from jisc.plan import Tree
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
        self.classes = [sum(1 << c for c in own) for own in graph.attributes]
        """Per stream, its classes."""
        self.members = [sum(1 << j for j in own) for own in graph.members]
        """Per class, its streams."""
        self._first = [{j: own.index(j) for j in own} for own in graph.members]
        self._known: dict[int, int] = {}

    def classes_of(self, tree: Tree) -> int:
        """Return the classes of all streams of a tree. O(1) when asked again."""
        known = self._known.get(tree.mask)
        if known is None:
            known = self.classes[tree.stream] if not tree.children else 0
            for child in tree.children:
                known |= self.classes_of(child)
            if len(self._known) > 100_000:
                self._known.clear()
            self._known[tree.mask] = known
        return known

    def by(self, tree: Tree, sibling: Tree) -> int:
        """Return the class by which two joined trees probe each other: the first that they share."""
        shared = self.classes_of(tree) & self.classes_of(sibling)
        return (shared & -shared).bit_length() - 1

    def column(self, c: int, j: int) -> int:
        """Return the column of stream j in a head row of class c."""
        return self._first[c][j]


def joins(tree: Tree) -> Iterator[tuple[Tree, Tree]]:
    """Yield each node below the root with its sibling, children first."""
    if tree.children:
        left, right = tree.children
        yield from joins(left)
        yield from joins(right)
        yield left, right
        yield right, left


def states_of(tree: Tree, masks: Masks) -> list[StateId]:
    """Return the states of a plan, those below others first."""
    return [StateId(node.mask, masks.by(node, sibling)) for node, sibling in joins(tree) if node.children]


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
        return tuple(state for state in self.new if state in frozenset(self.old))

    @cached_property
    def missing(self) -> tuple[StateId, ...]:
        """States of the new plan only."""
        return tuple(state for state in self.new if state not in frozenset(self.old))

    @cached_property
    def dropped(self) -> tuple[StateId, ...]:
        """States of the old plan only."""
        return tuple(state for state in self.old if state not in frozenset(self.new))

    @cached_property
    def complete(self) -> tuple[StateId, ...]:
        """States of the new plan that hold all there is from the start."""
        return tuple(state for state in self.kept if state not in self.incomplete_before)

    @cached_property
    def incomplete(self) -> tuple[StateId, ...]:
        """States of the new plan that have to be completed."""
        return tuple(state for state in self.new if state not in frozenset(self.complete))


def difference(
    old: Tree, new: Tree, masks: Masks, is_complete: Callable[[StateId], bool] = lambda state: True
) -> Difference:
    """Return what changes from one plan to another; `is_complete` tells of a state of the old plan. O(states)."""
    before = tuple(states_of(old, masks))
    return Difference(
        before, tuple(states_of(new, masks)), frozenset(state for state in before if not is_complete(state))
    )
