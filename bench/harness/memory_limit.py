"""A bound on the memory of a process, cached pages of files included, by a control group of Linux."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OLD, NEW = ("memory", "memory.limit_in_bytes"), ("", "memory.max")
"""The folder of all groups and the file of the bound, of control groups in version 1 and 2."""


@contextmanager
def memory_limit(n_bytes: int) -> Iterator[Path | None]:
    """Make a group with a bound; yield the file that takes numbers of processes, None where that is forbidden."""
    folder, name = OLD if Path(ROOT, "memory").is_dir() else NEW
    group = ROOT / folder / f"eddy-bench-{os.getpid()}"
    try:
        group.mkdir()
        (group / name).write_text(str(n_bytes))
        allowed = True
    except OSError:
        allowed = False
    try:
        yield group / "cgroup.procs" if allowed else None
    finally:
        # It may not exist, or still have a process that an exception left.
        with suppress(OSError):
            group.rmdir()
