"""What a STAIR should hold, worked out from the arrivals alone by trying every combination, and what drives it.

Nothing here reads an array of the state modules but `kid_of`, which asks the directory for the key id of a key. Tuples
are named by arrival numbers, which renumbering leaves alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from stairs.descriptors import S_BASE
from stairs.graph import JoinGraph, WindowKind
from stairs.stair import Stair
from stairs.store import StairStore
from tests.stairs.driver import Driver, Key, Row, key_ids
from tests.stairs.promotion import compile_promotion

Composite = tuple[int, ...]


@dataclass
class Windows:
    """The tuples that have arrived, and of each stream the oldest still in its window."""

    graph: JoinGraph
    arrived: list[list[Row]] = field(init=False)
    low: list[int] = field(init=False)
    newest: int = -(1 << 61)

    def __post_init__(self) -> None:
        self.arrived = [[] for _ in self.graph.names]
        self.low = [0] * self.graph.n_streams

    def take(self, rows: Sequence[Row]) -> None:
        """Let rows arrive; RANGE windows lose their oldest tuples from the front, as far as those are too old."""
        for row in rows:
            self.arrived[row.stream].append(row)
            self.newest = max(self.newest, row.time)
        for i, window in enumerate(self.graph.windows):
            own = self.arrived[i]
            if window.kind == WindowKind.ROWS:
                self.low[i] = max(0, len(own) - window.size)
            elif window.kind == WindowKind.RANGE:
                horizon = self.newest - self.graph.lateness - window.size
                while self.low[i] < len(own) and own[self.low[i]].time < horizon:
                    self.low[i] += 1

    def live(self, i: int) -> list[int]:
        """Give the live tuples of a stream that can join."""
        return [n for n in range(self.low[i], len(self.arrived[i])) if self.arrived[i][n].keys is not None]

    def keys(self, i: int, n: int) -> dict[int, Key]:
        """Give the key of a tuple in each class."""
        return dict(zip(self.graph.attributes[i], self.arrived[i][n].keys or (), strict=True))

    def combinations(self, streams: Sequence[int], by: int) -> dict[Key, list[Composite]]:
        """Give the live combinations over a set of streams, by their key in class `by`. A nested loop."""
        found: dict[Key, list[Composite]] = {}
        for composite in itertools.product(*(self.live(i) for i in streams)):
            bound: dict[int, Key] = {}
            pairs = [pair for i, n in zip(streams, composite, strict=True) for pair in self.keys(i, n).items()]
            if all(bound.setdefault(c, key) == key for c, key in pairs):
                found.setdefault(bound[by], []).append(composite)
        return found

    def live_keys(self, c: int) -> set[Key]:
        """Give the keys of a class that a live tuple has."""
        return {self.keys(i, n)[c] for i in self.graph.members[c] for n in self.live(i)}


@dataclass
class Pair:
    """SteMs and the windows they should hold, in step; STAIRs get every composite that completes in their set."""

    graph: JoinGraph
    renumber_at: int | None = None
    stairs: list[Stair] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.driver = Driver(self.graph, self.renumber_at)
        self.windows = Windows(self.graph)

    def stair(self, streams: Iterable[int], by: int, complete: bool = False) -> Stair:
        """Make a STAIR."""
        store = StairStore(self.driver.modules)
        store.routes = compile_promotion(streams, by, self.graph)
        found = store.add(streams, by, complete)
        self.stairs.append(found)
        return found

    def push(self, rows: Sequence[Row], one_by_one: bool = False) -> None:
        """Let rows arrive in one push, then insert what they completed."""
        first = [len(own) for own in self.windows.arrived]
        self.driver.push(rows)
        self.windows.take(rows)
        for stair in self.stairs:
            self.insert(stair, first, one_by_one)

    def insert(self, stair: Stair, first: Sequence[int], one_by_one: bool = False) -> None:
        """Insert the live composites over the set that have a tuple from `first` on, and look which are stored.

        One by one, newest tuples first as a walk finds them; else all of a key at once, oldest first.
        """
        new_from = [first[i] for i in stair.streams]
        for key, composites in self.windows.combinations(stair.streams, stair.by).items():
            fresh = [c for c in composites if any(n >= least for n, least in zip(c, new_from, strict=True))]
            new = [self.numbers(stair, composite) for composite in fresh]
            wanted = stair.is_attempted(kid_of(stair, key))
            if one_by_one:
                new.reverse()
                assert [stair.insert(composite) for composite in new] == [wanted] * len(new)
            elif new:
                assert stair.insert_all(np.array(new)) == wanted * len(new)

    def numbers(self, stair: Stair, composite: Composite) -> list[int]:
        """Give the sequence numbers of a composite."""
        base = self.driver.modules.streams[:, S_BASE]
        return [n - int(base[i]) for i, n in zip(stair.streams, composite, strict=True)]

    def check(self) -> None:
        """Assert that every key of every STAIR has exactly its combinations, or nothing; and all invariants."""
        self.driver.modules.check()
        for stair in self.stairs:
            stair.check()
            combinations = self.windows.combinations(stair.streams, stair.by)
            total, missing = 0, []
            for kid, key in key_ids(self.driver.modules, stair.by).items():
                found = [tuple(composite) for composite in stair.probe(kid, arrivals=True).tolist()]
                wanted = combinations.pop(key, [])
                if stair.is_attempted(kid):
                    assert sorted(found) == sorted(wanted), (stair.what, key)
                    total += len(wanted)
                else:
                    assert found == [], (stair.what, key)
                    missing += wanted
            assert not combinations  # every live key has an id
            assert stair.rows == total
            if stair.complete:
                assert not missing
            stair.check()  # after the probes unlinked what was dead


def kid_of(stair: Stair, key: Key) -> int:
    """Give the key id of a key in the class of a STAIR."""
    return {known: kid for kid, known in key_ids(stair.modules, stair.by).items()}[key]
