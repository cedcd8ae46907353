"""The windows of one join over shared SteMs (`stairs.shared`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stairs.caches import Cache
from stairs.checks.byte_strings import require
from stairs.descriptors import (
    A_LINK0,
    A_LINK1,
    A_OFFSET,
    C_MEMBER,
    C_STEMS,
    M_ARRIVAL,
    M_INSERTED,
    M_INTERN_ATTR,
    M_OF_PUSH,
    M_OUT,
    M_STARTED,
    M_WATERMARK,
    N_FIELDS,
    S_ATTR0,
    S_BASE,
    S_LO,
    S_MASK,
    S_NEXT,
    S_RECS,
    S_VALUES,
    S_WIDTH,
)
from stairs.graph import JoinGraph, WindowKind
from stairs.memory.arena import Arena, Bytes, Int32s, Int64s, Routes
from stairs.memory.scratch import Scratch
from stairs.memory.segments import Segments
from stairs.modules import Modules

LOCATED = [S_RECS, S_VALUES, S_WIDTH, S_MASK]
"""Fields of a shared stream that its shares copy."""


@dataclass(frozen=True)
class SharedPlace:
    """The places of the streams and classes of a join in shared SteMs.

    streams      per stream of the join its number in the shared SteMs
    directories  per class of the join its directory
    attributes   per stream of the join, for each of its classes, the attribute, counted within the shared stream
    """

    streams: tuple[int, ...]
    directories: tuple[int, ...]
    attributes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class SharedGraph(JoinGraph):
    """The graph of a join over shared SteMs.

    places   per stream, for each of its classes, the column in a head row and the offset in a record
    """

    places: tuple[tuple[tuple[int, int], ...], ...] = field(default=())

    def __post_init__(self) -> None:
        super().__post_init__()
        columns: list[dict[int, int]] = [{} for _ in self.widths]
        offsets: list[dict[int, int]] = []
        for i, (classes, places) in enumerate(zip(self.attributes, self.places, strict=True)):
            offsets.append({c: offset for c, (_, offset) in zip(classes, places, strict=True)})
            for c, (column, _) in zip(classes, places, strict=True):
                columns[c][i] = column
        object.__setattr__(self, "columns", tuple(columns))
        object.__setattr__(self, "offsets", tuple(offsets))


class Share(Modules):
    """The SteMs of one join, in shared ones: the windows and the descriptors are its own, the arrays are not.

    shared   the SteMs that have the tuples
    columns  per attribute of them its column in the head rows of its directory
    scratch  memory for walks, which may serve other shares as well: they walk one after another
    place    where the shared SteMs have the streams and classes of the join

    Only `open`, `probe` and `close` work on a push; `SharedStems` does the rest.
    """

    is_shared = True

    def __init__(
        self, shared: Modules, columns: Sequence[int], scratch: Scratch, graph: JoinGraph, place: SharedPlace
    ) -> None:
        self.shared, self.place = shared, place
        self._streams = list(place.streams)
        firsts = [int(row) for row in shared.streams[self._streams, S_ATTR0]]
        rows = [[first + k for k in attributes] for first, attributes in zip(firsts, place.attributes, strict=True)]
        starts = [min(shared.attrs[attributes, A_OFFSET].tolist()) for attributes in rows]
        self._start: Int64s = np.array(starts, np.int64)
        """Per stream where its first own attribute lies in a record: it tells whether a tuple can join."""
        places = tuple(
            tuple((columns[x], int(shared.attrs[x, A_OFFSET]) - start) for x in attributes)
            for attributes, start in zip(rows, starts, strict=True)
        )
        fields = ("names", "windows", "attributes", "widths", "timed")
        super().__init__(SharedGraph(**{name: getattr(graph, name) for name in fields}, places=places))
        self.links = np.zeros((0, N_FIELDS), np.int64)
        self.attrs[:, [A_LINK0, A_LINK1]] = 0
        for name, empty in (("recs", np.int32), ("values", np.int64), ("heads", np.int32), ("words", np.int64)):
            setattr(self, name, Segments(empty, [], -1))
        self.table, self.freed = Segments(np.int64, [], -1), Segments(np.int32, [], -1)
        self.scratch = scratch
        self._seen: Arena | None = None
        self.follower = _Follower(self)
        shared.caches.add(self.follower)
        self.streams[:, S_LO] = shared.streams[self._streams, S_LO]
        self.streams[:, S_BASE] = shared.streams[self._streams, S_BASE]
        self.follow()

    def see(self, watermark: int, *, earlier: bool) -> None:
        """Set the windows to those before the next arrival.

        watermark   that before it
        earlier  whether tuples that have arrived already are seen, as far as they are in a window
        """
        self.follow()
        self.meta[M_WATERMARK] = watermark
        for i, window in enumerate(self.graph.windows):
            if not earlier:
                self.streams[i, S_LO] = self.streams[i, S_NEXT]
            elif window.kind == WindowKind.ROWS:
                self.streams[i, S_LO] = max(self.streams[i, S_NEXT] - window.size, self.streams[i, S_LO])

    def follow(self) -> None:
        """Take over where the shared arrays are, and what has arrived."""
        shared, streams = self.shared, self._streams
        self.streams[:, S_NEXT] = shared.streams[streams, S_NEXT]
        if shared.arena is self._seen:
            return
        self.capacity = [shared.capacity[i] for i in streams]
        self.streams[:, LOCATED] = shared.streams[np.ix_(streams, LOCATED)]
        self.streams[:, S_RECS] += self._start
        directories = list(self.place.directories)
        # A share inserts no keys and sweeps none, so nobody reads the members of its classes.
        self.classes[:, :C_MEMBER] = shared.classes[directories, :C_MEMBER]
        self.classes[:, C_STEMS] = 0
        self.arena = shared.arena._replace(
            streams=self.streams,
            classes=self.classes,
            attrs=self.attrs,
            links=self.links,
            bands=self.bands.table,
            meta=self.meta,
        )
        self._seen = shared.arena

    # The open push

    def open(self) -> None:
        """Open a push: remember where to return to."""
        self.meta[:M_OF_PUSH] = 0
        before = self.opening
        before.streams[:], before.meta[:] = self.streams, self.meta
        self._saved = before.streams, before.meta

    def probe(self, routes: Routes, order: Bytes, start: int, stop: int) -> Int32s:
        """Find the results of arrivals that were inserted; return their ids, int32[results * streams].

        order         uint8[arrivals], the stream of each arrival of the push that belongs to the join
        start, stop   the arrivals of a chunk: all that were inserted since the last call
        """
        self.follow()
        meta = self.meta
        meta[[M_ARRIVAL, M_INSERTED]] = start, stop
        meta[[M_STARTED, M_INTERN_ATTR, M_OUT]] = 1, len(self.attrs), 0
        count = self.run(routes, order, False, None, stop)
        return self.walk.ids[: count * self.graph.n_streams].copy()

    def close(self, results: int) -> None:
        """Close the push, which has found this many results."""
        self.meta[M_OUT] = results
        self.commit()

    def undo(self) -> None:
        """Undo the open push: windows and counts are as before it."""
        if self._saved is not None:
            streams, meta = self._saved
            self.streams[:, [S_NEXT, S_LO, S_BASE]] = streams[:, [S_NEXT, S_LO, S_BASE]]
            self.meta[:] = meta
            for cache in self.caches:
                cache.forget()
            self._saved = None

    def renumbered(self, shifts: Sequence[int]) -> None:
        """Follow a renumbering of the shared streams."""
        moved = np.array(shifts, np.int64)[self._streams]
        self.streams[:, [S_NEXT, S_LO]] -= moved[:, None]
        self.streams[:, S_BASE] += moved
        for cache in self.caches:
            cache.renumbered(moved.tolist())

    # Sizes

    def keys(self, c: int) -> int:
        """Return the number of keys of the directory of class c with an id."""
        return self.shared.keys(self.place.directories[c])

    def stem_bytes(self, i: int) -> int:
        """Return 0: the records are shared."""
        return 0

    def key_bytes(self, c: int) -> int:
        """Return 0: the directories are shared."""
        return 0

    @property
    def state_bytes(self) -> int:
        """Return 0: all lasting state is shared."""
        return 0

    @property
    def nbytes(self) -> int:
        """Bytes of the descriptors."""
        return sum(array.nbytes for array in (self.streams, self.classes, self.attrs, self.meta, self.bands.table))

    def check(self) -> None:
        """Raise StateError unless this share sees only what its SteMs have."""
        require(not self.pushing, "a push is neither committed nor undone")
        self.follow()
        for k, i in enumerate(self._streams):
            (low, following), theirs = self.streams[k, [S_LO, S_NEXT]].tolist(), self.shared.streams[i]
            what = f"SteM {self.graph.names[k]}, window of a share"
            right = int(theirs[S_LO]) <= low <= following == theirs[S_NEXT]
            require(right, f"{what}: low mark {low}, next {following}")
            require(int(self.streams[k, S_BASE]) == theirs[S_BASE], f"{what}: its arrivals are numbered otherwise")


class _Follower(Cache):
    """Tells a share what happens to the shared SteMs."""

    def __init__(self, share: Share) -> None:
        self._share = share

    def renumbered(self, shifts: Sequence[int]) -> None:
        self._share.renumbered(shifts)

    def forget(self) -> None:
        self._share.undo()
