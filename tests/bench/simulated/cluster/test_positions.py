"""Sets of positions against Python sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bench.simulated.cluster.positions import Positions

INTERVALS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20), st.integers(0, 6)), max_size=6)


def made(intervals: list[tuple[int, int, int]]) -> tuple[Positions, set[tuple[int, int]]]:
    positions, model = Positions.none(2), set()
    for split, start, length in intervals:
        positions = positions.with_interval(split, start, start + length)
        model |= {(split, p) for p in range(start, start + length)}
    return positions, model


def members(positions: Positions) -> set[tuple[int, int]]:
    return {
        (split, p)
        for split, intervals in enumerate(positions.intervals)
        for low, high in intervals
        for p in range(low, high)
    }


@given(INTERVALS, INTERVALS)
def test_sets_of_positions(first: list[tuple[int, int, int]], second: list[tuple[int, int, int]]) -> None:
    (a, a_model), (b, b_model) = made(first), made(second)
    assert members(a) == a_model
    assert a.rows == len(a_model)
    assert members(a.without(b)) == a_model - b_model
    assert a.covers(b) == (a_model >= b_model)
    assert all(low < high for intervals in a.intervals for low, high in intervals)
    everything = np.arange(30)
    for split in range(2):
        assert set(np.flatnonzero(a.contain(split, everything)).tolist()) == {p for s, p in a_model if s == split}
    pairs = np.meshgrid(np.arange(26), np.arange(26))
    both = a.contain_all([pairs[0].ravel(), pairs[1].ravel()])
    assert both.sum() == len([0 for s, _ in a_model if s == 0]) * len([0 for s, _ in a_model if s == 1])
