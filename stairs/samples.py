"""A sample of the tuples that came last, and what the state holds for them.

Tuples are picked over all that arrived since the last time, one in each of so many stretches, streams in proportion to
their arrivals. Of each the partners are counted (`profile`), at once: the figures stay meaningful when the tuple has
left its window. And routes can be tried on those still alive (`trace`). Both are looks at live state through its own
indexes, as wander joins are, so no sketch has to be kept up with arrivals, and joint figures of one tuple's attributes
stay joint.

    picks      int64[picks, 2]              stream and sequence number, a ring of the last ones
    profiles   float64[streams, ROWS, k]    per stream, a ring: live partners of a pick in each of `neighbours[i]`

Invariants: a pick's sequence number is below the next one of its stream; what is below the low mark is passed over.
Source of sampling through join indexes: Li, Wu, Yi, Zhao, "Wander join: online aggregation via random walks",
SIGMOD 2016. Of joint outcomes kept by tuple: Babu, Motwani, Munagala, Nishizawa, Widom, "Adaptive ordering of
pipelined stream filters", SIGMOD 2004 (the profile of A-Greedy).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stairs.caches import Cache
from stairs.descriptors import S_BASE, S_LO, S_NEXT
from stairs.kernels.sample import W_FIELDS, count_partners, sample, trace
from stairs.memory.arena import Int64s, Routes
from stairs.modules import Modules
from stairs.storage.parts import Parts, Plain

Floats = npt.NDArray[np.float64]

PICKS = 192
ROWS = 128
NEWEST = 256
EACH = 64
"""Tuples picked at a time, fewer where each has many neighbours."""
LOOKS = 400
"""Chains looked at in a sample, about."""


class Neighbour(NamedTuple):
    """A stream that another one can probe, and by which class."""

    by: int
    stream: int


class Trace(NamedTuple):
    """What routes did for the tuples of a sample.

    visits   int64[hops, 3]       per hop: chains looked up, tuples met, tuples that passed its checks
    work     float64[W_FIELDS]    in sum
    whole    whether all picks were walked to the end, within the budget
    """

    visits: Int64s
    work: Floats
    whole: bool


class Samples(Cache):
    """The sample of one engine; follows its modules as a cache does (`stairs.caches.Cache`).

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
        """Per stream: arrivals by the last sample, those between the last two, picks ever; in the last row, of all."""
        self._each = max(min(EACH, LOOKS // max(map(len, self.neighbours))), 8)
        self._owed: Floats = np.zeros(m)
        """Picks a stream has coming to it: fractions are carried over, so that slow streams get theirs."""
        modules.caches.add(self)

    def take(self) -> Int64s:
        """Pick among what arrived since the last time; return the arrivals of each stream since: int64[streams].

        O(picks * attributes squared).
        """
        sample(self.modules.arena, self._each, self.progress, self._owed, self.picked, self.profiles)
        return self.progress[:-1, 1]

    def profile(self, i: int) -> Floats:
        """Return the partners of the last picks of stream i: float64[at most ROWS, neighbours[i]], a view."""
        return self.profiles[i, : min(int(self.progress[i, 2]), ROWS), : len(self.neighbours[i])]

    def of_window(self, i: int, most: int, rng: np.random.Generator) -> Floats:
        """Return the partners that live tuples of stream i have now: float64[at most `most`, neighbours[i]].

        Drawn by chance from its whole window, without repetition, all of them if they are no more than `most`. The
        samples that `take` took stay as they are. O(most * attributes squared).
        """
        low, live = int(self.modules.streams[i, S_LO]), self.modules.rows(i)
        drawn = rng.choice(live, most, replace=False) if live > most else np.arange(live)
        counts: Floats = np.zeros((len(drawn), len(self.neighbours[i])))
        count_partners(self.modules.arena, i, low + drawn.astype(np.int64), counts)
        return counts

    def newest(self, shares: Floats, most: int = PICKS) -> Int64s:
        """Return about `most` picks among the newest live tuples, streams by their shares: int64[n, 2], streams mixed.

        What `picks` gives has been picked before, and the tuples of a busy stream with a small window may have left it
        by now. Here every stream has its share, at any moment; a tuple may be picked twice. O(most).
        """
        rng = np.random.default_rng(0)
        parts = [np.zeros((0, 2), np.int64)]
        for i, n in enumerate(np.rint(most * shares).astype(np.int64)):
            low, following = (int(self.modules.streams[i, column]) for column in (S_LO, S_NEXT))
            if following > low:
                drawn = rng.integers(max(low, following - NEWEST), following, n)
                parts.append(np.column_stack([np.full(n, i), drawn]))
        found: Int64s = rng.permutation(np.concatenate(parts))
        return found

    def picks(self, most: int = PICKS) -> Int64s:
        """Return the last picks, those still alive: int64[n, 2], stream and sequence number, streams mixed."""
        ever = int(self.progress[-1, 2])
        found = self.picked[np.arange(max(ever - most, ever - PICKS, 0), ever) % PICKS]
        streams = self.modules.streams
        alive: Int64s = found[found[:, 1] >= streams[found[:, 0], S_LO]]
        # A fixed shuffle: a budget that ends early has met all streams in proportion.
        return alive[np.random.default_rng(len(alive)).permutation(len(alive))]

    def trace(self, routes: Routes, picks: Int64s, budget: int) -> Trace:
        """Walk the routes of picks until so many steps are spent. The counters of `routes` stay as they are."""
        visits: Int64s = np.zeros((len(routes.hops), 3), np.int64)
        work: Floats = np.zeros(W_FIELDS)
        streams, tuples = np.ascontiguousarray(picks[:, 0]), np.ascontiguousarray(picks[:, 1])
        trace(self.modules.arena, routes, self.modules.walk, streams, tuples, budget, visits, work)
        return Trace(visits, work, bool(work[0] == len(picks)))

    # Parts for another process (`eddy.live`)

    def to_parts(self) -> Plain:
        """Return all that goes on."""
        return {
            "profiles": self.profiles,
            "picked": self.picked,
            "progress": self.progress,
            "owed": self._owed,
        }

    def load_parts(self, parts: Parts) -> None:
        """Go on from what a sample of the same graph kept. After the modules woke."""
        m = self.modules.graph.n_streams
        profiles = parts.array("profiles", np.float64, self.profiles.shape)
        picked = parts.array("picked", np.int64, self.picked.shape)
        progress, owed = parts.array("progress", np.int64, (m + 1, 3)), parts.array("owed", np.float64, (m,))
        streams, numbers = picked.T
        parts.require(bool(((streams >= 0) & (streams < m)).all()), "a pick of no stream")
        parts.require(bool((progress >= 0).all()), "a negative count")
        # Beyond those picked since the last undo there may be some that were taken back; they are not read.
        used = np.arange(min(int(progress[-1, 2]), PICKS))
        parts.require(bool((numbers < self.modules.streams[streams, S_NEXT])[used].all()), "a pick to come")
        self.profiles, self.picked, self.progress, self._owed = profiles, picked, progress, owed

    # What changes underneath (`stairs.caches.Cache`)

    def renumbered(self, shifts: Sequence[int]) -> None:
        """Follow the tuples."""
        self.picked[:, 1] -= np.array(shifts, np.int64)[self.picked[:, 0]]

    def forget(self) -> None:
        """Drop the picks: some of them may have been taken back. Profiles stay, as figures of the past."""
        streams = self.modules.streams
        self.progress[-1, 2] = 0
        self.progress[:-1, 0] = np.minimum(self.progress[:-1, 0], streams[:, S_NEXT] + streams[:, S_BASE])
