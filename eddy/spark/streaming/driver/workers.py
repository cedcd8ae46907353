"""The Python workers of a join: one Spark job per micro-batch, in workers that keep the engines.

The tasks of a micro-batch meet (`meeting.py`), so all tasks must run at the same time. Spark guarantees this for a
barrier stage, which it starts only when it has a slot for every task. Spark does not repeat a barrier stage that fails,
so `run` repeats the stage as often as Spark repeats a task.

With dynamic allocation Spark refuses barrier stages. The stage is then a usual one: it has at most one task for each
slot, tasks return errors as reports, and a meeting to which not all tasks come in time ends, and is held again with
fewer tasks (`elastic_tasks.py`). How many tasks there are follows from the load (`demand.py`).

The workers have their own pool (`environment/pools.py`). Otherwise tasks of other jobs would use the same workers, and
a task of the join could get a worker without engines. Spark ends workers that were idle for a minute, so a thread runs
an empty task twice a minute while no micro-batch runs.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from eddy.log import LOG
from eddy.spark.environment.executors import Executors
from eddy.spark.environment.pools import in_pool, return_pool, take_pool
from eddy.spark.environment.session import one_host
from eddy.spark.errors import MalformedMessageError, error_of_worker
from eddy.spark.job_description import described
from eddy.spark.streaming.driver.context import JobContext
from eddy.spark.streaming.driver.elastic_tasks import ElasticTasks
from eddy.spark.streaming.driver.meeting import Decide, Meetings, TooFewTasksError
from eddy.spark.streaming.worker.engines import JoinStart
from eddy.spark.streaming.worker.join_stage import MEETING, Orders, RunTask
from eddy.spark.streaming.worker.tasks import TaskFailure, TaskReport

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

MakeOrders = Callable[[int], Sequence[Orders]]
"""Takes a number of tasks; returns the orders of each."""
SLOTS_S = 20.0
"""Seconds after which a micro-batch logs a warning if not all of its tasks have met."""
_WAITS = (
    "%s: batch %d: after %.0f s its %d tasks have not all read their rows and met; if Spark has not started them, other"
    " jobs use its slots: give the join cores of its own"
)
MEET_S = 5.0
"""With dynamic allocation, the seconds after the first task of a micro-batch in which all must start."""
ALIVE_S = 25.0
"""Spark looks for idle workers every ten seconds, and ends them after sixty."""


class Workers:
    """The workers of one start of a join.

    tasks   the maximal number of tasks at a time
    """

    def __init__(self, context: JobContext, tasks: int) -> None:
        from pyspark.serializers import CloudPickleSerializer

        spark = context.spark.sparkContext
        self._context = context
        self._spark = spark
        job = CloudPickleSerializer().dumps((context.job, context.locations, context.carried.inputs, context.grouped))
        conf = spark.getConf()
        host = conf.get("spark.driver.host") or "127.0.0.1"
        self._executors = Executors(spark)
        copies = self._executors.elastic and self._executors.copies  # Spark copies no task of a barrier stage
        self._meetings = Meetings(host, context.key, conf.get("spark.driver.bindAddress"), copies)
        start = JoinStart(uuid.uuid4().hex, job, context.key, one_host(context.spark))
        self._run_task = RunTask(start, self._meetings.place, self._executors.elastic)
        self._attempts = _attempts(spark)
        self._stages: dict[tuple[int, tuple[str, ...]], RDD[TaskReport | TaskFailure]] = {}
        self._elastic: ElasticTasks | None = None
        if self._executors.elastic:
            self._elastic = ElasticTasks(spark, self._executors, context.name, tasks, self._warm_up)
        self._running = threading.Lock()
        self._used_at = 0.0  # the thread starts the workers while Spark plans the query
        self._closed = threading.Event()
        self._pool = take_pool(spark, tasks)
        # Executors that come and go may go with their workers.
        if self._elastic is None:
            threading.Thread(target=self._keep_alive, name="eddy keeps workers", daemon=True).start()

    def run(
        self, batch: int, most: int, orders: MakeOrders, decide: Decide, check: Callable[[], None], busy_s: float
    ) -> list[TaskReport]:
        """Run a micro-batch in at most `most` tasks; return their reports.

        orders  returns the orders of each of a number of tasks
        decide  takes the report of each task (`worker.join_stage.Said`) and returns the `BatchTask` of the task
        check   raises an error if the query was stopped
        busy_s  seconds of tasks that the micro-batch took already

        Runs the job again if the job fails, as often as Spark runs a task, because the driver cannot know which errors
        are transient. The error of a message that cannot be decoded is not transient, so it is not repeated.
        """
        left = self._attempts
        with self._running:
            try:
                while True:
                    try:
                        tasks = self._tasks(most)
                        reports = self._run_once(batch, orders(tasks), decide)
                    except TooFewTasksError as few:
                        check()
                        most = max(1, few.came)
                        LOG.warning(
                            "%s: batch %d: Spark started %d of %d tasks in %.0f s, and the batch runs again in %d",
                            *(self._context.name, batch, few.came, tasks, MEET_S, most),
                        )
                    except Exception as problem:
                        check()
                        left -= 1
                        cause = error_of_worker(problem) or problem
                        if not left or isinstance(cause, MalformedMessageError):
                            raise
                        LOG.warning("%s: batch %d failed and runs again: %s", self._context.name, batch, cause)
                    else:
                        if self._elastic is not None:
                            self._elastic.saw(tasks, busy_s + sum(report.busy_s for report in reports))
                        return reports
            finally:
                self._used_at = time.monotonic()

    def _tasks(self, most: int) -> int:
        """Return the number of tasks of the next stage, at most `most`."""
        if self._elastic is not None:
            return self._elastic.count(most)
        return max(1, min(most, self._executors.slots()))

    def _warm_up(self, places: Sequence[str]) -> None:
        """Start a Python worker in each of some places."""
        with described(self._context.spark, f"{self._context.name}: new executors"):
            self._run_nothing(tuple(places))

    def _run_nothing(self, places: tuple[str, ...] = ()) -> None:
        """Run an empty task in each of some places, or one anywhere."""
        numbers = self._executors.numbers(max(1, len(places)), places)
        in_pool(self._spark, self._pool, numbers.mapPartitions(_nothing)).collect()

    def _run_once(self, batch: int, orders: Sequence[Orders], decide: Decide) -> list[TaskReport]:
        decided, tasks = False, len(orders)
        # Spark logs no message while a barrier stage waits.
        slow = threading.Timer(SLOTS_S, LOG.warning, (_WAITS, self._context.name, batch, SLOTS_S, tasks))

        def decide_once(said: Any) -> Any:
            nonlocal decided
            answers = decide(said)
            decided = True
            slow.cancel()
            return answers

        slow.daemon = True
        slow.start()
        try:
            reports = self._meet(orders, decide_once)
        finally:
            slow.cancel()
        _raise_error(reports)
        if not decided:
            raise RuntimeError(f"the {tasks} tasks of a micro-batch ended before they met")
        done = [report for report in reports if isinstance(report, TaskReport)]
        if len(done) < tasks:
            raise RuntimeError(f"Spark lost {tasks - len(done)} of the {tasks} tasks of a micro-batch")
        return done

    def _meet(self, orders: Sequence[Orders], decide: Decide) -> list[TaskReport | TaskFailure]:
        """Run the tasks of a meeting; return their reports."""
        tasks = len(orders)
        if self._elastic is None:
            with self._meetings.hold(orders, decide) as name:
                self._spark.setLocalProperty(MEETING, name)
                return self._stage(tasks).collect()
        reports: list[TaskReport | TaskFailure] = []
        try:
            with (
                self._elastic.watched(lambda: self._meetings.give_up(name), tasks) as in_vain,
                self._meetings.hold(orders, decide, MEET_S, in_vain) as name,
            ):
                self._spark.setLocalProperty(MEETING, name)
                reports = self._stage(tasks).collect()
        except TooFewTasksError:
            _raise_error(reports)
            raise
        return reports

    def _stage(self, tasks: int) -> RDD[TaskReport | TaskFailure]:
        """Return the stage of this many tasks, planned once."""
        places = () if self._elastic is None else self._elastic.places(tasks)
        if (tasks, places) not in self._stages:
            numbers = self._executors.numbers(tasks, places)
            if self._elastic is None:
                stage = numbers.barrier().mapPartitions(self._run_task)
            else:
                self._stages.clear()  # executors that have gone do not return
                stage = numbers.mapPartitions(self._run_task)
            self._stages[tasks, places] = in_pool(self._spark, self._pool, stage)
        return self._stages[tasks, places]

    def _keep_alive(self) -> None:
        text = f"{self._context.name}: keep workers"
        while not self._closed.is_set():
            with self._running:
                if time.monotonic() - self._used_at > ALIVE_S:
                    # The session may have ended.
                    with contextlib.suppress(Exception), described(self._context.spark, text):
                        self._run_nothing()
                    self._used_at = time.monotonic()
            self._closed.wait(ALIVE_S / 5)

    def close(self) -> None:
        """Let Spark end the workers, or let the next join use them. Idempotent."""
        if not self._closed.is_set():
            self._closed.set()
            self._executors.close()
            self._meetings.close()
            return_pool(self._spark, self._pool)


def _raise_error(reports: Sequence[TaskReport | TaskFailure]) -> None:
    """Raise the error of the first task that failed and was not turned away."""
    for report in reports:
        if isinstance(report, TaskFailure) and report.trace is not None:
            raise RuntimeError(report.trace)


def _nothing(numbers: Iterable[int]) -> Iterator[int]:
    list(numbers)
    return iter(())


def _attempts(context: SparkContext) -> int:
    """Return how often Spark runs a task that fails."""
    try:
        return int(context._jsc.sc().taskScheduler().maxTaskFailures())
    except Exception:  # not part of Spark's interface
        return 4
