"""Bands contain what the rings of values contain, whatever happened to the SteMs: a search finds what numpy finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stairs.bands import PAUSE, Sizes
from stairs.checks.bands import check_bands
from stairs.descriptors import B_REFUSED, B_SLOTS, B_UPTO, Q_FIELDS, Q_TUPLE, S_LO, S_NEXT
from stairs.errors import StateError
from stairs.graph import FOREVER, ComparedValue, Comparison, JoinGraph, Window, WindowKind
from stairs.kernels.accelerate import jit
from stairs.kernels.bands import count_seen, count_within, lane, search, sort_in, take
from stairs.kernels.memory import poke_int64
from stairs.memory.arena import Arena
from stairs.stems import Stems

EXTREME = (-FOREVER, -FOREVER + 1, -1, 0, 1, FOREVER - 1, FOREVER)
GRAPH = JoinGraph(
    ("R", "S"),
    (Window(WindowKind.UNBOUNDED),) * 2,
    attributes=((0,), (0,)),
    widths=(1,),
    comparisons=(Comparison(ComparedValue(0, 0), ComparedValue(1, 1), -5, 5),),
    scans=(0,),
)
BAND, STREAM, RING = 2, 1, 1


@jit
def sort_tuples_in(arena: Arena, low: int, following: int) -> None:
    sort_in(arena, BAND, STREAM, RING, low, following)


@jit
def find(
    bands: np.ndarray, low: int, high: int, first: int, last: int, counted: bool, partials: np.ndarray
) -> tuple[int, int]:
    # Another lane is searched for together with it.
    for q, bound in enumerate((0, low)):
        poke_int64(lane(bands[BAND], 0, q), max(bound, -2 * FOREVER))
    search(bands, BAND, 2)
    count = count_within(bands, BAND, 1, high) if counted else count_seen(bands, BAND, 1, high, first, last)
    return count, take(partials, 0, bands, BAND, 1, high, first, last, 7, 8)


class BandedRing:
    """SteMs of two streams without chains, and the band of the second ring of S."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        self.stems, self.chance = Stems(GRAPH), np.random.default_rng(seed)
        self.stems.bands.sizes = sizes
        self.before = self.stems.streams.copy()

    @property
    def bounds(self) -> tuple[int, int]:
        low, following = self.stems.streams[STREAM, [S_LO, S_NEXT]].tolist()
        return low, following

    def values(self, n: int) -> Any:
        few, any_ = self.chance.integers(-20, 20, n), self.chance.integers(-FOREVER, FOREVER, n, endpoint=True)
        return [few, any_, self.chance.choice(EXTREME, n), np.arange(n)][self.chance.integers(4)]

    def insert(self, n: int) -> None:
        low, following = self.bounds
        if following + n - low > self.stems.capacity[STREAM]:
            self.stems._grow_ring(STREAM, following + n - low)
        self.before = self.stems.streams.copy()
        slots = np.arange(following, following + n) & (self.stems.capacity[STREAM] - 1)
        self.stems.value_ring(STREAM, RING)[slots] = self.values(n)
        self.stems.recs.view(STREAM).reshape(-1, 2)[slots, 1] = self.chance.choice([-1, 0, 3], n)
        self.stems.streams[STREAM, S_NEXT] += n

    def expire(self, n: int) -> None:
        low, following = self.bounds
        self.stems.streams[STREAM, S_LO] = min(low + n, following)

    def undo(self, _: int) -> None:
        self.stems.streams[:, [S_LO, S_NEXT]] = self.before[:, [S_LO, S_NEXT]]
        self.stems.bands.forget(self.stems.streams)

    def renumber(self, _: int) -> None:
        self.stems.renumber()
        self.before = self.stems.streams.copy()

    def sort_in(self, _: int) -> None:
        low, following = self.bounds
        if self.stems.bands.table[BAND, B_SLOTS] < self.stems.capacity[STREAM]:
            self.stems.bands.make_room(BAND, self.stems.capacity[STREAM])
        sort_tuples_in(self.stems.arena, low, following)
        assert self.stems.bands.table[BAND, B_UPTO] == following
        check_bands(self.stems)

    def find(self, n: int) -> None:
        self.sort_in(0)
        low, high = sorted([*self.values(2)])
        if n % 5 == 0:
            low, high = -3 * FOREVER, 3 * FOREVER
        first, last = self.bounds[0] + n % 3, self.bounds[1] - n % 4
        tuples = np.arange(*self.bounds)
        slots = tuples & (self.stems.capacity[STREAM] - 1)
        values = self.stems.value_ring(STREAM, RING)[slots]
        joins = (values >= low) & (values <= high) & (self.stems.recs.view(STREAM).reshape(-1, 2)[slots, 1] >= 0)
        partials = np.empty((len(tuples) + 1) * Q_FIELDS, np.int32)
        counted, end = find(self.stems.arena.bands, low, high, first, last, n % 2 == 0, partials)
        matches = partials[:end].reshape(-1, Q_FIELDS)
        assert sorted(matches[:, Q_TUPLE]) == tuples[joins & (tuples >= first) & (tuples < last)].tolist()
        assert counted >= joins.sum() if n % 2 == 0 else counted == len(matches)
        if len(matches):
            assert set(matches[:, 0]) == {7}
            assert find(self.stems.arena.bands, low, high, first, last, False, partials[: end - 1])[1] == -1


STEPS = ("insert", "insert", "insert", "find", "find", "sort_in", "expire", "expire", "undo", "renumber")


@given(
    sizes=st.sampled_from([Sizes(0, 0, 0), Sizes(0, 0, 5), Sizes(0, 0, 50)]),
    seed=st.integers(0, 1 << 16),
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from([0, 1, 3, 20, 70, 300, 2500])), max_size=25),
)
def test_a_search_finds_what_numpy_finds(sizes: Sizes, seed: int, steps: list[tuple[str, int]]) -> None:
    ring = BandedRing(sizes, seed)
    for name, n in [*steps, ("find", 1), ("find", 2)]:
        getattr(ring, name)(n)


def test_an_undo_keeps_a_band_that_has_nothing_of_the_push() -> None:
    ring = BandedRing(Sizes(0, 0, 5), 1)
    ring.insert(200)
    ring.sort_in(0)
    ring.insert(30)
    ring.undo(0)
    assert ring.stems.bands.table[BAND, B_UPTO] == 200
    ring.insert(30)
    ring.expire(10)
    ring.sort_in(0)
    ring.undo(0)
    assert ring.stems.bands.table[BAND, B_UPTO] == 0
    # A push that lets tuples expire may sort in those of earlier pushes.
    ring.insert(20)
    ring.before = ring.stems.streams.copy()
    ring.expire(10)
    ring.sort_in(0)
    ring.undo(0)
    assert ring.stems.bands.table[BAND, B_UPTO] == 0


def test_the_check_finds_a_wrong_entry() -> None:
    ring = BandedRing(Sizes(0, 0, 5), 1)
    ring.insert(50)
    ring.sort_in(0)
    ring.stems.value_ring(STREAM, RING)[:] += 1
    with pytest.raises(StateError, match="S, band of ring 1: its live entries are not the tuples 0"):
        check_bands(ring.stems)


def test_bands_without_room_rest_for_some_pushes() -> None:
    stems = Stems(GRAPH)
    bands = stems.bands
    bands.make_room(BAND, 64)
    assert stems.state_bytes - Stems(GRAPH).state_bytes == bands.nbytes == bands.bytes_of(STREAM) > 64 * 12
    stems.allowance.limit = stems.state_bytes
    bands.make_room(0, 64)
    assert bands.memory(0) is None
    assert bands.drop()
    assert not bands.drop()
    refused = [bool(bands.table[:, B_REFUSED].any()) for _ in range(PAUSE + 1) if bands.begin() is None]
    assert refused == [True] * (PAUSE - 1) + [False] * 2
    assert bands.nbytes == 0
