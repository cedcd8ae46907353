"""Forecasts of a streaming join: costs that are fitted to its own micro-batches, and when it is measured."""

from __future__ import annotations

import json
from dataclasses import astuple, replace

import numpy as np
import pytest

from eddy import PlanError
from eddy.placement.keys import classes_of
from eddy.placement.synopses import distribution
from eddy.spark.hops.costs import TaskCosts, TaskWork
from eddy.spark.hops.hops import own_hops
from eddy.spark.hops.measured import LEAST_S, MOST, POINTS, MeasuredCosts, PlacementCosts
from eddy.spark.hops.saved import restored
from eddy.spark.partitioning.job import make_job
from eddy.spark.streaming.driver.forecast import GRID, HOPS, Forecasts
from eddy.spark.streaming.driver.placement import EVERY, REST, Placing, nearest
from tests.eddy.placement.chains import chain

TRUE = replace(GRID, c_p=3 * GRID.c_p, c_m=GRID.c_m / 2)


def works(n: int, seed: int) -> list[TaskWork]:
    """Return the work of micro-batches of different sizes, with few or many matches."""
    draw = np.random.default_rng(seed)
    rows = draw.uniform(5_000, 200_000, n)
    matches = rows * draw.uniform(0, 30, n)
    return [
        TaskWork(1, 8, count, 3 * count, 80 * count, 4 * count, matched)
        for count, matched in zip(rows, matches, strict=True)
    ]


def worst(costs: TaskCosts) -> float:
    """Return by which factor the worst prediction is off."""
    ratios = [costs.seconds(work) / TRUE.seconds(work) for work in works(100, 7)]
    return max(*ratios, *(1 / ratio for ratio in ratios))


@pytest.mark.parametrize("outliers", [0, 1])
def test_costs_are_fitted_to_the_micro_batches_that_ran(outliers: int) -> None:
    draw, kept = np.random.default_rng(2), MeasuredCosts()
    assert kept.factor(GRID) is None
    assert kept.costs(GRID, 1.0) == GRID
    for k, work in enumerate(works(12, 1)):
        times = 12 if k >= 12 - outliers else 1
        kept.add(work, times * TRUE.seconds(work) * draw.uniform(0.9, 1.1))
    factor = kept.factor(GRID)
    assert factor is not None
    scaled = TaskCosts(*(factor * cost for cost in astuple(GRID)))
    assert worst(kept.costs(GRID, factor)) < 1.3 < 1.7 < worst(scaled)


def test_points_are_stored_with_all_that_the_fit_needs() -> None:
    kept = MeasuredCosts()
    for work in works(POINTS + 5, 3):
        kept.add(work, TRUE.seconds(work))
    again = MeasuredCosts.from_json(json.loads(json.dumps(kept.to_json())))
    assert len(again) == POINTS
    assert again.factor(GRID) == kept.factor(GRID)
    assert again.costs(GRID, 1.3) == kept.costs(GRID, 1.3)
    assert again.to_json() == kept.to_json()


def test_a_point_that_no_manifest_may_have_is_left_out() -> None:
    kept = MeasuredCosts()
    for work, seconds in ((TaskWork(rows=2 * MOST), 1.0), (TaskWork(rows=np.nan), 1.0), (TaskWork(), np.inf)):
        kept.add(work, seconds)
    assert kept.to_json() == []
    kept.add(TaskWork(rows=1.0), 0.0)
    assert kept.to_json() == [[0, 0, 1, 0, 0, 0, 0, LEAST_S]]


def test_a_placement_that_never_ran_is_off_by_the_factor_of_the_other() -> None:
    query, draw = chain(4, 10), np.random.default_rng(3)
    forecasts, live = Forecasts(make_job(query, partitions=4), 2, PlacementCosts()), [500] * 4
    assert forecasts.costs() == (GRID, HOPS)
    assert forecasts.forecast(live, None) is None
    samples = {i: {c: draw.integers(0, 50, 100) for c in classes} for i, classes in enumerate(classes_of(query))}
    forecasts.add([100] * 4, [samples])
    before = forecasts.forecast(live, None)
    assert before is not None
    forecasts.took(None, [100] * 4, live, 3 * before.grid_s)
    after = forecasts.forecast(live, None)
    assert after is not None
    assert (after.grid_s, after.hops_s) == pytest.approx((3 * before.grid_s, 3 * before.hops_s), 1e-3)


def test_micro_batches_of_very_different_sizes_give_the_costs_of_each() -> None:
    """A point has the work of its own rows, not that of the rows that are usual."""
    query, draw = chain(3, 10), np.random.default_rng(6)
    job, live = make_job(query, partitions=4), [50_000] * 3
    forecasts, steady = Forecasts(job, 2, PlacementCosts()), Forecasts(job, 2, PlacementCosts())
    samples = {i: {c: draw.integers(0, 9_000, 4_000) for c in classes} for i, classes in enumerate(classes_of(query))}
    for k in range(12):
        rows = [100_000 if k % 3 == 0 else 50] * 3
        forecasts.add(rows, [samples])
        steady._rates, steady._samples, steady._keys = [float(count) for count in rows], forecasts._samples, None
        usual = steady.forecast(live, None)
        assert usual is not None
        forecasts.took(None, rows, live, 1.5 * usual.grid_s)
    assert [cost / usual for cost, usual in zip(astuple(forecasts.costs()[0])[1:], astuple(GRID)[1:], strict=True)] == (
        pytest.approx([1.5] * 6, 0.02)
    )


def test_a_settled_join_is_measured_in_one_of_several_micro_batches() -> None:
    query, draw, measured = chain(4, 10), np.random.default_rng(3), []
    placing = Placing(make_job(query, partitions=4), 2, "auto", None)
    for _ in range(REST + 4 * EVERY):
        assert placing.next() is None
        measured.append(placing.measures)
        assert (placing.steps([100] * 4) is None) != placing.measures
        if placing.measures:
            samples = {
                i: {c: draw.integers(0, 5000, 100) for c in classes} for i, classes in enumerate(classes_of(query))
            }
            placing.saw([100] * 4, [500] * 4, [samples], 0.02)
    assert all(measured[:REST])
    assert sum(measured[REST:]) == 4
    placing.ask("auto")
    placing.next()
    assert placing.measures
    placing.ask("grid")
    placing.next()
    assert not placing.measures


def test_a_restarted_join_begins_with_the_costs_that_it_had() -> None:
    query, draw = chain(4, 10), np.random.default_rng(5)
    job = make_job(query, partitions=4)
    placing = Placing(job, 2, "auto", None)
    hops = own_hops(query, nearest(query), 2, timed=True)
    samples = {i: {c: draw.integers(0, 50, 100) for c in classes} for i, classes in enumerate(classes_of(query))}
    for k in range(7):
        placing.hops = hops if k % 2 else None  # as after `next`
        placing.saw([100] * 4, [500] * 4, [samples], 0.02 * (1 + k))
    had = placing._forecasts.costs()  # type: ignore[union-attr]
    assert had[0] != GRID
    assert had[1] != HOPS
    before = restored(query, json.loads(json.dumps(placing.saved(hops))), "placement")
    for asked in (None, "hops", "grid"):
        again = Placing(job, 3, asked, None, before)
        assert again.saved(None)["costs"] == placing.saved(None)["costs"], "the next manifest has them, too"
        again.ask("auto")
        assert again._forecasts is not None
        assert again._forecasts.costs() == had
        assert "fitted to the micro-batches of this join: 4 in the grid, 3 in hops" in again.explain()


def test_a_plan_that_its_owner_changes_later_is_that_which_was_checked() -> None:
    query = chain(3, 10)
    plan = {head: list(steps) for head, steps in nearest(query).items()}
    placing = Placing(make_job(query, partitions=4), 2, plan, None)
    wanted = own_hops(query, nearest(query), 2, timed=True)
    plan["S0"][0] = ("nowhere", "ship")
    del plan["S1"]
    with pytest.raises(PlanError, match="no stream 'nowhere'"):
        placing.ask(plan)
    assert placing.next() == wanted


def test_samples_that_meet_again_give_what_they_gave() -> None:
    draw = np.random.default_rng(4)
    keys, other = draw.integers(0, 40, 300), draw.integers(20, 60, 200)
    first, two = distribution(keys), distribution(other)
    chance, shared = first.meet(two)
    assert chance == pytest.approx((keys[:, None] == other[None, :]).mean())
    assert set(shared.keys.tolist()) == set(keys.tolist()) & set(other.tolist())
    assert two.meet(first) is first.meet(two)
