"""The Python workers of a join: one Spark job per micro-batch, in workers that keep the engines.

The tasks of a micro-batch meet (`meeting.py`), so all tasks must run at the same time. Spark guarantees this for a
barrier stage, which it starts only when it has a slot for every task. Spark does not repeat a barrier stage that fails,
so `run` repeats the stage as often as Spark repeats a task.

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
from eddy.spark.environment.pools import in_pool, return_pool, take_pool
from eddy.spark.environment.session import one_host, parallelism
from eddy.spark.errors import MalformedMessageError, error_of_worker
from eddy.spark.job_description import described
from eddy.spark.streaming.driver.context import JobContext
from eddy.spark.streaming.driver.meeting import Decide, Meetings
from eddy.spark.streaming.worker.engines import JoinStart
from eddy.spark.streaming.worker.join_stage import MEETING, Orders, RunTask
from eddy.spark.streaming.worker.tasks import TaskReport

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
        self._meetings = Meetings(host, context.key, conf.get("spark.driver.bindAddress"))
        start = JoinStart(uuid.uuid4().hex, job, context.key, one_host(context.spark))
        self._run_task = RunTask(start, self._meetings.place)
        self._attempts = _attempts(spark)
        self._stages: dict[int, RDD[TaskReport]] = {}
        self._running = threading.Lock()
        self._used_at = 0.0  # the thread starts the workers while Spark plans the query
        self._closed = threading.Event()
        self._pool = take_pool(spark, tasks)
        threading.Thread(target=self._keep_alive, name="eddy keeps workers", daemon=True).start()

    def slots(self) -> int:
        """Return how many tasks can run at a time now."""
        try:
            inner = self._spark._jsc.sc()
            return int(inner.maxNumConcurrentTasks(inner.resourceProfileManager().defaultResourceProfile()))
        except Exception:  # not part of Spark's interface
            return parallelism(self._context.spark)

    def run(
        self, batch: int, most: int, orders: MakeOrders, decide: Decide, check: Callable[[], None]
    ) -> list[TaskReport]:
        """Run a micro-batch in at most `most` tasks; return their reports.

        orders  returns the orders of each of a number of tasks
        decide  takes the report of each task (`worker.join_stage.Said`) and returns the `BatchTask` of the task
        check   raises an error if the query was stopped

        Runs the job again if the job fails, as often as Spark runs a task, because the driver cannot know which errors
        are transient. The error of a message that cannot be decoded is not transient, so it is not repeated.
        """
        with self._running:
            try:
                for left in reversed(range(self._attempts)):
                    try:
                        return self._run_once(batch, orders(max(1, min(most, self.slots()))), decide)
                    except Exception as problem:
                        check()
                        cause = error_of_worker(problem) or problem
                        if not left or isinstance(cause, MalformedMessageError):
                            raise
                        LOG.warning("%s: batch %d failed and runs again: %s", self._context.name, batch, cause)
            finally:
                self._used_at = time.monotonic()
        raise AssertionError("at least one attempt")

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
            with self._meetings.hold(orders, decide_once) as name:
                self._spark.setLocalProperty(MEETING, name)
                reports = self._stage(tasks).collect()
        finally:
            slow.cancel()
        if not decided:
            raise RuntimeError(f"the {tasks} tasks of a micro-batch ended before they met")
        return reports

    def _stage(self, tasks: int) -> RDD[TaskReport]:
        """Return the stage of this many tasks, planned once."""
        if tasks not in self._stages:
            numbers = self._spark.parallelize(range(tasks), tasks)
            self._stages[tasks] = in_pool(self._spark, self._pool, numbers.barrier().mapPartitions(self._run_task))
        return self._stages[tasks]

    def _keep_alive(self) -> None:
        text = f"{self._context.name}: keep workers"
        while not self._closed.is_set():
            with self._running:
                if time.monotonic() - self._used_at > ALIVE_S:
                    # The session may have ended.
                    with contextlib.suppress(Exception), described(self._context.spark, text):
                        stage = self._spark.parallelize([0], 1).mapPartitions(_nothing)
                        in_pool(self._spark, self._pool, stage).collect()
                    self._used_at = time.monotonic()
            self._closed.wait(ALIVE_S / 5)

    def close(self) -> None:
        """Let Spark end the workers, or let the next join use them. Idempotent."""
        if not self._closed.is_set():
            self._closed.set()
            self._meetings.close()
            return_pool(self._spark, self._pool)


def _nothing(numbers: Iterable[int]) -> Iterator[int]:
    list(numbers)
    return iter(())


def _attempts(context: SparkContext) -> int:
    """Return how often Spark runs a task that fails."""
    try:
        return int(context._jsc.sc().taskScheduler().maxTaskFailures())
    except Exception:  # not part of Spark's interface
        return 4
