"""Directories of a job: the durable ones that all hosts see, and the scratch directory of each host."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from stairs.storage.private import private_directory

OLD_AFTER_S = 7 * 24 * 3600
"""Seconds after which the live engines of a job that no longer runs on a host are deleted."""


@dataclass(frozen=True)
class Locations:
    """The directories of one checkpoint.

    root   the checkpoint, which the driver and all workers can reach
    state  name of the checkpoint among others on a host
    local  scratch directory of hosts whose environment names none; cluster managers name one
    """

    root: Path
    state: str
    local: Path

    @property
    def log(self) -> Path:
        """Directory of segments: all rows of the state."""
        return self.root / "log"

    @property
    def late(self) -> Path:
        """Directory of late rows."""
        return self.root / "late"

    @property
    def engines(self) -> Path:
        """Directory of live engines, in the scratch directory that all workers of a host share."""
        named = os.environ.get("SPARK_LOCAL_DIRS") or os.environ.get("LOCAL_DIRS")
        scratch = Path(named.split(",")[0]) if named else self.local
        # For Python workers Spark names the directory of its block manager, which Spark deletes when the driver ends.
        scratch = scratch.parent if scratch.name.startswith("blockmgr-") else scratch
        return scratch / f"eddy-{os.getuid()}" / self.state

    def engine_file(self, group: int, part: int = 0) -> Path:
        """Return the path of a key group's live engine on this host, and create its directory.

        part   number of the file among the files of the engine

        Raises InputError for a directory that another user owns or may write to.
        """
        return private_directory(self.engines) / _engine_name(group, part)

    def has_engine_file(self, group: int) -> bool:
        """Return whether this host has a file of a key group's live engine."""
        return (self.engines / _engine_name(group, 0)).exists()

    def delete_engines(self) -> None:
        """Delete the job's live engines on this host."""
        shutil.rmtree(self.engines, ignore_errors=True)

    def delete_old_engines(self) -> None:
        """Delete the live engines of jobs that have not run on this host for a week."""
        directory = private_directory(self.engines)
        os.utime(directory)
        for other in directory.parent.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another driver may delete the directory as well
                if time.time() - other.stat().st_mtime > OLD_AFTER_S:
                    shutil.rmtree(other, ignore_errors=True)


def _engine_name(group: int, part: int) -> str:
    return f"{group:06d}.engine" if part == 0 else f"{group:06d}-{part}.engine"
