"""Ways to do one join, each over its own windows, and rounds in which all ways take the same arrivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import thread_time
from typing import Any, Protocol

import numpy as np
import pyarrow.compute as pc

import eddy
from bench.harness.figure import Say
from bench.harness.turns import Taken, agree, without_gc
from bench.ways.loop_kernels import tables, w1_loop, w2_loop, w21_loop
from bench.ways.w1_loops import PayloadLoop
from bench.workloads.sources import ArrivalChunk, ArrivalSource, Columns, Keys, Order
from eddy.ingest.clock import Clock
from jisc.plan.routes import compile_routes
from jisc.plan.tree import default_plan
from stairs.modules import Modules

ONE_KEY, FOUR, CHAIN = "one key", "four on one key", "chain of four"
"""The joins that have a loop: any number of streams on one key; W1; W2."""
JOINS = {"W1": FOUR, "W1R": FOUR, "new_keys": FOUR, "W2": CHAIN, "W21": ONE_KEY}
LARGEST = 1 << 20
"""Arrivals drawn at once while windows fill."""


class Runner(Protocol):
    """One way to do the join."""

    def take(self, chunk: ArrivalChunk, known: Sequence[int] | None) -> tuple[float, list[int]]:
        """Take the arrivals; return CPU seconds and the number of results of each push.

        known   the numbers of results, if another way has found them; the time must not depend on them
        """


class RuntimeRunner:
    """`Runtime.push`: Arrow batches in, Arrow tables out. `options` are those of a Runtime."""

    def __init__(self, query: eddy.Query, **options: Any) -> None:
        self.runtime = eddy.Runtime(query, **options)

    def take(self, chunk: ArrivalChunk, known: Sequence[int] | None) -> tuple[float, list[int]]:
        """As of a Runner."""
        pushes, push, counts = chunk.arrow, self.runtime.push, []
        start = thread_time()
        for rows, order in pushes:
            counts.append(push(rows, order).num_rows)
        return thread_time() - start, counts

    @property
    def nbytes(self) -> int:
        """Bytes of state, and of the buffers for a push and for its results."""
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
        """CPU seconds spent on samples and decisions since the start."""
        table = self.runtime.stats()
        return float(table.filter(pc.equal(table["kind"], "cost"))["seconds"][0].as_py() or 0.0)


def open_push(modules: Modules, columns: Columns) -> None:
    """Open a push and copy its key columns in."""
    modules.begin([len(keys[0]) for keys in columns])
    for i, keys in enumerate(columns):
        for c, words in zip(modules.graph.attributes[i], keys, strict=True):
            modules.key_words(i, c)[:] = words


class EngineRunner:
    """The engine without Arrow: keys in as arrays, row ids out in a buffer. It has only SteMs and the default plan."""

    def __init__(self, query: eddy.Query) -> None:
        self.modules = Modules(query.graph)
        self.routes = compile_routes(default_plan(query.graph), query.graph)
        self.clock = Clock(query.clock_rule, None)

    def push(self, order: Order, columns: Columns, times: Sequence[Keys] = ()) -> int:
        """Take one push, with event times by stream if the query has them; return the number of its results."""
        open_push(self.modules, columns)
        for i, stream_times in enumerate(times):
            self.modules.set_values(i, 0, stream_times, self.modules.ring_slices(i, len(stream_times)))
        if times:
            ticked = self.clock.tick(order, list(times), None)
            self.modules.read_clock(ticked.reading)
            self.clock.state = ticked.state
        results = self.modules.run(self.routes, order)
        self.modules.commit()
        return results

    def take(self, chunk: ArrivalChunk, known: Sequence[int] | None) -> tuple[float, list[int]]:
        """As of a Runner."""
        pushes, counts = chunk.columns, []
        streams = range(len(self.modules.graph.names)) if chunk.timed else ()
        times = [
            [all_times[order == i] for i in streams] for (order, _), all_times in zip(pushes, chunk.times, strict=True)
        ]
        start = thread_time()
        for (order, columns), push_times in zip(pushes, times, strict=True):
            counts.append(self.push(order, columns, push_times))
        return thread_time() - start, counts


class LoopRunner:
    """A hand-written loop (loop_kernels.py): keys in as one array, row ids out in a buffer.

    join   the query of the loop
    keys   distinct keys; the loop has the power of two of buckets above them, or above the rows of all windows
    span   ticks of RANGE windows of about `window` rows, for W1R; 0 = windows are ROWS
    """

    deciding = 0.0
    """As of a RuntimeRunner; a loop decides nothing."""

    def __init__(self, join: str, streams: int, window: int, keys: int, span: int = 0) -> None:
        self.join, self.window, self.span = join, window, span
        self.bits = max(min(keys, streams * window).bit_length(), 4)
        indexes = 6 if join == CHAIN else streams
        self.kept = tables(streams, indexes, indexes, self.bits, window, 1)
        self.matches = np.zeros(streams, np.int64)
        self.held_times = np.zeros(self.kept.held.shape if span else (0, 0), np.int64)

    def take(self, chunk: ArrivalChunk, known: Sequence[int] | None) -> tuple[float, list[int]]:
        """Take the arrivals; return CPU seconds and the number of results of each push.

        Raises StateError if these numbers are not known: a loop does not check whether its buffer is full.
        """
        if known is None:
            raise eddy.StateError("a loop does not check whether its buffer is full: pass the number of results")
        streams, room = self.kept.ids.shape
        most = max(known)
        if room <= 2 * most:
            # The buffer is twice as large as needed, so that a wrong count is detected and does not crash. The buffer
            # is written once, so that no page is mapped while the clock runs.
            self.kept = self.kept._replace(ids=np.full((streams, 3 * most + 1024), -1, np.int32))
        pushes, counts = list(zip(chunk.raw, chunk.times, strict=True)), []
        start = thread_time()
        for (order, keys), times in pushes:
            counts.append(self._push(order, keys, times))
        return thread_time() - start, counts

    def _push(self, order: Order, keys: Keys, times: Keys) -> int:
        if self.join == CHAIN:
            return int(w2_loop(order, keys, self.window, self.bits, self.kept))
        if self.join == FOUR:
            width, ticks = (self.span, times) if self.span else (self.window, None)
            return int(w1_loop(order, keys.reshape(-1), ticks, width, self.bits, self.kept, self.held_times))
        return int(w21_loop(order, keys.reshape(-1), self.window, self.bits, self.kept, self.matches))

    @property
    def nbytes(self) -> int:
        """Bytes of state, and of the buffer for the results of a push, which has up to three times the needed size."""
        return self.state_bytes + self.kept.ids.nbytes

    @property
    def state_bytes(self) -> int:
        """Bytes of buckets, keys, links and event times."""
        kept = self.kept
        arrays = (kept.heads, kept.link, kept.held, kept.nxt, self.matches, self.held_times)
        return sum(array.nbytes for array in arrays)


class SmallPushes:
    """Another Runner, with pushes of another size."""

    def __init__(self, runner: Runner, push: int) -> None:
        self.runner, self.push = runner, push

    def take(self, chunk: ArrivalChunk, known: Sequence[int] | None) -> tuple[float, list[int]]:
        """Take the arrivals; return CPU seconds and the number of results of all arrivals."""
        seconds, counts = self.runner.take(replace(chunk, push=self.push), None)
        return seconds, [sum(counts)]


def turn(runners: Mapping[str, Runner], chunk: ArrivalChunk, first: int) -> tuple[dict[str, float], int]:
    """Let each way take the chunk; return the CPU seconds of each, and the results.

    The first way changes with `first`; loops come last, since they need the number of results. Raises
    Mismatch if the results of any push differ.
    """
    names = [name for name, runner in runners.items() if not isinstance(runner, LoopRunner | PayloadLoop)]
    names = names[first % len(names) :] + names[: first % len(names)]
    names += [name for name in runners if name not in names]
    seconds: dict[str, float] = {}
    counts: dict[str, list[int]] = {}
    for name in names:
        known = next((numbers for numbers in counts.values() if len(numbers) == len(chunk.raw)), None)
        seconds[name], counts[name] = runners[name].take(chunk, known)
    agree(
        "the pushes of one round", {name: numbers for name, numbers in counts.items() if len(numbers) == len(chunk.raw)}
    )
    totals = {name: sum(numbers) for name, numbers in counts.items()}
    agree("the results of one round", totals)
    return seconds, totals[names[0]]


def fill(runners: Mapping[str, Runner], source: ArrivalSource, arrivals: int, push: int) -> None:
    """Let each way take at least this many arrivals, in pushes of `push`, comparing results as `turn` does."""
    done = 0
    while done < arrivals:
        size = max(min(arrivals - done, LARGEST), push)
        turn(runners, source.draw(size, push), 0)
        done += size


def rounds(
    runners: Mapping[str, Runner], source: ArrivalSource, arrivals: int, push: int, count: int, say: Say
) -> tuple[Taken, int]:
    """Take `count` rounds of `arrivals` each; return CPU seconds by way and round, and the results of all rounds.

    One round before them is not counted. Raises Mismatch if ways differ in the results of any push.
    """
    taken: Taken = {name: [] for name in runners}
    results = 0
    with without_gc():
        for number in range(count + 1):
            say(f"round {number} of {count}")
            seconds, added = turn(runners, source.draw(arrivals, push), number)
            if number:
                results += added
                for name, spent in seconds.items():
                    taken[name].append(spent)
    return taken, results
