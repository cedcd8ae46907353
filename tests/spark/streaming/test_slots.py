"""A micro-batch whose tasks do not get their slots at once, because another job of the application has one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import eddy
from eddy.spark import join
from eddy.spark.streaming.driver import workers
from tests.spark.streaming.jobs import Inputs, results, slot_taken

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64())])


def test_a_micro_batch_waits_for_its_slots_and_says_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers, "SLOTS_S", 0.5)
    inputs = Inputs(tmp_path / "in", R=SCHEMA, S=SCHEMA)
    for name in "RS":
        inputs.add(name, [{"k": n, "t": n} for n in range(20)])
    query = eddy.Query([eddy.Stream(name, SCHEMA, window=eddy.Range(5), time="t") for name in "RS"], ["R.k = S.k"])
    joined = join(query, inputs.frames(spark), checkpoint=tmp_path / "state", partitions=2)
    with slot_taken(spark, tmp_path) as release:
        running = joined.writeStream.trigger(availableNow=True).toParquet(tmp_path / "out")
        warned = "batch 0: after 0 s its 2 tasks have not all read their rows and met"
        until = time.monotonic() + 60
        while warned not in caplog.text and time.monotonic() < until:
            time.sleep(0.05)
        assert warned in caplog.text
        assert results(tmp_path / "out") == []
        release()
        assert running.awaitTermination(120)
        assert len(results(tmp_path / "out")) == 20
