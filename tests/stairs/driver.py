"""A driver of state modules without a query, which turns rows of key words into results; and a model of the join.

A key is a tuple of words, as wide as its class; a word that stands for a string is given as bytes. A row without keys
(None) cannot join. Results are arrival numbers. `live_parts` reads all live content from the arrays.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jisc.plan.routes import compile_routes
from jisc.plan.tree import Tree, default_plan
from stairs.bytes_directory import BytesDirectory
from stairs.clock_reading import ClockReading
from stairs.descriptors import A_COLUMN, M_BEHIND, M_NEWEST, M_WATERMARK, S_BASE, S_LO, S_NEXT
from stairs.graph import JoinGraph, Window, WindowKind
from stairs.kernels.byte_strings import B_FREE, B_NEXT
from stairs.kernels.marks import newest_of
from stairs.kernels.versions import DELETE
from stairs.modules import Modules
from stairs.store import StairStore
from tests.stairs.steps import callable_step

newest = callable_step(newest_of)

Key = tuple[Any, ...]
Result = tuple[int, ...]


@dataclass(frozen=True)
class DriverRow:
    """An arrival: its stream, its key in each class of the stream (None = it cannot join), its event time."""

    stream: int
    keys: tuple[Key, ...] | None
    time: int = 0
    primary: int | None = None
    """Of a change of a table: its primary key."""
    deletes: bool = False


def rows_window(n: int) -> Window:
    return Window(WindowKind.ROWS, n)


def range_window(span: int) -> Window:
    return Window(WindowKind.RANGE, span)


@dataclass(frozen=True)
class TimedGraph(JoinGraph):
    """A join whose watermark is the greatest event time minus a lateness."""

    lateness: int = 0


def one_class(windows: Sequence[Window], width: int = 1, texts: tuple[int, ...] = ()) -> TimedGraph:
    """Return a join of streams R, S, … on one class."""
    names = tuple("RSTUVWXYZ"[: len(windows)])
    timed = any(window.kind == WindowKind.RANGE for window in windows)
    return TimedGraph(names, tuple(windows), ((0,),) * len(windows), (width,), (texts,), timed)


def chain(windows: Sequence[Window], timed: bool = False, lateness: int = 0) -> TimedGraph:
    """Return a join of streams R(0), S(0, 1), T(1, 2), …: neighbours share a class; keys of class 1 have two words."""
    n = len(windows)
    attributes = tuple(tuple(c for c in (i - 1, i) if 0 <= c < n - 1) for i in range(n))
    widths = tuple(2 if c == 1 else 1 for c in range(n - 1))
    return TimedGraph(tuple("RSTUVWXYZ"[:n]), tuple(windows), attributes, widths, timed=timed, lateness=lateness)


@dataclass
class PlanDriver:
    """State modules and the routes of one plan, or of the states of a store."""

    graph: JoinGraph
    renumber_at: int | None = None
    plan: Tree | None = None
    store: StairStore | None = None
    """States that the pushes probe and store into, with their routes."""
    modules: Modules = field(init=False)

    def __post_init__(self) -> None:
        self.modules = Modules(self.graph) if self.renumber_at is None else Modules(self.graph, self.renumber_at)
        self.routes = compile_routes(self.plan or default_plan(self.graph), self.graph)

    def walk(
        self,
        rows: Sequence[DriverRow],
        count_only: bool = False,
        watermark: int | None = None,
        stops: Sequence[int] = (),
    ) -> list[Result]:
        """Process a push without its commit, and return its results.

        watermark   that of the caller, if it gives one
        stops       positions at which the kernel stops before the end
        """
        graph, modules = self.graph, self.modules
        by_stream = [[row for row in rows if row.stream == i] for i in range(graph.n_streams)]
        modules.begin([len(stream_rows) for stream_rows in by_stream])
        for i, stream_rows in enumerate(by_stream):
            modules.dead_rows(i)[:] = [DELETE if row.deletes else row.keys is None for row in stream_rows]
            if i in graph.tables:
                modules.key_words(i, graph.primary[i] or 0)[:] = [row.primary for row in stream_rows]
            for place, c in enumerate(graph.attributes[i]):
                keys = [(0,) * graph.widths[c] if row.keys is None else row.keys[place] for row in stream_rows]
                self._write_words(i, c, keys)
        order = np.array([row.stream for row in rows], np.uint8)
        if graph.timed:
            modules.set_times(np.array([row.time for stream_rows in by_stream for row in stream_rows], np.int64))
            modules.read_clock(self._reading(rows, watermark))
        for stop in stops:
            modules.run(self.routes, order, count_only, stop=stop)
        if self.store is None:
            count = modules.run(self.routes, order, count_only)
        else:
            count = modules.run(self.store.routes, order, count_only, self.store.entries)
        if count_only:
            return [()] * count
        return [tuple(numbers) for numbers in modules.arrival_numbers().T.tolist()]

    def push(self, rows: Sequence[DriverRow], watermark: int | None = None, stops: Sequence[int] = ()) -> list[Result]:
        """Process and commit a push as `walk` does, and return its results."""
        results = self.walk(rows, watermark=watermark, stops=stops)
        self.modules.commit()
        return results

    def _reading(self, rows: Sequence[DriverRow], given: int | None) -> ClockReading:
        """Return the time of a push: the watermark follows the greatest event time, or is given."""
        lateness = self.graph.lateness if isinstance(self.graph, TimedGraph) else 0
        before, newest, behind = self.modules.meta[[M_WATERMARK, M_NEWEST, M_BEHIND]].tolist()
        greatest, marks = newest, []
        for row in rows:
            behind, greatest = max(behind, greatest - row.time), max(greatest, row.time)
            marks.append(before if given is not None else greatest - lateness)
        after = given if given is not None else marks[-1] if marks else before
        lags = bool(lateness) or given is not None or before != newest
        return ClockReading(np.array(marks, np.int64), before, after, newest, behind, lags)

    def _write_words(self, i: int, c: int, keys: list[Key]) -> None:
        width = self.graph.widths[c]
        words = self.modules.key_words(i, c).reshape(len(keys), width)
        dead = self.modules.dead_rows(i)
        for word in range(width):
            column = [key[word] for key in keys]
            strings = self.modules.texts_of[c].get(word)
            if strings is None:
                words[:, word] = column
                continue
            texts = [b"" if d else text for d, text in zip(dead, column, strict=True)]
            offsets = np.cumsum([0, *map(len, texts)]).astype(np.int64)
            words[:, word] = strings.intern(offsets, np.frombuffer(b"".join(texts) or b"\0", np.uint8), dead)


@dataclass
class NestedLoop:
    """The results of a join, by a nested loop over the windows."""

    graph: JoinGraph
    arrived: list[list[DriverRow]] = field(init=False)
    newest: int = -(1 << 61)

    def __post_init__(self) -> None:
        self.arrived = [[] for _ in self.graph.names]

    def push(self, rows: Sequence[DriverRow]) -> list[Result]:
        """Return the results of a push."""
        return [result for row in rows for result in self._arrive(row)]

    def live(self, i: int) -> range:
        """Return the arrival numbers of the tuples in a ROWS or unbounded window."""
        window, n = self.graph.windows[i], len(self.arrived[i])
        return range(max(0, n - window.size) if window.kind == WindowKind.ROWS else 0, n)

    def _arrive(self, row: DriverRow) -> Iterator[Result]:
        number = len(self.arrived[row.stream])
        if row.keys is not None:
            others = [self.live(i) if i != row.stream else (number,) for i in range(self.graph.n_streams)]
            for result in itertools.product(*others):
                parts = [row if i == row.stream else self.arrived[i][s] for i, s in enumerate(result)]
                if self._agree(parts) and self._together(parts):
                    yield result
        self.arrived[row.stream].append(row)

    def _agree(self, parts: list[DriverRow]) -> bool:
        bound: dict[int, Key] = {}
        for i, part in enumerate(parts):
            if part.keys is None:
                return False
            for c, key in zip(self.graph.attributes[i], part.keys, strict=True):
                if bound.setdefault(c, key) != key:
                    return False
        return True

    def _together(self, parts: list[DriverRow]) -> bool:
        newest = max(part.time for part in parts)
        ranged = (i for i, window in enumerate(self.graph.windows) if window.kind == WindowKind.RANGE)
        return all(newest - parts[i].time <= self.graph.windows[i].size for i in ranged)


def count_strings(directory: BytesDirectory) -> int:
    """Return the number of strings in a directory, including fresh ones."""
    return int(directory.arena.meta[B_NEXT] - directory.arena.meta[B_FREE])


def key_ids(modules: Modules, c: int) -> dict[int, Key]:
    """Return the words of each key id in the table of a class; strings as their bytes."""
    table = modules.table.view(c).reshape(-1, 2)
    words = modules.words.view(c).reshape(-1, modules.graph.widths[c])
    keys: dict[int, Key] = {}
    for kid in table[table[:, 1] >= 0, 1].tolist():
        key = words[kid].tolist()
        for word, strings in modules.texts_of[c].items():
            a, at = strings.arena, key[word]
            key[word] = a.heap[a.start[at] : a.start[at] + a.size[at]].tobytes()
        keys[kid] = tuple(key)
    return keys


def live_parts(modules: Modules) -> dict[str, Any]:
    """Return the windows, event times, keys, key ids and chains of live tuples, with tuples as arrival numbers."""
    graph = modules.graph
    parts: dict[str, Any] = {"watermark": int(modules.meta[M_WATERMARK])}
    for i, name in enumerate(graph.names):
        low, following, base = (int(modules.streams[i, column]) for column in (S_LO, S_NEXT, S_BASE))
        slots = np.arange(low, following) & (modules.capacity[i] - 1)
        parts[name] = (low + base, following + base)
        if graph.timed:
            parts[name] += (modules.value_ring(i, 0)[slots].tolist(),)
    for c, members in enumerate(graph.members):
        for kid, key in key_ids(modules, c).items():
            chains = {}
            for i in members:
                column = int(modules.attrs[modules.attribute_rows[i, c], A_COLUMN])
                row = modules.heads.view(c).reshape(-1, len(members))[kid]
                low, base = int(modules.streams[i, S_LO]), int(modules.streams[i, S_BASE])
                records = modules.recs.view(i).reshape(modules.capacity[i], -1)
                chain, s = [], newest(int(row[column]))
                while s >= low:
                    chain.append(s + base)
                    s = int(records[s & (modules.capacity[i] - 1), 2 * graph.attributes[i].index(c)])
                if chain:
                    chains[graph.names[i]] = chain
            if chains:
                parts[f"class {c}, key {key}"] = (kid, chains)
    return parts
