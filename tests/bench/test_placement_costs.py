"""The costs of a batch join on Spark: the fit finds those that made the seconds, whatever the code has."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest

from bench.harness.figure import number
from bench.placement_costs import SHARED, MeasuredJoin, drawn, fitted, points, rows_of
from bench.placement_spark import points as judged
from eddy.spark.hops.costs import TaskCosts, TaskWork

TRUE = {
    "grid": TaskCosts(0.3, 0.02, 1e-8, 3e-7, 6e-9, 5e-8, 2e-8),
    "hops": TaskCosts(0.3, 0.02, 1e-8, 5e-8, 6e-9, 7e-8, 9e-8),
}


def seen(count: int) -> list[dict[str, MeasuredJoin]]:
    """Joins that take exactly what the costs above say."""
    rng = np.random.default_rng(1)
    joins = []
    for _ in range(count):
        works = {way: TaskWork(*(rng.uniform(1, 10, 2)), *(10 ** rng.uniform(5, 8, 5))) for way in TRUE}
        joins.append({way: MeasuredJoin(way, work, TRUE[way].seconds(work)) for way, work in works.items()})
    return joins


def test_a_fit_finds_the_costs_that_made_the_seconds() -> None:
    fitted_costs = fitted([join for by_way in seen(20) for join in by_way.values()])
    for way, costs in TRUE.items():
        assert astuple(fitted_costs[way]) == pytest.approx(astuple(costs))


def test_no_part_costs_less_than_nothing() -> None:
    draw = np.random.default_rng(2)
    joins = [
        MeasuredJoin(way, join.work, join.seconds * draw.uniform(0.3, 3))
        for by_way in seen(12)
        for way, join in by_way.items()
    ]
    assert all(cost >= 0 for costs in fitted(joins).values() for cost in astuple(costs))


def test_rows_have_both_costs_and_the_errors_of_both() -> None:
    (point,) = points(False)
    joins = drawn(point)
    rows = rows_of(joins, seen(len(joins)))
    parts = [row for row in rows if "part" in row]
    assert [(row["way"], row["part"]) for row in parts] == [(way, part) for way in TRUE for part in SHARED]
    errors = {row["figure"]: number(row, "value") for row in rows if "figure" in row}
    assert errors["placement_costs.fit_error"] < 1e-6 < errors["placement_costs.code_error"]
    assert errors["placement_costs.code_vs_better"] >= 1


def test_no_join_is_a_point_of_the_figure_that_the_costs_are_judged_by() -> None:
    known = {judged_point["rows"] for full in (False, True) for judged_point in judged(full)}
    assert not known & {join["rows"] for full in (False, True) for (point,) in [points(full)] for join in drawn(point)}
