"""The report says what was measured, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.harness.figure import Figure, Grid, Plot, Row
from bench.harness.plots import draw
from bench.harness.report import FIGURES, anchor, page, write
from bench.harness.rows import NotANumber
from bench.harness.stamp import stamp
from bench.harness.store import Store, record_of
from bench.harness.tables import cell, grid_text
from bench.harness.told import best_known, lines_of

SECONDS = Grid("Time", {"joins": "joins"}, {"seconds": "s"}, across="strategy")
FIGURE = Figure(
    "fig0",
    "A figure: of two | strategies",
    "What it is about.",
    lambda full: [{"joins": joins} for joins in ((5, 10, 20) if full else (5, 10))],
    lambda point, say: [],
    source="a paper, figure 0",
    plots=[Plot("Time by joins", "joins", "seconds", "strategy", spread=("seconds_low", "seconds_high"))],
    grids=[SECONDS],
    remarks=lambda rows: [f"{len(rows)} rows."],
    printed=[{"joins": 10, "strategy": "jisc", "seconds": 14.48}],
)
OTHER = Figure("fig1", "Nothing yet", "Never measured.", lambda full: [{"n": 1}], lambda point, say: [])


def rows_at(joins: int) -> list[Row]:
    return [
        {"strategy": name, "seconds": joins * by, "seconds_low": joins * by / 2, "seconds_high": joins * by * 2}
        for name, by in (("jisc", 1.0), ("cacq", 3.0))
    ]


def store_with(folder: Path, *joins: int) -> Store:
    store = Store(folder / "points")
    for count in joins:
        store.add("fig0", record_of({"joins": count}, rows_at(count), stamp(), 60.0))
    return store


def test_a_grid_has_what_was_measured_and_what_the_paper_prints() -> None:
    rows = [{"origin": "here", "joins": 5, **row} for row in rows_at(5)] + [{"origin": "paper", **FIGURE.printed[0]}]
    assert grid_text(SECONDS, rows) == [
        "Time (s):",
        "",
        "| joins | measured | jisc | cacq |",
        "|---|---|---|---|",
        "| 5 | here | 5 | 15 |",
        "| 10 | paper | 14.5 |  |",
    ]
    assert grid_text(SECONDS, []) == []


def test_a_grid_without_across_has_a_line_a_row() -> None:
    grid = Grid("Peers", {"peer": "peer"}, {"rate": "tuples/s", "ok": "same"}, where={"work": "W1"})
    rows: list[Row] = [
        {"peer": "a", "rate": 2.5e6, "ok": True, "work": "W1"},
        {"peer": "b", "rate": 12_345, "ok": None, "work": "W1"},
        {"peer": "c", "rate": 1.0, "work": "W2"},
    ]
    assert grid_text(grid, rows)[2:] == [
        "| peer | tuples/s | same |",
        "|---|---|---|",
        "| a | 2.5 M | yes |",
        "| b | 12 345 |  |",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (True, "yes"), (1_000, "1 000"), (0.12345, "0.123"), (-2.5e7, "-25 M"), ("a|b", "a\\|b")],
)
def test_cells(value: object, text: str) -> None:
    assert cell(value) == text  # type: ignore[arg-type]


def test_a_full_run_is_shown_when_it_is_whole(tmp_path: Path) -> None:
    store = store_with(tmp_path, 5, 10)
    assert [dict(record.point) for record in best_known(FIGURE, store)] == [{"joins": 5}, {"joins": 10}]
    assert len(best_known(FIGURE, store_with(tmp_path, 20))) == 3


def test_points_that_are_missing_are_said_to_be(tmp_path: Path) -> None:
    text = lines_of(FIGURE, best_known(FIGURE, store_with(tmp_path, 5)), "plots")
    assert text[-1].endswith("; points are missing.")
    assert "- 2 rows." in text
    assert "missing" not in lines_of(FIGURE, best_known(FIGURE, store_with(tmp_path, 10)), "plots")[-1]


def test_points_measured_beside_other_work_are_said_to_be(tmp_path: Path) -> None:
    store = store_with(tmp_path, 5)
    store.add("fig0", record_of({"joins": 10}, rows_at(10), stamp(), 60.0, others=0.8))
    store.add("fig0", record_of({"joins": 20}, rows_at(20), stamp(), 60.0, others=0.05))
    assert lines_of(FIGURE, store.records("fig0"), "plots")[-1].endswith(
        "; 1 of 3 points beside other work, of up to 0.8 cores."
    )
    assert lines_of(FIGURE, store.records("fig0")[1:2], "plots")[-1].endswith(
        "; points are missing; this point beside other work, of up to 0.8 cores."
    )
    assert "3 points, 1 of them beside other work, in 3 minutes" in write({"Chapter": [FIGURE]}, tmp_path).read_text()


def test_what_was_skipped_is_said_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    row: Row = {"strategy": "flink", "skipped": "flink: not installed"}
    store.add("fig0", record_of({"joins": 5}, [row, row], stamp(), 0.0))
    text = lines_of(FIGURE, store.records("fig0"), "plots")
    assert text.count("- Not measured: flink: not installed") == 1
    assert not any(line.startswith("![") for line in text)


def test_the_report(tmp_path: Path) -> None:
    store_with(tmp_path, 5, 10)
    path = write({"Chapter": [FIGURE, OTHER]}, tmp_path)
    text = path.read_text()
    assert "2 points in 2 minutes" in text
    assert "![Time by joins](plots/fig0.svg)" in text
    assert "Source: a paper, figure 0." in text
    assert "Not measured yet: `eddy bench fig1`." in text
    (link,) = [line for line in text.splitlines() if line.startswith("  - [fig0")]
    html = (tmp_path / "index.html").read_text()
    assert f'id="{link.split("(#")[1].rstrip(")")}"' in html
    assert "<td>15</td>" in html
    for name in ("plots/fig0.svg", "data/fig0.csv", "data/fig0.parquet"):
        assert (tmp_path / name).stat().st_size
        assert name in html
    figures = json.loads((tmp_path / FIGURES).read_text())
    assert figures["fig0/joins=10,strategy=cacq/seconds"] == {"value": 30.0, "low": 15.0, "high": 60.0}


def test_the_same_points_give_the_same_report(tmp_path: Path) -> None:
    store_with(tmp_path, 5, 10)
    names = ("report.md", "index.html", FIGURES, "plots/fig0.svg", "data/fig0.csv")
    write({"Chapter": [FIGURE]}, tmp_path)
    first = [(tmp_path / name).read_bytes() for name in names]
    write({"Chapter": [FIGURE]}, tmp_path)
    assert [(tmp_path / name).read_bytes() for name in names] == first


def test_a_report_of_nothing(tmp_path: Path) -> None:
    assert "Not measured yet" in write({"Chapter": [OTHER]}, tmp_path).read_text()


def texts(path: Path) -> list[str]:
    return [str(one.text) for one in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("kind", ["lines", "steps", "bars"])
def test_plots_name_axes_and_curves(kind: str, tmp_path: Path) -> None:
    plot = replace(FIGURE.plots[0], kind=kind, x_label="number of joins", log_y=True, marked={7.0: "here it changes"})
    rows: list[Row] = [{"joins": joins, **row} for joins in (5, 10) for row in rows_at(joins)]
    assert draw(plot, [*rows, {"origin": "paper", **FIGURE.printed[0]}], tmp_path / "plot.svg")
    found = texts(tmp_path / "plot.svg")
    assert {"jisc", "cacq", "jisc (paper)", "Time by joins", "number of joins", "here it changes"} <= set(found)


def test_a_plot_without_rows_is_not_drawn(tmp_path: Path) -> None:
    assert not draw(FIGURE.plots[0], [{"joins": 5}], tmp_path / "plot.svg")
    assert not (tmp_path / "plot.svg").exists()


def test_a_column_of_text_cannot_be_plotted(tmp_path: Path) -> None:
    with pytest.raises(NotANumber, match="'seconds' holds 'x'"):
        draw(FIGURE.plots[0], [{"joins": 5, "strategy": "a", "seconds": "x"}], tmp_path / "plot.svg")


def test_headings_have_the_anchors_of_links() -> None:
    assert f'<h3 id="{anchor("fig7: best `case`, 5–100")}">' in page("### fig7: best `case`, 5–100\n")
