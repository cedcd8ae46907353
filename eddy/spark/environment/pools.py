"""Pools of Python workers that only joins use.

Spark gives a task an idle worker of a pool, and it has a pool for each set of environment variables. So a variable
makes a pool of its own. Each streaming join that runs in a session has one; the next join takes over the pool of one
that ended, with its workers.
"""

from __future__ import annotations

import threading
from itertools import count
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

T = TypeVar("T")
VARIABLE = "EDDY_JOIN"
_used: dict[str, set[int]] = {}
"""Id of a Spark application -> numbers of the pools of running joins."""
_lock = threading.Lock()


def take_pool(context: SparkContext) -> int:
    """Return the least number of a pool that no running join uses, and reserve it."""
    with _lock:
        used = _used.setdefault(str(context.applicationId), set())
        number = next(number for number in count() if number not in used)
        used.add(number)
    return number


def return_pool(context: SparkContext, number: int) -> None:
    """Let another join use a pool."""
    with _lock:
        _used[str(context.applicationId)].discard(number)


def in_pool(context: SparkContext, number: int, stage: RDD[T]) -> RDD[T]:
    """Return the stage, whose tasks will run in a pool. Nothing may have run it before."""
    context.environment[VARIABLE] = str(number)
    try:
        stage._jrdd  # noqa: B018 - fixes the environment of the stage
    finally:
        del context.environment[VARIABLE]
    return stage
