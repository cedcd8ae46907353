"""The generator of the table in the README."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.limit import BARS
from bench.readme import (
    ADAPTIVITY,
    BEGIN,
    END,
    README,
    SECTIONS,
    TITLES,
    TRANSITION_TITLES,
    TRANSITIONS,
    ReadmeError,
    main,
    table,
    with_table,
    with_tables,
)
from bench.transitions import BARS as MOST

MACHINE = "2 × a processor, Python 3.11.7, numba 0.68"
FIGURES = {"machine": MACHINE, "W1.engine_vs_loop": 0.61789, "W1.loop_tuples_per_s": 2e7}


def test_every_figure_that_is_wanted_has_a_title() -> None:
    assert set(BARS) <= set(TITLES)
    assert set(MOST) <= set(TRANSITION_TITLES)


def test_no_figure_is_of_two_benchmarks() -> None:
    every = [name for section in SECTIONS for name in section.figures]
    assert len(every) == len(set(every))


def test_the_table_names_machine_figures_and_what_is_wanted() -> None:
    lines = table(FIGURES).splitlines()
    assert lines[0] == f"Measured on {MACHINE}."
    assert lines[4:] == [
        "| W1, four streams on one key: engine / hand-written loop, row ids out | 0.618 | ≥ 0.5 |",
        "| W1, hand-written loop, tuples/s | 20 M |  |",
    ]


def test_strategies_are_rows_of_a_table_with_what_was_measured() -> None:
    figures = {"machine": MACHINE, "transition_call_ms": 0.8, "pause_ms.jisc.1000": 2.5, "pause_ms.stairs.10000": 40}
    assert table(figures, TRANSITIONS).splitlines()[4:] == [
        "| `transition` under jisc, 20 joins, all states change, ms | 0.8 | ≤ 1 |",
        "",
        "Longest pause within a turnover of the windows after it, ms:",
        "",
        "| strategy | windows of 10³ | windows of 10⁴ |",
        "|---|---|---|",
        "| jisc | 2.5 |  |",
        "| stairs |  | 40 |",
    ]


def test_shapes_are_rows_with_what_is_wanted_of_each() -> None:
    figures = {"machine": MACHINE, "star-5-zipf-stationary.vs_default_order": 0.987, "adaptivity.shapes": 1}
    assert table(figures, ADAPTIVITY).splitlines()[4:] == [
        "| Shapes measured | 1 |  |",
        "",
        "Speed of the default in terms of that of others:",
        "",
        "| shape | default order |",
        "|---|---|",
        "| star-5-zipf-stationary | 0.987 (≥ 0.95) |",
    ]


def test_one_object_with_figures_of_both_benchmarks() -> None:
    text = f"{BEGIN}{END} between {TRANSITIONS.begin}{TRANSITIONS.end}"
    made = with_tables(text, {**FIGURES, "transition_call_ms": 0.8})
    limit, transitions = made.split(" between ")
    assert "0.618" in limit
    assert "transition" not in limit
    assert "`transition` under jisc" in transitions
    assert with_tables(text, FIGURES).endswith(f"{TRANSITIONS.begin}{TRANSITIONS.end}")


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
    for section in SECTIONS:
        with_table(README.read_text(), FIGURES, section)


def test_the_command(tmp_path: Path) -> None:
    import typer

    limit, transitions, document = tmp_path / "limit.json", tmp_path / "transitions.json", tmp_path / "README.md"
    limit.write_text(json.dumps(FIGURES))
    transitions.write_text(json.dumps({"machine": MACHINE, "transition_call_ms": 0.777}))
    document.write_text(f"{BEGIN}{END}{TRANSITIONS.begin}{TRANSITIONS.end}")
    app = typer.Typer()
    app.command()(main)
    done = CliRunner().invoke(app, [str(limit), str(transitions), "--document", str(document)])
    assert done.exit_code == 0, done.output
    assert "0.618" in document.read_text()
    assert "0.777" in document.read_text()
