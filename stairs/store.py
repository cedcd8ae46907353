"""The STAIRs of one engine: which there are, the memory of dropped ones, and what all of them do together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from stairs.caches import Cache, VersionMove
from stairs.descriptors import (
    C_CAPACITY,
    C_NEXT,
    E_BIRTH,
    E_CLASS,
    E_COMPUTED,
    E_FIELDS,
    E_HEADS,
    E_LOWS,
    E_MARKED,
    E_NEXT,
    E_PARTS0,
    E_PARTS1,
    E_RING,
    E_SHORT,
    E_STORED,
    E_TAIL,
    E_UNMARKED,
    E_WIDTH,
    P_COLUMN,
    P_LIFE,
    P_STREAM,
    S_LIFE,
)
from stairs.entry_ring import FIRST_ROOM, Spare
from stairs.graph import FOREVER
from stairs.kernels.promotion import advance_all, promote_keys
from stairs.memory.arena import Int64s
from stairs.modules import Modules
from stairs.stair import FIRST_FIELDS, NewState, Stair
from stairs.storage.parts import Parts, Plain
from stairs.tables import FIRST_STATES, StairTables

MOST_STATES = 1 << 20


class StairStore(StairTables, Cache):
    """The STAIRs over the SteMs of `modules`. The store registers with the modules as one of their caches.

    stairs   the states by row of the tables
    """

    def __init__(self, modules: Modules) -> None:
        super().__init__(modules)
        self.stairs: dict[int, Stair] = {}
        self._spare: dict[int, list[Spare]] = {}
        """Memory of dropped states, by class, for new states to take over."""
        self._free = list(range(FIRST_STATES))[::-1]
        graph = modules.graph
        self._columns: Int64s = np.array(
            [[columns.get(j, -1) for j in range(graph.n_streams)] for columns in graph.columns], np.int64
        )
        """Per class, the column of each stream in its head rows, -1 = the stream has no attribute in the class."""
        modules.caches.add(self)

    def add(self, states: Sequence[NewState]) -> list[Stair]:
        """Add states. O(streams of the states), plus the key ids of the class of each that no dropped state makes room.

        Raises StateError for a state that cannot be (see `Stair`); then none is added.
        """
        if not states:
            return []
        # A state contains combinations without a result, so it is computed and probed without marks.
        self.modules.clear_marks()
        while len(self._free) < len(states):
            room = len(self.entries.states)
            self.double()
            self._free = [*range(room, 2 * room)][::-1] + self._free
        rows = self._free[: -len(states) - 1 : -1]
        made = [Stair(self, row, new) for row, new in zip(rows, states, strict=True)]
        self._describe(made, [new.complete for new in states])
        self.stairs.update(zip(rows, made, strict=True))
        del self._free[len(self._free) - len(rows) :]
        return made

    def _describe(self, stairs: Sequence[Stair], complete: Sequence[bool]) -> None:
        """Give new states memory, and write their descriptors and their streams."""
        fields = [
            stair.begin(spare, whole) for stair, spare, whole in zip(stairs, self._dealt(stairs), complete, strict=True)
        ]
        rows, m = np.array([stair.row for stair in stairs]), self.modules.graph.n_streams
        made = np.zeros((len(stairs), E_FIELDS), np.int64)
        made[:, FIRST_FIELDS] = fields
        counts = made[:, E_WIDTH] - 1
        made[:, E_LOWS] *= m
        made[:, E_PARTS0], made[:, E_PARTS1] = rows * m, rows * m + counts
        made[:, E_TAIL] = made[:, E_NEXT] = made[:, E_BIRTH] + 1
        self.entries.states[rows] = made
        streams = np.array(list(chain.from_iterable(stair.streams for stair in stairs)))
        at = np.arange(len(streams)) + np.repeat(rows * m - np.cumsum(counts) + counts, counts)
        self.entries.parts[at, P_STREAM] = streams
        self.entries.parts[at, P_LIFE] = self.modules.streams[streams, S_LIFE]
        self.entries.parts[at, P_COLUMN] = self._columns[np.repeat(made[:, E_CLASS], counts), streams]
        rooms = self.modules.classes[:, C_CAPACITY].tolist()
        for stair in stairs:
            if len(stair.heads) < rooms[stair.by]:
                stair.follow()

    def _dealt(self, stairs: Sequence[Stair]) -> list[Spare | None]:
        """Return for each new state the memory of a dropped one, as long as there is some.

        States of more streams get larger rings, so a state in the place of one of as many streams gets its ring.
        """
        dealt: list[Spare | None] = [None] * len(stairs)
        for waiting in self._spare.values():
            waiting.sort(key=lambda spare: len(spare.ring))
        for k in sorted(range(len(stairs)), key=lambda k: -len(stairs[k].streams)):
            if spares := self._spare.get(stairs[k].by):
                dealt[k] = spares.pop()
        return dealt

    def remove(self, stairs: Sequence[Stair]) -> None:
        """Drop states and their contents. O(states). Their memory waits for new states until `release`."""
        rows = [stair.row for stair in stairs]
        fields = self.entries.states[rows][:, [E_NEXT, E_HEADS, E_RING]].tolist()
        for stair, (following, heads, ring) in zip(stairs, fields, strict=True):
            del self.stairs[stair.row]
            self._free.append(stair.row)
            self._spare.setdefault(stair.by, []).append(stair.spare(following, heads, ring))

    def release(self) -> None:
        """Release the memory of dropped states that no new state took over. O(1)."""
        self._spare.clear()

    # Parts for another process (`eddy.live`)

    def to_parts(self, stairs: Iterable[Stair]) -> Plain:
        """Return everything from which `load_parts` resumes, states in this order, without memory of dropped ones."""
        return {
            "rows": len(self.entries.states),
            "marks": self.marks.tolist(),
            "stairs": [stair.to_parts() for stair in stairs],
        }

    def load_parts(self, parts: Parts) -> list[Stair]:
        """Replace all states by those that a store kept, and return them in their order.

        Load the modules first. Raises StateError for parts that do not fit together.
        """
        graph, classes = self.modules.graph, self.modules.classes
        m, rows = graph.n_streams, parts.integer("rows", FIRST_STATES, MOST_STATES)
        n_tracks = len(parts.sequence("marks"))
        marks = parts.rows("marks", n_tracks, m, low=-FOREVER)
        parts.require(n_tracks > 0, "no track")
        self.release()
        self.stairs = {}
        self.clear(rows)
        self.set_marks(np.array(marks, np.int64))
        for saved in parts.items("stairs"):
            row, by = saved.integer("row", high=rows - 1), saved.integer("by", high=graph.n_classes - 1)
            streams = saved.integers("streams", high=m - 1)
            fits = row not in self.stairs and streams == sorted(set(streams)) and len(streams) > 1
            saved.require(fits, f"row {row}, streams {streams}")
            heads, ring = saved.array("heads", np.int32, (-1,)), saved.array("ring", np.int32, (-1,))
            saved.require(0 < len(heads) <= classes[by, C_CAPACITY], f"{len(heads)} heads")
            saved.require(len(ring) >= FIRST_ROOM * (1 + len(streams)), f"a ring of {len(ring)} numbers")
            self._spare[by] = [Spare(heads, heads, ring, 0, heads.ctypes.data, ring.ctypes.data)]
            stair = Stair(self, row, NewState(tuple(streams), by, track=saved.integer("track", high=n_tracks - 1)))
            self._describe([stair], [False])
            stair.load_parts(saved)
            self.stairs[row] = stair
        self._free = [row for row in range(rows) if row not in self.stairs][::-1]
        return list(self.stairs.values())

    # Changes underneath (`stairs.caches.Cache`)

    def renumbered(self, shifts: Sequence[int]) -> None:
        """Follow the tuples: sequence number s of stream i is now s - shifts[i]. O(rings)."""
        np.maximum(self.marks - np.array(shifts, np.int64), -FOREVER, out=self.marks)
        for stair in self.stairs.values():
            stair.renumbered(shifts)
        self.sync()

    def moved(self, move: VersionMove) -> None:
        """Follow the compaction of a table. O(rings)."""
        marks = self.marks[:, move.stream]
        marks[:] = [move.mark(mark) for mark in marks.tolist()]
        for stair in self.stairs.values():
            stair.moved(move)
        self.sync()

    def forget(self) -> None:
        """Drop the contents of all states. O(states)."""
        for stair in self.stairs.values():
            stair.forget()
        self.sync()

    def follow(self) -> None:
        """Make room for the key ids and entry numbers that may occur. O(states) unless something has to grow."""
        for stair in self.stairs.values():
            stair.follow()
            stair.settle_numbers()

    def make_room(self) -> None:
        """Make room in every state that a kernel found short. Raises CapacityError."""
        for stair in self.stairs.values():
            if short := int(stair.state[E_SHORT]):
                stair.make_room(short)

    def wider(self, c: int, room: int) -> int:
        """Return the bytes by which heads for `room` key ids of class c exceed the present ones. O(states)."""
        return sum(max(4 * room - stair.heads.nbytes, 0) for stair in self.stairs.values() if stair.by == c)

    @property
    def counted_bytes(self) -> int:
        """Bytes of all states and their tables."""
        return self.nbytes

    # All states

    def promote_keys(self, stairs: Iterable[Stair]) -> None:
        """Promote every key in all these states, key by key, states in their order. O(key ids + promotions).

        Raises CapacityError; the promotions made so far stand.
        """
        rows = np.array([stair.row for stair in stairs], np.int64)
        self.follow()
        self.sync()
        for c in range(self.modules.graph.n_classes):
            kid = 0
            while kid >= 0:
                kid = promote_keys(self.modules.arena, self.entries, self.routes, self.modules.walk, rows, c, kid)
                if kid >= 0:
                    self.make_room()

    def advance(self, stairs: Iterable[Stair], looks: int, budget: int) -> None:
        """Bring states nearer to completeness (see `Stair.advance`), in one kernel call. O(looks + promotions).

        Raises CapacityError; what was done so far stands.
        """
        rows = np.array([stair.row for stair in stairs], np.int64)
        self.follow()
        self.sync()
        at = 0
        while at >= 0:
            at = advance_all(self.modules.arena, self.entries, self.routes, self.modules.walk, rows, at, looks, budget)
            if at >= 0:
                self.make_room()

    @property
    def proven(self) -> frozenset[int]:
        """Rows of the states that their counters prove complete. O(states)."""
        states = self.entries.states
        ids = self.modules.classes[states[:, E_CLASS], C_NEXT]
        lacking = np.where(states[:, E_BIRTH] < 0, states[:, E_UNMARKED], ids - states[:, E_MARKED])
        return frozenset(np.flatnonzero(lacking <= 0).tolist())

    def counters(self, stairs: Iterable[Stair]) -> Int64s:
        """Return totals over these states since their creation: int64[4], columns E_STORED .. E_COMPUTED. O(states)."""
        rows = [stair.row for stair in stairs]
        counted: Int64s = self.entries.states[rows, E_STORED : E_COMPUTED + 1].sum(axis=0)
        return counted

    @property
    def nbytes(self) -> int:
        """Bytes of all states and their tables."""
        return sum(array.nbytes for array in self.entries) + sum(stair.nbytes for stair in self.stairs.values())
