"""Temporary memory of a push: room for its input, for walks and for results."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stairs.descriptors import K_FIELDS, L_FIELDS, T_FIELDS
from stairs.errors import CapacityError
from stairs.kernels.by_address import Descriptions
from stairs.kernels.combinations import MOST_RESULTS
from stairs.kernels.one_key import BLOCK
from stairs.kernels.one_key_results import NEWEST
from stairs.memory.arena import Chunk, Input, Walk

FIRST_RESULTS = 1024
CHUNK = 1024
"""Most events of a chunk: enough that the descriptors of a route are read seldom, few enough that its partial results
stay in a core's own cache."""
FIRST_EVENTS = 64
"""Room for events before the first push: a watermark without arrivals has departures."""
FIRST_PARTIALS = 1 << 10
MOST_PARTIALS = 1 << 31
"""More places in `Chunk.partials` would not fit an int32."""


class ScratchSizes(NamedTuple):
    """Sizes of the scratch memory.

    Key words, rows, results, signs of results, tuples in flight, events of a chunk, and int32s of
    partial results.
    """

    words: int = 0
    rows: int = 0
    results: int = 0
    signs: int = 0
    frames: int = 1
    chunk: int = 0
    partials: int = FIRST_PARTIALS


def _events(room: int) -> dict[str, Any]:
    """Return the arrays of a chunk that have an element for each event."""
    kinds = {"places": np.int32, "departures": np.int32, "owners": np.uint8, "signs": np.uint8, "twins": np.uint8}
    kinds |= {"tuples": np.int32, "clock": np.int64, "counts": np.int64}
    return {name: np.zeros(room, kind) for name, kind in kinds.items()}


class Scratch:
    """Scratch memory for the pushes of one engine.

    input    room for the rows of a push
    walk     arrays in which kernels walk, with the results that they found
    chunk    arrays in which the events of a chunk probe
    most     the most events of a chunk
    timed    whether arrivals have event times
    words    words of a key that say which streams have several live tuples of it (`stairs.kernels.presence`)
    described   what kernels read to find these arrays
    """

    def __init__(
        self,
        n_streams: int,
        n_classes: int,
        n_comparisons: int,
        room: ScratchSizes | None = None,
        most: int = CHUNK,
        timed: bool = False,
        words: int = 0,
    ) -> None:
        self.most, self._timed = most, timed
        self.described = Descriptions()
        self._streams = m = n_streams
        self._classes = n = n_classes
        room = room or ScratchSizes()
        self.input = Input(
            np.empty(room.words, np.int64), np.empty(room.rows, np.uint8), np.empty(room.rows * timed, np.int64)
        )
        self.walk = Walk(
            ids=np.empty(room.results * m, np.int32),
            signs=np.empty(room.signs, np.uint8),
            levels=np.zeros((2, m), np.int64),
            turn=np.zeros(m, np.int64),
            bound=np.zeros(n, np.int64),
            kids=np.zeros(n, np.int64),
            current=np.zeros(m, np.int64),
            others=np.zeros(n_comparisons, np.int64),
            frames=np.zeros((room.frames, T_FIELDS + 2 * (m + n)), np.int64),
            lows=np.zeros(m, np.int32),
            gone=np.zeros(m, np.int32),
            sure=np.full(2 * m, np.iinfo(np.int32).min, np.int32),
            met=np.zeros(BLOCK * (NEWEST + 2 * m), np.int32),
            several=np.zeros(BLOCK * words, np.int64),
            alone=np.zeros(m, np.int64),
        )
        self.chunk = Chunk(
            streams=np.zeros((m, K_FIELDS), np.int64),
            **_events(max(room.chunk, min(room.rows, most), FIRST_EVENTS)),
            levels=np.zeros((m, m, L_FIELDS), np.int64),
            sources=np.zeros((n, 3), np.int64),
            partials=np.empty(room.partials, np.int32),
        )

    @property
    def room(self) -> ScratchSizes:
        """The present sizes."""
        walk, chunk, words, rows = self.walk, self.chunk, len(self.input.words), len(self.input.dead)
        results, signs, frames = len(walk.ids) // self._streams, len(walk.signs), len(walk.frames)
        return ScratchSizes(words, rows, results, signs, frames, len(chunk.places), len(chunk.partials))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in (*self.walk, *self.chunk, *self.input))

    def take_in(self, words: int, rows: int) -> None:
        """Make room for `words` key words and `rows` rows."""
        if len(self.input.words) < words:
            self.input = self.input._replace(words=np.empty(2 * words, np.int64))
        if len(self.input.dead) < rows:
            # A chunk first: a push looks only at the room for marks.
            if len(self.chunk.places) < min(2 * rows, self.most):
                self.chunk = self.chunk._replace(**_events(min(2 * rows, self.most)))
            clock = np.empty(2 * rows * self._timed, np.int64)
            self.input = self.input._replace(dead=np.empty(2 * rows, np.uint8), clock=clock)

    def grow_results(self, used: int, need: int, signed: bool) -> None:
        """Make room for `need` results, and for their signs if they are `signed`; the first `used` results stay.

        Raises CapacityError for more than MOST_RESULTS.
        """
        if need >= MOST_RESULTS:
            raise CapacityError(
                "one arrival completes more than 2^48 results; a key is too frequent in too many windows: narrow them,"
                " or join on more columns"
            )
        m = self._streams
        room = max(FIRST_RESULTS, 2 * (self.walk.ids.shape[0] // m), need)
        ids = np.empty(room * m, np.int32)
        ids[: used * m] = self.walk.ids[: used * m]
        signs = np.empty(room if signed else 0, np.uint8)
        if signed:
            signs[:used] = self.walk.signs[:used]
        self.walk = self.walk._replace(ids=ids, signs=signs)

    def grow_partials(self) -> None:
        """Double the room for partial results. Raises CapacityError beyond MOST_PARTIALS."""
        room = 2 * len(self.chunk.partials)
        if room > MOST_PARTIALS:
            raise CapacityError(
                f"one row would need room for {room} numbers of partial results; a key is too frequent in too many"
                " windows: narrow them, join on more columns, or choose a plan that joins rarer streams first"
            )
        self.chunk = self.chunk._replace(partials=np.empty(room, np.int32))

    def open_frames(self) -> None:
        """Make room for the tuples in flight in an eddy."""
        m, (rows, width) = self._streams, self.walk.frames.shape
        if rows <= m:
            self.walk = self.walk._replace(frames=np.zeros((m + 1, width), np.int64))
