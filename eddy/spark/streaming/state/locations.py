"""Where a task finds things: the durable directories all hosts see, and the scratch directory of its own host."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from stairs.storage.private import private_directory

FORGOTTEN_AFTER_S = 7 * 24 * 3600
"""Live engines of a job that has not run on this host for so long are deleted."""


@dataclass(frozen=True)
class Places:
    """The directories of one checkpoint.

    root   seen by the driver and all workers
    state  names the checkpoint among others on a host
    local  the scratch directory of a host that does not name one in its environment, as cluster managers do
    """

    root: Path
    state: str
    local: Path

    @property
    def log(self) -> Path:
        """Segments, which are the truth."""
        return self.root / "log"

    @property
    def late(self) -> Path:
        """Rows that came too late."""
        return self.root / "late"

    @property
    def arenas(self) -> Path:
        """The live engines on this host: in Spark's scratch directory, which all workers of a host share."""
        named = os.environ.get("SPARK_LOCAL_DIRS") or os.environ.get("LOCAL_DIRS")
        scratch = Path(named.split(",")[0]) if named else self.local
        # To Python workers Spark names the directory of its block manager, which goes when the driver does.
        scratch = scratch.parent if scratch.name.startswith("blockmgr-") else scratch
        return scratch / f"eddy-{os.getuid()}" / self.state

    def arena(self, group: int) -> Path:
        """Return the file of a key group's live engine on this host; its directory is there.

        Raises InputError for a directory that another user owns or may write to.
        """
        return private_directory(self.arenas) / f"{group:06d}.arena"

    def forget_arenas(self) -> None:
        """Delete the live engines of this host."""
        shutil.rmtree(self.arenas, ignore_errors=True)

    def forget_others(self) -> None:
        """Delete the live engines of jobs that have not run on this host for a week."""
        directory = private_directory(self.arenas)
        os.utime(directory)
        for other in directory.parent.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another driver may tidy as well
                if time.time() - other.stat().st_mtime > FORGOTTEN_AFTER_S:
                    shutil.rmtree(other, ignore_errors=True)
