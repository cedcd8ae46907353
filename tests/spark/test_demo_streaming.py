"""The streaming part of the demo in a short form: its exact count, its comparison, and the whole scenario."""

from __future__ import annotations

import itertools
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from eddy.demo.command import run_streaming
from eddy.demo.feeder import Feeder
from eddy.demo.scenario import Scenario, compare_counts
from eddy.demo.transfers import COLUMNS, WINDOW, draw, exact_counts, query
from eddy.demo.workers import driver_jvm, paused, workers

SHORT = Scenario(batches=7, rows=6_000, pause_s=0.0, key_groups=4, partitions=(2, 1), kill_after=1, stop_after=3)


def small_streams(seed: int) -> dict[str, pa.Table]:
    rng = np.random.default_rng(seed)
    streams = {}
    for name, keys in COLUMNS.items():
        n = 14
        # Few event times, so that rows meet at the ends of windows and at equal times.
        at = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=45 * int(k)) for k in rng.integers(0, 6, n)]
        columns: dict[str, Any] = {key: rng.integers(0, 2, n) for key in keys}
        schema = next(stream.schema for stream in query().streams if stream.name == name)
        streams[name] = pa.table({**columns, "number": np.arange(n), "at": at}, schema=schema)
    return streams


@pytest.mark.parametrize("seed", range(4))
def test_counting_agrees_with_trying_all_combinations(seed: int) -> None:
    streams = small_streams(seed)
    expected = np.zeros(streams["transfers"].num_rows, np.int64)
    for t, *others in itertools.product(*(streams[name].to_pylist() for name in COLUMNS)):
        login, payee, warning = others
        times = [row["at"] for row in (t, *others)]
        expected[t["number"]] += (
            t["account"] == login["account"] == payee["account"] == warning["account"]
            and t["device"] == login["device"]
            and t["payee"] == payee["payee"]
            and max(times) - min(times) <= WINDOW
        )
    assert expected.any()
    assert exact_counts(streams).tolist() == expected.tolist()


def results(transfers: list[int], logins: list[int]) -> pa.Table:
    return pa.table({"transfers": transfers, "logins": logins, "payees": transfers, "warnings": transfers})


@pytest.mark.parametrize(
    ("transfers", "logins", "says"),
    [
        ([0, 2, 2], [0, 1, 2], None),
        ([2, 0, 2], [1, 1, 1], "1 results are duplicates"),
        ([0, 2], [0, 1], "1 transfers have a wrong number of results: transfer 2 has 1 instead of 2"),
        ([0, 1, 2], [0, 1, 2], "2 transfers have a wrong number of results: transfer 1 has 1 instead of 0"),
        ([0, 2, 2, 3], [0, 1, 2, 3], "transfer 3 has 1 instead of 0"),
    ],
)
def test_the_judge_sees_what_is_missing_repeated_or_too_much(
    transfers: list[int], logins: list[int], says: str | None
) -> None:
    outcome = compare_counts(results(transfers, logins), np.array([1, 0, 2]))
    assert outcome.expected == 3
    assert outcome.results == len(transfers)
    assert outcome.wrong is None if says is None else says in (outcome.wrong or "")


def test_the_data_are_the_same_each_time_and_drift() -> None:
    first, other = draw(4, 1_000), draw(4, 1_000)
    assert all(first.stream(name).equals(other.stream(name)) for name in COLUMNS)
    devices = [len(set(batch["transfers"]["device"].to_pylist())) for batch in first.batches]
    payees = [len(set(batch["transfers"]["payee"].to_pylist())) for batch in first.batches]
    assert min(devices[:2]) > 100 > max(devices[2:])
    assert max(payees[:2]) < 100 < min(payees[2:])


def test_files_appear_whole_and_no_more_than_allowed(tmp_path: Path) -> None:
    batches = draw(3, 400).batches
    feeder = Feeder(tmp_path / "in", batches, 0.0)
    feeder.start()
    feeder.allow(2)
    while feeder.dropped < 2:
        for path in (tmp_path / "in").glob("*/*.parquet"):
            if path.parent.name != ".begun":
                assert pq.read_table(path).num_rows
    assert not feeder.done
    feeder.stop()
    for name in COLUMNS:
        files = sorted((tmp_path / "in" / name).iterdir())
        assert [pq.read_table(file).num_rows for file in files] == [batch[name].num_rows for batch in batches[:2]]


def test_a_worker_is_found_below_its_own_jvm_only_and_can_be_held(spark: SparkSession, tmp_path: Path) -> None:
    begun, enough = tmp_path / "begun", tmp_path / "enough"

    def wait(batches: Any) -> Any:
        import os
        import time

        begun.write_text(str(os.getpid()))
        ends = time.monotonic() + 60
        while not enough.exists() and time.monotonic() < ends:
            time.sleep(0.01)
        for batch in batches:
            yield pa.RecordBatch.from_arrays([pa.array([os.getpid()] * batch.num_rows)], names=["pid"])

    told: list[int] = []
    job = threading.Thread(
        target=lambda: told.extend(row.pid for row in spark.range(0, 1, 1, 1).mapInArrow(wait, "pid bigint").collect())
    )
    job.start()
    while job.is_alive() and not begun.exists():
        time.sleep(0.01)
    worker_ids = workers(driver_jvm(spark))
    with paused(worker_ids) as held:
        enough.touch()
        job.join(0.3)
        assert job.is_alive()
    job.join()
    assert set(told) <= set(held) <= set(worker_ids)
    assert told
    assert workers(told[0]) == []


@pytest.mark.campaign(0)
@pytest.mark.slow
def test_the_whole_course(spark: SparkSession, tmp_path: Path) -> None:
    console = Console(record=True, width=140)
    figures = run_streaming(console, SHORT, spark, tmp_path / "kept")
    printed = console.export_text()
    assert figures["exact"], figures["wrong"]
    assert figures["results"] == figures["expected"] > 1_000
    # The test session retries no task, so a killed worker ends the job.
    assert figures["starts"] == 3
    assert figures["killed"]["failed_tasks"] >= 1
    events = " / ".join(event["event"] for event in figures["events"])
    assert "killed at its task: the job failed and was restarted" in events
    assert "the data drift" in events
    assert "stopped in a micro-batch, restarted with 1 partitions instead of 2" in events
    assert sum(row["rows"] for row in figures["batches"]) == draw(SHORT.batches, SHORT.rows).rows
    assert sum(row["results"] for row in figures["batches"]) == figures["results"]
    assert "exact" in printed
    assert events.split(" / ")[0] in printed
    assert pq.read_table(tmp_path / "kept" / "results").num_rows == figures["results"]
    assert "Traceback" not in printed
