"""Figures of growth: all ways do the same work, and points describe it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from bench.growth import DEFAULT, FIGURES, LOOP, MJOIN, WAYS, measure, partner_share, point
from bench.harness.figure import Figure, Point, Row
from bench.harness.turns import Mismatch
from bench.ways.runners import (
    FOUR,
    ONE_KEY,
    EngineRunner,
    LoopRunner,
    Runner,
    RuntimeRunner,
    SmallPushes,
    fill,
    rounds,
    turn,
)
from bench.ways.w1_loops import PayloadLoop, compiler
from bench.workloads.sources import ArrivalChunk, Permuted, RandomSource, filling, one_key
from eddy import StateError

JOINS, WINDOWS, KEYS, _, _, RESULTS = FIGURES


def quiet(what: str) -> None:
    """Discard a progress message."""


def small(case: Point) -> Point:
    """Return a point over small windows."""
    keys = max(int(int(case["keys"]) * 50 / int(case["window"])), 2)
    sizes = {"window": 50, "keys": keys, "push": min(int(case["push"]), 100), "arrivals": 100, "rounds": 2, "settle": 0}
    return {**case, **sizes}


def count_one_by_one(chunk: ArrivalChunk, windows: list[deque[int]]) -> list[int]:
    """Return the results of each push of a join on one key, found by looking at every row of every window."""
    counts = []
    for order, keys in chunk.raw:
        total = 0
        for i, key in zip(order.tolist(), keys[:, 0].tolist(), strict=True):
            total += int(np.prod([rows.count(key) for j, rows in enumerate(windows) if j != i]))
            windows[i].append(key)
        counts.append(total)
    return counts


@pytest.mark.parametrize(("streams", "skew"), [*product([2, 3, 4, 5], [0.0, 1.0])])
def test_all_ways_find_what_looking_at_every_row_finds(streams: int, skew: float) -> None:
    window, keys = 20, 15
    query = one_key(streams, window)
    source = RandomSource(query, keys, 3, skew)
    ways: dict[str, Runner] = {
        "runtime": RuntimeRunner(query),
        "engine": EngineRunner(query),
        "loop": LoopRunner(FOUR if streams == 4 else ONE_KEY, streams, window, keys),
        "any loop": LoopRunner(ONE_KEY, streams, window, keys),
    }
    windows: list[deque[int]] = [deque(maxlen=window) for _ in range(streams)]
    for _ in range(3):
        chunk = source.draw(150, 40)
        expected = count_one_by_one(chunk, windows)
        assert [len(order) for order, _ in chunk.raw] == [40, 40, 40, 30]
        assert all(runner.take(chunk, expected)[1] == expected for runner in ways.values())
    assert sum(expected) > 0


def test_the_loop_in_c_moves_the_payload() -> None:
    cc = compiler()
    if cc is None:
        return
    source = RandomSource(one_key(4, 20, values=True), 15, 3)
    loop = PayloadLoop(cc, 20, 5, 20, 10_000)
    runtime = RuntimeRunner(source.query)
    for _ in range(3):
        chunk = source.draw(150, 150)
        ((rows, order),) = chunk.arrow
        table = runtime.runtime.push(rows, order)
        ((count,),) = [loop.take(chunk, [table.num_rows])[1]]
        assert count == table.num_rows
        columns = [column.to_pylist() for column in table.columns]
        assert sorted(zip(*loop.out[:, :count].tolist(), strict=True)) == sorted(zip(*columns, strict=True))
    assert count > 0
    with pytest.raises(StateError, match="room"):
        loop.take(chunk, [10_001])


def test_small_pushes_give_the_results_of_large_ones() -> None:
    query = one_key(3, 20)
    ways: dict[str, Runner] = {"large": EngineRunner(query), "small": SmallPushes(EngineRunner(query), 7)}
    assert turn(ways, RandomSource(query, 15, 3).draw(200, 50), 0)[1] > 0


def test_permutations_have_each_key_once_in_any_window() -> None:
    source = Permuted(one_key(3, 10), 10, 1)
    chunks = [source.draw(n, 50) for n in (37, 64, 200)]
    order = np.concatenate([chunk.order for chunk in chunks])
    keys = np.concatenate([chunk.keys for chunk in chunks])[:, 0]
    for i in range(3):
        stream_keys = keys[order == i]
        assert len(stream_keys) > 30
        assert all(sorted(stream_keys[k : k + 10]) == list(range(10)) for k in range(len(stream_keys) - 10))


def test_skew_makes_the_first_keys_frequent() -> None:
    query = one_key(2, 10)
    flat = np.bincount(RandomSource(query, 50, 1).draw(20_000, 100).keys[:, 0], minlength=50)
    skewed = np.bincount(RandomSource(query, 50, 1, 1.0).draw(20_000, 100).keys[:, 0], minlength=50)
    assert flat.max() < 1.3 * flat.min()
    assert skewed[0] / skewed[9] == pytest.approx(10, rel=0.2)
    assert skewed.argmax() == 0
    again = RandomSource(query, 50, 1, 1.0).draw(20_000, 100)
    assert (np.bincount(again.keys[:, 0], minlength=50) == skewed).all()


def test_a_chunk_is_the_same_in_all_its_forms() -> None:
    query = one_key(3, 10, values=True)
    chunk = RandomSource(query, 9, 1).draw(25, 10)
    for (order, keys), (same, columns), (rows, again) in zip(chunk.raw, chunk.columns, chunk.arrow, strict=True):
        assert (order == same).all()
        assert (order == again).all()
        for i, stream in enumerate(query.streams):
            stream_keys = keys[order == i, 0].tolist()
            assert columns[i][0].tolist() == stream_keys
            assert rows[stream.name]["k"].to_pylist() == stream_keys
            assert rows[stream.name]["v"].to_pylist() == np.flatnonzero(order == i).tolist()


@pytest.mark.parametrize("streams", [2, 30])
def test_windows_are_full_when_the_clock_runs(streams: int) -> None:
    runner = RuntimeRunner(one_key(streams, 40))
    fill({"runtime": runner}, RandomSource(one_key(streams, 40), 40, 2), filling([40] * streams, 20), 20)
    assert runner.live == streams * 40
    assert runner.nbytes > runner.state_bytes > 0


class Wrong(RuntimeRunner):
    """A Runner that reports one result too many."""

    def take(self, chunk: ArrivalChunk, known: Sequence[int] | None) -> tuple[float, list[int]]:
        seconds, results = super().take(chunk, known)
        return seconds, [results[0] + 1, *results[1:]]


def test_ways_that_differ_are_found_out() -> None:
    query = one_key(2, 10)
    ways: dict[str, Runner] = {"one": EngineRunner(query), "other": Wrong(query)}
    with pytest.raises(Mismatch, match="results differ"):
        turn(ways, RandomSource(query, 5, 1).draw(50, 10), 0)
    with pytest.raises(Mismatch, match="results differ"):
        rounds(ways, RandomSource(query, 5, 1), 50, 10, 1, quiet)


def test_a_loop_is_told_how_much_room_it_needs() -> None:
    query = one_key(2, 10)
    loop = LoopRunner(ONE_KEY, 2, 10, 5)
    chunk = RandomSource(query, 5, 1).draw(500, 100)
    with pytest.raises(StateError, match="pass the number of results"):
        loop.take(chunk, None)
    known = EngineRunner(query).take(chunk, None)[1]
    assert loop.take(chunk, known)[1] == known
    assert loop.kept.ids.shape[1] > max(known)


@pytest.mark.campaign(3)
@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_figure_has_rows_for_its_plots(figure: Figure) -> None:
    for full in (True, False):
        texts = {str(sorted(case.items())) for case in figure.points(full)}
        assert len(texts) == len(figure.points(full)) > 1
        assert all(isinstance(value, str | int | float) for case in figure.points(full) for value in case.values())
    rows: list[Row] = []
    points = figure.points(False)
    # The largest points are left out: 100 joins, and those of another series.
    for case in (points[0], points[2 if figure in (JOINS, KEYS) else -1]):
        point_rows = figure.measure(small(case), quiet)
        assert [row["way"] for row in point_rows] == list(WAYS)
        assert len({row["results_per_arrival"] for row in point_rows}) == 1
        for row in point_rows:
            assert 0 < float(str(row["ns_low"])) <= float(str(row["ns"])) <= float(str(row["ns_high"]))
            assert row["live"] == 50 * int(case["streams"])
            assert float(str(row["bytes"])) > float(str(row["state_bytes"])) > 0
            assert (row["way"] == DEFAULT) >= (float(str(row["deciding_ns"])) > 0)
        rows += [{**case, **row} for row in point_rows]
    for plot in figure.plots:
        assert {plot.x, plot.y, str(plot.by), *plot.where} <= set(rows[0]), plot.title


def test_all_figures_are_there_once() -> None:
    names = [figure.name for figure in FIGURES]
    assert names == [
        "growth-joins",
        "growth-window",
        "growth-keys",
        "growth-selectivity",
        "growth-batch",
        "growth-results",
    ]
    assert max(int(case["window"]) for case in WINDOWS.points(True)) == 10_000_000
    assert max(int(case["joins"]) for case in JOINS.points(True)) == 100


def test_results_per_arrival_are_those_asked_for() -> None:
    for case in RESULTS.points(False)[1:]:
        (row,) = measure({**case, "arrivals": 5_000, "rounds": 1, "ways": MJOIN}, quiet)
        assert float(str(row["results_per_arrival"])) == pytest.approx(float(case["wanted"]), rel=0.15)


def test_partner_share_is_what_is_drawn() -> None:
    rng = np.random.default_rng(1)
    held = [len(np.unique(rng.integers(0, 300, 100))) / 300 for _ in range(200)]
    assert partner_share(300, 100) == pytest.approx(float(np.mean(held)), rel=0.02)


def test_a_point_says_all_that_it_is_measured_by() -> None:
    assert point(True, (5, 3), streams=2, keys=3)["seed"] == 7
    assert point(False, (5, 3), ways=LOOP)["ways"] == LOOP
    assert [point(full, (5, 3))["arrivals"] for full in (True, False)] == [5, 3]
