"""The tasks of a join whose executors come and go: how many there are, where they run, and what happens if one is lost.

A stage that is no barrier stage goes on without its lost tasks, which Spark repeats in vain, and waits for tasks that
Spark cannot end. So the job of a meeting that is in vain is cancelled, once its tasks had time to return their errors.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from eddy.log import LOG
from eddy.spark.environment.executors import Executor, Executors
from eddy.spark.streaming.driver.demand import Demand

if TYPE_CHECKING:
    from pyspark import SparkContext

WATCH_S = 2.0
"""Seconds after which the driver looks whether an executor of a stage is lost."""
GRACE_S = 2.0
"""Seconds after which the job of a meeting that is in vain is cancelled."""
IDLE_S = 50.0
"""Spark ends Python workers that were idle for a minute."""


class ElasticTasks:
    """The tasks of one join.

    title   of the join in records
    most    the most tasks
    warm_up starts Python workers in places, and returns when they run
    """

    def __init__(
        self, spark: SparkContext, executors: Executors, title: str, most: int, warm_up: Callable[[Sequence[str]], None]
    ) -> None:
        self._spark, self._executors, self._title, self._most = spark, executors, title, most
        self._warm_up = warm_up
        self._demand: Demand | None = None
        self._places: tuple[str, ...] = ()
        self._taken: frozenset[str] = frozenset()
        """The executors that had tasks of others before the newest stage."""
        self._warm: frozenset[str] | None = None
        """The executors with Python workers that have imported this package; None if none is known."""
        self._warming: threading.Thread | None = None
        self._used_at = -IDLE_S

    def count(self, most: int) -> int:
        """Return the number of tasks of the next stage, at most `most`; request executors for those that lack slots."""
        now, slots, active = time.monotonic(), self._executors.slots(), self._executors.active()
        each = self._executors.slots_of_each(active)
        if self._demand is None:
            self._demand = Demand(slots, self._most, now)
        # Spark uses the idle workers of an executor in turn, so a worker without a task would lack its engines next.
        wanted = min(self._most, -(-self._demand.tasks(now) // each) * each)
        self._executors.request(wanted, active)
        if now - self._used_at > IDLE_S:
            self._warm = None
        self._used_at = now
        self._places = self._ready(active, min(most, wanted))
        slots = len(self._places) if self._places else slots - self._executors.others()
        return max(1, min(most, wanted, slots))

    def places(self, tasks: int) -> tuple[str, ...]:
        """Return the preferred places of the tasks of the next stage; none if Spark names no executors."""
        return self._places[:tasks]

    def saw(self, tasks: int, busy_s: float) -> None:
        """Take the load of a stage that ended now: its tasks, and the seconds for which all of them were busy."""
        now = time.monotonic()
        self._used_at = now
        if self._demand is None:
            return
        before = self._demand.tasks(now)
        self._demand.saw(tasks, busy_s, now)
        if before != self._demand.tasks(now):
            LOG.info("%s: the load needs %d tasks, after %d", self._title, self._demand.tasks(now), before)

    def _ready(self, active: Sequence[Executor], wanted: int) -> tuple[str, ...]:
        """Return slots of warm executors, at most `wanted`, and warm others, which takes seconds.

        Slots of the executors that Spark added first, so that the others become idle when fewer are wanted. An executor
        that has tasks of others now, and had some before the newest stage, is left out: a task that prefers its place
        would wait for it.
        """
        busy = frozenset(executor.place for executor in active if executor.busy)
        free = [executor for executor in active if executor.place not in busy & self._taken]
        self._taken = busy
        slots = [executor.place for executor in free or active for _ in range(executor.slots)]
        skipped = self._executors.others()
        places = tuple(slots[skipped : skipped + wanted] or slots[-1:])
        if self._warm is None:
            self._warm = frozenset(places)
        cold = [place for place in places if place not in self._warm]
        if cold and (self._warming is None or not self._warming.is_alive()):
            self._warming = threading.Thread(target=self._warm_places, args=(cold,), name="eddy warms", daemon=True)
            self._warming.start()
        warm = tuple(place for place in places if place in self._warm)
        return warm or places[:1]

    def _warm_places(self, cold: Sequence[str]) -> None:
        # An executor may be removed again.
        with contextlib.suppress(Exception):
            self._warm_up(cold)
            if self._warm is not None:
                self._warm |= frozenset(cold)

    @contextlib.contextmanager
    def watched(self, give_up: Callable[[], None], tasks: int) -> Iterator[Callable[[], None]]:
        """Watch the stage that the body runs; yield the function to call if its meeting is in vain.

        give_up  ends the meeting if an executor of the stage is lost
        """
        tag, ended = f"eddy-{uuid.uuid4().hex}", threading.Event()
        places = frozenset(self.places(tasks))

        def cancel() -> None:
            if not ended.wait(GRACE_S):
                # The session may have ended.
                with contextlib.suppress(Exception):
                    self._spark.cancelJobsWithTag(tag)

        def watch() -> None:
            while not ended.wait(WATCH_S):
                if not self._executors.are_there(places):
                    give_up()
                    return

        self._spark.addJobTag(tag)
        threading.Thread(target=watch, name="eddy watches", daemon=True).start()
        try:
            yield lambda: threading.Thread(target=cancel, name="eddy cancels", daemon=True).start()
        finally:
            ended.set()
            with contextlib.suppress(Exception):
                self._spark.removeJobTag(tag)
