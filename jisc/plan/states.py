"""The states of a plan, and how two plans differ in their states.

A state is identified by the set of streams it joins and by the attribute class it is indexed on: the class by which its
sibling in the tree probes it. The same streams indexed on another class are another state. A leaf has a SteM, which all
plans share. The root is never probed, so it is not stored.
Source: Aly et al., EDBT 2014, Definition 1 and sec. 4.5. There, all joins are on one attribute, so the streams alone
identify a state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from jisc.plan.tree import Tree
from stairs.graph import MAX_STREAMS, JoinGraph
from stairs.storage.parts import Parts

RECENT_PLANS = 16
"""Plans whose sides `Masks` caches."""
MOST_SETS = 100_000
"""Sets of streams whose classes `Masks` caches."""


class StateId(NamedTuple):
    """Identity of a state: a bit for each of its streams, and the class it is indexed on."""

    mask: int
    by: int

    @classmethod
    def of(cls, streams: Iterable[int], by: int) -> StateId:
        """Return the state that joins these streams and is indexed on class `by`."""
        return cls(sum(1 << j for j in streams), by)

    @property
    def streams(self) -> list[int]:
        """The streams, ascending."""
        return [j for j in range(self.mask.bit_length()) if self.mask >> j & 1]

    def text(self, graph: JoinGraph) -> str:
        """Return "R S T [2]": the streams, and the number of the class as in `explain`."""
        return f"{' '.join(graph.names[j] for j in self.streams)} [{self.by + 1}]"


NO_STATE = StateId(0, -1)
"""Stands for the state of a leaf."""


class Masks:
    """Sets of streams and classes as bits, for fast compilation of plans. Caches what it computes of trees.

    classes   per stream, a bit for each of its classes
    members   per class, a bit for each of its streams
    plain     the streams with one class and no comparison
    """

    def __init__(self, graph: JoinGraph) -> None:
        self.graph = graph
        self.classes = graph.class_bits
        self.members = [sum(1 << j for j in members) for members in graph.members]
        self.plain = sum(1 << j for j, classes in enumerate(graph.attributes) if len(classes) == 1) & ~graph.compared
        self._classes: dict[int, int] = {}
        """The classes of trees, by their streams."""
        self._sides: dict[int, tuple[Tree, list[Side]]] = {}

    def sides(self, tree: Tree) -> list[Side]:
        """Return both sides of every join of a plan, children before parents. O(nodes); cached for recent plans."""
        known = self._sides.get(id(tree))
        if known is None:
            if len(self._sides) >= RECENT_PLANS:
                self._sides.clear()
            # The entry keeps the tree alive, so no other tree gets its id.
            known = self._sides[id(tree)] = tree, _sides(tree, self)
        return known[1]

    def classes_of(self, tree: Tree) -> int:
        """Return the classes of all streams of a tree. Cached by streams."""
        known = self._classes.get(tree.mask)
        if known is None:
            if tree.left is None or tree.right is None:
                known = self.classes[tree.stream]
            else:
                known = self.classes_of(tree.left) | self.classes_of(tree.right)
            if len(self._classes) > MOST_SETS:
                self._classes.clear()
            self._classes[tree.mask] = known
        return known

    def by(self, tree: Tree, sibling: Tree) -> int:
        """Return the class by which two joined trees probe each other: the lowest that they share."""
        shared = self.classes_of(tree) & self.classes_of(sibling)
        return (shared & -shared).bit_length() - 1


class Side(NamedTuple):
    """One side of a join: a node, its sibling, the class by which the two probe each other, and their parent.

    state    the state of the node; NO_STATE = the node is a leaf
    classes  the classes of all streams of the node
    """

    node: Tree
    sibling: Tree
    by: int
    parent: Tree
    state: StateId
    classes: int


def _sides(tree: Tree, masks: Masks) -> list[Side]:
    sides: list[Side] = []
    classes = {1 << j: bits for j, bits in enumerate(masks.classes)}
    for parent in tree.inner():
        left, right = parent.children
        near, far = classes[left.mask], classes[right.mask]
        classes[parent.mask] = near | far
        by = (near & far & -(near & far)).bit_length() - 1
        for node, sibling, bits in ((left, right, near), (right, left, far)):
            state = NO_STATE if node.left is None else StateId(node.mask, by)
            sides.append(Side(node, sibling, by, parent, state, bits))
    return sides


def read_states(parts: Parts, name: str, graph: JoinGraph) -> tuple[StateId, ...]:
    """Return the states that were saved as a list of (streams as bits, class). Raises StateError for others."""
    states = tuple(StateId(mask, by) for mask, by in parts.masks(name))
    fits = all(0 < mask < 1 << graph.n_streams and 0 <= by < graph.n_classes for mask, by in states)
    parts.require(fits, f"{name} of other streams or classes")
    return states


def states_of(tree: Tree, masks: Masks) -> list[StateId]:
    """Return the states of a plan, children before parents."""
    return [side.state for side in masks.sides(tree) if side.state is not NO_STATE]


def streams_of(states: Sequence[StateId]) -> list[tuple[int, ...]]:
    """Return the streams of each state, ascending. O(streams), in one piece."""
    bits = np.frombuffer(b"".join(state.mask.to_bytes(MAX_STREAMS // 8, "little") for state in states), np.uint8)
    which, streams = np.nonzero(np.unpackbits(bits, bitorder="little").reshape(-1, MAX_STREAMS))
    ends = np.searchsorted(which, np.arange(len(states) + 1)).tolist()
    flat = streams.tolist()
    return [tuple(flat[first:end]) for first, end in pairwise(ends)]


@dataclass(frozen=True)
class Difference:
    """Effect of a transition on the states, given those of the old and of the new plan.

    kept, missing, dropped   states of both plans, of the new plan only, of the old plan only
    complete     kept states that were complete in the old plan
    incomplete   all other states of the new plan: the missing ones, and kept ones that were incomplete (sec. 4.5)
    """

    old: tuple[StateId, ...]
    new: tuple[StateId, ...]
    incomplete_before: frozenset[StateId] = frozenset()

    @cached_property
    def _kept(self) -> frozenset[StateId]:
        return frozenset(self.old).intersection(self.new)

    @cached_property
    def kept(self) -> tuple[StateId, ...]:
        """States of both plans."""
        return tuple(state for state in self.new if state in self._kept)

    @cached_property
    def missing(self) -> tuple[StateId, ...]:
        """States of the new plan only."""
        return _without(self.new, self._kept)

    @cached_property
    def dropped(self) -> tuple[StateId, ...]:
        """States of the old plan only."""
        return _without(self.old, self._kept)

    @cached_property
    def complete(self) -> tuple[StateId, ...]:
        """States of the new plan that are complete from the start."""
        return _without(self.kept, self.incomplete_before)

    @cached_property
    def incomplete(self) -> tuple[StateId, ...]:
        """States of the new plan that are not complete yet."""
        return _without(self.new, frozenset(self.complete))


def _without(states: tuple[StateId, ...], others: frozenset[StateId]) -> tuple[StateId, ...]:
    """Return the states that are not among others, which are few or none more often than not."""
    return tuple(state for state in states if state not in others) if others else states


def difference(
    old: Tree, new: Tree, masks: Masks, is_complete: Callable[[StateId], bool] = lambda state: True
) -> Difference:
    """Return how two plans differ; `is_complete` states whether a state of the old plan is complete. O(states)."""
    before = tuple(states_of(old, masks))
    return Difference(
        before, tuple(states_of(new, masks)), frozenset(state for state in before if not is_complete(state))
    )
