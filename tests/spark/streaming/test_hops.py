"""Streaming joins in hops: exact under every placement, through changes of it, restarts and lost workers."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from eddy.spark import join
from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery
from tests.cases import Case, assert_same, feed, sorted_by_time
from tests.cases import results as combinations
from tests.placement.test_simulation import drawn_plan
from tests.spark.streaming.jobs import Inputs, results
from tests.spark.test_placement import VALUES, case_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEP, SPREAD = 8, 12
"""Ticks from one micro-batch to the next, and those over which its rows lie."""


class Run:
    """A join to whose streams a test adds files, one for each micro-batch, and the oracle's results."""

    def __init__(self, spark: SparkSession, root: Path, streams: str, window: int | None, seed: int) -> None:
        self.spark, self.root, self.draw = spark, root, random.Random(seed)
        self.case: Case = case_of(streams, window)
        self.query = self.case.query()
        self.options: dict[str, Any] = {"partitions": 2, "key_groups": 4}
        if window is not None:
            self.options["lateness"] = SPREAD
        self.inputs = Inputs(root / "in", **{one.name: one.schema for one in self.case.streams})

    def plan(self) -> dict[str, list[tuple[str, str]]]:
        """Return a plan for each head, drawn."""
        return drawn_plan(self.query, self.draw)

    def start(self, **how: Any) -> StreamingJoinQuery:
        options = {**self.options, **how}
        joined = join(self.query, self.inputs.frames(self.spark), checkpoint=self.root / "state", **options)
        return joined.writeStream.toParquet(self.root / "out")

    def add(self, each: int = 12) -> int:
        """Add a file to each stream; return the number of rows."""
        number, rows = len(self.inputs.tables[self.case.streams[0].name]), 0
        for stream in self.case.streams:
            made = [
                {
                    name: STEP * number + self.draw.randrange(SPREAD)
                    if name == "t"
                    else 1000 * number + k
                    if name == "n"
                    else self.draw.choice(VALUES[name])
                    for name in stream.schema.names
                }
                for k in range(self.draw.randrange(2 * each))
            ]
            self.inputs.add(stream.name, made)
            rows += len(made)
        return rows

    def batch(self, running: StreamingJoinQuery) -> dict[str, Any]:
        """Add a micro-batch and wait for it; return its metrics."""
        self.add()
        running.processAllAvailable()
        return running.batches().to_pylist()[-1]

    def check(self, least: int = 100) -> None:
        oracle = self.case.oracle()
        arrivals = [
            (i, row) for i, stream in enumerate(self.case.streams) for row in self.inputs.rows(stream.name)
        ]
        found = combinations(feed(self.case, oracle, sorted_by_time(self.case, arrivals)))
        expected = [self.case.project(oracle, one) for one in found]
        assert len(expected) >= least, "the test should not be about nothing"
        assert_same(results(self.root / "out"), expected, "in hops")


@pytest.mark.parametrize(("transport", "partitions"), [("packed", 2), ("rows", 3), ("packed", 1)])
@pytest.mark.parametrize(("streams", "window"), [("RSTU", 9), ("RST", None)])
def test_a_plan_by_head_gives_the_results_of_the_oracle(
    spark: SparkSession, tmp_path: Path, streams: str, window: int | None, transport: str, partitions: int
) -> None:
    run = Run(spark, tmp_path, streams, window, partitions)
    running = run.start(placement=run.plan(), transport=transport, partitions=partitions)
    for _ in range(4):
        figures = run.batch(running)
    assert figures["placement"] == "hops"
    assert figures["loaded"] == 0
    running.stop()
    run.check()
