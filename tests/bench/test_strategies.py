"""The figure of all strategies: all strategies give the same results, and each has a row."""

from __future__ import annotations

import pytest

from bench.strategies import FIGURES, PERMUTED, WORKLOADS, run_of, work_of
from bench.ways.published import KINDS

SIZES = {"push": 1_000, "part": 0.001, "rounds": 1, "seed": 3}


@pytest.mark.campaign(0)
def test_a_point_has_a_row_for_each_strategy() -> None:
    (figure,) = FIGURES
    rows = figure.measure({"workload": PERMUTED, **SIZES, "push": 2_000}, lambda said: None)
    assert [row["strategy"] for row in rows] == list(KINDS)
    for row in rows:
        assert 0 < float(row["push_ms_p50"] or 0) <= float(row["push_ms_p99"] or 0)
        assert row["results_per_arrival"] == pytest.approx(1.0)
        assert float(row["matches_per_arrival"] or 0) >= 1


@pytest.mark.campaign(1)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_plans_of_a_workload_differ_and_give_the_same_results(workload: str) -> None:
    work = work_of({"workload": workload, **SIZES})
    assert work.plans[0] != work.plans[1]
    assert run_of(work, "jisc").results == run_of(work, "mjoin").results
    assert run_of(work, "jisc").changes == 1
