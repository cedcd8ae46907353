"""Pools of Python workers that only joins use.

Spark gives a task an idle worker of a pool, and has a pool for each set of environment variables. So an additional
variable makes a separate pool. Each running streaming join of a session has its own pool; the next join takes over the
pool of a join that ended, with its workers. A join does not take a pool with more workers than it has tasks: Spark uses
idle workers in turn, so the engines of the join would be in another worker in each micro-batch.
"""

from __future__ import annotations

import threading
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

T = TypeVar("T")
VARIABLE = "EDDY_JOIN"
_used: dict[str, set[int]] = {}
"""Id of a Spark application -> numbers of the pools of running joins."""
_workers: dict[str, dict[int, int]] = {}
"""Id of a Spark application -> number of a pool -> maximal number of its workers."""
_lock = threading.Lock()


def take_pool(context: SparkContext, tasks: int) -> int:
    """Return the least number of a pool that no running join uses, and reserve it.

    tasks   number of tasks that the join runs at a time; the pool has no more workers
    """
    with _lock:
        application = str(context.applicationId)
        used, workers = _used.setdefault(application, set()), _workers.setdefault(application, {})
        number = next(number for number in count() if number not in used and workers.get(number, 0) <= tasks)
        used.add(number)
        workers[number] = tasks
    return number


def return_pool(context: SparkContext, number: int) -> None:
    """Let another join use a pool."""
    with _lock:
        _used[str(context.applicationId)].discard(number)


class _WithVariable:
    """A Spark context with an environment of its own: that of the context itself serves all threads."""

    def __init__(self, context: SparkContext, number: int) -> None:
        self._context = context
        self.environment = {**context.environment, VARIABLE: str(number)}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def in_pool(context: SparkContext, number: int, stage: RDD[T]) -> RDD[T]:
    """Return the stage, whose tasks will run in a pool. The stage must not have run before. Any thread may call it."""
    stage.ctx = _WithVariable(context, number)  # type: ignore[assignment]
    try:
        stage._jrdd  # noqa: B018 - fixes the environment of the stage
    finally:
        stage.ctx = context
    return stage
