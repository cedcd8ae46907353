"""Ring values: groups without the joined rows. Counts and sums are kept by key along a tree of the streams (F-IVM).

The root of the tree has the group columns; every other stream hangs on the next stream towards the root, with which it
shares a class. If several streams have group columns, these streams and the streams between them are roots, whose
tuples are joined as in enumeration. For each key of a stream below the roots, a row of numbers holds the number of
partial results of this stream and the streams below that have the key, and their sums. So an arrival walks only up to
the root, and changes the groups of the tuples on its way, for any number of results. A row is computed when a tuple
above asks for the row, as JISC completes a state, and is kept current from then on. A row depends only on the windows,
and on no plan.

    live windows     the groups after a push follow from the windows after it: changes go up stream by stream
    input that ends  each arrival adds the results that it has when it comes; what leaves a window takes none back. If
                     no window ends, this is the same

Sums are exact, in the representation of `eddy.aggregates.sums`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eddy.aggregates.follow_kernels import follow_arrivals, follow_windows
from eddy.aggregates.groups import Groups
from eddy.aggregates.layout import Weighted
from eddy.aggregates.ring import (
    B_LOW,
    B_NEXT,
    M_FIELDS,
    M_FOUND,
    M_NEED,
    M_OUT,
    M_OVER,
    M_TIME,
    M_WALKED,
    T_LIFTS,
    T_VALUES,
    UNKNOWN,
    Ring,
)
from eddy.aggregates.ring_choice import RingChoice
from eddy.aggregates.ring_layout import RingLayout
from eddy.aggregates.ring_tree import served, tree_of
from eddy.aggregates.sums import Sum
from eddy.aggregates.words import valid_rows
from eddy.query.query import Query
from stairs.caches import Cache
from stairs.descriptors import M_WATERMARK, S_BASE, S_LO, S_NEXT
from stairs.graph import WindowKind
from stairs.modules import Modules
from stairs.payload import Payload
from stairs.plain_types import Column

Int64s = npt.NDArray[np.int64]
ROOM = 1 << 12
"""Rows of roots for which there is room at first."""


class BeyondLimit(Exception):
    """A count is too large for ring values; enumeration can process the push."""


class Rings(Cache):
    """The ring values of one runtime.

    arrives   whether each arrival adds its results, because what leaves a window takes none back
    layout    where each number stands

    They are laid out by `changes`, and released by `release`.
    """

    def __init__(
        self,
        query: Query,
        roots: Sequence[int],
        modules: Modules,
        payload: Payload,
        columns: Sequence[Sequence[str]],
        arrives: bool,
    ) -> None:
        assert query.aggregation is not None
        self.query, self.aggregation, self.graph = query, query.aggregation, query.graph
        self.roots, self.modules, self.payload = tuple(roots), modules, payload
        endless = all(window.kind == WindowKind.UNBOUNDED for window in self.graph.windows)
        self.arrives = arrives and not endless
        self.tree = tree_of(self.graph, roots[0])
        places = {f"{name}.{column}": (query.index(name), column) for name, column in self.aggregation.places}
        self._places = {
            k: (i, columns[i].index(column))
            for k, argument in enumerate(self.aggregation.inputs)
            for i, column in [places[argument.name]]
        }
        taken = {aggregate.column for aggregate in self.aggregation.functions if aggregate.column is not None}
        summed = {
            k
            for k in taken
            for aggregate in self.aggregation.functions
            if aggregate.column == k and aggregate.rule.summed
        }
        self._attributes = {
            i: [k for k in sorted(taken) if self._places[k][0] == i] for i in range(self.graph.n_streams)
        }
        """Inputs of functions, for each stream."""
        sums = {k: Sum.of(self.aggregation.inputs[k].kind, 0) for k in sorted(summed)}
        self.ring: Ring | None = None
        self._capacities: tuple[int, ...] = ()
        self.fresh = True
        """Whether nothing is known: rows are UNKNOWN, and tuples are not lifted."""
        self._out: Int64s = np.zeros((0, 0), np.int64)
        self.choice = RingChoice()
        self.walked = 0
        """Tuples visited since the start."""
        self.layout = RingLayout(self.tree, self.roots, self._attributes, sums, modules.attribute_rows)
        modules.caches.add(self)

    # Room

    def _sizes(self) -> tuple[int, ...]:
        """Return how many rows each stream has, and how many slots its ring has."""
        modules = self.modules
        keys = [
            modules.capacity[i] if i in self.roots else modules.key_room(self.tree[i].up)
            for i in range(self.graph.n_streams)
        ]
        return (*keys, *modules.capacity)

    def _fit(self) -> None:
        """Give the arrays the room that keys and rings have now."""
        sizes = self._sizes()
        if self.ring is not None and sizes == self._capacities:
            return
        layout = self.layout
        m, old, before = self.graph.n_streams, self.ring, layout.streams.copy()
        room = layout.place(sizes[:m], sizes[m:])
        more = 8 * (room.values + room.deltas + room.lifts) + 5 * room.touched - self.nbytes
        self.modules.allowance.ask(max(more, 0), "ring values of aggregates")
        same_rings = old is not None and sizes[m:] == self._capacities[m:]
        ring = Ring(
            layout.streams,
            layout.children,
            layout.parts,
            np.zeros(room.values, np.int64),
            np.zeros(room.deltas, np.int64),
            old.lifts if same_rings and old is not None else np.zeros(room.lifts, np.int64),
            np.zeros((m, 4), np.int64),
            np.zeros((m, layout.widest), np.int64),
            np.zeros(room.touched, np.int32),
            np.zeros(room.touched, np.uint8),
            np.zeros(m, np.int64),
            np.zeros((m, 2), np.int64),
            np.zeros(M_FIELDS, np.int64),
            np.array(self.roots, np.int64),
            layout.joined,
            np.zeros((m, 3), np.int64),
            np.zeros((m, layout.widest), np.int64),
        )
        for v in self.tree:
            if v in self.roots:
                continue
            width, first = layout.width(v), int(layout.streams[v, T_VALUES])
            known = 0
            if old is not None and not self.fresh:
                known = self._capacities[v] * width
                start = int(before[v, T_VALUES])
                ring.values[first : first + known] = old.values[start : start + known]
            ring.values[first + known : first + sizes[v] * width : width] = UNKNOWN
        relift = not same_rings and not self.fresh
        self.ring, self._capacities = ring, sizes
        if relift:
            self._lift_all()

    # A push

    def changes(self, order: npt.NDArray[np.uint8]) -> Weighted:
        """Take the arrivals of the open push, which are in the SteMs; return what changes in the groups.

        Raises BeyondLimit, and CapacityError.
        """
        modules = self.modules
        saved = modules.saved
        assert saved is not None
        streams, meta = saved
        self._fit()
        self._lift(streams)
        ring = self.ring
        assert ring is not None
        ring.bounds[:, [B_LOW, B_NEXT]] = streams[:, [S_LO, S_NEXT]]
        ring.meta[:] = 0
        ring.meta[M_TIME] = meta[M_WATERMARK]
        arena = modules.arena
        if self._out.shape[1] != self.layout.wide:
            self._out = np.zeros((ROOM, self.layout.wide), np.int64)
        while not (
            follow_arrivals(arena, ring, order, self._out) if self.arrives else follow_windows(arena, ring, self._out)
        ):
            out = np.zeros((2 * int(ring.meta[M_NEED]), self.layout.wide), np.int64)
            out[: ring.meta[M_OUT]] = self._out[: ring.meta[M_OUT]]
            self._out = out
        self.walked += int(ring.meta[M_WALKED])
        if ring.meta[M_OVER]:
            raise BeyondLimit
        self.fresh = False
        return self._weighted(self._out[: int(ring.meta[M_OUT])], int(ring.meta[M_FOUND]))

    def _weighted(self, out: Int64s, joined: int) -> Weighted:
        n, m = len(out), len(self.roots)
        ids, bases = out[:, :m].astype(np.int32).reshape(-1), self.modules.streams[list(self.roots), S_BASE]
        numbers = {number for _, number in self.aggregation.keys}
        columns: dict[int, Column] = {}
        if numbers:
            wanted = frozenset(self._places[k] for k in numbers)
            gathered = self.payload.gather(ids, n, bases, streams=self.roots, columns=wanted)
            columns = {k: gathered[self._places[k]] for k in numbers}
        parts = {}
        for k, part in self.layout.out_parts().items():
            limbs = part.at + part.plain
            parts[k] = out[:, part.at : limbs], np.ascontiguousarray(out[:, limbs : limbs + part.limbs])
        return Weighted(n, columns, out[:, m], parts, self.layout.sums, joined)

    # Tuples

    def _lift(self, before: Int64s) -> None:
        """Write the parts of the rows of the push, or of all tuples if nothing is known.

        before   the streams when the push began
        """
        if self.fresh:
            self._lift_all()
            return
        following = self.modules.streams[:, S_NEXT]
        columns = [self._columns(i, int(before[i, S_NEXT]), int(following[i])) for i in range(self.graph.n_streams)]
        if self._widen(columns):
            self._lift_all()
            return
        for i, inputs in enumerate(columns):
            self._write(i, int(before[i, S_NEXT]), inputs)

    def _lift_all(self) -> None:
        """Write the parts of all tuples of the windows, before and after the push."""
        assert self.modules.saved is not None
        low, following = self.modules.saved[0][:, S_LO].tolist(), self.modules.streams[:, S_NEXT].tolist()
        columns = [self._columns(i, low[i], following[i]) for i in range(self.graph.n_streams)]
        if self._widen(columns):
            self._fit()
        for i, inputs in enumerate(columns):
            self._write(i, low[i], inputs)

    def _columns(self, i: int, low: int, following: int) -> dict[int, Column]:
        """Return the inputs of tuples of a stream."""
        n = following - low
        if not n or not self._attributes[i]:
            return {}
        ids = np.arange(low, following, dtype=np.int32)
        wanted = frozenset(self._places[k] for k in self._attributes[i])
        base = self.modules.streams[[i], S_BASE]
        gathered = self.payload.gather(ids, n, base, streams=[i], columns=wanted)
        return {k: gathered[self._places[k]] for k in self._attributes[i]}

    def _widen(self, columns: Sequence[dict[int, Column]]) -> bool:
        """Give sums of floats limbs for some values; return whether the layout has changed. Nothing is known then."""
        sums = self.layout.sums
        wider = {k: sums[k].fitting(column) for inputs in columns for k, column in inputs.items() if k in sums}
        if all(total is sums[k] for k, total in wider.items()):
            return False
        self.release()
        self.layout = self.layout.with_sums({**sums, **wider})
        return True

    def _write(self, i: int, low: int, columns: dict[int, Column]) -> None:
        if not columns:
            return
        ring = self.ring
        if ring is None:
            self._fit()
            ring = self.ring
            assert ring is not None
        n, width, room = len(next(iter(columns.values()))), self.layout.lift_width(i), self.modules.capacity[i]
        cells, at = np.zeros((n, width), np.int64), 0
        for k, column in columns.items():
            plain, limbs = self.layout.size_of(k)
            valid = valid_rows(column)
            cells[:, at] = valid
            if k in self.layout.sums:
                total = self.layout.sums[k]
                total = Sum(total.kind, at + 1, total.limbs, total.base)
                total.add(column, valid, np.ones(n, np.int64), np.arange(n), cells)
                total.normal(cells)
            at += plain + limbs
        first = int(self.layout.streams[i, T_LIFTS])
        lifts = ring.lifts[first : first + room * width].reshape(room, width)
        lifts[np.arange(low, low + n) & (room - 1)] = cells

    # As a cache

    def renumbered(self, shifts: Sequence[int]) -> None:
        """Nothing is kept by sequence number, and slots stay."""

    def forget(self) -> None:
        """Forget all rows; a row is computed again when a tuple asks for the row."""
        self.release()

    def release(self) -> None:
        """Release all memory."""
        self.ring, self._capacities, self.fresh = None, (), True
        self._out = np.zeros((0, 0), np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of rows, changes and parts."""
        return 0 if self.ring is None else sum(array.nbytes for array in self.ring)

    @property
    def known(self) -> int:
        """The number of rows that are known. O(rows)."""
        if self.ring is None or self.fresh:
            return 0
        count = 0
        for v in self.tree:
            if v not in self.roots:
                width, first = self.layout.width(v), int(self.layout.streams[v, T_VALUES])
                counts = self.ring.values[first : first + self._capacities[v] * width : width]
                count += int(np.count_nonzero(counts != UNKNOWN))
        return count


def rings_of(groups: Groups, modules: Modules, payload: Payload, columns: Sequence[Sequence[str]]) -> Rings | None:
    """Return ring values that can serve some groups, None if they cannot (`served`)."""
    ring_roots = served(groups.query)
    if not ring_roots.roots:
        return None
    return Rings(
        groups.query, ring_roots.roots, modules, payload, columns, groups.query.lasting or not groups.changelog
    )
