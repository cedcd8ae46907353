"""Ways to do one join, each over windows of its own: take arrivals, say how long it took and what was found."""

from __future__ import annotations

from collections.abc import Sequence
from time import thread_time
from typing import Any, Protocol

import numpy as np
import pyarrow.compute as pc

import eddy
from bench.engine import Engine
from bench.growth.sources import Chunk
from bench.limit_kernels import tables, w1_loop, w2_loop, w21_loop

ONE_KEY, FOUR, CHAIN = "one key", "four on one key", "chain of four"
"""The joins that a loop is written for: any streams on one key; W1; W2."""


class Runner(Protocol):
    """One way to do the join."""

    def take(self, chunk: Chunk, known: Sequence[int] | None) -> tuple[float, list[int]]:
        """Take the arrivals in and return CPU seconds, and the number of results of each push.

        known   those numbers, if another way has found them; what is timed does not depend on it
        """

    @property
    def nbytes(self) -> int:
        """Bytes of state, and of room for a push and for its results."""

    @property
    def state_bytes(self) -> int:
        """Bytes of state alone."""


class RuntimeRunner:
    """`Runtime.push`: Arrow batches in, Arrow tables out. `options` are those of a Runtime."""

    def __init__(self, query: eddy.Query, **options: Any) -> None:
        self.runtime = eddy.Runtime(query, **options)

    def take(self, chunk: Chunk, known: Sequence[int] | None) -> tuple[float, list[int]]:
        """Take the arrivals in and return CPU seconds, and the number of results of each push."""
        pushes, push, found = chunk.arrow, self.runtime.push, []
        start = thread_time()
        for rows, order in pushes:
            found.append(push(rows, order).num_rows)
        return thread_time() - start, found

    @property
    def nbytes(self) -> int:
        """Bytes of state, and of room for a push and for its results."""
        return self.runtime.nbytes

    @property
    def state_bytes(self) -> int:
        """Bytes of windows with their payload, key directories and stored states."""
        metrics = self.runtime.metrics()
        return sum(part["bytes"] for part in (*metrics["states"].values(), *metrics["classes"], *metrics["stairs"]))

    @property
    def live(self) -> int:
        """Tuples in the windows."""
        return sum(state["rows"] for state in self.runtime.metrics()["states"].values())

    @property
    def deciding(self) -> float:
        """CPU seconds of sampling and deciding since the start."""
        table = self.runtime.stats()
        return float(table.filter(pc.equal(table["kind"], "cost"))["seconds"][0].as_py() or 0.0)


class EngineRunner:
    """The engine without Arrow: keys in as arrays, row ids out in a buffer. SteMs only, the default plan."""

    def __init__(self, query: eddy.Query) -> None:
        self.engine = Engine(query)

    def take(self, chunk: Chunk, known: Sequence[int] | None) -> tuple[float, list[int]]:
        """Take the arrivals in and return CPU seconds, and the number of results of each push."""
        pushes, push, found = chunk.columns, self.engine.push, []
        start = thread_time()
        for order, columns in pushes:
            found.append(push(order, columns))
        return thread_time() - start, found

    @property
    def nbytes(self) -> int:
        """Bytes of state, and of room for a push and for its results."""
        return self.engine.modules.nbytes

    @property
    def state_bytes(self) -> int:
        """Bytes of windows and key directories."""
        return self.engine.modules.state_bytes


class LoopRunner:
    """A hand-written loop (bench/limit_kernels.py): keys in as one array, row ids out in a buffer.

    join     which loop
    keys     distinct keys there may be; it has a power of two of buckets above that, or above the rows of all windows
    """

    def __init__(self, join: str, streams: int, window: int, keys: int) -> None:
        self.join, self.window = join, window
        self.bits = max(min(keys, streams * window).bit_length(), 4)
        indexes = 6 if join == CHAIN else streams
        self.kept = tables(streams, indexes, indexes, self.bits, window, 1)
        self.found = np.zeros(streams, np.int64)

    def take(self, chunk: Chunk, known: Sequence[int] | None) -> tuple[float, list[int]]:
        """Take the arrivals in and return CPU seconds, and the number of results of each push.

        Raises StateError if these are not known: a loop writes on where its room ends.
        """
        if known is None:
            raise eddy.StateError("a loop does not ask whether its buffer is full: tell it how many results there are")
        streams, room = self.kept.ids.shape
        most = max(known)
        if room <= 2 * most:
            # Twice what is needed, so that a count that is wrong is found and not a crash. Written once, so that no
            # page is mapped while the clock runs.
            self.kept = self.kept._replace(ids=np.full((streams, 3 * most + 1024), -1, np.int32))
        found = []
        start = thread_time()
        for order, keys in chunk.raw:
            found.append(self._push(order, keys))
        return thread_time() - start, found

    def _push(self, order: np.ndarray, keys: np.ndarray) -> int:
        if self.join == CHAIN:
            return int(w2_loop(order, keys, self.window, self.bits, self.kept))
        if self.join == FOUR:
            return int(w1_loop(order, keys.reshape(-1), self.window, self.bits, self.kept))
        return int(w21_loop(order, keys.reshape(-1), self.window, self.bits, self.kept, self.found))

    @property
    def nbytes(self) -> int:
        """Bytes of state, and of room for the results of a push: up to three times what it needs."""
        return self.state_bytes + self.kept.ids.nbytes

    @property
    def state_bytes(self) -> int:
        """Bytes of buckets, keys and links."""
        kept = self.kept
        return kept.heads.nbytes + kept.link.nbytes + kept.held.nbytes + kept.nxt.nbytes + self.found.nbytes
