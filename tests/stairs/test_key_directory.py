"""The key directory: the sweep recycles dead keys, deletion closes gaps, and the number of ids is bounded."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stairs.descriptors import (
    A_MARKS,
    C_CAPACITY,
    C_DEBT,
    C_FREE,
    C_HAND,
    C_NEXT,
    C_SHIFT,
    M_MARKS,
    S_BASE,
    S_LO,
    S_NEXT,
)
from stairs.graph import JoinGraph, Window, WindowKind
from stairs.kernels.keys import FREED, SLACK, adopt, drop_key, find_slot, sweep
from stairs.kernels.marks import MARKED
from stairs.key_room import FIRST_KEYS, FIRST_SLOTS
from stairs.modules import Modules
from stairs.seeds import spacing
from tests.stairs.driver import DriverRow, Key, PlanDriver, key_ids, one_class, rows_window
from tests.stairs.steps import callable_step

MANY = np.arange(1 << 16, dtype=np.uint64)


@cache
def _homes(factor: int) -> list[list[int]]:
    """Return for each slot of a table of FIRST_SLOTS slots the numbers from 0 on whose home it is."""
    # The upper half of a small number's product does not reach the bits of its home.
    homes = (MANY * np.uint64(factor % (1 << 64))) >> np.uint64(65 - FIRST_SLOTS.bit_length())
    return [np.flatnonzero(homes == slot).tolist() for slot in range(FIRST_SLOTS)]


def homed_at(slot: int, k: int) -> int:
    """Return the k-th number from 0 on whose home in a table of FIRST_SLOTS slots is this slot."""
    return _homes(spacing())[slot][k]


find_slot_of = callable_step(find_slot)
adopt_key = callable_step(adopt)


class LoneDirectory:
    """The directory of class 0 alone, without tuples: every key is dead until a test inserts one."""

    def __init__(self, width: int = 1, modules: Modules | None = None) -> None:
        self.modules = modules or Modules(one_class([rows_window(10), rows_window(10)], width))
        self.width = width

    def place(self, key: Key) -> int:
        return int(find_slot_of(self.modules.arena, 0, np.array(key, np.int64), 0))

    def find(self, key: Key) -> int:
        """Return the id of a key, -1 for none."""
        return int(self.modules.arena.table[self.place(key) + 1])

    def adopt(self, key: Key) -> int:
        return int(adopt_key(self.modules.arena, 0, np.array(key, np.int64), 0, self.place(key)))

    def drop(self, kid: int) -> None:
        drop_key(self.modules.arena, 0, kid)

    def slot(self, key: Key) -> int:
        """Return the slot of a key, counted from the start of the table."""
        return self.place(key) // 2


@pytest.mark.parametrize("slot", [0, 5, FIRST_SLOTS - 2])
def test_keys_of_one_home_follow_each_other_around_the_end(slot: int) -> None:
    directory = LoneDirectory()
    keys = [(homed_at(slot, k),) for k in range(6)]
    for k, key in enumerate(keys):
        assert directory.find(key) == -1
        assert directory.adopt(key) == k
        assert directory.slot(key) == (slot + k) % FIRST_SLOTS


@pytest.mark.parametrize("slot", [3, FIRST_SLOTS - 3])
def test_deletion_moves_back_what_it_would_cut_off_and_nothing_else(slot: int) -> None:
    # a, b, c have home h, d has home h + 1, e is in its home h + 4. Deleting a moves b, c and d up; e stays.
    directory = LoneDirectory()
    a, b, c = ((homed_at(slot, k),) for k in range(3))
    d, e = ((homed_at((slot + by) % FIRST_SLOTS, 9),) for by in (1, 4))
    for key in (a, b, c, d, e):
        directory.adopt(key)
    assert [(directory.slot(key) - slot) % FIRST_SLOTS for key in (a, b, c, d, e)] == [0, 1, 2, 3, 4]
    directory.drop(directory.find(a))
    assert directory.find(a) == -1
    assert [(directory.slot(key) - slot) % FIRST_SLOTS for key in (b, c, d, e)] == [0, 1, 2, 4]
    assert [directory.find(key) for key in (b, c, d, e)] == [1, 2, 3, 4]
    directory.modules.check()


def test_ids_run_out_and_come_back() -> None:
    directory = LoneDirectory()
    keys = [(3 * k,) for k in range(FIRST_KEYS + 1)]
    assert [directory.adopt(key) for key in keys] == [*range(FIRST_KEYS), -1]
    directory.drop(17)
    directory.drop(4)
    assert directory.adopt(keys[-1]) == 4
    assert directory.adopt((-1,)) == 17
    assert directory.adopt((-2,)) == -1
    directory.modules.check()


def test_wide_keys_are_compared_word_by_word() -> None:
    directory = LoneDirectory(width=3)
    keys = [(1, 2, 3), (3, 2, 1), (1, 2, -3), (0, 0, 0), (0, 0, 1)]
    assert [directory.adopt(key) for key in keys] == list(range(5))
    assert [directory.find(key) for key in keys] == list(range(5))
    assert directory.find((1, 2, 4)) == -1
    assert key_ids(directory.modules, 0) == dict(enumerate(keys))


class Keys(RuleBasedStateMachine):
    """Adoption, deletion and growth of one directory, compared with a dict; the keys share a few homes."""

    directory: LoneDirectory
    ids: dict[Key, int]

    @initialize(width=st.sampled_from([1, 2]))
    def start(self, width: int) -> None:
        self.directory = LoneDirectory(width)
        self.ids = {}

    @rule(slot=st.sampled_from([0, 1, 2, 60, 126, 127]), k=st.integers(0, 40))
    def adopt(self, slot: int, k: int) -> None:
        key = (homed_at(slot, k), 5)[: self.directory.width]
        assert self.directory.find(key) == self.ids.get(key, -1)
        if key not in self.ids:
            key_id = self.directory.adopt(key)
            if key_id < 0:
                assert len(self.ids) == self.directory.modules.classes[0, C_CAPACITY]
                self.directory.modules._grow_keys(0)
                key_id = self.directory.adopt(key)
            assert key_id not in self.ids.values()
            self.ids[key] = key_id

    @rule(many=st.integers(1, 60), start=st.integers(-(1 << 62), 1 << 62))
    def adopt_many(self, many: int, start: int) -> None:
        for k in range(many):
            key = (start + k, k)[: self.directory.width]
            if key not in self.ids:
                while (key_id := self.directory.adopt(key)) < 0:
                    self.directory.modules._grow_keys(0)
                self.ids[key] = key_id

    @rule(pick=st.integers(0, 10**6), many=st.integers(1, 30))
    def drop(self, pick: int, many: int) -> None:
        for key in sorted(self.ids)[pick % (len(self.ids) or 1) :][:many]:
            self.directory.drop(self.ids.pop(key))

    @invariant()
    def holds_what_the_dict_holds(self) -> None:
        assert key_ids(self.directory.modules, 0) == {number: key for key, number in self.ids.items()}
        self.directory.modules.check()


TestKeys = Keys.TestCase
TestKeys.settings = settings(max_examples=40, stateful_step_count=25)


# The sweep


def most_ids(live: int, rows: int) -> int:
    """Return the most ids for these live tuples and rows in a push. Argument: docs/internals/layout.md."""
    return max(2 * live + rows + SLACK, 2 * rows)


def drifting(graph: JoinGraph, push_rows: int, keys_a_push: int, seed: int = 1) -> list[list[DriverRow]]:
    """Return pushes in which every key is new; no later push repeats a key."""
    rng = random.Random(seed)
    return [
        [
            DriverRow(rng.randrange(graph.n_streams), ((n * keys_a_push + k % keys_a_push,),), n * push_rows + k)
            for k in range(push_rows)
        ]
        for n in range(60)
    ]


@pytest.mark.parametrize("window", [WindowKind.ROWS, WindowKind.RANGE], ids=lambda kind: kind.name)
@pytest.mark.parametrize(("push_rows", "keys_a_push"), [(1, 1), (50, 50), (200, 10), (300, 300)])
def test_the_directory_stays_below_its_bound(window: WindowKind, push_rows: int, keys_a_push: int) -> None:
    # At most L keys are live at the end of any push: 20 rows, or 20 ticks of one row each, per stream.
    live, streams = 2 * 20, 2
    graph = JoinGraph(("R", "S"), (Window(window, 20),) * streams, ((0,), (0,)), (1,), timed=window == WindowKind.RANGE)
    driver = PlanDriver(graph)
    for push in drifting(graph, push_rows, keys_a_push):
        driver.push(push)
        driver.modules.check()
        assert driver.modules.classes[0, C_NEXT] <= most_ids(live, keys_a_push)
    assert driver.modules.classes[0, C_CAPACITY] <= 2 * max(FIRST_KEYS, most_ids(live, keys_a_push))


@given(st.lists(st.sampled_from([1, 2, 3, 10, 40, 100]), max_size=60), st.integers(1, 30))
def test_the_bound_holds_for_pushes_of_any_sizes(sizes: list[int], window: int) -> None:
    driver = PlanDriver(one_class([rows_window(window), rows_window(window)]))
    key = 0
    for n in sizes:
        driver.push([DriverRow(k % 2, ((key + k,),)) for k in range(n)])
        key += n
        assert driver.modules.classes[0, C_NEXT] <= most_ids(2 * window, max(sizes))


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6)), max_size=150))
def test_the_bound_holds_when_keys_come_again_just_ahead_of_the_hand(pushes: list[tuple[int, int]]) -> None:
    window = 5
    driver = PlanDriver(one_class([rows_window(window), rows_window(window)]))
    key = 0
    for new, again in pushes * 3:
        ids, hand = key_ids(driver.modules, 0), int(driver.modules.classes[0, C_HAND])
        ahead = [ids[(hand + k) % len(ids)] for k in range(again) if (hand + k) % len(ids) in ids] if ids else []
        driver.push([DriverRow(0, (known,)) for known in ahead] + [DriverRow(1, ((key + k,),)) for k in range(new)])
        key += new
        assert driver.modules.classes[0, C_NEXT] <= most_ids(2 * window, 10)
    driver.modules.check()


def test_after_a_burst_small_pushes_do_not_look_at_all_ids() -> None:
    driver = PlanDriver(one_class([rows_window(3), rows_window(3)]))
    burst, used = 20_000, []
    driver.push([DriverRow(0, ((k,),)) for k in range(burst)])
    for n in range(100):
        driver.push([DriverRow(1, ((burst + 100 * n + k,),)) for k in range(100)])
        used.append(driver.modules.keys(0))
    # Dead keys wait for the hand of the sweep, because there is room for their ids.
    assert max(used[2:]) > 2_000
    assert driver.modules.classes[0, C_NEXT] <= most_ids(6, burst)
    driver.modules.check()


def test_the_sweep_takes_dead_keys_and_leaves_live_ones() -> None:
    driver = PlanDriver(one_class([rows_window(3), rows_window(2)]))
    driver.push([DriverRow(0, ((k,),)) for k in range(5)] + [DriverRow(1, ((k,),)) for k in (0, 4, 9, 1)])
    modules = driver.modules
    # Live: 2, 3, 4 in R; 9, 1 in S.
    assert set(key_ids(modules, 0).values()) == {(0,), (1,), (2,), (3,), (4,), (9,)}
    assert modules.classes[0, C_DEBT] == 12
    assert sweep(modules.arena) == 1
    assert modules.classes[0, C_DEBT] == 0
    assert set(key_ids(modules, 0).values()) == {(1,), (2,), (3,), (4,), (9,)}
    assert modules.classes[0, C_FREE] == 1
    modules.check()


def test_nothing_is_owed_while_no_key_is_new() -> None:
    driver = PlanDriver(one_class([rows_window(3), rows_window(3)]))
    rows = [DriverRow(i, ((k,),)) for k in range(3) for i in (0, 1)]
    for _ in range(10):
        driver.push(rows)
    assert driver.modules.classes[0, [C_NEXT, C_FREE, C_DEBT]].tolist() == [3, 0, 0]
    assert driver.modules.classes[0, C_SHIFT] == 65 - FIRST_SLOTS.bit_length()


def test_an_id_that_is_free_is_passed_over() -> None:
    directory = LoneDirectory()
    for k in range(6):
        directory.adopt((k,))
    modules = directory.modules
    directory.drop(2)
    directory.drop(4)
    modules.streams[:, [S_LO, S_NEXT]] = 100
    modules.renumber()
    assert modules.streams[0, S_BASE] > 0
    heads = modules.heads.view(0).reshape(-1, 2)
    assert heads[[2, 4], 0].tolist() == [FREED, FREED]
    assert directory.adopt((2,)) == 4
    modules.classes[0, C_DEBT] = 6
    assert sweep(modules.arena) == 5
    assert sorted(modules.freed.view(0)[:6].tolist()) == list(range(6))
    assert key_ids(modules, 0) == {}
    modules.streams[:, [S_LO, S_NEXT]] = 0
    modules.check()


def test_a_key_takes_over_heads_that_end_every_chain() -> None:
    driver = PlanDriver(one_class([rows_window(2), rows_window(2)]))
    for _ in range(3):
        driver.push([DriverRow(i, ((1,),)) for i in (0, 1)])
    driver.push([DriverRow(i, ((k,),)) for k in (2, 3) for i in (0, 1)])
    known = key_ids(driver.modules, 0)
    driver.push([DriverRow(0, ((4,),))])
    again = next(number for number, key in key_ids(driver.modules, 0).items() if key == (4,))
    assert known[again] == (1,)
    driver.push([DriverRow(1, ((4,),))])
    driver.modules.check()


@given(
    streams=st.integers(2, 9),
    width=st.sampled_from([1, 2]),
    live=st.integers(0, 120),
    dead=st.integers(1, 120),
    part=st.sampled_from([1, 3, 1000]),
    marked=st.sampled_from([0, 0.2]),
    seed=st.integers(0, 10**6),
)
def test_the_sweep_takes_few_keys_and_many(
    streams: int, width: int, live: int, dead: int, part: int, marked: float, seed: int
) -> None:
    # Few dead keys are removed from the table one by one; if they are many, the table is filled anew.
    rng, every = random.Random(seed), range(live + dead)
    modules = Modules(one_class([rows_window(10)] * streams, width))
    directory = LoneDirectory(width, modules)
    keys = [(rng.choice([homed_at(k % 9, k), rng.getrandbits(62)]), k)[:width] for k in every]
    for key in keys:
        while directory.adopt(key) < 0:
            modules._grow_keys(0)
    lows = [rng.randrange(1, 50) for _ in range(streams)]
    heads = modules.heads.view(0).reshape(-1, streams)
    heads[: live + dead] = [[rng.randrange(-1, low) for low in lows] for _ in every]
    alive = set(rng.sample(every, live))
    for kid in alive:
        column = rng.randrange(streams)
        heads[kid, column] = lows[column] + rng.randrange(3)
    marks = (np.random.default_rng(seed).random(heads.shape) < marked) & (heads >= 0)
    heads[marks] = MARKED - heads[marks]
    modules.attrs[:, A_MARKS] = marks.sum(axis=0)
    modules.meta[M_MARKS] = marks.sum()
    modules.streams[:, S_LO] = lows
    modules.streams[:, S_NEXT] = np.add(lows, live + dead)
    left = dict(enumerate(keys))
    while len(left) > live:
        modules.classes[0, C_DEBT] = rng.randrange(1, len(every) // part + 2)
        taken = sweep(modules.arena)
        assert len(left) - taken == len(key_ids(modules, 0))
        left = key_ids(modules, 0)
        assert alive <= left.keys()
        freed = modules.freed.view(0)[: modules.classes[0, C_FREE]].tolist()
        assert sorted([*freed, *left]) == list(every)
        assert [directory.find(key) for key in keys] == [kid if kid in left else -1 for kid in every]
        marks = heads <= MARKED
        assert modules.attrs[:, A_MARKS].tolist() == marks.sum(axis=0).tolist()
        assert modules.meta[M_MARKS] == marks.sum()
        assert (heads[freed, 0] == FREED).all()
