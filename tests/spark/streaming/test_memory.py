"""A streaming join with a bound on memory of a tenth of its state: equal results, bounded bytes, restarts, kills."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import eddy
from eddy.demo.workers import driver_jvm, kill, workers
from eddy.spark import Hub, Source, SparkJoinError, join
from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery
from tests.cases import assert_same, text_rows
from tests.spark.streaming.jobs import Inputs, await_rows, published, results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("n", pa.int64())])
GROUPS, KEYS, ROWS = 12, 20_000, 18_000


def query(names: str = "RS") -> eddy.Query:
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(10**6), time="t") for name in names]
    return eddy.Query(streams, ["R.k = S.k"], select=["R.n", "S.n"])


class Fed:
    """Streams with rows of a fixed seed."""

    def __init__(self, root: Path) -> None:
        self.inputs = Inputs(root / "in", R=SCHEMA, S=SCHEMA)
        self.chance = np.random.default_rng(7)
        self.batches = 0

    def add(self, rows: int, keys: int = KEYS) -> None:
        """Add a file with rows of the first keys to each stream."""
        made = {}
        for name in "RS":
            columns = self.chance.integers(0, keys, rows), np.arange(rows) + 20_000 * self.batches, np.arange(rows)
            made[name] = pa.table([pa.array(column) for column in columns], schema=SCHEMA)
        self.inputs.add_together(made)
        self.batches += 1

    def batch(self, running: StreamingJoinQuery, rows: int, keys: int = KEYS) -> list[dict[str, Any]]:
        """Add a file to each stream of a running join and wait for them; return the metrics of their micro-batches."""
        before = running.batches().num_rows
        self.add(rows, keys)
        return await_rows(running, 2 * rows, before)

    def expected(self) -> list[tuple[str, ...]]:
        tables = {name: pa.concat_tables(files) for name, files in self.inputs.tables.items()}
        return text_rows(eddy.Runtime(query()).push(tables))


def test_a_tenth_of_the_state_in_memory(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fed = Fed(tmp_path)
    frames = fed.inputs.frames(spark)

    def start(**how: Any) -> StreamingJoinQuery:
        joined = join(query(), frames, checkpoint=tmp_path / "state", key_groups=GROUPS, rebalance="off", **how)
        return joined.writeStream.toParquet(tmp_path / "out")

    fed.add(ROWS)
    running = start()
    (whole,) = await_rows(running, 2 * ROWS)
    assert (whole["memory_bytes"], whole["spilled_bytes"], whole["spills"]) == (whole["state_bytes"], 0, 0)
    running.stop()
    bound = whole["state_bytes"] // 10
    largest = whole["state_bytes"] // GROUPS * 2

    def bounded(row: dict[str, Any]) -> None:
        assert row["memory_bytes"] <= bound
        assert row["memory_peak_bytes"] <= bound + 2 * largest, "one engine of each worker exceeds the bound"

    with caplog.at_level(logging.WARNING, "eddy"):
        fed.add(1_000)
        running = start(memory=f"{bound} B")
        (row,) = await_rows(running, 2 * 1_000)
        bounded(row)
        # A restart: all engines come from the log, one after the other.
        assert (row["loaded"], row["live"], row["mapped"]) == (GROUPS, 0, 0)
        assert row["spills"] >= GROUPS - 2
        assert row["spilled_bytes"] > whole["state_bytes"] // 4
    assert "takes" in caplog.text
    assert f"memory={bound:,}: the engine of key group" in caplog.text
    # Uniform access, then access to a few cold and hot groups.
    for keys in (KEYS, 3, 3, 40, 3):
        for row in fed.batch(running, 200 if keys == KEYS else 20, keys):
            bounded(row)
            assert row["loaded"] == 0, "all come from memory and from files"
            assert row["live"] + row["mapped"] == row["groups"]
    text = running.explain()
    assert "for the engines of each host\n  host " in text
    assert "engines since the start: live " in text
    for pid in workers(driver_jvm(spark)):
        kill(pid)
    row, *later = fed.batch(running, 200)
    for figures in [row, *later]:
        bounded(figures)
    assert row["mapped"] >= GROUPS // 2, "engines in files outlive the worker that wrote them"
    assert row["loaded"] + row["mapped"] == GROUPS
    running.stop()
    assert_same(results(tmp_path / "out"), fed.expected(), "bounded")


def test_a_hub_with_a_tenth_of_the_state_in_memory(spark: SparkSession, tmp_path: Path) -> None:
    fed = Fed(tmp_path)
    for _ in range(3):
        fed.add(3_000)
    frames = fed.inputs.frames(spark)
    sources = [Source(eddy.Stream(name, SCHEMA, time="t"), frame, "k") for name, frame in frames.items()]
    streams = [eddy.Stream(name, SCHEMA, window=eddy.Range(500), time="t") for name in "RS"]
    asked = {"wide": query(), "near": eddy.Query(streams, ["R.k = S.k", "R.n < S.n"], select=["R.n", "S.n"])}
    hub = Hub(spark, sources, tmp_path / "state", key_groups=4, memory="400 kB")
    for name, hub_query in asked.items():
        hub.start(name, hub_query, tmp_path / name)
    running = hub.run(availableNow=True)
    assert running.awaitTermination(120)
    rows = running.batches().to_pylist()
    assert [row["loaded"] for row in rows] == [0, 0, 0]
    assert sum(row["mapped"] for row in rows) >= 4
    assert max(row["memory_bytes"] for row in rows) <= 400_000 < min(row["state_bytes"] for row in rows)
    tables = {name: pa.concat_tables(files) for name, files in fed.inputs.tables.items()}
    for name, hub_query in asked.items():
        assert_same(text_rows(published(tmp_path / name)), text_rows(eddy.Runtime(hub_query).push(tables)), name)


def test_bounds_that_cannot_be(spark: SparkSession, tmp_path: Path) -> None:
    frames, batch = Fed(tmp_path).inputs.frames(spark), spark.createDataFrame([], "k long, t long, n long")
    with pytest.raises(SparkJoinError, match=r"memory=1,000: an engine without rows takes [0-9,]+ bytes already"):
        join(query(), frames, checkpoint=tmp_path / "state", memory=1000)
    with pytest.raises(SparkJoinError, match="memory='2g': pass a number of bytes"):
        join(query(), frames, checkpoint=tmp_path / "state", memory="2g")
    with pytest.raises(SparkJoinError, match=r"memory= is for streaming DataFrames; max_bytes= bounds each engine"):
        join(query(), {"R": batch, "S": batch}, memory=10**9)  # type: ignore[call-overload]
