"""The pace of streams, the windows expected ahead, and the first plan of a cluster that chooses."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from bench.simulated.placement.pace import StreamPace
from bench.simulated.placement.simulation import PlacementSimulation
from eddy.placement.costs import UnitCosts
from eddy.placement.synopses import Synopsis, distribution
from eddy.placement.tuples import Tuples
from stairs.graph import FOREVER
from tests.eddy.placement.chains import batches, chain, rows


def arrived(time: int, keys: list[int]) -> Tuples:
    ones = np.full(len(keys), time, np.int64)
    return Tuples({0: np.arange(len(keys))}, {0: np.array(keys, np.int64)}, ones, ones, ones)


def held(keys: list[int], rate: float) -> Synopsis:
    return Synopsis(rate, len(keys), 8.0, {0: distribution(np.array(keys, np.int64))})


def test_windows_fill_until_their_span_has_passed() -> None:
    pace = StreamPace([3])
    pace.note([arrived(0, [1, 2])])
    synopsis = held([1, 2], 2.0)
    # One epoch of a tick with two rows is held; the window has three more.
    assert [pace.ahead([synopsis], n)[0].window for n in (1, 2, 3, 4)] == [4, 5, 6, pytest.approx(26 / 4)]
    pace.note([arrived(4, [1, 2])])
    assert pace.ticks == 2.5
    assert pace.ahead([synopsis], 8)[0].window == pytest.approx((4 + 7 * 2 * (3 / 2.5 + 1)) / 8)


def test_windows_without_limit_grow() -> None:
    pace = StreamPace([FOREVER])
    pace.note([arrived(0, [1, 2])])
    assert pace.ahead([held([1, 2], 2.0)], 8)[0].window == 2 + 2 * 4.5


def test_rows_to_come_have_the_keys_of_the_newest_epoch() -> None:
    pace = StreamPace([1])
    pace.note([arrived(0, [1, 1])])
    pace.note([arrived(1, [1, 5])])
    ahead = pace.ahead([held([1, 1, 1, 5], 2.0)], 1)[0].keys[0]
    # The full window has two epochs: one that is held, with 1 and 5 as 3 to 1, and one to come, with as many of both.
    assert dict(zip(ahead.keys.tolist(), ahead.shares.tolist(), strict=True)) == {1: 0.625, 5: 0.375}


def test_a_stream_that_pauses_keeps_its_window() -> None:
    pace = StreamPace([3, 3])
    pace.note([arrived(0, [1]), arrived(0, [])])
    empty = held([7], 1.0)
    assert pace.ahead([held([1], 1.0), empty], 8)[1] is empty


def test_the_first_plan_moves_no_windows() -> None:
    query = chain(4)
    epochs = rows(query, 2, 100, 2000, 1)
    costs = UnitCosts(1e-6, 12.5e6, 1e-7, 1e-7, 3e-8, nested=False)
    cluster = PlacementSimulation(query, 16, costs=costs)
    for epoch in epochs:
        cluster.push(batches(query, epoch))
    assert cluster.history()["epoch"].to_pylist() == [0]
    assert cluster.kind == "hops"
    assert Counter(cluster.messages()["name"].to_pylist()) == {"Install": 15}
    assert {len(node.programs) for node in cluster.nodes} == {1}
