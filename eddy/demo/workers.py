"""The Python workers of a Spark driver, found in /proc, to kill one on purpose. Linux only."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROC = Path("/proc")


def driver_jvm(spark: SparkSession) -> int:
    """Return the process id of the JVM behind a session."""
    assert spark.sparkContext._jvm is not None
    return int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())


def workers(jvm: int) -> list[int]:
    """Return the process ids of the Python workers of a JVM.

    Spark's JVM starts one Python process, and the workers are forks of it. So a worker is a descendant of the JVM whose
    parent runs the same program. Names do not matter, and no process of another program is ever returned.
    """
    parents = {
        int(entry.name): parent for entry in _PROC.iterdir() if entry.name.isdigit() and (parent := _parent(entry))
    }
    return [
        pid
        for pid, parent in parents.items()
        if parent != jvm and jvm in _ancestors(parent, parents) and _program(pid) == _program(parent) is not None
    ]


@contextmanager
def paused(pids: list[int]) -> Iterator[list[int]]:
    """Stop processes with SIGSTOP for the time of a block; give those that were alive.

    A task that is given to a stopped worker waits for the worker. So a worker can be killed during its task, however
    short the task is.
    """
    held = [pid for pid in pids if _sent(pid, signal.SIGSTOP)]
    try:
        yield held
    finally:
        for pid in held:
            _sent(pid, signal.SIGCONT)


def kill(pid: int) -> bool:
    """Kill a process with SIGKILL; return False if it has already ended."""
    return _sent(pid, signal.SIGKILL)


def _sent(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _parent(entry: Path) -> int | None:
    try:
        # The second field is the name in parentheses, which may hold anything.
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    ancestors = []
    while pid in parents:
        pid = parents[pid]
        ancestors.append(pid)
    return ancestors


def _program(pid: int) -> str | None:
    try:
        return os.readlink(_PROC / str(pid) / "exe")
    except OSError:
        return None
