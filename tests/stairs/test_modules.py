"""State modules, compared with a model: growth during a push, undo, renumbering, refused pushes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stairs.memory.scratch
import stairs.stems
from jisc.plan.tree import parse
from stairs.descriptors import C_CAPACITY, C_FREE, S_LO, S_NEXT
from stairs.errors import CapacityError, StateError
from stairs.graph import JoinGraph, Window, WindowKind
from stairs.key_room import power_of_two
from stairs.modules import Modules
from stairs.stems import RENUMBER_AT
from tests.stairs.driver import (
    DriverRow,
    Key,
    NestedLoop,
    PlanDriver,
    TimedGraph,
    chain,
    count_strings,
    live_parts,
    one_class,
    range_window,
    rows_window,
)

UNBOUNDED = Window(WindowKind.UNBOUNDED)


GRAPHS: dict[str, JoinGraph] = {
    "one class": one_class([rows_window(5), rows_window(9), rows_window(3)]),
    "two words": one_class([rows_window(5), rows_window(9)], width=2),
    "a string and a word": one_class([rows_window(5), UNBOUNDED], width=2, texts=(0,)),
    "chain": chain([rows_window(6), rows_window(4), rows_window(8)]),
    "chain in time": chain([range_window(9), range_window(4), range_window(6)], timed=True),
    "chain in time, late": chain([range_window(9), rows_window(4), range_window(6)], timed=True, lateness=3),
    "unbounded": chain([UNBOUNDED, UNBOUNDED]),
}


@pytest.fixture(params=GRAPHS)
def graph(request: pytest.FixtureRequest) -> TimedGraph:
    return GRAPHS[request.param]


@pytest.fixture
def small_rooms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set initial rooms so small that every push of several rows has to grow them."""
    monkeypatch.setattr(stairs.stems, "FIRST_ROOM", 1)
    monkeypatch.setattr(stairs.key_room, "FIRST_SLOTS", 4)
    monkeypatch.setattr(stairs.key_room, "FIRST_KEYS", 3)
    monkeypatch.setattr(stairs.key_room, "MANY_KEYS", 48)
    monkeypatch.setattr(stairs.memory.segments, "LEAST_RESERVED", 64)


def key_maker(graph: TimedGraph, c: int) -> Callable[[int], Key]:
    texts = graph.texts[c] if graph.texts else ()
    return lambda k: tuple(b"key %d" % k if word in texts else k * (word + 1) for word in range(graph.widths[c]))


def arrivals(graph: TimedGraph, seed: int, count: int, kinds: int, drift: int = 0, start: int = 0) -> list[DriverRow]:
    """Return seeded arrivals, some without keys; with `drift` all keys increase by one every `drift` arrivals."""
    rng = random.Random(seed)
    made = []
    for n in range(start, start + count):
        i = rng.randrange(graph.n_streams)
        low = n // drift if drift else 0
        keys = tuple(key_maker(graph, c)(low + rng.randrange(kinds)) for c in graph.attributes[i])
        made.append(DriverRow(i, None if rng.random() < 0.1 else keys, n - rng.randint(0, graph.lateness)))
    return made


def pushes(rows: list[DriverRow], size: int) -> list[list[DriverRow]]:
    return [rows[at : at + size] for at in range(0, len(rows), size)]


@pytest.mark.campaign(10)
@pytest.mark.parametrize("size", [1, 7, 200])
def test_results_are_those_of_the_model_while_rooms_grow(graph: TimedGraph, size: int, small_rooms: None) -> None:
    driver, model = PlanDriver(graph), NestedLoop(graph)
    for push in pushes(arrivals(graph, seed=5, count=200, kinds=5, drift=20), size):
        assert Counter(driver.push(push)) == Counter(model.push(push))
        driver.modules.check()


def test_growth_in_mid_push_happens(small_rooms: None) -> None:
    graph = GRAPHS["chain"]
    driver = PlanDriver(graph)
    driver.push(arrivals(graph, seed=1, count=2, kinds=4))
    before = driver.modules.capacity[:], driver.modules.classes[:, C_CAPACITY].tolist()
    # All keys are new: room for ids runs out many times within the one call.
    driver.push(arrivals(graph, seed=2, count=300, kinds=10**9))
    after = driver.modules.capacity, driver.modules.classes[:, C_CAPACITY].tolist()
    assert all(new >= 8 * old for new, old in zip(after[0], before[0], strict=True))
    assert all(new >= 16 * old for new, old in zip(after[1], before[1], strict=True))
    driver.modules.check()


def test_counting_gives_as_many(graph: TimedGraph, small_rooms: None) -> None:
    first, second = PlanDriver(graph), PlanDriver(graph)
    for push in pushes(arrivals(graph, seed=8, count=120, kinds=3), 40):
        counted = len(first.walk(push, count_only=True))
        first.modules.commit()
        assert counted == len(second.push(push))
    assert live_parts(first.modules) == live_parts(second.modules)


@pytest.mark.campaign(0)
@given(data=st.data())
def test_undo_restores_exactly(data: st.DataObject) -> None:
    graph = GRAPHS[data.draw(st.sampled_from(tuple(GRAPHS)))]
    driver, untouched, model = PlanDriver(graph), PlanDriver(graph), NestedLoop(graph)
    seed, kinds = data.draw(st.integers(0, 99)), data.draw(st.integers(1, 9))
    at = 0
    for size in data.draw(st.lists(st.integers(0, 90), min_size=1, max_size=5)):
        before = live_parts(driver.modules)
        for _ in range(data.draw(st.integers(0, 2))):
            # Some of its keys are live, some new; of two failed pushes, the second finds ids that the first freed.
            driver.walk(arrivals(graph, seed + 1, data.draw(st.integers(0, 150)), 2 * kinds, 30, at))
            driver.modules.undo()
            driver.modules.check()
            assert live_parts(driver.modules) == before
        push = arrivals(graph, seed, size, kinds, 30, at)
        at += size
        results = driver.push(push)
        assert results == untouched.push(push)
        assert Counter(results) == Counter(model.push(push))
        driver.modules.check()
    counts = [m.meta[1:].tolist() for m in (driver.modules, untouched.modules)]
    assert counts[0] == counts[1]


def test_undo_when_rooms_have_grown_in_between(graph: TimedGraph, small_rooms: None) -> None:
    driver = PlanDriver(graph)
    driver.push(arrivals(graph, seed=1, count=10, kinds=3))
    before = live_parts(driver.modules)
    driver.walk(arrivals(graph, seed=2, count=200, kinds=50, start=10))
    driver.modules.undo()
    driver.modules.check()
    assert live_parts(driver.modules) == before
    # Without an open push there is nothing to undo.
    driver.modules.undo()
    assert live_parts(driver.modules) == before


def test_undo_gives_new_keys_and_strings_back() -> None:
    graph = GRAPHS["a string and a word"]
    driver = PlanDriver(graph)
    driver.push(arrivals(graph, seed=1, count=30, kinds=3))
    keys, strings = driver.modules.keys(0), count_strings(driver.modules.texts[0, 0])
    for _ in range(20):
        driver.walk(arrivals(graph, seed=2, count=100, kinds=10**6, start=30))
        driver.modules.undo()
        driver.modules.check()
        assert driver.modules.keys(0) == keys
        assert count_strings(driver.modules.texts[0, 0]) == strings
    assert driver.modules.classes[0, C_CAPACITY] <= 4 * 128


@pytest.mark.parametrize("size", [1, 50])
def test_renumbering_changes_no_result(graph: TimedGraph, size: int) -> None:
    if UNBOUNDED in graph.windows:
        graph = TimedGraph(
            graph.names, tuple(rows_window(7) for _ in graph.windows), graph.attributes, graph.widths, graph.texts
        )
    often, never = PlanDriver(graph, renumber_at=150), PlanDriver(graph)
    for push in pushes(arrivals(graph, seed=4, count=1500, kinds=5, drift=50), size):
        assert often.push(push) == never.push(push)
        assert live_parts(often.modules) == live_parts(never.modules)
    often.modules.check()
    # A renumbering keeps the slots of a window, so numbers reach at most the bound plus a ring and a push.
    assert often.modules.streams[:, S_NEXT].max() <= 150 + 64 + size
    assert never.modules.streams[:, S_NEXT].min() > 300


def test_undo_after_renumbering() -> None:
    graph = GRAPHS["chain"]
    driver = PlanDriver(graph, renumber_at=100)
    for n in range(20):
        driver.push(arrivals(graph, seed=n, count=40, kinds=4))
        before = live_parts(driver.modules)
        driver.walk(arrivals(graph, seed=100 + n, count=40, kinds=8))
        driver.modules.undo()
        assert live_parts(driver.modules) == before
        driver.modules.check()


def test_first_arrival_and_arrival_numbers_go_on_over_renumbering() -> None:
    graph = one_class([rows_window(2), rows_window(2)])
    driver = PlanDriver(graph, renumber_at=70)
    for n in range(300):
        results = driver.walk([DriverRow(0, ((n,),)), DriverRow(1, ((n,),))])
        assert driver.modules.first_arrival(0) == n
        driver.modules.commit()
        assert results == [(n, n)]


def test_bushy_and_left_deep_plans_give_the_same() -> None:
    graph = chain([rows_window(8)] * 5)
    names = graph.names
    plans = ("R S T U V", "(R S) (T (U V))", "V U T S R", "R (S (T U V))")
    drivers = [PlanDriver(graph, plan=parse(text, names)) for text in plans]
    for push in pushes(arrivals(graph, seed=3, count=400, kinds=3), 100):
        results = [Counter(driver.push(push)) for driver in drivers]
        assert all(counts == results[0] for counts in results)


# Refused pushes


def test_a_window_beyond_the_sequence_numbers_is_refused_before_anything_changes() -> None:
    driver = PlanDriver(GRAPHS["unbounded"])
    driver.push(arrivals(driver.graph, seed=1, count=40, kinds=3))
    before = live_parts(driver.modules)
    with pytest.raises(CapacityError, match=rf"stream S: .* would contain \d+ tuples, the limit is {RENUMBER_AT}"):
        driver.modules.begin([5, RENUMBER_AT])
    assert live_parts(driver.modules) == before
    driver.modules.check()
    driver.push(arrivals(driver.graph, seed=2, count=40, kinds=3))
    driver.modules.check()


def test_an_arrival_with_too_many_results_takes_the_push_back() -> None:
    n = 1100
    graph = one_class([rows_window(n)] * 6)
    driver = PlanDriver(graph)
    same = ((7,),)
    for i in range(5):
        driver.push([DriverRow(i, same)] * n)
    before = live_parts(driver.modules)
    with pytest.raises(CapacityError, match=r"more than 2\^48 results; a key is too frequent"):
        driver.walk([DriverRow(5, ((8,),)), DriverRow(5, same), DriverRow(0, same)], count_only=True)
    driver.modules.check()
    assert live_parts(driver.modules) == before
    assert driver.push([DriverRow(5, ((8,),))]) == []


def test_an_arrival_with_too_many_partial_results_takes_the_push_back(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = PlanDriver(chain([rows_window(2000)] * 4))
    driver.push([DriverRow(1, ((1,), (2, 2)))] * 600 + [DriverRow(2, ((2, 2), (3,)))])
    before = live_parts(driver.modules)
    monkeypatch.setattr(stairs.memory.scratch, "MOST_PARTIALS", 1 << 10)
    with pytest.raises(CapacityError, match="room for 2048 numbers of partial results; a key is too frequent"):
        driver.walk([DriverRow(0, ((1,),))], count_only=True)
    driver.modules.check()
    assert live_parts(driver.modules) == before


def test_any_failure_while_room_is_made_takes_the_push_back(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = GRAPHS["chain"]
    driver = PlanDriver(graph)
    driver.push(arrivals(graph, seed=1, count=50, kinds=4))
    before = live_parts(driver.modules)

    def no_memory(c: int) -> None:
        raise MemoryError

    monkeypatch.setattr(driver.modules, "_grow_keys", no_memory)
    with pytest.raises(MemoryError):
        driver.walk(arrivals(graph, seed=2, count=500, kinds=10**6))
    monkeypatch.undo()
    driver.modules.check()
    assert live_parts(driver.modules) == before
    driver.push(arrivals(graph, seed=2, count=500, kinds=10**6))
    driver.modules.check()


# The arrays


@given(st.integers(0, 1 << 40))
def test_power_of_two(least: int) -> None:
    room = power_of_two(least)
    assert room & (room - 1) == 0
    assert max(least, 1) <= room < 2 * max(least, 1)


def test_the_rows_of_a_push_wrap_around_the_ring() -> None:
    driver = PlanDriver(one_class([rows_window(40), rows_window(40)]))
    modules = driver.modules
    driver.push([DriverRow(0, ((1,),))] * 50)
    assert modules.capacity[0] == 64
    modules.begin([20, 0])
    assert modules.ring_slices(0, 20) == [(slice(50, 64), slice(0, 14)), (slice(0, 6), slice(14, 20))]
    modules.undo()
    modules.begin([14, 0])
    assert modules.ring_slices(0, 14) == [(slice(50, 64), slice(0, 14))]
    modules.undo()


def test_figures() -> None:
    graph = GRAPHS["a string and a word"]
    driver = PlanDriver(graph)
    driver.push(
        [DriverRow(0, ((b"x", 1),)), DriverRow(0, ((b"y", 1),)), DriverRow(1, ((b"x", 1),)), DriverRow(0, None)]
    )
    modules = driver.modules
    assert [modules.rows(i) for i in range(2)] == [3, 1]
    assert modules.keys(0) == 2
    parts = sum(modules.stem_bytes(i) for i in range(2)) + modules.key_bytes(0)
    assert parts <= modules.nbytes <= parts + 20_000


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda m: m.streams.__setitem__((0, S_LO), m.streams[0, S_NEXT] + 1), "low mark"),
        (lambda m: m.heads.array.__setitem__(slice(None), -1), "chain of key id"),
        (lambda m: m.table.array.__setitem__(slice(None), -1), "ids in the table"),
        (lambda m: m.words.array.__setitem__(slice(None), 5), "does not find key id"),
        (lambda m: m.classes.__setitem__((0, C_FREE), 1), "ids in the table"),
        (lambda m: m.begin([0, 0, 0]), "neither committed nor undone"),
    ],
)
def test_check_finds_what_is_broken(spoil: Callable[[Modules], object], message: str) -> None:
    graph = one_class([rows_window(5)] * 3)
    driver = PlanDriver(graph)
    driver.push(arrivals(graph, seed=1, count=50, kinds=4))
    driver.modules.check()
    spoil(driver.modules)
    with pytest.raises(StateError, match=message):
        driver.modules.check()
