"""The block of peers in the README."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import readme
from bench.contents import CHAPTERS, load
from bench.harness import report as pages
from bench.harness.store import FIGURES, MeasuredPoint, Store, figures_text
from bench.readme import MOST, ROOT, ReadmeError, block, main, with_block

MARKS = "<!-- figure peers -->\n{}<!-- /figure peers -->"
TEXT = f"before\n{MARKS.format('old')}\nafter\n"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    (figure,) = load(["peers"])
    rates = {"eddy": 1e6, "loop, C": 2e6, "loop, numba": 2e6, "Spark": 1e4, "eddy, counting": 3e6}
    rows = [{"peer": name, "tuples_per_s": rate, "eddy_faster": 1e6 / rate} for name, rate in rates.items()]
    rows.append({"peer": "Flink", "skipped": "not installed"})
    records = [MeasuredPoint({"windows": windows}, rows, "m", "2026-01-01") for windows in ("RANGE", "ROWS")]
    folder = tmp_path / "bench" / "report"
    folder.mkdir(parents=True)
    (folder / FIGURES).write_text(figures_text({"peers": (figure, records)}))
    return folder


def test_the_block_has_the_plot_and_a_row_for_each_engine(report: Path) -> None:
    assert block(report, report.parents[1] / "README.md").splitlines() == [
        "![Tuples a second of each peer](bench/report/plots/peers.svg)",
        "",
        "| engine | tuples/s | eddy is × as fast |",
        "|---|---|---|",
        "| loop, C | 2 M | 0.5 |",
        "| eddy | 1 M | 1 |",
        "| Spark | 10 000 | 100 |",
    ]


def test_only_the_block_is_replaced(report: Path) -> None:
    document = report.parents[1] / "README.md"
    once = with_block(TEXT, report, document)
    assert once.startswith("before\n<!-- figure peers -->\n\n![")
    assert once.endswith("| 100 |\n\n<!-- /figure peers -->\nafter\n")
    assert "old" not in once
    assert with_block(once, report, document) == once
    document.write_text(TEXT)
    main(report, document)
    assert document.read_text() == once


@pytest.mark.parametrize("text", ["", "<!-- figure peers -->\n", MARKS.format("") * 2, "<!-- /figure peers -->"])
def test_a_document_without_one_block_is_refused(text: str, report: Path) -> None:
    with pytest.raises(ReadmeError, match="needs one"):
        with_block(text, report, report / "README.md")


def test_a_report_without_peers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadmeError, match="no figures of peers"):
        block(tmp_path, tmp_path / "README.md")


def test_the_table_of_the_readme_is_short() -> None:
    lines = block(readme.ROOT / "bench" / "report", ROOT / "README.md").splitlines()
    assert 6 < len(lines) <= 4 + MOST


def test_the_committed_report_is_what_its_figures_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this test fails, run `eddy bench report`."""
    committed = ROOT / "bench" / "report"
    for name in (FIGURES, *(f"plots/{path.name}" for path in (committed / "plots").iterdir())):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((committed / name).read_bytes())
    chapters = {chapter.title: load(tuple(chapter.figures)) for chapter in CHAPTERS}
    monkeypatch.setattr(pages, "draw", lambda *_: None)  # plots take half a minute
    pages.write(chapters, Store(tmp_path / "points"), tmp_path)
    assert (tmp_path / "report.md").read_text() == (committed / "report.md").read_text()
    assert (tmp_path / FIGURES).read_text() == (committed / FIGURES).read_text()
