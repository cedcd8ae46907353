"""SteMs that several joins share: one ring of records for each stream, key directories, and windows for each join.

`SharedStems` has the tuples and the keys. It inserts arrivals and probes nothing. A `Share` belongs to one join. It is
a second set of descriptors over the same arrays: of the streams and attributes of the join, with its own low marks. So
the kernels walk a share as they walk the modules of a join that runs alone.

    SharedStems   recs      stream R: (link, id of R.a), (link, id of R.b)   stream S: (link, id of S.a) …
                  heads     directory 0: a row per key, a column for each of R.a, R.b, S.a …
    a share       streams   R: its records begin at R.b;  S: at S.a          low marks of the windows of this join
                  classes   its class 0 is directory 0                       columns 1 (R.b) and 2 (S.a) are its own

A *directory* has the keys of all attributes that some join sets equal, directly or not. Equal ids are equal values;
which equalities a join asks for is in its routes. So a stream may have several attributes in one directory.

A push goes chunk by chunk: `SharedStems.insert`, then `Share.probe` for each join. A chunk is one for the kernels as
well (`stairs.kernels.chunk`), so a probe decides which tuples of it have arrived.

Nulls. A row with a null in one key still joins by its other keys. The id of a null is -1 - column: different in each
attribute of a directory, so that no two are equal. The head rows of these ids exist, and are always empty.

No-good marks and stored states belong to one join, so there are none here.

Invariants (check()): the low mark of a shared stream is at most that of each share, so all tuples that a share sees are
in the ring, with their keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stairs.checks.byte_strings import require
from stairs.checks.stems import check_stems
from stairs.descriptors import (
    A_COLUMN,
    A_LINK0,
    A_LINK1,
    A_OFFSET,
    LOADING,
    M_MODE,
    N_FIELDS,
    S_LO,
    S_NEXT,
)
from stairs.graph import JoinGraph
from stairs.kernels.chunk import FEW
from stairs.memory.arena import Bytes, Int64s
from stairs.memory.scratch import Scratch
from stairs.modules import Modules
from stairs.routes import no_routes
from stairs.share import Share, SharedPlace
from stairs.stems import RENUMBER_AT

CHUNK = 4096
"""Most arrivals of a chunk. Each join starts its kernel once for each chunk, which takes as long as 300 arrivals."""


class SharedStems(Modules):
    """The SteMs of several joins, none of which they probe.

    graph   its streams are UNBOUNDED, because each share has windows of its own; its classes are the directories
    """

    apart = True
    is_shared = True

    def __init__(self, graph: JoinGraph, renumber_at: int = RENUMBER_AT) -> None:
        super().__init__(graph, renumber_at)
        self.meta[M_MODE] = LOADING
        self._routes = no_routes()
        self.shares: list[Share] = []
        self._scratches: dict[int, Scratch] = {}

    def _describe(self) -> None:
        graph, filled = self.graph, [0] * self.graph.n_classes
        self.columns: list[int] = []
        """The column of each attribute in the head rows of its directory."""
        for c in (c for classes in graph.attributes for c in classes):
            self.columns.append(filled[c])
            filled[c] += 1
        super()._describe()
        x = 0
        for classes in graph.attributes:
            for k in range(len(classes)):
                self.attrs[x, [A_COLUMN, A_OFFSET]] = self.columns[x], 2 * k
                x += 1
        # Nobody learns from walks that other joins do not make.
        self.links = np.zeros((0, N_FIELDS), np.int64)
        self.attrs[:, [A_LINK0, A_LINK1]] = 0

    # Shares

    def share(self, graph: JoinGraph, place: SharedPlace) -> Share:
        """Return a share for a join, which sees all tuples that are here and in its windows. O(attributes)."""
        made = Share(self, self.columns, self.scratch_of(graph.n_streams, graph.n_classes), graph, place)
        self.shares.append(made)
        return made

    def drop(self, share: Share) -> None:
        """Remove a share; what it alone needed leaves with the next push."""
        self.shares.remove(share)
        self.caches.remove(share.follower)

    def scratch_of(self, n_streams: int, n_classes: int) -> Scratch:
        """Return memory for the walks of shares of this many streams: they walk one after another."""
        known = self._scratches.get(n_streams)
        if known is None or len(known.walk.kids) < n_classes:
            known = self._scratches[n_streams] = Scratch(n_streams, n_classes, 0, most=CHUNK, timed=self.graph.timed)
            for share in self.shares:
                if share.graph.n_streams == n_streams:
                    share.scratch = known
        return known

    def release_scratch(self) -> None:
        """Give back the room for input, results and walks; the next push makes it again."""
        super().release_scratch()
        for n_streams, known in list(self._scratches.items()):
            del self._scratches[n_streams]
            self.scratch_of(n_streams, len(known.walk.kids))

    # The open push

    def begin(self, rows: Sequence[int]) -> None:
        """Open a push, here and in all shares; see `Modules.begin`."""
        super().begin(rows)
        for scratch in self._scratches.values():
            scratch.take_in(0, sum(rows))
        for share in self.shares:
            share.open()

    def chunks(self, order: Bytes) -> list[int]:
        """Return the ends of the chunks of a push. A stream has no more arrivals in one than it had tuples before.

        So chains contain few tuples that arrived after the one that probes.
        """
        m, rows = self.graph.n_streams, [max(FEW, self.rows(i)) for i in range(self.graph.n_streams)]
        ends, first = [], 0
        while first < len(order):
            end = min(first + CHUNK, len(order))
            counts = np.bincount(order[first:end], minlength=m)
            if (counts > rows).any():
                end = first + min(
                    int(np.flatnonzero(order[first:end] == i)[rows[i]]) for i in np.flatnonzero(counts > rows).tolist()
                )
                counts = np.bincount(order[first:end], minlength=m)
            rows = [before + int(more) for before, more in zip(rows, counts, strict=True)]
            ends.append(end)
            first = end
        return ends

    def insert(self, order: Bytes, stop: int) -> None:
        """Insert the arrivals of the push before position `stop` of its order. Raises CapacityError."""
        self.run(self._routes, order, True, None, stop)

    def commit(self) -> None:
        """Close the push, and let go of the tuples that no share sees any more; without shares, of none."""
        if self.shares:
            self.streams[:, S_LO] = self._needed()
        super().commit()

    def _needed(self) -> Int64s:
        """Return the number of the oldest tuple of each stream that a share sees: int64[streams]."""
        low: Int64s = self.streams[:, S_NEXT].copy()
        for share in self.shares:
            streams = list(share.place.streams)
            low[streams] = np.minimum(low[streams], share.streams[:, S_LO])
        return np.maximum(low, self.streams[:, S_LO])

    # All state

    @property
    def nbytes(self) -> int:
        """Bytes of all state, of the room for input and results, and of the descriptors of the shares."""
        return (
            super().nbytes
            + sum(scratch.nbytes for scratch in self._scratches.values())
            + sum(share.nbytes for share in self.shares)
        )

    def check(self) -> None:
        """Raise StateError, naming the first invariant that fails, here or in a share. O(state * log state)."""
        require(not self.pushing, "a push is neither committed nor undone")
        check_stems(self)
        for share in self.shares:
            share.check()
