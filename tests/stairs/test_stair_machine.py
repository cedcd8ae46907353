"""STAIRs under arrivals and operations in any order; each step is compared with a nested loop over the arrivals."""

from __future__ import annotations

from itertools import combinations as subsets

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stairs.descriptors import LOADING, M_MODE, STORED
from stairs.entry_ring import FIRST_ROOM
from stairs.graph import Window, WindowKind
from stairs.stair import Stair
from tests.stairs.driver import DriverRow, Key, TimedGraph
from tests.stairs.promotion import hops_over
from tests.stairs.stair_model import StemPair, is_attempted, kid_of, promote


@st.composite
def graphs(draw: st.DrawFn) -> TimedGraph:
    """Draw a small join with windows: chain, star, cycle or clique, with one class per edge or a few for all."""
    n = draw(st.integers(2, 4))
    shape = draw(st.sampled_from(("chain", "star", "cycle", "clique")))
    edges = {
        "chain": [(k, k + 1) for k in range(n - 1)],
        "star": [(0, k) for k in range(1, n)],
        "cycle": [(k, (k + 1) % n) for k in range(n)] if n > 2 else [(0, 1)],
        "clique": list(subsets(range(n), 2)),
    }[shape]
    # Edges that share a class make all their streams equal on it.
    classes = draw(st.sampled_from((len(edges), 1, 2)))
    attributes: list[set[int]] = [set() for _ in range(n)]
    for k, (i, j) in enumerate(edges):
        attributes[i].add(k % classes)
        attributes[j].add(k % classes)
    used = sorted(set().union(*attributes))
    renumbered = tuple(tuple(sorted(used.index(c) for c in class_set)) for class_set in attributes)
    kinds = draw(st.lists(st.sampled_from(list(WindowKind)), min_size=n, max_size=n))
    if draw(st.booleans()):
        kinds = [kinds[0]] * n
    windows = tuple(Window(kind, 0 if kind == WindowKind.UNBOUNDED else draw(st.integers(1, 6))) for kind in kinds)
    timed = WindowKind.RANGE in kinds
    lateness = draw(st.sampled_from((0, 0, 3))) if timed else 0
    return TimedGraph(tuple("RSTU"[:n]), windows, renumbered, (1,) * len(used), timed=timed, lateness=lateness)


class StairMachine(RuleBasedStateMachine):
    """Arrivals, and every operation of STAIRs, in any order."""

    @initialize(
        graph=graphs(),
        renumber_at=st.sampled_from((None, None, 150)),
        dead=st.sampled_from((0, 70)),
        drift=st.sampled_from((0, 0, 1)),
        picks=st.tuples(st.integers(0, 255), st.integers(0, 255)),
    )
    def begin(self, graph: TimedGraph, renumber_at: int | None, dead: int, drift: int, picks: tuple[int, int]) -> None:
        self.graph, self.drift, self.clock = graph, drift, 0
        self.pair = StemPair(graph, renumber_at)
        self.identities = [
            (streams, by)
            for size in range(2, graph.n_streams + 1)
            for streams in subsets(range(graph.n_streams), size)
            for by in {c for i in streams for c in graph.attributes[i]}
            if self._connected(streams, by)
        ]
        self.marks: dict[Stair, dict[Key, bool]] = {}
        """For each key that stayed live: whether it should be attempted."""
        for complete, pick in enumerate(picks):
            self.make_stair(pick, bool(complete))
        # Dead rows, so that sequence numbers are large enough to be renumbered while composites are live.
        self.pair.push([DriverRow(i, None) for i in range(graph.n_streams) for _ in range(dead)])
        self.clock = 12

    def _connected(self, streams: tuple[int, ...], by: int) -> bool:
        try:
            hops_over(streams, {by}, self.graph)
        except ValueError:
            return False
        return True

    def _rows(self, picks: bytes) -> list[DriverRow]:
        """Return a row for each six bytes; few keys are frequent, and with a drift every key dies in the end."""
        rows = []
        for k in range(0, len(picks) - 5, 6):
            chunk = picks[k : k + 6]
            i = chunk[0] % self.graph.n_streams
            values = [(0, 0, 0, 0, 1, 2)[pick % 6] + self.drift * self.clock // 4 for pick in chunk[1:]]
            self.clock += chunk[1] % 2
            time = max(self.clock - chunk[2] % 4, self.pair.windows.newest - self.graph.lateness)
            keys = None if chunk[5] % 11 == 10 else tuple((values[c % 5],) for c in self.graph.attributes[i])
            rows.append(DriverRow(i, keys, time))
        return rows

    def _stair(self, pick: int) -> Stair:
        return self.pair.stairs[pick % len(self.pair.stairs)]

    def _key(self, stair: Stair, pick: int) -> Key | None:
        keys = sorted(self.pair.windows.live_keys(stair.by))
        return keys[pick * pick // 256 * len(keys) // 256] if keys else None

    def _refresh(self) -> None:
        for stair, marks in self.marks.items():
            live = self.pair.windows.live_keys(stair.by)
            for key in set(marks) - live:
                del marks[key]
            for key in live - set(marks):
                marks[key] = is_attempted(stair, kid_of(stair, key))

    @rule(pick=st.integers(0, 255), complete=st.booleans())
    def make_stair(self, pick: int, complete: bool) -> None:
        streams, by = self.identities[pick % len(self.identities)]
        empty = any(not self.pair.driver.modules.rows(i) for i in streams)
        if len(self.pair.stairs) == 2:
            oldest = self.pair.stairs[0]
            self.marks.pop(oldest, None)
            self.pair.drop(oldest)
        stair = self.pair.stair(streams, by, complete and empty)
        for _ in range(0 if complete else pick):
            stair.forget()  # so that entry numbers are large enough to be renumbered
        self.marks[stair] = dict.fromkeys(self.pair.windows.live_keys(by), complete and empty)

    @rule(picks=st.binary(min_size=6, max_size=60), one_by_one=st.booleans())
    def push(self, picks: bytes, one_by_one: bool) -> None:
        self.pair.push(self._rows(picks), one_by_one)

    @rule(picks=st.binary(min_size=6, max_size=6))
    def push_one(self, picks: bytes) -> None:
        self.pair.push(self._rows(picks))

    @rule(picks=st.binary(min_size=12, max_size=24), storing=st.booleans(), often=st.integers(0, 3))
    def fail(self, picks: bytes, storing: bool, often: int) -> None:
        """Undo a push, perhaps after it stored composites; most pushes are not undone."""
        if often:
            self.pair.push(self._rows(picks))
            return
        clock, modules = self.clock, self.pair.driver.modules
        modules.meta[M_MODE] = STORED if storing else LOADING
        self.pair.driver.walk(self._rows(picks))
        modules.undo()
        modules.meta[M_MODE] = STORED
        self.clock = clock
        self._forgotten(*self.pair.stairs)

    def _forgotten(self, *stairs: Stair) -> None:
        for stair in stairs:
            assert stair.rows == 0
            self.marks[stair] = dict.fromkeys(self.pair.windows.live_keys(stair.by), False)

    @rule(pick=st.integers(0, 255), which=st.integers(0, 255))
    def promote(self, pick: int, which: int) -> None:
        stair = self._stair(which)
        if (key := self._key(stair, pick)) is not None:
            kid = kid_of(stair, key)
            wanted = self.pair.windows.combinations(stair.streams, stair.by).get(key, [])
            assert promote(stair, kid) == (0 if self.marks[stair][key] else len(wanted))
            self.marks[stair][key] = True

    @rule(pick=st.integers(0, 255), which=st.integers(0, 255))
    def demote(self, pick: int, which: int) -> None:
        stair = self._stair(which)
        if (key := self._key(stair, pick)) is not None:
            kid = kid_of(stair, key)
            wanted = self.pair.windows.combinations(stair.streams, stair.by).get(key, [])
            assert stair.demote(kid) == (len(wanted) if self.marks[stair][key] else 0)
            self.marks[stair][key] = False

    @rule(which=st.integers(0, 255), promoted=st.integers(0, 1))
    def promote_all_and_settle(self, which: int, promoted: int) -> None:
        stair = self._stair(which)
        for key in self.pair.windows.live_keys(stair.by) if promoted else ():
            promote(stair, kid_of(stair, key))
            self.marks[stair][key] = True
        combinations = self.pair.windows.combinations(stair.streams, stair.by)
        settled = stair.settle()
        for key, before in self.marks[stair].items():
            # `settle` may have marked a key without a combination.
            self.marks[stair][key] = is_attempted(stair, kid_of(stair, key))
            assert self.marks[stair][key] == before or (not before and not combinations.get(key))
        assert settled or not promoted
        if settled:
            assert stair.complete
            self.marks[stair] = dict.fromkeys(self.pair.windows.live_keys(stair.by), True)

    @rule(which=st.integers(0, 255), often=st.integers(0, 3))
    def forget(self, which: int, often: int) -> None:
        stair = self._stair(which)
        if not often:
            stair.forget()
            self._forgotten(stair)

    @rule(trim=st.booleans(), entries=st.booleans(), tuples=st.booleans())
    def keep_house(self, trim: bool, entries: bool, tuples: bool) -> None:
        for stair in self.pair.stairs:
            if trim:
                stair.make_room(0)
                assert stair.capacity <= max(FIRST_ROOM, 4 * stair.rows)
            if entries:
                stair._renumber_entries()
        if tuples:
            self.pair.driver.modules.renumber()

    @invariant()
    def all_is_well(self) -> None:
        if hasattr(self, "pair"):
            self._refresh()
            for stair, marks in self.marks.items():
                for key, mark in marks.items():
                    assert is_attempted(stair, kid_of(stair, key)) == mark, (stair.what, key)
            self.pair.check()


TestStair = StairMachine.TestCase
TestStair.settings = settings(stateful_step_count=30)
