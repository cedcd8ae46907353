"""Checks once per session, before a join starts, that the Python of Spark's workers can run the engine.

Workers run `PYSPARK_PYTHON`, or without it the first `python3` on the PATH, which is often another installation. Spark
reports such a failure with a hundred lines of trace from the first task. So this module first runs the local
interpreter of the workers, if it differs from the current one, and then a small job whose task imports the package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from eddy.spark.environment.pools import in_pool
from eddy.spark.environment.spark_version import check_version
from eddy.spark.errors import SparkJoinError, first_line
from eddy.spark.job_description import described

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_START_S = 60
_checked: set[str] = set()
"""Spark applications whose workers passed the check."""


def check_workers(spark: SparkSession) -> None:
    """Raise SparkJoinError unless a worker of this session can import this version of the package.

    The first call in a session runs a small Spark job; later calls only look up the result. Without effect under Spark
    Connect, whose workers belong to the server.
    """
    try:
        context = spark.sparkContext
    except Exception:  # Spark Connect has none
        return
    application = str(context.applicationId)
    if application in _checked:
        return
    check_version(spark)
    if str(context.master).startswith("local") and not _is_this(context.pythonExec):
        _ask(context.pythonExec)
    try:
        with described(spark, "eddy: check the workers' Python"):
            # The first streaming join will use these workers.
            stage = in_pool(context, 0, context.parallelize([0], 1).map(_probe))
            executable, version, problem = stage.collect()[0]
    except Exception as failure:
        raise _unfit(context.pythonExec, f"fail to start ({first_line(failure)})") from failure
    _check(executable, version, problem)
    _checked.add(application)


def _probe(_: int) -> tuple[str, str | None, str]:
    import sys

    try:
        import eddy
    except Exception as problem:
        return sys.executable, None, f"{type(problem).__name__}: {problem}"
    return sys.executable, eddy.__version__, ""


# The function is pickled by value, because the worker may lack this module.
_probe.__module__ = "__main__"


def _is_this(command: str) -> bool:
    """Return whether a command runs this interpreter. A link in another directory is another environment."""
    path = shutil.which(command)
    if path is None:
        return False
    same_place = os.path.dirname(os.path.abspath(path)) == os.path.dirname(os.path.abspath(sys.executable))
    return same_place and os.path.realpath(path) == os.path.realpath(sys.executable)


def _ask(command: str) -> None:
    """Check that another interpreter of this machine can import the package; its error is shorter than Spark's."""
    code = "import eddy, sys; print(eddy.__version__)"
    try:
        done = subprocess.run([command, "-c", code], capture_output=True, text=True, timeout=_START_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise _unfit(command, f"cannot be started ({problem})") from problem
    output = (done.stderr.strip() or f"its exit code is {done.returncode}").splitlines()[-1]
    _check(command, done.stdout.strip() if done.returncode == 0 else None, output)


def _check(executable: str, version: str | None, problem: str) -> None:
    from eddy import __version__

    if version is None:
        raise _unfit(executable, f"cannot import eddy ({problem})")
    if version != __version__:
        raise _unfit(executable, f"have version {version} of eddy, while the driver has {__version__}")


def _unfit(executable: str, defect: str) -> SparkJoinError:
    return SparkJoinError(
        f"the Python workers of this Spark session run {executable} and {defect}. Start the session with"
        f" eddy.spark.session(), or set os.environ['PYSPARK_PYTHON'] = sys.executable (here {sys.executable}) before it"
        " is started; on a cluster, install the same version of eddy-join in the Python that PYSPARK_PYTHON names there"
    )
