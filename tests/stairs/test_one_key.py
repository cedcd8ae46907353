"""The kernel of joins on one shared key: results, their order and all counters, compared with a model."""

from __future__ import annotations

import itertools
import random
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import stairs.memory.scratch
import stairs.stems
from jisc.plan.tree import default_plan, parse
from stairs.descriptors import (
    H_TARGET,
    LOADING,
    M_CHANGELOG,
    M_MODE,
    R_END,
    R_LEAF,
    ROUTED,
    S_WALKED,
    V_MATCHES,
    V_PROBES,
)
from stairs.errors import CapacityError
from stairs.graph import JoinGraph, Window, WindowKind
from stairs.kernels.one_key import is_large, push_one_key
from stairs.modules import Modules
from tests.stairs.driver import DriverRow, PlanDriver, Result, chain, live_parts, one_class, range_window, rows_window
from tests.stairs.steps import callable_step

LATE = 9
UNBOUNDED = Window(WindowKind.UNBOUNDED)


class PlainJoin:
    """The join, tuple by tuple: results in the order of the hops, newest first, and the counters."""

    def __init__(self, driver: PlanDriver) -> None:
        self.windows = driver.graph.windows
        self.spans = [w.size if w.kind == WindowKind.RANGE else 1 << 40 for w in self.windows]
        m = driver.graph.n_streams
        spans, hops = driver.routes.span, driver.routes.hops
        self.hops = [list(range(spans[i, R_LEAF], spans[i, R_END])) for i in range(m)]
        self.targets = [int(hop[H_TARGET]) for hop in hops]
        self.arrived: list[list[DriverRow]] = [[] for _ in range(m)]
        self.of_key: list[dict[Any, list[int]]] = [{} for _ in range(m)]
        self.walked = [0] * m
        self.probes, self.matches = [0] * len(hops), [0] * len(hops)

    def partners(self, j: int, row: DriverRow) -> list[int]:
        window, arrived = self.windows[j], self.arrived[j]
        first = max(len(arrived) - window.size, 0) if window.kind == WindowKind.ROWS else 0
        return [
            s
            for s in reversed(self.of_key[j].get(row.keys, []))
            if s >= first and (window.kind != WindowKind.RANGE or arrived[s].time >= row.time - window.size)
        ]

    def arrive(self, row: DriverRow) -> list[Result]:
        i, results = row.stream, []
        if row.keys is not None:
            lists = [self.partners(self.targets[h], row) for h in self.hops[i]]
            if all(lists):
                self.walked[i] += 1
                for h, partners in zip(self.hops[i], lists, strict=True):
                    self.probes[h] += 1
                    self.matches[h] += len(partners)
                for chosen in itertools.product(*lists):
                    at = dict(zip((self.targets[h] for h in self.hops[i]), chosen, strict=True))
                    times = {j: self.arrived[j][s].time for j, s in at.items()} | {i: row.time}
                    at[i], newest = len(self.arrived[i]), max(times.values())
                    if all(newest - time <= self.spans[j] for j, time in times.items()):
                        results.append(tuple(at[j] for j in range(len(self.windows))))
        self.of_key[i].setdefault(row.keys, []).append(len(self.arrived[i]))
        self.arrived[i].append(row)
        return results

    def push(self, rows: list[DriverRow]) -> list[Result]:
        return [result for row in rows for result in self.arrive(row)]

    def compare_counters(self, driver: PlanDriver) -> None:
        assert driver.modules.streams[:, S_WALKED].tolist() == self.walked
        assert driver.routes.counts[V_PROBES].tolist() == self.probes
        assert driver.routes.counts[V_MATCHES].tolist() == self.matches


CASES = {
    "rows": [rows_window(7), rows_window(4), rows_window(9)],
    "times": [range_window(8), range_window(15), range_window(3)],
    "rows, times, all": [rows_window(6), range_window(12), UNBOUNDED],
    "two": [rows_window(1), rows_window(12)],
    "six": [rows_window(6)] * 6,
}
LONG = [range_window(220), range_window(500), range_window(150)]
"""Windows that are longer than a block of arrivals, so that the marks of event times decide (`one_key_times`)."""


@pytest.fixture(autouse=True, scope="module", params=[1 << 20, 2], ids=["heads", "words"])
def many(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let joins of few streams keep presence words too, or none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stairs.stems, "MANY", request.param)
        yield


def arrivals(m: int, count: int, kinds: int, seed: int, late: int = 0) -> list[DriverRow]:
    rng = random.Random(seed)
    times = [time - rng.randint(0, late) for time in sorted(rng.randrange(count) for _ in range(count))]
    return [
        DriverRow(rng.randrange(m), None if rng.random() < 0.08 else ((rng.randrange(kinds),),), time) for time in times
    ]


@pytest.mark.parametrize("size", [1, 9, 300])
@pytest.mark.parametrize("case", CASES)
def test_results_order_and_counters_are_those_of_the_model(case: str, size: int) -> None:
    compare(one_class(CASES[case]), arrivals(len(CASES[case]), 300, 3, seed=4), size)


def compare(graph: JoinGraph, rows: list[DriverRow], size: int, least: int = 100) -> int:
    """Push rows, `size` at a time, compare with the model, and return the number of results."""
    driver, count = PlanDriver(graph), 0
    assert driver.modules.kernel is push_one_key
    model = PlainJoin(driver)
    for at in range(0, len(rows), size):
        expected = model.push(rows[at : at + size])
        assert driver.push(rows[at : at + size]) == expected
        count += len(expected)
        model.compare_counters(driver)
        driver.modules.check()
    assert count >= least
    return count


def test_another_plan_gives_its_own_order() -> None:
    graph = one_class(CASES["rows"])
    orders = []
    for plan in (default_plan(graph), parse("T S R", graph.names)):
        driver = PlanDriver(graph, plan=plan)
        model = PlainJoin(driver)
        rows = arrivals(3, 200, 2, seed=1)
        orders.append(driver.push(rows))
        assert orders[-1] == model.push(rows)
    assert orders[0] != orders[1]
    assert Counter(orders[0]) == Counter(orders[1])


def test_room_that_runs_short_changes_neither_order_nor_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stairs.memory.scratch, "FIRST_RESULTS", 1)
    driver = PlanDriver(one_class([rows_window(40)] * 3))
    model = PlainJoin(driver)
    rows = arrivals(3, 120, 2, seed=2)
    short = 0
    for turn, row in enumerate(rows):
        # Rooms of several sizes, most of them too small.
        driver.modules.scratch.walk = driver.modules.walk._replace(ids=np.empty(turn % 20, np.int32))
        assert driver.push([row]) == model.push([row])
        short += len(driver.modules.walk.ids) > turn % 20
    assert short > 50
    model.compare_counters(driver)


@pytest.mark.parametrize("count_only", [False, True])
def test_more_results_than_can_be_are_refused_and_taken_back(count_only: bool) -> None:
    m = 6
    driver = PlanDriver(one_class([rows_window(1000)] * m))
    model = PlainJoin(driver)
    rows = [DriverRow(i, ((1,),)) for i in range(m - 1) for _ in range(900)]
    driver.push(rows)
    before = live_parts(driver.modules)
    with pytest.raises(CapacityError, match="2\\^48"):
        driver.walk([DriverRow(m - 1, ((1,),))], count_only)
    assert live_parts(driver.modules) == before
    driver.modules.check()
    model.push(rows)
    lone_row = [DriverRow(m - 1, ((2,),))]
    assert driver.push(lone_row) == model.push(lone_row) == []


def test_counting_gives_as_many_as_there_are() -> None:
    driver, model = PlanDriver(one_class(CASES["rows"])), PlainJoin(PlanDriver(one_class(CASES["rows"])))
    rows = arrivals(3, 300, 3, seed=8)
    assert len(driver.walk(rows, count_only=True)) == len(model.push(rows))
    driver.modules.commit()


def test_loading_only_inserts() -> None:
    driver = PlanDriver(one_class(CASES["rows"]))
    model = PlainJoin(driver)
    rows = arrivals(3, 60, 3, seed=3)
    driver.modules.meta[M_MODE] = LOADING
    assert driver.push(rows[:50]) == []
    driver.modules.meta[M_MODE] = 0
    model.push(rows[:50])
    assert driver.push(rows[50:]) == model.push(rows[50:]) != []


def test_large_states_are_prefetched_and_give_the_same() -> None:
    """The state exceeds a core's own cache; with 100 streams a head row is so wide that few keys suffice."""
    m = 100
    graph = JoinGraph(tuple(f"s{i}" for i in range(m)), (rows_window(6_000),) * m, ((0,),) * m, (1,))
    driver = PlanDriver(graph)
    others = [DriverRow(0, ((k,),)) for k in range(10, 3_000)]
    is_large_arena = callable_step(is_large)
    assert not is_large_arena(driver.modules.arena)
    driver.push(others)
    assert is_large_arena(driver.modules.arena)
    kinds: dict[int, deque[int]] = {}
    rng = random.Random(5)
    rows = [DriverRow(i, ((k,),)) for k in (1, 2, 3) for i in range(m)] + [DriverRow(0, None), DriverRow(7, None)]
    rng.shuffle(rows)
    rows += [DriverRow(rng.randrange(m), ((4 + rng.randrange(2),),)) for _ in range(20)]
    # Each of the three keys occurs once in each stream, so each has one result.
    following, expected = [len(others)] + [0] * (m - 1), []
    for row in rows:
        s = following[row.stream]
        following[row.stream] += 1
        if row.keys is not None and row.keys[0][0] <= 3:
            mine = kinds.setdefault(row.keys[0][0], deque())
            mine.append(row.stream * 100_000 + s)
            if len(mine) == m:
                expected.append(tuple(at % 100_000 for at in sorted(mine)))
    assert driver.push(rows) == expected
    assert len(expected) == 3
    driver.modules.check()


def test_the_kernel_takes_joins_on_one_key_without_stored_states_or_a_changelog() -> None:
    graph = one_class(CASES["rows"])
    modules = Modules(graph)
    assert modules.kernel is push_one_key
    modules.meta[M_MODE] = ROUTED
    assert modules.kernel is not push_one_key
    modules.meta[M_MODE] = 0
    modules.meta[M_CHANGELOG] = 1
    assert modules.kernel is not push_one_key
    assert Modules(chain([rows_window(3)] * 3)).kernel is not push_one_key


@pytest.mark.parametrize("size", [1, 9, 300])
@pytest.mark.parametrize("case", ["times", "rows, times, all"])
def test_rows_out_of_order_give_the_results_and_counters_of_the_model(case: str, size: int) -> None:
    """Partners may be too old for each other, and the arrival too old for its partners."""
    graph = replace(one_class(CASES[case]), lateness=LATE)
    rows = arrivals(3, 300, 3, seed=4, late=LATE)
    count = compare(graph, rows, size)
    assert len(PlanDriver(graph).walk(rows, count_only=True)) == count


@pytest.mark.campaign(0)
@given(
    st.lists(st.integers(1, 500).map(range_window), min_size=1, max_size=3),
    st.lists(st.one_of(st.just(UNBOUNDED), st.integers(1, 60).map(rows_window)), max_size=1),
    st.sampled_from([0, 2, LATE, 60]),
    st.sampled_from([5, 25, 60]),
    st.sampled_from([1, 9, 70, 1000]),
    st.integers(0, 2**16),
)
@example([range_window(238)], [], LATE, 60, 9, 519)  # late arrivals beside marks
def test_event_times_decide_as_in_the_model(
    ranges: list[Window], others: list[Window], late: int, kinds: int, size: int, seed: int
) -> None:
    """Tuples before a mark are too old, tuples after another one are in time, those between them are compared."""
    graph = replace(one_class([*ranges, *others, range_window(150)]), lateness=late)
    m = graph.n_streams
    # More keys where there are more streams: else an arrival has thousands of results.
    compare(graph, arrivals(m, 400, kinds * (m - 1), seed, late), size, least=0)


@pytest.mark.parametrize("late", [0, LATE])
def test_watermarks_that_are_given_may_be_far_behind(late: int) -> None:
    """Rows may be older than earlier ones by any time, and no tuple leaves before the watermark passes."""
    driver = PlanDriver(one_class(LONG))
    model, rows = PlainJoin(driver), arrivals(3, 600, 25, seed=8, late=late)
    for at in range(0, len(rows), 100):
        pushed = rows[at : at + 100]
        later = min(row.time for row in rows[at:])
        expected = model.push(pushed)
        assert driver.push(pushed, watermark=later) == expected
        model.compare_counters(driver)
        driver.modules.check()


def test_room_that_runs_short_among_rows_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stairs.memory.scratch, "FIRST_RESULTS", 1)
    driver = PlanDriver(replace(one_class(CASES["times"]), lateness=LATE))
    model, short = PlainJoin(driver), 0
    for turn, row in enumerate(arrivals(3, 200, 2, seed=6, late=LATE)):
        driver.modules.scratch.walk = driver.modules.walk._replace(ids=np.empty(turn % 20, np.int32))
        assert driver.push([row]) == model.push([row])
        short += len(driver.modules.walk.ids) > turn % 20
    assert short > 20
    model.compare_counters(driver)


@pytest.mark.parametrize("windows", [CASES["rows"], CASES["rows, times, all"], LONG], ids=["rows", "all", "long"])
def test_room_that_runs_short_within_a_block_takes_back_the_arrivals_after_it(
    windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel has inserted a block when room runs short: heads, low marks and the watermark are as before."""
    monkeypatch.setattr(stairs.memory.scratch, "FIRST_RESULTS", 1)
    late = LATE if any(window.kind == WindowKind.RANGE for window in windows) else 0
    driver = PlanDriver(replace(one_class(windows), lateness=late))
    model, calls = PlainJoin(driver), 0
    rows = arrivals(3, 900, 30 if windows is LONG else 3, seed=9, late=late)
    push = driver.modules._push

    def counted(*args: Any) -> int:
        nonlocal calls
        calls += 1
        return push(*args)

    monkeypatch.setattr(driver.modules, "_push", counted)
    for at in range(0, len(rows), 150):
        driver.modules.scratch.walk = driver.modules.walk._replace(ids=np.empty(0, np.int32))
        assert driver.push(rows[at : at + 150]) == model.push(rows[at : at + 150])
        model.compare_counters(driver)
        driver.modules.check()
    assert calls > 30


def test_a_push_that_stops_within_a_block_goes_on_there() -> None:
    driver = PlanDriver(replace(one_class(LONG), lateness=LATE))
    model, rows = PlainJoin(driver), arrivals(3, 700, 30, seed=10, late=LATE)
    for at in range(0, len(rows), 140):
        assert driver.push(rows[at : at + 140], stops=[0, 1, 37, 37, 101]) == model.push(rows[at : at + 140])
        model.compare_counters(driver)
        driver.modules.check()
