"""The Python workers of a Spark driver, found in /proc, to kill one on purpose. Linux only."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROC = Path("/proc")


@dataclass(frozen=True)
class _Process:
    parent: int
    running: bool


def driver_jvm(spark: SparkSession) -> int:
    """Return the process id of the JVM behind a session."""
    assert spark.sparkContext._jvm is not None
    return int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())


def busy_workers(jvm: int) -> list[int]:
    """Return the process ids of the Python workers of a JVM that compute at this moment.

    Spark's JVM starts one Python process, and the workers are forks of it. So a worker is a descendant of the JVM whose
    parent runs the same program. Names do not matter, and no process of another program is ever returned.
    """
    processes = {
        int(entry.name): found for entry in _PROC.iterdir() if entry.name.isdigit() and (found := _look(entry))
    }
    return [
        pid
        for pid, process in processes.items()
        if process.running
        and process.parent != jvm
        and jvm in _ancestors(process.parent, processes)
        and _program(pid) == _program(process.parent) is not None
    ]


def kill(pid: int) -> bool:
    """Kill a process with SIGKILL; return False if it has already ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _look(entry: Path) -> _Process | None:
    try:
        # The second field is the name in parentheses, which may hold anything.
        state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return _Process(int(parent), state == "R")


def _ancestors(pid: int, processes: dict[int, _Process]) -> list[int]:
    found = []
    while pid in processes:
        pid = processes[pid].parent
        found.append(pid)
    return found


def _program(pid: int) -> str | None:
    try:
        return os.readlink(_PROC / str(pid) / "exe")
    except OSError:
        return None
