"""Costs of the simulated clock."""

from __future__ import annotations

import pytest

from bench.simulated.cluster import Costs, fitted
from bench.simulated.cluster.work import WorkCounts


def test_costs_add_up() -> None:
    costs = Costs(push=1, row=2, probe=3, match=4, entry=5, result=6, load=7, pack=8)
    assert costs.seconds(WorkCounts(*range(8))) == pytest.approx(sum(k * (k + 1) for k in range(8)))
    assert WorkCounts(rows=3) + WorkCounts(rows=2, probes=1) - WorkCounts(rows=1) == WorkCounts(rows=4, probes=1)


def test_costs_are_fitted_to_this_machine() -> None:
    costs, error = fitted(pushes=2)
    assert 1e-9 < costs.row + costs.probe + costs.match + costs.entry < 1e-3
    assert 1e-9 < costs.load < 1e-3
    assert min(costs.row, costs.probe, costs.match, costs.entry, costs.result, costs.pack) >= 0
    assert 0 <= error < 1
