"""The parent process of Spark's Python workers: it loads the engine once and then forks the workers.

The setting `spark.python.daemon.module` names this module (see `session.py`). A forked worker shares the imported
modules and the compiled kernels of its parent, so no task compiles or loads anything. If the warm-up fails, the workers
still run, and each loads the kernels when it first uses them.

A worker whose task Spark gave up, or which was idle for a minute, finds its socket closed. Such a worker ends without a
word; Spark's own daemon would print a traceback of the broken pipe on the standard error of the user's program. Spark
starts the workers of a Python source under its own daemon in any case, so the modules of sources call `end_quietly`.

Invariant: nothing else writes to the standard output before `manager()` writes its port, which the JVM reads there.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    Worker = Callable[[socket.socket, bool], int]

GIVEN_UP = 1  # any exit code but 0 ends the worker


def ending_quietly(worker: Worker) -> Worker:
    """Return the worker function of Spark's daemon, with an exit code in place of the error of a closed socket.

    An error of a task never leaves this function as a closed socket: Spark's worker reports it to the JVM.
    """

    def run(sock: socket.socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return GIVEN_UP

    return run


def end_quietly() -> None:
    """Let this process end without a word, if it is a worker of Spark's own daemon."""
    program = sys.modules["__main__"]
    if program.__spec__ is not None and program.__spec__.name == "pyspark.daemon":
        # The daemon looks the function up each time that it waits for work.
        vars(program)["worker"] = ending_quietly(vars(program)["worker"])


def warm() -> bool:
    """Import the modules that tasks need and load the kernels; return False after a failure, which goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            import eddy
            from eddy.spark.batch import hop_tasks, partition_join  # noqa: F401
            from eddy.spark.hops import windows
            from eddy.spark.partitioning import split
            from eddy.spark.transports import packed, rows  # noqa: F401

            eddy.warmup()
            split.warmup()
            windows.warmup()
        except Exception:
            print("eddy: the warm-up of the workers failed; they load the kernels on first use:", file=sys.stderr)
            traceback.print_exc()
            return False
    # A worker collects garbage after each task. Freezing excludes the half million objects of the compiler and the
    # libraries: collecting them would cost more than a small task and would unshare their memory pages.
    gc.collect()
    gc.freeze()
    return True


if __name__ == "__main__":
    from pyspark import daemon

    warm()
    vars(daemon)["worker"] = ending_quietly(daemon.worker)
    daemon.manager()
