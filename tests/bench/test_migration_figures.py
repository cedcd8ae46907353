"""Figures 9 to 16 of the plan migration paper: arrivals, model, clock, rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bench.harness.figure import Figure, Point, Row, number
from bench.harness.turns import Mismatch
from bench.papers.migration import PLOTTED as FIGURES
from bench.papers.migration import arrivals as streams
from bench.papers.migration import length, over_time
from bench.papers.migration.arrivals import NAMES, MigrationSetting, PaperArrivals, counted, draw, steps
from bench.papers.migration.cost_model import MachineCosts, by_hash, calibrate, entries, eq4, eq8
from bench.papers.migration.over_time import (
    CASES,
    ServiceTimes,
    level_ms,
    longest_silence,
    rates,
    run_case,
    serve,
    slow_down,
)

SMALL = MigrationSetting(300, (20, 20, 20, 20), (0.25, 0.2, 0.2))
POINT: Point = {**SMALL.columns(), "change_ms": 1_000, "stream_ms": 3_000, "seed": 1, "repeats": 1, "load": 1.3}
BY_NAME = {figure.name: figure for figure in FIGURES}


def silent(text: str) -> None:
    assert text


def drawn(setting: MigrationSetting = SMALL, stream_ms: int = 3_000) -> PaperArrivals:
    return draw(setting, stream_ms, seed=1)


# Points


def test_figures_9_to_16_are_there() -> None:
    assert list(BY_NAME) == [f"migration-fig{number}" for number in range(9, 17)]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
@pytest.mark.parametrize("full", [True, False])
def test_points_differ_and_fit_the_stream(figure: Figure, full: bool) -> None:
    points = figure.points(full)
    assert len({tuple(sorted(point.items())) for point in points}) == len(points)
    for point in points:
        window, change = number(point, "w_ms"), number(point, "change_ms")
        assert window < change
        assert change + 2 * window < number(point, "stream_ms")


TABLE_2 = {
    9: (None, (100, 100, 100, 100), (0.1, 0.05, 0.02)),
    10: (None, (100, 100, 100, 100), (0.1, 0.05, 0.02)),
    11: (1_000, (50, None, 50, 50), (0.1, 0.05, 0.02)),
    12: (None, (100, 12, 12, 12), (0.1, 0.1, 0.1)),
    13: (1_000, (100, 100, 100, 100), (0.1, 0.02, 0.02)),
    14: (1_000, (100, 100, 100, 100), (0.1, 0.02, 0.02)),
    15: (2_000, (50, 50, 50, 50), (0.2, 0.05, 0.05)),
    16: (2_000, (50, 50, 50, 50), (0.2, 0.05, 0.05)),
}


@pytest.mark.parametrize("number", TABLE_2)
def test_a_full_run_has_the_parameters_of_the_paper(number: int) -> None:
    window, delays, sigmas = TABLE_2[number]
    points = BY_NAME[f"migration-fig{number}"].points(True)
    for point in points:
        setting = MigrationSetting.of(point)
        assert window in (None, setting.w_ms)
        assert all(wanted in (None, delay) for wanted, delay in zip(delays, setting.delays, strict=True))
        assert setting.sigmas == sigmas
    assert {point["stream_ms"] for point in points if point["scale"] == 1} == {50_000}
    assert len({point["scale"] for point in points}) == 2
    assert (len({point["w_ms"] for point in points}) > 1) == (window is None)
    assert (len({point["i_b_ms"] for point in points}) > 1) == (number == 11)


# Arrivals


def test_arrivals_have_the_rates_and_selectivities_asked_for() -> None:
    setting = replace(SMALL, delays=(20, 10, 20, 40), scale=20)
    arrivals = drawn(setting, 10_000)
    counts = np.bincount(arrivals.order, minlength=4)
    assert counts == pytest.approx([10 * rate for rate in setting.rates], rel=0.05)
    assert (np.diff(arrivals.times) >= 0).all()
    gaps = np.diff(arrivals.times[arrivals.order == 1])
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05), "delays are exponential"
    for k, sigma in enumerate(setting.sigmas):
        left, right = (np.bincount(arrivals.keys[arrivals.order == i, j]) for i, j in ((k, min(k, 1)), (k + 1, 0)))
        both = min(len(left), len(right))
        share = float(left[:both] @ right[:both]) / (left.sum() * right.sum())
        assert share * setting.scale == pytest.approx(sigma, rel=0.03)


def test_the_window_changes_no_arrivals_and_pushes_have_each_of_them_once() -> None:
    arrivals, wider = drawn(), drawn(replace(SMALL, w_ms=900))
    assert np.array_equal(arrivals.times, wider.times)
    assert np.array_equal(arrivals.keys, wider.keys)
    pushes = arrivals.pushes(steps(0, 3_000, 250))
    assert len(pushes) == 12
    assert np.array_equal(np.concatenate([order for _, order in pushes]), arrivals.order)
    times = [t for rows, _ in pushes for t in rows["B"].column("t").cast(pa.int64()).to_pylist()]
    assert times == arrivals.times[arrivals.order == 1].tolist()


def test_steps_end_where_they_should() -> None:
    assert steps(0, 1_000, 250) == [250, 500, 750, 1_000]
    assert steps(0, 600, 250) == [250, 500, 600]
    assert steps(600, 600, 250) == []


# The model


def test_the_model_is_that_of_the_paper() -> None:
    setting, costs = MigrationSetting(1_000, (100, 50, 20, 10), (0.1, 0.05, 0.02)), MachineCosts(0.5, 2.0, 3.0)
    b, c, d, w = 20, 50, 100, 1.0
    expected = b * c * w**2 * (2 + 3 * 0.05) + 2 * b * c * d * w**3 * (2 * 0.05 + 3 * 0.05 * 0.02)
    assert eq8(setting, costs) == pytest.approx(0.5 + expected)
    assert entries(setting) == pytest.approx((50, 100))
    assert by_hash(setting, costs) == pytest.approx(0.5 + 150 * 5)
    assert eq4(setting) == 2.0


def test_at_a_scale_states_grow_with_it() -> None:
    setting = MigrationSetting(1_000, (100, 50, 20, 10), (0.1, 0.05, 0.02))
    assert entries(replace(setting, scale=7)) == pytest.approx([7 * n for n in entries(setting)])


def test_costs_are_measured() -> None:
    costs = calibrate(1)
    assert costs.fixed > 0
    assert costs.join + costs.store > 0


# One transition


def test_a_stage_of_parallel_track_lasts_as_long_as_the_window() -> None:
    arrivals = drawn()
    lengths = length.stages(arrivals, 1_000, 3_000, silent)
    assert list(lengths) == [*length.STRATEGIES, length.PAPER]
    length_ms = lengths["parallel-track"]
    assert length_ms is not None
    # The tolerances are one push below and the delay to the next tuple above.
    assert 300 - 2 * 300 / length.LOOKS < length_ms < 300 + 100


def test_a_stage_purged_as_in_the_paper_lasts_two_windows() -> None:
    length_ms = length.stages(drawn(), 1_000, 3_000, silent)[length.PAPER]
    assert length_ms is not None
    assert 600 - 2 * 300 / length.LOOKS < length_ms < 600 + 200


def test_moving_state_works_off_what_has_accumulated_first(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: dict[str, set[int | None]] = {}

    def noted(setting: MigrationSetting, pushes: Sequence[Any], case: str, change: int | None) -> streams.StrategyRun:
        begun.setdefault(case, set()).add(change)
        return run_case(setting, pushes, case, change)

    monkeypatch.setattr(over_time, "run_case", noted)
    over_time.measure("rate", {**POINT, "load": 3.0}, silent)
    (tracked,), (moved,) = begun["parallel-track"], begun["moving-state"]
    # Pushes end every 250 ms, the change comes at 1 000 ms, and three times the available time is asked for.
    assert tracked is not None
    assert tracked < 4
    assert moved == 4


def test_stalls_are_measured_for_each_strategy() -> None:
    stalls = length.stalls(drawn(), 1_000, 2, silent)
    assert {strategy: len(taken) for strategy, taken in stalls.items()} == dict.fromkeys(length.STRATEGIES, 2)
    assert all(0 < call <= latency for taken in stalls.values() for call, latency, _ in taken)
    assert stalls["moving-state"][0][2] > 0
    assert stalls["jisc"][0][2] == stalls["mjoin"][0][2] == 0


def one_more_in_call(number: int) -> Callable[[pa.Table], int]:
    calls = itertools.count()
    return lambda table: counted(table) + (next(calls) == number)


def test_nothing_is_told_of_a_stage_whose_results_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "counted", one_more_in_call(3))
    with pytest.raises(Mismatch):
        length.stages(drawn(), 1_000, 3_000, silent)
    monkeypatch.setattr(streams, "counted", one_more_in_call(3))
    with pytest.raises(Mismatch):
        length.stalls(drawn(), 1_000, 1, silent)


def test_nothing_is_told_of_cases_whose_results_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "counted", one_more_in_call(50))
    with pytest.raises(Mismatch):
        over_time.measure("rate", POINT, silent)


# The clock


def test_the_clock_serves_one_push_after_another() -> None:
    served = serve([100, 200, 300], [0.01, 0.03, 0.001], 5, [0, 0, 0.002])
    assert served.begun == pytest.approx([100, 200, 350])
    assert served.done == pytest.approx([150, 350, 365])
    assert slow_down([0.01, 0.03], 200, 1.3) == pytest.approx(6.5)


def test_silence_is_between_two_outputs() -> None:
    done, results = [100.0, 200.0, 500.0, 600.0, 1_000.0], [1, 0, 2, 5, 0]
    assert longest_silence(done, results, 0, 2_000) == 400
    assert longest_silence(done, results, 500, 2_000) == 100
    assert longest_silence(done, results, 0, 100) == 0


def test_rates_have_all_results() -> None:
    measured = rates([100.0, 900.0, 2_100.0], [3, 4, 5], 1_000)
    assert measured == [(1_000, 7.0), (2_000, 0.0), (3_000, 5.0)]


def test_the_level_is_reached_for_good() -> None:
    served = ServiceTimes([0.0, 10.0, 20.0, 30.0], [5.0, 15.0, 25.0, 35.0])
    new = [10, 10, 10, 10]
    assert level_ms([90, 10, 20, 10], new, served, 1) == 25
    assert level_ms([90, 0, 10, 10], new, served, 1) == 5
    assert level_ms([90, 10, 10, 11], new, served, 1) is None


# Rows


def columns_of(figure: Figure, rows: Sequence[Row]) -> None:
    """Check that the rows have the drawn columns as numbers, and each curve has one value for each x."""
    for plot in figure.plots:
        shows = plot.where["shows"]
        shown_rows = [row for row in rows if row["shows"] == shows]
        assert shown_rows, plot.title
        for row in shown_rows:
            assert math.isfinite(number(row, plot.x)), row
            assert math.isfinite(number(row, plot.y)), row
            assert plot.by is None or isinstance(row[plot.by], str)
    for table in figure.tables:
        shown_rows = [row for row in rows if row["shows"] == table.where["shows"]]
        assert shown_rows
        assert all({*table.rows, *table.value} <= row.keys() for row in shown_rows)


@pytest.mark.parametrize("name", ["migration-fig9", "migration-fig10", "migration-fig11"])
def test_rows_of_lengths(name: str) -> None:
    figure = BY_NAME[name]
    rows: list[Row] = [{**POINT, **row} for row in figure.measure(POINT, silent)]
    columns_of(figure, rows)
    curves = {str(row["curve"]) for row in rows}
    if name != "migration-fig10":
        assert {"T_PT measured", "T_PT by eq. 4", "T_PT measured with the paper's purging"} <= curves
    if name != "migration-fig9":
        assert {"T_MS measured", "T_MS by eqs. 3 and 8", "T_MS by the model for hash joins", "call of jisc"} <= curves


@pytest.mark.parametrize("name", ["migration-fig15", "migration-fig16"])
def test_rows_over_time(name: str) -> None:
    figure = BY_NAME[name]
    rows: list[Row] = [{**POINT, **row} for row in figure.measure(POINT, silent)]
    columns_of(figure, rows)
    summary = {str(row["case"]): row for row in rows if row["shows"] == "case"}
    assert tuple(summary) == CASES
    assert summary["old plan only"]["load"] == pytest.approx(1.3)
    assert summary["old plan only"]["stall_ms"] == summary["new plan only"]["stall_ms"] == 0
    assert all(number(summary[case], "stall_ms") > 0 for case in CASES[:3])
    if name == "migration-fig16":
        shown = [row for row in rows if row["shows"] == "rate"]
        in_all = {case: sum(number(row, "rate") for row in shown if row["case"] == case) for case in CASES}
        assert len(set(in_all.values())) == 1
        assert in_all["jisc"] > 0


def test_states_are_those_of_the_plans() -> None:
    arrivals = drawn()
    pushes = arrivals.pushes(steps(0, 3_000, 250))
    runs = {case: over_time.run_case(SMALL, pushes, case, 5) for case in CASES}
    old, new = runs["old plan only"].entries, runs["new plan only"].entries
    for case in CASES[:3]:
        assert runs[case].entries[:5] == old[:5]
        assert [stall > 0 for stall in runs[case].stall] == [k == 5 for k in range(12)]
    assert runs["moving-state"].entries[5:] == new[5:]
    assert runs["parallel-track"].entries[-1] == new[-1]
    assert all(few <= many for few, many in zip(runs["jisc"].entries[5:], new[5:], strict=True))


def test_names_of_streams_are_in_order() -> None:
    assert [stream.name for stream in SMALL.query().streams] == list(NAMES)
