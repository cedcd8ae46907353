"""The benchmark of streaming joins: its ways agree, and its ratios are those of the times it takes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from bench import hub, streaming
from bench.harness.figure import number
from bench.spark import BEST, DEFAULT, finish
from bench.streaming import FIGURES, points

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

(FIGURE,) = FIGURES


def quiet(doing: str) -> None:
    assert doing


@pytest.mark.campaign(0)
@pytest.mark.slow
def test_all_ways_give_the_same_results_and_a_state_is_loaded_again(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession, tmp_path: Path
) -> None:
    # Fewer rows than keys would give no result, and an empty directory has no schema.
    (row,) = streaming._results(spark, {"rows": 10_000}, tmp_path, quiet)
    assert number(row, "value") > 0
    monkeypatch.setattr(streaming, "WARM", 1)
    sizes = {"live_rows": 2_000, "rows": 400, "batches": 1}
    rows = streaming._fixed_cost(spark, sizes, tmp_path, quiet)
    figures = {str(row["figure"]): number(row, "value") for row in rows}
    assert figures["streaming.state_rows"] == 2_000 + (1 + 1 + 1) * 400
    assert {"trigger_4000_rows_s", "recovery_s"} < set(figures) < set(FIGURE.titles)


def test_ratios_are_those_of_the_times(monkeypatch: pytest.MonkeyPatch, spark: SparkSession, tmp_path: Path) -> None:
    def theirs(spark: SparkSession, feed: object, checkpoint: Path, settings: str) -> list[float]:
        return [9.0, *{DEFAULT: [3.0, 4.0, 5.0], BEST: [2.0, 2.0, 1.0]}[settings]]

    monkeypatch.setattr(streaming, "_eddy", lambda *_: [9.0, 9.0, 0.5, 0.5, 1.0])
    monkeypatch.setattr(streaming, "spark_triggers", theirs)
    point = {"rows": 400, "batches": 3, "spark_batches": 3}
    rows = streaming._throughput(spark, point, tmp_path, quiet)
    rates = {str(row["way"]): (row["rows_per_s"], row["vs_default"], row["vs_best"]) for row in rows if "way" in row}
    assert rates == {
        "eddy, rows transport": (800, 8, 4),
        "eddy, packed transport": (800, 8, 4),
        DEFAULT: (100, 1, 0.5),
        BEST: (200, 2, 1),
    }
    named = {str(row["figure"]): row["value"] for row in rows if "figure" in row}
    assert named == {
        "rows_vs_spark_default.400": 8,
        "packed_vs_spark_default.400": 8,
        "rows_vs_spark_best.400": 4,
        "packed_vs_spark_best.400": 4,
    }


def test_micro_batches_without_input_do_not_count_on_the_side_of_spark() -> None:
    def progress(rows: int, ms: int, **more: int) -> dict[str, object]:
        return {"numInputRows": rows, "durationMs": {"triggerExecution": ms, **more}}

    recent = [progress(10, 3_000, addBatch=1), progress(0, 500, addBatch=1), progress(0, 9_000)]
    running = SimpleNamespace(awaitTermination=lambda: None, recentProgress=recent)
    assert finish(running) == [3.0, 0.5]
    assert finish(running, data_only=True) == [3.0]


def test_figures_of_a_full_run_have_titles() -> None:
    assert {"results", "throughput", "fixed cost", "object store", "scaling"} == {
        str(point["part"]) for point in points(True)
    }
    assert set(FIGURE.bars) < set(FIGURE.titles)


@pytest.mark.campaign(0)
@pytest.mark.slow
def test_a_hub_and_its_jobs_give_the_same_results(spark: SparkSession, tmp_path: Path) -> None:
    (row,) = hub._results(spark, {"rows": 5_000}, tmp_path, quiet)
    assert number(row, "value") > 0


def test_ratios_of_a_hub_are_those_of_its_turns(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession, tmp_path: Path
) -> None:
    monkeypatch.setattr(hub, "_of_job", lambda *_: [9.0, 9.0, 2.0, 4.0])
    monkeypatch.setattr(hub, "_of_hub", lambda *_: [9.0, 9.0, 4.0, 5.0])
    point = {"rows": 40, "batches": 2, "turns": 3, "queries": "two joins"}
    amounts, ratio = hub._pair(spark, point, tmp_path, quiet)
    assert amounts == {"hub_s": 4.5, "jobs_s": 6.0, "job1_s": 3.0, "job2_s": 3.0}
    assert ratio["figure"] == "hub2.apart_vs_two_jobs.40"
    assert (ratio["value"], ratio["value_low"], ratio["value_high"]) == (0.75, 0.75, 0.75)
