"""Peers of this process: eddy itself, the hand-written loops, and plain Python."""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numba
import numpy as np
import pyarrow as pa

import eddy
from bench.peers.works import RANGE, ROWS, SPAN, STREAMS, Peer, PeerEngine, PeerWork, WorkStep, total_of
from bench.ways.runners import EngineRunner
from bench.ways.w1_loops import CLoop, Loop, compiled, compiler_version
from bench.workloads.sources import WINDOW

EDDY, NUMBA, C, C_PAYLOAD = "eddy", "loop, numba", "loop, C", "loop, C, with payload"
BITS = WINDOW.bit_length()
LEAST_ROOM = 1 << 16


class Arrow(PeerEngine):
    """Arrow batches in, Arrow tables with the key and all values out; the default policy, which adapts."""

    def __init__(self, work: PeerWork, count_only: bool = False) -> None:
        self.runtime = eddy.Runtime(work.query, count_only=count_only)
        self.count_only = count_only

    def push(self, given: Any) -> pa.Table:
        return self.runtime.push(*given)

    def count(self, results: pa.Table) -> int:
        return int(results["count"][0].as_py()) if self.count_only else int(results.num_rows)

    def total(self, results: pa.Table) -> int | None:
        return None if self.count_only else total_of(results)


class Kernels(PeerEngine):
    """The engine without Arrow: keys in as arrays, row ids out in a buffer, one plan."""

    def __init__(self, work: PeerWork) -> None:
        self.engine = EngineRunner(work.query)

    @staticmethod
    def prepare(step: WorkStep) -> Any:
        return step.order, [[step.keys[step.order == i]] for i in range(len(STREAMS))]

    def push(self, given: Any) -> int:
        return self.engine.push(*given)


class ByHand(PeerEngine):
    """A hand-written loop, which does not check whether its buffer has room for the results.

    payload   whether it returns the key and all values; otherwise it returns row ids
    """

    def __init__(
        self, work: PeerWork, loop: Callable[[int, int, int, int], Loop] = Loop, payload: bool = False
    ) -> None:
        self.by_time, self.payload = work.windows == RANGE, payload
        room = max(4 * work.batch, LEAST_ROOM)  # about one result an arrival
        self.loop = loop(SPAN if self.by_time else WINDOW, BITS, work.most_live, room)
        self.values = [np.flatnonzero(work.order == i) for i in range(len(STREAMS))]

    @staticmethod
    def prepare(step: WorkStep) -> Any:
        return step.order, step.keys, step.times, step.times - 1

    def push(self, given: Any) -> int:
        order, keys, times, values = given
        return self.loop.push(order, keys, times if self.by_time else None, values if self.payload else None)

    def total(self, results: int) -> int:
        if isinstance(self.loop, CLoop) and self.payload:
            return int(self.loop.out[1:, :results].sum())
        return sum(
            int(column[ids[:results]].sum()) for column, ids in zip(self.values, self.loop.kept.ids, strict=True)
        )


class Plain(PeerEngine):
    """Plain Python: a dictionary of deques for each stream, and the rows of the windows in the order of arrival.

    RANGE windows all have the same length, so they share one order of arrival.
    """

    def __init__(self, work: PeerWork) -> None:
        self.values: list[dict[int, deque[int]]] = [{} for _ in STREAMS]
        self.rows = work.windows == ROWS
        self.windows: list[deque[tuple[int, deque[int]]]]
        self.windows = [deque() for _ in STREAMS] if self.rows else [deque()] * len(STREAMS)

    @staticmethod
    def prepare(step: WorkStep) -> Any:
        return tuple(array.tolist() for array in ByHand.prepare(step))

    def push(self, given: Any) -> list[tuple[int, ...]]:
        results: list[tuple[int, ...]] = []
        windows, by_rows = self.windows, self.rows
        add = [kept.setdefault for kept in self.values]
        look = [kept.get for kept in self.values]
        nothing: tuple[int, ...] = ()
        for i, key, time, value in zip(*given, strict=True):
            window = windows[i]
            if not by_rows:
                oldest = time - SPAN
                while window and window[0][0] < oldest:
                    window.popleft()[1].popleft()
            parts: list[Any] = [get(key, nothing) for get in look]
            parts[i] = (value,)
            if all(parts):
                results += product((key,), *parts)
            values = add[i](key, deque())
            values.append(value)
            window.append((time, values))
            if by_rows and len(window) > WINDOW:
                window.popleft()[1].popleft()
        return results

    def total(self, results: list[tuple[int, ...]]) -> int:
        return sum(sum(values) for _, *values in results)


def eddy_peer() -> Peer:
    """Return eddy with its defaults."""
    return Peer(EDDY, Arrow, eddy.__version__)


def peers() -> list[Peer]:
    """Return the peers without further dependencies, eddy first."""
    return [
        eddy_peer(),
        Peer("eddy, counting", partial(Arrow, count_only=True), eddy.__version__),
        Peer("eddy, engine", Kernels, eddy.__version__, windows=(ROWS,)),
        Peer(NUMBA, ByHand, numba.__version__),
        Peer("plain Python", Plain, platform.python_version()),
    ]


def c_peers(cc: str) -> list[Peer]:
    """Return the loops in C, compiled by a given compiler. Raises EddyError."""
    compiled(cc)
    return [
        Peer(name, partial(ByHand, loop=partial(CLoop, cc), payload=payload), compiler_version(cc))
        for name, payload in ((C, False), (C_PAYLOAD, True))
    ]
