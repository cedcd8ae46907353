"""The report shows what was measured, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.harness.figure import NAMED, Figure, NotANumber, Plot, ReportTable, Row
from bench.harness.plots import draw
from bench.harness.report import body, measured, write
from bench.harness.store import FIGURES, Store, best_known, record_of
from bench.harness.tables import cell, table_text

SECONDS = ReportTable("Time", {"joins": "joins"}, {"seconds": "s"}, across="strategy")
FIGURE = Figure(
    "fig0",
    "What it is about.",
    lambda full: [{"joins": joins} for joins in ((5, 10, 20) if full else (5, 10))],
    lambda point, say: [],
    "A figure: of two | strategies",
    source="a paper, figure 0",
    plots=[Plot("Time by joins", "joins", "seconds", "strategy")],
    tables=[SECONDS],
    printed=[{"joins": 10, "strategy": "jisc", "seconds": 14.48}],
)
OTHER = Figure("fig1", "Never measured.", lambda full: [{"n": 1}], lambda point, say: [], "Nothing yet")


def rows_at(joins: int) -> list[Row]:
    return [
        {"strategy": name, "seconds": joins * by, "seconds_low": joins * by / 2, "seconds_high": joins * by * 2}
        for name, by in (("jisc", 1.0), ("cacq", 3.0))
    ]


def store_with(folder: Path, *joins: int) -> Store:
    store = Store(folder / "points")
    for count in joins:
        store.add("fig0", record_of({"joins": count}, rows_at(count), 60.0, 0.0))
    return store


def test_a_table_has_a_column_for_each_value_across() -> None:
    rows: list[Row] = [{"joins": joins, **row} for joins in (5, 10) for row in rows_at(joins)][:3]
    assert table_text(SECONDS, rows) == [
        "Time (s):",
        "",
        "| joins | jisc | cacq |",
        "|---|---|---|",
        "| 5 | 5 | 15 |",
        "| 10 | 10 |  |",
    ]
    assert table_text(SECONDS, []) == []


def test_figures_that_name_themselves_are_held_against_their_bars() -> None:
    figure = Figure(
        "limit",
        "About.",
        lambda full: [],
        lambda point, say: [],
        titles={"a_vs_b": "a / b", "c_s": "c"},
        bars={"a_vs_b": "≥ 0.5", "c_s": "≤ 1"},
    )
    rows: list[Row] = [{"figure": "a_vs_b", "value": 0.4, "value_low": 0.3}, {"figure": "c_s", "value": 1.0}]
    rows += [{"figure": "other", "value": 2}]
    assert table_text(NAMED, figure.described(rows))[2:] == [
        "| what | measured | least | wanted | reached |",
        "|---|---|---|---|---|",
        "| a / b | 0.4 | 0.3 | ≥ 0.5 | no |",
        "| c | 1 |  | ≤ 1 | yes |",
        "| other | 2 |  |  |  |",
    ]


def test_a_table_without_across_has_a_line_a_row() -> None:
    table = ReportTable(
        "Peers", {"peer": "peer"}, {"rate": "tuples/s", "ok": "same", "none": "none"}, where={"work": "W1"}
    )
    rows: list[Row] = [
        {"peer": "a", "rate": 2.5e6, "ok": True, "work": "W1"},
        {"peer": "b", "rate": 12_345, "ok": None, "work": "W1"},
        {"peer": "c", "rate": 1.0, "work": "W2"},
    ]
    assert table_text(table, rows)[2:] == [
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


def test_points_of_a_full_run_are_shown_if_there_are_any_else_the_quick_ones(tmp_path: Path) -> None:
    quick = Figure("fig0", "", lambda full: [{"joins": 5, "quick": not full}], lambda point, say: [])
    store = Store(tmp_path)
    store.add("fig0", record_of({"joins": 5, "quick": True}, rows_at(5), 1.0, 0.0))
    assert best_known(quick, store, {})[0].point["quick"]
    store.add("fig0", record_of({"joins": 5, "quick": False}, rows_at(5), 1.0, 0.0))
    (record,) = best_known(quick, store, {})
    assert not record.point["quick"]
    assert best_known(quick, Store(tmp_path / "empty"), {"fig0": [record]}) == [record]
    beside = best_known(replace(quick, both=True), store, {})
    assert [measured_point.point["quick"] for measured_point in beside] == [False, True]


def test_points_that_lack_are_named_for_both_sizes() -> None:
    figure = replace(OTHER, points=lambda full: [{"n": n, "k": k} for n in ((9,) if full else (5,)) for k in "ab"])
    records = [record_of({"n": n, "k": "a"}, rows_at(5), 1.0, 0.0) for n in (9, 5)]
    assert measured(figure, records, []).endswith("; not measured: k=b.")
    assert measured(replace(figure, both=True), records, []).endswith("; not measured: n=9 k=b, n=5 k=b.")


def test_missing_points_and_other_work_are_reported(tmp_path: Path) -> None:
    store = store_with(tmp_path, 5, 20)
    store.add("fig0", record_of({"joins": 20}, rows_at(20), 60.0, 1.75))
    (*_, last) = body(FIGURE, best_known(FIGURE, store, {}), tmp_path)
    assert "; not measured: joins=10; other work used up to 1.8 cores during 1 of 2 points." in last
    store = store_with(tmp_path / "whole", 5, 10, 20)
    (*_, last) = body(FIGURE, best_known(FIGURE, store, {}), tmp_path)
    assert "not measured" not in last
    assert "other work" not in last


def test_a_figure_that_could_not_be_measured_gives_the_reason(tmp_path: Path) -> None:
    record = record_of({"joins": 5}, [{"skipped": "a | is missing"}], 1.0, 0.0)
    assert "Not measured: a \\| is missing." in body(FIGURE, [record], tmp_path)


def test_the_report_has_figures_plots_and_what_was_not_measured(tmp_path: Path) -> None:
    text = write({"Chapter": [FIGURE, OTHER]}, store_with(tmp_path, 5, 10, 20), tmp_path).read_text()
    assert "### fig0: A figure: of two | strategies" in text
    assert "Source: a paper, figure 0." in text
    assert "![Time by joins](plots/fig0.svg)" in text
    assert "| 5 | 5 | 15 |" in text
    assert "Not measured: `eddy bench fig1`." in text
    assert (tmp_path / "plots" / "fig0.svg").stat().st_size


def test_points_that_are_not_in_the_store_are_carried_over(tmp_path: Path) -> None:
    names = ("report.md", FIGURES, "plots/fig0.svg")
    write({"Chapter": [FIGURE]}, store_with(tmp_path, 5, 10, 20), tmp_path)
    first = [(tmp_path / name).read_bytes() for name in names]
    write({"Chapter": [FIGURE]}, Store(tmp_path / "empty"), tmp_path)
    assert [(tmp_path / name).read_bytes() for name in names] == first
    again = Store(tmp_path / "again")
    again.add("fig0", record_of({"joins": 10}, [{"strategy": "jisc", "seconds": 123.0}], 60.0, 0.0))
    text = write({"Chapter": [FIGURE]}, again, tmp_path).read_text()
    assert "| 5 | 5 | 15 |" in text
    assert "| 10 | 123 |  |" in text


def texts(path: Path) -> list[str]:
    return [str(element.text) for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("kind", ["lines", "steps", "bars"])
def test_plots_name_axes_and_curves(kind: str, tmp_path: Path) -> None:
    plot = replace(FIGURE.plots[0], kind=kind, x_label="number of joins", log="y", marked={7.0: "here it changes"})
    rows: list[Row] = [{"joins": joins, **row} for joins in (5, 10) for row in rows_at(joins)]
    assert draw(plot, [*rows, {"origin": "paper", **FIGURE.printed[0]}], tmp_path / "plot.svg")
    labels = texts(tmp_path / "plot.svg")
    assert {"jisc", "cacq", "jisc (paper)", "Time by joins", "number of joins", "here it changes"} <= set(labels)


def test_a_plot_without_rows_is_not_drawn(tmp_path: Path) -> None:
    assert not draw(FIGURE.plots[0], [{"joins": 5}], tmp_path / "plot.svg")
    assert not (tmp_path / "plot.svg").exists()


def test_a_column_of_text_cannot_be_plotted(tmp_path: Path) -> None:
    with pytest.raises(NotANumber, match="'seconds' holds 'x'"):
        draw(FIGURE.plots[0], [{"joins": 5, "strategy": "a", "seconds": "x"}], tmp_path / "plot.svg")
