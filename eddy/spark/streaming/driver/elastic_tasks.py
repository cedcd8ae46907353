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
from eddy.spark.environment.executors import IDLE_S, Executor, Executors
from eddy.spark.streaming.driver.demand import Demand

if TYPE_CHECKING:
    from pyspark import SparkContext

WATCH_S = 2.0
"""Seconds after which the driver looks whether an executor of a stage is lost."""
GRACE_S = 2.0
"""Seconds after which the job of a meeting that is in vain is cancelled."""


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
        self._warm: dict[str, float] = {}
        """The executors with Python workers that have imported this package, and when they were last used."""
        self._warming: threading.Thread | None = None

    def count(self, most: int) -> int:
        """Return the number of tasks of the next stage, at most `most`; request executors for those that lack slots."""
        now, slots, active = time.monotonic(), self._executors.slots(), self._executors.active()
        each = self._executors.slots_of_each(active)
        theirs = self._executors.of_others()
        if self._demand is None:
            others = sum(executor.slots for executor in active if executor.place in theirs)
            self._demand = Demand(max(1, slots - others), self._most, now)
        # Spark uses the idle workers of an executor in turn, so a worker without a task would lack its engines next.
        wanted = min(self._most, -(-self._demand.tasks(now) // each) * each)
        self._places = self._ready(active, theirs, min(most, wanted), now)
        self._executors.use(wanted, self._places, active)
        return max(1, min(most, wanted, len(self._places) or slots))

    def places(self, tasks: int) -> tuple[str, ...]:
        """Return the preferred places of the tasks of the next stage; none if Spark names no executors."""
        return self._places[:tasks]

    def saw(self, tasks: int, busy_s: float) -> None:
        """Take the load of a stage that ended now: its tasks, and the seconds for which all of them were busy."""
        now = time.monotonic()
        self._executors.go_on()
        self._warm |= dict.fromkeys(self._places, now)
        if self._demand is None:
            return
        before = self._demand.tasks(now)
        self._demand.saw(tasks, busy_s, now)
        if before != self._demand.tasks(now):
            LOG.info("%s: the load needs %d tasks, after %d", self._title, self._demand.tasks(now), before)

    def _ready(self, active: Sequence[Executor], theirs: frozenset[str], wanted: int, now: float) -> tuple[str, ...]:
        """Return slots of warm executors, at most `wanted`, and warm others, which takes seconds.

        Slots of the executors that Spark added first, so that the others become idle when fewer are wanted. Left out
        are executors of other joins, and those that have tasks of other jobs now, and had some before the newest stage:
        a task that prefers such a place would wait for it. If none is left, the slots count that have no task.
        """
        mine = [executor for executor in active if executor.place not in theirs]
        busy = frozenset(executor.place for executor in mine if executor.busy)
        free = [executor for executor in mine if executor.place not in busy & self._taken]
        self._taken = busy
        slots = [executor.place for executor in free for _ in range(executor.slots)]
        slots = slots or [executor.place for executor in active for _ in range(executor.slots - executor.busy)]
        places = tuple((slots or [executor.place for executor in active])[:wanted])
        # A list, as another thread may add an executor.
        known = {place for place, used in list(self._warm.items()) if now - used <= IDLE_S}
        if not known:  # as in the first micro-batch
            known = set(places)
        cold = [place for place in places if place not in known]
        if cold and (self._warming is None or not self._warming.is_alive()):
            self._warming = threading.Thread(target=self._warm_places, args=(cold,), name="eddy warms", daemon=True)
            self._warming.start()
        warm = tuple(place for place in places if place in known) or places[:1]
        self._warm |= dict.fromkeys(warm, now)
        return warm

    def _warm_places(self, cold: Sequence[str]) -> None:
        # An executor may be removed again.
        with contextlib.suppress(Exception):
            self._warm_up(cold)
            self._warm |= dict.fromkeys(cold, time.monotonic())

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
                self._executors.go_on()
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
