"""Figures 9 to 16 of the plan migration paper: arrivals, model, clock, rows, and that remarks say what the rows say."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from bench.harness.figure import Figure, Point, Row, Scalar
from bench.measure import Mismatch
from bench.papers.migration import length, length_remarks, over_time, over_time_remarks, stage
from bench.papers.migration.arrivals import NAMES, Arrivals, Setting, counted, draw
from bench.papers.migration.cost_model import Costs, by_hash, calibrate, entries, eq4, eq8, pairs_looked_at
from bench.papers.migration.figures import FIGURES
from bench.papers.migration.over_time import CASES, level_ms
from bench.papers.migration.server import Served, first_begun, longest_silence, rates, serve, slow_down

SMALL = Setting(300, (20, 20, 20, 20), (0.25, 0.2, 0.2))
POINT: Point = {**SMALL.columns(), "change_ms": 1_000, "stream_ms": 3_000, "seed": 1, "repeats": 1, "load": 1.3}
BY_NAME = {figure.name: figure for figure in FIGURES}


def silent(text: str) -> None:
    assert text


def drawn(setting: Setting = SMALL, stream_ms: int = 3_000) -> Arrivals:
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
        window, change = length_remarks.number(point, "w_ms"), length_remarks.number(point, "change_ms")
        assert window < change
        assert change + 2 * window < length_remarks.number(point, "stream_ms")


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
        setting = Setting.of(point)
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
    for pair, sigma in zip(("ab", "bc", "cd"), setting.sigmas, strict=True):
        assert arrivals.found_sigmas()[f"found_sigma_{pair}"] == pytest.approx(sigma, rel=0.03)


def test_selectivity_is_counted_as_nested_loops_count_it() -> None:
    arrivals = drawn()
    keys = [arrivals.keys[arrivals.order == i] for i in range(4)]
    sides = {"ab": (keys[0][:, 0], keys[1][:, 0]), "bc": (keys[1][:, 1], keys[2][:, 0])}
    for pair, (left, right) in sides.items():
        expected = (left[:, None] == right[None, :]).mean()
        assert arrivals.found_sigmas()[f"found_sigma_{pair}"] == pytest.approx(expected)


def test_the_window_changes_no_arrivals_and_pushes_have_each_of_them_once() -> None:
    arrivals, wider = drawn(), drawn(replace(SMALL, w_ms=900))
    assert np.array_equal(arrivals.times, wider.times)
    assert np.array_equal(arrivals.keys, wider.keys)
    pushes = arrivals.pushes(stage.steps(0, 3_000, 250))
    assert len(pushes) == 12
    assert np.array_equal(np.concatenate([order for _, order in pushes]), arrivals.order)
    times = [t for rows, _ in pushes for t in rows["B"].column("t").cast(pa.int64()).to_pylist()]
    assert times == arrivals.times[arrivals.order == 1].tolist()


def test_steps_end_where_they_should() -> None:
    assert stage.steps(0, 1_000, 250) == [250, 500, 750, 1_000]
    assert stage.steps(0, 600, 250) == [250, 500, 600]
    assert stage.steps(600, 600, 250) == []


# The model


def test_the_model_is_that_of_the_paper() -> None:
    setting, costs = Setting(1_000, (100, 50, 20, 10), (0.1, 0.05, 0.02)), Costs(0.5, 2.0, 3.0)
    b, c, d, w = 20, 50, 100, 1.0
    expected = b * c * w**2 * (2 + 3 * 0.05) + 2 * b * c * d * w**3 * (2 * 0.05 + 3 * 0.05 * 0.02)
    assert eq8(setting, costs) == pytest.approx(0.5 + expected)
    assert pairs_looked_at(setting) == pytest.approx(b * c + 2 * b * c * d * 0.05)
    assert entries(setting) == pytest.approx((50, 100))
    assert by_hash(setting, costs) == pytest.approx(0.5 + 150 * 5)
    assert eq4(setting) == 2.0


def test_at_a_scale_states_grow_with_it() -> None:
    setting = Setting(1_000, (100, 50, 20, 10), (0.1, 0.05, 0.02))
    assert entries(replace(setting, scale=7)) == pytest.approx([7 * n for n in entries(setting)])


def test_costs_are_measured_and_survive_a_row() -> None:
    costs = calibrate(1)
    assert costs.fixed > 0
    assert costs.join + costs.store > 0
    again = Costs.of(costs.columns())
    assert (again.fixed, again.join, again.store) == pytest.approx((costs.fixed, costs.join, costs.store))


# One transition


def test_a_stage_of_parallel_track_lasts_as_long_as_the_window() -> None:
    arrivals = drawn()
    found = stage.stages(arrivals, 1_000, 3_000, "small", silent)
    assert list(found) == list(stage.STRATEGIES)
    length_ms = found["parallel-track"]
    assert length_ms is not None
    # To a push, and to the next tuple.
    assert 300 - 2 * 300 / stage.LOOKS < length_ms < 300 + 100


def test_purging_of_the_paper_is_replayed_as_nested_loops_replay_it() -> None:
    arrivals, change, window = drawn(), 1_000, 300
    rows = [
        [
            (int(t), int(x), int(y))
            for t, (x, y) in zip(arrivals.times[arrivals.order == i], arrivals.keys[arrivals.order == i], strict=True)
        ]
        for i in range(4)
    ]
    equal = [(a, b) for a, b in itertools.product(rows[0], rows[1]) if a[1] == b[1]]
    pairs = [(a, b) for a, b in equal if abs(a[0] - b[0]) <= 1e3 * window]
    triples = [(a, b, c) for (a, b), c in itertools.product(pairs, rows[2]) if b[2] == c[1]]
    expected = float(window)
    for composites, purger in ((pairs, 2), (triples, 3)):
        times = [[one[0] for one in composite] for composite in composites]
        ends = [
            max(own) + 1e3 * window
            for own in times
            if max(own) - min(own) <= 1e3 * window and min(own) < 1e3 * change and max(own) < 1e3 * (change + window)
        ]
        later = min(t for t, _, _ in rows[purger] if t > max(ends))
        expected = max(expected, later / 1e3 - change)
    assert stage.purged_as_in_the_paper(arrivals, change) == pytest.approx(expected)
    assert expected > 1.5 * window


def test_stalls_are_measured_for_each_strategy() -> None:
    found = stage.stalls(drawn(), 1_000, 2, "small", silent)
    assert {strategy: len(taken) for strategy, taken in found.items()} == dict.fromkeys(stage.STRATEGIES, 2)
    assert all(0 < stall.call <= stall.latency for taken in found.values() for stall in taken)
    assert found["moving-state"][0].entries > 0
    assert found["jisc"][0].entries == found["mjoin"][0].entries == 0


def one_more_in_call(number: int) -> Callable[[pa.Table], int]:
    calls = itertools.count()
    return lambda table: counted(table) + (next(calls) == number)


def test_nothing_is_told_of_a_stage_whose_results_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "counted", one_more_in_call(3))
    with pytest.raises(Mismatch):
        stage.stages(drawn(), 1_000, 3_000, "small", silent)
    monkeypatch.setattr(stage, "counted", one_more_in_call(3))
    with pytest.raises(Mismatch):
        stage.stalls(drawn(), 1_000, 1, "small", silent)


def test_nothing_is_told_of_cases_whose_results_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(over_time, "counted", one_more_in_call(50))
    with pytest.raises(Mismatch):
        over_time.measure(POINT, silent, "rate")


# The clock


def test_the_clock_serves_one_push_after_another() -> None:
    served = serve([100, 200, 300], [0.01, 0.03, 0.001], 5, [0, 0, 0.002])
    assert served.begun == pytest.approx([100, 200, 350])
    assert served.done == pytest.approx([150, 350, 365])
    assert slow_down([0.01, 0.03], 200, 1.3) == pytest.approx(6.5)
    assert first_begun(served, 201) == 2
    assert first_begun(served, 900) == 3


def test_silence_is_between_two_outputs() -> None:
    done, results = [100.0, 200.0, 500.0, 600.0, 1_000.0], [1, 0, 2, 5, 0]
    assert longest_silence(done, results, 0, 2_000) == 400
    assert longest_silence(done, results, 500, 2_000) == 100
    assert longest_silence(done, results, 0, 100) == 0


def test_rates_have_all_results() -> None:
    found = rates([100.0, 900.0, 2_100.0], [3, 4, 5], 1_000)
    assert found == [(1_000, 7.0), (2_000, 0.0), (3_000, 5.0)]


def test_the_level_is_reached_for_good() -> None:
    served = Served([0.0, 10.0, 20.0, 30.0], [5.0, 15.0, 25.0, 35.0])
    new = [10, 10, 10, 10]
    assert level_ms([90, 10, 20, 10], new, served, 1) == 25
    assert level_ms([90, 0, 10, 10], new, served, 1) == 5
    assert level_ms([90, 10, 10, 11], new, served, 1) is None


# Rows


def columns_of(figure: Figure, rows: Sequence[Row]) -> None:
    """Check that what is drawn is in the rows, with numbers, for each curve once an x."""
    for plot in figure.plots:
        shows = plot.where["shows"]
        own = [row for row in rows if row["shows"] == shows]
        assert own, plot.title
        for row in own:
            assert math.isfinite(length_remarks.number(row, plot.x)), row
            assert math.isfinite(length_remarks.number(row, plot.y)), row
            assert plot.by is None or isinstance(row[plot.by], str)
            for end in plot.spread or ():
                assert math.isfinite(length_remarks.number(row, end)), row
    for grid in figure.grids:
        own = [row for row in rows if row["shows"] == grid.where["shows"]]
        assert own
        assert all({*grid.rows, *grid.value} <= row.keys() for row in own)


@pytest.mark.parametrize("name", ["migration-fig9", "migration-fig10", "migration-fig11"])
def test_rows_of_lengths(name: str) -> None:
    figure = BY_NAME[name]
    rows: list[Row] = [{**POINT, **row} for row in figure.measure(POINT, silent)]
    columns_of(figure, rows)
    curves = {str(row["curve"]) for row in rows}
    if name != "migration-fig10":
        assert {length_remarks.T_PT, length_remarks.T_PT_MODEL, length_remarks.T_PT_PURGED} <= curves
    if name != "migration-fig9":
        assert {length_remarks.T_MS, length_remarks.T_MS_MODEL, length_remarks.T_MS_HASH} <= curves
        assert length_remarks.stall_of("jisc") in curves
    assert figure.remarks(rows)


@pytest.mark.parametrize("name", ["migration-fig15", "migration-fig16"])
def test_rows_over_time(name: str) -> None:
    figure = BY_NAME[name]
    rows: list[Row] = [{**POINT, **row} for row in figure.measure(POINT, silent)]
    columns_of(figure, rows)
    summary = {str(row["case"]): row for row in rows if row["shows"] == "case"}
    assert tuple(summary) == CASES
    assert summary["old plan only"]["load"] == pytest.approx(1.3)
    assert summary["old plan only"]["stall_ms"] == summary["new plan only"]["stall_ms"] == 0
    assert all(length_remarks.number(summary[case], "stall_ms") > 0 for case in over_time_remarks.CHANGING)
    if name == "migration-fig16":
        shown = [row for row in rows if row["shows"] == "rate"]
        in_all = {
            case: sum(length_remarks.number(row, "rate") for row in shown if row["case"] == case) for case in CASES
        }
        assert len(set(in_all.values())) == 1
        assert in_all["jisc"] > 0
    assert figure.remarks(rows)


def test_states_are_those_of_the_plans() -> None:
    arrivals = drawn()
    pushes = arrivals.pushes(stage.steps(0, 3_000, 250))
    runs = {case: over_time.run(SMALL, pushes, case, 5) for case in CASES}
    old, new = runs["old plan only"].entries, runs["new plan only"].entries
    for case in over_time_remarks.CHANGING:
        assert runs[case].entries[:5] == old[:5]
        assert [stall > 0 for stall in runs[case].stall] == [k == 5 for k in range(12)]
    assert runs["moving-state"].entries[5:] == new[5:]
    assert runs["parallel-track"].entries[-1] == new[-1]
    assert all(few <= many for few, many in zip(runs["jisc"].entries[5:], new[5:], strict=True))


# Remarks


def said(number: int, rows: Sequence[Row]) -> str:
    return " ".join(BY_NAME[f"migration-fig{number}"].remarks(rows))


def lengths(curves: Mapping[str, Callable[[float], float]], windows: Sequence[int] = (500, 1_000, 2_000)) -> list[Row]:
    """Return rows of curves, each a function of W."""
    costs = Costs(1e-3, 5e-9, 30e-9).columns()
    return [
        {**replace(length.SET_3, w_ms=w).columns(), "curve": name, "shows": "both", "ms": ms(w), "lambda_b": w, **costs}
        for name, ms in curves.items()
        for w in windows
    ]


@pytest.mark.parametrize("number", range(9, 17))
def test_without_rows_nothing_is_said(number: int) -> None:
    assert said(number, []) == ""


@pytest.mark.parametrize("number", [9, 11, 12])
@pytest.mark.parametrize(("windows", "verdict"), [(1.0, "does not reproduce"), (2.0, "it reproduces"), (4.0, "longer")])
def test_length_of_parallel_track_in_windows(number: int, windows: float, verdict: str) -> None:
    text = said(number, lengths({length_remarks.T_PT: lambda w: windows * w}))
    assert f"T_PT / W is {windows:.2f}" in text
    assert verdict in text


@pytest.mark.parametrize(("factor", "verdict"), [(2.0, "as the model says"), (1.0, "not the model's 2")])
def test_replay(factor: float, verdict: str) -> None:
    text = said(9, lengths({length_remarks.T_PT_PURGED: lambda w: factor * w}))
    assert verdict in text


def test_growth_of_the_stall_is_held_against_both_models() -> None:
    curves = {
        length_remarks.T_MS: lambda w: w**2,
        length_remarks.T_MS_MODEL: lambda w: w**2.1,
        length_remarks.T_MS_HASH: lambda w: w,
    }
    text = said(10, lengths(curves))
    assert "to the power 2.00" in text
    assert "give 2.10" in text
    assert "the paper's own is nearer" in text
    curves[length_remarks.T_MS] = lambda w: 3 * w
    text = said(10, lengths(curves))
    assert "the one for hash joins is nearer" in text
    assert "T_MS is 3.00 times" in text
    curves[length_remarks.T_MS] = lambda w: 1.1
    assert "says little of recomputing" in said(10, lengths(curves))


def test_the_rate_of_b() -> None:
    rows = lengths({length_remarks.T_PT: lambda w: 8.0, length_remarks.T_MS: lambda w: w / 10})
    text = said(11, rows)
    assert "4 times the rate of B makes T_PT measured 1.00 times as long" in text
    assert "4 times the rate of B makes T_MS measured 4.00 times as long" in text


def test_the_crossing_is_found_where_it_is() -> None:
    parallel = {length_remarks.T_PT: lambda w: 2.0 * w}
    text = said(12, lengths({**parallel, length_remarks.T_MS: lambda w: w**2 / 400}))
    assert "longer than T_PT from W = 1000 ms on: the crossing of the paper's figure is there" in text
    text = said(12, lengths({**parallel, length_remarks.T_MS: lambda w: w / 10}))
    assert "shorter than T_PT at every W measured, 500 to 2000 ms" in text
    assert "the model for hash joins puts it at windows of" in text
    text = said(12, lengths({**parallel, length_remarks.T_MS: lambda w: 9 * w}))
    assert "longer than T_PT at every W" in text


def test_crossing_by_bisection() -> None:
    assert length_remarks.crossing(lambda w: w**2, 1e6, 10.0) == pytest.approx(1_000, rel=2e-3)
    assert length_remarks.crossing(lambda w: 0.0, 1.0, 10.0) is None


def over(**changed: Mapping[str, Scalar]) -> list[Row]:
    """Return a row for each case; what is changed is given by case, with _ for - and blanks."""
    usual: dict[str, Scalar] = {
        "shows": "case",
        **over_time.HIGH.columns(),
        "slow_down": 50.0,
        "changed_ms": 10_000.0,
        "stall_ms": 0.0,
        "silence_ms": 300.0,
        "silence_before_ms": 290.0,
        "level_ms": 100.0,
        "stage_entries": 50.0,
        "stage_results": 1_000,
        "mean_entries": 40.0,
        "load": 1.3,
        "behind_ms": 500.0,
    }
    names = {case.replace("-", "_").replace(" ", "_"): case for case in CASES}
    return [{**usual, "case": case, **changed.get(name, {})} for name, case in names.items()]


def test_who_stores_less_and_who_is_at_the_new_level_first() -> None:
    late = {"level_ms": 900.0, "stage_entries": 75.0}
    text = said(15, over(old_plan_only={"mean_entries": 80.0}, parallel_track=late))
    assert "the old plan stores more, as in the paper" in text
    assert "moving-state is there earlier than parallel-track, as in the paper" in text
    assert "1.50 times as many under the first" in text
    assert "which does not reproduce" in text
    text = said(15, over(moving_state={"level_ms": None}, parallel_track={"stage_entries": 20.0}))
    assert "that is not as in the paper" in text
    assert "not before the stream ends under moving-state" in text
    assert "parallel-track is there earlier than moving-state, which is not" in text
    assert "and so has this run" in text
    assert "at this load" not in said(13, over(old_plan_only={"load": 0.3}))
    assert "there together" in said(13, over())


def test_silence_and_output() -> None:
    text = said(16, over(moving_state={"silence_ms": 9_000.0, "stage_results": 500, "stall_ms": 8_000.0}))
    assert "9,000 ms under moving-state" in text
    assert "it reproduces" in text
    assert "better output rate in the stage, as in the paper" in text
    assert "not all others outperform it" in text
    text = said(16, over(old_plan_only={"behind_ms": 9_000.0}))
    assert "that does not reproduce" in text
    assert "Eq. 8 has 8,000 pairs of tuples looked at, each of which would take 1.2 ms" in text
    assert "no better output rate" in text
    assert "all others outperform it, as in the paper" in text


def test_low_configuration() -> None:
    assert "neither has a strong advantage, as in the paper" in said(14, over())
    assert "which the paper does not have" in said(14, over(moving_state={"stage_results": 100}))


def test_names_of_streams_are_in_order() -> None:
    assert [stream.name for stream in SMALL.query().streams] == list(NAMES)
