"""STAIRs: the cases with a name, each compared with a nested loop over what has arrived."""

from __future__ import annotations

import numpy as np
import pytest
from numba.core import config

from stairs import stair as stair_module
from stairs.descriptors import E_BIRTH, E_NEXT, S_BASE, S_LO
from stairs.errors import CapacityError, StateError
from stairs.graph import JoinGraph, Window, WindowKind
from stairs.kernels import stair as stair_kernels
from stairs.stair import FIRST_ROOM
from stairs.store import StairStore
from tests.stairs.driver import Row, chain, key_ids, one_class, rows_window
from tests.stairs.promotion import compile_promotion
from tests.stairs.stair_model import Pair, kid_of

FOREVER = Window(WindowKind.UNBOUNDED)


def row(stream: int, *values: int | None, time: int = 0) -> Row:
    return Row(stream, None if None in values else tuple((value,) for value in values), time)  # type: ignore[misc]


def three_on_one_key(size: int = 10) -> Pair:
    return Pair(one_class([rows_window(size)] * 3))


def test_presence_is_not_completeness() -> None:
    """An arrival completes a composite of a key not attempted: it must not be taken for all there are."""
    pair = three_on_one_key()
    pair.push([row(0, 7), row(1, 7)])  # s_old and t, before the state is there
    stair = pair.stair([0, 1], 0)
    kid = kid_of(stair, (7,))
    assert not stair.is_attempted(kid)
    assert not stair.complete
    pair.push([row(0, 7)])  # s
    assert not stair.insert([1, 0])
    assert stair.rows == 0
    assert stair.promote(kid) == 2
    assert stair.probe(kid).tolist() == [[1, 0], [0, 0]]
    assert stair.complete
    pair.check()


def test_a_mark_is_cleared_on_demote() -> None:
    pair = three_on_one_key()
    for complete in (True, False):
        pair.stair([0, 1], 0, complete)
    pair.push([row(0, 7), row(1, 7)])
    for stair in pair.stairs:
        kid = kid_of(stair, (7,))
        stair.promote(kid)
        assert stair.demote(kid) == 1
        assert not stair.is_attempted(kid)
        assert not stair.complete
        assert not stair.settle()
        assert stair.demote(kid) == 0
    pair.check()
    pair.push([row(1, 7)])  # passed over by both
    for stair in pair.stairs:
        kid = kid_of(stair, (7,))
        assert len(stair.probe(kid)) == 0
        assert stair.promote(kid) == 2
        assert stair.promote(kid) == 0
        assert stair.complete
    pair.check()


def test_a_component_that_left_its_window_is_not_returned() -> None:
    pair = Pair(one_class([rows_window(2), rows_window(3)]))
    stair = pair.stair([0, 1], 0, complete=True)
    pair.push([row(0, 7), row(1, 7), row(0, 8)])
    kid = kid_of(stair, (7,))
    assert stair.probe(kid).tolist() == [[0, 0]]  # the older of the two newest
    pair.push([row(0, 8)])
    assert stair.probe(kid).tolist() == []
    assert stair.is_attempted(kid)
    pair.check()


def test_dead_entries_are_unlinked_wherever_they_stand() -> None:
    pair = Pair(one_class([rows_window(4), FOREVER]))
    stair = pair.stair([0, 1], 0, complete=True)
    pair.driver.push([*(row(0, 7) for _ in range(4)), row(1, 7)])
    pair.windows.take([*(row(0, 7) for _ in range(4)), row(1, 7)])
    for r in (3, 1, 2, 0):
        assert stair.insert([r, 0])
    kid = kid_of(stair, (7,))
    for left in ([2, 1, 3], [2, 3], [3], []):  # the newest entry, one between others, the newest, the last
        pair.push([row(0, 8)])
        for _ in range(2):
            assert stair.probe(kid, arrivals=True)[:, 0].tolist() == left
        pair.check()


def test_range_windows_go_by_the_low_mark() -> None:
    windows = Window(WindowKind.RANGE, 5), FOREVER
    pair = Pair(JoinGraph(("R", "S"), windows, ((0,), (0,)), (1,), timed=True))
    stair = pair.stair([0, 1], 0)
    pair.push([row(0, 7, time=0), row(1, 7, time=5)])
    assert stair.promote(kid_of(stair, (7,))) == 1
    pair.push([row(1, 8, time=6)])
    assert stair.rows == 0
    pair.check()


def test_newest_first_in_sequence_and_arrival_numbers() -> None:
    pair = Pair(one_class([rows_window(3)] * 2), renumber_at=80)
    early, late = pair.stair([0, 1], 0, complete=True), pair.stair([0, 1], 0)
    for _ in range(100):
        pair.push([row(0, 7)])
    pair.push([row(1, 7)])
    for _ in range(2):
        pair.push([row(1, 7)], one_by_one=True)
    kid = kid_of(late, (7,))
    late.promote(kid)
    assert pair.driver.modules.streams[0, S_BASE] > 0
    for stair in (early, late):
        found = stair.probe(kid, arrivals=True).tolist()
        assert sorted(found) == [[r, s] for r in (97, 98, 99) for s in (0, 1, 2)]
        assert stair.probe(kid).tolist() == [[r - int(pair.driver.modules.streams[0, S_BASE]), s] for r, s in found]
    assert [s for _, s in early.probe(kid).tolist()] == [2, 2, 2, 1, 1, 1, 0, 0, 0]
    assert late.probe(kid, arrivals=True).tolist() == [[r, s] for r in (99, 98, 97) for s in (2, 1, 0)]


def test_numbers_start_anew() -> None:
    """Sequence numbers and entry numbers shift, by hand and on the way; entries and marks of every kind stay."""
    for renumber_at in (None, 200):
        pair = Pair(one_class([rows_window(6)] * 2), renumber_at)
        pair.stair([0, 1], 0, complete=True)
        pair.stair([0, 1], 0)
        for _ in range(3):
            pair.push([Row(k % 2, None) for k in range(100)])
        pair.push([row(0, 1), row(0, 2), row(0, 3), row(0, 4), row(1, 1), row(1, 2), row(1, 4), row(1, 2)])
        kept, empty, gone = (kid_of(pair.stairs[0], (key,)) for key in (2, 3, 1))
        for stair in pair.stairs:
            for _ in range(150):
                for kid in (kept, empty, gone):
                    stair.promote(kid)
                    stair.demote(kid)
            stair.promote(kept)
            stair.promote(empty)
            stair.trim()
        marks = [[stair.is_attempted(kid) for kid in range(4)] for stair in pair.stairs]
        assert [sorted(own) for own in marks] == [[False, True, True, True], [False, False, True, True]]
        pair.check()
        following = [int(stair.state[E_NEXT]) for stair in pair.stairs]
        for stair in pair.stairs:
            stair._renumber_entries()
        pair.driver.modules.renumber()
        if renumber_at is None:
            assert all(s.state[E_NEXT] < n for s, n in zip(pair.stairs, following, strict=True))
        assert pair.driver.modules.streams[0, S_BASE] > 0
        assert marks == [[stair.is_attempted(kid) for kid in range(4)] for stair in pair.stairs]
        for stair in pair.stairs:
            assert stair.probe(kept, arrivals=True).tolist() == [[151, 153], [151, 151]]
            assert stair.state[E_NEXT] < 200
        pair.check()


def test_growth_keeps_entries_and_marks() -> None:
    pair = Pair(one_class([FOREVER] * 2))
    promoted, fed = pair.stair([0, 1], 0), pair.stair([0, 1], 0, complete=True)
    pair.push([row(0, k % 3) for k in range(30)])
    pair.push([row(1, k % 3) for k in range(30)])
    for key in range(2):
        assert promoted.promote(kid_of(promoted, (key,))) == 100  # more than there is room for at first
    pair.check()
    assert fed.rows == 300
    assert promoted.capacity >= 200 > FIRST_ROOM
    # A class that grows: key ids beyond the heads there were.
    pair.push([row(0, k) for k in range(100, 200)])
    pair.push([row(1, k) for k in range(100, 200)])
    assert fed.rows == 400
    assert promoted.rows == 200
    assert promoted.promote(kid_of(promoted, (199,))) == 1
    pair.check()


def test_a_failure_to_make_room_leaves_the_state_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(one_class([FOREVER] * 2))
    stair = pair.stair([0, 1], 0)
    pair.push([row(0, 1), row(1, 1)])
    stair.promote(kid_of(stair, (1,)))
    pair.push([row(k % 2, 7) for k in range(40)])
    kid, other = kid_of(stair, (7,)), kid_of(stair, (1,))

    def no_memory(least: int) -> int:
        raise MemoryError

    for name, put, error in (("MOST_ENTRIES", 300, CapacityError), ("power_of_two", no_memory, MemoryError)):
        with monkeypatch.context() as patch:
            patch.setattr(stair_module, name, put)
            with pytest.raises(error):
                stair.promote(kid)
            with pytest.raises(error):
                stair.insert_all(np.zeros((400, 2), np.int64))
        assert not stair.is_attempted(kid)
        assert stair.probe(other).tolist() == [[0, 0]]
        pair.check()
    assert stair.promote(kid) == 400
    pair.check()


def test_key_ids_used_again() -> None:
    """A recycled id keeps its mark, whichever it was, and none of the entries."""
    pair = Pair(one_class([rows_window(2)] * 2))
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
    assert [stair.is_attempted(old) for stair in pair.stairs] == [True, False, False]
    assert marked.probe(old, arrivals=True).tolist() == [[key - 1, key - 1]]
    assert unmarked.promote(old) == demoted.promote(old) == 1
    assert demoted.complete
    pair.check()


def test_memory_follows_the_live_entries() -> None:
    """10^6 composites pass; the ring stays within four times those live."""
    size, batch, keys = (200, 50, 10) if config.DISABLE_JIT else (2000, 500, 100)
    wanted = 10_000 if config.DISABLE_JIT else 1_000_000
    pair = Pair(one_class([rows_window(size)] * 2), renumber_at=1 << 16)
    modules, random = pair.driver.modules, np.random.default_rng(7)
    stair = pair.stair([0, 1], 0, complete=True)
    stored, most_rows, most_room, most_bytes, key = 0, 0, 0, 0, 0
    while stored < wanted:
        key += 20  # keys drift, so ids are used again
        rows = [row(k % 2, key + pick) for k, pick in enumerate(random.integers(0, keys, batch).tolist())]
        found = np.array(pair.driver.push(rows), np.int64).reshape(-1, 2) - modules.streams[:, S_BASE]
        stored += stair.insert_all(found[(found >= modules.streams[:, S_LO]).all(axis=1)])
        most_rows, most_room = max(most_rows, stair.rows), max(most_room, stair.capacity)
        most_bytes = max(most_bytes, stair.nbytes)
    assert most_rows > 2 * FIRST_ROOM
    assert most_room <= 4 * most_rows
    assert most_bytes <= 4 * most_rows * 12 + 4 * len(stair.heads) + (1 << 14)
    assert len(stair.heads) <= 20 * keys


def test_a_live_entry_at_the_tail_does_not_hold_the_ring() -> None:
    pair = Pair(one_class([FOREVER] * 2))
    stair = pair.stair([0, 1], 0)
    pair.push([row(0, 1), row(1, 1), *(row(k % 2, 7) for k in range(10))])
    stair.promote(kid_of(stair, (1,)))
    kid = kid_of(stair, (7,))
    for _ in range(200):
        assert stair.promote(kid) == 25
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
    assert (stair.rows, stair.is_attempted(kid), len(stair.probe(kid))) == (0, False, 0)
    stair.trim()
    assert stair.capacity == FIRST_ROOM
    assert stair.promote(kid) == 64
    assert stair.settle()
    assert stair.state[E_BIRTH] == -1
    pair.push([row(0, 8), row(1, 8), row(2, 8)])
    assert len(stair.probe(kid_of(stair, (8,)))) == 1
    pair.check()


def test_an_undone_push_is_forgotten() -> None:
    pair = Pair(one_class([rows_window(2)] * 2))
    stair = pair.stair([0, 1], 0, complete=True)
    pair.push([row(0, 7), row(1, 7)])
    kid = kid_of(stair, (7,))
    pair.driver.walk([row(0, 7), row(0, 7)])
    assert stair.insert([2, 0])
    assert stair.probe(kid).tolist() == [[2, 0]]  # 0 has left, for now
    pair.driver.modules.undo()
    assert not stair.is_attempted(kid)
    assert stair.promote(kid) == 1
    assert stair.probe(kid).tolist() == [[0, 0]]
    pair.check()


def test_what_is_refused() -> None:
    pair = Pair(chain([rows_window(3)] * 3))
    graph, modules = pair.graph, pair.driver.modules
    store = StairStore(modules)
    store.routes = compile_promotion([0, 1], 0, graph)
    with pytest.raises(StateError, match="two or more"):
        store.add([0], 0)
    with pytest.raises(StateError, match="has the class"):
        store.add([0], 1)
    pair.push([Row(0, ((7,),)), Row(1, ((7,), (1, 2)))])
    with pytest.raises(StateError, match="born complete"):
        store.add([0, 1], 0, complete=True)
    stair = store.add([1, 0], 0)
    for kid in (-1, 1):
        with pytest.raises(StateError, match="no key id"):
            stair.promote(kid)
    with pytest.raises(StateError, match="shape"):
        stair.insert([0, 0, 0])
    with pytest.raises(StateError, match="window"):
        stair.insert([0, 1])


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")
def test_kernels_are_compiled_once() -> None:
    # Each kernel named below is called here: what other tests of this process called is chance.
    test_growth_keeps_entries_and_marks()
    test_a_live_entry_at_the_tail_does_not_hold_the_ring()
    test_forget_is_a_new_birth()
    for name in ("insert", "probe", "promote", "demote", "move", "count_live", "all_attempted"):
        assert len(getattr(stair_kernels, name).signatures) == 1, name
