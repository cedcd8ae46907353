"""`eddy bench as_of` runs, and all ways give the same sums (it raises where they do not)."""

from __future__ import annotations

from bench.as_of import FIGURES, WAYS
from bench.harness.figure import number


def test_a_star_is_measured() -> None:
    (figure,) = FIGURES
    point = {"keys": 100, "push": 500, "pushes": 3, "rounds": 2}
    rows = {row["figure"]: number(row, "value") for row in figure.measure(point, lambda said: None)}
    assert len(rows) == 2 * len(WAYS) - 1
    assert all(value > 0 for value in rows.values())
