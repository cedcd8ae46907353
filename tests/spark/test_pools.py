"""Pools of Python workers: which one a streaming join takes, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eddy.spark.environment import pools
from eddy.spark.environment.pools import return_pool, take_pool


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
