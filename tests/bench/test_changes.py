"""`eddy bench changes` runs, and all ways give the same answers (it raises where they do not)."""

from __future__ import annotations

import pytest

from bench.changes import FIGURES, SHAPES, WAYS
from bench.harness.figure import number


@pytest.mark.campaign(2)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_measured(shape: str) -> None:
    (figure,) = FIGURES
    point = {"shape": shape, "window": 2_000, "push": 10 if shape == "categories" else 1_000, "pushes": 3, "rounds": 2}
    rows = {row["figure"]: number(row, "value") for row in figure.measure(point, lambda said: None)}
    assert len(rows) == 2 * len(WAYS) - 1
    assert rows.keys() <= figure.titles.keys()
    assert all(value > 0 for value in rows.values())
