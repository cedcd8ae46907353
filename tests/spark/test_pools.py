"""Pools of Python workers: which one a streaming join takes, and that its stages run there."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from eddy.spark.environment import pools
from eddy.spark.environment.pools import VARIABLE, in_pool, return_pool, take_pool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_join_takes_the_first_free_pool_without_more_workers_than_it_has_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("_used", "_workers"):
        monkeypatch.setattr(pools, name, {})
    context: Any = SimpleNamespace(applicationId="one")
    other: Any = SimpleNamespace(applicationId="other")
    assert [take_pool(context, 3), take_pool(context, 2), take_pool(other, 2)] == [0, 1, 0]
    return_pool(context, 0)
    assert take_pool(context, 2) == 2, "pool 0 may have three workers"
    assert take_pool(context, 4) == 0
    return_pool(context, 0)
    return_pool(context, 1)
    assert take_pool(context, 3) == 1, "pool 0 may have four by now"


@pytest.mark.spark
def test_stages_of_several_threads_run_in_their_pools(spark: SparkSession) -> None:
    """Joins that start together make their stages at one moment, and the user's own stages have no pool."""
    context = spark.sparkContext
    before = dict(context.environment)

    def of_worker(_: Any) -> str:
        return os.environ.get(VARIABLE, "none")

    def made(number: int | None) -> list[str]:
        stages = [context.parallelize([0], 1).map(of_worker) for _ in range(20)]
        for stage in stages:
            if number is None:
                stage._jrdd  # noqa: B018 - as an action does
            else:
                in_pool(context, number, stage)
        return stages[0].collect()

    with ThreadPoolExecutor(4) as threads:
        seen = list(threads.map(made, [91, 92, None, None]))
    assert seen == [["91"], ["92"], ["none"], ["none"]]
    assert context.environment == before
    assert context.parallelize([0], 1).map(of_worker).collect() == ["none"]
