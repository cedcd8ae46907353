"""Directories of a job: the durable ones that all hosts see, and the scratch directory of each host."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from eddy.spark.streaming.state.object_store import ObjectStore
from eddy.spark.streaming.state.segments import Segment, SegmentReader, SegmentWriter
from eddy.spark.streaming.state.working_directory import forget_old, is_held, is_working
from eddy.storage.durable import make_directories, write_whole
from stairs.storage.private import private_directory

KEPT_BATCHES = 2
"""Batches for which a host without the driver keeps the files that it wrote, beside those in an object store."""
OLD_AFTER_S = 7 * 24 * 3600
"""Seconds after which the live engines of a job that no longer runs on a host are deleted."""


@dataclass(frozen=True)
class Locations:
    """The directories of one checkpoint.

    root   the checkpoint, which the driver and all workers can reach; with a store, the working directory of each host
    state  name of the checkpoint among others on a host
    local  scratch directory of hosts whose environment names none; cluster managers name one
    store  the object store that has the checkpoint, None for a checkpoint on a file system
    """

    root: Path
    state: str
    local: Path
    store: ObjectStore | None = None

    @property
    def log(self) -> Path:
        """Directory of segments: all rows of the state."""
        return self.root / "log"

    @property
    def late(self) -> Path:
        """Directory of late rows."""
        return self.root / "late"

    def keep(self, path: Path, name: str | None = None) -> None:
        """Put a durable file into the object store; without effect without one, and for a file that is not below root.

        name   the final name of a file that still has a temporary one
        """
        if self.store is not None and path.is_relative_to(self.root):
            self.store.put(path.with_name(name or path.name).relative_to(self.root).as_posix(), path)
            with suppress(FileNotFoundError):
                os.utime(self.root)  # working directories without use for a week are deleted

    def forget(self, path: Path) -> None:
        """Delete a file from the object store; without effect without one."""
        if self.store is not None:
            self.store.delete([path.relative_to(self.root).as_posix()])

    def fetch(self, path: Path) -> None:
        """Get a file that this host does not have from the object store, if it is there."""
        if self.store is None or path.exists() or not path.is_relative_to(self.root):
            return
        stored = self.store.read(path.relative_to(self.root).as_posix())
        if stored is not None:
            make_directories(path.parent)
            write_whole(path, stored[0])

    def writer(self, name: str) -> SegmentWriter:
        """Return the writer of a file of the log. Its name is unique to this attempt of a task."""
        return SegmentWriter(self.log, name, None if self.store is None else self.keep)

    def reader(self, schemas: Sequence[pa.Schema]) -> SegmentReader:
        """Return a reader of the log, with the schema of the rows of each stream."""
        return SegmentReader(self.log, schemas, None if self.store is None else self._ranges)

    def _ranges(self, file: str, segments: Sequence[Segment]) -> Sequence[bytes] | None:
        assert self.store is not None
        return self.store.ranges(f"{self.log.name}/{file}", [(segment.offset, segment.length) for segment in segments])

    def begin(self, batch: int) -> None:
        """Make the working directory of a host ready for the files of a batch; without effect without a store."""
        if self.store is not None:
            private_directory(self.root)
            make_directories(self.log, self.late)
            # The driver deletes those of its host, which its compaction reads.
            if not is_working(self.log):
                forget_old(self.root, batch - KEPT_BATCHES)

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
            with suppress(FileNotFoundError):  # another driver may delete the directory as well
                if time.time() - other.stat().st_mtime > OLD_AFTER_S and not is_held(other):
                    shutil.rmtree(other, ignore_errors=True)


def _engine_name(group: int, part: int) -> str:
    return f"{group:06d}.engine" if part == 0 else f"{group:06d}-{part}.engine"
