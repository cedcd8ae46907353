"""Named cases of STAIRs, each compared with a nested loop over the arrivals."""

from __future__ import annotations

import numpy as np
import pytest
from numba.core import config

from jisc.plan.states import Masks, states_of
from jisc.plan.stored_routes import StoredPlan, compile_stored
from jisc.plan.tree import parse
from stairs import entry_ring
from stairs.checks.stair import check_stair
from stairs.descriptors import E_BASE, E_BIRTH, E_DEBT, E_NEXT, E_ROUTE, E_SPLIT, E_TAIL, M_MODE, S_BASE, STORED
from stairs.entry_ring import FIRST_ROOM
from stairs.errors import CapacityError, StateError
from stairs.graph import JoinGraph, Window, WindowKind
from stairs.kernels import one_by_one, promotion
from stairs.kernels import stair as stair_kernels
from stairs.stair import NewState
from stairs.storage.parts import Parts
from stairs.store import StairStore
from tests.stairs.driver import DriverRow, PlanDriver, chain, key_ids, one_class, rows_window
from tests.stairs.held import Held
from tests.stairs.stair_model import StemPair, entries_of, is_attempted, kid_of, promote

FOREVER = Window(WindowKind.UNBOUNDED)


def row(stream: int, *values: int | None, time: int = 0) -> DriverRow:
    return DriverRow(stream, None if None in values else tuple((value,) for value in values), time)  # type: ignore[misc]


def three_on_one_key(size: int = 10) -> StemPair:
    return StemPair(one_class([rows_window(size)] * 3))


def test_presence_is_not_completeness() -> None:
    """An arrival completes a composite whose key is not attempted: a probe must not take it for all of them."""
    pair = three_on_one_key()
    pair.push([row(0, 7), row(1, 7)])  # s_old and t, before the state exists
    stair = pair.stair([0, 1], 0)
    kid = kid_of(stair, (7,))
    assert not is_attempted(stair, kid)
    assert not stair.complete
    pair.push([row(0, 7)])  # s
    assert stair.counters()["passed"] == 1
    assert stair.rows == 0
    assert promote(stair, kid) == 2
    assert entries_of(stair, kid) == [[1, 0], [0, 0]]
    assert stair.complete
    pair.check()


def test_a_mark_is_cleared_on_demote() -> None:
    pair = three_on_one_key()
    for complete in (True, False):
        pair.stair([0, 1], 0, complete)
    pair.push([row(0, 7), row(1, 7)])
    for stair in pair.stairs:
        kid = kid_of(stair, (7,))
        promote(stair, kid)
        assert stair.demote(kid) == 1
        assert not is_attempted(stair, kid)
        assert not stair.complete
        assert not stair.settle()
        assert stair.demote(kid) == 0
    pair.check()
    pair.push([row(1, 7)])  # not stored by either
    for stair in pair.stairs:
        kid = kid_of(stair, (7,))
        assert len(entries_of(stair, kid)) == 0
        assert promote(stair, kid) == 2
        assert promote(stair, kid) == 0
        assert stair.complete
    pair.check()


@pytest.mark.parametrize("step", [1, -1])
def test_a_new_state_takes_the_ring_of_a_dropped_one_of_as_many_streams(step: int) -> None:
    pair = StemPair(one_class([rows_window(2)] * 5))
    dropped = pair.store.add([NewState(tuple(range(k)), 0) for k in (2, 3, 4)])
    rings = {len(stair.streams): stair.ring for stair in dropped}
    pair.store.remove(dropped)
    for stair in pair.store.add([NewState(tuple(range(5 - k, 5)), 0) for k in (2, 3, 4)][::step]):
        assert stair.ring is rings[len(stair.streams)]


def test_a_component_that_left_its_window_is_not_returned() -> None:
    pair = StemPair(one_class([rows_window(2), rows_window(3)]))
    stair = pair.stair([0, 1], 0, complete=True)
    pair.push([row(0, 7), row(1, 7), row(0, 8)])
    kid = kid_of(stair, (7,))
    assert entries_of(stair, kid) == [[0, 0]]  # the older of the two newest
    pair.push([row(0, 8)])
    assert entries_of(stair, kid) == []
    assert is_attempted(stair, kid)
    pair.check()


def test_dead_entries_are_skipped_wherever_they_stand() -> None:
    graph = one_class([rows_window(4), FOREVER, FOREVER])
    masks, tree = Masks(graph), parse("(R S) T", graph.names)
    driver = PlanDriver(graph)
    driver.store = store = StairStore(driver.modules)
    (stair,) = store.add([NewState((0, 1), 0, complete=True)])
    store.routes, promotions = compile_stored([StoredPlan(tree, {states_of(tree, masks)[0]: stair.row})], masks)
    stair.state[[E_ROUTE, E_BASE]] = promotions[stair.row]
    driver.modules.meta[M_MODE] = STORED
    driver.push([*(row(0, 7) for _ in range(4)), row(1, 7), row(1, 7)])
    # A tuple of S meets the newest tuple of R first, so the chain of key 7 is r0 .. r3 with s1, then r0 .. r3 with s0.
    for left in ([1, 2, 3] * 2, [2, 3] * 2, [3] * 2, []):  # the newest entry and one between others die; then the last
        driver.push([row(0, 8)])
        assert [r for r, _ in entries_of(stair, kid_of(stair, (7,)))] == left
        for _ in range(2):
            assert [r for r, _, _ in driver.push([row(2, 7)])] == left
        check_stair(stair)


def test_range_windows_go_by_the_low_mark() -> None:
    windows = Window(WindowKind.RANGE, 5), FOREVER
    pair = StemPair(JoinGraph(("R", "S"), windows, ((0,), (0,)), (1,), timed=True))
    stair = pair.stair([0, 1], 0)
    pair.push([row(0, 7, time=0), row(1, 7, time=5)])
    assert promote(stair, kid_of(stair, (7,))) == 1
    pair.push([row(1, 8, time=6)])
    assert stair.rows == 0
    pair.check()


def test_newest_first_in_sequence_and_arrival_numbers() -> None:
    pair = StemPair(one_class([rows_window(3)] * 2), renumber_at=80)
    early, late = pair.stair([0, 1], 0, complete=True), pair.stair([0, 1], 0)
    for _ in range(100):
        pair.push([row(0, 7)])
    pair.push([row(1, 7)])
    for _ in range(2):
        pair.push([row(1, 7)], one_by_one=True)
    kid = kid_of(late, (7,))
    promote(late, kid)
    assert pair.driver.modules.streams[0, S_BASE] > 0
    for stair in (early, late):
        entries = entries_of(stair, kid, arrivals=True)
        assert sorted(entries) == [[r, s] for r in (97, 98, 99) for s in (0, 1, 2)]
        assert entries_of(stair, kid) == [[r - int(pair.driver.modules.streams[0, S_BASE]), s] for r, s in entries]
    assert [s for _, s in entries_of(early, kid)] == [2, 2, 2, 1, 1, 1, 0, 0, 0]
    assert entries_of(late, kid, arrivals=True) == [[r, s] for r in (99, 98, 97) for s in (2, 1, 0)]


def test_numbers_start_anew() -> None:
    """Sequence numbers and entry numbers shift, on request and in pushes; entries and marks of every kind stay."""
    for renumber_at in (None, 200):
        pair = StemPair(one_class([rows_window(6)] * 2), renumber_at)
        pair.stair([0, 1], 0, complete=True)
        pair.stair([0, 1], 0)
        for _ in range(3):
            pair.push([DriverRow(k % 2, None) for k in range(100)])
        pair.push([row(0, 1), row(0, 2), row(0, 3), row(0, 4), row(1, 1), row(1, 2), row(1, 4), row(1, 2)])
        kept, empty, gone = (kid_of(pair.stairs[0], (key,)) for key in (2, 3, 1))
        for stair in pair.stairs:
            for _ in range(150):
                for kid in (kept, empty, gone):
                    promote(stair, kid)
                    stair.demote(kid)
            promote(stair, kept)
            promote(stair, empty)
            stair.make_room(0)
        marks = [[is_attempted(stair, kid) for kid in range(4)] for stair in pair.stairs]
        assert [sorted(stair_marks) for stair_marks in marks] == [[False, True, True, True], [False, False, True, True]]
        pair.check()
        following = [int(stair.state[E_NEXT]) for stair in pair.stairs]
        for stair in pair.stairs:
            stair._renumber_entries()
        pair.driver.modules.renumber()
        if renumber_at is None:
            assert all(s.state[E_NEXT] < n for s, n in zip(pair.stairs, following, strict=True))
        assert pair.driver.modules.streams[0, S_BASE] > 0
        assert marks == [[is_attempted(stair, kid) for kid in range(4)] for stair in pair.stairs]
        for stair in pair.stairs:
            assert entries_of(stair, kept, arrivals=True) == [[151, 153], [151, 151]]
            assert stair.state[E_NEXT] < 200
        pair.check()


def test_growth_keeps_entries_and_marks() -> None:
    pair = StemPair(one_class([FOREVER] * 2))
    promoted, fed = pair.stair([0, 1], 0), pair.stair([0, 1], 0, complete=True)
    pair.push([row(0, k % 3) for k in range(30)])
    pair.push([row(1, k % 3) for k in range(30)])
    for key in range(2):
        assert promote(promoted, kid_of(promoted, (key,))) == 100  # more than the first ring has room for
    pair.check()
    assert fed.rows == 300
    assert promoted.capacity >= 200 > FIRST_ROOM
    # The class grows: key ids beyond the previous heads.
    pair.push([row(0, k) for k in range(100, 200)])
    pair.push([row(1, k) for k in range(100, 200)])
    assert fed.rows == 400
    assert promoted.rows == 200
    assert promote(promoted, kid_of(promoted, (199,))) == 1
    pair.check()


KEEP_MOVING = ("nothing", "renumbering", "demotions", "parts")
"""Events after which entries go on moving to the larger ring."""


@pytest.mark.campaign(1)
@pytest.mark.parametrize("event", ["room", "undo", *KEEP_MOVING])
def test_a_ring_grows_step_by_step(event: str) -> None:
    """At each step of each growth the state is whole, and something else may happen in the middle of one."""
    pair = StemPair(one_class([rows_window(150)] * 2))
    fed, promoted = pair.stair([0, 1], 0, complete=True), pair.stair([0, 1], 0)
    moving = capacity = 0
    for k in range(60):
        pair.push([row(n % 2, (7 * k + n) % 90) for n in range(12)])
        for key in {7 * k % 90, (7 * k + 1) % 90} if k > 30 else ():
            promote(promoted, kid_of(promoted, (key,)))
        capacity = max(capacity, fed.capacity)
        moves = fed.state[E_TAIL] < fed.state[E_SPLIT]
        moving += bool(moves)
        pair.check()
        if not moves or event == "nothing":
            continue
        if event == "room":
            fed.make_room(0)
        elif event == "renumbering":
            fed._renumber_entries()
            pair.driver.modules.renumber()
        elif event == "undo":
            pair.driver.walk([row(0, 1), row(1, 1)])
            pair.driver.modules.undo()
            assert not fed.complete
            fed.promote_all()
        elif event == "demotions":
            for key in (1, 2, 3):
                fed.demote(kid_of(fed, (key,)))
        else:
            before = entries_of(fed, kid_of(fed, (1,)), arrivals=True)
            fed.load_parts(Parts(fed.to_parts(), Held(), "a state"))
            assert entries_of(fed, kid_of(fed, (1,)), arrivals=True) == before
        assert event in KEEP_MOVING or fed.state[E_TAIL] >= fed.state[E_SPLIT]
        pair.check()
    assert moving > (10 if event in KEEP_MOVING else 1)
    assert capacity >= 8 * FIRST_ROOM


def test_a_full_successor_is_renumbered_with_the_old_ring() -> None:
    pair = StemPair(one_class([FOREVER] * 2))
    stair = pair.stair([0, 1], 0)
    pair.push([row(0, 1) for _ in range(6)] + [row(1, 1) for _ in range(10)])
    pair.push([row(k % 2, 2) for k in range(22)])
    for _ in range(3):
        promote(stair, kid_of(stair, (1,)))
        stair.demote(kid_of(stair, (1,)))
    promote(stair, kid_of(stair, (1,)))
    stair.state[E_DEBT] = stair.capacity
    assert stair._begin_move(1)
    assert promote(stair, kid_of(stair, (2,))) == 121
    assert stair.state[E_NEXT] == stair.state[E_SPLIT] + stair.capacity  # no slot is free for the rest
    assert 1 < stair.state[E_TAIL] < stair.state[E_SPLIT]
    pair.check()
    before = int(stair.state[E_NEXT])
    stair._renumber_entries()
    assert stair.state[E_NEXT] < before
    pair.check()
    pair.push([row(0, 1)])
    assert stair.rows == 7 * 10 + 121
    pair.check()


def no_memory(size: int) -> None:
    raise MemoryError


def test_a_failure_to_make_room_leaves_the_state_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = StemPair(one_class([FOREVER] * 2))
    stair = pair.stair([0, 1], 0)
    pair.push([row(0, 1), row(1, 1)])
    promote(stair, kid_of(stair, (1,)))
    pair.push([row(k % 2, 7) for k in range(40)])
    kid, other = kid_of(stair, (7,)), kid_of(stair, (1,))

    for name, put, error in (("MOST_ENTRIES", 300, CapacityError), ("new_ring", no_memory, MemoryError)):
        with monkeypatch.context() as patch:
            patch.setattr(entry_ring, name, put)
            with pytest.raises(error):
                promote(stair, kid)
        assert not is_attempted(stair, kid)
        assert entries_of(stair, other) == [[0, 0]]
        pair.check()
    assert promote(stair, kid) == 400
    pair.check()


def test_a_push_that_finds_no_room_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = StemPair(one_class([FOREVER] * 2))
    stair = pair.stair([0, 1], 0, complete=True)
    pair.push([row(k % 2, 7) for k in range(2)])
    kid = kid_of(stair, (7,))
    for name, put, error in (("MOST_ENTRIES", 100, CapacityError), ("new_ring", no_memory, MemoryError)):
        with monkeypatch.context() as patch:
            patch.setattr(entry_ring, name, put)
            with pytest.raises(error):
                pair.driver.push([row(k % 2, 7) for k in range(40)])
        assert not is_attempted(stair, kid)
        pair.check()
        assert promote(stair, kid) == 1
    pair.push([row(k % 2, 7) for k in range(40)])
    assert stair.rows == 441
    pair.check()


def test_key_ids_used_again() -> None:
    """A recycled id keeps its mark, whichever it was, and none of the entries."""
    pair = StemPair(one_class([rows_window(2)] * 2))
    marked, demoted, unmarked = (pair.stair([0, 1], 0, complete) for complete in (True, True, False))
    pair.push([row(0, 0), row(1, 0)])
    old = kid_of(marked, (0,))
    demoted.demote(old)
    assert marked.rows == 1
    key = 1
    while (0,) in key_ids(pair.driver.modules, 0).values() or old not in key_ids(pair.driver.modules, 0):
        pair.push([row(0, key)])
        pair.push([row(1, key)])
        key += 1
    assert key_ids(pair.driver.modules, 0)[old] == (key - 1,)
    assert [is_attempted(stair, old) for stair in pair.stairs] == [True, False, False]
    assert entries_of(marked, old, arrivals=True) == [[key - 1, key - 1]]
    assert promote(unmarked, old) == promote(demoted, old) == 1
    assert demoted.complete
    pair.check()


def test_memory_follows_the_live_entries() -> None:
    """10^6 composites pass; the capacity of the ring stays within four times the live entries."""
    size, batch, keys = (200, 50, 10) if config.DISABLE_JIT else (2000, 500, 100)
    wanted = 10_000 if config.DISABLE_JIT else 1_000_000
    pair = StemPair(one_class([rows_window(size)] * 2), renumber_at=1 << 16)
    random = np.random.default_rng(7)
    stair = pair.stair([0, 1], 0, complete=True)
    most_rows, most_room, most_bytes, key = 0, 0, 0, 0
    while stair.counters()["stored"] < wanted:
        key += 20  # keys drift, so ids are recycled
        rows = [row(k % 2, key + pick) for k, pick in enumerate(random.integers(0, keys, batch).tolist())]
        pair.driver.push(rows)
        most_rows, most_room = max(most_rows, stair.rows), max(most_room, stair.capacity)
        most_bytes = max(most_bytes, stair.nbytes)
    assert most_rows > 2 * FIRST_ROOM
    assert most_room <= 4 * most_rows
    assert most_bytes <= 4 * most_rows * 12 + 4 * len(stair.heads) + (1 << 14)
    assert len(stair.heads) <= 20 * keys


def test_a_live_entry_at_the_tail_does_not_hold_the_ring() -> None:
    pair = StemPair(one_class([FOREVER] * 2))
    stair = pair.stair([0, 1], 0)
    pair.push([row(0, 1), row(1, 1), *(row(k % 2, 7) for k in range(10))])
    promote(stair, kid_of(stair, (1,)))
    kid = kid_of(stair, (7,))
    for _ in range(200):
        assert promote(stair, kid) == 25
        assert stair.demote(kid) == 25
    assert stair.rows == 1
    assert stair.capacity <= 4 * 26
    assert stair.state[E_NEXT] > 200 * 25
    pair.check()


def test_forget_is_a_new_birth() -> None:
    pair = three_on_one_key()
    stair = pair.stair([0, 1, 2], 0, complete=True)
    pair.push([row(k % 3, 7) for k in range(12)])
    kid = kid_of(stair, (7,))
    assert stair.complete
    assert stair.rows == 64
    stair.forget()
    assert not stair.complete
    assert (stair.rows, is_attempted(stair, kid), len(entries_of(stair, kid))) == (0, False, 0)
    stair.make_room(0)
    assert stair.capacity == FIRST_ROOM
    assert promote(stair, kid) == 64
    assert stair.settle()
    assert stair.state[E_BIRTH] == -1
    pair.push([row(0, 8), row(1, 8), row(2, 8)])
    assert len(entries_of(stair, kid_of(stair, (8,)))) == 1
    pair.check()


def test_an_undone_push_is_forgotten() -> None:
    pair = StemPair(one_class([rows_window(2)] * 2))
    stair = pair.stair([0, 1], 0, complete=True)
    pair.push([row(0, 7), row(1, 7)])
    kid = kid_of(stair, (7,))
    pair.driver.walk([row(0, 7), row(0, 7)])
    assert entries_of(stair, kid) == [[2, 0], [1, 0]]  # 0 has left, for now
    pair.driver.modules.undo()
    assert not is_attempted(stair, kid)
    assert promote(stair, kid) == 1
    assert entries_of(stair, kid) == [[0, 0]]
    pair.check()


def test_refused_calls() -> None:
    pair = StemPair(chain([rows_window(3)] * 3))
    modules = pair.driver.modules
    store = StairStore(modules)
    with pytest.raises(StateError, match="two or more"):
        store.add([NewState((0,), 0)])
    with pytest.raises(StateError, match="has the class"):
        store.add([NewState((0, 1), 0), NewState((0,), 1)])
    pair.push([DriverRow(0, ((7,),)), DriverRow(1, ((7,), (1, 2)))])
    with pytest.raises(StateError, match="born complete"):
        store.add([NewState((0, 1), 0, complete=True)])
    assert not store.stairs
    (stair,) = store.add([NewState((0, 1), 0)])
    for kid in (-1, 1):
        with pytest.raises(StateError, match="no key id"):
            stair.demote(kid)


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")
def test_kernels_are_compiled_once() -> None:
    # Call each kernel named below: which other tests ran in this process is not known.
    test_growth_keeps_entries_and_marks()
    test_a_live_entry_at_the_tail_does_not_hold_the_ring()
    test_forget_is_a_new_birth()
    kernels = (one_by_one.push_singly, promotion.promote, stair_kernels.demote, stair_kernels.move)
    for kernel in (*kernels, stair_kernels.count_live, stair_kernels.all_attempted):
        assert len(kernel.signatures) == 1, kernel
