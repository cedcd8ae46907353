"""A join with workers of another Python is refused before it starts, with a remedy and without a trace."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyspark
import pytest

import eddy
from eddy.spark import SparkJoinError
from eddy.spark.environment import worker_python
from eddy.spark.environment.worker_python import check_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def script(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def session_with(python: str, application: str = "local-of-a-test") -> Any:
    """A session whose workers run this command; it cannot start jobs."""

    def no_job(*_: Any) -> None:
        raise AssertionError("a job was started")

    context = SimpleNamespace(
        applicationId=application, master="local[2,4]", pythonExec=python, parallelize=no_job, getLocalProperty=no_job
    )
    return cast("SparkSession", SimpleNamespace(sparkContext=context, version=pyspark.__version__))


def test_an_interpreter_without_the_package(tmp_path: Path) -> None:
    bare = script(tmp_path / "python3", f'exec {sys.executable} -I -S "$@"')
    with pytest.raises(SparkJoinError) as raised:
        check_workers(session_with(bare))
    said = str(raised.value)
    assert said.startswith(f"the Python workers of this Spark session run {bare} and cannot import eddy (Module")
    assert "No module named 'eddy'" in said
    assert "os.environ['PYSPARK_PYTHON'] = sys.executable" in said
    assert "\n" not in said


def test_another_version_of_the_package(tmp_path: Path) -> None:
    other = script(tmp_path / "python3", "echo 0.0.1")
    with pytest.raises(SparkJoinError, match=rf"have version 0\.0\.1 of eddy, while the driver has {eddy.__version__}"):
        check_workers(session_with(other))


def test_an_interpreter_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SparkJoinError, match=r"run .*/nowhere and cannot be started"):
        check_workers(session_with(str(tmp_path / "nowhere")))


def test_the_task_says_what_it_cannot_import() -> None:
    with pytest.raises(SparkJoinError, match=r"run /usr/bin/python and cannot import eddy \(ImportError: no numba\)"):
        worker_python._check("/usr/bin/python", None, "ImportError: no numba")


def test_a_session_is_asked_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_python, "_checked", set())
    check_workers(spark)
    assert worker_python._checked == {spark.sparkContext.applicationId}
    monkeypatch.setattr(type(spark.sparkContext), "parallelize", None)  # a second job would fail
    check_workers(spark)


def test_joins_and_filters_ask(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import pyarrow as pa

    from eddy.spark import filter, join

    rows = pa.schema([("k", pa.int64())])
    query = eddy.Query([eddy.Stream(name, rows) for name in "RS"], ["R.k = S.k"])
    batch = {name: spark.range(3).withColumnRenamed("id", "k") for name in "RS"}
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load().selectExpr("value AS k")
    streaming = join(query, {"R": rate, "S": rate}, checkpoint=tmp_path / "state")
    monkeypatch.setattr(worker_python, "_checked", set())
    monkeypatch.setattr(worker_python, "_probe", _cannot)
    for start in (
        lambda: join(query, batch),
        lambda: filter(batch["R"], [lambda rows: pa.array([True] * rows.num_rows)]),
        lambda: streaming.writeStream.format("noop").start(),
    ):
        with pytest.raises(SparkJoinError, match=r"cannot import eddy \(no way\)"):
            start()


def _cannot(_: int) -> tuple[str, str | None, str]:
    return "python3", None, "no way"


# As in the function that it replaces.
_cannot.__module__ = "__main__"
