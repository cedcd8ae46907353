"""The figures of the report in the README."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bench.contents import CHAPTERS, NAMES, load
from bench.harness.report import POINTS, document
from bench.harness.stamp import stamp
from bench.harness.store import Store, record_of
from bench.limit import BARS
from bench.ratio_figures import FIGURES, ratios_of
from bench.ratios import ADAPTIVITY, LIMIT, SECTIONS, TITLES, TRANSITION_TITLES, TRANSITIONS, UntitledFigure, tables
from bench.readme import ROOT, ReadmeError, main, names_in, with_figures
from bench.transitions import BARS as MOST

README = ROOT / "README.md"
LAST = "after <!-- figure filters -->\n<!-- /figure filters -->\n"
TEXT = f"before\n<!-- figure limit -->\nold\n<!-- /figure limit -->\n{LAST}"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    rows = [{"figure": "W1.engine_vs_loop", "value": 0.4}, {"figure": "W1.loop_tuples_per_s", "value": 2e7}]
    store = Store(tmp_path / "report" / POINTS)
    store.add("limit", record_of({"sizes": "full"}, rows, stamp(), 1.0))
    return tmp_path / "report"


def test_every_figure_that_is_wanted_has_a_title() -> None:
    assert set(BARS) <= set(TITLES)
    assert set(MOST) <= set(TRANSITION_TITLES)


def test_no_figure_is_of_two_benchmarks() -> None:
    every = [name for section in SECTIONS for name in section.figures]
    assert len(every) == len(set(every))
    assert [section.name for section in SECTIONS] == [figure.name for figure in FIGURES]


def test_tables_give_figures_and_what_is_wanted() -> None:
    assert tables({"machine": "m", "W1.engine_vs_loop": 0.61789, "W1.loop_tuples_per_s": 2e7}, LIMIT) == [
        "| what | measured | wanted |",
        "|---|---|---|",
        "| W1, four streams on one key: engine / hand-written loop, row ids out | 0.618 | ≥ 0.5 |",
        "| W1, hand-written loop, tuples/s | 20 M |  |",
    ]


def test_strategies_are_rows_of_a_table_with_what_was_measured() -> None:
    figures = {"transition_call_ms": 0.8, "pause_ms.jisc.1000": 2.5, "pause_ms.stairs.10000": 40}
    assert tables(figures, TRANSITIONS)[2:] == [
        "| `transition` under jisc, 20 joins, all states change, ms | 0.8 | ≤ 1 |",
        "",
        "Longest pause within a turnover of the windows after it, ms:",
        "",
        "| strategy | windows of 10³ | windows of 10⁴ |",
        "|---|---|---|",
        "| jisc | 2.5 |  |",
        "| stairs |  | 40 |",
    ]


def test_shapes_are_counted_from_their_rows() -> None:
    rows = [
        {"figure": "star-5-zipf-stationary.vs_default_order", "value": 0.987},
        {"figure": "star-5-zipf-stationary.reached", "value": 1.0},
        {"figure": "chain-6-zipf-stationary.reached", "value": 0.0},
    ]
    assert tables(ratios_of(rows), ADAPTIVITY)[2:] == [
        "| Shapes measured | 2 |  |",
        "| of them all that is wanted is reached | 1 |  |",
        "",
        "Speed of the default in terms of that of others:",
        "",
        "| shape | default order |",
        "|---|---|",
        "| star-5-zipf-stationary | 0.987 (≥ 0.95) |",
    ]


def test_a_figure_without_a_title_is_refused() -> None:
    with pytest.raises(UntitledFigure, match=r"no title for W9\.speed"):
        tables({"W9.speed": 1.0}, LIMIT)


def test_what_stands_in_the_place_of_a_figure_is_replaced_and_nothing_else(report: Path) -> None:
    once = with_figures(TEXT, report, report.parent / "README.md")
    assert once.startswith("before\n<!-- figure limit -->\n\n| what |")
    assert "| 0.4 | ≥ 0.5 |" in once
    assert "- 0 of 1 bars are reached." in once
    assert "- Missed: W1, four streams on one key: engine / hand-written loop, row ids out: 0.4, wanted ≥ 0.5." in once
    assert once.endswith(f"<!-- /figure limit -->\n{LAST}")
    assert "old" not in once
    assert with_figures(once, report, report.parent / "README.md") == once


@pytest.mark.parametrize(
    "text",
    [
        "<!-- figure limit -->\n",
        "<!-- /figure limit --> <!-- figure limit -->\n",
        "<!-- figure limit -->\n<!-- /figure filters -->",
        "<!-- figure limit -->\n<!-- /figure limit -->" * 2,
    ],
)
def test_places_that_are_open_or_doubled(text: str) -> None:
    with pytest.raises(ReadmeError, match="once"):
        names_in(text)


def test_the_readme_has_places_for_figures_that_there_are() -> None:
    found = names_in(README.read_text())
    assert {"limit", "transitions", "adaptivity", "streaming"} <= set(found) <= set(NAMES)


def test_the_readme_and_the_report_are_what_the_points_give() -> None:
    """Else run `eddy bench report` and `python -m bench.readme`."""
    text = README.read_text()
    assert with_figures(text, ROOT / "bench" / "report", README) == text
    chapters = {chapter.title: load(tuple(chapter.figures)) for chapter in CHAPTERS}
    report = ROOT / "bench" / "report"
    assert document(chapters, Store(report / POINTS)) == (report / "report.md").read_text()


def test_the_command(report: Path) -> None:
    document = report.parent / "README.md"
    app = typer.Typer()
    app.command()(main)
    options = ["--report", str(report), "--document", str(document)]
    document.write_text("nothing")
    assert isinstance(CliRunner().invoke(app, options).exception, ReadmeError)
    document.write_text(TEXT)
    done = CliRunner().invoke(app, options)
    assert done.exit_code == 0, done.output
    assert "limit" in done.output
    assert "| 0.4 |" in document.read_text()
