"""The streaming part of the demo: what happens to the job, and what came out of it.

Files are dropped into directories and joined as they come. Meanwhile the data drift, a Python worker is killed, and the
job is stopped in the middle of a micro-batch and started again with another number of partitions. In the end each
transfer has to be in exactly as many results as counting says.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eddy.demo.feeder import Feeder
from eddy.demo.transfers import COLUMNS, Arrivals, exact_counts, query, schema
from eddy.demo.workers import busy_workers, driver_jvm, kill
from eddy.spark.errors import SparkJoinError
from stairs.errors import EddyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eddy.spark.streaming.driver.streaming_query import StreamingJoinQuery

AHEAD = 2
"""Batches of files that may wait for the job."""
LOOK_S = 0.2
KILL_LOOK_S = 0.002
NOTICED_S = 1.0
"""Until Spark has noticed the end of a worker that was at a task."""
QUIET_LOOKS = 10
"""Looks without a micro-batch under way, after which it is over: a job that fails is so for a moment as well."""
TOO_LONG_S = 300.0


@dataclass(frozen=True)
class Course:
    """What happens. Batches are those of the files; the job makes about the same.

    batches, rows  so many batches of files, with about so many rows of all streams in each
    pause_s        from one batch of files to the next; longer when the job lags behind
    key_groups     each has an engine, and a plan, of its own
    partitions     before the restart and after it
    kill_after     micro-batches that are done when a worker is killed in the next
    stop_after     the same for the restart
    """

    batches: int = 12
    rows: int = 20_000
    pause_s: float = 1.0
    key_groups: int = 8
    partitions: tuple[int, int] = (2, 3)
    kill_after: int = 2
    stop_after: int = 8


@dataclass
class Story:
    """What has happened so far; `rows` and `groups` are those of `StreamingJoinQuery.batches()` and `.groups()`.

    events  micro-batch that was under way -> what happened, in words
    killed  the worker process that was killed last; failed_tasks: how many failed for it
    starts  how often the job was started
    drift   the first micro-batch after the drift, None before it
    """

    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    groups: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    events: list[tuple[int, str]] = field(default_factory=list)
    killed: int | None = None
    failed_tasks: int = 0
    starts: int = 0
    drift: int | None = None

    @property
    def next_batch(self) -> int:
        """The micro-batch that is under way or comes next."""
        return max(self.rows, default=-1) + 1

    def tell(self, what: str) -> None:
        """Note an event."""
        self.events.append((self.next_batch, what))

    def add(self, run: StreamingJoinQuery) -> None:
        """Take over the figures of a run."""
        for row in run.batches().to_pylist():
            self.rows[row["batch"]] = row
        own: dict[int, list[dict[str, Any]]] = {}
        for row in run.groups().to_pylist():
            own.setdefault(row["batch"], []).append(row)
        self.groups.update(own)

    def changes(self) -> list[dict[str, Any]]:
        """Return the rows of groups whose plan is not the one before, with that one as "before"."""
        plans: dict[int, str] = {}
        found = []
        for batch in sorted(self.groups):
            for row in self.groups[batch]:
                before = plans.get(row["group"])
                if before is not None and before != row["plan"]:
                    found.append({**row, "before": before})
                plans[row["group"]] = row["plan"]
        return found


@dataclass(frozen=True)
class Verdict:
    """The results against the count.

    results   rows published
    expected  results there have to be
    wrong     what differs, None: nothing
    """

    results: int
    expected: int
    wrong: str | None


def run_stream(
    spark: SparkSession, folder: Path, course: Course, arrivals: Arrivals, show: Callable[[Story], None]
) -> tuple[Story, Verdict]:
    """Run the course in an empty folder; `show` is called again and again meanwhile.

    Raises SparkJoinError if the job fails other than by the worker that was killed, or does not come to an end.
    """
    counted: list[np.ndarray] = []
    counting = threading.Thread(
        target=lambda: counted.append(exact_counts({name: arrivals.stream(name) for name in COLUMNS})), daemon=True
    )
    counting.start()
    feeder = Feeder(folder / "in", arrivals.batches, course.pause_s)
    story = Story()
    feeder.start()
    spark.sparkContext.setLogLevel("OFF")  # of what fails on purpose the log would tell at length
    try:
        _Play(spark, folder, course, feeder, arrivals.drift, story, lambda: show(story)).run()
    finally:
        feeder.stop()
        spark.sparkContext.setLogLevel(spark.conf.get("spark.log.level", None) or "WARN")
    counting.join()
    return story, judge(pq.read_table(folder / "results", schema=query().output_schema), counted[0])


def judge(results: pa.Table, expected: np.ndarray) -> Verdict:
    """Compare results with the number that each transfer is to be in. O(results log results)."""
    total = int(expected.sum())
    distinct = results.group_by(results.column_names).aggregate([([], "count_all")])
    repeated = results.num_rows - distinct.num_rows
    found = np.bincount(results.column("transfers").to_numpy(), minlength=len(expected))
    wanted = np.pad(expected, (0, len(found) - len(expected)))
    off = np.flatnonzero(found != wanted)
    wrong = None
    if repeated:
        wrong = f"{repeated:,} results are there more than once"
    elif len(off):
        first = int(off[0])
        wrong = f"{len(off):,} transfers have other results, transfer {first} has {found[first]} for {wanted[first]}"
    return Verdict(results.num_rows, total, wrong)


@dataclass
class _Play:
    """The course, act by act."""

    spark: SparkSession
    folder: Path
    course: Course
    feeder: Feeder
    drift: int
    story: Story
    show: Callable[[], None]
    late_at: float = field(default_factory=lambda: time.monotonic() + TOO_LONG_S)
    running: StreamingJoinQuery | None = None

    def run(self) -> None:
        before, after = self.course.partitions
        try:
            self._start(before)
            self._until(lambda: len(self.story.rows) >= self.course.kill_after)
            self._kill(before)
            self._until(lambda: len(self.story.rows) >= self.course.stop_after)
            self._stop()
            self.story.tell(f"stopped in the middle, started again with {after} partitions instead of {before}")
            self._start(after)
            self._until(lambda: self.feeder.done)
            ending = threading.Thread(target=self._process_all, daemon=True)
            ending.start()
            self._until(lambda: not ending.is_alive())
        finally:
            last = self.running
            self._stop()
            if last is not None:
                last.forget_live_engines()  # they lie outside of the folder
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
            checkpoint=self.folder / "checkpoint",
            partitions=partitions,
            key_groups=self.course.key_groups,
        )
        self.running = made.writeStream.format("parquet").start(self.folder / "results")
        self.story.starts += 1

    def _stop(self) -> None:
        if self.running is not None:
            self.running.stop()
            self.story.add(self.running)
            self.running = None

    def _process_all(self) -> None:
        from pyspark.errors import StreamingQueryException

        assert self.running is not None
        try:
            self.running.processAllAvailable()
        except (StreamingQueryException, EddyError):
            return  # `_look` finds it, and says why

    def _until(self, done: Callable[[], bool]) -> None:
        self._look()
        while not done():
            time.sleep(LOOK_S)
            self._look()

    def _look(self) -> None:
        assert self.running is not None
        self.story.add(self.running)
        done = len(self.story.rows)
        self.feeder.allow(done + AHEAD)
        if self.story.drift is None and done >= self.drift:
            self.story.drift = self.story.next_batch
            self.story.tell("the data drift: from here on it is payees that sort out, and not logins")
        self.show()
        problem = self.running.exception()
        if problem is not None:
            raise SparkJoinError(f"the streaming join failed: {_first_line(problem)}") from problem
        if time.monotonic() > self.late_at:
            raise SparkJoinError(f"the streaming join is not done after {TOO_LONG_S:.0f} s; is this machine busy?")

    def _kill(self, partitions: int) -> None:
        """Kill a worker in the middle of its task, and go on when the job has got over it."""
        assert self.running is not None
        jvm = driver_jvm(self.spark)
        while not self.story.failed_tasks:
            self._look()
            if len(self.story.rows) >= self.course.batches:
                self.story.tell("no worker was caught at its task, so none was killed")
                return
            self.story.killed = self._killed_worker(jvm)
            # A worker that had just ended its task is only replaced: then it is another one's turn.
            if self.story.killed is not None:
                self.story.failed_tasks = self._failed_tasks_soon()
        what = f"worker process {self.story.killed} killed at its task"
        if self._got_over_it():
            self.story.tell(f"{what}, which ran again")
        else:
            self.story.tell(f"{what}: the job failed, and was started again")
            self._stop()
            self._start(partitions)

    def _killed_worker(self, jvm: int) -> int | None:
        """Kill a worker that is seen at work while tasks run; return its id, None if there is none for a while."""
        ends = time.monotonic() + LOOK_S
        while time.monotonic() < ends:
            for pid in busy_workers(jvm):
                if self._tasks_run() and kill(pid):
                    return pid
            time.sleep(KILL_LOOK_S)
        return None

    def _tasks_run(self) -> bool:
        tracker = self.spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(stage is not None and stage.numActiveTasks for stage in stages)

    def _failed_tasks_soon(self) -> int:
        """Return how many tasks have failed, as soon as Spark has noticed one; 0 if it does not for a while."""
        ends = time.monotonic() + NOTICED_S
        while not (failed := self._failed_tasks()) and time.monotonic() < ends:
            time.sleep(LOOK_S / 4)
        return failed

    def _got_over_it(self) -> bool:
        """Tell whether the job goes on after tasks have failed: false if it has ended."""
        assert self.running is not None
        self.story.add(self.running)
        batch, quiet = self.story.next_batch, 0
        while self.running.isActive and self.story.next_batch == batch and quiet < QUIET_LOOKS:
            time.sleep(LOOK_S)
            self.story.add(self.running)
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


def _first_line(problem: BaseException) -> str:
    return str(problem).strip().partition("\n")[0]
