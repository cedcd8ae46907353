"""Figures of changes of a query: the counts are those that each kind promises, and rows fit the plots."""

from __future__ import annotations

import pytest

from bench import lifecycle
from bench.harness.figure import Figure, Point, Row, number
from eddy.queries.changes import CHANGES

POINT: Point = {"window": 4, "rounds": 1, "seed": 1}


def quiet(what: str) -> None:
    """Discard a progress message."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the runs short."""
    monkeypatch.setattr(lifecycle, "WINDOW", 12)
    monkeypatch.setattr(lifecycle, "KEYS", 3)
    monkeypatch.setattr(lifecycle, "ARRIVALS", 120)
    monkeypatch.setattr(lifecycle, "CHANGE_AT", 60)
    lifecycle._arrived.cache_clear()


def test_the_counts_are_those_that_the_kinds_promise() -> None:
    rows = {str(row["how"]): row for row in lifecycle.correctness(POINT, quiet)}
    assert set(rows) == set(CHANGES)

    def some(column: str) -> set[str]:
        return {how for how, row in rows.items() if number(row, column)}

    assert some("lost") == {"immediate", "delayed-drain", "graceful"}
    assert some("query_disorder") == {"drain-stream", "graceful-drain"}
    assert some("stream_disorder") == {"drain-query"}
    assert some("duplicates") == {"graceful-drain"}


@pytest.mark.campaign(1)
@pytest.mark.parametrize("figure", lifecycle.FIGURES, ids=lambda figure: figure.name)
def test_a_figure_has_rows_for_its_plots(figure: Figure) -> None:
    rows: list[Row] = [{**POINT, **row} for row in figure.measure(POINT, quiet)]
    assert [row["how"] for row in rows] == list(CHANGES)
    for plot in figure.plots:
        assert all(isinstance(number(row, plot.y), float) for row in rows)
    assert all(set(row) == {"window", "how", figure.plots[0].y} for row in figure.printed)
