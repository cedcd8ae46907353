"""A Spark session with settings that suit the engine.

  - The workers run the current interpreter (`PYSPARK_PYTHON`), not the first `python3` on the PATH.
  - `java.py` finds Java or prepares one. A local session binds to the loopback address.
  - Workers are forked from a process with loaded kernels (`daemon.py`), and each uses one thread.
  - `local[N]` becomes `local[N,4]`, because `local[N]` never retries a task.
  - Arrow batches carry 65 536 rows, because Spark's default of 10 000 costs more calls. Timestamps are shown in UTC.

A keyword overrides each setting. Environment variables that are already set keep their values.
"""

from __future__ import annotations

import os
import re
import site
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from eddy.spark.environment.java import java_home
from eddy.spark.environment.spark_version import check_version, checkpoint_manager, has_local_sockets
from eddy.spark.errors import SparkJoinError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARROW_ROWS = 65_536
_TASK_FAILURES = 4


def with_retries(master: str) -> str:
    """Return a master URL with which Spark retries failed tasks: a plain `local[2]` never retries.

    >>> with_retries("local[2]"), with_retries("local"), with_retries("local[2,1]"), with_retries("yarn")
    ('local[2,4]', 'local[1,4]', 'local[2,1]', 'yarn')
    """
    if master == "local":
        return f"local[1,{_TASK_FAILURES}]"
    threads = re.fullmatch(r"local\[(\d+|\*)\]", master)
    return f"local[{threads[1]},{_TASK_FAILURES}]" if threads else master


def fast_settings() -> dict[str, str]:
    """Return the settings without which a micro-batch takes several times as long."""
    sockets = {"spark.python.unix.domain.socket.enabled": "true"} if has_local_sockets() else {}
    return {
        # Workers are forked from a process with loaded kernels.
        "spark.python.daemon.module": "eddy.spark.environment.daemon",
        # A job of Python workers then takes 20 ms instead of 62.
        **sockets,
        # Writing an offset or a commit then takes 10 ms instead of 45.
        "spark.sql.streaming.checkpointFileManagerClass": checkpoint_manager(),
    }


def _driver_memory() -> str:
    # The JVM only sorts and shuffles; the windows live in the Python workers. So the JVM gets a quarter.
    total_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{min(8, max(1, total_bytes >> 32))}g"


def _settings(master: str) -> dict[str, str]:
    settings = {
        **fast_settings(),
        # The environment of an executor also reaches the Python workers of a local master.
        "spark.executorEnv.NUMBA_NUM_THREADS": "1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": _driver_memory(),
        "spark.log.level": "ERROR",
        # Otherwise tasks of SQL would have another parent process of workers than all other tasks.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    }
    if master.startswith("local"):
        settings["spark.ui.enabled"] = "false"
        settings["spark.ui.showConsoleProgress"] = "false"
        # Shuffled blobs stay on this machine, and compression hardly reduces the size of numbers.
        settings["spark.shuffle.compress"] = "false"
        threads = re.match(r"local\[(\d+)", master)
        settings["spark.sql.shuffle.partitions"] = threads[1] if threads else str(os.cpu_count() or 1)
    return settings


def _make_importable() -> None:
    """Let the workers import the package even if the package runs from a source tree that is not installed."""
    root = str(Path(__file__).resolve().parents[3])
    installed = {str(Path(p).resolve()) for p in [*site.getsitepackages(), site.getusersitepackages()]}
    known = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    if root not in installed and root not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *known])


def missing_settings(spark: SparkSession) -> dict[str, str]:
    """Return the fast settings for which a session has no value, with the values that `session` sets."""
    # A setting of SQL may be set in a running session; all other settings only at its start.
    known = spark.sparkContext.getConf()
    return {
        name: value for name, value in fast_settings().items() if not (known.get(name) or spark.conf.get(name, None))
    }


def parallelism(spark: SparkSession) -> int:
    """Return the number of tasks that run at a time in a session."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context
        return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


def one_host(spark: SparkSession) -> bool:
    """Return whether the driver and all tasks run on one host."""
    # "local-cluster[" stands for several hosts.
    return re.match(r"local(\[|$)", str(spark.sparkContext.master)) is not None


def session(master: str = "local[2]", *, app_name: str = "eddy", **conf: object) -> SparkSession:
    """Start a Spark session for `eddy.spark.join`, or return the running one.

        spark = eddy.spark.session("local[4]", **{"spark.ui.enabled": True})

    `conf` holds Spark settings, which override the defaults of this function. The call sets `JAVA_HOME`, and
    `PYSPARK_PYTHON`, `PYSPARK_DRIVER_PYTHON`, `SPARK_LOCAL_IP` and `PYTHONPATH` where the environment does not. A
    session that is already running keeps its JVM and workers; only its SQL settings change. Takes about 4 s. Raises
    SparkJoinError without pyspark or Java, and for a setting whose name does not begin with "spark.".
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise SparkJoinError("pyspark is not installed: pip install 'eddy-join[spark]'") from missing
    check_version()
    for key in conf:
        if not key.startswith("spark."):
            raise SparkJoinError(
                f"{key!r} is not a Spark setting: names of settings begin with 'spark.'; pass **{{'spark.…': value}}"
            )
    if SparkSession.getActiveSession() is None:
        os.environ["JAVA_HOME"] = str(java_home())
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        _make_importable()
    builder = SparkSession.builder.master(with_retries(master)).appName(app_name)
    for key, value in {**_settings(master), **conf}.items():
        builder = builder.config(key, str(value).lower() if isinstance(value, bool) else str(value))
    return builder.getOrCreate()
