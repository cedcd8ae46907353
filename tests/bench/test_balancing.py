"""Figures of load balancing: small runs show what the protocols promise, and rows fit tables and plots."""

from __future__ import annotations

import pytest

from bench.harness.figure import Figure, Point, Row, number
from bench.papers.balancing import FIGURES, figures, runs
from bench.simulated.cluster import Costs

SMALL: Point = {
    "groups": 8,
    "nodes": 3,
    "rate": 20.0,
    "late_rate": 2.0,
    "window": 3,
    "change": 6,
    "seconds": 16,
    "balance": 4,
    "load": 1.2,
    "seed": 1,
}
RATES: Point = {**SMALL, "late_rate": 20.0, "change": 16, "middle_rate": 20.0, "middle_window": 3}


@pytest.fixture(autouse=True)
def known_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use costs that need not be measured; messages cost nothing, as nodes with few rows would be that much slower."""
    monkeypatch.setattr(runs, "costs", lambda: (Costs(message=0.0), 0.0))
    runs.run.cache_clear()
    runs.speed.cache_clear()


def quiet(what: str) -> None:
    """Discard a progress message."""


def ways(rows: list[Row]) -> dict[str, Row]:
    return {str(row["way"]): row for row in rows if row.get("shows") == "way"}


def test_the_ways_differ_as_their_protocols_do() -> None:
    rows = ways(list(figures.all_ways(SMALL, quiet)))
    assert set(rows) == set(figures.SETTINGS)
    moved = {name: row for name, row in rows.items() if "moved" in row}
    assert set(moved) == set(figures.SETTINGS) - {"No-Adapt", "LM only"}
    assert all(number(row, "moved") > 0 for row in moved.values())
    # PTLB takes two windows, and its sender works meanwhile.
    for name, row in moved.items():
        if "PTLB" in name:
            assert number(row, "length_s") >= 2 * SMALL["window"]
            assert number(row, "pause_s") == 0
    for name in ("{} only", "LM-{}"):
        moves = {how: moved[name.format(how)] for how in ("PTLB", "MSLB", "JIT")}
        assert 0 < number(moves["JIT"], "pause_s") < number(moves["MSLB"], "pause_s")
        lengths = [number(row, "length_s") for row in moves.values()]
        assert lengths == sorted(lengths, reverse=True)
        assert number(moves["JIT"], "sender_work_s") < number(moves["PTLB"], "sender_work_s")
    # Local optimization changes plans after the rates have changed, at every node.
    assert all((number(row, "plans") > 0) == name.startswith("LM") for name, row in rows.items())


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_rows_fit_the_tables_and_plots(figure: Figure) -> None:
    rows = list(figure.measure(RATES if figure.name == "balancing-fig9" else SMALL, quiet))
    for plot in figure.plots:
        shown = [row for row in rows if row.get("shows") == plot.where["shows"]]
        assert shown
        assert any(plot.y in row for row in shown)
    for table in figure.tables:
        if table.where:
            (row, *_) = [row for row in rows if row.get("shows") == "way"]
            assert "way" in row
    assert {len(figure.points(full)) > 0 for full in (False, True)} == {True}


def test_the_same_seed_gives_the_same_rows_and_rates_fall() -> None:
    setting = runs.BalancingSetting.of(SMALL)
    first, second = setting.arrivals(), setting.arrivals()
    assert all(a["A"].equals(b["A"]) for (_, a), (_, b) in zip(first, second, strict=True))
    late = [sum(len(batches[name]) for at, batches in first if at > 6) for name in "AB"]
    assert late[0] > 4 * late[1]
