"""Figures 7 to 12 of the JISC paper: points, rows, and the model of nested loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from bench.harness.figure import Figure, Row, number
from bench.harness.turns import Mismatch, agree
from bench.papers.jisc import PLOTTED as FIGURES
from bench.papers.jisc import latency
from bench.papers.jisc.throughput import NORMAL, STEPS, TOTAL
from bench.ways.strategies import TurnoverRun, raced, started
from bench.workloads.sources import permutations, uniform

FIGURE = {figure.name: figure for figure in FIGURES}
TINY: Mapping[str, Mapping[str, Any]] = {
    "fig7": {"joins": 4, "window": 20, "rounds": 2, "seed": 5},
    "fig8": {"joins": 4, "window": 20, "rounds": 1, "seed": 5},
    "fig9": {"streams": 4, "window": 50, "step": 2_000, "rounds": 2, "seed": 5},
    "fig10": {"panel": "a", "joins": 3, "window": 40, "transitions": 2, "seed": 5},
    "fig11": {"streams": 4, "window": 50, "period": 2_000, "tuples": 5_000, "rounds": 1, "seed": 5},
    "fig12": {"streams": 4, "window": 50, "period": 1_000, "tuples": 4_000, "rounds": 2, "seed": 5},
}
TINY = {**TINY, **{f"{name}-uniform": point for name, point in TINY.items()}}
TINY = {**TINY, "fig10-uniform": {**TINY["fig10"], "keys": "uniform"}}
NESTED = {"panel": "b", "joins": 4, "window": 30, "transitions": 3, "seed": 5}


def measured(figure: Figure, point: Mapping[str, Any]) -> list[Row]:
    said: list[str] = []
    rows = [{**point, **row} for row in figure.measure(point, said.append)]
    assert said
    return rows


def test_the_figures_have_the_names_of_the_paper() -> None:
    assert list(FIGURE) == [f"fig{n}{keys}" for keys in ("", "-uniform") for n in range(7, 13)]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_points_are_different_and_have_what_measuring_needs(figure: Figure) -> None:
    for full in (False, True):
        points = [tuple(sorted(point.items())) for point in figure.points(full)]
        assert len(set(points)) == len(points) > 0
        assert {name for point in points for name, _ in point} == set(TINY[figure.name])


def test_a_period_is_as_many_turnovers_quick_as_full() -> None:
    for figure in (FIGURE["fig11"], FIGURE["fig12"]):
        turnovers = [
            {int(point["period"]) / int(point["window"]) for point in figure.points(full)} for full in (False, True)
        ]
        assert turnovers[0] <= turnovers[1]
        for full in (False, True):
            for point in figure.points(full):
                assert int(point["period"]) % 1_000 == 0
                assert int(point["tuples"]) == TOTAL * 100 * int(point["window"])


@pytest.mark.campaign(3)
@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_rows_have_the_columns_of_the_plots(figure: Figure) -> None:
    points = [TINY[figure.name], *([NESTED] if figure.name == "fig10" else [])]
    for point in points:
        rows = measured(figure, point)
        plots = [p for p in figure.plots if all(point.get(name, value) == value for name, value in p.where.items())]
        assert plots
        for plot in plots:
            low, high = f"{plot.y}_low", f"{plot.y}_high"
            for row in rows:
                assert isinstance(row[plot.x], int | float)
                assert isinstance(row[str(plot.by)], str)
                assert 0 < float(str(row[low])) <= float(str(row[plot.y])) <= float(str(row[high]))
        assert len({(row["strategy"], row[plots[0].x]) for row in rows}) == len(rows)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_what_the_paper_prints_has_columns_of_a_plot(figure: Figure) -> None:
    for row in figure.printed:
        drawn = [p for p in figure.plots if all(row.get(name) == value for name, value in p.where.items())]
        assert any(isinstance(row.get(p.y), int | float) and row.get(p.x) and row.get(str(p.by)) for p in drawn)


def test_a_stage_stores_and_promotes_what_the_case_says() -> None:
    best, worst = (
        {str(row["strategy"]): number(row, "promoted") for row in measured(FIGURE[name], TINY[name])}
        for name in ("fig7", "fig8")
    )
    # Windows of 20 have 20 keys; five streams have three states below the root.
    assert best["jisc"] == 20
    assert worst["jisc"] == 3 * 20
    assert best["cacq"] == worst["mjoin"] == worst["parallel-track"] == 0


def test_time_accumulates() -> None:
    rows = measured(FIGURE["fig9"], TINY["fig9"])
    for strategy in NORMAL:
        times = [float(str(row["seconds_low"])) for row in rows if row["strategy"] == strategy]
        assert len(times) == STEPS
        assert times == sorted(times)


def test_the_last_period_may_be_shorter() -> None:
    rows = measured(FIGURE["fig11"], TINY["fig11"])
    assert {row["transitions"] for row in rows} == {3}
    assert {row["turnovers"] for row in rows} == {10}


@pytest.mark.parametrize("name", ["fig7", "fig9", "fig11"])
def test_no_time_is_told_of_ways_that_differ_in_results(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = TurnoverRun.take

    def one_more(run: TurnoverRun, count: int, plan: str | None = None) -> tuple[float, int]:
        seconds, results = honest(run, count, plan)
        return seconds, results + (run.runtime.strategy == "cacq")

    monkeypatch.setattr(TurnoverRun, "take", one_more)
    with pytest.raises(Mismatch, match="numbers of results differ"):
        FIGURE[name].measure(TINY[name], lambda said: None)


@pytest.mark.campaign(1)
@pytest.mark.parametrize(
    "point", [TINY["fig10"], TINY["fig10-uniform"], NESTED], ids=["hash joins", "uniform", "nested loops"]
)
def test_results_after_the_transition_are_compared(point: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Mapping[str, object]] = []

    def watched(name: str, results: Mapping[str, object]) -> None:
        compared.append(results)
        agree(name, results)

    monkeypatch.setattr(latency, "agree", watched)
    latency.measure(point, lambda said: None)
    strategies = latency.STRATEGIES if point["panel"] == "a" else latency.NESTED
    assert compared
    assert all(set(results) == set(strategies) and all(results.values()) for results in compared)


def test_uniform_arrivals_begin_with_one_that_has_a_result() -> None:
    turnover = uniform(30, 30, 5, 4).from_a_result()
    assert sorted(turnover.keys.tolist()) == sorted(uniform(30, 30, 5, 4).keys.tolist())
    assert all(turnover.keys[0] in turnover.keys[turnover.order == i] for i in range(4))
    with pytest.raises(ValueError, match="no key is in all 60 streams"):
        uniform(10, 10, 5, 60).from_a_result()


def test_a_stage_that_goes_on_is_told() -> None:
    turnover = permutations(4, 20)
    pushes = turnover.cut(10).arrow
    for strategy in ("jisc", "parallel-track"):
        run = started(turnover, pushes, [strategy])[strategy]
        run.take(len(pushes))
        run.check_over()
        run.take(1, turnover.reversed_plan)
        with pytest.raises(Mismatch, match="after a turnover"):
            run.check_over()
        run.take(len(pushes))
        run.check_over()


def test_turns_go_on_where_the_last_ended() -> None:
    turnover = permutations(3, 20)
    runs = started(turnover, turnover.cut(10).arrow, ["jisc", "mjoin"])
    taken = raced("turns", runs, [(4, None), (5, None)], lambda said: None)
    assert {name: len(seconds) for name, seconds in taken.items()} == {"jisc": 2, "mjoin": 2}
    assert {run.runtime.position for run in runs.values()} == {60 + 30}


# Nested loops


def test_the_first_output_is_the_same_under_both() -> None:
    outputs = {strategy: latency.first_output(5, 100, strategy, 3) for strategy in latency.NESTED}
    # Each stream has every key once.
    assert [results for _, results in outputs.values()] == [1, 1]
