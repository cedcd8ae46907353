"""Every figure in the list of figures exists."""

from __future__ import annotations

import pytest

from bench import cli
from bench.contents import TITLES, UnknownFigure, load


def test_modules_make_the_figures_they_are_listed_with() -> None:
    assert [figure.name for figure in load()] == list(TITLES)
    assert all(figure.title == TITLES[figure.name] for figure in load())


@pytest.mark.parametrize("figure", load(), ids=lambda figure: figure.name)
def test_points_are_told_apart(figure) -> None:
    for full in (False, True):
        points = [dict(point) for point in figure.points(full)]
        assert points
        assert all(points.count(point) == 1 for point in points)


@pytest.mark.parametrize("figure", load(), ids=lambda figure: figure.name)
def test_plots_and_tables_have_names_of_their_own(figure) -> None:
    assert len({plot.name for plot in figure.plots}) == len(figure.plots)
    assert all(plot.kind in ("lines", "steps", "bars") for plot in figure.plots)
    assert figure.about.strip().endswith(".")
    assert all(len(table.value) == 1 for table in figure.tables if table.across)


def test_every_figure_is_a_command() -> None:
    names = {command.name or command.callback.__name__ for command in cli.app.registered_commands if command.callback}
    assert set(TITLES) <= names


def test_figures_come_in_the_order_of_the_report() -> None:
    names = [list(TITLES)[-1], next(iter(TITLES))]
    assert [figure.name for figure in load(names)] == names[::-1]
    with pytest.raises(UnknownFigure, match=r"no figure 'fig99'; the figures are peers, "):
        load(["fig99"])


@pytest.mark.parametrize("figure", load(), ids=lambda figure: figure.name)
def test_bars_are_of_figures_that_have_titles(figure) -> None:
    assert set(figure.bars) <= set(figure.titles)
