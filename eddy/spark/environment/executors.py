"""The executors of a Spark application: their slots, where tasks should run, and requests for more executors.

With dynamic allocation Spark removes an executor that was idle for a while, and adds one when tasks have waited for a
slot for a second. A streaming join has no task that waits, since its tasks run all at once, so the join requests
executors itself.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from eddy.log import LOG

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

REQUEST_S = 1.0
"""The least seconds between two requests. Spark's own requests replace those of a join, so a join repeats them."""
_ENABLED, _MOST = "spark.dynamicAllocation.enabled", "spark.dynamicAllocation.maxExecutors"


class Executors:
    """The executors of one application.

    elastic  whether Spark adds and removes executors while the application runs
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        conf = context.getConf()
        local = str(context.master).partition("[")[0] == "local"
        # Spark ignores the setting in a local session.
        self.elastic = conf.get(_ENABLED, "false") == "true" and not local
        self._cores_per_task = int(conf.get("spark.task.cpus", "1") or 1)
        self._cores = conf.get("spark.executor.cores")
        self._most = conf.get(_MOST)
        self._requested_at = -REQUEST_S

    def slots(self) -> int:
        """Return how many tasks can run at a time now."""
        try:
            inner = self._inner
            return int(inner.maxNumConcurrentTasks(inner.resourceProfileManager().defaultResourceProfile()))
        except Exception:  # not part of Spark's interface
            return int(self._context.defaultParallelism)

    def most_slots(self) -> int | None:
        """Return how many tasks can run at a time with all executors that Spark may add, None without a bound."""
        return None if self._most is None else int(self._most) * self._slots_of_each()

    def request(self, slots: int) -> None:
        """Request executors for so many tasks at a time. Spark adds executors later, or never."""
        now = time.monotonic()
        if not self.elastic or now - self._requested_at < REQUEST_S:
            return
        self._requested_at = now
        executors = -(-slots // self._slots_of_each())
        if self._most is not None:
            executors = min(executors, int(self._most))
        jvm = self._context._jvm
        assert jvm is not None
        try:
            nowhere = jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap())
            self._inner.requestTotalExecutors(executors, 0, nowhere)
        except Exception as problem:  # meant for developers, so it may change
            LOG.warning("a request for %d executors failed: %s", executors, problem)

    def places(self, tasks: int) -> tuple[str, ...]:
        """Return the preferred place of each of the first tasks: slots of the executors that Spark added first.

        The executors that Spark added last thus become idle when a join needs fewer tasks. Without dynamic allocation,
        and for tasks without a slot, there is no preferred place.
        """
        if not self.elastic:
            return ()
        slots = [f"executor_{host}_{number}" for number, host, slots in self._active() for _ in range(slots)]
        return tuple(slots[:tasks])

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

    def _active(self) -> list[tuple[int, str, int]]:
        """Return the number, the host and the slots of each executor, in the order in which Spark added them."""
        try:
            known = self._inner.statusStore().executorList(True)
            every = [known.apply(k) for k in range(known.size())]
            return sorted(
                (int(executor.id()), executor.hostPort().rpartition(":")[0] or executor.hostPort(), slots)
                for executor in every
                if executor.id().isdecimal() and (slots := executor.totalCores() // self._cores_per_task)
            )
        except Exception:  # not part of Spark's interface
            return []

    def _slots_of_each(self) -> int:
        """Return how many tasks an executor runs at a time."""
        if self._cores is not None:
            return max(1, int(self._cores) // self._cores_per_task)
        return max((slots for _, _, slots in self._active()), default=1)
