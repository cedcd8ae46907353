"""The shapes of the benchmark of adaptivity: seeded, of all kinds, and drawn as declared."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from bench.workloads.families import CORRELATED, HOT, SHAPES, UNIFORM, ZIPF
from bench.workloads.shapes import (
    CHANGES,
    FAST_OSCILLATION,
    SLOW_OSCILLATION,
    STATIONARY,
    Draw,
    ShapeArrivals,
    WorkloadShape,
    between,
    columns,
)

ALL = pytest.mark.parametrize("shape", list(SHAPES.values()), ids=list(SHAPES))


def same(arrivals: ShapeArrivals, other: ShapeArrivals) -> bool:
    mine = [column for key_columns in arrivals.keys for column in key_columns]
    theirs = [column for key_columns in other.keys for column in key_columns]
    return np.array_equal(arrivals.order, other.order) and all(map(np.array_equal, mine, theirs))


def test_there_are_all_kinds() -> None:
    assert len(SHAPES) >= 16
    assert {shape.change for shape in SHAPES.values()} == set(CHANGES)
    assert {shape.keys for shape in SHAPES.values()} == {UNIFORM, ZIPF, CORRELATED, HOT}
    families = {shape.family for shape in SHAPES.values()}
    assert families >= {"same-key-4", "same-key-10", "same-key-20", "chain-4", "chain-6", "star-5"}
    assert families >= {"snowflake-7", "cycle-4", "clique-4", "chain-4-skewed-rates"}


@ALL
def test_a_shape_is_what_its_words_say(shape: WorkloadShape) -> None:
    for word in (shape.family, shape.keys, shape.change):
        assert word.replace(" ", "-").lower() in shape.name
    names = [phase.name for phase in shape.phases]
    assert (len(names) == 1) == (shape.change == STATIONARY)
    turnovers = [phase.arrivals / shape.turnover(phase) for phase in shape.phases]
    if shape.change == FAST_OSCILLATION:
        assert max(turnovers) < 0.25
    if shape.change == SLOW_OSCILLATION:
        assert min(turnovers) >= 5
    if "oscillation" in shape.change:
        assert len(names) >= 2 * len(set(names))


@ALL
def test_equal_seeds_give_equal_arrivals(shape: WorkloadShape) -> None:
    small = shape.scaled(0)
    drawn = small.draw(1)
    assert same(drawn, small.draw(1))
    assert not same(drawn, small.draw(2))


@ALL
def test_pushes_hold_all_arrivals_once_and_end_with_their_phase(shape: WorkloadShape) -> None:
    small = shape.scaled(0)
    arrivals = small.draw(1)
    pushes = arrivals.pushes(small.push)
    assert np.array_equal(np.concatenate([order for _, (_, order) in pushes]), arrivals.order)
    pushed = Counter[str]()
    for name, (rows, order) in pushes:
        assert [len(batch) for batch in rows.values()] == np.bincount(order, minlength=len(rows)).tolist()
        pushed[name] += len(order)
    wanted = Counter({"": sum(small.rows)})
    for phase in small.phases:
        wanted[phase.name] += phase.arrivals
    assert pushed == wanted


@ALL
def test_warm_arrivals_fill_each_window_exactly(shape: WorkloadShape) -> None:
    arrivals = shape.scaled(0).draw(3)
    assert tuple(np.bincount(arrivals.order[: arrivals.warm]).tolist()) == shape.rows


def test_draws() -> None:
    rng = np.random.default_rng(1)
    draws = {"a": Draw(50, 0.2, hot=0.1), "b": Draw(50, 0.2, luck="a"), "c": Draw(50, 0.9, luck="-a")}
    draws["d"] = Draw(9, skew=1)
    a, b, c, d = columns(draws, 3, 20_000, rng)
    hit = [column < 1 << 32 for column in (a, b, c)]
    assert [flags.mean() for flags in hit] == pytest.approx([0.2, 0.2, 0.9], abs=0.02)
    assert (hit[0] == hit[1]).all()
    assert (hit[0] & hit[2]).mean() == pytest.approx(0.1, abs=0.02)
    assert (a == 0).mean() == pytest.approx(0.1, abs=0.02)
    shares = np.bincount(d) / len(d)
    assert shares[0] == pytest.approx(2 * shares[1], rel=0.1)
    other = columns({"a": Draw(50, 0.0)}, 4, 1_000, rng)[0]
    assert not set(other.tolist()) & set(a.tolist())


def test_between_two_draws() -> None:
    assert between(Draw(10, 0.5, luck="-a"), Draw(20), 0) == Draw(10, 0.5, luck="-a")
    assert between(Draw(10, 0.5), Draw(20), 1) == Draw(20)
