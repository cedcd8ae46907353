"""`eddy bench joins` runs, and all ways to join give as many results (it raises where they do not)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.harness.figure import number
from bench.harness.turns import Mismatch
from bench.joins import FIGURES, Band, CountWay, DifferenceQuery, Interval, Left, RuntimeWay, Theta, ThetaLoop


@pytest.mark.parametrize("workload", [Theta, Band, Interval, Left, DifferenceQuery])
def test_a_workload_is_measured(workload: Any) -> None:
    (figure,) = FIGURES
    point = {"workload": workload.name, "window": 400, "rows": 20_000, "rounds": 1}
    rows = {row["figure"]: number(row, "value") for row in figure.measure(point, lambda said: None)}
    assert rows.keys() == {workload.figure, f"{workload.name}.results_per_arrival"} <= figure.titles.keys()
    assert all(value > 0 for value in rows.values())


def test_a_tuple_in_a_thousand_matches() -> None:
    theta = Theta(2_000)
    loop = ThetaLoop(2_000)
    loop.take(theta.pushes(theta.fill))
    assert abs(loop.take(theta.pushes(20_000))[1] / (20_000 * 2_000) - 0.001) < 0.0001


def test_bands_are_searched_in_one_way_alone() -> None:
    band = Band(1_000)
    pushes = band.pushes(6_000)
    counts = [way.take(pushes)[1] for way in band.ways.values()]
    assert counts[0] == counts[1]
    assert abs(counts[0] / (6_000 * 900) - 0.001) < 0.0002
    searched = [
        isinstance(way, CountWay) and way.runtime._pipeline.join.modules.bands.nbytes > 0 for way in band.ways.values()
    ]
    assert searched == [True, False]


def test_ways_that_differ_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = RuntimeWay.take
    monkeypatch.setattr(RuntimeWay, "take", lambda way, pushes: tuple(np.add(honest(way, pushes), (0, 1))))
    point = {"workload": "theta", "window": 100, "rows": 2_000, "rounds": 1}
    with pytest.raises(Mismatch, match="numbers of results differ"):
        FIGURES[0].measure(point, lambda said: None)
