"""The benchmark of adaptivity: all contenders do the same work, and the ratios follow from the measured times."""

from __future__ import annotations

import numpy as np
import pytest

from bench.adaptivity import (
    ALL_STORED,
    CACQ,
    DEFAULT,
    DEFAULT_ORDER,
    FIXED,
    GATHERING,
    NOT_GATHERING,
    PER_PHASE,
    RATIOS,
    measure_shape,
    race,
    ratios,
    wanted,
)
from bench.fixed_plans import Times, best_fixed, best_per_phase, fixed_plans, in_the_running, texts
from bench.harness.figure import number
from bench.workloads.families import SHAPES, SNOWFLAKE, STAR, ZIPF, arms, either, points, shape, turns
from bench.workloads.shapes import ABRUPT, STATIONARY, Draw, WorkloadShape

FLAKE = "snowflake-7"
TINY = [
    shape(FLAKE, "uniform", ABRUPT, SNOWFLAKE, 20, turns([either(20, k, 2, 0.2) for k in "US"], 300), push=100),
    shape(FLAKE, "hot key", STATIONARY, SNOWFLAKE, 20, turns([arms(20, "U", 2, 0.3, C_a=Draw(10, hot=0.2))], 500), 130),
    shape("star-5", ZIPF, STATIONARY, STAR, 20, turns([points(20, Draw(20, skew=0.5))], 500)),
]


def made_up(default: float = 2.0) -> Times:
    """Two phases of four pushes; P is best in the first and Q in the second."""
    first, second = [1.0] * 4, [3.0] * 4
    return Times(
        [DEFAULT, CACQ, "P", "Q", GATHERING, NOT_GATHERING],
        np.array([[default] * 8, [4.0] * 8, first + second, second + [2.0] * 4, [2.2] * 8, [2.0] * 8]),
        ["a"] * 4 + ["b"] * 4,
    )


def test_ratios_are_times_of_others_by_that_of_the_default() -> None:
    figures = ratios(made_up(), ["Q", "P"])
    assert figures[FIXED] == pytest.approx(16 / 16)
    assert figures[PER_PHASE] == pytest.approx((4 + 8) / 16)
    assert figures[DEFAULT_ORDER] == pytest.approx(20 / 16)
    assert figures["vs_cacq"] == pytest.approx(2)
    assert figures["best_fixed_vs_best_per_phase"] == pytest.approx(12 / 16)
    assert figures["statistics_cost"] == pytest.approx(0.1)
    assert "vs_all_stored" not in figures


def test_the_best_is_not_the_best_by_noise() -> None:
    rng = np.random.default_rng(1)
    noise = rng.uniform(0.5, 1.5, (200, 40))
    times = Times([str(k) for k in range(200)], noise, ["a"] * 40)
    assert noise.sum(axis=1).min() < 36
    assert best_fixed(times, times.names) == pytest.approx(40, rel=0.06)
    assert best_per_phase(times, times.names) == best_fixed(times, times.names)


def test_a_phase_of_one_push_does_not_decide_for_another() -> None:
    times = Times(["P", "Q"], np.array([[1.0, 3.0], [3.0, 2.0]]), ["a", "b"])
    assert best_fixed(times, ["P", "Q"]) == 4
    assert best_per_phase(times, ["P", "Q"]) == 3


def test_a_plan_that_is_near_the_best_in_one_phase_stays() -> None:
    times = Times(["P", "Q", "R"], np.array([[1.0, 9.0], [9.0, 1.0], [4.0, 4.0]]), ["a", "b"])
    assert in_the_running(times, ["P", "Q", "R"], 3) == ["P", "Q"]
    assert in_the_running(times, ["P", "Q", "R"], 4) == ["P", "Q", "R"]


@pytest.mark.parametrize("tiny", TINY, ids=lambda workload: workload.name)
def test_all_contenders_find_the_same(tiny: WorkloadShape) -> None:
    plans = texts(fixed_plans(tiny.query.graph), tiny.query.graph)
    run = race(tiny, [DEFAULT, CACQ, ALL_STORED, *plans], plans[0], 1)
    assert run.results > 0
    assert (run.times.seconds > 0).all()
    assert run.times.phases == [name for name, _ in tiny.draw(1).pushes(tiny.push) if name]
    assert race(tiny, [DEFAULT], plans[0], 1).results == run.results


def test_figures_of_a_shape() -> None:
    figures = measure_shape(TINY[0], {"rounds": 2, "part": 3.0, "short": 0.15, "plans": 50}, lambda doing: None)
    assert all(number(figures, name) > 0 for name in RATIOS)
    assert number(figures, f"{FIXED}_low") <= number(figures, FIXED) <= number(figures, f"{FIXED}_high")
    assert figures["n_fixed"] == 6
    assert 0 < number(figures, "worst_order_vs_best_order") <= 1
    assert figures["wanted"] == "best plan of each phase ≥ 0.9, best fixed plan ≥ 1"
    assert figures["reached"] == (number(figures, PER_PHASE) >= 0.9 and number(figures, FIXED) >= 1)


def test_what_is_wanted() -> None:
    for workload in SHAPES.values():
        least = wanted(workload)
        assert least
        assert (DEFAULT_ORDER in least) == workload.family.startswith(("same-key", "star"))
        if workload.change == STATIONARY:
            assert least[FIXED] == 0.95
        elif "fast" in workload.change:
            assert least == {FIXED: 0.9}
        else:
            assert least[PER_PHASE] == 0.9
