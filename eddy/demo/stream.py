"""The streaming part of the demo: a scenario of faults, and the streaming join that runs through it.

A feeder drops files into directories, and the job joins the rows of the files as the files arrive. Meanwhile the data
drift, a Python worker is killed, and the job is stopped in the middle of a micro-batch and restarted with another
number of partitions. At the end the number of results of each transfer must equal an independent count.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from eddy.demo.feeder import Feeder
from eddy.demo.scenario import RunRecord, Scenario, ScenarioOutcome, compare_counts
from eddy.demo.transfers import COLUMNS, TransferArrivals, exact_counts, query, schema
from eddy.demo.workers import driver_jvm, kill, paused, workers
from eddy.spark.errors import SparkJoinError, first_line
from stairs.errors import EddyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery

AHEAD = 2
"""Batches of files that may wait for the job."""
POLL_S = 0.2
"""Seconds between two looks at the job."""
HELD_S = 0.5
"""Seconds after which a stage without progress is assumed to wait for a stopped worker."""
NOTICED_S = 0.5
"""Seconds in which Spark notices that the worker of a task has ended."""
IDLE_POLLS = 10
"""Looks without an active micro-batch after which a failed micro-batch is over; a failing job also idles."""
TIMEOUT_S = 300.0


def run_stream(
    spark: SparkSession,
    folder: Path,
    scenario: Scenario,
    arrivals: TransferArrivals,
    show: Callable[[RunRecord], None],
    checkpoint: Mapping[str, Any] | None = None,
) -> tuple[RunRecord, ScenarioOutcome]:
    """Run a scenario in an empty folder; `show` is called with the record whenever it may have changed.

    checkpoint   the options of the join that say where its checkpoint is; None = below the folder

    Raises SparkJoinError if the job fails for another reason than the killed worker, or does not end in time.
    """
    counted: list[np.ndarray] = []
    counting = threading.Thread(
        target=lambda: counted.append(exact_counts({name: arrivals.stream(name) for name in COLUMNS})), daemon=True
    )
    counting.start()
    feeder = Feeder(folder / "in", arrivals.batches, scenario.pause_s)
    record = RunRecord()
    feeder.start()
    spark.sparkContext.setLogLevel("OFF")  # the failures are on purpose
    try:
        place = {"checkpoint": folder / "checkpoint"} if checkpoint is None else checkpoint
        _ScenarioRun(spark, folder, place, scenario, feeder, arrivals.drift, record, lambda: show(record)).run()
    finally:
        feeder.stop()
        spark.sparkContext.setLogLevel(spark.conf.get("spark.log.level", None) or "WARN")
    counting.join()
    return record, compare_counts(pq.read_table(folder / "results", schema=query().output_schema), counted[0])


@dataclass
class _ScenarioRun:
    """A run of the scenario, step by step."""

    spark: SparkSession
    folder: Path
    checkpoint: Mapping[str, Any]
    scenario: Scenario
    feeder: Feeder
    drift: int
    record: RunRecord
    show: Callable[[], None]
    late_at: float = field(default_factory=lambda: time.monotonic() + TIMEOUT_S)
    running: StreamingJoinQuery | None = None

    def run(self) -> None:
        before, after = self.scenario.partitions
        try:
            self._start(before)
            self._until(lambda: len(self.record.rows) >= self.scenario.kill_after)
            self._kill(before)
            self._until(lambda: len(self.record.rows) >= self.scenario.stop_after)
            self._stop()
            self.record.note(f"stopped in a micro-batch, restarted with {after} partitions instead of {before}")
            self._start(after)
            self._until(lambda: self.feeder.done)
            ending = threading.Thread(target=self._process_all, daemon=True)
            ending.start()
            self._until(lambda: not ending.is_alive())
        finally:
            self._stop()
        self.show()

    def _start(self, partitions: int) -> None:
        from eddy.spark import join

        frames = {
            name: self.spark.readStream.schema(_spark_schema(name))
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.feeder.folder / name))
            for name in COLUMNS
        }
        made = join(
            query(),
            frames,
            **self.checkpoint,
            partitions=partitions,
            key_groups=self.scenario.key_groups,
        )
        self.running = made.writeStream.format("parquet").start(self.folder / "results")
        self.record.starts += 1

    def _stop(self) -> None:
        if self.running is not None:
            self.running.stop()
            self.record.add(self.running)
            self.running = None

    def _process_all(self) -> None:
        from pyspark.errors import StreamingQueryException

        assert self.running is not None
        try:
            self.running.processAllAvailable()
        except (StreamingQueryException, EddyError):
            return  # `_look` raises it

    def _until(self, done: Callable[[], bool]) -> None:
        self._look()
        while not done():
            time.sleep(POLL_S)
            self._look()

    def _look(self) -> None:
        assert self.running is not None
        self.record.add(self.running)
        done = len(self.record.rows)
        self.feeder.allow(done + AHEAD)
        if self.record.drift is None and done >= self.drift:
            self.record.drift = self.record.next_batch
            self.record.note("the data drift: payees are selective now, and logins are not")
        self.show()
        problem = self.running.exception()
        if problem is not None:
            raise SparkJoinError(f"the streaming join failed: {first_line(problem)}") from problem
        if time.monotonic() > self.late_at:
            raise SparkJoinError(f"the streaming join has not ended after {TIMEOUT_S:.0f} s; the machine may be busy")

    def _kill(self, partitions: int) -> None:
        """Kill a worker in the middle of its task, and wait until the job has recovered."""
        assert self.running is not None
        jvm = driver_jvm(self.spark)
        while not self.record.failed_tasks:
            self._look()
            if len(self.record.rows) >= self.scenario.batches:
                self.record.note("no worker was killed, because none was found at a task")
                return
            with paused(workers(jvm)) as held:
                if self._stage_waits():
                    self._kill_one_at_its_task(held)
        self.record.add(self.running)
        batch = self.record.next_batch
        what = f"worker process {self.record.killed} was killed at its task"
        if self._recovered(batch):
            self.record.note(f"{what}, which Spark ran again", batch)
        else:
            self.record.note(f"{what}: the job failed and was restarted", batch)
            self._stop()
            self._start(partitions)

    def _kill_one_at_its_task(self, held: list[int]) -> None:
        """Kill stopped workers until a task fails: Spark does not say which worker has which task."""
        for pid in held:
            if kill(pid):
                self.record.killed = pid
                self.record.failed_tasks = self._failed_tasks_soon()
            if self.record.failed_tasks:
                return

    def _stage_waits(self) -> bool:
        """Return whether a stage waits for a stopped worker: the same tasks run for HELD_S; at most 2 HELD_S."""
        ends = time.monotonic() + 2 * HELD_S
        tasks, since = self._running_tasks(), time.monotonic()
        while time.monotonic() < ends:
            if tasks and time.monotonic() - since >= HELD_S:
                return True
            time.sleep(HELD_S / 10)
            if (now := self._running_tasks()) != tasks:
                tasks, since = now, time.monotonic()
        return False

    def _running_tasks(self) -> list[tuple[int, int, int]]:
        """Return (stage, running tasks, completed tasks) of each stage that runs."""
        tracker = self.spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in sorted(tracker.getActiveStageIds())]
        return [
            (stage.stageId, stage.numActiveTasks, stage.numCompletedTasks)
            for stage in stages
            if stage is not None and stage.numActiveTasks
        ]

    def _failed_tasks_soon(self) -> int:
        """Return the number of failed tasks as soon as Spark has noticed one, 0 if it does not within NOTICED_S."""
        ends = time.monotonic() + NOTICED_S
        while not (failed := self._failed_tasks()) and time.monotonic() < ends:
            time.sleep(POLL_S / 4)
        return failed

    def _recovered(self, batch: int) -> bool:
        """Return whether the job continues after tasks of a micro-batch have failed, False if it has ended."""
        assert self.running is not None
        quiet = 0
        while self.running.isActive and self.record.next_batch == batch and quiet < IDLE_POLLS:
            time.sleep(POLL_S)
            self.record.add(self.running)
            quiet = 0 if self.running.status["isTriggerActive"] else quiet + 1
        return self.running.isActive

    def _failed_tasks(self) -> int:
        assert self.running is not None
        tracker = self.spark.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self.running.runId)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        return sum(stage.numFailedTasks for stage in stages if stage is not None)


def _spark_schema(stream: str) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema(stream))
