"""Each figure has a smallest size: its amounts shrink, and the kinds of its points stay."""

from __future__ import annotations

import pytest

from bench.contents import TITLES, load
from bench.smallest import AMOUNTS, with_smallest_points

OF_ONE_SIZE = ("propositions", "placement-spark", "placement-spark-costs", "placement-stream")
"""Figures in which the number of joins or streams is an amount, too: a point of Spark takes ten seconds."""


@pytest.mark.parametrize("figure", load(), ids=lambda figure: figure.name)
def test_structure_stays(figure) -> None:
    points = with_smallest_points(figure).points(False)
    assert points
    assert len(points) <= len(figure.points(False))
    for column in figure.points(False)[0]:
        values = {point.get(column) for point in figure.points(False)}
        if any(isinstance(value, str) for value in values) or column in ("joins", "streams"):
            assert {point.get(column) for point in points} == values or figure.name in OF_ONE_SIZE


def test_each_name_is_one_of_a_figure() -> None:
    assert all(any(name == title or title.startswith(f"{name}-") for title in TITLES) for name in AMOUNTS)
