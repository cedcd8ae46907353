"""The layout of ring values (`eddy.aggregates.rings`): where each number stands, and the tree as the kernels read it.

A row of a stream begins with its count. Then come the parts of its inputs: those of the stream itself, then those of
its children, each as in a row of the child. A row of `out`, which is what the groups gain and lose, has the tuple of
each root, a count, and the parts of the rows of the roots without their counts:

    row of a stream   count | own part | … | part of child 0 | … | part of child 1 | …
    row of `out`      root 0 | root 1 | count | parts of root 0 | parts of root 1

The fields of the arrays are described in `eddy/aggregates/ring.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from eddy.aggregates.ring import (
    D_FIELDS,
    G_FIELDS,
    J_FIELDS,
    T_CHILD0,
    T_CHILD1,
    T_FIELDS,
    T_HOP0,
    T_LIFT_WIDTH,
    T_LIFTS,
    T_OUT,
    T_PARENT,
    T_PARENT_UP,
    T_PART0,
    T_PART1,
    T_TOUCHED,
    T_UP,
    T_VALUES,
    T_WIDTH,
)
from eddy.aggregates.ring_tree import RingTreeNode
from eddy.aggregates.sums import ODD, Sum

Int64s = npt.NDArray[np.int64]


class InputPart(NamedTuple):
    """The part of an input in a row: where it starts, its counts, its limbs."""

    at: int
    plain: int
    limbs: int


class RingSizes(NamedTuple):
    """Numbers of the arrays of a `Ring`: of `values`, `deltas`, `lifts`, and of `touched` and `marked`."""

    values: int
    deltas: int
    lifts: int
    touched: int


class RingLayout:
    """The layout for some sums; wider sums need another one.

    tree        the streams from the root down (`eddy.aggregates.ring_tree`)
    roots       those whose tuples are joined
    inputs      by stream the inputs of functions
    sums        by input how it is summed; inputs that are only counted have none
    attributes  by stream and class its row in the attributes of the modules

    streams, children, parts, joined   `tree`, `children`, `parts` and `hops` of the kernels, int64. Fields of `streams`
                                       that depend on the number of keys and tuples are -1 before `place`
    wide                               numbers of a row of `out`
    """

    def __init__(
        self,
        tree: Mapping[int, RingTreeNode],
        roots: Sequence[int],
        inputs: Mapping[int, Sequence[int]],
        sums: Mapping[int, Sum],
        attributes: Mapping[tuple[int, int], int],
    ) -> None:
        self._tree, self._roots, self._inputs, self.sums, self._attributes = tree, roots, inputs, sums, attributes
        self.streams: Int64s = np.full((len(tree), T_FIELDS), -1, np.int64)
        self._rows: dict[int, dict[int, InputPart]] = {}
        """For each stream, the parts of a row by input."""
        children: list[tuple[int, ...]] = []
        parts: list[tuple[int, ...]] = []
        described: dict[int, list[tuple[int, ...]]] = {}
        for v in reversed(list(tree)):
            described[v] = self._describe(v)
        for v, branch in tree.items():
            up = [-1, -1, -1]
            if v not in roots:
                up = [attributes[v, branch.up], branch.parent, attributes[branch.parent, branch.up]]
            self.streams[v, [T_UP, T_PARENT, T_PARENT_UP]] = up
            below = self._below(v)
            self.streams[v, [T_CHILD0, T_CHILD1]] = len(children), len(children) + len(below)
            self.streams[v, [T_PART0, T_PART1]] = len(parts), len(parts) + len(described[v])
            children += [(w, attributes[v, c]) for w, c in below]
            parts += described[v]
        self.children = np.array(children, np.int64).reshape(-1, D_FIELDS)
        self.parts = np.array(parts, np.int64).reshape(-1, G_FIELDS)
        hops: list[tuple[int, ...]] = []
        self._starts: dict[int, int] = {}
        """Root -> where its parts start in a row of `out`."""
        at = len(roots) + 1
        for v in roots:
            self._starts[v] = at
            self.streams[v, [T_OUT, T_HOP0]] = at, len(hops)
            at += self.width(v) - 1
            hops += self._hops(v)
        self.wide = at
        self.joined = np.array(hops, np.int64).reshape(-1, J_FIELDS)

    def _describe(self, v: int) -> list[tuple[int, ...]]:
        """Lay the row of a stream out, after those of its children; return its rows of `parts`."""
        at, lift = 1, 0
        parts: dict[int, InputPart] = {}
        listed: list[tuple[int, ...]] = []
        for k in self._inputs[v]:
            plain, limbs = self.size_of(k)
            parts[k] = InputPart(at, plain, limbs)
            listed.append((at, -1, lift, plain, limbs, -1))
            at, lift = at + plain + limbs, lift + plain + limbs
        for w, c in self._below(v):
            for k, part in self._rows[w].items():
                parts[k] = part._replace(at=at)
                listed.append((at, w, part.at, part.plain, part.limbs, self._attributes[v, c]))
                at += part.plain + part.limbs
        self._rows[v] = parts
        self.streams[v, [T_WIDTH, T_LIFT_WIDTH]] = at, lift
        return listed

    def _below(self, v: int) -> list[tuple[int, int]]:
        """Return the children of a stream that are no roots, with the class that they share."""
        return [(w, c) for w, c in self._tree[v].children if w not in self._roots]

    def _hops(self, first: int) -> list[tuple[int, ...]]:
        """Return the hops from one root to the other roots, each from a neighbour that was found before."""
        edges = [(v, self._tree[v].parent, self._tree[v].up) for v in self._roots if self._tree[v].parent >= 0]
        rows, known, hops = self._attributes, [first], list[tuple[int, ...]]()
        for root in known:
            for a, b, c in edges:
                other = b if a == root else a
                if root in (a, b) and other not in known:
                    known.append(other)
                    hops.append((other, rows[other, c], root, rows[root, c]))
        return hops

    def with_sums(self, sums: Mapping[int, Sum]) -> RingLayout:
        """Return the layout for other sums, which is not placed yet."""
        return RingLayout(self._tree, self._roots, self._inputs, sums, self._attributes)

    def place(self, keys: Sequence[int], slots: Sequence[int]) -> RingSizes:
        """Set where the rows of each stream start in the arrays; return how much room they take.

        keys    by stream its rows: a number for each key, of a root for each tuple
        slots   by stream the tuples for which its ring has room
        """
        at = lifts = touched = values = 0
        # The roots come last: their rows exist only as changes.
        for v in [*(v for v in self._tree if v not in self._roots), *self._roots]:
            if v == self._roots[0]:
                values = at
            self.streams[v, [T_VALUES, T_LIFTS, T_TOUCHED]] = at, lifts, touched
            at += keys[v] * self.width(v)
            lifts += slots[v] * self.lift_width(v)
            touched += keys[v]
        return RingSizes(values, at, lifts, touched)

    # Where a number is

    def width(self, v: int) -> int:
        """Return the numbers of a row of a stream."""
        return int(self.streams[v, T_WIDTH])

    def lift_width(self, v: int) -> int:
        """Return the numbers of the parts of one tuple of a stream."""
        return int(self.streams[v, T_LIFT_WIDTH])

    @property
    def widest(self) -> int:
        """The numbers of the widest row."""
        return int(self.streams[:, T_WIDTH].max())

    def size_of(self, k: int) -> tuple[int, int]:
        """Return the counts and limbs of the part of an input."""
        total = self.sums.get(k)
        return (1, 0) if total is None else (1 + ODD * total.floats, total.limbs)

    def parts_of(self, v: int) -> dict[int, InputPart]:
        """Return the parts of a row of a stream, by input."""
        return self._rows[v]

    def own_inputs(self, v: int) -> dict[int, int]:
        """Return where the parts of a tuple of a stream start, by input."""
        starts, at = {}, 0
        for k in self._inputs[v]:
            starts[k] = at
            at += sum(self.size_of(k))
        return starts

    def out_parts(self) -> dict[int, InputPart]:
        """Return the parts of a row of `out`, by input."""
        return {
            k: part._replace(at=self._starts[v] + part.at - 1) for v in self._roots for k, part in self._rows[v].items()
        }
