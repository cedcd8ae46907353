"""The STAIRs of one engine: one table of descriptors for all, and what they have in common with the SteMs.

A *track* is a plan that runs. Usually there is one, and the tuples that count are those in the windows. When plans run
side by side each of them knows only the tuples from its marks on: its low marks are the higher of the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from stairs.descriptors import (
    C_CAPACITY,
    C_NEXT,
    E_BIRTH,
    E_CLASS,
    E_COMPUTED,
    E_FIELDS,
    E_MARKED,
    E_SHORT,
    E_STORED,
    E_UNMARKED,
    P_FIELDS,
    S_LO,
)
from stairs.graph import FOREVER
from stairs.kernels.stair import advance_all, promote_keys
from stairs.memory.arena import Entries, Int64s, Routes
from stairs.modules import Modules
from stairs.routes import no_routes
from stairs.stair import FIRST_ROOM, Spare, Stair
from stairs.storage.parts import Parts, Plain

FIRST_STATES = 4
MOST_STATES = 1 << 20


class StairStore:
    """A table of STAIRs over the SteMs of `modules`, which tell it what changes under them.

    routes   tables with the promotion of each state at the row it names; whoever adds states sets them
    """

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self.routes: Routes = no_routes()
        m = modules.graph.n_streams
        self.entries = Entries(
            states=np.zeros((FIRST_STATES, E_FIELDS), np.int64),
            parts=np.zeros((FIRST_STATES * m, P_FIELDS), np.int64),
            lows=np.zeros(m, np.int64),
            marks=np.full(m, -FOREVER, np.int64),
        )
        self.stairs: dict[int, Stair] = {}
        """The states by row."""
        self.columns: Int64s = np.full((modules.graph.n_classes, m), -1, np.int64)
        """Per class, the column of each stream in its head rows, -1 = it has none."""
        for c, members in enumerate(modules.graph.members):
            self.columns[c, list(members)] = range(len(members))
        self._spare: dict[int, list[Spare]] = {}
        """Memory of states that were dropped, by class, for states to come."""
        self._free = list(range(FIRST_STATES))[::-1]
        modules.caches.add(self)
        self.sync()

    def add(self, streams: Iterable[int], by: int, complete: bool = False, track: int = 0) -> Stair:
        """Add the join of a set of streams indexed on class `by` (see `Stair`). O(key ids of the class)."""
        if not self._free:
            self._grow()
        row = self._free[-1]
        spare = self._spare.get(by)
        stair = Stair(self, row, streams, by, complete, track, spare.pop() if spare else None)
        self.stairs[self._free.pop()] = stair
        return stair

    def remove(self, stair: Stair) -> None:
        """Drop a state with all it holds. O(1). Its memory waits for a state to come, until `release`."""
        del self.stairs[stair.row]
        self._free.append(stair.row)
        self._spare.setdefault(stair.by, []).append(stair.spare())

    def release(self) -> None:
        """Give back the memory of dropped states that no other state took. O(1)."""
        self._spare.clear()

    def _grow(self) -> None:
        states, parts = self.entries.states, self.entries.parts
        self._free = list(range(len(states), 2 * len(states)))[::-1]
        self.entries = self.entries._replace(
            states=np.concatenate([states, np.zeros_like(states)]), parts=np.concatenate([parts, np.zeros_like(parts)])
        )

    # Kept for another process (`eddy.live.engine_file`)

    def to_parts(self, stairs: Iterable[Stair]) -> Plain:
        """Return all that goes on, states in this order; memory of states that were dropped does not."""
        return {
            "rows": len(self.entries.states),
            "marks": self.marks.tolist(),
            "stairs": [stair.to_parts() for stair in stairs],
        }

    def load_parts(self, parts: Parts) -> list[Stair]:
        """Hold the states that a store kept and no others; return them in their order. After the modules woke."""
        graph, classes = self.modules.graph, self.modules.classes
        m, rows = graph.n_streams, parts.integer("rows", FIRST_STATES, MOST_STATES)
        n_tracks = len(parts.sequence("marks"))
        marks = parts.rows("marks", n_tracks, m, low=-FOREVER)
        parts.require(n_tracks > 0, "no track")
        self.release()
        self.stairs = {}
        self.entries = self.entries._replace(
            states=np.zeros((rows, E_FIELDS), np.int64), parts=np.zeros((rows * m, P_FIELDS), np.int64)
        )
        self.set_marks(np.array(marks, np.int64))
        for own in parts.items("stairs"):
            row, by = own.integer("row", high=rows - 1), own.integer("by", high=graph.n_classes - 1)
            streams = own.integers("streams", high=m - 1)
            fits = row not in self.stairs and streams == sorted(set(streams)) and len(streams) > 1
            own.require(fits, f"row {row}, streams {streams}")
            heads, ring = own.array("heads", np.int32, (-1,)), own.array("ring", np.int32, (-1,))
            own.require(0 < len(heads) <= classes[by, C_CAPACITY], f"{len(heads)} heads")
            own.require(len(ring) >= FIRST_ROOM * (1 + len(streams)), f"a ring of {len(ring)} numbers")
            spare = Spare(heads, ring, 0, heads.ctypes.data, ring.ctypes.data)
            stair = Stair(self, row, streams, by, track=own.integer("track", high=n_tracks - 1), spare=spare)
            stair.load_parts(own)
            self.stairs[row] = stair
        self._free = [row for row in range(rows) if row not in self.stairs][::-1]
        return list(self.stairs.values())

    # Tracks

    @property
    def marks(self) -> Int64s:
        """The first tuple that each track knows of each stream: int64[tracks, streams], a view."""
        return self.entries.marks.reshape(-1, self.modules.graph.n_streams)

    def set_marks(self, marks: Int64s) -> None:
        """Give each track its marks: int64[tracks, streams] sequence numbers."""
        flat = np.ascontiguousarray(marks, np.int64).reshape(-1)
        self.entries = self.entries._replace(marks=flat, lows=np.zeros_like(flat))
        self.sync()

    def sync(self) -> None:
        """Bring the low marks of all tracks up to those of the windows."""
        lows = self.entries.lows.reshape(-1, self.modules.graph.n_streams)
        np.maximum(self.modules.streams[:, S_LO], self.marks, out=lows)

    # What changes underneath (`stairs.caches.Cache`)

    def renumbered(self, shifts: Sequence[int]) -> None:
        """Follow the tuples: sequence number s of stream i is now s - shifts[i]. O(rings)."""
        np.maximum(self.marks - np.array(shifts, np.int64), -FOREVER, out=self.marks)
        for stair in self.stairs.values():
            stair.renumbered(shifts)
        self.sync()

    def forget(self) -> None:
        """Hold nothing any more. O(states)."""
        for stair in self.stairs.values():
            stair.forget()
        self.sync()

    def follow(self) -> None:
        """Make room for what key ids and entry numbers there may be. O(states) when there is."""
        for stair in self.stairs.values():
            stair.follow()
            stair.settle_numbers()

    def make_room(self) -> None:
        """Make room in every state that a kernel found short. Raises CapacityError."""
        for stair in self.stairs.values():
            if short := int(stair.state[E_SHORT]):
                stair.make_room(short)

    def wider(self, c: int, room: int) -> int:
        """Return the bytes that heads for so many key ids of class c will take more than now. O(states)."""
        return sum(max(4 * room - stair.heads.nbytes, 0) for stair in self.stairs.values() if stair.by == c)

    @property
    def counted_bytes(self) -> int:
        """All of them."""
        return self.nbytes

    def promote_keys(self, stairs: Iterable[Stair]) -> None:
        """Promote every key, one after the other, each in all these states in their order. O(key ids + promotions)."""
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
        """Let states come nearer to completeness (see `Stair.advance`), all in one kernel call. O(looks + promotions).

        Raises CapacityError, with what was done so far standing.
        """
        rows = np.array([stair.row for stair in stairs], np.int64)
        self.follow()
        self.sync()
        at = 0
        while at >= 0:
            at = advance_all(self.modules.arena, self.entries, self.routes, self.modules.walk, rows, at, looks, budget)
            if at >= 0:
                self.make_room()

    # Looking in

    @property
    def proven(self) -> frozenset[int]:
        """The rows of states that their counters prove complete. O(states)."""
        states = self.entries.states
        ids = self.modules.classes[states[:, E_CLASS], C_NEXT]
        lacking = np.where(states[:, E_BIRTH] < 0, states[:, E_UNMARKED], ids - states[:, E_MARKED])
        return frozenset(np.flatnonzero(lacking <= 0).tolist())

    def counters(self, stairs: Iterable[Stair]) -> Int64s:
        """Return what was done in states since they were made, in all: int64[4], as the last E_ counters. O(states)."""
        rows = [stair.row for stair in stairs]
        counted: Int64s = self.entries.states[rows, E_STORED : E_COMPUTED + 1].sum(axis=0)
        return counted

    @property
    def nbytes(self) -> int:
        """Bytes of all states and their tables."""
        return sum(array.nbytes for array in self.entries) + sum(stair.nbytes for stair in self.stairs.values())
