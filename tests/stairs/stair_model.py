"""STAIRs that pushes feed, and a model of their contents: a nested loop over the arrivals.

The model reads no array of the state modules. It names tuples by arrival numbers, which renumbering does not change.
The functions at the end read one key of a STAIR from its arrays, or promote one key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from stairs.checks.stair import check_stair
from stairs.descriptors import (
    E_BASE,
    E_BIRTH,
    E_COUNT,
    E_ROUTE,
    E_SHORT,
    E_TAIL,
    M_MODE,
    S_BASE,
    STORED,
    VIRTUAL,
)
from stairs.graph import FOREVER, JoinGraph, WindowKind
from stairs.kernels.promotion import promote as promote_key
from stairs.stair import NewState, Stair
from stairs.store import StairStore
from tests.stairs.driver import DriverRow, Key, PlanDriver, TimedGraph, key_ids
from tests.stairs.promotion import compile_states

Composite = tuple[int, ...]


@dataclass
class ModelWindows:
    """The tuples that have arrived, and the arrival number of the oldest in each window."""

    graph: JoinGraph
    arrived: list[list[DriverRow]] = field(init=False)
    low: list[int] = field(init=False)
    newest: int = -(1 << 61)

    def __post_init__(self) -> None:
        self.arrived = [[] for _ in self.graph.names]
        self.low = [0] * self.graph.n_streams
        self.lateness = self.graph.lateness if isinstance(self.graph, TimedGraph) else 0

    def take(self, rows: Sequence[DriverRow]) -> None:
        """Let rows arrive; a RANGE window loses tuples from its front while they are too old."""
        for row in rows:
            self.arrived[row.stream].append(row)
            self.newest = max(self.newest, row.time)
        for i, window in enumerate(self.graph.windows):
            arrived = self.arrived[i]
            if window.kind == WindowKind.ROWS:
                self.low[i] = max(0, len(arrived) - window.size)
            elif window.kind == WindowKind.RANGE:
                horizon = self.newest - self.lateness - window.size
                while self.low[i] < len(arrived) and arrived[self.low[i]].time < horizon:
                    self.low[i] += 1

    def live(self, i: int) -> list[int]:
        """Return the live tuples of a stream that can join."""
        return [n for n in range(self.low[i], len(self.arrived[i])) if self.arrived[i][n].keys is not None]

    def keys(self, i: int, n: int) -> dict[int, Key]:
        """Return the key of a tuple in each class."""
        return dict(zip(self.graph.attributes[i], self.arrived[i][n].keys or (), strict=True))

    def combinations(self, streams: Sequence[int], by: int) -> dict[Key, list[Composite]]:
        """Return the live combinations over a set of streams, by their key in class `by`.

        A nested loop for each stream, over what those before it have left: a combination whose first tuples do not
        join goes no further.
        """
        partial: list[tuple[Composite, dict[int, Key]]] = [((), {})]
        known: set[int] = set()
        for i in streams:
            common = known.intersection(self.graph.attributes[i])
            candidates = [(n, keys, [keys[c] for c in common]) for n in self.live(i) for keys in [self.keys(i, n)]]
            longer = []
            for composite, bound in partial:
                wanted = [bound[c] for c in common]
                longer += [((*composite, n), bound | keys) for n, keys, joined in candidates if joined == wanted]
            partial = longer
            known.update(self.graph.attributes[i])
        by_key: dict[Key, list[Composite]] = {}
        for composite, bound in partial:
            by_key.setdefault(bound[by], []).append(composite)
        return by_key

    def live_keys(self, c: int) -> set[Key]:
        """Return the keys of a class that live tuples have."""
        return {self.keys(i, n)[c] for i in self.graph.members[c] for n in self.live(i)}


@dataclass
class StemPair:
    """SteMs with STAIRs that every push feeds, and the windows that they should contain, in step."""

    graph: JoinGraph
    renumber_at: int | None = None
    stairs: list[Stair] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.driver = PlanDriver(self.graph, self.renumber_at)
        self.windows = ModelWindows(self.graph)
        self.store = StairStore(self.driver.modules)

    def stair(self, streams: Iterable[int], by: int, complete: bool = False) -> Stair:
        """Add a STAIR, which later pushes feed."""
        (stair,) = self.store.add([NewState(tuple(sorted(streams)), by, complete)])
        self.stairs.append(stair)
        self._compile()
        return stair

    def drop(self, stair: Stair) -> None:
        """Remove a STAIR; a later one may take over its memory."""
        self.stairs.remove(stair)
        self.store.remove([stair])
        self._compile()

    def _compile(self) -> None:
        self.store.routes, promotions = compile_states(self.stairs, self.graph)
        for stair, row in zip(self.stairs, promotions, strict=True):
            stair.state[[E_ROUTE, E_BASE]] = row
        self.store.set_marks(np.full((max(len(self.stairs), 1), self.graph.n_streams), -FOREVER))
        self.driver.modules.meta[M_MODE] = STORED if self.stairs else VIRTUAL
        self.driver.store = self.store if self.stairs else None

    def push(self, rows: Sequence[DriverRow], one_by_one: bool = False) -> None:
        """Let rows arrive in one push, or each in its own. Composites are stored if their key is attempted."""
        for part in [[row] for row in rows] if one_by_one else [rows]:
            self.driver.push(part)
            self.windows.take(part)

    def check(self) -> None:
        """Assert that every key of every STAIR has exactly its combinations, or nothing; and all invariants."""
        self.driver.modules.check()
        for stair in self.stairs:
            check_stair(stair)
            combinations = self.windows.combinations(stair.streams, stair.by)
            total, missing = 0, []
            for kid, key in key_ids(self.driver.modules, stair.by).items():
                entries = [tuple(composite) for composite in entries_of(stair, kid, arrivals=True)]
                wanted = combinations.pop(key, [])
                if is_attempted(stair, kid):
                    assert sorted(entries) == sorted(wanted), (stair.what, key)
                    total += len(wanted)
                else:
                    assert entries == [], (stair.what, key)
                    missing += wanted
            assert not combinations  # every live key has an id
            assert stair.rows == total
            if stair.complete:
                assert not missing


def kid_of(stair: Stair, key: Key) -> int:
    """Return the key id of a key in the class of a STAIR."""
    return {known: kid for kid, known in key_ids(stair.modules, stair.by).items()}[key]


def is_attempted(stair: Stair, kid: int) -> bool:
    """Return whether a key is attempted, from its head."""
    stair.follow()
    return bool(stair.heads[kid] >= stair.state[E_BIRTH])


def promote(stair: Stair, kid: int) -> int:
    """Promote a key with the kernel that walks call; return how many combinations it stored."""
    stair._ready()
    modules, tables = stair.modules, stair.tables
    while promote_key(modules.arena, tables.entries, tables.routes, modules.walk, stair.row, kid):
        stair.make_room(int(stair.state[E_SHORT]))
    return int(stair.state[E_COUNT])


def entries_of(stair: Stair, kid: int, arrivals: bool = False) -> list[list[int]]:
    """Return the live entries in the chain of a key, newest first, as sequence or arrival numbers."""
    stair.follow()
    tail, entries, e = int(stair.state[E_TAIL]), [], int(stair.heads[kid])
    while e >= tail:
        link, *components = stair.entry(e).tolist()
        if all(s >= low for s, low in zip(components, stair.lows.tolist(), strict=True)):
            entries.append(components)
        e = link
    base = stair.modules.streams[list(stair.streams), S_BASE] if arrivals else np.zeros(len(stair.streams), np.int64)
    return [(np.array(components) + base).tolist() for components in entries]
