"""The executors of a Spark application: their slots, where tasks should run, and requests for more executors.

With dynamic allocation Spark removes an executor that was idle for a while, and adds one when tasks have waited for a
slot for a second. A streaming join has no task that waits, since its tasks run all at once, so the join requests
executors itself. Joins of one application request executors together, and use different ones where there are enough.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from eddy.log import LOG

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

REQUEST_S = 1.0
"""The least seconds between two requests. Spark's own requests replace those of a join, so a join repeats them."""
_ENABLED, _MOST = "spark.dynamicAllocation.enabled", "spark.dynamicAllocation.maxExecutors"
IDLE_S = 50.0
"""Seconds after which a join without a stage needs no executors; Spark ends Python workers after a minute."""
_joins: dict[str, dict[Executors, JoinUse]] = {}
"""Id of a Spark application -> the executors that each of its joins uses."""
_lock = threading.Lock()


class JoinUse(NamedTuple):
    """The executors that a join uses.

    since   time at which its newest stage used them, `time.monotonic`
    slots   tasks that it wants to run at a time
    places  executors of its newest stage
    """

    since: float
    slots: int
    places: frozenset[str]


class Executor(NamedTuple):
    """An executor that gets tasks.

    place  its name as a preferred place of tasks
    slots  tasks that run at a time
    busy   tasks that run now
    """

    place: str
    slots: int
    busy: int


class Executors:
    """The executors of one application, as one join sees them.

    elastic  whether Spark adds and removes executors while the application runs
    copies   whether Spark runs copies of slow tasks
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        conf = context.getConf()

        def is_on(setting: str) -> bool:
            return str(conf.get(setting, "false")).strip().lower() == "true"

        # Spark ignores the setting in a local session.
        self.elastic = is_on(_ENABLED) and str(context.master).partition("[")[0] != "local"
        self.copies = is_on("spark.speculation")
        self._cores_per_task = int(conf.get("spark.task.cpus", "1") or 1)
        self._cores = conf.get("spark.executor.cores")
        self._most = conf.get(_MOST)
        self._requested_at = -REQUEST_S
        self._application = str(context.applicationId)
        self._seen: dict[int, tuple[str, int]] = {}
        self._closed = False

    def slots(self) -> int:
        """Return how many tasks can run at a time now."""
        try:
            inner = self._inner
            return int(inner.maxNumConcurrentTasks(inner.resourceProfileManager().defaultResourceProfile()))
        except Exception:  # not part of Spark's interface
            return int(self._context.defaultParallelism)

    def slots_of_each(self, active: Iterable[Executor] = ()) -> int:
        """Return how many tasks an executor runs at a time, of which some are known."""
        if self._cores is not None:
            return max(1, int(self._cores) // self._cores_per_task)
        return max((executor.slots for executor in active), default=1)

    def most_slots(self) -> int | None:
        """Return how many tasks can run at a time with all executors that Spark may add, None without a bound."""
        return None if self._most is None else int(self._most) * self.slots_of_each(self.active())

    def use(self, slots: int, places: Iterable[str], active: Sequence[Executor]) -> None:
        """Record the executors of the next stage; request more if they are too few: Spark adds them later, or never.

        slots   tasks that the join wants to run at a time
        places  executors of the stage
        """
        now = time.monotonic()
        with _lock:
            if self._closed:
                return
            _joins.setdefault(self._application, {})[self] = JoinUse(now, slots, frozenset(places))
            slots = sum(use.slots for use in self._uses(now).values())
        present = sum(executor.slots for executor in active) or self.slots()
        if slots <= present or now - self._requested_at < REQUEST_S:
            return
        self._requested_at = now
        # Other jobs may need those that run now.
        executors = max(-(-slots // self.slots_of_each(active)), len(active))
        if self._most is not None:
            executors = min(executors, int(self._most))
        jvm = self._context._jvm
        assert jvm is not None
        try:
            nowhere = jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap())
            self._inner.requestTotalExecutors(executors, 0, nowhere)
        except Exception as problem:  # meant for developers, so it may change
            LOG.warning("a request for %d executors failed: %s", executors, problem)

    def go_on(self) -> None:
        """Record that the newest stage still uses its executors."""
        with _lock:
            known = _joins.get(self._application, {})
            if self in known:
                known[self] = known[self]._replace(since=time.monotonic())

    def of_others(self) -> frozenset[str]:
        """Return the executors that other joins of the application use."""
        with _lock:
            uses = self._uses(time.monotonic())
        return frozenset().union(*(use.places for join, use in uses.items() if join is not self))

    def _uses(self, now: float) -> dict[Executors, JoinUse]:
        """Return the uses of all joins of the application that have had a stage lately."""
        known = _joins.get(self._application, {})
        return {join: use for join, use in known.items() if now - use.since <= IDLE_S}

    def close(self) -> None:
        """Use no executors any more. Idempotent."""
        with _lock:
            self._closed = True
            _joins.get(self._application, {}).pop(self, None)

    def active(self) -> list[Executor]:
        """Return the executors that get tasks, in the order in which Spark added them; none if Spark does not say.

        A few calls of the JVM; some for each executor if executors have come, are about to leave, or run tasks.
        """
        try:
            there, scheduler = self._known(), self._inner.schedulerBackend()
            if sum(slots for _, slots in there.values()) != self.slots():
                there = {number: of for number, of in there.items() if scheduler.isExecutorActive(str(number))}
            tracker, running = self._inner.statusTracker(), Counter[str]()
            for executor in tracker.getExecutorInfos() if len(tracker.getActiveJobIds()) else ():
                running[f"{executor.host()}:{executor.port()}"] += executor.numRunningTasks()
            return [Executor(_place(number, at), slots, running[at]) for number, (at, slots) in there.items() if slots]
        except Exception:  # not part of Spark's interface
            return []

    def are_there(self, places: Iterable[str]) -> bool:
        """Return whether Spark has lost none of some executors."""
        try:
            return {_place(number, at) for number, (at, _) in self._known().items()}.issuperset(places)
        except Exception:  # not part of Spark's interface
            return True

    def _known(self) -> dict[int, tuple[str, int]]:
        """Return the number of each executor -> its host with its port, and its slots; ascending by number."""
        numbers = {int(name) for name in str(self._inner.schedulerBackend().getExecutorIds().mkString(" ")).split()}
        seen = dict(self._seen)  # another thread may call at the same time
        if not numbers <= seen.keys():
            executors = self._inner.statusStore().executorList(True)
            for executor in map(executors.apply, range(executors.size())):
                name, at = str(executor.id()), str(executor.hostPort())
                if name.isdecimal() and ":" in at:  # the port is known when the executor is ready
                    seen[int(name)] = at, executor.totalCores() // self._cores_per_task
        self._seen = {number: of for number, of in sorted(seen.items()) if number in numbers}
        return self._seen

    def numbers(self, tasks: int, places: tuple[str, ...] = ()) -> RDD[int]:
        """Return a dataset of the numbers from 0 to `tasks - 1`, each in a partition of its own.

        places  preferred place of each of the first partitions, in the form of Spark's `TaskLocation`
        """
        from pyspark import RDD
        from pyspark.serializers import BatchedSerializer, CPickleSerializer

        if not places:
            return self._context.parallelize(range(tasks), tasks)
        jvm = self._context._jvm
        assert jvm is not None
        pairs = jvm.java.util.ArrayList()
        for number in range(tasks):
            preferred = jvm.java.util.ArrayList()
            for place in places[number : number + 1]:
                preferred.add(place)
            row = bytearray(CPickleSerializer().dumps([number]))
            pairs.add(jvm.scala.Tuple2(row, jvm.PythonUtils.toSeq(preferred)))
        made = self._inner.makeRDD(jvm.PythonUtils.toSeq(pairs), jvm.scala.reflect.ClassTag.AnyRef())
        return RDD(made.toJavaRDD(), self._context, BatchedSerializer(CPickleSerializer(), 1))

    @property
    def _inner(self) -> Any:
        return self._context._jsc.sc()


def _place(number: int, at: str) -> str:
    """Return the name of an executor at a host and port as a preferred place."""
    return f"executor_{at.rpartition(':')[0] or at}_{number}"
