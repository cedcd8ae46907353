"""The end of a worker whose task Spark gave up, or which was idle for a minute. Such a worker finds its socket closed.

The worker ends without output; Spark's own daemon would print a traceback of the broken pipe on the standard error of
the user's program. Spark always starts the workers of a Python source under its own daemon, so the modules of sources
call `end_quietly`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    Worker = Callable[[socket.socket, bool], int]

GIVEN_UP = 1  # any exit code but 0 ends the worker


def ending_quietly(worker: Worker) -> Worker:
    """Return the worker function of Spark's daemon, with an exit code in place of the error of a closed socket.

    The error of a closed socket never comes from a task, because Spark's worker reports errors of tasks to the JVM.
    """

    def run(sock: socket.socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return GIVEN_UP

    return run


def end_quietly() -> None:
    """Let this process end without output, if it is a worker of Spark's own daemon."""
    program = sys.modules["__main__"]
    if program.__spec__ is not None and program.__spec__.name == "pyspark.daemon":
        # The daemon looks the function up each time that it waits for work.
        vars(program)["worker"] = ending_quietly(vars(program)["worker"])
