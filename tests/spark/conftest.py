"""One Spark session per process for all tests that need it.

Under xdist, tests of streams share one process, and the other tests with Spark share another, so there are two JVMs.
Tests that start drivers of their own are the group `faults`, which a third process may run at the same time: much of
the time of all three is spent waiting.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark.class_archive import jvm_options
from tests.spark.forks import forking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ.setdefault("SPARK_SUBMIT_OPTS", jvm_options())


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("streams" if "streaming" in item.path.parts else "spark"))


@pytest.fixture(scope="session")
def forks() -> Iterator[dict[str, str]]:
    """The environment variables of JVMs whose processes for Python sources are forks."""
    with forking() as variables:
        yield variables


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, forks: dict[str, str]) -> Iterator[SparkSession]:
    from eddy.spark import session

    scratch = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in forks.items():
            patch.setenv(name, value)
        started = session(
            "local[2,1]",  # tests expect each failure of a task
            app_name="eddy tests",
            **{
                "spark.driver.memory": "1g",
                # A worker whose task was given up runs until the test releases it (`streaming/faults/traps.py`).
                "spark.python.task.killTimeout": "120s",
                "spark.local.dir": str(scratch / "local"),
                "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            },
        )
    yield started
    started.stop()
