"""`eddy bench`: all figures as one report, one figure by its name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import cli
from bench.contents import Chapter, UnknownFigure
from bench.harness.figure import Figure, Plot, Point, ReportTable, Row, Say
from bench.peers import environment

RUNNER = CliRunner()


def _places(folder: Path) -> list[str]:
    return ["--out", str(folder), "--points", str(folder / "points")]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Replace all figures by two of one point each; a figure fails if its name is in the returned set."""
    names: set[str] = set()

    def figure(name: str) -> Figure:
        def measure(point: Point, say: Say) -> Sequence[Row]:
            if name in names:
                raise RuntimeError("no luck")
            return [{"way": "a", "seconds": 2.0, "seconds_low": 1.0, "seconds_high": 3.0}]

        def points(full: bool) -> list[Point]:
            return [{"size": 20 if full else 10}]

        plot = Plot("Time", "size", "seconds", "way")
        table = ReportTable("Time", {"size": "size"}, {"seconds": "s"}, across="way")
        return Figure(name, "About it.", points, measure, f"The {name}", plots=[plot], tables=[table])

    def load(wanted: Sequence[str]) -> list[Figure]:
        if unknown := [name for name in wanted if name not in ("guard", "strategies")]:
            raise UnknownFigure(f"no figure {unknown[0]!r}")
        return [figure(name) for name in wanted]

    shows = {"guard": "a figure", "strategies": "another"}
    monkeypatch.setattr(cli, "CHAPTERS", (Chapter("Chapter", "", shows),))
    monkeypatch.setattr(cli, "TITLES", shows)
    monkeypatch.setattr(cli, "load", load)
    return names


@pytest.mark.usefixtures("broken")
def test_without_a_name_all_figures_make_one_report(tmp_path: Path) -> None:
    done = RUNNER.invoke(cli.app, [*_places(tmp_path), "--json", str(tmp_path / "out.json")])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "report.md").read_text()
    assert "### guard: The guard" in text
    assert "### strategies: The strategies" in text
    assert text.count("| 10 | 2 |") == 2
    assert (tmp_path / "out.json").read_text() == (tmp_path / "figures.json").read_text()
    assert (tmp_path / "plots" / "guard.svg").exists()


def test_a_point_that_fails_makes_the_run_fail_after_all_others(broken: set[str], tmp_path: Path) -> None:
    broken.add("guard")
    done = RUNNER.invoke(cli.app, [*_places(tmp_path)])
    assert done.exit_code == 1
    text = (tmp_path / "report.md").read_text()
    assert "Not measured: `eddy bench guard`." in text
    assert "| 10 | 2 |" in text
    broken.clear()
    assert RUNNER.invoke(cli.app, [*_places(tmp_path)]).exit_code == 0
    assert "Not measured" not in (tmp_path / "report.md").read_text()


@pytest.mark.usefixtures("broken")
def test_only_some_figures_and_the_sizes_of_the_papers(tmp_path: Path) -> None:
    done = RUNNER.invoke(cli.app, [*_places(tmp_path), "--only", "guard", "--full"])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "report.md").read_text()
    assert "| 20 | 2 |" in text
    assert "Not measured: `eddy bench strategies`." in text


@pytest.mark.usefixtures("broken")
def test_one_figure_is_printed(tmp_path: Path) -> None:
    done = RUNNER.invoke(cli.app, ["guard", "--points", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "The guard" in done.stdout
    figures = RUNNER.invoke(cli.app, ["guard", "--points", str(tmp_path), "--json", "-"])
    assert json.loads(figures.stdout)["figures"]["guard"]["rows"][0][-4:] == ["a", 2.0, 1.0, 3.0]


@pytest.mark.usefixtures("broken")
def test_a_figure_that_there_is_not(tmp_path: Path) -> None:
    done = RUNNER.invoke(cli.app, [*_places(tmp_path), "--only", "fig99"])
    assert isinstance(done.exception, UnknownFigure)
    assert not list(tmp_path.iterdir())


def test_peers_are_installed_when_asked_for_and_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(environment, "install", lambda name, say: made.append(name))
    done = RUNNER.invoke(cli.app, ["peers", "--install", "flink", "--install", "pathway"])
    assert done.exit_code == 0, done.output
    assert made == ["flink", "pathway"]


def test_the_smallest_sizes_show_what_fails_and_keep_nothing(
    broken: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert RUNNER.invoke(cli.app, ["--smallest"]).exit_code == 0
    broken.add("guard")
    done = RUNNER.invoke(cli.app, ["--smallest"])
    assert done.exit_code == 1
    assert "1 points failed" in done.stderr
    assert RUNNER.invoke(cli.app, ["--smallest", "--only", "strategies"]).exit_code == 0
    for option in (["--full"], ["--again"], ["--json", "figures.json"]):
        assert RUNNER.invoke(cli.app, ["--smallest", *option]).exit_code == 2
    assert not list(tmp_path.iterdir())
