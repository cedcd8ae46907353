"""Queries over different join graphs share their SteMs: each has the results of its own runtime, and of a nested loop.

A case draws streams with null and string keys, queries over random connected graphs (trees and cycles, keys of several
columns, RANGE and ROWS windows), and what happens to them between pushes: starts, fresh and warm, stops, and changes of
plan. The nested loop knows nothing of windows but their definition.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddy
from eddy.queries import sharing
from eddy.routing.pace import Pace
from jisc.plan.orders import random_order
from jisc.plan.tree import left_deep
from stairs.errors import InputError

SCHEMA = pa.schema(
    [("a", pa.int64()), ("b", pa.int32()), ("c", pa.int64()), ("s", pa.string()), ("t", pa.int64()), ("x", pa.int64())]
)
NAMES = "ABCDE"
NUMBERS, TEXTS = ("a", "b", "c"), ("s",)
Row = dict[str, Any]
End = tuple[str, str]


@dataclass
class SharingQuery:
    """A query of a case, and when it runs.

    windows  stream -> a span of time, or minus a number of rows
    on       pairs of (stream, column) that are equal
    least    the least x of the rows of a stream, by stream
    start, end   positions; warm: the start uses earlier rows
    """

    windows: dict[str, int]
    on: list[tuple[End, End]]
    least: dict[str, int] = field(default_factory=dict)
    start: int = 0
    end: int = 1 << 30
    warm: bool = False
    early: bool = True

    def query(self, lateness: int = 0) -> eddy.Query:
        streams = [
            eddy.Stream(
                name,
                SCHEMA,
                window=eddy.Range(size) if size >= 0 else eddy.Rows(-size),
                time="t",
                filter=self._filter(name),
            )
            for name, size in self.windows.items()
        ]
        on = [f"{stream}.{column} = {other}.{other_column}" for (stream, column), (other, other_column) in self.on]
        ranged = any(size >= 0 for size in self.windows.values())
        select = {name: f"{name}.x" for name in self.windows}
        return eddy.Query(streams, on, select=select, lateness=lateness if ranged else 0)

    def _filter(self, name: str) -> pc.Expression | None:
        if name not in self.least:
            return None
        least = pc.field("x") >= self.least[name]
        return least if self.early else least | least

    def passing(self, name: str, rows: list[Row]) -> list[Row]:
        """Return the rows that pass the filter of a stream."""
        return [row for row in rows if row["stream"] == name and row["x"] >= self.least.get(name, 0)]

    def results(self, rows: list[Row]) -> list[tuple[int, ...]]:
        """Return its results by a nested loop over all rows; x is the position of a row."""
        names = list(self.windows)
        passing = {name: self.passing(name, rows) for name in names}
        places = {name: [row["x"] for row in kept] for name, kept in passing.items()}
        met: list[list[tuple[End, End]]] = [[] for _ in names]
        for end, other in self.on:
            met[max(names.index(end[0]), names.index(other[0]))].append((end, other))
        begin = 0 if self.warm else self.start
        results = []

        def extend(parts: dict[str, Row]) -> Iterator[dict[str, Row]]:
            if len(parts) == len(names):
                yield parts
                return
            name = names[len(parts)]
            for row in passing[name]:
                if row["x"] < begin:
                    continue
                more = {**parts, name: row}
                ends = [((more[i], k), (more[j], m)) for (i, k), (j, m) in met[len(parts)]]
                if all(first[k] is not None and first[k] == two[m] for (first, k), (two, m) in ends):
                    yield from extend(more)

        for parts in extend({}):
            last, newest = max(row["x"] for row in parts.values()), max(row["t"] for row in parts.values())
            if self.start <= last < self.end and all(
                newest - row["t"] <= self.windows[name]
                if self.windows[name] >= 0
                else bisect_right(places[name], last) - bisect_right(places[name], row["x"]) < -self.windows[name]
                for name, row in parts.items()
            ):
                results.append(tuple(parts[name]["x"] for name in names))
        return sorted(results)


def drawn(chance: random.Random, filters: bool = True) -> SharingQuery:
    """Return a random connected query."""
    names = chance.sample(NAMES, chance.choice((2, 2, 3, 3, 4)))
    on = []
    for k in range(1, len(names) + (chance.random() < 0.4)):
        stream, other = (
            names[chance.randrange(k) if k < len(names) else 0],
            names[k % len(names) if k < len(names) else 1],
        )
        columns = NUMBERS if chance.random() < 0.75 else TEXTS
        on.append(((stream, chance.choice(columns)), (other, chance.choice(columns))))
    sizes = {"range": (6, 15, 40), "rows": (-3, -8, -20)}
    kinds = chance.choice((("range",), ("rows",), ("range", "rows")))
    windows = {name: chance.choice(sizes[chance.choice(kinds)]) for name in names}
    least = {name: 5 for name in names if filters and chance.random() < 0.2}
    return SharingQuery(windows, on, least, early=chance.random() < 0.3)


class SharingCase:
    """An engine, its queries, and all rows that arrived."""

    def __init__(self, seed: int, lateness: int = 0, **options: Any) -> None:
        self.chance = random.Random(seed)
        self.lateness = lateness
        streams = [eddy.Stream(name, SCHEMA, time="t", window=eddy.Rows(10_000)) for name in NAMES]
        self.engine = eddy.Engine(streams, lateness=lateness, **options)
        self.asked: dict[str, SharingQuery] = {}
        self.rows: list[Row] = []
        self.answers: dict[str, list[tuple[int, ...]]] = {}
        self.pushes: list[int] = [0]
        self.keys = self.chance.choice((2, 4, 7))
        self.has_shared = False

    def start(self, asked: SharingQuery) -> None:
        name = f"q{len(self.asked)}"
        asked.start, asked.warm = self.engine.position, self.chance.random() < 0.4
        self.asked[name] = asked
        self.engine.start(name, asked.query(), warm=asked.warm)

    def stop(self) -> None:
        running = [name for name, asked in self.asked.items() if asked.end > len(self.rows)]
        if len(running) > 2:
            name = self.chance.choice(running)
            self.engine[name].stop()
            self.asked[name].end = self.engine.position

    def row(self, stream: str, x: int) -> Row:
        chance = self.chance

        def key(kind: Any) -> Any:
            return None if chance.random() < 0.1 else kind(chance.randrange(self.keys))

        late = chance.randrange(self.lateness + 1)
        columns = {"a": key(int), "b": key(int), "c": key(int), "s": key(str), "t": x // 2 + self.lateness - late}
        return {"stream": stream, **columns, "x": x}

    def push(self, count: int) -> None:
        rows = [self.row(self.chance.choice(NAMES), x) for x in range(len(self.rows), len(self.rows) + count)]
        results = self.engine.push(*pushed(rows))
        self.has_shared |= self.pool is not None
        self.rows += rows
        self.pushes.append(len(self.rows))
        for name, table in results.items():
            self.answers.setdefault(name, []).extend(tuple(row.values()) for row in table.to_pylist())

    @property
    def pool(self) -> sharing.StemPool | None:
        return self.engine.joins.sharing.pool

    def change_plans(self) -> None:
        """Change the plans of some shared joins."""
        for join in [] if self.pool is None else self.pool.joins.values():
            if self.chance.random() < 0.5:
                order = random_order(join.strategy.masks, np.random.default_rng(self.chance.randrange(1 << 30)))
                join.strategy.change(left_deep(tuple(order)))

    def check(self) -> None:
        for name, asked in self.asked.items():
            results = self.answers.get(name, [])
            assert sorted(results) == asked.results(self.rows), (name, asked)
            assert [max(positions) for positions in results] == sorted(max(positions) for positions in results)
            assert sorted(results) == self.alone(asked), (name, asked)

    def alone(self, asked: SharingQuery) -> list[tuple[int, ...]]:
        """Return the results of the query in a runtime of its own."""
        runtime = eddy.Runtime(asked.query(self.lateness))
        names, results = list(asked.windows), []
        cuts = sorted({*self.pushes, asked.start, min(asked.end, len(self.rows))})
        for first, end in pairwise(cuts):
            if asked.end <= first or (first < asked.start and not asked.warm):
                continue
            rows = [row for row in self.rows[first:end] if row["stream"] in names]
            batches, order = pushed(rows, names)
            table = runtime.push(batches, order)
            results += [tuple(row.values()) for row in table.to_pylist() if first >= asked.start]
        return sorted(results)


def pushed(rows: list[Row], names: Any = NAMES) -> tuple[dict[str, pa.RecordBatch], list[int]]:
    """Return rows as the arguments of a push."""
    batches = {
        name: pa.RecordBatch.from_pylist([row for row in rows if row["stream"] == name], schema=SCHEMA)
        for name in names
    }
    return batches, [list(names).index(row["stream"]) for row in rows]


def played(case: SharingCase, steps: int) -> SharingCase:
    """Play random steps, and check the shared SteMs after each.

    With a lateness there are no filters: windows of filtered rows start warm in the order of the times.
    """
    for _ in range(3):
        case.start(drawn(case.chance, filters=False))
    for _ in range(steps):
        case.push(case.chance.choice((1, 3, 12, 25)))
        if case.pool is not None:
            case.pool.check()
        what = case.chance.random()
        if what < 0.4 and len(case.asked) < 9:
            case.start(drawn(case.chance, not case.lateness))
        elif what < 0.6:
            case.stop()
        elif what < 0.8:
            case.change_plans()
    return case


@pytest.mark.campaign(14)
@pytest.mark.parametrize("seed", range(40))
def test_queries_over_random_graphs_start_and_stop(seed: int) -> None:
    case = played(SharingCase(seed), 9)
    assert case.has_shared
    case.check()


@pytest.mark.parametrize("seed", range(10))
def test_rows_out_of_order_within_the_lateness(seed: int) -> None:
    played(SharingCase(seed, lateness=4), 8).check()


@pytest.mark.campaign(15)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("policy", ["bandit", "lottery", "cost"])
def test_policies_change_plans_within_pushes(seed: int, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "look_due", True)
    monkeypatch.setattr(Pace, "decision_due", True)
    monkeypatch.setattr("stairs.shared.CHUNK", 8)
    case = played(SharingCase(seed, policy=policy), 8)
    case.check()
    assert case.has_shared


@pytest.mark.campaign(1)
@pytest.mark.parametrize("seed", range(8))
def test_sequence_numbers_are_renumbered(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "StemPool", partial(sharing.StemPool, renumber_at=40))
    case = SharingCase(seed)
    for _ in range(3):
        case.start(drawn(case.chance))
    for _ in range(12):
        case.push(20)
        if case.pool is not None:
            case.pool.check()
            assert max(stream[3] for stream in case.pool.stems.streams.tolist()) < 200
    case.check()


@pytest.mark.parametrize("seed", range(6))
def test_one_strategy_without_choices(seed: int) -> None:
    played(SharingCase(seed, strategy="mjoin"), 6).check()


class Stubborn:
    """A policy that fails at one decision of three."""

    name = "stubborn"

    def __init__(self) -> None:
        self.asked = 0

    def decide(self, view: Any) -> None:
        self.asked += 1
        if self.asked % 3 == 1:
            raise InputError("no")


def test_a_push_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "look_due", True)
    monkeypatch.setattr(Pace, "decision_due", True)
    case = SharingCase(5, policy=Stubborn())
    equal = [(("A", "a"), ("B", "b"))], [(("A", "s"), ("B", "s")), (("B", "b"), ("C", "c"))]
    for on in equal:
        case.start(SharingQuery(dict.fromkeys("ABC"[: len(on) + 1], 30), on))
    failed = 0
    for _ in range(30):
        state = case.chance.getstate(), len(case.rows)
        try:
            case.push(10)
        except InputError:
            failed += 1
            case.chance.setstate(state[0])
            assert case.engine.position == state[1]
            case.engine.check()
    assert failed
    assert len(case.rows) > 100
    case.check()


# What is shared


def wide(on: str, *names: str) -> eddy.Query:
    return eddy.Query([eddy.Stream(name, SCHEMA, window=eddy.Range(100), time="t") for name in names], [on])


def test_joins_that_read_a_stream_in_common_share_and_others_do_not() -> None:
    case = SharingCase(1)
    case.engine.start("alone", wide("D.a = E.a", "D", "E"))
    case.push(5)
    assert case.engine.metrics()["shared_bytes"] == 0
    case.engine.start("one", wide("A.a = B.b", "A", "B"))
    case.engine.start("other", wide("B.a = C.c", "B", "C"))
    case.push(5)
    metrics = case.engine.metrics()
    assert [join["shared"] for join in metrics["joins"]] == [False, True, True]
    assert [join["bytes"] > 0 for join in metrics["joins"]] == [True, False, False]
    assert metrics["shared_bytes"] > 0
    assert case.pool is not None
    assert case.pool.names == ["A", "B", "C"]
    for name in ("one", "other"):
        case.engine[name].stop()
    case.push(1)
    case.push(1)
    assert case.engine.metrics()["shared_bytes"] == 0


def test_attributes_that_are_equal_in_some_query_have_one_directory() -> None:
    case = SharingCase(2)
    case.engine.start("one", wide("A.a = B.b", "A", "B"))
    case.engine.start("other", wide("B.b = C.c", "B", "C"))
    case.engine.start("text", wide("A.s = C.s", "A", "C"))
    case.engine.start("third", wide("C.a = A.a", "A", "C"))
    case.push(5)
    assert case.pool is not None
    assert case.pool.stems.graph.attributes == ((0, 1), (0,), (0, 0, 1))


def test_a_fresh_start_on_known_attributes_makes_nothing_anew() -> None:
    case = SharingCase(3)
    case.engine.start("one", wide("A.a = B.a", "A", "B"))
    case.engine.start("other", wide("B.a = C.a", "B", "C"))
    case.push(20)
    pool = case.pool
    case.engine.start("third", wide("A.a = C.a", "A", "C"))
    case.push(20)
    assert case.pool is pool
    case.engine.start("fourth", wide("A.a = C.b", "A", "C"))
    case.push(20)
    assert case.pool is not pool


def test_known_attributes_in_different_directories_are_not_enough() -> None:
    case = SharingCase(3)
    case.start(SharingQuery({"A": 30, "B": 30}, [(("A", "a"), ("B", "a"))]))
    case.start(SharingQuery({"B": 30, "C": 30}, [(("B", "b"), ("C", "b"))]))
    case.push(20)
    pool = case.pool
    case.start(SharingQuery({"A": 30, "C": 30}, [(("A", "a"), ("C", "b"))]))
    case.push(20)
    assert case.pool is not pool
    case.check()


def test_a_wider_window_of_a_shared_join_sees_earlier_rows() -> None:
    case, on = SharingCase(6), [(("A", "a"), ("B", "a"))]
    case.start(SharingQuery({"A": 4, "B": 4}, on))
    case.start(SharingQuery({"B": 9, "C": -6}, [(("B", "a"), ("C", "a"))]))
    case.push(40)
    case.chance.random = lambda: 0.3  # type: ignore[method-assign]  # a warm start; rows without nulls
    case.start(SharingQuery({"A": 30, "B": 20}, on))
    case.push(30)
    assert len(case.engine.metrics()["joins"]) == 2
    assert case.asked["q2"].warm
    case.check()


def test_a_join_that_keeps_rows_out_shares_once_a_version_asks_for_all_rows() -> None:
    case, on = SharingCase(7), [(("A", "a"), ("B", "a"))]
    case.start(SharingQuery({"A": 20, "B": 20}, on, {"A": 5}))
    case.start(SharingQuery({"B": 9, "C": -6}, [(("B", "a"), ("C", "a"))]))
    case.push(40)
    assert case.pool is None
    case.start(SharingQuery({"A": 20, "B": 20}, on))
    case.push(30)
    assert case.pool is not None
    case.check()


def test_plans_of_shared_joins_can_be_read_and_changed_before_and_after_the_first_push() -> None:
    case, names = SharingCase(8, policy="fixed"), "ABC"
    for columns in ("aa", "ab"):
        on = [((name, columns[0]), (other, columns[1])) for name, other in pairwise(names)]
        case.start(SharingQuery(dict.fromkeys(names, 20), on))
    assert case.engine["q0"].plan == case.engine.metrics()["joins"][0]["plan"] == "(A B) C"
    case.engine["q0"].transition("(B C) A")
    case.push(20)
    assert case.engine["q0"].plan == "(B C) A"
    case.engine["q1"].transition("(B C) A")
    case.push(20)
    case.start(SharingQuery({"C": 20, "D": 20}, [(("C", "s"), ("D", "s"))]))
    case.push(20)
    assert case.engine["q1"].plan == "(B C) A"
    case.check()


def test_comparisons_filtered_rows_and_storing_strategies_do_not_share() -> None:
    case = SharingCase(4)
    case.engine.start("one", wide("A.a = B.a", "A", "B"))
    case.engine.start("compared", wide("A.a = B.a AND A.x < B.x", "A", "B"))
    rows = [eddy.Stream(name, SCHEMA, window=eddy.Rows(5), time="t", filter=pc.field("x") > 1) for name in "AB"]
    case.engine.start("counted", eddy.Query(rows, ["A.a = B.a"]))
    case.start(SharingQuery({"A": 9, "B": 9}, [(("A", "c"), ("B", "c"))], {"A": 3}))
    case.push(5)
    assert not any(join["shared"] for join in case.engine.metrics()["joins"])
    for options in ({"share": False}, {"strategy": "jisc"}):
        other = SharingCase(4, **options)
        other.engine.start("one", wide("A.a = B.a", "A", "B"))
        other.engine.start("two", wide("A.a = B.b", "A", "B"))
        other.push(5)
        assert not any(join["shared"] for join in other.engine.metrics()["joins"])
