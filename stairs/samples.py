"""A sample of recent tuples, and counts of their partners in the state.

Each sample picks tuples among the arrivals since the last one: streams in proportion to their arrivals, and one tuple
in each of several stretches of equal length. The partners of a pick are counted at once (`profile`), so the counts stay
meaningful after the tuple left its window. Routes can be tried on the picks that are still live (`trace`). Both read
live state through its own indexes, as wander joins do. So no sketch has to follow the arrivals, and the counts for the
attributes of one tuple stay joint.

    picks      int64[picks, 2]              stream and sequence number, a ring of the last picks
    profiles   float64[streams, ROWS, k]    per stream, a ring: live partners of a pick in each of `neighbours[i]`

Invariants: a pick's sequence number is below the next one of its stream; readers skip picks below the low mark.
Source of sampling through join indexes: Li, Wu, Yi, Zhao, "Wander join: online aggregation via random walks",
SIGMOD 2016. Source of joint outcomes per tuple: Babu, Motwani, Munagala, Nishizawa, Widom, "Adaptive ordering of
pipelined stream filters", SIGMOD 2004 (the profile of A-Greedy).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stairs.caches import Cache, VersionMove
from stairs.descriptors import C_FREE, C_NEXT, S_BASE, S_LIFE, S_LO, S_MASK, S_NEXT, S_RECS, S_WIDTH
from stairs.kernels.sample import W_FIELDS, count_partners, sample, trace
from stairs.kernels.versions import ALIVE
from stairs.memory.arena import Int64s, Routes
from stairs.modules import Modules
from stairs.storage.parts import Parts, Plain

Floats = npt.NDArray[np.float64]

PICKS = 192
SHUFFLED = np.random.default_rng(0).permutation(PICKS)
ROWS = 128
NEWEST = 256
EACH = 64
"""Tuples per sample; fewer where each tuple has many neighbours."""
LOOKS = 400
"""Approximate number of chains examined per sample."""


class Neighbour(NamedTuple):
    """A stream that another stream can probe, and the class by which."""

    by: int
    stream: int


class Trace(NamedTuple):
    """The work of routes for the tuples of a sample.

    visits   int64[hops, 3]       per hop: chains looked up, tuples visited, tuples that passed its checks
    work     float64[W_FIELDS]    totals
    whole    whether the budget sufficed to walk all picks to the end
    """

    visits: Int64s
    work: Floats
    whole: bool


class Samples(Cache):
    """The sample of one engine; it follows its modules as a cache.

    Memory: O(ROWS * attributes squared). Deterministic: the same arrivals and calls give the same picks.
    """

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        graph = modules.graph
        m = graph.n_streams
        self.neighbours = [
            [Neighbour(c, j) for c in graph.attributes[i] for j in graph.members[c] if j != i] for i in range(m)
        ]
        self.profiles: Floats = np.zeros((m, ROWS, max(map(len, self.neighbours))))
        self.picked: Int64s = np.zeros((PICKS, 2), np.int64)
        self.progress: Int64s = np.zeros((m + 1, 3), np.int64)
        """Per stream: arrivals up to the last sample, arrivals between the last two, all picks; last row: totals."""
        self._each = max(min(EACH, LOOKS // max(1, *map(len, self.neighbours))), 8)
        self._owed: Floats = np.zeros(m)
        """Picks due to each stream: fractions carry over, so that slow streams are sampled as well."""
        modules.caches.add(self)

    def take(self) -> Int64s:
        """Sample the arrivals since the last call, and return their number per stream: int64[streams].

        O(picks * attributes squared).
        """
        sample(self.modules.arena, self._each, self.progress, self._owed, self.picked, self.profiles)
        return self.progress[:-1, 1]

    def profile(self, i: int) -> Floats:
        """Return the partners of the last picks of stream i: float64[at most ROWS, neighbours[i]], a view."""
        return self.profiles[i, : min(int(self.progress[i, 2]), ROWS), : len(self.neighbours[i])]

    def of_window(self, i: int, most: int, rng: np.random.Generator) -> Floats:
        """Return the present partners of live tuples of stream i: float64[at most `most`, neighbours[i]].

        The tuples are drawn uniformly from the whole window, without repetition; all tuples if there are at most
        `most`. The samples of `take` do not change. O(most * attributes squared).
        """
        live = self.modules.live_tuples(i)
        drawn = live[rng.choice(len(live), most, replace=False)] if len(live) > most else live
        counts: Floats = np.zeros((len(drawn), len(self.neighbours[i])))
        count_partners(self.modules.arena, i, drawn, counts)
        return counts

    def keys(self) -> Floats:
        """Return the number of keys that each class has, those to be recycled not counted: float64[classes]."""
        classes = self.modules.arena.classes
        counts: Floats = (classes[:, C_NEXT] - classes[:, C_FREE]).astype(np.float64)
        return counts

    def newest(self, shares: Floats, most: int = PICKS) -> Int64s:
        """Return about `most` new picks among the newest live tuples: int64[n, 2], stream and sequence number.

        `shares` are the shares of the streams; the streams come in random order. `picks` returns earlier picks, of
        which those of a busy stream with a small window may have left it; here every stream has its share at any
        moment. A tuple may be picked twice. O(most).
        """
        rng = np.random.default_rng(0)
        parts = [np.zeros((0, 2), np.int64)]
        for i, n in enumerate(np.rint(most * shares).astype(np.int64)):
            low, following = (int(self.modules.streams[i, column]) for column in (S_LO, S_NEXT))
            if following > low:
                drawn = rng.integers(max(low, following - NEWEST), following, n)
                drawn = drawn[self._lives(np.full(n, i), drawn)]
                parts.append(np.column_stack([np.full(len(drawn), i), drawn]))
        picks: Int64s = rng.permutation(np.concatenate(parts))
        return picks

    def picks(self, most: int = PICKS) -> Int64s:
        """Return the last picks that are still live: int64[n, 2], stream and sequence number, in random order."""
        ever = int(self.progress[-1, 2])
        picked = self.picked[np.arange(max(ever - most, ever - PICKS, 0), ever) % PICKS]
        alive: Int64s = picked[self._lives(picked[:, 0], picked[:, 1])]
        # A fixed shuffle: a budget that ends early has covered all streams in proportion.
        return alive[SHUFFLED[len(alive) > SHUFFLED]]

    def _lives(self, streams: Int64s, tuples: Int64s) -> npt.NDArray[np.bool_]:
        """Return which tuples are live."""
        rows, recs = self.modules.streams[streams], self.modules.arena.recs
        live: npt.NDArray[np.bool_] = tuples >= rows[:, S_LO]
        tables = np.flatnonzero(live & (rows[:, S_LIFE] > 0))
        table = rows[tables]
        at = table[:, S_RECS] + (tuples[tables] & table[:, S_MASK]) * table[:, S_WIDTH] + table[:, S_LIFE]
        live[tables] = recs[at] == ALIVE
        return live

    def trace(self, routes: Routes, picks: Int64s, budget: int, pruned: bool = True) -> Trace:
        """Walk the routes of picks for at most `budget` steps. The counters of `routes` do not change.

        pruned   whether the walk stops at no-good marks and looks hops up ahead of their turn, as that of a plan with
                 nothing stored does
        """
        visits: Int64s = np.zeros((len(routes.hops), 3), np.int64)
        work: Floats = np.zeros(W_FIELDS)
        streams, tuples = np.ascontiguousarray(picks[:, 0]), np.ascontiguousarray(picks[:, 1])
        trace(self.modules.arena, routes, self.modules.walk, streams, tuples, budget, visits, work, pruned)
        return Trace(visits, work, bool(work[0] == len(picks)))

    # Parts for another process (`eddy.live`)

    def to_parts(self) -> Plain:
        """Return everything from which `load_parts` resumes."""
        return {
            "profiles": self.profiles,
            "picked": self.picked,
            "progress": self.progress,
            "owed": self._owed,
        }

    def load_parts(self, parts: Parts) -> None:
        """Resume from the parts of a sample of the same graph. Load the modules first. Raises StateError."""
        m = self.modules.graph.n_streams
        profiles = parts.array("profiles", np.float64, self.profiles.shape)
        picked = parts.array("picked", np.int64, self.picked.shape)
        progress, owed = parts.array("progress", np.int64, (m + 1, 3)), parts.array("owed", np.float64, (m,))
        streams, numbers = picked.T
        parts.require(bool(((streams >= 0) & (streams < m)).all()), "a pick of no stream")
        parts.require(bool((progress >= 0).all()), "a negative count")
        # The ring may also contain picks that an undo revoked; they are never read.
        used = np.arange(min(int(progress[-1, 2]), PICKS))
        parts.require(bool((numbers < self.modules.streams[streams, S_NEXT])[used].all()), "a pick to come")
        self.profiles, self.picked, self.progress, self._owed = profiles, picked, progress, owed

    # Changes underneath (`stairs.caches.Cache`)

    def renumbered(self, shifts: Sequence[int]) -> None:
        """Follow the tuples: sequence number s of stream i is now s - shifts[i]."""
        self.picked[:, 1] -= np.array(shifts, np.int64)[self.picked[:, 0]]

    def moved(self, move: VersionMove) -> None:
        """Follow the compaction of a table."""
        of_table = self.picked[:, 0] == move.stream
        self.picked[of_table, 1] = move.moved(self.picked[of_table, 1])

    def forget(self) -> None:
        """Drop the picks, because an undo may have revoked some. Profiles stay as historical counts."""
        streams = self.modules.streams
        self.progress[-1, 2] = 0
        self.progress[:-1, 0] = np.minimum(self.progress[:-1, 0], streams[:, S_NEXT] + streams[:, S_BASE])
