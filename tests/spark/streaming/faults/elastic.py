"""Runs a join whose executors Spark adds and removes: it grows under load, an executor dies, and it shrinks again.

    python -m tests.spark.streaming.faults.elastic DIRECTORY EXECUTORS SLOTS

Rows come as fast as the join takes them until all executors run, and a few at a time until one is left. Prints the
number of tasks of each micro-batch, and the number of engines that it loaded from the log.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import eddy
from eddy.spark import join, session
from eddy.spark.environment.executors import Executors
from eddy.spark.streaming.driver import demand
from tests.spark.streaming.faults.processes import below, processes
from tests.spark.streaming.jobs import Inputs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64())])
STREAMS = ("R", "S", "T")
SPAN, ROWS, FEW = 400, 300_000, 20
"""Event time of a window; the rows of a file under load, and otherwise. A file covers 1,000 of event time."""
PHASE_S = 500.0


class FileLoad:
    """Adds files, each with the next rows of its stream, until the join has so many executors."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self._random = np.random.default_rng(7)
        self._executors = Executors(spark.sparkContext)
        self.inputs = Inputs(root / "in", **dict.fromkeys(STREAMS, SCHEMA))
        self.files = 0

    def add(self, rows: int) -> None:
        """Add a file to each stream."""
        for name in STREAMS:
            times = np.sort(self._random.integers(0, 1000, rows)) + 1000 * self.files
            keys = self._random.integers(0, ROWS // 2, rows)
            self.inputs.add(name, pa.table([keys, times], schema=SCHEMA))
        self.files += 1

    def until(self, running: StreamingJoinQuery, rows: int, tasks: int) -> None:
        """Add files of so many rows until the join runs in so many tasks, and Spark has no more slots."""
        until = time.monotonic() + PHASE_S
        while (running.batches()["tasks"].to_pylist() or [0])[-1] != tasks or self._executors.slots() > tasks:
            assert time.monotonic() < until, f"no {tasks} tasks after {PHASE_S:.0f} s"
            for _ in range(3 if rows > FEW else 1):
                self.add(rows)
            running.processAllAvailable()
            if rows == FEW:
                time.sleep(0.3)


def main(root: Path, executors: int, slots: int) -> None:
    demand.WINDOW_S, demand.SHRINK_S = 2.0, 5.0
    os.environ["SPARK_WORKER_DIR"] = str(root / "work")
    spark = session(
        f"local-cluster[{executors},{slots},700]",
        **{
            "spark.dynamicAllocation.enabled": True,
            "spark.dynamicAllocation.minExecutors": 1,
            "spark.dynamicAllocation.maxExecutors": executors,
            "spark.dynamicAllocation.executorIdleTimeout": "4s",
            "spark.speculation": True,
            "spark.speculation.interval": "50ms",
            "spark.speculation.minTaskRuntime": "100ms",
            "spark.executor.memory": "600m",
            "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
            "spark.sql.warehouse.dir": str(root / "warehouse"),
        },
    )
    load = FileLoad(root, spark)
    query = eddy.Query(
        [eddy.Stream(name, SCHEMA, window=eddy.Range(SPAN), time="t") for name in STREAMS],
        ["R.k = S.k", "S.k = T.k"],
    )
    most = executors * slots
    joined = join(query, load.inputs.frames(spark), checkpoint=root / "checkpoint", partitions=most)
    running = joined.writeStream.format("parquet").start(root / "out")
    load.until(running, FEW, slots)
    load.until(running, ROWS, most)
    newest = below(os.getpid(), "CoarseGrainedExecutorBackend", processes())[-1]
    load.add(ROWS)
    time.sleep(0.3)
    os.kill(newest, signal.SIGKILL)
    running.processAllAvailable()
    load.until(running, FEW, slots)
    for _ in range(5):
        load.add(FEW)
        running.processAllAvailable()
    running.stop()
    batches = running.batches()
    print("tasks", *batches["tasks"].to_pylist())
    print("loaded", *batches["loaded"].to_pylist())
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
