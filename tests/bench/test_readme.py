"""The generator of the table in the README."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.limit import BARS
from bench.readme import BEGIN, END, README, TITLES, ReadmeError, main, table, with_table

MACHINE = "2 × a processor, Python 3.11.7, numba 0.68"
FIGURES = {"machine": MACHINE, "W1.engine_vs_loop": 0.61789, "W1.loop_tuples_per_s": 2e7}


def test_every_figure_that_is_wanted_has_a_title() -> None:
    assert set(BARS) <= set(TITLES)


def test_the_table_names_machine_figures_and_what_is_wanted() -> None:
    lines = table(FIGURES).splitlines()
    assert lines[0] == f"Measured on {MACHINE}."
    assert lines[4:] == [
        "| W1, four streams on one key: engine / hand-written loop, row ids out | 0.618 | ≥ 0.5 |",
        "| W1, hand-written loop, tuples/s | 20 M |  |",
    ]


def test_what_stands_between_the_markers_is_replaced_and_nothing_else() -> None:
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = with_table(text, FIGURES)
    assert once.startswith(f"before\n{BEGIN}\n\nMeasured on")
    assert once.endswith(f"|\n\n{END}\nafter\n")
    assert "old" not in once
    assert with_table(once, FIGURES) == once


@pytest.mark.parametrize("text", ["", BEGIN, f"{END} {BEGIN}", f"{BEGIN} {END} {BEGIN} {END}"])
def test_markers_missing_or_doubled(text: str) -> None:
    with pytest.raises(ReadmeError, match="once each"):
        with_table(text, FIGURES)


def test_figures_of_an_unknown_machine_or_without_a_title_are_refused() -> None:
    with pytest.raises(ReadmeError, match="machine"):
        table({"W1.engine_vs_loop": 0.6})
    with pytest.raises(ReadmeError, match=r"no title for W9\.speed"):
        table({**FIGURES, "W9.speed": 1.0})


def test_the_readme_has_the_markers() -> None:
    with_table(README.read_text(), FIGURES)


def test_the_command(tmp_path: Path) -> None:
    import typer

    figures, document = tmp_path / "figures.json", tmp_path / "README.md"
    figures.write_text(json.dumps(FIGURES))
    document.write_text(f"{BEGIN}{END}")
    app = typer.Typer()
    app.command()(main)
    done = CliRunner().invoke(app, [str(figures), str(document)])
    assert done.exit_code == 0, done.output
    assert "0.618" in document.read_text()
