"""The benchmark of streaming joins: all systems agree, and each figure has a title."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from bench import streaming
from bench.ratios import STREAMING
from bench.streaming import Bench, Sizes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TINY = Sizes({"small": (400, 1, 1), "large": (800, 1, 1)}, (1600, 1), live_rows=2_000, small_rows=400, repeats=1)


@pytest.mark.slow
def test_all_ways_give_the_same_results_and_a_state_is_loaded_again(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(TINY, tmp_path, Console(file=io.StringIO()))
    bench.check(spark)
    bench.fixed_cost(spark)
    assert bench.figures["streaming.results_compared"] > 0
    assert bench.figures["streaming.state_rows"] == TINY.live_rows + (1 + TINY.repeats) * TINY.small_rows


def test_all_figures_have_titles(monkeypatch: pytest.MonkeyPatch, spark: SparkSession, tmp_path: Path) -> None:
    seconds = {"_ours": 0.5, "spark_triggers": 2.0, "_empty": 0.25}
    for name, each in seconds.items():
        monkeypatch.setattr(streaming, name, lambda *_, each=each: [each] * 9)
    bench = Bench(TINY, tmp_path, Console(file=io.StringIO()))
    bench.throughput(spark)
    assert bench.scaling(spark) == {"streaming.large.scaling_1_to_2": 1600, "scaling_1_to_2": 3200}
    assert bench.figures["vs_spark_stream_joins.packed"] == 4
    others = {"streaming.results_compared", "streaming.state_rows", "streaming.state_bytes"}
    others |= {"streaming.large.scaling_1_to_2", "streaming.small_batch_s", "streaming.empty_batch_s"}
    others |= {*streaming.LEAST, *streaming.MOST}
    assert {*bench.figures, *others} == STREAMING.figures
