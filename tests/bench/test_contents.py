"""What the list of figures says is there, is there."""

from __future__ import annotations

import pytest

from bench import cli
from bench.contents import CHAPTERS, NAMES, UnknownFigure, load


def test_modules_make_the_figures_they_are_listed_with() -> None:
    assert [figure.name for figure in load()] == list(NAMES)
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("figure", load(), ids=lambda figure: figure.name)
def test_points_are_told_apart(figure) -> None:
    for full in (False, True):
        points = [dict(point) for point in figure.points(full)]
        assert points
        assert all(points.count(point) == 1 for point in points)


@pytest.mark.parametrize("figure", load(), ids=lambda figure: figure.name)
def test_plots_and_grids_have_names_of_their_own(figure) -> None:
    assert len({plot.name for plot in figure.plots}) == len(figure.plots)
    assert all(plot.kind in ("lines", "steps", "bars") for plot in figure.plots)
    assert figure.about.strip().endswith(".")
    assert all(len(grid.value) == 1 for grid in figure.grids if grid.across)


def test_every_figure_is_a_command() -> None:
    names = {command.name or command.callback.__name__ for command in cli.app.registered_commands if command.callback}
    assert set(NAMES) <= names


def test_figures_come_in_the_order_of_the_report() -> None:
    names = [NAMES[-1], NAMES[0]]
    assert [figure.name for figure in load(names)] == names[::-1]
    with pytest.raises(UnknownFigure, match=r"no figure 'fig99'; there are limit, "):
        load(["fig99"])


def test_chapters_are_told_what_they_show() -> None:
    assert all(shows for chapter in CHAPTERS for shows in chapter.figures.values())
