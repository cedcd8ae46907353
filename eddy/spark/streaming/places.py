"""Where a task finds things: the durable directories all hosts see, and the scratch directory of its own host."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Places:
    """The directories of one checkpoint.

    root   seen by the driver and all workers
    state  names the checkpoint among others on a host
    """

    root: Path
    state: str

    @property
    def log(self) -> Path:
        """Segments, which are the truth."""
        return self.root / "log"

    @property
    def late(self) -> Path:
        """Rows that came too late."""
        return self.root / "late"

    def arena(self, group: int) -> Path:
        """Return the file of a key group's live engine on this host; its directory exists afterwards.

        Spark's local directory: all workers of a host share it, and it is not memory as /dev/shm is.
        """
        local = os.environ.get("SPARK_LOCAL_DIRS") or os.environ.get("LOCAL_DIRS") or tempfile.gettempdir()
        directory = Path(local.split(",")[0]) / f"eddy-{os.getuid()}" / self.state
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        return directory / f"{group:06d}.arena"
