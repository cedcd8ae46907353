"""The figure of all strategies: the same results, latencies of a queue, rows for each."""

from __future__ import annotations

import numpy as np
import pytest

from bench.strategies import FIGURES, PERMUTED, WORKLOADS, latencies, percentiles, run_of, work_of
from jisc.strategies import STRATEGIES

SIZES = {"push": 1_000, "part": 0.001, "rounds": 1, "seed": 3}


def test_a_point_has_a_row_for_each_strategy() -> None:
    (figure,) = FIGURES
    rows = figure.measure({"workload": PERMUTED, **SIZES, "push": 2_000}, lambda said: None)
    assert [row["strategy"] for row in rows] == list(STRATEGIES)
    for row in rows:
        assert 0 < float(row["push_ms_p50"] or 0) <= float(row["push_ms_p99"] or 0)
        assert 0 < float(row["result_ms_p50"] or 0) <= float(row["result_ms_p99"] or 0)
        assert row["results_per_arrival"] == pytest.approx(1.0)
        assert float(row["matches_per_arrival"] or 0) >= 1


@pytest.mark.parametrize("workload", WORKLOADS)
def test_plans_of_a_workload_differ_and_give_the_same_results(workload: str) -> None:
    work = work_of({"workload": workload, **SIZES})
    assert work.plans[0] != work.plans[1]
    assert run_of(work, "jisc").results == run_of(work, "mjoin").results
    assert run_of(work, "jisc").changes == 1


def test_pushes_wait_for_those_before_them() -> None:
    idle = latencies(np.full(50, 1e-6), [1_000] * 50, 1_000.0, seed=1)
    assert idle == pytest.approx(1e-6)
    busy = latencies(np.full(50, 2.0), [1_000] * 50, 1_000.0, seed=1)
    assert busy[0] == pytest.approx(2.0)
    assert busy[-1] > 40
    assert (np.diff(busy) > -1).all()


def test_percentiles_weigh() -> None:
    values = np.array([5.0, 1.0, 3.0])
    assert percentiles("ms", values, np.array([3, 90, 7])) == {"ms_p50": 1e3, "ms_p95": 3e3, "ms_p99": 5e3}
    assert percentiles("ms", values, np.zeros(3, np.int64)) == {"ms_p50": None, "ms_p95": None, "ms_p99": None}
