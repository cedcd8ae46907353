"""The processes of this machine, as /proc shows them."""

from __future__ import annotations

import contextlib
import os
import signal


def processes() -> dict[int, int]:
    """Return the parent of each process."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
    return parents


def below(ancestor: int, command: str, parents: dict[int, int]) -> list[int]:
    """Return the processes that descend from another one and whose command line contains a text."""
    return [pid for pid in sorted(parents) if _descends(pid, ancestor, parents) and command in _command(pid)]


def kill(ancestor: int, command: str) -> None:
    """Kill the processes below another one, and itself, whose command line contains a text."""
    for pid in below(ancestor, command, processes()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != ancestor:
        pid = parents[pid]
    return pid == ancestor


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read().replace("\0", " ")
    except OSError:
        return ""
